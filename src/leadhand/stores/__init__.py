"""Stores: in memory for tests, in SQLite or PostgreSQL for real.

Nothing is imported here, so that the use of one store does not load the others.
"""
