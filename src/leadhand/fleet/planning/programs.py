"""Which programs acceptance commands find: in the gate's PATH, and inside its sandbox."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.workers.sandbox.sandbox import PATH, SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.workers.sandbox.sandbox import Sandbox


def is_there(name: str, sandbox: Sandbox, env: Mapping[str, str]) -> bool:
    """Whether a program of this name, or at this whole path, can be started by the gate."""
    places = [each for each in env.get("PATH", PATH).split(os.pathsep) if each.startswith("/")]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        return False
    if sandbox.kind == "none":
        return True
    shown = [*SYSTEM, sys.base_prefix, *map(str, sandbox.readable)]
    # A link is followed inside too: both its place and its end must be there.
    return all(_below(path, shown) for path in (Path(found), Path(found).resolve()))


def _below(path: Path, folders: Iterable[str]) -> bool:
    return any(
        path.is_relative_to(folder) or path.is_relative_to(Path(folder).resolve())
        for folder in folders
    )
