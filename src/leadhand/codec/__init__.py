"""Between bytes and values: plan documents, events, and results of workers.

Everything that enters Leadhand as bytes or as a foreign Python object becomes JSON-like data here,
or is refused here with its place. Later code does not check again.
"""
