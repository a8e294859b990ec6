"""Processes of workers: started by a supervisor, bounded, and none left behind."""
