"""`leadhand library`, and runs of its plans, in processes of their own."""

import contextlib
import json
import sqlite3

from tests.support.cli import WORKERS, finished

TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
PLAN = """\
goal: Say something
params: {text: {type: string}}
steps:
- {id: say, worker: say, parameters: {text: "${{ params.text }}"}}
"""


FILES = {
    "workers.py": WORKERS,
    "leadhand.toml": '[project]\nworkers = ["workers.py"]\nactor = "ann"\n',
    "plan.yaml": PLAN,
}


def good(done):
    assert done.code == 0, done
    return done


def test_a_plan_is_saved_run_and_remembered(folder):
    """Versions, values by --set, and how it fared; no run is needed to begin with."""
    assert good(folder.run("library", "list")).err.strip().endswith("is empty")
    assert "saved as speak@1" in good(folder.run("library", "save", "speak", "plan.yaml")).err
    assert "nothing was saved" in good(folder.run("library", "save", "speak", "plan.yaml")).err
    ran = good(folder.run("run", "speak", "--set", "text=hi"))
    assert ran.out == "hi\n"
    assert "speak@1 from the library, saved by ann" in ran.err
    assert folder.run("run", "speak").code == 3, "text has no value"
    folder.write("plan.yaml", PLAN.replace("Say", "Tell"))
    good(folder.run("library", "save", "speak", "plan.yaml"))
    good(folder.run("run", "speak@1", "--set", "text=old", "--detach"))
    (row,) = good(folder.run("library", "list", "--json")).doc
    assert (row["name"], row["version"], row["uses"]) == ("speak", 2, 2)
    assert row["params"] == ["text"]
    shown = good(folder.run("library", "show", "speak@1", "--json")).doc
    assert shown["document"]["goal"] == "Say something"
    assert [each["uses"] for each in shown["history"]] == [2, 0]
    text = good(folder.run("library", "show", "speak"))
    assert text.out.startswith("goal: Tell something\n")
    assert "VERSION" in text.err
    run = folder.latest()["run"]
    first = json.loads(folder.run("logs", run, "--json").out.splitlines()[0])
    assert "speak@1" in json.dumps(first)
    assert good(folder.run("verify", "--all")).code == 0
    assert [each["run"] for each in folder.run("ls", "--json").doc if "$" in each["run"]] == []


def test_recoveries_are_part_of_the_history(folder):
    """Computed from the logs."""
    folder.plan({"id": "a", "worker": "broken", "failure_action": "abort"})
    good(folder.run("library", "save", "fails", "plan.json"))
    assert folder.run("run", "fails").code == 1
    (version,) = folder.run("library", "show", "fails", "--json").doc["history"]
    assert version["outcomes"] == {"failed": 1}
    assert version["recoveries"] == {"abort": 1}
    assert len(version["runs"]) == 1


def test_a_file_comes_before_a_name(folder):
    """And names are compared like files."""
    good(folder.run("library", "save", "speak", "plan.yaml"))
    folder.write("plan.yaml", PLAN.replace("Say", "Tell"))
    good(folder.run("library", "save", "speak", "plan.yaml"))
    done = folder.run("diff", "speak@1", "speak")
    assert (done.code, done.out) == (1, '~ goal: "Say something" → "Tell something"\n')
    assert "valid" in good(folder.run("lint", "speak")).err
    assert "Tell something" in good(folder.run("show", "speak")).out
    (folder.path / "speak").write_text(PLAN.replace("Say", "File"))
    assert "File something" in good(folder.run("show", "speak")).out
    done = folder.run("run", "spaek")
    assert done.code == 2
    assert "neither a file nor a plan of the library" in done.err


def test_the_plan_of_a_run_is_saved_as_a_plan_of_its_own(folder):
    """Steps that took the place of others have their first names again."""
    folder.write(
        "planning.py",
        "from leadhand import Finish, Propose, Step\n\n\n"
        "def next_step(view):\n"
        "    if view.call == 1:\n"
        "        return Propose(steps=(Step(id='a', worker='broken'),), final=False)\n"
        "    if view.call == 2:\n"
        "        heir = Step(id='a.2', worker='say', supersedes='a')\n"
        "        after = Step(id='b', worker='say', depends_on=('a.2',),\n"
        "                     parameters={'text': '${{ steps.a.2.data }}'})\n"
        "        return Propose(steps=(heir, after), final=True)\n"
        "    return Finish(result='done')\n",
    )
    ran = folder.run("run", "a goal", "--planner", "planning:next_step", "--json")
    good(folder.run("library", "save", "learned", ran.doc["run"]))
    doc = folder.run("library", "show", "learned", "--json").doc["document"]
    assert doc["steps"] == [
        {"id": "a", "worker": "say"},
        {"id": "b", "worker": "say", "depends_on": ["a"],
         "parameters": {"text": "${{ steps.a.data }}"}},
    ]  # fmt: skip
    assert good(folder.run("run", "learned")).out == "hello\n"


def test_one_file_travels_with_its_hash(folder, tmp_path):
    """A changed one is refused; where the name is there, what changed is shown."""
    good(folder.run("library", "save", "speak", "plan.yaml"))
    good(folder.run("library", "export", "speak", "-o", "speak.plan.json"))
    good(folder.run("library", "export", "speak", "-o", "speak.plan.yaml"))
    there = ("--store", "there.db")
    assert (
        "saved as speak@1" in good(folder.run("library", "import", "speak.plan.yaml", *there)).err
    )
    assert (
        "the same already" in good(folder.run("library", "import", "speak.plan.json", *there)).err
    )
    text = (folder.path / "speak.plan.json").read_text()
    folder.write("forged.json", text.replace("Say", "Tell"))
    forged = folder.run("library", "import", "forged.json", *there)
    assert forged.code == 7
    assert "its hash does not match" in forged.err
    folder.write("plan.yaml", PLAN.replace("Say", "Tell"))
    good(folder.run("library", "save", "speak", "plan.yaml"))
    good(folder.run("library", "export", "speak", "-o", "speak.plan.json"))
    done = good(folder.run("library", "import", "speak.plan.json", *there))
    assert done.out == '~ goal: "Say something" → "Tell something"\n'
    assert "saved as speak@2" in done.err
    assert json.loads(good(folder.run("library", "export", "speak@1")).out)["version"] == 1


def test_what_cannot_be_saved_or_removed(folder):
    """Plans with errors, names that are none, names that are not there."""
    folder.plan({"id": "a"})
    assert folder.run("library", "save", "x", "plan.json").code == 3
    assert folder.run("library", "save", "x.yaml", "plan.yaml").code == 2
    good(folder.run("library", "save", "speak", "plan.yaml"))
    assert folder.run("library", "remove", "spaek").code == 2
    good(folder.run("library", "remove", "speak"))
    assert folder.run("library", "show", "speak").code == 2
    assert folder.run("library", "import", "plan.yaml").code == 2


def test_a_host_that_is_alive_is_spoken_to(folder):
    """It owns the database; a large plan goes through too, and reading needs nobody."""
    folder.plan({"id": "nap", "worker": "nap", "parameters": {"seconds": 300}}, name="nap.json")
    folder.plan(
        {"id": "a", "worker": "say", "parameters": {"text": "x" * 3_000_000}}, name="large.json"
    )
    with folder.start("run", "nap.json") as host:
        folder.until(lambda: folder.lines("naps.txt"), "the nap")
        assert "saved as large@1" in good(folder.run("library", "save", "large", "large.json")).err
        assert good(folder.run("library", "list", "--json")).doc[0]["name"] == "large"
        good(folder.run("library", "remove", "large"))
        folder.run("cancel", folder.latest()["run"])
        assert finished(host).code == 9
    assert good(folder.run("verify", "--all")).code == 0


def test_a_damaged_library_is_not_believed(folder):
    """Its entries are chained like those of a run."""
    good(folder.run("library", "save", "speak", "plan.yaml"))
    with contextlib.closing(sqlite3.connect(folder.path / ".leadhand" / "leadhand.db")) as database:
        for (trigger,) in database.execute(TRIGGERS).fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute(
            "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'Say', 'Pay') AS BLOB)"
            " WHERE instr(CAST(body AS TEXT), 'Say')"
        )
        database.commit()
    done = folder.run("run", "speak", "--set", "text=hi")
    assert done.code == 1
    assert "the library was changed or damaged" in done.err
