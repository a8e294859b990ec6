"""What people, planners and machines are shown of a run. Pure, computed from state and log."""
