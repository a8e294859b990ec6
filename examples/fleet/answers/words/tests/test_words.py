import unittest

from words import words


class Words(unittest.TestCase):
    def test_letters_count_and_their_size_does_not(self) -> None:
        assert words("Apple pie: FLOUR, 2 apples.") == ["apple", "pie", "flour", "apples"]
