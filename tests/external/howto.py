"""AsyncHow as plan documents: everyday tasks with durations and what must come before what."""

from __future__ import annotations

from typing import Any

from tests.external import data

Doc = dict[str, Any]


def plan(row: Doc) -> Doc:
    """One task as a plan document: its steps are numbered from 1."""
    steps = [
        {
            "id": str(i),
            "worker": "anyone",
            "description": text.replace("${{", "$${{"),
            "est": row["dur_s"][str(i)],
            "depends_on": [],
        }
        for i, text in enumerate(row["steps"], 1)
    ]
    for source, target in row["deps"]:
        if source in row["dur_s"] and target in row["dur_s"]:
            steps[int(target) - 1]["depends_on"].append(source)
    return {"goal": row["title"].replace("${{", "$${{"), "steps": steps}


def gold() -> list[Doc]:
    """All tasks that are there."""
    files = sorted(data.folder("asynchow").glob("*.json*"))
    return [plan(row) for path in files for row in data.load(path)]
