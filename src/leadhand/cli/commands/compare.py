"""`leadhand compare`: two runs side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from leadhand.app.comparison import compare_runs
from leadhand.cli.commands.diff import COLOURS
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.rendering.text import clean, count, table
from leadhand.core.durations import text as duration

if TYPE_CHECKING:
    from leadhand.core.views.run_comparison import ComparedRun, ComparedStep, RunComparison

WIDTH = 44


@command("compare", "leadhand compare 7kq3 9fzt")
@click.argument("a", metavar="RUN")
@click.argument("b", metavar="RUN")
@store_option
def compare(console: Console, a: str, b: str, store: str | None) -> int:
    """Compare two runs: outcome, inputs, plan and steps.

    Plans are compared by meaning. Steps are matched by name; a step that replaced another stands
    for it. Steps whose status, worker, attempts or error differ are listed.
    """
    with reading(settings_of(store)) as reader:
        found = compare_runs(reader, reader.resolve(a), reader.resolve(b))
    if console.json:
        console.document(found)
        return 0
    _print(console, found)
    return 0


def _print(console: Console, found: RunComparison) -> None:
    one, other = found.a, found.b
    rows = [(name, clean(old, WIDTH), clean(new, WIDTH)) for name, old, new in _rows(one, other)]
    for line in table(("", one.run, other.run), rows):
        console.out(line)
    for each in found.inputs:
        console.out(f"input {clean(each.name)}: {clean(each.a, WIDTH)} → {clean(each.b, WIDTH)}")
    for line in found.difference:
        console.out(console.paint_data(line, COLOURS.get(line[:1], "yellow")))
    differing = [step for step in found.steps if step.differs]
    steps = [(clean(step.id), _step(step.a), _step(step.b)) for step in differing]
    if steps:
        for line in table(("STEP", one.run, other.run), steps):
            console.out(line)
    plans = count(len(found.changes), "difference") if found.changes else "no differences"
    parts = [f"plan: {plans}", f"steps that differ: {found.steps_different}"]
    if found.same_result is not None:
        parts.append(f"result: {'the same' if found.same_result else 'different'}")
    console.say("; ".join(parts))


def _rows(one: ComparedRun, other: ComparedRun) -> list[tuple[str, str, str]]:
    def row(name: str, told: str, told_other: str) -> tuple[str, str, str]:
        return name, told, told_other

    return [
        row("status", one.status, other.status),
        row("steps", _steps(one), _steps(other)),
        row("attempts", str(one.attempts), str(other.attempts)),
        row("duration", duration(one.duration), duration(other.duration)),
        row("worked", duration(one.worked), duration(other.worked)),
        row("cost", f"{one.cost:g}", f"{other.cost:g}"),
        row("started by", one.actor or "unknown", other.actor or "unknown"),
        row("result", _result(one), _result(other)),
        row("repeats run", one.rerun_of or "–", other.rerun_of or "–"),
    ]


def _result(run: ComparedRun) -> str:
    if run.result is None:
        return "–"
    return run.result if isinstance(run.result, str) else json.dumps(run.result)


def _steps(run: ComparedRun) -> str:
    failed = f", {run.failed} failed" if run.failed else ""
    return f"{run.succeeded} of {run.steps} succeeded{failed}"


def _step(step: ComparedStep | None) -> str:
    if step is None:
        return "–"
    took = f", {duration(step.duration)}" if step.duration is not None else ""
    tries = f", {count(step.attempts, 'attempt')}" if step.attempts else ""
    error = f": {clean(step.error, WIDTH)}" if step.error else ""
    return f"{step.status.replace('_', ' ')}{tries}{took}{error}"
