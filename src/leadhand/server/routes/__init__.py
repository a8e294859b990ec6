"""The routes, grouped by subject. Each has its rule in `rules.py`."""
