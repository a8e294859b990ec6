"""`leadhand trust`: trust the entries of a folder's settings, list them, revoke that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import FolderPath
from leadhand.cli.rendering.text import clean
from leadhand.engine.agent_session import refuse_agent_session
from leadhand.errors import UsageError
from leadhand.settings import load_settings
from leadhand.settings.trust import Trust, entries_of

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.settings.trust import TrustEntry


@command("trust", "leadhand trust\nleadhand trust ../shop --revoke\nleadhand trust --list")
@click.argument("folder", default=".", type=FolderPath(path_type=Path))
@click.option("--revoke", is_flag=True, help="Stop trusting the folder.")
@click.option("--list", "listing", is_flag=True, help="List the trusted folders.")
def trust(console: Console, folder: Path, *, revoke: bool, listing: bool) -> int:
    """Trust the code and addresses that the settings of a folder name.

    These are worker modules, MCP servers, planners and addresses; the command lists them.
    Without trust, commands that only read (lint, show, review, doctor, ls) leave them out, and
    commands that execute ask on a terminal and refuse elsewhere. Entries that are added or
    changed later need trust again; an edit of a worker's code does not. Trust is stored for
    your account, outside of the folder. In CI, give --trust to the command, or set
    LEADHAND_TRUST to the folder.
    """
    if revoke and listing:
        raise UsageError("--revoke and --list do not go together")
    kept = Trust.here()
    if listing:
        return _list(console, kept)
    if not folder.is_dir():
        raise UsageError(f"{clean(folder)}: there is no such folder")
    if revoke:
        return _revoke(console, kept, folder.resolve())
    refuse_agent_session("trust")
    entries = entries_of(load_settings(folder=folder))
    kept.remember(entries)
    if console.json:
        console.document({"folder": str(folder.resolve()), "entries": _rows(entries)})
        return 0
    if not entries:
        console.say(f"the settings of {clean(folder)} name nothing to execute")
    for each in entries:
        console.out(f"trusted  {clean(each, 300)}  ({clean(each.folder)})")
    return 0


def _rows(entries: list[TrustEntry]) -> list[Doc]:
    return [
        {"kind": each.kind, "name": each.name, "detail": each.shown, "folder": each.folder}
        for each in entries
    ]


def _list(console: Console, kept: Trust) -> int:
    known = kept.known()
    if console.json:
        console.document(
            [
                {
                    "folder": folder,
                    "since": each.get("since"),
                    "entries": sorted(each["entries"].values()),
                }
                for folder, each in sorted(known.items())
            ]
        )
        return 0
    if not known:
        console.say("no folder is trusted")
    for folder, each in sorted(known.items()):
        console.out(f"{clean(folder)}  since {clean(each.get('since', '?'))}")
        for name in sorted(each["entries"].values()):
            console.out(f"  {clean(name, 300)}")
    return 0


def _revoke(console: Console, kept: Trust, folder: Path) -> int:
    done = kept.forget(folder)
    if console.json:
        console.document({"folder": str(folder), "revoked": done})
    else:
        said = "is not trusted any more" if done else "was not trusted"
        console.say(f"{clean(folder)} {said}")
    return 0
