"""Commands as workers: argument lists, never a shell."""
