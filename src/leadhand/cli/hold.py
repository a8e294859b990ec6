"""`leadhand hold` and `leadhand redo`: stop before a step, and try one again that failed."""

from __future__ import annotations

import click

from leadhand.cli.console import Console
from leadhand.cli.control import say
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.text import clean


@command("hold", "leadhand hold 7kq3 step-3 --reason 'not before the meeting'")
@click.argument("run")
@click.argument("steps", nargs=-1, required=True, metavar="STEP…")
@click.option("--reason", default="", help="Recorded with it.")
@store_option
def hold(console: Console, run: str, steps: tuple[str, ...], reason: str, store: str | None) -> int:
    """Stop before steps that have not started; all others go on.

    The hold stands in `leadhand inbox`; `leadhand answer RUN/QUESTION release` lets them go on.
    """
    settings = settings_of(store)
    ident, answer = say(settings, run, "hold", steps=list(steps), reason=reason)
    with reading(settings) as reader:
        open_ = [q.id for q in reader.state(ident).questions.values() if q.kind == "hold"]
    question = f"{ident}/{open_[-1]}" if open_ else None
    if console.json:
        console.document({"run": ident, **answer, "steps": list(steps), "question": question})
        return 0
    console.say(f"run {ident} stops before {clean(', '.join(steps))}")
    if question:
        console.say(f"Let it go on with: {console.command(f'answer {question} release')}")
    return 0


@command("redo", "leadhand redo 7kq3 step-3 --reason 'the disk was full'")
@click.argument("run")
@click.argument("step")
@click.option("--reason", required=True, help="Why it should work now; recorded with it.")
@store_option
def redo(console: Console, run: str, step: str, reason: str, store: str | None) -> int:
    """Try a step again that failed, with all its tries anew, while its run goes on or waits."""
    settings = settings_of(store)
    ident, answer = say(settings, run, "redo", step=step, reason=reason)
    if console.json:
        console.document({"run": ident, **answer, "step": step})
        return 0
    console.say(f"step {clean(step)} of run {ident} is tried again")
    if not answer["hosted"]:
        console.say(f"Nothing hosts this run. Go on with: {console.command(f'resume {ident}')}")
    return 0
