"""What of the disk a coder's program needs to be seen to run: itself, and its own package.

A program is one file, as most are that stand in a folder such as ``~/bin``; or it is part of a
package, below ``node_modules`` or ``site-packages``, whose other files it reads. What lies beside
it is somebody else's. What it needs beyond that is named by people (`readable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leadhand.workers.sandbox.sandbox import Sandbox

PACKAGES = ("node_modules", "site-packages", "dist-packages")


def needed_by(program: str, apart: Sequence[Path] = ()) -> tuple[Path, ...]:
    """What to show; nothing for a program that is looked for among the system's.

    Nothing is shown that holds a home or what is to be kept `apart`.
    """
    if "/" not in program:
        return ()
    file = Path(program).resolve()
    package = _package(file)
    kept = [place.resolve() for place in (Path.home(), *apart)]
    if package is None or any(place.is_relative_to(package) for place in kept):
        return (file,)
    return (package,)


def started(program: str, sandbox: Sandbox) -> str:
    """The same program as it is found inside, where a link that leads to it is not there."""
    boxed = sandbox.kind != "none" and "/" in program
    return str(Path(program).resolve()) if boxed else program


def _package(file: Path) -> Path | None:
    """The folder of the package that a file belongs to."""
    for folder in file.parents:
        holder = folder.parent
        if holder.name in PACKAGES and not folder.name.startswith("@"):
            return folder
        if folder.name.startswith("@"):  # the scope of a package of npm
            return None
        if holder.name.startswith("@") and holder.parent.name in PACKAGES:
            return folder
    return None
