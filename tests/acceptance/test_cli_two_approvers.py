"""The field report's second attack, at the keyboard: where the rule needs two, every way does."""

import re

import pytest

pytest.importorskip("cryptography")

WORKERS = """
from pathlib import Path

from leadhand import worker


@worker(name="ship", risk="high")
async def ship() -> str:
    Path("done.txt").write_text("{what}")
    return "{what}"
"""


FILES = {"workers.py": WORKERS.replace("{what}", "v1")}


@pytest.fixture
def folder(folder):
    table = []
    for name in ("ann", "bob"):
        told = folder.run("audit-key", f"{name}.key")
        key = re.search(r"ed25519:[A-Za-z0-9+/]{43}=", told.out + told.err)
        table.append(f'{name} = "{key.group()}"')
    parts = ["[project]", 'workers = ["workers.py"]', "[review]"]
    parts += ['rules = [{risk = "high", then = "two"}]', "[approvers]", *table]
    folder.write("leadhand.toml", "\n".join(parts) + "\n")
    return folder


def as_person(folder, name, *words):
    key = str(folder.path / f"{name}.key")
    return folder.run(*words, LEADHAND_ACTOR=name, LEADHAND_REVIEW__KEY=key)


def test_a_changed_worker_needs_both_approvers_again(folder):
    """Ann alone cannot let it go: not twice, not by the inbox, not by redo or a pause lifted."""
    folder.plan({"id": "ship", "worker": "ship"})
    assert as_person(folder, "ann", "run", "plan.json").code == 5
    run = folder.latest()["run"]
    for name in ("ann", "bob"):
        assert as_person(folder, name, "review", run, "approve").code == 0
    folder.write("workers.py", WORKERS.replace("{what}", "EVIL"))
    held = as_person(folder, "ann", "resume", run)
    assert (held.code, "2 different people must release it" in held.err) == (5, True), held
    first = as_person(folder, "ann", "release", run, "ship")
    assert (first.code, "1 more person must" in first.err) == (0, True), first
    again = as_person(folder, "ann", "release", run, "ship")
    assert (again.code, "ann has released it already" in again.err) == (7, True), again
    assert as_person(folder, "ann", "answer", run, "release").code == 7
    assert folder.run("answer", run, "release", LEADHAND_ACTOR="bob").code == 4, "not signed"
    assert as_person(folder, "ann", "resume", run, "--yes").code == 5
    assert not (folder.path / "done.txt").exists()
    assert as_person(folder, "bob", "answer", run, "release").code == 0
    assert as_person(folder, "bob", "resume", run).code == 0
    assert (folder.path / "done.txt").read_text() == "EVIL"
    assert folder.run("verify", run).code == 0


def test_the_starter_is_no_second_approver(folder):
    """Ann may be the first of the two who approve her run, and not the second."""
    folder.plan({"id": "ship", "worker": "ship"})
    assert as_person(folder, "ann", "run", "plan.json").code == 5
    run = folder.latest()["run"]
    assert as_person(folder, "bob", "review", run, "approve").code == 0
    refused = as_person(folder, "ann", "review", run, "approve")
    assert (refused.code, "started the run" in refused.err) == (7, True), refused
    assert as_person(folder, "ann", "answer", run, "approve").code == 7
    assert not (folder.path / "done.txt").exists()
