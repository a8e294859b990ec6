"""The merge queue: the train decides (PURE), the conductor carries it out."""
