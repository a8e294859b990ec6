"""The official SDK, which is loaded when a server is first spoken to and not before."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from leadhand.errors import UsageError

if TYPE_CHECKING:
    from types import ModuleType

_LOGGERS = ("mcp", "client")


def sdk() -> ModuleType:
    """The package `mcp`; UsageError says how to install it."""
    try:
        found = importlib.import_module("mcp")
    except ImportError:
        raise UsageError(
            "MCP servers need the package `mcp`, which is not installed. "
            "Fix: pip install 'leadhand[mcp]'"
        ) from None
    for name in _LOGGERS:
        # Failures reach the user as reports. Without a handler, Python would also print the
        # SDK's tracebacks; with one that does nothing, whoever wants them can still listen.
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    return found
