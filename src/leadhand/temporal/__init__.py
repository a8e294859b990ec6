"""The same core hosted by Temporal: runs as workflows, steps on any number of machines.

Read in this order: cluster (the server, as the rest of Leadhand speaks to it), messages (what
crosses), payloads (how), workflow (the loop), log_writer (its log), remote and activities (the
other side), processes and service (who serves), host and run (starting and speaking to runs).
"""
