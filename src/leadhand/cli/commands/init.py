"""`leadhand init`: a new project from a template that runs as it is written.

The templates are the folders of `cli/templates/`, copied file by file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from leadhand import plugins
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.new_files import NewFiles
from leadhand.cli.options import FolderPath
from leadhand.cli.rendering.text import clean
from leadhand.cli.terminal import prompt
from leadhand.core.wording import escaped
from leadhand.errors import UsageError
from leadhand.settings.trust import trust_written

TEMPLATES_FOLDER = Path(__file__).resolve().parent.parent / "templates"
DEFAULT = "pipeline"
RESEARCH = '"Why do customers leave?" --want report'


class Template(NamedTuple):
    """A template: what it is for, the commands to go on with, and the command that it needs."""

    help: str
    commands: tuple[str, ...]
    needs: str = ""
    """A command of a product; without it the template is not offered."""


TEMPLATES = {
    "release": Template(
        "tests, an approval, a deployment, a health check, a rollback",
        ("leadhand lint plan.yaml", "leadhand review plan.yaml", "leadhand run plan.yaml"),
    ),
    "pipeline": Template(
        "a data job with retries, checks and a secret by reference",
        ("leadhand lint plan.yaml", "leadhand run plan.yaml", "leadhand ls"),
    ),
    "research": Template(
        "a goal instead of a plan: facts, a rate limit, a question; with or without a model",
        (f"leadhand plan {RESEARCH}", f"leadhand run {RESEARCH}", "leadhand ls"),
    ),
    "fleet": Template(
        "coding agents on a repository, with an epic; no key needed",
        (
            "python3 make_repo.py",
            "leadhand fleet submit epic.md",
            "leadhand fleet start --until-idle --no-serve",
        ),
        needs="fleet",
    ),
}


@command(
    "init",
    "leadhand init\nleadhand init --template release\nleadhand init bikes --template research",
)
@click.argument("folder", default=".", type=FolderPath(path_type=Path))
@click.option(
    "--template",
    metavar="NAME",
    help="One of release, pipeline, research and fleet. Without it a terminal asks; elsewhere it "
    f"is {DEFAULT}.",
)
def init(console: Console, folder: Path, template: str | None) -> int:
    """Start a project from a template that runs at once.

    release: tests, an approval, a deployment, a health check, a rollback. pipeline: a data job with
    retries, checks and a secret by reference. research: a goal instead of a plan. fleet: coding
    agents on a repository. Each has a README.md, and needs no key and no network. No file that
    exists is changed.
    """
    offered = _offered()
    name = template or (_ask(console, offered) if console.can_prompt else DEFAULT)
    if name not in offered:
        names = ", ".join(offered)
        raise UsageError(
            f"--template {name}: there is no such template. Fix: choose one of {names}"
        )
    with NewFiles(folder) as files:
        for relative, source in _files(name):
            files.add(relative, source.read_bytes())
        if not any(each.endswith((".py", ".toml")) for each in files.kept):
            trust_written(folder)
    written, kept = files.written, files.kept
    commands = list(offered[name].commands)
    if folder != Path():
        commands.insert(0, _cd(folder))
    if console.json:
        document = {"template": name, "written": written, "kept": kept, "next": commands}
        console.document(document)
        return 0
    _report(console, folder, written, kept)
    if template is None and not console.can_prompt:
        console.say(f"The template is {name}; --template chooses another: {', '.join(offered)}.")
    if not kept:
        console.say("Next:")
        for line in commands:
            console.say(f"  {line}")
    return 0


def _offered() -> dict[str, Template]:
    """Return the templates whose product is installed."""
    there = plugins.parts("commands")
    return {name: each for name, each in TEMPLATES.items() if not each.needs or each.needs in there}


def _ask(console: Console, offered: dict[str, Template]) -> str:
    """Ask the person at the terminal for a template."""
    for name, each in offered.items():
        console.say(f"  {name:<9} {each.help}")
    chosen: str = prompt("Which template?", list(offered), default=DEFAULT)
    return chosen


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield each file of a template: its path in the project, and where it is kept."""
    folder = TEMPLATES_FOLDER / name
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path


def _cd(folder: Path) -> str:
    """Return the command that enters a folder, on one line that a shell can read."""
    name = str(folder)
    name = f"./{name}" if name.startswith("-") else name
    if name.isprintable():
        return f"cd {shlex.quote(name)}"
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"cd $'{escaped(quoted)}'"


def _report(console: Console, folder: Path, written: list[str], kept: list[str]) -> None:
    for name in written:
        console.say(f"wrote {clean(folder / name)}")
    for name in kept:
        console.say(f"kept  {clean(folder / name)} (it exists already)")
    if kept:
        console.say("Some files are not the template's: README.md of the template may not apply.")
