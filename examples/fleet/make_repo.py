"""Makes `notes/`, a small repository with tests, for the fleet to work on."""

import subprocess
from pathlib import Path

FILES = {
    "AGENTS.md": "Python, standard library only. Tests of `x.py` are in `tests/test_x.py`.\n",
    "CHANGES.md": "# Changes\n\n- Notes can be read.\n",
    "notes.py": '''"""Notes: short texts, each in a file of its own."""

from pathlib import Path


def read(folder: str) -> dict[str, str]:
    """All notes of a folder, by name."""
    return {path.stem: path.read_text() for path in sorted(Path(folder).glob("*.txt"))}
''',
    "tests/test_notes.py": """import unittest

import notes


class Reading(unittest.TestCase):
    def test_all_are_read(self) -> None:
        assert list(notes.read("texts")) == ["bread", "pie", "soup"]
""",
    "texts/bread.txt": "Bread: flour, water, salt and patience. Bake it hot.\n",
    "texts/pie.txt": "Apple pie: flour, butter, apples. Bake the apples first, then the pie.\n",
    "texts/soup.txt": "Soup: carrots, an apple, water. Salt at the end.\n",
}


def main() -> None:
    """Write the files and commit them."""
    root = Path("notes")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    who = ("-c", "user.name=You", "-c", "user.email=you@localhost")
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "Notes"]):
        subprocess.run(["git", *words], cwd=root, check=True)  # noqa: S607 - the git of this machine
    print("notes/: a repository with one commit")


if __name__ == "__main__":
    main()
