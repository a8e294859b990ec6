"""The same core hosted by Temporal: runs as workflows, steps on any number of machines.

Read in this order: orders (what crosses), payloads (how), flow (the workflow), pipe (its log),
deputy and activities (the other side), serving (processes), client (starting and speaking to runs).
"""
