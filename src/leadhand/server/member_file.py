"""Editing leadhand.toml: append or remove the table of a person; the rest stays unchanged."""

from __future__ import annotations

import os
import re
import tomllib
from typing import TYPE_CHECKING

from leadhand.errors import Conflict, NotAllowed, UsageError
from leadhand.server.settings import is_name, server_of

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.settings import Settings


PROJECT_FILE = "leadhand.toml"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def add_member(settings: Settings, name: str, role: str, token: str) -> Path:
    """Add a person who may sign in. Raise `Conflict` if the name is taken."""
    if not is_name(name):
        raise UsageError(f"{name[:80]!r} is not a valid name (1 to 64 characters, no /)")
    if name in server_of(settings).people:
        raise Conflict(f"{name} already has a token. Fix: serve token remove {name}")
    file = settings.root / PROJECT_FILE
    before = _text(file)
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    table = f'{_head(name)}\nrole = "{role}"\ntoken = "{token}"\n'
    _write(file, before + gap + table, wanted=name)
    return file


def remove_member(settings: Settings, name: str) -> Path:
    """Remove a person."""
    file = settings.root / PROJECT_FILE
    lines = _text(file).splitlines(keepends=True)
    heads = (_head(name), f'[server.people."{name}"]')
    begin = next((i for i, line in enumerate(lines) if line.strip() in heads), None)
    if begin is None:
        raise UsageError(f"{file}: has no table {_head(name)}")
    end = begin + 1
    while end < len(lines) and not lines[end].lstrip().startswith("["):
        end += 1
    _write(file, "".join(lines[:begin] + lines[end:]), unwanted=name)
    return file


def _head(name: str) -> str:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    key = name if _BARE.fullmatch(name) else f'"{quoted}"'
    return f"[server.people.{key}]"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise NotAllowed(f"{file}: cannot be read: {error.strerror}") from None


def _write(file: Path, text: str, *, wanted: str = "", unwanted: str = "") -> None:
    """Replace the file's text atomically, after checking the result."""
    try:
        people = tomllib.loads(text).get("server", {}).get("people", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{file}: cannot be edited automatically: {error}. Fix: edit it by hand"
        ) from None
    if (wanted and wanted not in people) or (unwanted and unwanted in people):
        raise UsageError(f"{file}: cannot be edited automatically. Fix: edit it by hand")
    beside = file.with_name(f".{file.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        if file.exists():
            beside.chmod(file.stat().st_mode & 0o777)
        os.replace(beside, file)  # noqa: PTH105 - the one that replaces on every system
    except OSError as error:
        raise NotAllowed(f"{file}: cannot be written: {error.strerror}") from None
