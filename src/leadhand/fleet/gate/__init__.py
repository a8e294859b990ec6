"""The gate: the commands a change must pass before it lands, and the files it must not touch."""
