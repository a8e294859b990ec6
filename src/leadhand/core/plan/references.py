"""References: how a step uses a parameter of the plan or the result of an earlier step.

    ${{ params.version }}              a parameter of the plan
    ${{ params.target.hosts[0] }}      a place inside it
    ${{ steps.build.data.image }}      a place in the data another step reported
    ${{ steps.build.data["a key"] }}   a key that is no plain word
    ${{ run.steps.build.data.image }}  in a rollback plan: a result of the run that it takes back

They are typed substitutions, not text pasting:

1. A string that is exactly one reference becomes the value itself, of any type.
2. Inside a longer string only text, numbers and booleans are allowed; they become their JSON
   spelling. A list, an object or null there is an error, never a surprise in an argument.
3. Substituted values are never scanned again: data from outside that looks like a reference stays
   text. (So a result cannot pull another result into a command.)
4. `$${{` is a literal `${{`.

A parameter of type secret is not a value here: its reference becomes a `Secret`, which only the
engine replaces, just before the worker is called. Hashes cover the placeholder.

A result too large for the log is stored separately. Its reference becomes an `Artifact`, which the
engine replaces by the data. It is a type of its own, not a dict with a special key: a worker that
returns `{"$artifact": "sha256:…"}` cannot obtain the data of another step.

`resolve` runs at every start, so a value without references costs one search for "${{".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leadhand.core.plan.model import Json


MARK = "${{"
DEPTH_MAX = 100
TEXT_LENGTH_MAX = 1000
"""The longest expression between the braces."""

_OPENING = re.compile(r"\$?\$\{\{")
_STEP = re.compile(r"(run\.)?steps\.([A-Za-z0-9_][A-Za-z0-9_.-]{0,99}?)\.data(?=[.\[]|$)")
_PARAM = re.compile(r"()params\.([A-Za-z_][A-Za-z0-9_-]{0,99})(?=[.\[]|$)")
_PART = re.compile(r"""\.([A-Za-z0-9_$@-]+)|\[(\d{1,9})\]|\["([^"\\]*)"\]|\['([^'\\]*)'\]""")


class Ref(NamedTuple):
    """One reference, or a malformed one (`problem` says what is wrong with it)."""

    place: str
    kind: str
    """"steps", "params" or "run" (a step of the run being rolled back); empty when malformed."""
    name: str
    path: tuple[str | int, ...]
    text: str
    """As written, braces included."""
    whole: bool
    """Whether the reference is the entire string, so that the value keeps its type."""
    problem: str = ""

    @property
    def root(self) -> str:
        """The start of the path as written: `steps.build.data`, `params.version`."""
        if self.kind == "params":
            return f"params.{self.name}"
        return f"{'run.' if self.kind == 'run' else ''}steps.{self.name}.data"


class Artifact(msgspec.Struct, frozen=True):
    """A value stored separately: the artifact with the root value, and the path from there."""

    ref: str = msgspec.field(name="$artifact")
    path: tuple[str | int, ...] = ()


class Secret(msgspec.Struct, frozen=True):
    """The placeholder of a secret parameter: its name and its source.

    Only the engine has the value.
    """

    name: str = msgspec.field(name="$secret")
    source: str = ""


class SecretText(msgspec.Struct, frozen=True):
    """A text that contains secrets."""

    parts: tuple[str | Secret, ...] = msgspec.field(name="$secret_text")


class Unresolved(LookupError):
    """A reference without a value. `message` says what is missing and what is present."""

    def __init__(self, place: str, ref: Ref, message: str) -> None:
        self.place = place
        self.ref = ref
        self.message = message
        super().__init__(f"{place}: {message}" if place else message)


def find(value: Json, place: str = "") -> list[Ref]:
    """Return every reference in a value, malformed ones too, in document order."""
    found: list[Ref] = []
    stack: list[tuple[str, Json, int]] = [(place, value, 0)]
    while stack:
        where, item, depth = stack.pop()
        kind = type(item)
        if depth >= DEPTH_MAX:
            found.append(_too_deep(where))
        elif kind is str:
            if MARK in item:
                found += (
                    _placed(piece, where) for piece in pieces(item) if not isinstance(piece, str)
                )
        elif kind is dict:
            for key in item:
                if isinstance(key, str) and MARK in key:
                    problem = "a reference cannot stand in a key, only in a value"
                    found.append(Ref(where, "", "", (), key, whole=False, problem=problem))
            stack += [(join(where, key), item[key], depth + 1) for key in reversed(item)]
        elif kind is list:
            stack += [(f"{where}[{i}]", item[i], depth + 1) for i in range(len(item) - 1, -1, -1)]
    return found


def resolve(value: Json, lookup: Callable[[Ref], Json]) -> Json:
    """Return the value with every reference replaced.

    `lookup` returns the root of a reference (a step's whole data, a parameter's whole value, or an
    `Artifact` for data stored separately) and raises `LookupError`, with a message, if there is
    none; this function follows the path. Parts without references are not copied.
    """
    return _resolve(value, lookup, 0)


class PartialValue(NamedTuple):
    """A value with references replaced as far as their values are known."""

    value: Json
    resolved: dict[str, Json]
    """The new value of each place that held a reference."""
    later: list[str]
    """Places that hold a reference whose value is not known yet."""


def resolve_known(value: Json, lookup: Callable[[Ref], Json], place: str = "") -> PartialValue:
    """Return the value with every known reference replaced, for people to read.

    A reference without a value stays as written, and so does a reference to a large result. A
    secret becomes `[secret:NAME]`.
    """
    resolved: dict[str, Json] = {}
    later: list[str] = []

    def walk(item: Json, where: str, depth: int) -> Json:
        if type(item) is str and MARK in item:
            shown, open_ = _shown_text(item, lookup)
            if open_:
                later.append(where)
            if shown != item or not open_:
                resolved[where] = shown
            return shown
        if depth < DEPTH_MAX and type(item) is dict:
            return {key: walk(each, join(where, key), depth + 1) for key, each in item.items()}
        if depth < DEPTH_MAX and type(item) is list:
            return [walk(each, f"{where}[{i}]", depth + 1) for i, each in enumerate(item)]
        return item

    return PartialValue(walk(value, place, 0), resolved, later)


def _shown_text(text: str, lookup: Callable[[Ref], Json]) -> tuple[Json, bool]:
    """Return a text with the known values put in, and whether a reference is left open."""
    parts = pieces(text)
    if len(parts) == 1 and isinstance(parts[0], Ref):
        return _shown_ref(parts[0], lookup, whole=True)
    found = [
        (part, False) if isinstance(part, str) else _shown_ref(part, lookup, whole=False)
        for part in parts
    ]
    return "".join(str(shown) for shown, _ in found), any(open_ for _, open_ in found)


def _shown_ref(ref: Ref, lookup: Callable[[Ref], Json], *, whole: bool) -> tuple[Json, bool]:
    try:
        value = _value(ref, lookup) if whole else _as_text(ref, lookup)
    except Unresolved:
        return ref.text, True
    if type(value) is Secret:
        return f"[secret:{value.name}]", False
    return (ref.text, True) if type(value) is Artifact else (value, False)


def follow(root: Json, ref: Ref) -> Json:
    """Follow the path of `ref` from `root`. Raise `Unresolved`, which names the keys present."""
    if type(root) is Artifact:
        return Artifact(root.ref, root.path + ref.path)
    if type(root) is Secret and ref.path:
        raise Unresolved(ref.place, ref, f"{ref.text} has no value: a secret has no parts")
    here, value = ref.root, root
    for part in ref.path:
        if isinstance(part, int):
            if not isinstance(value, list):
                raise _missing(ref, here, value, f"has no item [{part}]")
            if part >= len(value):
                raise _missing(ref, here, value, f"has no item [{part}]")
            value = value[part]
            here = f"{here}[{part}]"
        else:
            if not isinstance(value, dict) or part not in value:
                raise _missing(ref, here, value, f"has no key {part!r}")
            value = value[part]
            here = join(here, part)
    return value


def join(place: str, key: object) -> str:
    """Return the place of a key: `a.b`, or `a["odd key"]` where a dot would mislead."""
    text = str(key)
    if not text.replace("-", "_").replace("$", "_").isidentifier():
        return f'{place}["{text[:60]}"]'
    return f"{place}.{text}" if place else text


def describe(value: Json) -> str:
    """Describe a value in a few words: "has keys: x, y", "is a list of 3"."""
    match value:
        case dict():
            keys = ", ".join(str(key)[:40] for key in list(value)[:12])
            return (
                f"has keys: {keys}{', …' if len(value) > 12 else ''}"
                if value
                else "is an empty object"
            )
        case list():
            return f"is a list of {len(value)}"
        case None:
            return "is null"
        case bool():
            return "is a boolean"
        case str():
            return "is a string"
        case int() | float():
            return "is a number"
        case Artifact():
            return "is stored apart as an artifact"
        case Secret() | SecretText():
            return "is a secret"
        case _:
            return f"is a {type(value).__name__}"


def _missing(ref: Ref, here: str, value: Json, what: str) -> Unresolved:
    return Unresolved(
        ref.place, ref, f"{ref.text} has no value: {here} {what}; it {describe(value)}"
    )


def _resolve(value: Json, lookup: Callable[[Ref], Json], depth: int) -> Json:
    kind = type(value)
    if kind is str:
        return _resolve_text(value, lookup) if MARK in value else value
    if kind is dict:
        return _resolve_items(value, value.items(), lookup, depth)
    if kind is list:
        return _resolve_items(value, enumerate(value), lookup, depth)
    return value


def _resolve_items(value: Any, items: Any, lookup: Callable[[Ref], Json], depth: int) -> Json:
    """Resolve the items of a container; copy only after a change, build places only on errors."""
    if depth >= DEPTH_MAX:
        raise Unresolved("", _too_deep(""), f"the value is nested more than {DEPTH_MAX} deep")
    copy = None
    key: Any = None
    try:
        for key, item in items:
            kind = type(item)
            if kind is not str and kind is not dict and kind is not list:
                continue
            new = _resolve(item, lookup, depth + 1)
            if new is not item:
                if copy is None:
                    copy = value.copy()
                copy[key] = new
    except Unresolved as error:
        step = f"[{key}]" if isinstance(key, int) else join("", key)
        glue = "" if not error.place or error.place.startswith("[") else "."
        raise Unresolved(f"{step}{glue}{error.place}", error.ref, error.message) from None
    return value if copy is None else copy


def _resolve_text(text: str, lookup: Callable[[Ref], Json]) -> Json:
    parts = pieces(text)
    if len(parts) == 1 and isinstance(parts[0], Ref):
        return _value(parts[0], lookup)
    texts = [part if isinstance(part, str) else _as_text(part, lookup) for part in parts]
    if any(type(text) is Secret for text in texts):
        return SecretText(tuple(texts))
    return "".join(texts)  # type: ignore[arg-type]  # all are texts now


def _value(ref: Ref, lookup: Callable[[Ref], Json]) -> Json:
    if ref.problem:
        raise Unresolved("", ref, f"{ref.text} is not a reference: {ref.problem}")
    try:
        root = lookup(ref)
    except Unresolved:
        raise
    except LookupError as error:
        reason = error.args[0] if error.args else "nothing of that name is known"
        raise Unresolved("", ref, f"{ref.text} has no value: {reason}") from None
    return follow(root, ref)


def _as_text(ref: Ref, lookup: Callable[[Ref], Json]) -> str | Secret:
    value = _value(ref, lookup)
    if isinstance(value, (str, Secret)):
        return value
    if isinstance(value, (bool, int, float)):
        return msgspec.json.encode(value).decode()
    rule = "inside a text only a string, a number or a boolean can stand"
    raise Unresolved("", ref, f"{ref.text} {describe(value)}; {rule}")


def _too_deep(place: str) -> Ref:
    return Ref(
        place,
        "",
        "",
        (),
        "…",
        whole=False,
        problem=f"the value is nested more than {DEPTH_MAX} deep",
    )


def _placed(ref: Ref, place: str) -> Ref:
    return ref._replace(place=place)


@lru_cache(maxsize=4096)
def pieces(text: str) -> tuple[str | Ref, ...]:
    """Split a string into plain text and references, with escapes undone."""
    found = list(_cut(text))
    if len(found) == 1 and isinstance(found[0], Ref):
        return (found[0]._replace(whole=True),)
    return tuple(found)


def _cut(text: str) -> Iterator[str | Ref]:
    position = 0
    while opening := _OPENING.search(text, position):
        if opening.start() > position:
            yield text[position : opening.start()]
        if opening.group() == "$" + MARK:
            yield MARK
            position = opening.end()
            continue
        end = text.find("}}", opening.end())
        if end < 0:
            problem = 'there is no "}}" after it'
            yield Ref("", "", "", (), text[opening.start() :][:80], whole=False, problem=problem)
            return
        yield _parse(text[opening.start() : end + 2])
        position = end + 2
    if position < len(text):
        yield text[position:]


def _parse(text: str) -> Ref:
    """Parse one reference, braces included. A problem is stored in it, never raised."""
    inner = text[len(MARK) : -2].strip()
    if len(inner) > TEXT_LENGTH_MAX:
        return Ref("", "", "", (), text[:80] + "…", whole=False, problem="it is too long")
    step = _STEP.match(inner)
    head = step or _PARAM.match(inner)
    if head is None:
        return Ref("", "", "", (), text, whole=False, problem=_advice(inner))
    path: list[str | int] = []
    position = head.end()
    while position < len(inner):
        part = _PART.match(inner, position)
        if part is None:
            problem = (
                f'"{inner[position:][:40]}" is not a way into data; write .key, [0] or ["a key"]'
            )
            return Ref("", "", "", (), text, whole=False, problem=problem)
        word, index, double, single = part.groups()
        path.append(
            int(index)
            if index is not None
            else next(k for k in (word, double, single) if k is not None)
        )
        position = part.end()
    kind = "params" if step is None else "run" if step.group(1) else "steps"
    return Ref("", kind, head.group(2), tuple(path), text, whole=False)


def _advice(inner: str) -> str:
    if inner.startswith("run."):
        return "after run. comes a step of the run, as in run.steps.backup.data.file"
    if inner.startswith("steps."):
        return "after a step's id comes .data, as in steps.build.data.image"
    if inner.startswith("params."):
        return "after params. comes the name of a parameter"
    return "write steps.ID.data.path or params.NAME"


def load_apart(
    value: Json, load: Callable[[Artifact], Json], reveal: Callable[[Secret], str]
) -> Json:
    """Return the value with separately kept parts put in: large results and secrets."""
    if type(value) is Secret:
        return reveal(value)
    if type(value) is SecretText:
        return "".join(part if isinstance(part, str) else reveal(part) for part in value.parts)
    if type(value) is Artifact:
        text = f"{value.ref[:19]}… (a large result)"
        ref = Ref("", "steps", value.ref[:19], value.path, text, whole=True)
        return follow(load(value), ref)
    if type(value) is dict:
        return {key: load_apart(item, load, reveal) for key, item in value.items()}
    if type(value) is list:
        return [load_apart(item, load, reveal) for item in value]
    return value
