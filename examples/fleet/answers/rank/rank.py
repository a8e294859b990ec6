"""Which notes say most about some words."""

from collections import Counter
from math import log


def rank(index: dict[str, Counter[str]], wanted: list[str], notes: int) -> list[str]:
    """Names of notes, the best first. A word that is in fewer notes counts more."""
    score: Counter[str] = Counter()
    for word in wanted:
        places = index.get(word, Counter())
        for name, times in places.items():
            score[name] += times * log(1 + notes / len(places))
    return sorted(score, key=lambda name: (-score[name], name))
