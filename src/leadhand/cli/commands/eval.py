"""`leadhand eval`: planners, models and policies compared on a suite of goals."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import TRUST, FolderPath, ask_trust, trust_option
from leadhand.cli.rendering.text import clean, count, table
from leadhand.errors import NotTrusted, UsageError
from leadhand.settings import load_settings
from leadhand.settings.trust import VARIABLE, Trust, TrustEntry, untrusted_entries

if TYPE_CHECKING:
    from leadhand.evals.campaign import TrialResult
    from leadhand.evals.comparison import Comparison, Difference, Figures
    from leadhand.evals.suite import Suite

OUTPUT = "eval-results"


@command("eval", "leadhand eval suite.toml --repeat 10")
@click.argument("suite", metavar="SUITE", type=click.Path(path_type=Path))
@click.option("--repeat", type=click.IntRange(1, 1000), help="Repetitions of each goal and arm.")
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Only this arm; repeatable.")
@click.option("--goal", "goals", multiple=True, metavar="NAME", help="Only this goal; repeatable.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, help="Trials at a time.")
@click.option(
    "--output",
    type=FolderPath(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help=f"Where results are kept; {OUTPUT} beside the suite by default. Results that are there "
    "are not repeated.",
)
@click.option(
    "--record", is_flag=True, help="Ask the models, and keep what they say on the suite's tapes."
)
@trust_option
def eval(  # noqa: A001 - the name of the command
    console: Console,
    suite: Path,
    repeat: int | None,
    arms: tuple[str, ...],
    goals: tuple[str, ...],
    jobs: int,
    output: Path | None,
    record: bool,  # noqa: FBT001 - click passes it by name
) -> int:
    """Compare planners, models and policies on a suite of goals.

    SUITE is a TOML file, or a folder with a suite.toml: goals, each with a command that checks
    whether it was reached, and factors whose levels are combined. Every goal runs under every
    combination, several times, each time in a fresh copy of the folder. The table shows success,
    false success (the run says so, and the check disagrees), cost, time and questions with 95 %
    intervals, and how much of the variance each factor explains. The folder of results holds the
    same as comparison.json, trials.csv and page.html. An interrupted evaluation goes on where it
    stopped.
    """
    from leadhand.evals.campaign import Campaign, refuse_large, refuse_unready
    from leadhand.evals.comparison import compare, page, trials_csv
    from leadhand.evals.suite import chosen, read_suite

    found = chosen(read_suite(suite), repeat=repeat, arms=arms, goals=goals)
    _require_trust(console, found)
    refuse_unready(found, record=record)
    refuse_large(found)
    place = output or found.folder / OUTPUT
    campaign = Campaign(found, place, jobs=jobs, record=record)
    try:
        results = campaign.run(lambda *told: _progress(console, *told))
    except KeyboardInterrupt:
        console.say(f"Interrupted. What is done is kept in {place}; the same command goes on.")
        return 130
    made = compare(found, results)
    try:
        _write(place / "comparison.json", msgspec.json.format(msgspec.json.encode(made)).decode())
        _write(place / "trials.csv", trials_csv(results))
        _write(place / "page.html", page(made))
    except OSError as error:
        raise UsageError(f"{place}: {error.strerror}") from None
    if console.json:
        console.document(made)
    else:
        _print(console, made)
        console.say(f"Written to {place}: comparison.json, trials.csv, page.html")
    return 1 if made.errors else 0


def _require_trust(console: Console, suite: Suite) -> None:
    """Raise `NotTrusted` unless the code that the folder and the suite name is trusted."""
    command = click.get_current_context()
    trust = Trust.here(everything=bool(command.meta.get(TRUST)))
    folder = str(suite.folder)
    named = {f"check of {goal.name}": shlex.join(goal.check) for goal in suite.goals}
    named |= {f"planner of {arm.name}": arm.planner for arm in suite.arms if ":" in arm.planner}
    named |= {
        f"settings of {arm.name}": json.dumps(arm.settings, sort_keys=True)
        for arm in suite.arms
        if arm.settings
    }
    named |= {
        f"environment of {arm.name}": json.dumps(arm.env, sort_keys=True)
        for arm in suite.arms
        if arm.env
    }
    entries = [TrustEntry("suite", name, detail, folder) for name, detail in named.items()]
    missing = untrusted_entries(load_settings(folder=suite.folder), trust)
    missing += [each for each in entries if not trust.allows(each)]
    if not missing or (console.can_prompt and ask_trust(console, trust, missing)):
        return
    names = ", ".join(map(str, missing[:6]))
    raise NotTrusted(
        f"{folder} is not trusted, and its suite and settings name code: {names}. Nothing was "
        f"executed. Fix: read them, then give --trust, or set {VARIABLE}={folder}"
    )


def _write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _progress(console: Console, result: TrialResult, done: int, of: int) -> None:
    word = "error" if result.error else "reached" if result.reached else "not reached"
    run = result.run
    how = "" if result.claimed == result.reached else f", run {run.status}"
    if not result.claimed:
        reason = clean(run.reason, 100)
        how = f": {reason}" if result.error else f", run {run.status}{reason and ': '}{reason}"
    where = f"{result.goal}, {result.arm}, trial {result.trial}"
    console.say(f"{done}/{of} {clean(where, 60)}: {word}{how}")


def _print(console: Console, made: Comparison) -> None:
    from leadhand.evals.comparison import percent, span

    if made.about:
        console.out(clean(made.about, 500))
        console.out("")
    _table(console, "ARM", [(arm.arm, arm) for arm in made.arms])
    for each in made.differences:
        _differs(console, f"{each.arm} against {each.against}", each)
    if made.levels:
        console.out("")
        _table(console, "LEVEL", [(f"{each.factor} {each.level}", each) for each in made.levels])
        for level in made.level_differences:
            _differs(console, f"{level.factor} {level.level} against {level.against}", level)
    console.out("")
    for shares in made.variance:
        told = ", ".join(
            f"{name} {percent(each.share)} (by chance {percent(each.by_chance)})"
            for name, each in shares.shares.items()
            if each.share >= 0.005
        )
        console.out(f"variance of {shares.figure}: {told or 'the same in every trial'}")
    for size in made.sizes:
        console.out(
            f"plans of {size.steps} steps ({count(size.plans, 'run')}): first attempts "
            f"{span(size.first_pass)}, success {span(size.success)}"
        )
    for error in made.errors:
        console.say(f"error: {clean(error, 200)}")


def _differs(console: Console, what: str, each: Difference) -> None:
    from leadhand.evals.comparison import gap, points

    console.out(
        f"{clean(what, 100)}: success {points(each.success)} points, "
        f"false success {points(each.false_success)}, cost {gap(each.cost)}"
    )


def _table(console: Console, head: str, rows: list[tuple[str, Figures]]) -> None:
    """Print two tables: how it went, and what it took."""
    from leadhand.evals.comparison import figure, span

    heads = (head, "SUCCESS", "FALSE SUCCESS", "FALSE REJECTION", "FIRST ATTEMPTS")
    went = [
        (
            clean(name, 40),
            span(each.success),
            span(each.false_success),
            span(each.false_rejection),
            span(each.first_pass),
        )
        for name, each in rows
    ]
    names = ("cost", "seconds", "questions", "attempts", "steps", "planner_calls")
    took = [
        (clean(name, 40), *(figure(getattr(each, field)) for field in names)) for name, each in rows
    ]
    for line in table(heads, went):
        console.out(line)
    console.out("")
    for line in table((head, *(name.replace("_", " ").upper() for name in names)), took):
        console.out(line)
