"""Between bytes and values: plan documents, events, and what workers return.

Everything that enters Leadhand as bytes or as somebody's Python object becomes JSON-like data
here, or is refused here with its place. Nothing behind this door checks again.
"""
