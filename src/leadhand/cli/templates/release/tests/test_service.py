"""The tests that a version must pass before it is deployed."""

import unittest

import service


class Greeting(unittest.TestCase):
    """What the service answers."""

    def test_a_name_is_greeted(self) -> None:
        """Check that the name appears in the greeting."""
        self.assertEqual(service.greeting("Ann"), "Hello, Ann.")

    def test_an_empty_name_is_allowed(self) -> None:
        """Check that a request without a name is answered too."""
        self.assertEqual(service.greeting("  "), "Hello, stranger.")
