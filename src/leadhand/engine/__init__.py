"""The shell round the pure core: it commits events, performs effects, and decides nothing."""
