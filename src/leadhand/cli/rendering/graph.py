"""A plan as a picture: text for terminals, Mermaid for documents, DOT for Graphviz. Pure.

The text picture is a list in topological order, each step indented below the latest step it waits
for; further dependencies are named at the end of the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leadhand.cli.rendering.text import clean
from leadhand.core.plan import graph
from leadhand.core.plan.model import Doc

LABEL_MAX = 60


def draw(
    steps: Sequence[Doc],
    form: str,
    statuses: Mapping[str, str] | None = None,
    edges: Mapping[str, Sequence[str]] | None = None,
    replaces: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Return the lines of a picture; `statuses` adds a word to each step.

    `edges` replaces the dependencies that the steps declare. `replaces` holds pairs of a superseded
    step and its successor.
    """
    edges = graph.edges(steps) if edges is None else edges
    by_id = {step["id"]: step for step in steps}
    labels = {ident: _label(step, (statuses or {}).get(ident, "")) for ident, step in by_id.items()}
    if form == "mermaid":
        return _mermaid(edges, labels, replaces)
    if form == "dot":
        return _dot(edges, labels, replaces)
    return _ascii(edges, labels, replaces)


def _label(step: Doc, status: str) -> str:
    what = " ".join(part for part in (step.get("worker", ""), step.get("action", "")) if part)
    text = f"{step['id']}: {what}" if what else step["id"]
    return clean(f"{text} [{status}]" if status else text, LABEL_MAX)


Edges = Mapping[str, Sequence[str]]
Pairs = Sequence[tuple[str, str]]


def _ascii(edges: Edges, labels: Mapping[str, str], replaces: Pairs) -> list[str]:
    instead: dict[str, list[str]] = {}
    for old, new in replaces:
        instead.setdefault(new, []).append(old)
    order = graph.order(edges)
    place = {ident: number for number, ident in enumerate(order)}
    below: dict[str | None, list[str]] = {}
    for ident in order:
        known = [name for name in edges[ident] if name in place]
        below.setdefault(max(known, key=place.__getitem__, default=None), []).append(ident)
    lines: list[str] = []
    # An explicit stack: a chain of 100,000 steps is an ordinary plan.
    stack = [(ident, "", "") for ident in reversed(below.get(None, []))]
    while stack:
        ident, lead, rest = stack.pop()
        children = below.get(ident, [])
        known = [name for name in edges[ident] if name in place]
        parent = max(known, key=place.__getitem__, default=None)
        others = [name for name in known if name != parent]
        also = f"  (and after {', '.join(others)})" if others else ""
        of = f"  (in place of {', '.join(instead[ident])})" if ident in instead else ""
        lines.append(f"{lead}{labels[ident]}{also}{of}")
        if len(children) == 1 and len(rest) >= 40:
            stack.append((children[0], f"{rest}", rest))  # deep chains stay readable
            continue
        for number, child in enumerate(reversed(children)):
            last = number == 0
            stack.append(
                (child, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")
            )
    return lines


def _mermaid(edges: Edges, labels: Mapping[str, str], replaces: Pairs) -> list[str]:
    names = {ident: f"s{number}" for number, ident in enumerate(edges)}
    lines = ["flowchart TD"]
    for ident, name in names.items():
        text = labels[ident].replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        lines.append(f'    {name}["{text}"]')
    lines += [
        f"    {names[other]} --> {names[ident]}"
        for ident, waits_for in edges.items()
        for other in waits_for
        if other in names
    ]
    lines += [f"    {names[old]} -. replaced by .-> {names[new]}" for old, new in replaces]
    return lines


def _dot(edges: Edges, labels: Mapping[str, str], replaces: Pairs) -> list[str]:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = ["digraph plan {", "    rankdir=TB; node [shape=box];"]
    lines += [f"    {quoted(ident)} [label={quoted(label)}];" for ident, label in labels.items()]
    lines += [
        f"    {quoted(other)} -> {quoted(ident)};"
        for ident, waits_for in edges.items()
        for other in waits_for
        if other in labels
    ]
    dashed = '[style=dashed, label="replaced by"]'
    lines += [f"    {quoted(old)} -> {quoted(new)} {dashed};" for old, new in replaces]
    return [*lines, "}"]
