"""The same core hosted by Temporal: runs as workflows, steps on any number of machines.

Read in this order: cluster (the server, as seen by the rest of Leadhand), messages (the data that
crosses), payloads (its encoding), workflow (the loop), log_writer (its log), remote and activities
(the other side), processes and service (the serving processes), host and run (starting and
controlling runs).
"""
