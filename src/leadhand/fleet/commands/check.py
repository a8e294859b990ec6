"""`leadhand fleet check`: set-up, gate and coders tried once, before a fleet starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.group import command
from leadhand.cli.options import FolderPath, trust_option
from leadhand.cli.rendering.text import clean, count
from leadhand.fleet.commands.service import folder_option, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.cli.console import Console
    from leadhand.fleet.check import CheckResult


@command("check", "leadhand fleet check\nleadhand fleet check --again")
@click.option(
    "--repo", type=FolderPath(file_okay=False), help="The repository that the agents work on."
)
@click.option(
    "--again", is_flag=True, help="Run the gate twice on the same commit, to find flaky tests."
)
@click.option("--no-coders", is_flag=True, help="Do not try the coders.")
@trust_option
@folder_option
def check(
    console: Console, repo: str | None, folder: str | None, *, again: bool, no_coders: bool
) -> int:
    """Run set-up and gate once in the sandbox, and try each coder there.

    They run as agents and gates get them, on a checkout of the branch's tip, with live output.
    Claude Code and Codex do one turn against an endpoint on this machine, which costs nothing.
    Each problem comes with its fix, and the exit code is 1 if there is one. Your checkout is not
    touched; a fleet may be at work meanwhile.
    """
    from leadhand.fleet.check import check_repository
    from leadhand.fleet.configuration import fleet_folder
    from leadhand.settings.folders import make_store_folder

    settings = settings_for(folder, console)
    make_store_folder(fleet_folder(settings))
    place = Path(repo).absolute() if repo else None

    def say(line: str) -> None:
        console.say(clean(line))

    coders = not no_coders
    found = asyncio.run(check_repository(settings, place, say, again=again, coders=coders))
    if console.json:
        console.document(found.document())
    else:
        for line in lines(found):
            console.out(line)
    if not found.problems:
        console.next("leadhand fleet submit EPIC.md, then leadhand fleet start")
    return 1 if found.problems else 0


def lines(found: CheckResult) -> Iterator[str]:
    """Yield what was found as lines for people."""
    yield f"repository  {clean(found.branch)} at {found.commit[:10]}, {found.files} files"
    yield f"sandbox     {found.sandbox}"
    for part in ("setup", "gate"):
        ran = [each for each in found.commands if each.part == part]
        if not ran:
            yield f"{part:<11} {'none' if part == 'setup' else 'not run'}"
        for done in ran:
            word = "ok" if not done.code else "FAILED"
            yield f"{part:<11} {word:<6} {done.seconds:6.1f} s  {clean(done.command)[:100]}"
    if found.tests:
        yield f"tests       {clean(found.tests)}"
    for name in found.flaky:
        yield f"flaky       {clean(name)[:120]}"
    for coder in found.coders:
        turn = f", one turn in {coder['turn_s']:.1f} s" if coder["turn_s"] is not None else ""
        word = "FAILED" if coder["problem"] else "ok"
        yield f"coder       {word:<6} {coder['name']}: {clean(coder['version'] or '–')}{turn}"
    for each in found.problems:
        yield ""
        yield f"problem     {clean(each.where)}: {clean(each.problem)}"
        yield f"fix         {clean(each.fix)}"
    yield ""
    problems = count(len(found.problems), "problem") if found.problems else "ready to start"
    yield f"{problems} ({found.seconds:.0f} s)"
