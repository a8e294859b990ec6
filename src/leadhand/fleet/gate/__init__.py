"""The gate: what a change must pass before it may land, and what it must not touch."""
