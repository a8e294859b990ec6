"""HTTP calls as workers."""
