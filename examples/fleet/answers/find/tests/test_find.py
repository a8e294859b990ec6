import unittest

from find import find


class Find(unittest.TestCase):
    def test_the_best_note_comes_first(self) -> None:
        found = find("texts", ["apple", "pie"])
        assert [line.partition(":")[0] for line in found] == ["pie", "soup"]
