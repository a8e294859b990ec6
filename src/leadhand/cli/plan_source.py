"""The source of a plan: a file, standard input, or the library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.app.contexts import LocatedPlan
from leadhand.cli.options import read_plan
from leadhand.cli.rendering.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.app.reader import LogAccess
    from leadhand.cli.console import Console
    from leadhand.core.library import SavedPlan
    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings


PLAN_ENDINGS = (".json", ".yaml", ".yml")


def is_plan(what: str) -> bool:
    """Return whether a word names a plan file; a missing file with such a name counts too."""
    if what == "-" or what.lower().endswith(PLAN_ENDINGS):
        return True
    try:
        return Path(what).exists() or what.startswith((f".{os.sep}", os.sep))
    except OSError:  # too long for a file name: a goal
        return False


def find_plan(console: Console, settings: Settings, source: str) -> LocatedPlan:
    """Return the plan of a file, or of the library by name: a file is tried first."""
    saved = None if is_plan(source) else in_library(settings, source)
    if saved is None:
        return LocatedPlan(read_plan(source), {})
    console.say(f"{saved.label} from the library, saved by {clean(saved.actor, 60)}")
    return LocatedPlan(saved.document, {"library": saved.label})


def in_library(
    settings: Settings, source: str, access: LogAccess | None = None
) -> SavedPlan | None:
    """Return the plan of the library that a word names; None if there is no such name.

    `access`: the database, if the caller reads it too.
    """
    from leadhand.core.library import find, parse_label

    said = parse_label(source)
    if said is None:
        return None
    if access is None:
        from leadhand.app.reader import LogAccess

        with LogAccess(settings.store) as own:
            return in_library(settings, source, own)
    reader = access.reader_if_there()
    state = None if reader is None else reader.library()
    return find(state, source) if state is not None and said[0] in state.plans else None


def library_plans(settings: Settings) -> dict[str, Doc]:
    """Return the plans of the library by name, each in its latest version."""
    if isinstance(settings.store, Path) and not settings.store.exists():
        return {}  # the store's modules need not be loaded
    from leadhand.app.reader import LogAccess

    with LogAccess(settings.store) as access:
        reader = access.reader_if_there()
        kept = {} if reader is None else reader.library().plans
    return {name: saved[-1].document for name, saved in kept.items()}


def with_lines(plan: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, worst first, each with its file and line if the plan is a file.

    Every command that prints findings about a plan prints these, so that all of them look alike.
    """
    findings = sorted(findings, key=lambda each: ("error", "warning", "note").index(each.level))
    if not findings or not is_plan(plan) or not Path(plan).is_file():  # a pipe is read once
        return findings
    from leadhand.codec.plan_yaml import LineNumbers

    lines = LineNumbers(Path(plan).read_text(encoding="utf-8-sig"))
    return [each._replace(file=plan, line=lines.of(each.place)) for each in findings]
