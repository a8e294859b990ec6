"""`leadhand show RUN STEP`: one step, with what its worker got, each attempt and what it gave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leadhand.app.step_graph import step_document
from leadhand.cli.options import reading
from leadhand.cli.text import clean, clean_lines
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings

VALUE_CHARS = 2000


def show_step(console: Console, settings: Settings, run: str, name: str) -> int:
    """Print one step of a run; UsageError when the run has no such step."""
    with reading(settings) as reader:
        state = reader.state(reader.resolve(run))
        step = state.steps.get(name)
        if step is None:
            known = ", ".join(list(state.steps)[:12]) or "none yet"
            raise UsageError(f"run {state.run} has no step {name!r}. Its steps: {known}")
        doc = step_document(reader, state, step)
    if console.json:
        console.document(doc)
        return 0
    _print(console, doc)
    return 0


def _print(console: Console, doc: Doc) -> None:
    what = f"{doc['worker']} {doc['action']}".strip()
    console.out(f"{clean(doc['id'])}: {clean(what)}, {doc['status']}")
    if doc["superseded_by"]:
        console.out(f"replaced by {clean(doc['superseded_by'])}")
    if doc["reason"]:
        console.out(f"because    {clean(doc['reason'], 1000)}")
    planned = doc["planned"].get("parameters") or {}
    for name, value in (planned if doc["inputs"] is None else doc["inputs"]).items():
        console.out(f"input      {clean(name)} = {_value(value)}")
        if doc["inputs"] is not None and planned.get(name) != value:
            console.out(f"             from {_value(planned.get(name))}")
    if doc["inputs"] is None and planned:
        console.out("           (as planned: it has not started)")
    for made in doc["attempts_made"]:
        failure = made["failure"]
        why = f": {failure['class']}, {failure['message']}" if failure else ""
        console.out(
            f"attempt {made['attempt']}  {made['worker']}, {made['status']}{clean(why, 500)}"
        )
    if doc["data"] is not None:
        console.out(f"result     {_value(doc['data'])}")
    if doc["output"]:
        console.out("output")
        for line in clean_lines(doc["output"]).rstrip("\n").split("\n"):
            console.out(f"  {line}")


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clean(text, VALUE_CHARS)
