"""Guests: processes that drive a run of their own and write through the database's host."""
