"""The library: named plans in versions, in a stream of their own beside the runs.

`$library` has two events and its own fold, like `$host`. A version is never changed and its
number never given twice: what `deploy@3` means is settled once, also after `deploy` was removed
and saved again. The hash binds the name and the content, so a file that was exported can be
held against it anywhere.
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
"""Of exported files."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SPOKEN = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,99})(?:@(\d{1,9}))?")
_FILES = (".json", ".yaml", ".yml")


class PlanSaved(Event, frozen=True, tag=True, kw_only=True):
    """A plan was put into the library under a name, as its next version."""

    name: str
    version: int
    hash: str
    document: Doc
    actor: str
    source: str = ""
    """Where it came from: a file, a run, an exported file."""


class PlanRemoved(Event, frozen=True, tag=True):
    """A name was taken out of the library; runs that used it keep what they ran."""

    name: str
    actor: str


LIBRARY_EVENTS: tuple[type[Event], ...] = (PlanSaved, PlanRemoved)


class Saved(NamedTuple):
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
        """How runs and people name it: `deploy@3`."""
        return f"{self.name}@{self.version}"


class LibraryState(msgspec.Struct):
    """All plans that can be found."""

    plans: dict[str, list[Saved]] = {}
    """By name, the versions since it was last removed, oldest first."""
    counts: dict[str, int] = {}
    """By name, the last version there ever was."""
    seq: int = 0


def evolve_library(state: LibraryState, event: Event, at: int) -> None:
    """Fold one event of the library."""
    match event:
        case PlanSaved():
            saved = Saved(
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
    """The hash of a plan under a name, whatever the order of its keys."""
    return digest("leadhand-plan", name, canonical(document))


def is_name(text: str) -> bool:
    """Whether a plan may be called so: no name of a file."""
    return bool(NAME.fullmatch(text)) and not text.lower().endswith(_FILES)


def spoken(text: str) -> tuple[str, int] | None:
    """`NAME` or `NAME@VERSION` as its parts, 0 for the latest; None when it is neither."""
    match = _SPOKEN.fullmatch(text)
    if match is None or not is_name(match[1]):
        return None
    return match[1], int(match[2] or 0)


def find(state: LibraryState, text: str) -> Saved:
    """The plan a `NAME` or `NAME@VERSION` stands for; UsageError says what there is."""
    said = spoken(text)
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
    """The event that saves a plan; None when its latest version is the same already."""
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
    """The event that takes a name out."""
    if name not in state.plans:
        find(state, name)  # says what there is
        raise UsageError(f"{shown(name)}: a name is removed with all its versions; leave out the @")
    return PlanRemoved(name, actor)


# Files that travel.


def exported(saved: Saved) -> Doc:
    """One version as a file of its own, with its hash."""
    return {
        "leadhand_plan": FORMAT,
        "name": saved.name,
        "version": saved.version,
        "hash": saved.hash,
        "saved_by": saved.actor,
        "document": saved.document,
    }


def imported(doc: Mapping[str, Json], where: str) -> tuple[str, Doc]:
    """The name and the plan in an exported file; Conflict when its hash does not match."""
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
