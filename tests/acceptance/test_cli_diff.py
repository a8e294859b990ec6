"""`leadhand diff` in a process of its own."""

import json

from tests.support.cli import WORKERS

FILES = {"workers.py": WORKERS}


PLANNER = """\
from leadhand import Finish, Propose, Step


def next_step(view):
    if view.call == 1:
        steps = (Step(id="a", worker="say"), Step(id="b", worker="broken", depends_on=("a",)))
        return Propose(steps=steps, final=False)
    if view.call == 2:
        again = Step(id="b.2", worker="say", depends_on=("a",), supersedes="b")
        return Propose(steps=(again,), final=True)
    return Finish(result="done")
"""


def test_two_files_that_mean_the_same(folder):
    """YAML for JSON, in another order: exit code 0."""
    folder.plan({"id": "a", "worker": "say"}, {"id": "b", "worker": "say", "depends_on": ["a"]})
    folder.write(
        "plan.yaml",
        "steps:\n- {worker: say, id: b, depends_on: [a]}\n- {id: a, worker: say}\ngoal: a test\n",
    )
    done = folder.run("diff", "plan.json", "plan.yaml")
    assert (done.code, done.out) == (0, "")
    assert "mean the same" in done.err
    assert folder.run("diff", "plan.json", "plan.yaml", "--json").doc == {
        "old": "plan.json", "new": "plan.yaml", "equal": True, "changes": [], "difference": [],
    }  # fmt: skip


def test_two_files_that_differ(folder):
    """Exit code 1; a line for each, in colour only where it is wanted."""
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "pay"}})
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "p\u0430y"}}, name="new.json")
    done = folder.run("diff", "plan.json", "new.json")
    assert done.code == 1
    assert done.out == '~ steps.a.parameters.text: "pay" → "p\\u0430y"\n'
    assert "1 difference" in done.err
    coloured = folder.run("diff", "plan.json", "new.json", FORCE_COLOR="1")
    assert coloured.out.startswith("\033[33m~ ")
    doc = folder.run("diff", "plan.json", "new.json", "--json").doc
    assert doc["changes"] == [
        {"kind": "changed", "path": "steps.a.parameters.text", "old": "pay", "new": "p\u0430y"}
    ]


def test_what_cannot_be_compared(folder):
    """Each a usage error that says why."""
    folder.plan({"id": "a", "worker": "say"})
    for args, said in (
        (("plan.json", "gone.json"), "there is no such file"),
        (("plan.json",), "name another one"),
        (("-", "-"), "only one"),
        (("plan.json", "plan.json", "--from", "1"), "go with a run"),
        (("nobody",), "there is no database"),
    ):
        done = folder.run("diff", *args)
        assert done.code == 2, done
        assert said in done.err


def test_two_revisions_of_a_run(folder):
    """The last two by default; a step that took another's place is shown as that step."""
    folder.write("planning.py", PLANNER)
    ran = folder.run("run", "a goal", "--planner", "planning:next_step", "--json")
    ident = ran.doc["run"]
    done = folder.run("diff", ident)
    assert done.code == 1, done
    assert done.out.splitlines() == [
        "> steps.b is now steps.b.2",
        '~ steps.b.2.worker: "broken" → "say"',
        "- final: false",
    ]
    first = folder.run("diff", ident, "--from", "0", "--to", "1")
    assert [line for line in first.out.splitlines() if line[2] != " "] == [
        "+ steps.a", "+ steps.b",
    ]  # fmt: skip
    assert folder.run("diff", ident, "--from", "2", "--to", "2").code == 0
    gone = folder.run("diff", ident, "--to", "9")
    assert gone.code == 2
    assert "has no revision 9; its last is 2" in gone.err


def test_a_run_with_one_revision(folder):
    """There is nothing to compare, and the way to see it all is named."""
    ran = folder.run("run", folder.plan({"id": "a", "worker": "say"}), "--json")
    done = folder.run("diff", ran.doc["run"])
    assert done.code == 2
    assert "--from 0" in done.err
    shown = folder.run("diff", ran.doc["run"], "--from", "0", "--json")
    assert [each["path"] for each in json.loads(shown.out)["changes"]] == ["steps.a"]
