"""Evidence: hash chains over the log, and whatever else lets a stranger check a run."""
