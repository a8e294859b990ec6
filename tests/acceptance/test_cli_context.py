"""`--context`: the same plan in another place."""

import json

import pytest

WORKERS = """\
from leadhand import worker


@worker(name="deployer")
async def deployer(place: str, n: int) -> str:
    return f"real {place} {n}"


@worker(name="rehearser", risk="medium")
async def rehearser(place: str, n: int) -> str:
    return f"rehearsed {place} {n}"


@worker(name="fact", gives="report")
async def fact(place: str) -> str:
    return f"report of {place}"


@worker(name="mock-fact", gives="report", cost=100)
async def mock_fact(place: str) -> str:
    return f"mocked report of {place}"
"""
SETTINGS = """\
[project]
workers = ["workers.py"]

[policy]
attempts = 5

[context.staging]
workers.deployer = "rehearser"
workers.fact = "mock-fact"
params.place = "staging"
params.elsewhere = [1, 2]
policy.attempts = 2

[context.careful]
policy.auto_risk = "low"
workers.deployer = "rehearser"

[context.broken]
workers.deployer = "rehearsr"
"""
PLAN = {
    "goal": "Deploy",
    "params": {"place": "production", "n": {"type": "integer"}},
    "steps": [
        {
            "id": "deploy",
            "worker": "deployer",
            "parameters": {"place": "${{ params.place }}", "n": "${{ params.n }}"},
        }
    ],
}


FILES = {"workers.py": WORKERS, "leadhand.toml": SETTINGS, "plan.json": PLAN}


def start_of(folder):
    """The first event of the latest run."""
    run = folder.run("show", folder.latest()["run"], "--json").doc
    return run["plan"]


def test_workers_parameters_and_policy_are_those_of_the_place(folder):
    """A flag comes before the place, and the place before the defaults."""
    assert folder.run("run", "plan.json", "--set", "n=1").out == "real production 1\n"
    done = folder.run("run", "plan.json", "--set", "n=2", "--context", "staging")
    assert done.out == "rehearsed staging 2\n", done
    assert start_of(folder)["context"] == "staging"
    assert start_of(folder)["bound"] == {"deployer": "rehearser"}
    over = ("--set", "n=3", "--set", "place=here", "--context", "staging")
    assert folder.run("apply", "plan.json", *over).out == "rehearsed here 3\n"
    careful = folder.run("run", "plan.json", "--set", "n=4", "--context", "careful")
    assert careful.code == 5, careful
    shown = folder.run("show", "plan.json", "--context", "staging", "--json").doc
    assert shown["steps"][0]["worker"] == "rehearser"
    assert shown["steps"][0]["attempts"] == 2
    assert shown["steps"][0]["parameters"]["place"] == "staging"


def test_in_the_background_too(folder):
    """The request carries what was bound."""
    ran = folder.run("run", "plan.json", "--set", "n=5", "--context", "staging", "--detach")
    done = folder.run("watch", ran.out.strip(), "--exit-status")
    assert done.code == 0, done
    assert start_of(folder)["context"] == "staging"


def test_a_library_plan_in_a_place_records_both(folder):
    """Name, version and place."""
    folder.run("library", "save", "deploy", "plan.json")
    done = folder.run("run", "deploy", "--set", "n=1", "--context", "staging")
    assert done.out == "rehearsed staging 1\n"
    told = start_of(folder)
    assert (told["library"], told["context"]) == ("deploy@1", "staging")


def test_a_goal_in_a_place(folder):
    """Workers that are bound to others stand back; the parameters are what it has."""
    done = folder.run("run", "Report", "--want", "report", "--have", "place=home")
    assert done.out == "report of home\n", done
    done = folder.run("run", "Report", "--want", "report", "--context", "staging")
    assert done.out == "mocked report of staging\n", done
    assert start_of(folder)["context"] == "staging"
    plan = folder.run("plan", "Report", "--want", "report", "--context", "staging", "--json").doc
    assert [each["worker"] for each in plan["plan"]["steps"]] == ["mock-fact"]


def test_what_is_unknown_is_said(folder):
    """A place, a worker of it, a value that does not fit; a template may lack values."""
    for context, said in (
        ("stagin", 'there is no context "stagin". Did you mean "staging"?'),
        ("broken", 'binds worker "deployer" to "rehearsr"'),
        ("", "there is no context"),
    ):
        for verb in ("lint", "show"):
            done = folder.run(verb, "plan.json", "--context", context)
            assert done.code == 2, done
            assert said in done.err
    assert folder.run("lint", "plan.json", "--context", "staging").code == 0
    folder.write("leadhand.toml", SETTINGS.replace('place = "staging"', "place = 7"))
    done = folder.run("lint", "plan.json", "--context", "staging", "--json")
    assert done.code == 3
    assert "param-wrong" in json.dumps(done.doc)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("worker.a = 'b'", '[context.x] has no key "worker". Did you mean "workers"?'),
        ("workers = 3", "workers must be a table"),
        ("workers.a = 3", "workers.a must be the name of a worker"),
        ("policy.auto_rsk = 'low'", 'policy has no key "auto_rsk". Did you mean "auto_risk"?'),
        ("params.day = 2026-01-01", "params.day must be a value that JSON has"),
        ("params.n = nan", "params.n must be a value that JSON has"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(folder, line, said):
    """Whether the place is chosen or not."""
    folder.write("leadhand.toml", f"[context.x]\n{line}\n")
    done = folder.run("ls")
    assert done.code == 2
    assert said in done.err


def test_a_wrong_value_of_its_policy_is_found_when_it_is_chosen(folder):
    """With the file it stands in."""
    folder.write("leadhand.toml", "[context.x]\npolicy.attempts = 0\n")
    assert "must be a whole number" in folder.run("lint", "plan.json", "--context", "x").err
