"""Plans before they run: lint, show, and every bad plan we could think of."""

import json
from pathlib import Path

import pytest

from tests.support.cli import WORKERS, Folder

SEED = Path(__file__).parent.parent / "support" / "seed_plan.json"


FILES = {"workers.py": WORKERS}


# --- lint and show -------------------------------------------------------------------------


def test_the_seeds_plan_is_valid_as_it_stands(tmp_path):
    """Without workers the plan itself is checked, and that is said."""
    done = Folder(tmp_path).run("lint", str(SEED))
    assert done.code == 0, done
    assert "valid, 3 steps" in done.err
    assert "nothing is said about" in done.err
    assert "warning[LH607 rollback-unknown] at rollback_plan" in done.out


def test_ten_errors_are_reported_at_once(folder):
    """Each with its rule, its place and a fix where there is one; exit 3 everywhere."""
    folder.plan(
        {"id": "a", "worker": "sya"},
        {"id": "a", "worker": "say"},
        {"id": "b", "worker": "say", "depends_on": ["nowhere"]},
        {"id": "c", "worker": "say", "depends_on": ["d"]},
        {"id": "d", "worker": "say", "depends_on": ["c"]},
        {"id": "e", "worker": "say", "parameters": {"txet": "hi"}},
        {"id": "f", "worker": "big"},
        {"id": "g", "worker": "say", "parameters": {"text": "${{ steps.zzz.data }}"}},
        {"id": "h", "worker": "say", "timeout": "5 parsecs"},
        {"id": "i", "worker": "say", "failure_action": "panic"},
        {"id": "j", "worker": "say", "wroker": "say"},
        estimated_duration="soon",
    )
    told = folder.run("lint", "plan.json", "--json")
    assert told.code == 3, told
    rules = {each["rule"] for each in told.doc["findings"]}
    assert rules >= {
        "worker-unknown",
        "id-duplicate",
        "dependency-missing",
        "cycle",
        "parameter-unknown",
        "parameter-missing",
        "reference-unresolved",
        "duration-wrong",
        "failure-action-unknown",
        "field-unknown",
    }
    assert all(each["place"] and each["message"] for each in told.doc["findings"])
    done = folder.run("lint", "plan.json", "--all")
    assert done.code == 3
    assert len(done.out.splitlines()) == len(told.doc["findings"])
    assert 'Did you mean "say"?' in done.out
    for command in ("run", "apply", "show"):
        refused = folder.run(command, "plan.json")
        assert refused.code == 3, refused
        assert "nothing was run" in refused.err
        assert "error[LH101 cycle]" in refused.err
        assert not refused.out
    refused = folder.run("run", "plan.json", "--json").doc["error"]
    assert refused["code"] == "plan-invalid"
    assert len(refused["findings"]) >= 10
    assert not (folder.path / ".leadhand").exists()


def test_parameters_on_the_command_line_are_typed(folder):
    """`--set` reads a text by the declared type, and version 1.10 stays 1.10."""
    folder.plan(
        {"id": "a", "worker": "say", "parameters": {"text": "${{ params.version }}"}},
        {"id": "b", "worker": "big", "parameters": {"size": "${{ params.size }}"}},
        params={"version": {"type": "string"}, "size": {"type": "integer"}},
    )
    assert folder.run("lint", "plan.json").code == 0
    missing = folder.run("run", "plan.json")
    assert missing.code == 3
    assert "--set version=VALUE" in missing.err
    assert folder.run("lint", "plan.json", "--set", "version=1.10", "--set", "size=x").code == 3
    done = folder.run("run", "plan.json", "--set", "version=1.10", "--set", "size=3", "--json")
    assert done.code == 0, done
    assert done.doc["result"] == {"a": "1.10", "b": "xxx"}


def test_show_says_what_would_run(folder):
    """In an order that is possible, with risk, limits and effects; nothing is executed."""
    folder.plan(
        {"id": "z", "worker": "danger", "depends_on": ["a"], "timeout": "90s"},
        {"id": "a", "worker": "tests", "success_criteria": "all_pass"},
        risk_level="low",
        estimated_duration="15 minutes",
    )
    told = folder.run("show", "plan.json", "--json").doc
    assert [step["id"] for step in told["steps"]] == ["a", "z"]
    assert [step["risk"] for step in told["steps"]] == ["low", "high"]
    assert [step["timeout"] for step in told["steps"]] == [3600, 90]
    assert told["risk"] == "high"
    done = folder.run("show", "plan.json")
    assert done.code == 0
    assert "must hold: all_pass" in done.out
    dry = folder.run("run", "plan.json", "--dry-run")
    assert dry.out == done.out
    assert not (folder.path / ".leadhand").exists()


def test_show_says_when_a_step_may_start(folder):
    zone = {"from": "22:00", "to": "02:00", "zone": "Europe/Berlin"}
    folder.plan(
        {"id": "a", "worker": "say", "window": zone, "not_before": "2099-01-01T02:00:00Z"},
        {"id": "b", "worker": "say", "window": "01:00-02:00 UTC"},
    )
    for command in (["show", "plan.json"], ["run", "plan.json", "--dry-run"]):
        done = folder.run(*command)
        assert done.code == 0, done
        both = "not before 2099-01-01T02:00:00Z; only within 22:00-02:00 Europe/Berlin"
        assert [line.strip() for line in done.out.splitlines() if "within" in line] == [
            both,
            "only within 01:00-02:00 UTC",
        ]
    steps = folder.run("show", "plan.json", "--json").doc["steps"]
    assert [step["window"] for step in steps] == [zone, "01:00-02:00 UTC"]
    assert steps[0]["not_before"] == "2099-01-01T02:00:00Z"


def test_what_has_no_effect_yet_is_noted_by_lint_and_by_nothing_else(folder):
    folder.plan({"id": "a", "worker": "say"}, mode="whole", rollback_plan="the-old-one")
    told = folder.run("lint", "plan.json", "--json")
    assert told.code == 0, told
    found = [each for each in told.doc["findings"] if each["rule"] == "field-later"]
    assert [(each["id"], each["level"], each["place"]) for each in found] == [
        ("LH139", "warning", "mode"),
    ]
    assert found[0]["line"] == 1
    done = folder.run("lint", "plan.json")
    assert done.code == 0, done
    assert "plan.json:1: warning[LH139 field-later] at mode: it has no effect" in done.out
    for command in (["run", "plan.json"], ["show", "plan.json"]):
        done = folder.run(*command)
        assert done.code == 0, done
        assert "field-later" not in done.out + done.err


def test_a_crowd_of_warnings_is_cut_and_counted(folder):
    """Five of a kind are shown; notes, and the rest, with --all; --json always has everything."""
    steps = [{"id": f"s{i}", "worker": "say", "est": 2, "timeout": 1} for i in range(9)]
    folder.plan(*({**step, "parameters": {"text": step["id"]}} for step in steps))
    done = folder.run("lint", "plan.json")
    assert done.code == 0, done
    assert len(done.out.splitlines()) == 5
    assert done.out.count("warning[LH406 estimate-over-timeout]") == 5
    assert "4 warnings and " in done.err
    assert "not shown; --all shows everything" in done.err
    everything = folder.run("lint", "plan.json", "--all")
    assert everything.out.count("LH406") == 9
    assert everything.out.count("note[") > 0
    told = folder.run("lint", "plan.json", "--json").doc
    assert len(told["findings"]) == len(everything.out.splitlines())
    assert told["valid"]


def test_a_run_is_not_held_up_by_advice(folder):
    """Neither is it shown there."""
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "x"}, "est": 0.001})
    done = folder.run("run", "plan.json")
    assert done.code == 0, done
    assert "LH" not in done.err


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("ascii", "a: say\n├─ b: say\n└─ c: say\n   └─ d: say  (and after b)\n"),
        ("mermaid", "flowchart TD\n"),
        ("dot", "digraph plan {\n"),
    ],
)
def test_show_draws_the_graph(folder, form, words):
    folder.plan(
        {"id": "a", "worker": "say"},
        {"id": "b", "worker": "say", "depends_on": ["a"]},
        {"id": "c", "worker": "say", "depends_on": ["a"]},
        {"id": "d", "worker": "say", "depends_on": ["b", "c"]},
    )
    done = folder.run("show", "plan.json", "--graph", form)
    assert done.code == 0, done
    assert words in done.out
    if form != "ascii":
        assert done.out.count("-->" if form == "mermaid" else "->") == 4


def test_a_plan_comes_from_standard_input_too(folder):
    plan = json.dumps({"steps": [{"id": "a", "worker": "say", "parameters": {"text": "piped"}}]})
    assert folder.run("lint", "-", text=plan).code == 0
    assert folder.run("run", "-", text=plan).out == "piped\n"
    assert folder.run("run", "-", text="").code == 2


def test_names_in_a_plan_cannot_touch_the_terminal(folder):
    """Escape sequences of a plan are shown, not sent."""
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "\x1b[2J\u202e"}})
    done = folder.run("show", "plan.json")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\\x1b[2J\\u202e" in done.out


# --- bad plans -----------------------------------------------------------------------------

BOMB = "a: &a [x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

BAD = {
    "truncated JSON": ('{"steps": [{"id": "a", "worker"', "cut off"),
    "truncated YAML": ("steps:\n  - id: 'a", "plan"),
    "empty": ("", "is empty"),
    "not an object": ("[1, 2]", "an object with steps"),
    "not text": ("\x00\x01\x02", "plan"),
    "a key twice": ('{"steps": [], "steps": [{"id": "a", "worker": "say"}]}', "twice"),
    "NaN": ('{"steps": [{"id": "a", "worker": "say", "parameters": {"text": NaN}}]}', "NaN"),
    "YAML bomb": (BOMB, ""),
    "deep": ("[" * 100_000, ""),
    "YAML tag": ("steps: !!python/object/apply:os.system ['true']", ""),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", ["lint", "run", "show"])
def test_what_is_no_plan_is_refused_with_its_place(folder, command, name):
    """Exit 2, one message that names the file, in no time, and nothing made."""
    content, words = BAD[name]
    ending = "json" if name in {"truncated JSON", "a key twice", "NaN", "deep"} else "yaml"
    folder.write(f"plan.{ending}", content)
    done = folder.run(command, f"plan.{ending}")
    assert done.code == 2, done
    assert f"leadhand: error: plan.{ending}" in done.err
    assert words in done.err
    assert not (folder.path / ".leadhand").exists()


def test_a_plan_of_100_mb_is_refused_before_it_is_read(folder):
    """A sparse file: if it were read, memory would show it."""
    with (folder.path / "huge.json").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    done = folder.run("run", "huge.json")
    assert done.code == 2, done
    assert "104,857,600 bytes" in done.err
    assert "10,485,760 at most" in done.err


def test_endless_input_is_refused(folder):
    """A pipe has no size; reading stops at the limit."""
    plan = '{"steps": [], "goal": "' + "x" * (11 * 1024 * 1024) + '"}'
    done = folder.run("lint", "-", text=plan)
    assert done.code == 2, done
    assert "at most" in done.err


def test_an_unknown_worker_is_named_with_those_there_are(folder):
    folder.plan({"id": "a", "worker": "sayy"})
    done = folder.run("run", "plan.json")
    assert done.code == 3, done
    assert 'Did you mean "say"?' in done.err


# --- settings from files -------------------------------------------------------------------


def test_a_misspelt_setting_is_an_error_everywhere(folder):
    folder.write("leadhand.toml", "[policy]\nconcurency = 3\n")
    folder.plan({"id": "a", "worker": "say"})
    for command in (["run", "plan.json"], ["ls"], ["lint", "plan.json"]):
        done = folder.run(*command)
        assert done.code == 2, done
        assert 'has no key "concurency". Did you mean "concurrency"?' in done.err


def test_a_broken_workers_file_is_explained_in_one_line(folder):
    folder.write("workers.py", "x = 1 / 0\n")
    done = folder.run("ls", "workers")
    assert done.code == 2, done
    assert "ZeroDivisionError" in done.err
    assert "workers.py" in done.err
    assert "Traceback" not in done.err


def test_prints_at_import_do_not_reach_stdout(folder):
    folder.write("workers.py", "print('hello from an import')\n" + WORKERS)
    told = folder.run("ls", "workers", "--json")
    assert {row["worker"] for row in told.doc["workers"]} >= {"say", "big"}
    assert "hello from an import" in told.err


def test_workers_are_listed(folder):
    done = folder.run("ls", "workers")
    assert done.code == 0
    assert "all_pass" in done.out
    assert Folder(folder.path / "..").run("ls", "workers").code == 0
