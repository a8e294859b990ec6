import unittest
from collections import Counter

from rank import rank


class Rank(unittest.TestCase):
    def test_a_rare_word_counts_more_than_one_that_is_everywhere(self) -> None:
        everywhere, rare = Counter(a=1, b=1, c=1), Counter(c=1)
        assert rank({"salt": everywhere, "pie": rare}, ["salt", "pie"], 3) == ["c", "a", "b"]
