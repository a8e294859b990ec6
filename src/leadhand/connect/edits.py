"""What `leadhand connect` writes, and how it is taken back.

A whole file is ours, or one entry in a file that others write too. A record of both is kept in the
state folder of the account. Laws:

1. All changes are computed first; a file or entry that a person changed refuses all of them.
2. What is taken back is what was written: an entry whose value is another today stays.
3. Bytes of a shared file outside of our entry do not change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from leadhand.connect import json_text
from leadhand.connect.json_text import NotJson
from leadhand.core.wording import escaped
from leadhand.errors import Conflict, NotAllowed, UsageError

Form = Literal["member", "item", "table"]
"""A member of a JSON object, an item of a JSON array, or a table of a TOML file."""
FILE_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class OwnFile:
    """A file that is ours alone."""

    file: Path
    text: str


@dataclass(frozen=True)
class Entry:
    """An entry of ours in a file that others write too."""

    file: Path
    form: Form
    path: tuple[str, ...]
    """The keys that lead to the member, the array or the table."""
    value: Any
    first: dict[str, Any] = field(default_factory=dict)
    """Members that a new file begins with."""

    @property
    def name(self) -> str:
        """The entry as messages name it."""
        return f"[{'.'.join(self.path)}]" if self.form == "table" else ".".join(self.path)


@dataclass
class Record:
    """What was written by earlier commands, for one agent in one folder."""

    files: dict[str, str] = field(default_factory=dict)
    """For each file of ours, its SHA-256."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    """Folders that were made, in this order."""

    @classmethod
    def read(cls, file: Path) -> Record | None:
        """Return a stored record; None if there is none that can be read."""
        try:
            found = json.loads(file.read_bytes())
            return cls(dict(found["files"]), list(found["entries"]), list(found["folders"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def text(self) -> str:
        """Return the record as it is stored."""
        doc = {"files": self.files, "entries": self.entries, "folders": self.folders}
        return json.dumps(doc, indent=2, ensure_ascii=False) + "\n"

    def entry(self, wanted: Entry) -> dict[str, Any] | None:
        """Return what was recorded about an entry."""
        key = (str(wanted.file), wanted.form, list(wanted.path))
        return next((e for e in self.entries if (e["file"], e["form"], e["path"]) == key), None)


class Changes:
    """Files as they will be: nothing is written before `write`."""

    def __init__(self) -> None:
        self.before: dict[Path, str | None] = {}
        self.after: dict[Path, str | None] = {}

    def text(self, file: Path) -> str | None:
        """Return the text of a file as it will be; None if there will be none."""
        if file not in self.before:
            self.before[file] = self.after[file] = read_text(file)
        return self.after[file]

    def set(self, file: Path, text: str | None) -> None:
        """Give a file another text; None deletes it."""
        self.text(file)
        self.after[file] = text

    @property
    def changed(self) -> list[Path]:
        """The files that change, in the order in which they were looked at."""
        return [file for file, text in self.after.items() if text != self.before[file]]

    def write(self) -> list[str]:
        """Write everything, or nothing; return the folders that were made."""
        done: list[Path] = []
        made: list[Path] = []
        try:
            for file in self.changed:
                if read_text(file) != self.before[file]:
                    raise Conflict(
                        f"{escaped(str(file))}: was changed by another program. Fix: try again"
                    )
                done.append(file)
                made += _write(file, self.after[file])
        except BaseException as error:
            for file in reversed(done):
                with contextlib.suppress(OSError):
                    _write(file, self.before[file])
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            if isinstance(error, OSError):
                where = escaped(str(error.filename or done[-1]))
                raise NotAllowed(
                    f"nothing was written: {where}: {error.strerror}. Fix: correct its permissions"
                ) from None
            raise
        return [str(each) for each in made]


def read_text(file: Path) -> str | None:
    """Return the text of a file with its ends of lines; None if it does not exist."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
            raise UsageError(f"{escaped(str(file))}: is no file. Fix: remove it")
        if found.st_size > FILE_BYTES_MAX:
            raise UsageError(f"{escaped(str(file))}: is larger than {FILE_BYTES_MAX} bytes")
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UsageError(f"{escaped(str(file))}: is not UTF-8. Fix: save it as UTF-8") from None
    except OSError as error:
        raise NotAllowed(f"{escaped(str(file))}: cannot be read: {error.strerror}") from None


def _write(file: Path, text: str | None) -> list[Path]:
    """Replace a file's text atomically, or delete it; return the folders that were made."""
    if text is None:
        file.unlink(missing_ok=True)
        return []
    made = [each for each in reversed((file.parent, *file.parent.parents)) if not each.exists()]
    for folder in made:
        folder.mkdir()
    target = file.resolve()  # a link stays one
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666
        # Never more readable than the file that it replaces, which may hold secrets.
        made_at = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(made_at, "wb") as new:
            new.write(text.encode())
            new.flush()
            os.fsync(new.fileno())
        if target.exists():
            beside.chmod(mode)
        os.replace(beside, target)  # noqa: PTH105 - the one that replaces on every system
    finally:
        beside.unlink(missing_ok=True)
    return made


def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


# Adding.


def add(parts: list[OwnFile | Entry], record: Record) -> tuple[Changes, Record]:
    """Return the changes that write all parts, and the record afterwards.

    Raise `Conflict`, which names each file or entry that a person changed or wrote.
    """
    changes, after, wrong = Changes(), Record(folders=list(record.folders)), list[str]()
    for part in parts:
        if isinstance(part, OwnFile):
            now = changes.text(part.file)
            if now not in (None, part.text) and digest(now or "") != record.files.get(
                str(part.file)
            ):
                wrong.append(f"{escaped(str(part.file))} has other content")
            changes.set(part.file, part.text)
            after.files[str(part.file)] = digest(part.text)
        elif problem := _add_entry(part, changes, record, after):
            wrong.append(problem)
    if wrong:
        raise Conflict(
            f"nothing was written: {'; '.join(wrong)}. "
            "Fix: keep your version elsewhere, delete it there, and connect again"
        )
    return changes, after


def _add_entry(part: Entry, changes: Changes, record: Record, after: Record) -> str:
    """Add an entry to its file; return why that is not possible."""
    text, known = changes.text(part.file), record.entry(part)
    new = text is None or not text.strip()
    base = text or ""
    if new and part.form != "table":
        base = json.dumps(part.first, indent=2) + "\n"
    try:
        there = _current(base, part, known)
        if there == part.value:
            kept = known or {"inserted": "", "created": False, "blank": None}
            after.entries.append({**_described(part), **_origin(kept)})
            return ""
        if there is not None:
            if known is None or there != known["value"]:
                return f"{escaped(str(part.file))} has another {part.name}"
            base = _without(base, Entry(part.file, part.form, part.path, known["value"]), known)
        whole = _with(base, part)
    except (NotJson, tomllib.TOMLDecodeError) as error:
        return f"{escaped(str(part.file))} cannot be edited automatically ({error})"
    inserted = whole if new else _insertion(base, whole)
    earlier = _origin(known) if known else {"created": new, "blank": text}
    after.entries.append({**_described(part), **earlier, "inserted": inserted})
    changes.set(part.file, whole)
    return ""


def _described(part: Entry) -> dict[str, Any]:
    path = list(part.path)
    return {"file": str(part.file), "form": part.form, "path": path, "value": part.value}


def _origin(known: dict[str, Any]) -> dict[str, Any]:
    return {key: known[key] for key in ("inserted", "created", "blank")}


def _insertion(before: str, after: str) -> str:
    """Return the text that was inserted at one place."""
    longest = min(len(before), len(after))
    begin = next((i for i in range(longest) if before[i] != after[i]), longest)
    end = len(after) - (len(before) - begin)
    return after[begin:end]


def _current(text: str, part: Entry, known: dict[str, Any] | None) -> Any:
    """Return the value of an entry as the file has it now; None if it has none."""
    if part.form == "table":
        found: Any = tomllib.loads(text)
        for key in part.path:
            found = found.get(key) if isinstance(found, dict) else None
        return found
    found = json_text.lookup(text, part.path)
    if part.form == "member":
        return found
    items = found if isinstance(found, list) else []
    ours = [part.value, *([known["value"]] if known else [])]
    return next((each for each in ours if each in items), None)


def _with(text: str, part: Entry) -> str:
    if part.form == "member":
        return json_text.with_member(text, part.path, part.value)
    if part.form == "item":
        return json_text.with_item(text, part.path, part.value)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    whole = text + gap + table_text(part.path, part.value).replace("\n", newline)
    wanted = tomllib.loads(text)
    inner = wanted
    for key in part.path[:-1]:
        inner = inner.setdefault(key, {})
    inner[part.path[-1]] = part.value
    if tomllib.loads(whole) != wanted:
        raise NotJson("its tables are written in another way")
    return whole


def table_text(path: tuple[str, ...], value: dict[str, Any]) -> str:
    """Return a TOML table whose values are texts, numbers, truth values or lists of texts."""
    lines = [f"[{'.'.join(path)}]"]
    lines += [f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in value.items()]
    return "\n".join(lines) + "\n"


# Taking back.


def take_back(record: Record) -> tuple[Changes, list[str]]:
    """Return the changes that remove everything that was written, and what is gone already.

    Raise `Conflict`, which names each file or entry that was changed since.
    """
    changes, wrong, gone = Changes(), list[str](), list[str]()
    for name, known in record.files.items():
        text = changes.text(Path(name))
        if text is None:
            gone.append(escaped(name))
        elif digest(text) != known:
            wrong.append(f"{escaped(name)} was changed since")
        else:
            changes.set(Path(name), None)
    for each in record.entries:
        part = Entry(Path(each["file"]), each["form"], tuple(each["path"]), each["value"])
        text = changes.text(part.file)
        try:
            there = None if text is None else _current(text, part, each)
            if there is None:
                gone.append(f"{part.name} in {escaped(str(part.file))}")
            elif there != part.value:
                wrong.append(f"{part.name} in {escaped(str(part.file))} was changed since")
            else:
                rest = _without(text or "", part, each)
                ours = each["created"] and _is_empty(rest, part)
                changes.set(part.file, each["blank"] if ours else rest)
        except (NotJson, tomllib.TOMLDecodeError, KeyError, ValueError) as error:
            wrong.append(f"{escaped(str(part.file))} cannot be edited automatically ({error})")
    if wrong:
        raise Conflict(
            f"nothing was removed: {'; '.join(wrong)}. "
            "Fix: delete it by hand, then remove the rest with the same command"
        )
    return changes, gone


def _is_empty(text: str, part: Entry) -> bool:
    """Return whether nothing of others is left in a file that we made."""
    if part.form == "table":
        return not text.strip()
    found = json_text.parse(text).plain()
    return isinstance(found, dict) and not _pruned(
        {key: each for key, each in found.items() if key != "version"}
    )


def _without(text: str, part: Entry, known: dict[str, Any]) -> str:
    """Return the text without an entry: exactly what was inserted, if it is still there."""
    inserted = known["inserted"]
    if part.form == "table":
        return _without_table(text, part, inserted)
    item = part.value if part.form == "item" else None
    structured = json_text.without(text, part.path, item)
    if inserted and text == inserted:  # the whole file is ours
        return structured
    if inserted and text.count(inserted) == 1:
        exact = text.replace(inserted, "")
        with contextlib.suppress(NotJson):
            if _pruned(json_text.parse(exact).plain()) == _pruned(
                json_text.parse(structured).plain()
            ):
                return exact
    return structured


def _without_table(text: str, part: Entry, inserted: str) -> str:
    wanted = tomllib.loads(text)
    inner = wanted
    for key in part.path[:-1]:
        inner = inner[key]
    del inner[part.path[-1]]
    wanted = _pruned(wanted)
    for rest in _table_cuts(text, part, inserted):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if _pruned(tomllib.loads(rest)) == wanted:
                return rest
    raise NotJson("the table is written in another way")


def _table_cuts(text: str, part: Entry, inserted: str) -> list[str]:
    """Return the text without the table, cut in the ways that may be meant; the best one first."""
    cuts = [text.replace(inserted, "")] if inserted and text.count(inserted) == 1 else []
    lines = text.splitlines(keepends=True)
    head = f"[{'.'.join(part.path)}]"
    begin = next((i for i, line in enumerate(lines) if line.strip() == head), None)
    if begin is not None:
        last = begin + 1
        while (
            last < len(lines) and lines[last].strip() and not lines[last].lstrip().startswith("[")
        ):
            last += 1
        cuts.append("".join(lines[:begin] + lines[last:]))
    return cuts


def _pruned(value: Any) -> Any:
    """Return data without empty containers."""
    if isinstance(value, dict):
        kept = {key: _pruned(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in ({}, [])}
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    return value
