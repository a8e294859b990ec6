"""In which notes a word stands."""

from collections import Counter

from common import counts
from words import words


def index(notes: dict[str, str]) -> dict[str, Counter[str]]:
    """For each word: how often it stands in which note."""
    found: dict[str, Counter[str]] = {}
    for name, text in notes.items():
        for word in filter(counts, words(text)):
            found.setdefault(word, Counter())[name] += 1
    return found
