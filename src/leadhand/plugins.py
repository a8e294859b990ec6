"""Parts provided by packages: commands, planners, reviewers, worker kinds, stores, settings.

A package names its parts in its pyproject.toml:

    [project.entry-points."leadhand.commands"]
    audit-report = "acme_leadhand.report:COMMAND"

    [project.entry-points."leadhand.planners"]
    acme = "acme_leadhand.planner:AcmePlanner"

Leadhand's own parts are found in the same way. The files are read directly: importing
`importlib.metadata` takes longer than `leadhand --help`. A part is imported when it is used, never
to list it.

The working folder of a command is not searched, and neither are later additions to `sys.path`: code
of a project is loaded when it is trusted (`settings/trust.py`), not because it is there.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

INFO = (".dist-info", ".egg-info")


class Part(NamedTuple):
    """One entry point of a package."""

    name: str
    module: str
    attribute: str
    package: str
    """The distribution, as in `acme-leadhand`, named in messages."""
    rivals: tuple[str, ...] = ()
    """Other distributions that provide a part of the same name."""

    def load(self) -> Any:
        """Import the part.

        Raise `UsageError`, which names the package, if that fails or if several packages provide
        the part.
        """
        if self.rivals:
            packages = " and ".join((self.package, *self.rivals))
            raise UsageError(
                f"{self.name} is provided by the packages {packages}. Fix: remove all but one"
            )
        try:
            found: Any = importlib.import_module(self.module)
            for name in self.attribute.split("."):
                found = getattr(found, name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of another package
            raise UsageError(
                f"{self.name} of the package {self.package} cannot be loaded: "
                f"{type(error).__name__}: {error}. "
                f"Fix: install {self.package} again, or remove it"
            ) from None
        return found


class CommandPart(NamedTuple):
    """A command, described without importing it: the object an entry point may name."""

    target: str
    """`module:attribute` of a click command."""
    help: str
    """One line for `leadhand --help`."""
    section: str = "More"


class HostPart(NamedTuple):
    """A service elsewhere that hosts runs, described without importing it: for `leadhand.hosts`.

    The package registers its `Section` of the settings under the same name; see
    `app/hosting_service.py`.
    """

    option: str
    """The option that names the service on the command line: `--temporal`."""
    metavar: str
    help: str
    key: str
    """The setting that the option stands for: `temporal.address`."""
    threads: str = ""
    """A module whose native threads outlive Python: a process that imported it ends at once."""


@cache
def parts(group: str) -> Mapping[str, Part]:
    """Return the parts of a group (`commands`, `planners`, …) by name, sorted by name.

    A product of ours whose folder is not installed is left out. A part of ours counts before one of
    another package; a name that two other packages provide is refused by `Part.load`.
    """
    ours_first = sorted(_entries(), key=lambda each: each[0] != "leadhand")
    found: dict[str, Part] = {}
    for package, lines in ours_first:
        for of, name, module, attribute in lines:
            if of != f"leadhand.{group}" or (package == "leadhand" and not _is_there(module)):
                continue
            first = found.setdefault(name, Part(name, module, attribute, package))
            if package not in (first.package, *first.rivals) and first.package != "leadhand":
                found[name] = first._replace(rivals=(*first.rivals, package))
    return dict(sorted(found.items()))


def part(group: str, name: str) -> Part | None:
    """Return one part, or None if no package provides it."""
    return parts(group).get(name)


def fault_of_package(error: BaseException) -> UsageError | None:
    """Return an error that names the package whose code failed, or None if the code is ours.

    The innermost frame of Leadhand or of a package with entry points decides. The text of the error
    is left out: it may hold the address of a store with its password.
    """
    tops = {
        line[2].partition(".")[0]: package
        for package, lines in _entries()
        for line in lines
        if package != "leadhand"
    }
    frame, top = error.__traceback__, ""
    while frame is not None:
        name = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        top = name if name == "leadhand" or name in tops else top
        frame = frame.tb_next
    if top not in tops:
        return None
    return UsageError(
        f"the package {tops[top]} failed with {type(error).__name__}. "
        f"Fix: set LEADHAND_DEBUG=1 to see where, and report it to the authors of {tops[top]}"
    )


def _is_there(module: str) -> bool:
    """Return whether a module of ours is installed: its folder may have been left out."""
    place = os.path.join(os.path.dirname(__file__), *module.split(".")[1:])  # noqa: PTH118, PTH120 - pathlib is not loaded yet
    return os.path.exists(f"{place}.py") or os.path.isdir(place)  # noqa: PTH110, PTH112 - as above


def _searched() -> list[str]:
    """Return the folders of `sys.path` without the working folder, which `python -m` puts there."""
    here = os.path.realpath(".")
    return [place for place in sys.path if place and os.path.realpath(place) != here]


_PLACES = _searched()


@cache
def _entries() -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    """Return our entry points per distribution: group, name, module, attribute."""
    found = []
    for place in _PLACES:
        try:
            with os.scandir(place) as listed:
                folders = [each for each in listed if each.name.endswith(INFO)]
        except OSError:
            continue
        for folder in sorted(folders, key=lambda each: each.name):
            if lines := _read(f"{folder.path}/entry_points.txt"):
                package = folder.name.partition("-")[0].replace("_", "-")
                found.append((package, lines))
    return found


def _read(path: str) -> list[tuple[str, str, str, str]]:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as above
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return []
    if "[leadhand." not in text:
        return []
    found, group = [], ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif "=" in line and group.startswith("leadhand.") and not line.startswith("#"):
            name, _, value = line.partition("=")
            module, _, attribute = value.partition("[")[0].strip().partition(":")
            found.append((group, name.strip(), module.strip(), attribute.strip()))
    return found
