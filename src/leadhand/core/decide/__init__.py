"""Decisions: the next move of a run, recovery after failures, planner answers."""
