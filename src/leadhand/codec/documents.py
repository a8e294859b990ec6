"""Reading plan documents, from JSON and YAML, without trusting them.

Both formats allow spellings that mislead a reader: a key written twice where the last one wins (so
that the approved plan is not the one that runs), 22:00 read as 1320, NaN, an alias that grows to
gigabytes. Those are refused, with their line. Everything else means the same to every reader. The
limits apply before memory is spent: a file is measured before it is read, text before it is parsed.
"""

from __future__ import annotations

import json
import math
import re
import stat
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from leadhand.codec.syntax_errors import json_problem
from leadhand.core.plan.model import Doc, Json
from leadhand.core.wording import closest, escaped, type_with_article
from leadhand.errors import DocumentError, NotAllowed

BYTES_MAX = 10 * 1024 * 1024
DEPTH_MAX = 64
NODES_MAX = 1_000_000
INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)
ENDINGS = (".json", ".yaml", ".yml")
BESIDE_MAX = 1000
"""The number of files of a folder considered as corrections of a misspelt name."""


class DocumentForm(NamedTuple):
    """The expected form of a document, for messages."""

    what: str
    fix: str


PLAN = DocumentForm("a plan is an object with steps", 'Start with "steps:" or {"steps": ...}.')

# Possessive, and tolerant of unterminated strings: linear time without backtracking.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_document(source: str | Path | bytes, *, name: str = "", form: DocumentForm = PLAN) -> Doc:
    """Read the document in a file, or in bytes.

    Raise `DocumentError`, with the place, if malformed.
    """
    if isinstance(source, bytes):
        data, where = source, name or "document"
    else:
        data, where = read_bytes(Path(source)), name or str(source)
    if len(data) > BYTES_MAX:
        raise too_large(where, len(data))
    text = _text(data, where)
    if not text.strip():
        raise DocumentError(where, "is empty.", f"{form.what.capitalize()}.")
    if _is_json(text, where):
        doc = _read_json(text, data, where)
    else:
        from leadhand.codec.plan_yaml import read_yaml

        doc = read_yaml(text, where)
    if not isinstance(doc, dict):
        raise DocumentError(where, f"{form.what}, not {type_with_article(doc)}.", form.fix)
    return doc


def read_value(text: str, name: str) -> Json:
    """Read one JSON value typed by a person.

    Raise `DocumentError`, with the place, if malformed.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > BYTES_MAX:
        raise too_large(name, len(data))
    return _read_json(text, data, name)


def is_json(text: str) -> bool:
    """Return whether a text is meant as JSON, though its numbers or keys may be refused."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        return False
    except RecursionError:
        return True
    return True


def _near(path: Path) -> str:
    """Return a hint at a document beside it with a similar name."""
    try:
        beside = sorted(each.name for each in islice(path.parent.iterdir(), BESIDE_MAX))
    except OSError:
        return "The folder is not there either."
    beside = [name for name in beside if name.lower().endswith(ENDINGS)]
    stems = {Path(name).stem: name for name in reversed(beside)}  # the suffixes are alike anyway
    close = stems.get(closest(path.stem, stems), "")
    return f"Did you mean {path.with_name(close)}?" if close else ""


def dangling(path: Path) -> str:
    """Return what is wrong with a link whose target does not exist."""
    return f"is a link to {escaped(str(path.readlink()))}, which does not exist"


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, reading no more than the limit."""
    try:
        with path.open("rb") as file:
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and status.st_size > BYTES_MAX:
                raise too_large(str(path), status.st_size)
            # A pipe or a device has no size: one byte beyond the limit shows the excess.
            return file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise DocumentError(str(path), f"{dangling(path)}.") from None
        raise DocumentError(str(path), "there is no such file.", _near(path)) from None
    except IsADirectoryError:
        raise DocumentError(str(path), "is a folder, not a file.") from None
    except PermissionError:
        raise NotAllowed(f"{path}: reading it is not permitted.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DocumentError(str(path), f"cannot be read: {reason}.") from None


def write_json(doc: Json) -> str:
    """Return a document as JSON for people."""
    return json.dumps(doc, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_yaml(doc: Json) -> str:
    """Return a document as YAML for people; reading it gives the same document."""
    from leadhand.codec.plan_yaml import write_yaml as write

    return write(doc)


def too_large(where: str, size: int) -> DocumentError:
    """Return the error for a document over the size limit."""
    message = f"has {size:,} bytes; a document may have {BYTES_MAX:,} at most."
    return DocumentError(where, message, "Split the plan, or keep large data in files.")


def too_deep(place: str) -> DocumentError:
    """Return the error for a document nested beyond the limit."""
    return DocumentError(place, f"is nested more than {DEPTH_MAX} deep.", "Flatten it.")


def too_many(place: str) -> DocumentError:
    """Return the error for a document with too many values."""
    return DocumentError(place, f"holds more than {NODES_MAX:,} values.", "Split the plan.")


def _is_json(text: str, where: str) -> bool:
    lowered = where.lower()
    if lowered.endswith((".yaml", ".yml")):
        return False
    return lowered.endswith(".json") or text.lstrip()[:1] in ("{", "[")


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text: byte 0x{data[error.start]:02x}."
        raise DocumentError(f"{where}:{line}", message, "Save it as UTF-8.") from None


class _Refused(Exception):
    """A construct of JSON that a plan cannot hold."""


def _read_json(text: str, data: bytes, where: str) -> Json:
    if count_values(data) > NODES_MAX:
        raise too_many(where)
    try:
        doc = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise _json_error(error, text, where) from None
    except _Refused as error:
        raise _locate(text, where) or DocumentError(where, str(error)) from None
    except RecursionError:
        raise _locate(text, where) or too_deep(where) from None
    wrong = _wrong_tree(doc)
    if wrong:
        raise _locate(text, where) or DocumentError(where, wrong)
    return doc


def count_values(data: bytes, most: int = NODES_MAX) -> int:
    """Return an upper bound of the number of values in a JSON text, which may be malformed.

    The content of strings is excluded only if the count would otherwise exceed `most`.
    """
    found = _separators(data) if len(data) > most else 0
    if found > most:
        found -= sum(_separators(text.group()) for text in _STRING.finditer(data))
    return found


def _separators(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _object(pairs: list[tuple[str, Any]]) -> Doc:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Refused("a key stands twice in one object.")
    return found


def _integer(text: str) -> int:
    # Python refuses very long digits itself, but with a message unsuitable for people.
    value = int(text) if len(text) <= 20 else INTEGER_MAX + 1
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise _Refused(f"{text[:40]} is too large a number.")
    return value


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"{text[:40]} is too large a number.")
    return value


def _constant(text: str) -> NoReturn:
    raise _Refused(f"{text} is not a number that JSON has.")


def _wrong_tree(doc: Json) -> str:
    """Return a problem visible only in the whole tree: depth, or half a character."""
    stack: list[tuple[Json, int]] = [(doc, 1)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, str):
            if not value.isascii() and _SURROGATE.search(value):
                return "half a character (a lone surrogate) cannot be stored."
        elif isinstance(value, dict):
            if depth > DEPTH_MAX:
                return f"is nested more than {DEPTH_MAX} deep."
            for key, item in value.items():
                if not key.isascii() and _SURROGATE.search(key):
                    return "half a character (a lone surrogate) cannot be stored."
                if isinstance(item, (str, dict, list)):
                    stack.append((item, depth + 1))
        elif isinstance(value, list):
            if depth > DEPTH_MAX:
                return f"is nested more than {DEPTH_MAX} deep."
            stack += ((item, depth + 1) for item in value if isinstance(item, (str, dict, list)))
    return ""


def _json_error(error: json.JSONDecodeError, text: str, where: str) -> DocumentError:
    place = f"{where}:{error.lineno}:{error.colno}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        message = "the document ends in the middle"
        expected = json_problem(error.msg)
        return DocumentError(place, f"{message}: {expected}.", "Is it cut off?")
    near = text[error.pos : error.pos + 20].split("\n", maxsplit=1)[0]
    return DocumentError(place, f"is not JSON: {json_problem(error.msg)}, found {near!r}.")


def _locate(text: str, where: str) -> DocumentError | None:
    """Find the place of a refused construct: slow, and only run for a refused document.

    The parser does not tell the place of a value, so the text is read once more by its tokens.
    """
    keys: list[set[str] | None] = []
    expects_key = False
    for token in _TOKEN.finditer(text):
        word = token.group()
        wrong = ""
        fix = ""
        if word in "[{":
            keys.append(set() if word == "{" else None)
            if len(keys) > DEPTH_MAX:
                return too_deep(_place(text, token.start(), where))
        elif word in "]}" and keys:
            keys.pop()
        elif word[0] == '"':
            value = _string(word)
            if _SURROGATE.search(value):
                wrong = "half a character (a lone surrogate) cannot be stored."
            seen = keys[-1] if keys else None
            if expects_key and seen is not None:
                if value in seen:
                    wrong = f"the key {word[:60]} stands twice in one object."
                    fix = "Keep one of them."
                seen.add(value)
        elif word not in ",:]}":
            wrong = _wrong_number(word)
        if wrong:
            return DocumentError(_place(text, token.start(), where), wrong, fix)
        expects_key = word in "{," and bool(keys) and keys[-1] is not None
    return None


def _string(word: str) -> str:
    try:
        return str(json.loads(word, strict=False))
    except ValueError:
        return word


def _wrong_number(word: str) -> str:
    try:
        json.loads(word, parse_int=_integer, parse_float=_number, parse_constant=_constant)
    except _Refused as error:
        return str(error)
    except ValueError:
        return ""
    return ""


def _place(text: str, position: int, where: str) -> str:
    line = text.count("\n", 0, position) + 1
    return f"{where}:{line}:{position - text.rfind(chr(10), 0, position)}"
