"""The store on PostgreSQL: one log for a team, on any number of machines. `store.py` says how.

Nothing is imported here: the driver is an extra (`leadhand[postgres]`), and an address can be
spoken of without it.
"""
