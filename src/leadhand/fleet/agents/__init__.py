"""Coding agents as processes: one assignment in, one claim out. See `base`."""
