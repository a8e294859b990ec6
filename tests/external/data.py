"""Data from outside that tests read and never keep: where it lies, how it is opened.

`LEADHAND_TEST_DATA` names the folder; `shared/data` beside the checkout is the default.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def folder(name: str) -> Path:
    """One set of the data; it may not be there."""
    return Path(os.environ.get("LEADHAND_TEST_DATA") or ROOT.parent / "shared" / "data") / name


def load(path: Path) -> Any:
    """A JSON document, packed or not."""
    with _open(path) as file:
        return json.load(file)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON documents of a file, one on each line."""
    with _open(path) as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _open(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
