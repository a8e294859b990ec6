"""`leadhand connect`: write what a coding agent needs to use Leadhand, and take it back."""

from __future__ import annotations

import difflib
import hashlib
import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import say_not_loaded, settings_of
from leadhand.cli.rendering.text import clean, clean_lines, count
from leadhand.cli.terminal import confirm
from leadhand.connect.edits import Changes, Entry, OwnFile, Record, add, digest, take_back
from leadhand.connect.targets import (
    AGENTS,
    SCOPES,
    Agent,
    Place,
    Scope,
    gate_parts,
    has_gate,
    home,
    parts_of,
)
from leadhand.engine.agent_session import refuse_agent_session
from leadhand.errors import NotAllowed, UsageError
from leadhand.settings import load_settings
from leadhand.settings.trust import state_folder

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc

EXAMPLE = """leadhand connect claude
leadhand connect codex --scope user
leadhand connect cursor --show
leadhand connect claude --remove"""
NEXT = {
    "claude": "Start `claude` here and type /leadhand:plan, then what you want.",
    "codex": "Start `codex` here and type $leadhand-plan, then what you want.",
    "cursor": "Open this folder in Cursor, switch the MCP server on, and type /leadhand-plan.",
}
REVIEW = {
    "claude": "Claude Code asks whether you trust this folder and whether to use the MCP server: "
    "answer yes to both. If the folder was new to it, type /reload-plugins once.",
    "codex": "Codex asks once whether you trust this folder; "
    "a gate, if you asked for one, is reviewed with /hooks.",
    "cursor": "Cursor asks once before it starts the MCP server.",
}


@command("connect", EXAMPLE)
@click.argument("agent", type=click.Choice(tuple(AGENTS)))
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="project",
    help="For this project (the default), or for every project of your account.",
)
@click.option(
    "--require-plan/--no-require-plan",
    "gate",
    default=None,
    help="Deny tools that can change something until a person has approved a plan.",
)
@click.option("--show", is_flag=True, help="Show the changes as a diff; write nothing.")
@click.option("--remove", is_flag=True, help="Remove what this command wrote.")
@click.option("--yes", is_flag=True, help="Write without a confirmation.")
def connect(
    console: Console,
    agent: Agent,
    scope: Scope,
    *,
    gate: bool | None,
    show: bool,
    remove: bool,
    yes: bool,
) -> int:
    """Connect Claude Code, Codex or Cursor to this project.

    The command writes an MCP server entry (`leadhand mcp serve`), a skill and commands where the
    agent looks for them. It shows every change as a diff and asks first. Entries of others,
    comments and formatting in shared files stay as they are; a second time changes nothing.
    --remove takes back exactly what was written, and refuses what was changed since. With
    --require-plan the agent also gets a hook that denies tools without an approved plan; a
    later call keeps it unless --no-require-plan is given.
    """
    if remove and gate is not None:
        raise UsageError("--remove takes everything back. Fix: leave out --require-plan")
    place = _place(agent, scope)
    kept = record_file(place)
    if (remove or gate is False) and has_gate(place, Record.read(kept) or Record()):
        refuse_agent_session("taking back the gate")
    if remove:
        return _remove(console, place, kept, show=show, yes=yes)
    record = Record.read(kept) or Record()
    wanted = has_gate(place, record) if gate is None else gate
    parts = parts_of(place, gate=wanted)
    _refuse_links(place, parts)
    changes, after = add(parts, record)
    if gate is False:
        _without_gate(place, record, changes)
    _print(console, place, changes, written=False, removed=False)
    if show or not changes.changed:
        return _said_unchanged(console, place, changes, kept, after, show=show)
    if not _agreed(console, changes, "Write this?", yes=yes):
        return 5
    after.folders = list(dict.fromkeys([*after.folders, *changes.write()]))
    _keep(kept, after)
    if console.json:
        _print(console, place, changes, written=True, removed=False)
        return 0
    console.say(f"{AGENTS[agent]} is connected ({count(len(changes.changed), 'file')} written).")
    console.say(f"{REVIEW[agent]} Take it back: {_again(place, '--remove')}")
    say_not_loaded(console, settings_of())
    if find_spec("mcp") is None:
        console.say("The MCP server needs one more package: pip install 'leadhand[mcp]'")
    console.next(NEXT[agent])
    return 0


def _place(agent: Agent, scope: Scope) -> Place:
    env = dict(os.environ)
    root = home(env) if scope == "user" else load_settings().root
    return Place(agent, scope, root, env)


def record_file(place: Place) -> Path:
    """Return the file of the record of what was written at a place."""
    name = hashlib.sha256(os.fsencode(place.settings.absolute())).hexdigest()[:16]
    return state_folder(place.env) / "connect" / f"{place.agent}-{name}.json"


def _again(place: Place, option: str) -> str:
    scope = " --scope user" if place.scope == "user" else ""
    return f"leadhand connect {place.agent}{scope} {option}"


def _without_gate(place: Place, record: Record, changes: Changes) -> None:
    """Take the gate back, if it was written before."""
    parts = gate_parts(place)
    old = Record(
        {name: known for name, known in record.files.items() if Path(name) in _files(parts)},
        [kept for each in parts if isinstance(each, Entry) and (kept := record.entry(each))],
    )
    removed, _gone = take_back(old)
    for file in removed.changed:
        changes.set(file, removed.after[file])


def _files(parts: list[OwnFile | Entry]) -> set[Path]:
    return {each.file for each in parts if isinstance(each, OwnFile)}


def _refuse_links(place: Place, parts: list[OwnFile | Entry]) -> None:
    """Raise `NotAllowed` for a folder of the project that is a link: it may lead elsewhere."""
    if place.scope == "user":
        return
    for part in parts:
        for each in (part.file, *part.file.parents):
            if place.root in each.parents and each.is_symlink():
                raise NotAllowed(
                    f"{clean(each)}: is a link, and only files inside {clean(place.root)} are "
                    "written. Fix: replace the link, or use --scope user"
                )


def _remove(console: Console, place: Place, kept: Path, *, show: bool, yes: bool) -> int:
    known = Record.read(kept)
    record = known or _as_written_now(place)
    changes, gone = take_back(record)
    _print(console, place, changes, written=False, removed=False)
    for each in gone:
        console.say(f"already gone: {each}")
    if show:
        return 0
    if changes.changed:
        if not _agreed(console, changes, "Remove this?", yes=yes):
            return 5
        changes.write()
        for folder in reversed(record.folders):
            _remove_if_empty(Path(folder))
    kept.unlink(missing_ok=True)
    if console.json:
        _print(console, place, changes, written=False, removed=True)
    elif changes.changed:
        console.say(f"{AGENTS[place.agent]} is no longer connected.")
    elif known is None:
        name = AGENTS[place.agent]
        console.say(f"{name} was not connected here; nothing was removed{_beside(place)}")
    else:
        console.say("nothing was there to remove")
    return 0


def _beside(place: Place) -> str:
    """Return where else the agent is connected, as the end of a sentence."""
    scope = next(each for each in SCOPES if each != place.scope)
    root = home(place.env) if scope == "user" else Path.cwd()
    other = Place(place.agent, scope, root, place.env)
    found = Record.read(record_file(other)) is not None
    return f". It is connected elsewhere: {_again(other, '--remove')}" if found else ""


def _as_written_now(place: Place) -> Record:
    """Return the record of what this version would write: for files that another machine wrote."""
    found = Record()
    for part in parts_of(place, gate=True):
        if isinstance(part, OwnFile):
            found.files[str(part.file)] = digest(part.text)
        else:
            path, created = list(part.path), {"created": False, "blank": None, "inserted": ""}
            entry = {"file": str(part.file), "form": part.form, "path": path, "value": part.value}
            found.entries.append({**entry, **created})
    return found


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def _keep(file: Path, record: Record) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(record.text(), encoding="utf-8")
    except OSError as error:
        raise NotAllowed(
            f"{clean(file)}: cannot be written ({error.strerror}), so --remove will not know "
            "what was changed since. Fix: make it writable, and connect again"
        ) from None


def _said_unchanged(
    console: Console, place: Place, changes: Changes, kept: Path, after: Record, *, show: bool
) -> int:
    if not changes.changed:
        if not show:
            _keep(kept, after)
        if not console.json:
            console.say(f"{AGENTS[place.agent]} is connected already; nothing changes")
    return 0


def _agreed(console: Console, changes: Changes, question: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not console.can_prompt:
        names = ", ".join(shlex.quote(str(each)) for each in changes.changed)
        raise UsageError(
            f"nothing was written: no terminal to ask at about {names}. Fix: add --yes"
        )
    if confirm(question):
        return True
    console.say("nothing was written")
    return False


def _print(
    console: Console, place: Place, changes: Changes, *, written: bool, removed: bool
) -> None:
    """Print the changes: as a diff at first, as one document in the end."""
    if console.json:
        if written or removed or not changes.changed:
            console.document(_document(place, changes, written=written, removed=removed))
        return
    if written or removed:
        return
    for file in changes.changed:
        for line in _diff(changes, file):
            console.out(clean_lines(line))


def _document(place: Place, changes: Changes, *, written: bool, removed: bool) -> Doc:
    rows = [
        {
            "file": str(file),
            "change": "deleted"
            if changes.after[file] is None
            else "created"
            if changes.before[file] is None
            else "changed",
            "diff": "\n".join(_diff(changes, file)),
        }
        for file in changes.changed
    ]
    doc: Doc = {"agent": place.agent, "scope": place.scope, "root": str(place.root)}
    return {**doc, "written": written, "removed": removed, "files": rows}


def _diff(changes: Changes, file: Path) -> list[str]:
    before, after = changes.before[file], changes.after[file]
    old = "/dev/null" if before is None else str(file)
    new = "/dev/null" if after is None else str(file)
    lines = difflib.unified_diff(
        (before or "").splitlines(), (after or "").splitlines(), old, new, lineterm=""
    )
    return list(lines)
