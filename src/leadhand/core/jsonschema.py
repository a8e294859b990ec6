"""JSON Schema validation: every problem of a value, in the wording of Leadhand.

An adapter for jsonschema-rs, the only module that imports it (docs/decisions/0007). The library
decides; the messages are ours, so that a finding reads the same with every version.

- Drafts 4, 6, 7, 2019-09 and 2020-12, told by `$schema`; without one it is 2020-12.
- `format` is only a note in every draft. Requirements are written as `pattern` or as a check.
- Nothing is ever fetched. A schema with a dangling reference, with a pattern that cannot be matched
  in linear time (look-around, back-references), or with a malformed keyword judges nothing:
  `unusable` says why, and every value is a problem of kind "schema". Unsure is unmet.
- Work is bounded. Schemas and values have a maximum depth; a schema whose alternatives multiply
  beyond JUDGED_MAX is not applied; and a value too large to be explained gets its first problem
  instead of all, because the library copies the value into each of its errors.

Before a plan runs, some values are still unknown. An `UnknownValue` stands for a reference whose
value will come later, a `PartText` for a text with references inside. `possible` reports only
problems that any later value would have; once the values are known, `problems` judges them.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.plan import graph
from leadhand.core.wording import TYPE_WORDS, closest, kind_of, listed, shown, type_with_article

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jsonschema_rs import ValidationError, Validator

    from leadhand.core.plan.model import Json

Schema = dict[str, Any] | bool

DEPTH_MAX = 200
"""The maximum depth of a value or a schema. The codec allows data a third of it."""
SCHEMA_NODES_MAX = 50_000
PATTERN_BYTES_MAX = 1 << 20
"""The maximum size of one compiled pattern."""
PATTERNS_MAX = 500
JUDGED_MAX = 1_000_000
"""How often the parts of a schema may examine one place of a value."""
EXPLAINED_MAX = 1_000_000
"""The limit for reporting every problem: parts of a value times schema parts that examine one."""
FIRST_MAX = 1000
"""How often one place may be examined for the first problem to be reported."""
PARTS_MAX = 10_000
"""The number of parts of a value up to which every problem is reported."""
PROBLEMS_MAX = 1000
GUESSES_MAX = 20
COMPILED_MAX = 5000
REASON_CHARS_MAX = 200
TOO_DEEP = f"it is nested more than {DEPTH_MAX} deep"


class SchemaProblem(NamedTuple):
    """One problem of a value.

    `kind` is type, missing, unknown, value, size, depth, hole (the result of a step does not fit
    its use) or schema (the schema is unusable).
    """

    path: str
    message: str
    kind: str = "value"
    fix: str = ""


class UnknownValue:
    """A value that is not known yet; `schema` describes it as far as known."""

    __slots__ = ("result", "schema", "text")

    def __init__(self, text: str, schema: Schema | None = None, *, result: bool = False) -> None:
        self.text = text
        self.schema = schema
        self.result = result
        """Whether it is the result of a step."""

    def types(self) -> frozenset[str]:
        """Return the types it may have; empty if any type is possible."""
        declared = self.schema.get("type") if isinstance(self.schema, dict) else None
        return frozenset([declared] if isinstance(declared, str) else declared or ())


class PartText(str):
    """A text with references inside: certainly a string, with unknown content."""

    __slots__ = ()


# --- judging -----------------------------------------------------------------------------------


def problems(
    value: Json, schema: Schema, path: str = "", *, guesses: int = GUESSES_MAX
) -> list[SchemaProblem]:
    """Return every problem of a known value, or the first problem of a large one.

    `guesses` bounds how many misspelt names are compared with the known ones.
    """
    judge = compiled(schema)
    if judge.reason:
        return [_unjudged(path, judge.reason)]
    if _depth(value) > DEPTH_MAX:
        return [SchemaProblem(path, "is nested too deeply", "depth")]
    try:
        if judge.validator.is_valid(value):
            return []
    except ValueError as error:  # a type, a key or a character outside of JSON
        return [SchemaProblem(path, f"cannot be checked: {_short(str(error))}", "value")]
    return _Explanation(judge, value, path, guesses).problems() or [
        SchemaProblem(path, "is not what its schema asks for")
    ]


def possible(
    value: Json, schema: Schema, path: str = "", *, guesses: int = GUESSES_MAX
) -> list[SchemaProblem]:
    """Return the problems of a value with holes that remain for any later value."""
    judge = compiled(schema)
    if judge.reason:
        return [_unjudged(path, judge.reason)]
    if _depth(value) > DEPTH_MAX:
        return [SchemaProblem(path, "is nested too deeply", "depth")]
    holes: dict[tuple[str | int, ...], UnknownValue | PartText] = {}
    filled = _filled(value, (), holes)
    explanation = _Explanation(judge, filled, path, guesses, holes)
    found = explanation.media(schema)
    try:
        valid = judge.validator.is_valid(filled)
    except ValueError as error:
        return [SchemaProblem(path, f"cannot be checked: {_short(str(error))}", "value")]
    return found if valid else found + explanation.problems()


def unusable(schema: Any) -> str:
    """Return the reason why a schema is unusable, or an empty text."""
    return compiled(schema).reason


def _unjudged(path: str, reason: str) -> SchemaProblem:
    fix = "Mend the schema."
    return SchemaProblem(path, f"cannot be judged by its schema: {reason}", "schema", fix)


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= REASON_CHARS_MAX else f"{line[:REASON_CHARS_MAX]}…"


def _depth(value: Any) -> int:
    """Return the number of levels of a value, counted up to the limit; a cycle exceeds it."""
    level, depth = [value], 0
    while level and depth <= DEPTH_MAX:
        inner: list[Any] = []
        for each in level:
            some = each.values() if type(each) is dict else each if type(each) is list else ()
            inner += [one for one in some if type(one) is dict or type(one) is list]
        level, depth = inner, depth + 1
    return depth


def _parts(value: Any, limit: int) -> int:
    """Return the number of parts of a value, counted up to `limit`; long texts count for more."""
    parts, stack = 0, [value]
    while stack and parts <= limit:
        each = stack.pop()
        parts += 1
        if type(each) is dict:
            stack += each.values()
            parts += len(each)
        elif type(each) is list:
            stack += each
        elif type(each) is str:
            parts += len(each) >> 6
    return parts


# --- compiling ---------------------------------------------------------------------------------


class Compiled:
    """A compiled schema, or the reason why it is unusable."""

    __slots__ = ("levels", "parts", "reason", "schema", "validator")

    validator: Validator

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.levels: tuple[int, ...] = (1,)
        """By depth, how often a place is examined at most to explain it."""
        self.parts = 1
        self.reason = self._survey(schema) or self._compile(schema)

    def evaluations(self, value: Any) -> int:
        """Return how often one place of a value is examined at most."""
        if len(self.levels) == 1:
            return self.levels[0]
        return max(self.levels[: _depth(value)])

    def _survey(self, schema: Any) -> str:
        """Count the parts before the library recurses, and detect multiplying alternatives."""
        if not isinstance(schema, (dict, bool)):
            return f"a schema is an object, not {type_with_article(schema)}"
        if _depth(schema) > DEPTH_MAX:
            return TOO_DEEP
        self.parts, referring, patterns, stack = 0, False, 0, [schema]
        while stack:
            each = stack.pop()
            self.parts += 1
            if isinstance(each, dict):
                if not {str}.issuperset(map(type, each)):
                    return "it has a key that is no text"
                referring = referring or not _REFERENCES.isdisjoint(each)
                patterns += "pattern" in each
                named_ = each.get("patternProperties")
                patterns += len(named_) if isinstance(named_, dict) else 0
                stack += each.values()
            elif isinstance(each, list):
                stack += each
            if self.parts > SCHEMA_NODES_MAX:
                return f"it has more than {SCHEMA_NODES_MAX} parts"
        if patterns > PATTERNS_MAX:
            return f"it has more than {PATTERNS_MAX} patterns"
        if referring and isinstance(schema, dict):
            multiplied = _Multiplied(schema)
            if max(multiplied.levels(JUDGED_MAX, remembered=True)) > JUDGED_MAX:
                return "its alternatives multiply beyond what can be checked"
            self.levels = multiplied.levels(FIRST_MAX, remembered=False)
        else:  # No part applies twice to one place.
            self.levels = (min(self.parts, FIRST_MAX),)
        return ""

    def _compile(self, schema: Any) -> str:
        import jsonschema_rs  # takes 20 ms, and many commands validate nothing

        try:
            self.validator = jsonschema_rs.validator_for(
                schema,
                offline=True,
                validate_formats=False,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES_MAX),
            )
        except jsonschema_rs.ValidationError as error:
            return _malformed(error)
        except ValueError as error:
            return _short(str(error))
        return ""


_COMPILED: dict[int, Compiled] = {}
"""Compiled schemas by identity: schemas are constants, used at every start. An entry holds its
schema, so its identity cannot be reused."""


def compiled(schema: Any) -> Compiled:
    """Return the compiled schema, from the cache if present.

    A schema that is nested too deeply is not cached. Python 3.13 releases nested values by native
    recursion, up to 10,000 calls, and the thread that drops an entry may have a small stack.
    """
    found = _COMPILED.get(id(schema))
    if found is None or found.schema is not schema:
        found = Compiled(schema)
        if found.reason == TOO_DEEP:
            return found
        while len(_COMPILED) >= COMPILED_MAX:
            _COMPILED.pop(next(iter(_COMPILED)), None)
        _COMPILED[id(schema)] = found
    return found


_UNFETCHED = re.compile(r"Resource '([^']*)' is not present")
_DIALECT = re.compile(r"Unknown meta-schema: '([^']*)'")


def _malformed(error: ValidationError) -> str:
    """Explain in our wording why the library refused a schema."""
    where, what = list(error.instance_path), error.message
    if where and _is_pattern(where):
        pattern = where[-1] if where[-2:-1] == ["patternProperties"] else error.instance
        return (
            f"the pattern {shown(pattern)} cannot be used: it is malformed, or it asks for "
            "look-around, back-references or very long repeats, whose time has no bound"
        )
    if found := _UNFETCHED.search(what):
        return f"it refers to {_short(found[1])}, and no reference is fetched"
    if found := _DIALECT.search(what):
        return f"its $schema {shown(found[1])} is no draft that is known"
    if type(error.kind).__name__ == "Referencing":
        return f"a reference in it leads nowhere: {_short(what)}"
    place = _placed("", where)
    return f"{place or 'it'} is malformed"


def _is_pattern(where: list[str | int]) -> bool:
    inside = where[-2:-1]
    if inside == ["patternProperties"]:
        return True
    return where[-1] == "pattern" and inside not in (["properties"], ["$defs"], ["definitions"])


# --- how alternatives multiply -----------------------------------------------------------------

_HERE = ("not", "if", "then", "else")
_HERE_SOME = ("allOf", "anyOf", "oneOf")
_HERE_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_ANY_KEY = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")
_DEFINED = ("$defs", "definitions")


class _Multiplied:
    """How often a place of a value is examined, by depth: references can double it each time.

    Names are distinguished, so a tree with `left` and `right` counts once for each place. A
    recursive schema is judged once for each place, since the library caches; to explain it, every
    path counts.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = str(id(root))
        self.here: dict[str, list[str]] = {}
        self.inside: dict[str, Counter[str]] = {}
        targets, known = _targets(root), {self.root: root}
        stack = [self.root]
        while stack:
            at = stack.pop()
            if at in self.here:
                continue
            here = list(_applied_here(known[at], root, targets))
            inside = list(_applied_inside(known[at]))
            self.here[at] = [str(id(each)) for each in here]
            self.inside[at] = Counter(str(id(each)) for each in inside)
            known |= {str(id(each)): each for each in (*here, *inside)}
            stack += self.here[at]
            stack += self.inside[at]
        edges = {at: {*self.here[at], *self.inside[at]} for at in self.here}
        knots = graph.strong_components(edges)
        self.again = {at for knot in knots for at in knot if len(knot) > 1 or at in edges[at]}

    def levels(self, limit: int, *, remembered: bool) -> tuple[int, ...]:
        """Return the count for each depth, capped above `limit`; the last holds for all deeper."""
        once = self.again if remembered else set()
        applied = Counter({self.root: 1})
        levels: list[int] = []
        while len(levels) < DEPTH_MAX:
            here = self._closed(applied, limit, once)
            levels.append(here.total())
            inner: Counter[str] = Counter()
            for at, times in here.items():
                for each, count in self.inside[at].items():
                    inner[each] = 1 if each in once else inner[each] + times * count
            if here.total() > limit or not inner or inner == applied:
                break
            applied = inner
        return tuple(levels)

    def _closed(self, applied: Counter[str], limit: int, once: set[str]) -> Counter[str]:
        """Add all schemas that apply to the same value through these."""
        found: Counter[str] = Counter()
        front = applied
        while front and found.total() <= limit:
            found += front
            onward: Counter[str] = Counter()
            for at, times in front.items():
                for each in self.here[at]:
                    if each not in once:
                        onward[each] += times
                    elif each not in found:
                        onward[each] = 1
            front = onward
        return found


def _applied_here(
    schema: dict[str, Any], root: dict[str, Any], targets: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Return the schemas that apply to the same value."""
    found = [schema.get(word) for word in _HERE]
    for word in _HERE_SOME:
        found += _some(schema.get(word))
    for word in _HERE_NAMED:
        found += _some(schema.get(word))
    for word in _REFERENCES & schema.keys():
        name = schema[word]
        if isinstance(name, str):
            found.append(follow(root, name) or targets.get(name.rpartition("#")[2] or name))
    return (each for each in found if isinstance(each, dict))


def _applied_inside(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the schemas that apply to one inner value, each as often as possible at most."""
    alone = [*_some(schema.get("properties")), *_some(schema.get("prefixItems"))]
    found = [schema.get(word) for word in (*_ANY_KEY, *_ANY_ITEM)]
    if isinstance(schema.get("items"), list):
        alone += schema["items"]
    found += _some(schema.get("patternProperties"))
    found += {id(each): each for each in alone}.values()
    return (each for each in found if isinstance(each, dict))


def _some(schemas: Any) -> Iterable[Any]:
    """Return the schemas of a keyword that takes several, by name or in a list."""
    if isinstance(schemas, dict):
        return schemas.values()
    return schemas if isinstance(schemas, list) else ()


def _targets(root: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schemas named by an anchor or an id; the outermost of several."""
    found: dict[str, dict[str, Any]] = {}
    level: list[Any] = [root]
    while level:
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                for word in ("$anchor", "$dynamicAnchor", "$id", "id"):
                    name = each.get(word)
                    if isinstance(name, str):
                        found.setdefault(name, each)
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
    return found


def follow(root: Any, name: str) -> dict[str, Any] | None:
    """Return the schema that a JSON pointer of a document names, or None."""
    if name == "#":
        return root if isinstance(root, dict) else None
    if not name.startswith("#/"):
        return None
    here = root
    for part in name[2:].split("/"):
        word = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = here.get(word)
        elif isinstance(here, list) and word.isdecimal() and int(word) < len(here):
            here = here[int(word)]
        else:
            return None
    return here if isinstance(here, dict) else None


# --- explaining --------------------------------------------------------------------------------

_Path = tuple[str | int, ...]
_OF_VALUES = frozenset(
    {"Not", "Contains", "UniqueItems", "Constant", "Enum", "OneOfMultipleValid"}
    | {"UnevaluatedItems", "UnevaluatedProperties"}
)
"""Kinds of error that depend on the whole value; above a hole none of them is certain."""
_LIMITS = {
    "MinItems": ("must have at least {} items", "size"),
    "MaxItems": ("may have at most {} items", "size"),
    "MinLength": ("must have at least {} characters", "size"),
    "MaxLength": ("may have at most {} characters", "size"),
    "MinProperties": ("must have at least {} entries", "size"),
    "MaxProperties": ("may have at most {} entries", "size"),
    "Minimum": ("must be at least {}", "value"),
    "Maximum": ("must be at most {}", "value"),
    "ExclusiveMinimum": ("must be more than {}", "value"),
    "ExclusiveMaximum": ("must be less than {}", "value"),
}


class _Explanation:
    """The errors of one value, in our wording."""

    def __init__(
        self,
        judge: Compiled,
        value: Json,
        path: str,
        guesses: int,
        holes: dict[_Path, UnknownValue | PartText] | None = None,
    ) -> None:
        self.judge = judge
        self.value = value
        self.path = path
        self.guesses_left = guesses
        self.holes = holes or {}
        self.base = 0
        """The length of the path to the value: a property name is judged at the place of its
        object."""
        self.wanted: dict[SchemaProblem, list[str]] = {}
        """The types that a type problem expects."""

    def problems(self) -> list[SchemaProblem]:
        """Return all problems; for a large value the first, or only that there is one."""
        parts = _parts(self.value, PARTS_MAX + 1)
        evaluations = self.judge.evaluations(self.value)
        room = EXPLAINED_MAX // evaluations
        validator = self.judge.validator
        try:
            if evaluations > FIRST_MAX:
                errors = []
            elif parts <= min(PARTS_MAX, room):
                errors = list(islice(validator.iter_errors(self.value), PROBLEMS_MAX + 1))
            else:
                errors = _first(validator, self.value)
        except ValueError:
            errors = []
        found = [each for error in errors for each in self.told(error)]
        if not found and not self.holes:
            found = [SchemaProblem(self.path, "is not what its schema asks for")]
        return _settled(found)[: PROBLEMS_MAX + 1]

    def told(self, error: ValidationError) -> list[SchemaProblem]:
        """Translate one error; with holes, only if it is certain."""
        kind, at = type(error.kind).__name__, tuple(error.instance_path)
        if self.holes and not self._certain(kind, at, error):
            hole = self.holes.get(at)
            return (
                self._unfit(hole, error, at)
                if kind == "Type" and type(hole) is UnknownValue
                else []
            )
        place, value = _placed(self.path, at), self._at(at)
        match kind:
            case "Type":
                wanted = self._argument(error, "type") or list(error.kind.types)  # type: ignore[attr-defined]
                return [self._wrong_type(wanted, f"is {type_with_article(value)}", place, "type")]
            case "AnyOf" | "OneOfNotValid":
                return self._closest(error, place, value)
            case "Required":
                name = error.kind.property  # type: ignore[attr-defined]
                return [SchemaProblem(place, f'has no "{name}"', "missing", f'Add "{name}".')]
            case "AdditionalProperties" | "UnevaluatedProperties":
                return self._unknown(error, error.kind.unexpected, at, value)  # type: ignore[attr-defined]
            case "FalseSchema":
                if error.schema_path[-1:] == ["additionalProperties"] and isinstance(value, dict):
                    return self._unknown(error, list(value), at, value)
                return [SchemaProblem(place, "is not allowed here", "unknown")]
            case "Enum":
                options = error.kind.options  # type: ignore[attr-defined]
                choices = listed(shown(each) for each in options)
                words = f"must be one of {choices}, is {shown(value)}"
                return [SchemaProblem(place, words, "value", self._guess(value, options))]
            case "PropertyNames":
                return self._name(error, place)
            case _:
                return [self._simple(error, kind, place, value)]

    def _simple(self, error: ValidationError, kind: str, place: str, value: Json) -> SchemaProblem:
        told: Any = error.kind
        if kind in _LIMITS:
            words, of = _LIMITS[kind]
            found = f"has {len(value)}" if of == "size" else f"is {shown(value)}"
            return SchemaProblem(place, f"{words.format(told.limit)}, {found}", of)
        match kind:
            case "Constant":
                words = f"must be {shown(told.expected_value)}, is {shown(value)}"
            case "MultipleOf":
                words = f"must be a multiple of {told.multiple_of}, is {shown(value)}"
            case "Pattern":
                hint = self._argument(error, "patternErrorMessage")
                hint = hint if isinstance(hint, str) else f"must match {told.pattern}"
                words = f"{hint}, is {shown(value)}"
            case "UniqueItems":
                return _twice(place, value)
            case "OneOfMultipleValid":
                fitting = sum(not each for each in told.context)
                words = f"fits {fitting} of the forms it may have, and must fit exactly one"
            case "Not":
                words = f"is {shown(value)}, and must not be what `not` describes"
            case "Contains":
                words = self._contains(error)
            case "AdditionalItems" | "UnevaluatedItems":
                words = "has more items than it may have"
            case "ContentEncoding":
                words = f"must be in {told.content_encoding}"
            case "ContentMediaType":
                words = f"must be {told.content_media_type}"
            case _:
                words = "is not what its schema asks for"
        return SchemaProblem(place, words)

    def _contains(self, error: ValidationError) -> str:
        word = error.schema_path[-1] if error.schema_path else ""
        limit = self._argument(error, str(word))
        if word == "minContains":
            return f"must have at least {limit} items as `contains` describes"
        if word == "maxContains":
            return f"may have at most {limit} items as `contains` describes"
        return "has no item as `contains` describes"

    def _unknown(
        self, error: ValidationError, names: Iterable[str], at: _Path, value: Json
    ) -> list[SchemaProblem]:
        known = self._argument(error, "properties")
        known = known if isinstance(known, dict) else {}
        found = []
        for name in islice(names, PROBLEMS_MAX + 1):
            # A name already present was not meant.
            fix = self._guess(name, [each for each in known if each not in value])
            fix = fix or (f"Known: {listed(known, 40)}." if known else "")
            message = f"{shown(name)} is not a known name here"
            found.append(SchemaProblem(_placed(self.path, (*at, name)), message, "unknown", fix))
        return found

    def _name(self, error: ValidationError, place: str) -> list[SchemaProblem]:
        inner = error.kind.error  # type: ignore[attr-defined]
        name = inner.instance
        named_ = _Explanation(self.judge, name, "", self.guesses_left)
        named_.base = len(inner.instance_path)
        told = named_.told(inner)
        at = f"{place}.{name}" if place else str(name)
        return [SchemaProblem(at, f"the name {each.message}", each.kind, each.fix) for each in told]

    def _closest(self, error: ValidationError, place: str, value: Json) -> list[SchemaProblem]:
        """Return the problems of the branch that was probably meant."""
        branches = error.kind.context  # type: ignore[attr-defined]
        found = [_settled([each for one in some for each in self.told(one)]) for some in branches]
        if self.holes and not all(found):
            return []  # A branch without a certain problem may turn out right.
        found = [each for each in found if each]
        if not found:
            return [SchemaProblem(place, "is none of the forms it may have")]
        kinds = ("type", "hole")
        fitting = [
            each for each in found if not any(p.path == place and p.kind in kinds for p in each)
        ]
        if fitting:
            return min(
                fitting,
                key=lambda some: (
                    any(p.path == place and p.kind == "value" for p in some),
                    len(some),
                ),
            )
        return [self._either(found, place)]

    def _either(self, found: list[list[SchemaProblem]], place: str) -> SchemaProblem:
        """Return one problem for a value of none of the allowed types."""
        there = [each for some in found for each in some if each in self.wanted]
        there = [each for each in there if each.path == place]
        words = dict.fromkeys(word for each in there for word in self.wanted[each])
        first = there[0]
        tail = first.message[len(f"must be {' or '.join(self.wanted[first])}") :]
        return SchemaProblem(place, f"must be {' or '.join(words)}{tail}", first.kind)

    def _wrong_type(
        self, wanted: str | list[str], told: str, place: str, kind: str
    ) -> SchemaProblem:
        words = [wanted] if isinstance(wanted, str) else wanted
        words = [TYPE_WORDS.get(word, word) for word in words]
        problem = SchemaProblem(place, f"must be {' or '.join(words)}, {told}", kind)
        self.wanted[problem] = words
        return problem

    # Holes.

    def _certain(self, kind: str, at: _Path, error: ValidationError) -> bool:
        """Return whether an error remains for any value of the holes."""
        for cut in range(len(at) + 1):
            hole = self.holes.get(at[:cut])
            if hole is not None:
                text = type(hole) is PartText and cut == len(at)
                branches = kind in ("AnyOf", "OneOfNotValid") and cut == len(at)
                if not (branches or (text and kind == "Type")):
                    return False
        if kind in _OF_VALUES and self._holds_hole(at):
            return False
        return not any(self._holds_hole(at[:cut]) for cut in _conditions(error.evaluation_path))

    def _holds_hole(self, at: _Path) -> bool:
        return any(place[: len(at)] == at for place in self.holes)

    def _unfit(self, hole: Any, error: ValidationError, at: _Path) -> list[SchemaProblem]:
        """Report a hole whose types do not fit the expected type."""
        if any(self._holds_hole(at[:cut]) for cut in _conditions(error.evaluation_path)):
            return []
        wanted = self._argument(error, "type") or list(error.kind.types)  # type: ignore[attr-defined]
        words, given = [wanted] if isinstance(wanted, str) else list(wanted), hole.types()
        allowed = set(words)
        if "number" in allowed or ("integer" in allowed and "number" in given):
            allowed |= {"number", "integer"}
        if not given or given & allowed:
            return []
        told = " or ".join(TYPE_WORDS.get(word, word) for word in sorted(given))
        kind = "hole" if hole.result else "type"
        told = f"and {hole.text} gives {told}"
        return [self._wrong_type(words, told, _placed(self.path, at), kind)]

    def media(self, schema: Schema) -> list[SchemaProblem]:
        """Report holes whose media type does not fit their place; no validator judges that."""
        found = []
        for at, hole in self.holes.items():
            if not isinstance(hole, UnknownValue):
                continue
            declared = hole.schema
            given = declared.get("contentMediaType") if isinstance(declared, dict) else None
            if isinstance(given, str):
                wanted = _medium(_schema_at(schema, at), schema, given)
                if wanted:
                    message = f"must be {wanted}, and {hole.text} gives {given[:60]}"
                    kind = "hole" if hole.result else "type"
                    found.append(SchemaProblem(_placed(self.path, at), message, kind))
        return found

    # Places.

    def _at(self, at: Iterable[str | int]) -> Any:
        value: Any = self.value
        for part in islice(at, self.base, None):
            value = value[part]
        return value

    def _argument(self, error: ValidationError, word: str) -> Any:
        """Return the value of keyword `word` beside the failed keyword in the schema as written."""
        here: Any = self.judge.schema
        try:
            for part in error.schema_path[:-1]:
                here = here[part]
            return here.get(word)
        except (KeyError, IndexError, TypeError, AttributeError):
            return None  # in a schema with an id of its own

    def _guess(self, word: object, candidates: Iterable[Any]) -> str:
        """Return the probable intended spelling of a misspelt word."""
        self.guesses_left -= 1
        meant = closest(word, candidates) if self.guesses_left >= 0 else ""
        return f'Did you mean "{meant}"?' if meant else ""


def _first(validator: Validator, value: Json) -> list[ValidationError]:
    from jsonschema_rs import ValidationError

    try:
        validator.validate(value)
    except ValidationError as error:
        return [error]
    return []


def _settled(found: list[SchemaProblem]) -> list[SchemaProblem]:
    """Remove duplicates, and content problems of values that have the wrong type."""
    wrong = {each.path for each in found if each.kind in ("type", "hole")}
    return [
        each
        for each in dict.fromkeys(found)
        if each.kind in ("type", "hole") or each.path not in wrong
    ]


def _placed(path: str, at: Iterable[str | int]) -> str:
    for part in at:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _twice(place: str, value: list[Any]) -> SchemaProblem:
    """Report the first duplicate item, where comparing is cheap."""
    seen: list[tuple[str, Any]] = []
    for i, item in enumerate(value[:1000]):
        kind = kind_of(item)
        one = ("number" if kind == "integer" else kind, item)
        if one in seen:
            return SchemaProblem(f"{place}[{i}]", f"{shown(item)} stands twice in the list")
        seen.append(one)
    return SchemaProblem(place, "has an item that stands twice")


# --- holes -------------------------------------------------------------------------------------

_STAND_INS: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def _filled(value: Any, at: _Path, holes: dict[_Path, UnknownValue | PartText]) -> Any:
    """Return a copy with a stand-in for each hole, and record the holes by place."""
    if isinstance(value, dict):
        return {key: _filled(item, (*at, key), holes) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, (*at, i), holes) for i, item in enumerate(value)]
    if type(value) is UnknownValue:
        holes[at] = value
        return _STAND_INS.get(min(value.types(), default="null"))
    if type(value) is PartText:
        holes[at] = value
        return ""
    return value


def _conditions(path: list[str | int]) -> Iterator[int]:
    """Yield the depths of the conditions (`then`, `else`) an error depends on."""
    depth, i = 0, 0
    while i < len(path):
        word = path[i]
        i += 1
        if word in ("then", "else"):
            yield depth
        elif word in ("properties", "patternProperties", "prefixItems"):
            depth, i = depth + 1, i + 1
        elif word in ("items", *_ANY_ITEM, *_ANY_KEY):
            depth += 1
            i += i < len(path) and isinstance(path[i], int)
        elif word in (*_HERE_SOME, *_HERE_NAMED, *_DEFINED):
            i += 1


def _schema_at(root: Any, at: _Path) -> Any:
    """Return the schema written directly for a place, if any."""
    here = _target(root, root)
    for part in at:
        if not isinstance(here, dict):
            return None
        if isinstance(part, int):
            first = here.get("prefixItems", ())
            inner = first[part] if part < len(first) else here.get("items")
        else:
            inner = here.get("properties", {}).get(part, here.get("additionalProperties"))
        here = _target(root, inner)
    return here


def _target(root: Any, schema: Any) -> Any:
    for _ in range(8):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = follow(root, schema["$ref"])
    return None


def _medium(schema: Any, root: Any, given: str, depth: int = 0) -> str:
    """Return the accepted media types if `given` is not among them, or an empty text."""
    schema = _target(root, schema)
    if not isinstance(schema, dict) or depth > 8:
        return ""
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        found = [_medium(each, root, given, depth + 1) for each in branches]
        if all(found):
            return " or ".join(dict.fromkeys(found))
    wanted = schema.get("contentMediaType")
    return "" if not isinstance(wanted, str) or _same_medium(wanted, given) else wanted[:60]


def _same_medium(one: str, other: str) -> bool:
    """Return whether two media types can be the same; `image/*` is any image."""
    kinds = [text.lower().partition(";")[0].strip().split("/") for text in (one, other)]
    return all(a == b or "*" in (a, b) for a, b in zip(*kinds, strict=False))
