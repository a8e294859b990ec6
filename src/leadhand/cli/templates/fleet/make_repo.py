"""Makes shop/, a git repository with one commit, for the fleet to work on."""

import subprocess
from pathlib import Path

FILES = {
    "README.md": "# Shop\n\nPython. Tests: python3 -m unittest discover -s tests\n",
    ".gitignore": "__pycache__/\n",
    "cart.py": '''"""A shopping cart."""


def total(items: dict[str, float]) -> float:
    """Return the sum of all prices."""
    return sum(items.values())
''',
    "tests/test_cart.py": '''"""Tests of cart.py."""

import unittest

from cart import total


class Total(unittest.TestCase):
    def test_prices_are_added(self) -> None:
        self.assertEqual(total({"apple": 2.0, "bread": 3.0}), 5.0)
''',
}


def main() -> None:
    """Write the files and commit them."""
    root = Path(__file__).resolve().parent / "shop"
    if root.exists():
        print("shop/ is there already")
        return
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    who = ["-c", "user.name=You", "-c", "user.email=you@localhost"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*who, "commit", "-qm", "Add a cart"],
    ):
        subprocess.run(["git", *words], cwd=root, check=True)
    print("shop/: a repository with one commit on main")


if __name__ == "__main__":
    main()
