"""A quick yes for plain steps, so that a plan of ten thousand is checked in a blink.

Most steps of a large plan say no more than who does what after what. For such a step a few
comparisons settle that nothing could be found in it. Whatever is not plain, or not plainly
right, gets the full checks, which do the reporting; a wrong "no" here costs time, nothing else.
`tests/core/test_check_plain.py` holds the two against each other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadhand.core.catalog import Catalog

PLAIN = frozenset({"id", "worker", "action", "depends_on", "parameters"})
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
DEPENDENCIES_MAX = 100


def plain_form(step: Any) -> bool:
    """Whether a step is of the plain kind and well formed for certain."""
    if type(step) is not dict or not PLAIN.issuperset(step):
        return False
    ident, worker, action = step.get("id"), step.get("worker"), step.get("action", "w")
    if type(ident) is not str or type(worker) is not str or type(action) is not str:
        return False
    if not (_ID.fullmatch(ident) and _WORD.fullmatch(worker) and _WORD.fullmatch(action)):
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
    return type(step.get("parameters", PLAIN)) is dict or "parameters" not in step


def plainly_good(step: dict[str, Any], catalog: Catalog | None, known: Any) -> bool:
    """Whether nothing can be found in a step of plain form: worker, action, dependencies."""
    if step.get("parameters"):
        return False
    if catalog is not None:
        offer = catalog.offer(step["worker"], step.get("action", ""))
        if offer is None:
            return False
        if offer.parameters is not None and offer.parameters.get("required"):
            return False
    ident = step["id"]
    return all(name in known and name != ident for name in step.get("depends_on", ()))
