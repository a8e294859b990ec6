"""A quick yes for plain steps, so that a plan of ten thousand is checked in a blink.

Most steps of a large plan say no more than who does what after what. For such a step a few
comparisons settle that nothing could be found in it. Whatever is not plain, or not plainly
right, gets the full checks, which do the reporting; a wrong "no" here costs time, nothing else.
`tests/core/test_check_plain.py` holds the two against each other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from leadhand.core.jsonschema import problems, unusable

if TYPE_CHECKING:
    from collections.abc import Container

    from leadhand.core.catalog import Catalog

PLAIN = frozenset({"id", "worker", "action", "depends_on", "parameters"})
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
DEPENDENCIES_MAX = 100


class Plain:
    """Says yes, remembering what it has seen: workers and actions are few, steps are many."""

    __slots__ = ("_catalog", "_fitting", "_words", "formed")

    def __init__(self, catalog: Catalog | None = None) -> None:
        self._catalog = catalog
        self._words: set[str] = set()
        self._fitting: dict[tuple[str, str], bool] = {}
        self.formed: set[int] = set()
        """The places of the steps that were found to be of plain form."""

    def form(self, step: Any) -> bool:
        """Whether a step is of the plain kind and well formed for certain."""
        if type(step) is not dict or not PLAIN.issuperset(step):
            return False
        ident = step.get("id")
        if type(ident) is not str or not _ID.fullmatch(ident):
            return False
        if not (self._word(step.get("worker")) and self._word(step.get("action", "w"))):
            return False
        after = step.get("depends_on", ())
        if after:
            if type(after) is not list or len(after) > DEPENDENCIES_MAX:
                return False
            if any(type(name) is not str or not _ID.fullmatch(name) for name in after):
                return False
            if len(after) > 1 and len(set(after)) != len(after):
                return False
        elif after not in ((), []):
            return False
        return "parameters" not in step or type(step["parameters"]) is dict

    def _word(self, word: Any) -> bool:
        if type(word) is not str:
            return False
        if word in self._words:
            return True
        good = _WORD.fullmatch(word) is not None
        if good:
            self._words.add(word)
        return good

    def good(self, step: dict[str, Any], known: Container[str]) -> bool:
        """Whether nothing can be found in a step of plain form: worker, action, dependencies."""
        if step.get("parameters"):
            return False
        who = (step["worker"], step.get("action", ""))
        fits = self._fitting.get(who)
        if fits is None:
            fits = self._fitting[who] = self._fits(*who)
        if not fits:
            return False
        after = step.get("depends_on")
        return not after or all(name in known and name != step["id"] for name in after)

    def _fits(self, worker: str, action: str) -> bool:
        if self._catalog is None:
            return True
        offer = self._catalog.offer(worker, action)
        if offer is None or offer.missing:
            return False
        if offer.returns is not None and unusable(offer.returns):
            return False
        return offer.parameters is None or not problems({}, offer.parameters)
