"""From a goal to a plan, and whether all that the plan takes is there: `plan` and `doctor PLAN`."""

import json

import pytest
import yaml

WORKERS = """
from leadhand import Human, worker

@worker(gives="raw", cost=1, est="2s")
def near(topic: str) -> list[int]:
    return [3, 1]

@worker(gives="raw", cost=3, est="2s")
def far(topic: str) -> list[int]:
    return [3, 1]

@worker(gives="summary", est="1s")
def summarise(table: str, raw: list[int], approved: str) -> str:
    return f"{table} {raw} {approved}"

boss = Human("boss", "May it go out?", needs="table", gives="approved")
"""

DECLARED = """
[project]
workers = ["workers.py"]

[workers.sorter]
command = ["sort"]
stdin = "json"
needs = ["raw"]
gives = ["table"]
env = ["SORTER_HOME"]
est = "5s"
cost = 2

[workers.sorter.parameters]
raw = {type = "array"}

[workers.poster]
url = "http://localhost:8765/post"
headers = {Authorization = {env = "POSTER_TOKEN", prefix = "Bearer "}}
gives = ["post"]
allow = ["localhost:8765"]
"""


FILES = {"workers.py": WORKERS, "leadhand.toml": DECLARED}


def test_a_plan_says_why_and_what_it_takes(folder):
    """Nothing is executed: there is no database afterwards."""
    done = folder.run("plan", "Sum it up", "--have", "topic=tides", "--want", "summary")
    assert done.code == 0, done
    assert "4 steps to: Sum it up" in done.out
    assert "gives raw, which sorter needs (price 1); not chosen: far (price 3)" in done.out
    assert "after near" in done.out
    for line in (
        "workers    near (or far), sorter, boss, summarise",
        "tools      sort (sorter)",
        "secrets    SORTER_HOME (sorter)",
        "people     boss",
        "time       about 8s along the longest chain, and boss without an estimate",
        "cost       about 3",
    ):
        assert line in done.out
    assert not (folder.path / ".leadhand").exists()
    told = folder.run("plan", "x", "--have", "topic=t", "--want", "post", "--json").doc
    assert told["takes"]["hosts"] == [{"name": "localhost", "worker": "poster", "required": True}]
    assert told["takes"]["secrets"][0]["name"] == "POSTER_TOKEN"
    assert told["takes"]["without_estimate"] == ["poster"]
    assert told["plan"]["goal"]["want"] == ["post"]


@pytest.mark.parametrize("name", ["plan.json", "plan.yaml"])
def test_a_plan_that_was_written_is_a_plan(folder, name):
    """It passes lint and apply, and knows for which workers it was made."""
    done = folder.run("plan", "Get it", "--have", "topic=t", "--want", "raw", "-o", name)
    assert done.code == 0, done
    text = (folder.path / name).read_text()
    doc = json.loads(text) if name.endswith("json") else yaml.safe_load(text)
    assert next(iter(doc)) == "goal"
    assert doc["estimated_duration"] == 2.0
    assert folder.run("lint", name).code == 0
    assert json.loads(folder.run("apply", name, "--quiet").out) == [3, 1]
    folder.write("workers.py", WORKERS.replace("[3, 1]", "[4]"))
    assert folder.run("apply", name).code == 7
    looked = folder.run("doctor", name)
    assert looked.code == 0
    assert "the workers have changed since the plan was made" in looked.out


def test_no_way_is_explained(folder):
    """What is missing and who would need it; exit 1, since it is no matter of usage."""
    done = folder.run("plan", "Sum it up", "--want", "summary")
    assert done.code == 1
    assert "no worker gives topic" in done.err
    doc = folder.run("plan", "Sum it up", "--want", "summary", "--json").doc
    assert doc["error"]["code"] == "no-plan"
    assert folder.run("plan", "Sum it up").code == 2
    assert folder.run("plan", "x", "--want", "raw", "-o", "plan.txt").code == 2
    assert folder.run("plan", "x", "--want", "raw", "-o", "no/plan.json").code == 2


def test_doctor_finds_everything_a_plan_takes(folder):
    """There: workers, a program, a secret, a host that resolves without being called."""
    folder.run("plan", "x", "--have", "topic=t", "--want", "table", "-o", "t.json")
    folder.run("plan", "x", "--want", "post", "-o", "p.json")
    done = folder.run("doctor", "t.json", SORTER_HOME="x")
    assert done.code == 0, done
    assert "ok    worker         sorter (command)" in done.out
    assert "/sort" in done.out
    done = folder.run("doctor", "p.json", POSTER_TOKEN="secret")
    assert done.code == 0, done
    assert "ok    host           localhost:8765" in done.out
    assert "secret" not in done.out.replace("secret         POSTER_TOKEN", "")


def test_doctor_names_what_is_missing(folder):
    """A secret, a program, a worker, a resource, an action; a note for what is only passed on."""
    folder.run("plan", "x", "--want", "post", "-o", "p.json")
    done = folder.run("doctor", "p.json")
    assert done.code == 1
    assert "not set; worker poster uses it" in done.out
    toml = DECLARED.replace('["sort"]', '["no-such-sort"]').replace("localhost", "host.invalid")
    folder.write("leadhand.toml", toml)
    steps = [
        {"id": "a", "worker": "sorter", "parameters": {"raw": []}, "uses": {"gpu": 2}},
        {"id": "b", "worker": "nobody"},
        {"id": "c", "worker": "near", "parameters": {"topic": "t"}, "alternatives": ["ghost"]},
        {"id": "d", "worker": "poster"},
    ]
    folder.write("plan.json", {"steps": steps})
    doc = folder.run("doctor", "plan.json", "--json").doc
    assert doc["healthy"] is False
    found = {(row["what"], row["value"].split(" ")[0]): row for row in doc["checks"]}
    assert found["tool", "no-such-sort"]["status"] == "problem"
    assert found["secret", "SORTER_HOME"]["status"] == "warning"
    assert found["worker", "nobody"]["status"] == "problem"
    assert found["worker", "ghost"]["status"] == "warning"
    assert found["resource", "gpu:"]["status"] == "problem"
    assert found["host", "host.invalid:8765"]["status"] == "problem"
    folder.write("plan.json", {"steps": [{"id": "a", "wroker": "x"}]})
    done = folder.run("doctor", "plan.json")
    assert done.code == 1
    assert "wroker" in done.out
    assert folder.run("doctor", "none.json").code == 1


def test_facts_may_be_given_with_commas_between_them(folder):
    """And a name that is nearly right is asked about."""
    done = folder.run("plan", "x", "--have", "topic=t", "--want", "raw, table", "--json")
    assert done.code == 0, done
    both = folder.run(
        "plan", "x", "--have", "topic=t", "--want", "raw", "--want", "table", "--json"
    )
    assert done.doc["plan"] == both.doc["plan"]
    done = folder.run("plan", "x", "--have", "topic=t", "--want", "tabel")
    assert (done.code, "no worker gives tabel (did you mean table?)" in done.err) == (1, True), done
    done = folder.run("plan", "x", "--have", "topic=t", "--want", "coffee")
    assert "did you mean" not in done.err
