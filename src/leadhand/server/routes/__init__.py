"""The routes, by what they are about. Each has its rule in `rules.py`."""
