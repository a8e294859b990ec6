import unittest

from excerpt import excerpt


class Excerpt(unittest.TestCase):
    def test_a_short_text_is_whole(self) -> None:
        assert excerpt("Apple pie", "pie") == "Apple pie"

    def test_of_a_long_text_the_place_is_shown(self) -> None:
        found = excerpt("x " * 100 + "apple" + " y" * 100, "apple")
        assert "apple" in found
        assert len(found) <= 62
