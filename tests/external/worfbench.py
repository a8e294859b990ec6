"""WorFBench as plan documents: gold workflows, each a graph of sentences.

A node becomes a step with the sentence as its description, for one worker that takes anything.
START and END are not tasks. An edge is a dependency.
"""

from __future__ import annotations

from typing import Any

from tests.external import data

Doc = dict[str, Any]


def plan(row: Doc) -> Doc:
    """One workflow as a plan document."""
    steps = {name: _step(name, text) for name, text in row["nodes"].items()}
    for source, target in row["edges"]:
        if source != "START" and target != "END":
            steps[target]["depends_on"].append(source)
    return {"goal": row["task"].replace("${{", "$${{"), "steps": list(steps.values())}


def _step(name: str, text: str) -> Doc:
    described = {"description": text.replace("${{", "$${{")}
    return {"id": name, "worker": "anyone", **described, "depends_on": []}


def gold() -> list[Doc]:
    """All workflows that are there."""
    files = sorted(data.folder("worfbench").glob("*.jsonl*"))
    return [plan(row) for path in files for row in data.rows(path)]
