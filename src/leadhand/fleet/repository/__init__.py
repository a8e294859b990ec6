"""Repositories of a fleet: git, the hub, the user's repository, commits."""
