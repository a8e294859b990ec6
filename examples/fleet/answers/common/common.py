"""Words that say nothing."""

COMMON = frozenset(("a", "an", "and", "at", "first", "in", "it", "of", "the", "then", "to"))


def counts(word: str) -> bool:
    """Whether a word says something."""
    return word not in COMMON
