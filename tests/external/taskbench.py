"""TaskBench as catalogues and plan documents.

A registry lists tools. Where it says what they take and give (`input-type`, `output-type`), a
tool becomes a worker that takes a list of `inputs`, each of one of those media, and returns a
text of its own medium; where it names parameters, a worker that knows just these names is not
built, since recorded arguments are positional or freely named. Where it says neither, the
worker takes and gives anything.

A plan is a list of tasks, each a tool with arguments, and of links between tools. A task becomes
a step `node-N`, described by the sentence that belongs to it. An argument `<node-N>` is the
result of that step. A link feeds the result of its source to its target. It names tools, not
tasks: of several tasks with one tool the pair is taken that the arguments already speak of, else
one that goes forward. Nothing is repaired and nothing is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from tests.external import data

LABEL = re.compile(r"^\W*step \d+\W*", re.IGNORECASE)
NODE = re.compile(r"<node[-_](\d+)>")

Doc = dict[str, Any]


def catalog(registry: Doc) -> Catalog:
    """The tools of one domain as workers."""
    return Catalog(_worker(tool) for tool in registry["nodes"])


def _worker(tool: Doc) -> WorkerSpec:
    takes, gives = tool.get("input-type"), tool.get("output-type")
    parameters = returns = None
    if takes:
        inputs = {"type": "array", "items": {"anyOf": [_medium(each) for each in takes]}}
        parameters = {"type": "object", "properties": {"inputs": inputs}}
    if gives:
        returns = {"anyOf": [_medium(each) for each in gives]} if gives[1:] else _medium(gives[0])
    return WorkerSpec(name=tool["id"], offers={"": Offer(parameters=parameters, returns=returns)})


def _medium(word: str) -> Doc:
    """What a registry calls an image, as JSON Schema says it."""
    return {"contentMediaType": f"{word.lower()}/*"}


def plan(row: Doc) -> Doc:
    """One recorded or gold plan as a plan document."""
    tasks = [task if isinstance(task, dict) else {} for task in row["task_nodes"]]
    told = row["task_steps"] if len(row["task_steps"]) == len(tasks) else []
    steps = [_step(i, task) for i, task in enumerate(tasks)]
    for step, text in zip(steps, told, strict=False):
        step["description"] = _plain(LABEL.sub("", str(text)))
    names = [str(task.get("task", "")) for task in tasks]
    meant: set[tuple[int, int]] = set()
    for link in row["task_links"]:
        if isinstance(link, dict):
            _link(steps, names, link, meant)
    return {"goal": row["user_request"], "steps": steps}


def _step(number: int, task: Doc) -> Doc:
    arguments = task.get("arguments") or []
    inputs = [_value(each) for each in (arguments if isinstance(arguments, list) else [arguments])]
    name = str(task.get("task", ""))
    return {"id": f"node-{number}", "worker": name, "parameters": {"inputs": inputs}}


def _value(argument: Any) -> Any:
    value = argument.get("value") if isinstance(argument, dict) else argument
    if not isinstance(value, str):
        return value
    return NODE.sub(r"${{ steps.node-\1.data }}", _plain(value))


def _plain(text: str) -> str:
    """A text in which nothing is taken for a reference."""
    return text.replace("${{", "$${{")


def _link(steps: list[Doc], names: list[str], link: Doc, meant: set[tuple[int, int]]) -> None:
    source, target = str(link.get("source")), str(link.get("target"))
    targets = [i for i, name in enumerate(names) if name == target]
    if not targets:
        return  # Nobody is there to wait for it.
    sources = [i for i, name in enumerate(names) if name == source]
    if not sources:
        steps[targets[0]].setdefault("depends_on", []).append(source or "nothing")
        return
    pairs = [(a, b) for b in targets for a in sources if (a, b) not in meant] or [
        (sources[0], targets[0])
    ]
    said = [(a, b) for a, b in pairs if _result(a) in _inputs(steps[b])]
    forward = [(a, b) for a, b in pairs if a < b]
    one, other = (said or forward or pairs)[0]
    meant.add((one, other))
    if _result(one) not in _inputs(steps[other]):
        _inputs(steps[other]).append(_result(one))


def _inputs(step: Doc) -> list[Any]:
    return step["parameters"]["inputs"]


def _result(number: int) -> str:
    return f"${{{{ steps.node-{number}.data }}}}"


def recorded() -> dict[str, tuple[Catalog, list[Doc]]]:
    """Plans that models wrote, by the name of their file."""
    return _sets("pred_")


def gold() -> dict[str, tuple[Catalog, list[Doc]]]:
    """Plans that people approved."""
    return {name: found for name, found in _sets("").items() if name.endswith("_gold")}


def _sets(start: str) -> dict[str, tuple[Catalog, list[Doc]]]:
    found = {}
    for path in _files(start):
        name = path.name.partition(".")[0]
        domain = name.removeprefix("pred_").partition("_")[0]
        registries = sorted(path.parent.glob(f"{domain}_tool_desc.json*"))
        if registries:
            plans = [plan(row) for row in data.rows(path)]
            found[name] = (catalog(data.load(registries[0])), plans)
    return found


def _files(start: str) -> Iterator[Path]:
    yield from sorted(data.folder("taskbench").glob(f"{start}*.jsonl*"))
