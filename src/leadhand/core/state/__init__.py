"""The state of a run, and the fold of events into it."""
