"""The sandbox of commands, functions and a fleet's agents."""
