"""`leadhand.mcp.json`: the pinned definitions of MCP tools, as a person reviewed them.

With it, tools are described without a connection, and a server that changes one of them is found
out when it is connected to. It is written by `leadhand mcp tools --pin`, read by people, and
belongs into version control beside leadhand.toml.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from leadhand.errors import UsageError
from leadhand.workers.mcp.definition import Definition

FILE = "leadhand.mcp.json"
VERSION = 1
BYTES_MAX = 16 << 20


class Pinned(NamedTuple):
    """One server as it was pinned."""

    name: str
    reached: str
    tools: dict[str, Definition]


@dataclass(slots=True)
class Pins:
    """A file of pins; one that does not exist pins nothing."""

    path: Path
    servers: dict[str, Pinned] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Pins:
        """Read a file of pins. Raise `UsageError` with the mistake."""
        if not path.exists():
            return cls(path)
        try:
            if path.stat().st_size > BYTES_MAX:
                raise ValueError(f"it is larger than {BYTES_MAX} bytes")
            doc = json.loads(path.read_text(encoding="utf-8"))
            if doc["version"] != VERSION:
                raise ValueError(f"its version is not {VERSION}")
            return cls(path, {name: _pinned(each) for name, each in doc["servers"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"{path}: cannot be used: {error}. Fix: write it again with "
                "`leadhand mcp tools --pin`."
            ) from None

    def put(self, server: str, name: str, identity: str, tools: dict[str, Definition]) -> None:
        """Pin what a server offers now."""
        self.servers[server] = Pinned(name, reached(identity), tools)

    def write(self) -> None:
        """Write the file. Raise `UsageError` if that fails."""
        servers: dict[str, Any] = {
            server: {
                "name": pinned.name,
                "reached": pinned.reached,
                "tools": [pinned.tools[tool].to_doc() for tool in sorted(pinned.tools)],
            }
            for server, pinned in sorted(self.servers.items())
        }
        text = json.dumps({"version": VERSION, "servers": servers}, indent=2, ensure_ascii=True)
        try:
            self.path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}") from None


def reached(identity: str) -> str:
    """Return a digest of how a server is reached, which does not reveal it."""
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _pinned(doc: dict[str, Any]) -> Pinned:
    tools = [Definition.of(each) for each in doc["tools"]]
    return Pinned(str(doc["name"]), str(doc["reached"]), {each.name: each for each in tools})
