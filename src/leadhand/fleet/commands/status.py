"""`leadhand fleet status` and `report`: what a fleet is doing, and what came of it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.rendering.text import clean, count
from leadhand.core.durations import seconds
from leadhand.errors import UsageError
from leadhand.fleet.commands.service import folder_option, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.plan.model import Doc
    from leadhand.fleet.status.evidence import Evidence


WATCH_S = 2.0


def _evidence(folder: str | None) -> Evidence:
    from leadhand.fleet.configuration import fleet_folder
    from leadhand.fleet.status.evidence import Evidence

    return Evidence(fleet_folder(settings_for(folder)))


@command("status", "leadhand fleet status --watch")
@click.option("--watch", is_flag=True, help="Refresh the status until Ctrl-C.")
@folder_option
def status(console: Console, watch: bool, folder: str | None) -> int:  # noqa: FBT001 - an option
    """Show agents, tasks, the merge queue, recoveries and cost.

    The figures come from the log and are compared with git. The exit code is 1 if the log and
    git disagree.
    """
    from leadhand.fleet.station import taken_row
    from leadhand.fleet.take_over import read_taken

    evidence = _evidence(folder)
    while True:
        doc = asyncio.run(evidence.document())
        doc["taken"] = [taken_row(each) for each in read_taken(evidence.folder)]
        if watch and not console.json and console.terminal:
            sys.stderr.write("\033[H\033[2J")
        if console.json:
            (console.record if watch else console.document)(doc)
        else:
            for line in lines(doc):
                console.row(line)
        if not watch:
            return 1 if doc["disagreements"] else 0
        time.sleep(WATCH_S)


RUNG_WORDS = {
    "same_conversation": "resumed",
    "stronger": "stronger model",
    "replan": "re-planned",
    "asked": "to a person",
}
"""The words for the kinds of attempts."""


def lines(doc: Doc) -> Iterator[str]:
    """Yield the figures as lines for people."""
    live, agents = doc["live"], doc["agents"]
    yield f"fleet      {_fleet_word(live)}"
    if live and live["held_back"]:
        yield f"           new agents delayed: {clean(live['held_back'])}"
    for limit in doc["limits"]:
        yield f"limit      {_limit(limit)}"
    if live and live.get("aside"):
        yield f"           {clean(live['aside'])}"
    for each in (live or {}).get("repositories", ()):
        why = f": {clean(each['against'])}" if each["against"] else ""
        yield f"repository {each['name']} at {each['main'][:12]}, {clean(each['repo'])}{why}"
    yield f"agents     {agents['now']} running (peak {agents['peak']}, {agents['runs']} started)"
    for machine in (live or {}).get("machines", ()):
        trouble = f"; {clean(machine['trouble'])}" if machine["trouble"] else ""
        seen = f"{count(machine['agents'], 'agent')}, last seen {machine['seen'][:19]}"
        yield f"machine    {clean(machine['name'])}: {seen}{trouble}"
    tasks = ", ".join(f"{number} {name}" for name, number in doc["tasks"].items())
    yield f"tasks      {tasks or 'none'}"
    landed, train, queue = doc["landed"], doc["train"], doc["queue"]
    yield (
        f"merged     {landed['total']} ({landed['last_hour']} in the last hour, "
        f"{landed['last_week']} in the last week)"
    )
    yield f"queue      {queue['waiting']} in merge queue{_oldest(queue)}"
    reused = f"{count(train['reused'], 'verdict')} reused, " if train["reused"] else ""
    yield (
        f"tests      {count(train['tests'], 'batch', 'batches')} tested, {train['red']} failed, "
        f"{reused}"
        f"{count(train['bisections'], 'bisection')}, "
        f"{train['batch_mean'] or 0} changes per merge, "
        f"{count(train['conflicts'], 'conflict')}"
    )
    if train["counted"]:
        yield f"           last gate run: {clean(train['counted'])[:100]}"
    recovery, spend = doc["recovery"], doc["spend"]
    yield (
        f"recovery   {_settled(recovery, 'failed task')} recovered, "
        f"{_percent(recovery['rate'])}{_open(recovery)}; "
        f"first pass {_percent(recovery['first_pass'])}"
    )
    for row in recovery["by_class"]:
        yield f"           {row['class']}: {_settled(row, 'task')} recovered{_open(row)}"
    tries = [f"{n} {RUNG_WORDS.get(name, name)}" for name, n in doc["ladder"].items() if n]
    yield f"attempts   {', '.join(tries) or 'none'}"
    yield f"spend      ${spend['total']:.2f}, ${spend['today']:.2f} today{_each(spend)}"
    yield from _lists(doc)


def _fleet_word(live: Doc | None) -> str:
    if live is None:
        return "not running; `leadhand fleet start` resumes the open tasks"
    word = "draining" if live["draining"] else "paused" if live.get("paused") else "running"
    return f"{word}, process {live['pid']}{', ' + live['url'] if live['url'] else ''}"


def _limit(limit: Doc) -> str:
    until = f"{limit['until'][:16].replace('T', ' ')} UTC"
    ends = f"until {until}" if limit["told"] else f"(end not told) until it is tried at {until}"
    tasks = limit["tasks"]
    waits = f": {count(tasks, 'task')} waiting" if tasks is not None else ""
    return f"{clean(limit['login'])} {ends}{waits}; `leadhand fleet resume --login` lifts it"


def _lists(doc: Doc) -> Iterator[str]:
    for epic in doc["epics"]:
        done = f"{epic['landed']}/{epic['tasks']}"
        yield f"epic       {epic['run']}  {epic['status']}  {done}  {clean(epic['title'])[:60]}"
        if "repositories" in epic:
            rows = [f"{row['name']} {row['landed']}/{row['tasks']}" for row in epic["repositories"]]
            yield f"           landed by repository: {', '.join(rows)}"
        if epic["pull_request"] is not None:
            yield f"           pull request: {clean(epic['pull_request']) or 'opened'}"
    for each in (doc["live"] or {}).get("agents", []):
        words = clean(each["words"])[:80]
        name = f"{each['run']}/{each['task']} #{each['attempt']}"
        where = f" in {each['repository']}" if "repository" in each else ""
        yield f"agent      {name} {each['coder']}{where}: {words}"
    for each in doc.get("taken", ()):
        word = {"main": "given back, being merged", "asked": "given back, awaits approval"}
        where = f" of {each['repository']}" if each.get("repository") else ""
        now = word.get(each["given"], "refused: " * bool(each["refused"]) + clean(each["refused"]))
        name = f"{each['run']}/{each['task']}"
        by = f"by {clean(each['by'])} since {each['at']}"
        yield f"taken      {clean(name)}{where} {by}  {now[:120]}"
    for name, why in (doc["live"] or {}).get("refused", {}).items():
        yield f"refused    {clean(name)}: {clean(why)[:160]}"
    for letter in doc["dead_letters"]:
        asked = f"{letter['run']}/{letter['question']}" if letter["question"] else letter["run"]
        first = clean(letter["why"].partition("\n")[0])[:100]
        yield f"blocked    {letter['task']} ({letter['class']}): {first}  [{asked}]"
    if doc["questions"]:
        yield f"questions  {doc['questions']} waiting for an answer: `leadhand inbox`"
    for each in doc["flaky"]:
        yield f"flaky      {clean(each['name'])[:100]}: {count(each['times'], 'time')}"
    for each in doc["disagreements"]:
        yield f"MISMATCH   {clean(each)}"


def _oldest(queue: Doc) -> str:
    return f", oldest {queue['oldest_s']:.0f} s" if queue["waiting"] else ""


def _settled(row: Doc, noun: str) -> str:
    return f"{row['recovered']} of {count(row['recovered'] + row['people'], noun)}"


def _open(row: Doc) -> str:
    return f", {row['open']} still open" if row["open"] else ""


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.0%}"


def _each(spend: Doc) -> str:
    return "" if spend["per_landed"] is None else f", ${spend['per_landed']:.4f} per commit"


@command(
    "report",
    "leadhand fleet report --since 28d -o fleet.html\nleadhand fleet report --since 90d --csv",
)
@click.option(
    "--since", default="28d", show_default=True, help='The period of the report: "7d", "12 hours".'
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The file for the page; its figures are written beside it as .json. The default is "
    "fleet-report.html.",
)
@click.option(
    "--csv", "as_table", is_flag=True, help="Write the figures of delivery beside it as .csv too."
)
@folder_option
def report(
    console: Console,
    since: str,
    output: str | None,
    as_table: bool,  # noqa: FBT001 - an option
    folder: str | None,
) -> int:
    """Write a report of the fleet as one HTML page and as JSON.

    It begins with delivery: merged changes, cost, time to main, people, recovery, rework, by week
    and compared with the time before the fleet. Each figure has its definition and sample size.
    """
    import msgspec

    from leadhand.fleet.status.delivery import Delivery, as_csv
    from leadhand.fleet.status.report_page import page

    try:
        back = seconds(since)
    except ValueError as error:
        raise UsageError(f"--since {error}") from None
    doc: Any = asyncio.run(_evidence(folder).report(back))
    place = Path(output or "fleet-report.html")
    beside, table = place.with_suffix(".json"), place.with_suffix(".csv")
    if place in (beside, table):
        raise UsageError(
            f"{place}: is where the figures go. Fix: give -o a name that ends in .html"
        )
    doc.pop("live", None)
    doc.pop("folder", None)
    place.write_text(page(doc), encoding="utf-8")
    beside.write_text(json.dumps(doc, indent=2) + "\n", encoding="utf-8")
    if as_table:
        found = msgspec.convert(doc["delivery"], Delivery)
        table.write_text(as_csv(found), encoding="utf-8", newline="")
    if console.json:
        files = {"page": str(place), "figures": str(beside)}
        console.document({**doc, **files, **({"csv": str(table)} if as_table else {})})
    else:
        console.out(str(place))
    return 1 if doc["disagreements"] else 0
