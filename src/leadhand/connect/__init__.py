"""`leadhand connect`: Leadhand inside coding agents, by their own skills and settings."""
