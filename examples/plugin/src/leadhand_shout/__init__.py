"""A plugin for Leadhand: the planner `alphabet` and the command `leadhand shout`."""
