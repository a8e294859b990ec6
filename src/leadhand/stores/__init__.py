"""Where runs are kept: in memory for tests, in SQLite for real.

Nothing is imported here, so that whoever needs one store does not pay for the other.
"""
