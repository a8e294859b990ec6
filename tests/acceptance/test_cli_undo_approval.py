"""An approval covers the workers that undo what it allows."""

import pytest

SETTINGS = """
[workers.put]
command = ["sh", "-c", "echo v3 > prod"]
risk = "high"
effects = ["prod"]

[workers.back]
command = ["sh", "-c", "echo {what} > prod"]
effects = ["prod"]
idempotent = true

[workers.check]
command = ["false"]
effects = []
idempotent = true
"""
CHECK = {"success_criteria": "data.exit_code == 0", "failure_action": "rollback"}


@pytest.fixture
def folder(folder):
    folder.write("leadhand.toml", SETTINGS.replace("{what}", "v2"))
    folder.plan(
        {"id": "put", "worker": "put", "undo": {"worker": "back"}},
        {"id": "check", "worker": "check", "depends_on": ["put"], **CHECK},
    )
    return folder


def live(folder):
    return (folder.path / "prod").read_text().strip()


def test_an_approval_of_a_plan_is_void_when_an_undo_has_changed(folder):
    assert folder.run("review", "plan.json", "approve", "-o", "a.json").code == 0
    folder.write("leadhand.toml", SETTINGS.replace("{what}", "HACKED"))
    refused = folder.run("apply", "plan.json", "--approval", "a.json")
    assert (refused.code, "back" in refused.err) == (7, True), refused
    assert not (folder.path / "prod").exists()


def test_a_rollback_with_the_approved_worker_needs_no_person(folder):
    assert folder.run("review", "plan.json", "approve", "-o", "a.json").code == 0
    done = folder.run("apply", "plan.json", "--approval", "a.json")
    assert (done.code, live(folder)) == (1, "v2"), done


def test_a_rollback_with_another_worker_waits_for_a_person(folder):
    """The worker is changed after the run has ended, and before it is rolled back."""
    folder.plan({"id": "put", "worker": "put", "undo": {"worker": "back"}})
    assert folder.run("run", "plan.json").code == 5
    run = folder.latest()["run"]
    assert folder.run("review", run, "approve").code == 0
    assert folder.run("resume", run).code == 0
    folder.write("leadhand.toml", SETTINGS.replace("{what}", "HACKED"))
    waiting = folder.run("rollback", run)
    assert (waiting.code, live(folder)) == (5, "v3"), waiting
    assert (
        "back has changed since the run was approved" in folder.run("logs", f"{run}-rollback").out
    )
    assert folder.run("review", f"{run}-rollback", "approve").code == 0
    assert folder.run("resume", f"{run}-rollback").code == 0
    assert live(folder) == "HACKED", "a person has approved it"
