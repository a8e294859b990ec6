"""Figures of a fleet, from the log, the journal and git."""
