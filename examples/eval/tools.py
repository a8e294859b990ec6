"""What agents may call, in a step and in the flat loop alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import archive

from leadhand import Permanent, worker


@worker(effects=())
def read_record(name: str) -> dict[str, Any]:
    """Read a record of the archive."""
    try:
        return archive.read(name)
    except archive.Moved:
        raise Permanent(f"{name} was moved to the annex") from None
    except KeyError:
        raise Permanent(f"there is no record {name}") from None


@worker(effects=())
def read_annex(name: str) -> dict[str, Any]:
    """Read a record, wherever it is; the annex is slow."""
    try:
        return archive.read(name, annex=True)
    except KeyError:
        raise Permanent(f"there is no record {name}") from None


@worker(effects=("mail",), risk="high")
def send(total: int) -> dict[str, int]:
    """Send a bill. It cannot be taken back."""
    return mail(total)


def mail(total: int) -> dict[str, int]:
    """Put a bill into the outbox."""
    with Path("outbox.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"total": total}) + "\n")
    return {"sent": total}
