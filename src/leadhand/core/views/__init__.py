"""Views of a run for people, planners and programs. Pure, computed from state and log."""
