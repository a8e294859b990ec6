"""Steps that get in each other's way, and steps that wait for nothing.

Two steps that may run at once must not write the same thing. To hold every writer against every
other would be quadratic; it is enough to hold each against its neighbours. Writers of one path
are put in an order in which each comes after what it waits for: if each waits for the one
before, all wait for each other, and if some do not, two neighbours do not. The same holds for a
reader and the writers next to it. So the work grows with the number of paths that overlap
(at most `paths.PAIRS_MAX`), with the neighbours (MEETINGS_MAX), and with the searches of
`graph.Order`, which are bounded by the size of the plan. Beyond these nothing is said.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from leadhand.core import graph, paths
from leadhand.core.check_form import join
from leadhand.core.check_step import amounts
from leadhand.core.wording import listed, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.findings import Findings
    from leadhand.core.plan import Doc
    from leadhand.core.whole import Whole

HOT = 3
"""How many writers make a thing a place where steps meet."""

CHAIN_MIN = 5
"""From how many steps on it is worth saying that they all wait for each other."""

_APART = 'Let one wait for the other ("depends_on"), or let each write its own.'
_OWN = 'Say in the "writes" of each step which part of it is its own.'

MEETINGS_MAX = 200_000

Users = dict[str, list[int]]
"""By path, the numbers of the steps that touch it, in order."""


def check_coupling(whole: Whole, out: Findings, *, advice: bool) -> None:
    """Conflicts over what is written and, as advice, over what is read."""
    writers = _users(whole, "writes")
    if writers:
        _check_writes(whole, writers, out, advice=advice)
    if advice:
        if writers:
            _check_reads(whole, writers, out)
            _check_hot(whole, writers, out)
        _check_waits(whole, out)
        _check_width(whole, out)


def _users(whole: Whole, field: str) -> Users:
    specs = whole.catalog.workers.values() if whole.catalog is not None else ()
    declared = any(getattr(offer, field) for spec in specs for offer in spec.offers.values())
    if not declared and not any(field in step for _, step in whole.numbered):
        return {}
    found: Users = {}
    for number, ident in enumerate(whole.order.names):
        for path in dict.fromkeys(whole.touched(whole.steps[ident], field)):
            found.setdefault(path, []).append(number)
    return found


def _check_writes(whole: Whole, writers: Users, out: Findings, *, advice: bool) -> None:
    seen: set[tuple[str, str]] = set()
    for one, other, first, second in _meetings(writers, writers):
        a, b = (whole.order.names[number] for number in sorted((first, second)))
        if (a, b) in seen or not _at_once(whole, a, b):
            continue
        seen.add((a, b))
        sure = _sure(whole, one, first) and _sure(whole, other, second)
        if not sure and not advice:
            continue
        both = f"steps {shown(a)} and {shown(b)} may run at once"
        fix = _APART if sure else _OWN
        place = whole.place(b, "writes" if "writes" in whole.steps[b] else "")
        message = f"{both}, and both write {_of(one, other)}"
        out.add("write-conflict", place, message, fix, level="error" if sure else "warning")


def _sure(whole: Whole, path: str, number: int) -> bool:
    """Whether a step writes just that: a worker's `reports/` may be another file each time."""
    return not paths.wide(path) or "writes" in whole.steps[whole.order.names[number]]


def _check_reads(whole: Whole, writers: Users, out: Findings) -> None:
    readers = _users(whole, "reads")
    seen: set[tuple[int, int]] = set()
    for read, written, reader, writer in _meetings(readers, writers):
        a, b = (whole.order.names[number] for number in (reader, writer))
        if (reader, writer) in seen or not _at_once(whole, a, b):
            continue
        seen.add((reader, writer))
        message = f"step {shown(a)} reads {_of(read, written)}, which {shown(b)} may be writing"
        out.add("read-conflict", whole.place(a), message, 'Let one wait ("depends_on").')


def _check_hot(whole: Whole, writers: Users, out: Findings) -> None:
    for path, numbers in writers.items():
        if len(numbers) < HOT or paths.wide(path):
            continue
        idents = [whole.order.names[number] for number in numbers]
        if any("writes" in whole.steps[ident] for ident in idents):
            message = f"{len(idents)} steps write {shown(path)}: {listed(idents, 5)}"
            fix = "Let one step write it from what the others return."
            out.add("write-hot", whole.place(idents[0], "writes"), message, fix)


def _meetings(those: Users, others: Users) -> Iterator[tuple[str, str, int, int]]:
    """Two paths that overlap and two steps that touch them, next to each other in the order."""
    left = MEETINGS_MAX
    for one, other in paths.overlaps(those, others):
        mine, theirs = those[one], others[other]
        swap = len(mine) > len(theirs)
        for near, far in _neighbours(*((theirs, mine) if swap else (mine, theirs))):
            left -= 1
            if left < 0:
                return
            yield (one, other, far, near) if swap else (one, other, near, far)


def _neighbours(few: list[int], many: list[int]) -> Iterator[tuple[int, int]]:
    """Each number of one list with those next to it in the other."""
    for number in few:
        before, after = bisect_left(many, number) - 1, bisect_right(many, number)
        if before >= 0:
            yield number, many[before]
        if after < len(many):
            yield number, many[after]


def _of(one: str, other: str) -> str:
    return shown(one) if one == other else f"{shown(one)} ({shown(other)})"


def _at_once(whole: Whole, one: str, other: str) -> bool:
    """Whether nothing keeps two steps apart: no dependency, no limit, no resource."""
    a, b = whole.steps[one], whole.steps[other]
    limits = whole.plan.get("limits", {})
    if limits.get("concurrency") == 1:
        return False
    worker = a.get("worker", "")
    if worker == b.get("worker") and not (a.get("alternatives") or b.get("alternatives")):
        spec = whole.catalog.workers.get(worker) if whole.catalog is not None else None
        if limits.get("workers", {}).get(worker) == 1 or (spec and spec.max_concurrency == 1):
            return False
    held, wanted = amounts(a.get("uses")), amounts(b.get("uses"))
    for name in held.keys() & wanted.keys():
        if held[name] + wanted[name] > whole.resources.get(name, 0):
            return False
    return whole.order.together(one, other)


def _check_waits(whole: Whole, out: Findings) -> None:
    """Dependencies for which there is no reason in data, facts, files, resources or effects."""
    for ident, step in whole.steps.items():
        if not _open(whole, step) or "depends_on" not in step:
            continue
        using = set(graph.used(step))
        for i, entry in enumerate(step["depends_on"]):
            name = entry if isinstance(entry, str) else entry["step"]
            other = whole.steps.get(name)
            if other is None or name in using or name == ident or not _open(whole, other):
                continue
            if other.get("success_criteria") or _related(whole, step, other):
                continue
            message = f"step {shown(ident)} waits for {shown(name)}, and uses nothing of it"
            fix = "Without the dependency both could run at once."
            out.add("wait-needless", whole.place(ident, f"depends_on[{i}]"), message, fix)


def _open(whole: Whole, step: Doc) -> bool:
    """Whether a step says everything it touches, and that it changes nothing else."""
    return whole.effects(step) == () and bool(
        whole.touched(step, "reads") or whole.touched(step, "writes")
    )


def _related(whole: Whole, step: Doc, other: Doc) -> bool:
    if set(whole.facts(step, "needs")) & set(whole.facts(other, "gives")):
        return True
    if amounts(step.get("uses")).keys() & amounts(other.get("uses")).keys():
        return True
    mine = whole.touched(step, "reads"), whole.touched(step, "writes")
    theirs = whole.touched(other, "reads"), whole.touched(other, "writes")
    pairs = ((mine[0], theirs[1]), (mine[1], theirs[0]), (mine[1], theirs[1]))
    return any(any(paths.overlaps(a, b)) for a, b in pairs)


def _check_width(whole: Whole, out: Findings) -> None:
    lanes = set(whole.order.lane.values())
    if whole.order.complete and len(whole.steps) >= CHAIN_MIN and len(lanes) == 1:
        message = f"each of the {len(whole.steps)} steps waits for the one before"
        place = join(whole.prefix, "steps")
        out.add("parallel-none", place, message, "Take out dependencies that are only an order.")
