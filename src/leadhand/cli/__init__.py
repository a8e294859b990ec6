"""The command line: prints views, decides nothing. Start at `main.py`."""
