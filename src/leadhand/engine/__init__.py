"""The engine around the pure core: it commits events, performs effects, and decides nothing."""
