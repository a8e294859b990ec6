"""Python functions as workers."""
