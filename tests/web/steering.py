"""A project whose steps fail, wait and ask as a test wants: by files in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORKERS = """
import time
from pathlib import Path

from leadhand import worker


@worker(idempotent=True)
def prepare(what: str = "all") -> str:
    print(f"preparing {what}")
    return what


@worker(idempotent=True)
def publish(to: str) -> str:
    print(f"connecting to {to}")
    if not Path("fixed").exists():
        raise PermissionError(f"{to} refuses the key")
    return f"published to {to}"


@worker(idempotent=True)
def wait(number: int) -> int:
    while not Path("go").exists():
        time.sleep(0.05)
    time.sleep(0.2)
    return number
"""


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "workers.py").write_text(WORKERS)
    (folder / "leadhand.toml").write_text('[project]\nworkers = ["workers.py"]\n')
    return folder


def publishing(failure_action: str) -> dict[str, Any]:
    """Two steps, of which the second is refused until the file `fixed` is there."""
    first = {"id": "prepare", "worker": "prepare", "parameters": {"what": "pages"}}
    second = {
        "id": "publish",
        "worker": "publish",
        "parameters": {"to": "example"},
        "depends_on": ["prepare"],
        "failure_action": failure_action,
        "retry": 1,
    }
    return {"plan_id": "publish", "goal": "Publish the pages", "steps": [first, second]}


def patient(steps: int) -> dict[str, Any]:
    """Steps side by side that end once the file `go` is there, and one after all of them."""
    waits = [
        {"id": f"wait-{number}", "worker": "wait", "parameters": {"number": number}}
        for number in range(steps)
    ]
    last = {"id": "last", "worker": "prepare", "depends_on": [step["id"] for step in waits]}
    return {"plan_id": "patient", "goal": "Wait, then go on", "steps": [*waits, last]}
