"""Where runs are hosted when one machine is not enough: a Temporal server, as settings name it.

Nothing of Temporal is imported here: whoever only reads settings needs none of it.
"""

from __future__ import annotations

import msgspec

from leadhand.errors import UsageError
from leadhand.temporal.orders import Ways

NAMESPACE = "default"
MISSING = "Temporal is not installed here. Fix: pip install 'leadhand[temporal]'"


class Cluster(msgspec.Struct, frozen=True):
    """A Temporal server, and how runs are hosted on it."""

    address: str
    namespace: str = NAMESPACE
    ways: Ways = Ways()

    @classmethod
    def of(cls, given: Cluster | str | None) -> Cluster | None:
        """From an address, or as it is."""
        return cls(given) if isinstance(given, str) else given


def require() -> None:
    """UsageError when Temporal's library is not installed."""
    try:
        import temporalio  # noqa: F401
    except ImportError:
        raise UsageError(MISSING) from None
