"""A project whose steps fail, wait and ask as a test wants: by files in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORKERS = """
import time
from pathlib import Path

from leadhand import Context, worker


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


TWINS = """

@worker(name="courier", action="deliver", idempotent=True)
def courier(to: str, context: Context) -> str:
    if context.attempt < 3:
        raise ConnectionError(f"{to} does not answer")
    raise PermissionError(f"{to} sends the courier away")


@worker(name="post", action="deliver")
def post(to: str) -> str:
    return f"{to} has it"
"""


def project(folder: Path, more: str = "") -> Path:
    """Make a project folder whose `workers.py` ends with the source text `more`."""
    folder.mkdir()
    (folder / "workers.py").write_text(WORKERS + TWINS + more)
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


def delivering() -> dict[str, Any]:
    """A step whose worker tries three times and is sent away; another offers the same."""
    step = {"id": "deliver", "worker": "courier", "action": "deliver", "parameters": {"to": "ann"}}
    retry = {"attempts": 3, "backoff": 0.4}
    return {"goal": "Deliver it", "steps": [{**step, "retry": retry}]}


def patient(steps: int) -> dict[str, Any]:
    """Steps side by side that end once the file `go` is there, and one after all of them."""
    waits = [
        {"id": f"wait-{number}", "worker": "wait", "parameters": {"number": number}}
        for number in range(steps)
    ]
    last = {"id": "last", "worker": "prepare", "depends_on": [step["id"] for step in waits]}
    return {"plan_id": "patient", "goal": "Wait, then go on", "steps": [*waits, last]}
