"""Editing leadhand.toml: append, change or remove a person's table; the rest stays unchanged.

An edit is prepared and checked first, and then written: `add_member(…).write()`.
"""

from __future__ import annotations

import os
import re
import secrets
import tomllib
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.review.decisions import NO_PERSON
from leadhand.core.review.identity import same_person_key
from leadhand.errors import Conflict, NotAllowed, UsageError
from leadhand.server.settings import is_name, server_of
from leadhand.settings.review import refuse_namesakes

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.settings import Settings


PROJECT_FILE = "leadhand.toml"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ROLE = re.compile(r"""\s*("role"|'role'|role)\s*=\s*(?P<value>"[^"]*"|'[^']*')""")


class FileEdit(NamedTuple):
    """A settings file, and its text from now on."""

    file: Path
    text: str
    before: str
    """The text that was edited: another process may have changed it since."""

    def write(self) -> Path:
        """Replace the file's text atomically; return the file. Raise `Conflict` if it changed."""
        file = self.file.resolve()  # a link stays one
        beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}.new")
        try:
            with beside.open("xb") as new:
                new.write(self.text.encode())
                new.flush()
                os.fsync(new.fileno())
            if file.exists():
                beside.chmod(file.stat().st_mode & 0o777)
            if _text(file) != self.before:
                raise Conflict(f"{self.file}: was changed by someone else. Fix: try again")
            os.replace(beside, file)  # noqa: PTH105 - the one that replaces on every system
        except OSError as error:
            raise NotAllowed(f"{self.file}: cannot be written: {error.strerror}") from None
        finally:
            beside.unlink(missing_ok=True)
        return self.file


def add_member(settings: Settings, name: str, role: str, token: str) -> FileEdit:
    """Add a person who may sign in, with the hash of a token. Raise `Conflict` for a taken name."""
    if not is_name(name):
        raise UsageError(f"{name[:80]!r} is not a valid name (1 to 64 characters, no /)")
    if same_person_key(name) in NO_PERSON:
        raise UsageError(f"{name} stands for decisions without a person. Fix: take another name")
    known = server_of(settings).people
    if name in known:
        raise Conflict(f"{name} already has a token. Fix: serve token remove {name}")
    try:
        refuse_namesakes([*known, name])
    except ValueError as error:
        raise Conflict(f"[server.people] {error}") from None
    file = settings.root / PROJECT_FILE
    before = _text(file)
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    table = f'{_head(name)}\nrole = "{role}"\ntoken = "{token}"\n'
    return _checked(file, before, before + gap + table, name, role)


def change_role(settings: Settings, name: str, role: str) -> FileEdit:
    """Change the role of a person; the token stays."""
    file = settings.root / PROJECT_FILE
    before = _text(file)
    lines = before.splitlines(keepends=True)
    begin, end = _table(file, lines, name)
    for at in range(begin, end):
        if found := _ROLE.match(lines[at]):  # the end of the line, with its comment, stays
            lines[at] = f'role = "{role}"{lines[at][found.end() :]}'
    return _checked(file, before, "".join(lines), name, role)


def remove_member(settings: Settings, name: str) -> FileEdit:
    """Remove a person."""
    file = settings.root / PROJECT_FILE
    before = _text(file)
    lines = before.splitlines(keepends=True)
    begin, end = _table(file, lines, name)
    return _checked(file, before, "".join(lines[:begin] + lines[end:]), name, "")


def _table(file: Path, lines: list[str], name: str) -> tuple[int, int]:
    """Return the first line of a person's table, and the line after the last."""
    begin = next((at for at, line in enumerate(lines) if _opens(line, name)), None)
    if begin is None:
        raise UsageError(f"{file}: has no table {_head(name)}")
    end = begin + 1
    while end < len(lines) and not lines[end].lstrip().startswith("["):
        end += 1
    last = end  # comments after the last value may be about the next table
    while last > begin + 1 and lines[last - 1].strip()[:1] in ("", "#"):
        last -= 1
    comments = (at for at in range(last, end) if lines[at].strip())
    return begin, next(comments, end)


def _opens(line: str, name: str) -> bool:
    """Return whether a line is the head of a person's table, however it is spaced and quoted."""
    if not line.lstrip().startswith("["):
        return False
    try:
        return tomllib.loads(line) == {"server": {"people": {name: {}}}}
    except tomllib.TOMLDecodeError:  # a line of a list or a text
        return False


def _head(name: str) -> str:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    key = name if _BARE.fullmatch(name) else f'"{quoted}"'
    return f"[server.people.{key}]"


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()  # with its ends of lines
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise NotAllowed(f"{file}: cannot be read: {error.strerror}") from None


def _checked(file: Path, before: str, text: str, name: str, role: str) -> FileEdit:
    """Return an edit after which the person has this role; empty: is not there."""
    try:
        people = tomllib.loads(text).get("server", {}).get("people", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{file}: cannot be edited automatically: {error}. Fix: edit it by hand"
        ) from None
    if people.get(name, {}).get("role", "") != role:
        raise UsageError(f"{file}: cannot be edited automatically. Fix: edit it by hand")
    return FileEdit(file, text, before)
