"""Tables of leadhand.toml: types of their values, and one translator of errors.

A table is declared as a msgspec struct: the fields are its keys, with their types and defaults.
`read` converts a value and raises `TableError` with every mistake in it, each with its path and the
end of a sentence: "must be a whole number from 1", "is not known; did you mean timeout?".

    class CopyTable(msgspec.Struct):
        files: Texts
        timeout: Seconds = 60.0
        depth: Annotated[int, Meta(ge=1, le=9)] = 1

Checks beyond types are in `__post_init__`, or in the function of a `reader` type; both raise
ValueError with the end of a sentence. `Meta(description="a port")` names a type in messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta

from leadhand.core import durations
from leadhand.core.wording import closest, listed
from leadhand.errors import UsageError

S = TypeVar("S", bound=msgspec.Struct)


class Mistake(NamedTuple):
    """One mistake in a value."""

    path: tuple[str | int, ...]
    """The keys and indexes that lead to it; empty for the value itself."""
    what: str
    """The end of a sentence that begins with the place."""

    @property
    def place(self) -> str:
        """The path as it is written: `tools.a`, `command[1]`."""
        text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in self.path)
        return text.removeprefix(".")


class TableError(ValueError):
    """A value does not fit its type; `mistakes` lists every problem."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        first = self.mistakes[0]
        super().__init__(f"{first.place} {first.what}".lstrip())


class Misplaced(ValueError):
    """Raised by a reader for one part of its value: the path of the part, and the problem."""

    def __init__(self, path: tuple[str | int, ...], what: str) -> None:
        self.path = path
        super().__init__(what)


class _Reader(type):
    """The class of types that a function reads. A value of any class is an instance of them."""

    read: Callable[[Any], Any]
    words: str

    def __instancecheck__(cls, _value: object) -> bool:
        return True


def reader(function: Callable[[Any], Any], words: str) -> Any:
    """Return a type for fields whose value `function` reads.

    Args:
        function: returns what the value stands for; raises ValueError, the end of a sentence.
        words: what such a value is, for people: "a list of texts".
    """
    return _Reader(function.__name__, (), {"read": staticmethod(function), "words": words})


def read(value: Any, kind: Any) -> Any:
    """Return a value of a table as its type. Raise `TableError` with every mistake in it."""
    if kind is Any:
        return value
    try:
        return msgspec.convert(value, kind, dec_hook=_read)
    except msgspec.ValidationError as error:
        found = [*_mistakes(value, kind)] or [Mistake((), str(error.__cause__ or error))]
        raise TableError(found) from None


def read_table(place: str, value: Any, schema: type[S]) -> S:
    """Return a table by its schema. Raise `UsageError` with its place and the first mistake.

    The message does not show its content: it may be a key.
    """
    try:
        found: S = read(value, schema)
    except TableError as error:
        raise UsageError(f"{place}: {error}") from None
    return found


def _read(kind: Any, value: Any) -> Any:
    return kind.read(value)


@functools.cache
def keys(schema: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return the fields of a table by key."""
    return {each.encode_name: each for each in msgspec.structs.fields(schema)}


def unknown(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about a key that is not known, with the one probably meant."""
    names = tuple(known)
    meant = closest(word, names)
    return "is not known; " + (
        f"did you mean {meant}?" if meant else f"there are: {listed(names, 40)}"
    )


# Finding the mistakes in a value that was refused.


def _mistakes(value: Any, kind: Any) -> Iterator[Mistake]:
    """Yield every mistake in a value that cannot be converted, the innermost places first."""
    inner = [
        Mistake((key, *each.path), each.what)
        for key, part, of in _parts(value, kind)
        for each in _wrong(part, of)
    ]
    if inner and not _described(kind):
        yield from inner
        return
    try:
        msgspec.convert(value, kind, dec_hook=_read)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, TableError):
            yield from cause.mistakes
        else:
            path = cause.path if isinstance(cause, Misplaced) else ()
            yield Mistake(path, str(cause) if cause is not None else f"must be {type_words(kind)}")


def _wrong(value: Any, kind: Any) -> Iterator[Mistake]:
    if isinstance(kind, _Missing):
        yield Mistake((), kind.what)
        return
    try:
        read(value, kind)
    except TableError as error:
        yield from error.mistakes


class _Missing(NamedTuple):
    """Stands for the type of a key that is unknown or missing."""

    what: str


def _parts(value: Any, kind: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield the parts of a value with their types, if it has the form of its type."""
    kind = _bare(kind)
    origin = get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, Mapping):
        known = keys(kind)
        for key, part in value.items():
            yield key, part, known[key].type if key in known else _Missing(unknown(key, known))
        for key, each in known.items():
            if each.required and key not in value:
                yield key, None, _Missing(f"is missing; it must be {type_words(each.type)}")
    elif origin is dict and isinstance(value, Mapping):
        yield from ((str(key), part, get_args(kind)[1]) for key, part in value.items())
    elif origin in (tuple, list) and isinstance(value, list):
        yield from ((number, part, get_args(kind)[0]) for number, part in enumerate(value))


def _bare(kind: Any) -> Any:
    """Return a type without its Annotated, and without None."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        rest = [each for each in get_args(kind) if each is not type(None)]
        return _bare(rest[0]) if len(rest) == 1 else kind
    return kind


def _described(kind: Any) -> str:
    """Return the description of a type, or ""."""
    if get_origin(kind) is Annotated:
        own = (each.description for each in kind.__metadata__ if isinstance(each, Meta))
        return next(filter(None, own), "") or _described(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return next(filter(None, map(_described, get_args(kind))), "")
    return ""


def type_words(kind: Any) -> str:
    """Describe the values of a type, for people."""
    if own := _described(kind):
        return own
    if kind is Any:
        return "any value"
    meta = _limits(kind)
    kind = _bare(kind)
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(kind, _Reader):
        return kind.words
    if kind is str:
        return "a text that is not empty" if meta.get("min_length") else "a text"
    if kind in (int, float):
        noun = "a whole number" if kind is int else "a number"
        if kind is float and meta.get("ge") == 0 and "le" not in meta:
            return f"{noun} that is not negative"
        below = f" from {meta['ge']}" if "ge" in meta else ""
        return noun + below + (f" to {meta['le']}" if "le" in meta else "")
    if kind is bool:
        return "true or false"
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin in (tuple, list):
        return "a list of texts" if _bare(args[0]) is str else f"a list, each {type_words(args[0])}"
    if origin is dict and args[1] is not Any:
        return (
            "a table of texts"
            if _bare(args[1]) is str
            else f"a table, each value {type_words(args[1])}"
        )
    if origin in (Union, UnionType):
        return " or ".join(type_words(each) for each in args if each is not type(None))
    return "a table"


def _limits(kind: Any) -> dict[str, Any]:
    """Return the limits that Annotated sets, of a type that may also be None."""
    if get_origin(kind) in (Union, UnionType):
        rest = [each for each in get_args(kind) if each is not type(None)]
        return _limits(rest[0]) if len(rest) == 1 else {}
    found: dict[str, Any] = {}
    for each in getattr(kind, "__metadata__", ()):
        if isinstance(each, Meta):
            named = {name: getattr(each, name) for name in ("ge", "le", "min_length")}
            found |= {name: limit for name, limit in named.items() if limit is not None}
    return found


# Types that many tables have.


Text = Annotated[str, Meta(min_length=1, pattern=r"\S")]
Count = Annotated[int, Meta(ge=1)]
Number = Annotated[float, Meta(ge=0, lt=1e15)]
Price = Annotated[float, Meta(ge=0, lt=1e9, description="dollars for a million tokens")]
KeyVariable = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,99})?$",
        description="the name of the environment variable that holds the key, never the key "
        'itself. Fix: write key = "MY_KEY" and set that variable',
    ),
]


def _texts(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(e, str) and e for e in items):
        raise ValueError("must be a list of texts")
    return tuple(items)


def _duration(value: Any) -> float:
    found = durations.seconds(value)
    if found <= 0:
        raise ValueError("must be longer than nothing")
    return found


if TYPE_CHECKING:
    Texts: TypeAlias = tuple[str, ...]
    Seconds: TypeAlias = float
    Duration: TypeAlias = float
else:
    Texts = reader(_texts, "a list of texts")
    """A list of texts; a single one stands for a list of one."""
    Seconds = reader(durations.seconds, "a duration")
    """A duration, 0 among them."""
    Duration = reader(_duration, "a duration")
    """A duration above 0."""


class TableSchema(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of schemas."""


class Table:
    """A table being read; mistakes are added to `problems`."""

    def __init__(self, place: str, values: Mapping[str, Any], problems: list[str]) -> None:
        self.place = place
        self.values = dict(values)
        self.problems = problems

    def problem(self, key: str, message: str) -> None:
        """Add a problem of a key, or of the table if the key is empty."""
        text = f"{self.place}.{key}: {message}" if key else f"{self.place}: {message}"
        if text not in self.problems:
            self.problems.append(text)

    def known(self, schema: type[msgspec.Struct], also: Iterable[str] = ()) -> dict[str, Any]:
        """Return the values of keys in the schema, and add a problem for each other key.

        `also`: keys of other tables, as suggestions for an unknown key.
        """
        there = keys(schema)
        for key in self.values:
            if key not in there:
                self.problem(key, unknown(key, (*there, *also)))
        return {key: value for key, value in self.values.items() if key in there}

    def read(self, schema: type[S], also: Iterable[str] = ()) -> S | None:
        """Return the table by its schema, and add its problems.

        Malformed values are left out, so that checks of the others can run; None if the rest is not
        enough.
        """
        values = self.known(schema, also)
        told: set[str] = set()
        for _ in range(2):
            try:
                found: S = read(values, schema)
            except TableError as error:
                for each in error.mistakes:
                    key = str(each.path[0]) if each.path else ""
                    if key not in told:  # a key that was left out is not missing
                        self.problem(each.place, each.what)
                    values.pop(key, None)
                told |= {str(each.path[0]) for each in error.mistakes if each.path}
            else:
                return found
        return None
