"""The shared part of `lint` and `proposal`: form first, then the graph.

A malformed field is reported once and removed before the later checks, so they neither fail on it
nor report it again.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from leadhand.core.jsonschema import SchemaProblem, follow
from leadhand.core.lint.findings import FINDINGS_MAX
from leadhand.core.lint.step import KnownActions
from leadhand.core.plan import graph
from leadhand.core.plan.schema import STEP_SCHEMA
from leadhand.core.wording import shown, type_with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.lint.findings import Findings
    from leadhand.core.plan.model import Doc, Json


_FIELD = re.compile(r"[^.\[]+")
_RULE_OF = {"missing": "field-missing", "unknown": "field-unknown"}


def well_formed(
    steps: list[Any], prefix: str, out: Findings, plain: KnownActions | None = None
) -> list[tuple[int, Doc]]:
    """Return the steps that are objects, each without its malformed fields."""
    found = []
    plain = plain or KnownActions()
    for i, step in enumerate(steps):
        if plain.form(step):
            plain.formed.add(i)
            found.append((i, step))
            continue
        if out.full:
            break
        place = join(prefix, f"steps[{i}]")
        wrong = wrong_fields(step, STEP_SCHEMA, out)
        if isinstance(step, dict):
            found.append((i, clean(step, wrong, place, out) if wrong else step))
        else:
            out.add("field-wrong", place, f"a step is an object, not {type_with_article(step)}")
    return found


UNKNOWN_FEW = 50
"""Up to this number, each unknown name is compared with the known ones."""


def wrong_fields(doc: Json, schema: Doc, out: Findings) -> list[SchemaProblem]:
    """Return the problems of a document, in each of its fields.

    For a very large value only the first problem is reported; the rest is then checked again
    without that field, since later checks rely on the form of all fields. Many unknown names are
    removed first: one pass per name would be quadratic.
    """
    many = _unknown_names(doc, schema)
    rest = doc
    if many and isinstance(doc, dict):
        rest = {key: value for key, value in doc.items() if key not in many}
    found = wrong = out.problems(rest, schema)
    found = found + [
        SchemaProblem(name, f"{shown(name)} is not a known name here", "unknown")
        for name in islice(many, FINDINGS_MAX + 1)
    ]
    while wrong and isinstance(rest, dict):
        named_ = {field.group() for each in wrong if (field := _FIELD.match(each.path))}
        if named_.isdisjoint(rest):
            break
        rest = {key: value for key, value in rest.items() if key not in named_}
        if id(schema) not in _OPTIONAL:
            written = follow(schema, schema.get("$ref", "#")) or schema
            defined = {"$defs": schema.get("$defs", {})}
            _OPTIONAL[id(schema)] = schema, {**written, **defined, "required": []}
        wrong = out.problems(rest, _OPTIONAL[id(schema)][1])
        found = found + wrong
    return found


def _unknown_names(doc: Json, schema: Doc) -> dict[str, None]:
    """Return the names that a closed schema does not know; empty if they are few."""
    written = follow(schema, schema.get("$ref", "#")) or schema
    known = written.get("properties", {})
    closed = written.get("additionalProperties") is False and "patternProperties" not in written
    if not closed or not isinstance(doc, dict) or len(doc) <= len(known) + UNKNOWN_FEW:
        return {}
    return {name: None for name in doc if name not in known}


_OPTIONAL: dict[int, tuple[Doc, Doc]] = {}
"""The schemas of plan and step with nothing required: a removed field is not a missing one."""


def clean(doc: Doc, wrong: list[SchemaProblem], place: str, out: Findings) -> Doc:
    """Report problems, and return the document without the malformed fields."""
    bad = set()
    for problem in wrong:
        field = _FIELD.match(problem.path)
        here = join(place, problem.path)
        rule = _RULE_OF.get(problem.kind, "field-wrong")
        if field is not None:
            bad.add(field.group())
            if problem.path == "risk_level" or problem.path.endswith(".risk_level"):
                rule = "risk-unknown"
        subject = (
            f"step {shown(doc['id'])}" if isinstance(doc.get("id"), str) else place or "the plan"
        )
        message = (
            f"{problem.path} {problem.message}" if problem.path else f"{subject} {problem.message}"
        )
        if problem.kind == "unknown":
            message = problem.message
        out.add(rule, here, message, problem.fix)
    found = {key: value for key, value in doc.items() if key not in bad}
    if isinstance(doc.get("id"), str):
        found["id"] = doc["id"]  # References to the odd id are not wrong as well.
    if "depends_on" in bad and isinstance(doc["depends_on"], list):
        found["depends_on"] = [entry for entry in doc["depends_on"] if _is_dependency(entry)]
    return found


def _is_dependency(entry: Json) -> bool:
    return isinstance(entry, str) or (
        isinstance(entry, dict) and isinstance(entry.get("step"), str)
    )


def by_id(steps: list[tuple[int, Doc]], prefix: str, out: Findings) -> dict[str, Doc]:
    """Return the steps by id; report duplicate ids."""
    found: dict[str, Doc] = {}
    first: dict[str, int] = {}
    for i, step in steps:
        ident = step.get("id")
        if ident is None:
            continue
        if ident in found:
            place = join(prefix, f"steps[{i}].id")
            message = f"the id {shown(ident)} is taken by steps[{first[ident]}]"
            out.add("id-duplicate", place, message, "Give each step an id of its own.")
        else:
            found[ident] = step
            first[ident] = i
    return found


def check_cycles(
    edges: Mapping[str, Collection[str]], steps: list[tuple[int, Doc]], prefix: str, out: Findings
) -> None:
    """Report each cycle once, at the first of its new steps."""
    cycles = graph.cycles(edges)
    index = {step.get("id"): i for i, step in reversed(steps)} if cycles else {}
    for cycle in cycles:
        # A cycle through the run is reported at the new step that closes it.
        first = next((name for name in cycle if name in index), cycle[0])
        at = cycle.index(first)
        names = cycle[at:] + cycle[:at]
        some = names if len(names) <= 12 else [*names[:6], "…", *names[-5:]]
        message = f"{' → '.join([*some, first])}: each waits for the next ({len(names)} steps)"
        place = join(prefix, f"steps[{index.get(first, 0)}].depends_on")
        out.add("cycle", place, message, "Take one of these dependencies out.")


def returns(
    catalog: Catalog | None, giver: Callable[[str], Doc | None]
) -> Callable[[str], Doc | None]:
    """Return a function from a step id to its declared result schema, if its worker is certain."""

    def returns(ident: str) -> Doc | None:
        step = giver(ident)
        if catalog is None or step is None or step.get("alternatives"):
            return None
        offer = catalog.offer(step.get("worker", ""), step.get("action", ""))
        return offer.returns if offer else None

    return returns


def join(prefix: str, path: str) -> str:
    """Join two parts of a place with a dot, leaving out empty parts."""
    return f"{prefix}.{path}" if prefix and path else prefix or path
