"""A scripted coding agent: it knows the answers to the two tasks of epic.md, and needs no model.

`python3 agent.py TASK`, in a clone of the repository. What it leaves in the files is its change. A
real agent (Claude Code, Codex, a command of yours) works in the same place and in the same way.
"""

import json
import sys
from pathlib import Path

DISCOUNT = '''"""Discounts."""


def discount(total: float, percent: float) -> float:
    """Return a total without the discount."""
    return round(total * (100 - percent) / 100, 2)
'''
TEST_DISCOUNT = '''"""Tests of discount.py."""

import unittest

from discount import discount


class Discount(unittest.TestCase):
    def test_ten_percent(self) -> None:
        self.assertEqual(discount(50.0, 10), 45.0)
'''
RECEIPT = '''"""Receipts."""

from cart import total
from discount import discount


def receipt(items: dict[str, float], percent: float) -> str:
    """Return a receipt as text."""
    lines = [f"{name:<10}{price:>8.2f}" for name, price in items.items()]
    return "\\n".join([*lines, f"{'to pay':<10}{discount(total(items), percent):>8.2f}"])
'''
TEST_RECEIPT = '''"""Tests of receipt.py."""

import unittest

from receipt import receipt


class Receipt(unittest.TestCase):
    def test_the_last_line_is_to_pay(self) -> None:
        last = receipt({"apple": 2.0, "bread": 3.0}, 10).splitlines()[-1]
        self.assertEqual(last.split(), ["to", "pay", "4.50"])
'''
ANSWERS = {
    "discount": {"discount.py": DISCOUNT, "tests/test_discount.py": TEST_DISCOUNT},
    "receipt": {"receipt.py": RECEIPT, "tests/test_receipt.py": TEST_RECEIPT},
}


def say(kind: str, **more: object) -> None:
    """Print a line in the form that `leadhand fleet log` shows."""
    print(json.dumps({"type": kind, **more}), flush=True)


def main(task: str) -> int:
    """Write the files of a task; return 0 when it is done."""
    if task not in ANSWERS:
        say("result", text=f"needs: this agent is a script and does not know the task {task}")
        return 1
    for name, text in ANSWERS[task].items():
        Path(name).write_text(text, encoding="utf-8")
        say("file", path=name)
    say("result", text="Done.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
