"""The store on PostgreSQL: one log for a team, on any number of machines; see `store.py`.

Nothing is imported here: the driver is an extra (`leadhand[postgres]`), and an address can be
handled without it.
"""
