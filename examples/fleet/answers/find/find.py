"""python3 find.py WORD...: the notes that say most about some words."""

import sys

from excerpt import excerpt
from index import index
from notes import read
from rank import rank


def find(folder: str, wanted: list[str]) -> list[str]:
    """A line for each note, the best first."""
    notes = read(folder)
    found = rank(index(notes), wanted, len(notes))
    return [f"{name}: {excerpt(notes[name], wanted[0])}" for name in found]


if __name__ == "__main__":
    lines = find("texts", [word.lower() for word in sys.argv[1:]])
    print("\n".join(lines))
    sys.exit(not lines)
