"""The library: named plans in versions, in a stream of their own beside the runs.

`$library` has two events and its own fold, like `$host`. A version never changes and its number is
never reused: the meaning of `deploy@3` is fixed, also after `deploy` was removed and saved again.
The hash binds the name and the content, so an exported file can be verified anywhere.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.core.events import Doc, Event
from leadhand.core.hashing import canonical, digest
from leadhand.core.wording import closest, listed, shown
from leadhand.errors import Bug, Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Json

LIBRARY_STREAM = "$library"
FORMAT = 1
"""The format version of exported files."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SPOKEN = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,99})(?:@(\d{1,9}))?")
_FILES = (".json", ".yaml", ".yml")


class PlanSaved(Event, frozen=True, tag=True, kw_only=True):
    """A plan was saved in the library under a name, as its next version."""

    name: str
    version: int
    hash: str
    document: Doc
    actor: str
    source: str = ""
    """Its origin: a file, a run, an exported file."""


class PlanRemoved(Event, frozen=True, tag=True):
    """A name was removed from the library; runs that used it keep their plan."""

    name: str
    actor: str


LIBRARY_EVENTS: tuple[type[Event], ...] = (PlanSaved, PlanRemoved)


class SavedPlan(NamedTuple):
    """One version of a plan in the library."""

    name: str
    version: int
    hash: str
    document: Doc
    actor: str
    source: str
    at: int

    @property
    def label(self) -> str:
        """The name with its version: `deploy@3`."""
        return f"{self.name}@{self.version}"


class LibraryState(msgspec.Struct):
    """All plans in the library."""

    plans: dict[str, list[SavedPlan]] = {}
    """By name, the versions since its last removal, oldest first."""
    counts: dict[str, int] = {}
    """By name, the highest version ever used."""
    seq: int = 0


def evolve_library(state: LibraryState, event: Event, at: int) -> None:
    """Apply one library event to the state."""
    match event:
        case PlanSaved():
            saved = SavedPlan(
                event.name, event.version, event.hash, event.document, event.actor, event.source, at
            )
            state.plans.setdefault(event.name, []).append(saved)
            state.counts[event.name] = event.version
        case PlanRemoved():
            state.plans.pop(event.name, None)
        case _:
            raise Bug(f"{type(event).__name__} is no event of the library")
    state.seq += 1


def plan_hash(name: str, document: Doc) -> str:
    """Return the hash of a plan under a name, independent of the order of its keys."""
    return digest("leadhand-plan", name, canonical(document))


def is_name(text: str) -> bool:
    """Return whether `text` is a valid plan name: file names are not."""
    return bool(NAME.fullmatch(text)) and not text.lower().endswith(_FILES)


def parse_label(text: str) -> tuple[str, int] | None:
    """Split `NAME` or `NAME@VERSION` (0 for the latest); None if it is neither."""
    match = _SPOKEN.fullmatch(text)
    if match is None or not is_name(match[1]):
        return None
    return match[1], int(match[2] or 0)


def find(state: LibraryState, text: str) -> SavedPlan:
    """Return the plan of a `NAME` or `NAME@VERSION`. Raise `UsageError` if there is none."""
    said = parse_label(text)
    name, version = said or (text, 0)
    found = state.plans.get(name)
    if said is None or not found:
        meant = closest(name, state.plans)
        there = f"there are: {listed(state.plans)}" if state.plans else "it is empty"
        hint = f'did you mean "{meant}"?' if meant else there
        raise UsageError(f"the library has no plan {shown(text)}; {hint}")
    if not version:
        return found[-1]
    for saved in found:
        if saved.version == version:
            return saved
    numbers = listed([saved.version for saved in found], 40)
    raise UsageError(f"the library has no {name}@{version}; its versions: {numbers}")


def save(
    state: LibraryState, name: str, document: Doc, actor: str, source: str = ""
) -> PlanSaved | None:
    """Return the event that saves a plan; None if its latest version is identical.

    Raise `UsageError` if the name is not valid.
    """
    if not is_name(name):
        raise UsageError(
            f"{shown(name)} cannot be the name of a plan: use letters, digits, _ - . "
            "and no ending of a file"
        )
    hash_ = plan_hash(name, document)
    if name in state.plans and state.plans[name][-1].hash == hash_:
        return None
    version = state.counts.get(name, 0) + 1
    return PlanSaved(
        name=name, version=version, hash=hash_, document=document, actor=actor, source=source
    )


def remove(state: LibraryState, name: str, actor: str) -> PlanRemoved:
    """Return the event that removes a name. Raise `UsageError` if it is unknown."""
    if name not in state.plans:
        find(state, name)  # raises with the known names
        raise UsageError(f"{shown(name)}: a name is removed with all its versions; leave out the @")
    return PlanRemoved(name, actor)


# Exported files.


def export_plan(saved: SavedPlan) -> Doc:
    """Return one version as an exported file, with its hash."""
    return {
        "leadhand_plan": FORMAT,
        "name": saved.name,
        "version": saved.version,
        "hash": saved.hash,
        "saved_by": saved.actor,
        "document": saved.document,
    }


def import_plan(doc: Mapping[str, Json], where: str) -> tuple[str, Doc]:
    """Return the name and the plan of an exported file. Raise `Conflict` if its hash is wrong."""
    if "leadhand_plan" not in doc:
        raise UsageError(
            f"{where}: is no exported plan. Fix: put a plan into the library with "
            f"`leadhand library save NAME {where}`."
        )
    if doc["leadhand_plan"] != FORMAT:
        raise UsageError(f"{where}: was written by a newer Leadhand; upgrade to read it")
    name, document = doc.get("name"), doc.get("document")
    if not isinstance(name, str) or not isinstance(document, dict):
        raise UsageError(f"{where}: has no name or no document")
    if plan_hash(name, document) != doc.get("hash"):
        raise Conflict(
            f"{where}: its hash does not match, so it was changed after it was exported: "
            f"nothing was imported. Fix: export it again, or look at it and save it as a plan."
        )
    return name, document
