"""Decisions: what a run does next, recovery after failures, planner answers."""
