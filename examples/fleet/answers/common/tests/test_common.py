import unittest

from common import counts


class Common(unittest.TestCase):
    def test_only_words_that_say_something_count(self) -> None:
        assert counts("apple")
        assert not counts("the")
