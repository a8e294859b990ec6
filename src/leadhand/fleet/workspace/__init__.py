"""Workspaces of agents: slots, their set-up, what is captured of them, and their clean-up."""
