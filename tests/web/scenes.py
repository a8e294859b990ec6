"""Documents for the page: small ones as `leadhand … --json` prints them, and large ones by rule."""

from __future__ import annotations

from typing import Any

from tests.web.fake import page

Doc = dict[str, Any]
START = "2026-03-02T09:00:00.000000+00:00"


def at(second: float) -> str:
    return f"2026-03-02T09:{int(second) // 60:02}:{second % 60:09.6f}+00:00"


def node(ident: str, status: str = "succeeded", **more: Any) -> Doc:
    row: Doc = {"id": ident, "worker": ident.rstrip("0123456789-"), "action": "", "status": status}
    row |= {"attempts": 1, "started": None, "ended": None, "cost": 0.0, "reason": ""}
    return row | {"outlook": False} | more


def head(run: str, status: str, **more: Any) -> Doc:
    doc: Doc = {"run": run, "status": status, "goal": "Where do the bicycles run out?"}
    doc |= {"result": None, "cost": 7.6, "duration": 9.99, "reason": "", "host": 4242}
    doc |= {"started": START, "plan": {}, "params": {}, "revision": 3, "planner": "goal", "seq": 76}
    return doc | {"limits": {"budget": 20}, "rollback": None, "fault": None} | more


def row(of: Doc, place: int, before: list[str]) -> Doc:
    """A step as approved, and how its time was spent so far."""
    running = of["status"] == "running"
    kind = {"kind": "attempt", "attempt": 1, "worker": of["worker"]} if running else {}
    segments = [{"kind": "dependencies", "from": 0.0, "to": None} | kind]
    planned = {key: of[key] for key in ("id", "worker", "action", "status")}
    return planned | {"place": place, "depends_on": before, "segments": segments}


def rows_of(run: str, rows: list[Doc]) -> Doc:
    doc: Doc = {"run": run, "seq": 1, "approved": 1, "started": START, "end": None}
    return doc | {"total": len(rows), "plan": [], "rows": rows, "deviations": [], "critical": []}


def large(run: str, steps: int, *, width: int = 25) -> Doc:
    """A run of many steps: layers of `width`, each step after one or two of the layer before."""
    names = ("fetch", "clean", "measure", "join", "report")
    nodes, edges, rows = [], [], []
    for number in range(steps):
        layer = number // width
        ident = f"{names[layer % len(names)]}-{number}"
        status = "waiting" if number >= width else "running"
        nodes.append(node(ident, status, worker=names[layer % 5]))
        backs = (width, width + 1 + number % 7)[: 1 + (number % 3 == 0)]
        before = [nodes[number - back]["id"] for back in backs if back <= number]
        edges += [[each, ident] for each in before]
        rows.append(row(nodes[-1], number, before))
    return {
        f"/runs/{run}": head(run, "running", goal=f"Work through {steps:,} steps", duration=None),
        f"/runs/{run}/graph": {"nodes": nodes, "edges": edges, "revision": 1},
        f"/runs/{run}/rows": rows_of(run, rows),
        f"/runs/{run}/review": {"run": run, "waiting": False, "steps": []},
        f"/runs/{run}/ledger": page([]),
        f"/runs/{run}/revisions": page([]),
    }


def wide(run: str, steps: int) -> Doc:
    """A run of one step, many beside each other by two workers, and a last one."""
    middle = [
        node(f"{('fetch', 'read')[n % 2]}-{n}", worker=("fetch", "read")[n % 2])
        for n in range(steps)
    ]
    middle[7] |= {"status": "failed", "reason": "the source refused the connection"}
    first, last = node("plan", worker="planner"), node("report", "waiting", worker="report")
    ids = [each["id"] for each in middle]
    edges = [["plan", each] for each in ids] + [[each, "report"] for each in ids]
    nodes = [first, *middle, last]
    rows = [row(each, place, []) for place, each in enumerate(nodes)]
    found = large(run, 1) | {f"/runs/{run}": head(run, "running", duration=None)}
    found[f"/runs/{run}/graph"] = {"nodes": nodes, "edges": edges, "revision": 1}
    return found | {f"/runs/{run}/rows": rows_of(run, rows) | {"critical": ["plan", ids[0]]}}
