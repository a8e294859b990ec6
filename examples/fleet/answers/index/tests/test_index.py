import unittest

from index import index


class Index(unittest.TestCase):
    def test_words_are_counted_for_each_note(self) -> None:
        found = index({"one": "the apple and the apple", "two": "an apple"})
        assert found == {"apple": {"one": 2, "two": 1}}
