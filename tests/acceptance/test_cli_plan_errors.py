"""Errors of a plan, of the files beside it and of a goal: each names its place and the fix."""

import pytest

from tests.acceptance.conftest import SETTINGS
from tests.support.cli import WORKERS

FILES = {"workers.py": WORKERS}
PLAN = """\
goal: Say something
steps:
  - id: first
    worker: say
  - id: second
    worker: sya
    depends_on: [frist]
"""


@pytest.mark.parametrize("plan", ["plan.yaml", "plan.json"])
def test_every_command_names_file_and_line_of_a_finding_as_lint_does(folder, plan):
    if plan.endswith(".json"):
        steps = ('{"id": "first", "worker": "say"}', '{"id": "second", "worker": "sya"}')
        folder.write(plan, f'{{"steps": [\n  {steps[0]},\n  {steps[1]}\n]}}\n')
    else:
        folder.write(plan, PLAN)
    lint = folder.run("lint", plan)
    assert lint.code == 3, lint
    findings = lint.out.splitlines()
    line = 3 if plan.endswith(".json") else 6
    assert any(
        each.startswith(f"{plan}:{line}: error[LH106 worker-unknown] at steps[1].worker, step")
        for each in findings
    ), lint
    for words in (["run"], ["apply"], ["show"], ["review"], ["run", "--dry-run"]):
        done = folder.run(words[0], plan, *words[1:])
        assert done.code == 3, done
        assert [each for each in done.err.splitlines() if each.startswith(plan)] == findings, done
    told = folder.run("run", plan, "--json").doc["error"]["findings"]
    found = folder.run("lint", plan, "--json").doc["findings"]
    assert told == [each for each in found if each["level"] == "error"]
    assert {(each["file"], each["line"]) for each in told} >= {(plan, line)}


def test_findings_of_standard_input_name_no_file_and_those_of_save_do(folder):
    done = folder.run("run", "-", text=PLAN)
    assert done.code == 3, done
    assert done.err.startswith("error[LH"), done
    folder.write("plan.yaml", PLAN.replace("sya", "say"))
    done = folder.run("library", "save", "talk", "plan.yaml")
    assert done.code == 3, done
    assert "plan.yaml:7: error[LH102 dependency-missing]" in done.err


BROKEN = {
    "steps:\n  - id: a\n   worker: say\n": (
        "bad.yaml:3:4",
        'expected an item that begins with "- "',
    ),
    "goal: x\n steps: []\n": ("bad.yaml:2:", 'expected no ":" here'),
    "steps: [{id: a, worker: say}\n": ("bad.yaml:2:", 'expected "," or "]"'),
    "steps: [{id: a, worker: say]\n": ("bad.yaml:1:", 'expected "," or "}"'),
    'goal: "x\nsteps: []\n': ("bad.yaml:3:", "expected a closing quote"),
    "goal: x\nsteps:\n\t- id: a\n": ("bad.yaml:3:1", "Indent with spaces"),
    "goal: x\nsteps\n": ("bad.yaml:", 'expected "key: value"'),
    'goal: "\\q"\n': ("bad.yaml:1:", "after a backslash"),
    '{"steps": [\n {"id": "a",}\n]}': ("bad.json:2:", "expected"),
    '{"steps": [\n {"id" "a"}\n]}': ("bad.json:2:", 'expected ":" after the key'),
    '{"steps": [\n {"id": "a"} {"id": "b"}\n]}': ("bad.json:2:", 'expected "," or the end'),
    '{"steps": [\n': ("bad.json:2:", "expected a value"),
    '{"steps": []}\n}': ("bad.json:2:", "expected the end of the document"),
}
PARSER_WORDS = ("scalar", "token", "indicator", "delimiter", "stream", "block", "flow", "Expecting")


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_is_not_yaml_or_json_says_what_was_expected(folder, text):
    place, expected = BROKEN[text]
    name = place.partition(":")[0]
    folder.write(name, text)
    done = folder.run("run", name)
    assert done.code == 2, done
    assert place in done.err
    assert expected in done.err
    assert not any(word in done.err for word in PARSER_WORDS), done


SETTINGS_BROKEN = {
    'x = ["a"\ny = 1\n': (':2: is not TOML: expected "," or "]"'),
    "[project\n": ':1: is not TOML: expected "]" after the name of the table',
    "\n[project]\nstore\n": ':3: is not TOML: expected "=" after the key',
    "[project]\nstore = a.db\n": ":2: is not TOML: expected a value",
    '[project]\nstore = "a.db\n': ":2: is not TOML: expected a closing quote",
    '[project]\nstore = "a" "b"\n': ":2: is not TOML: expected the end of the line",
    '[project]\nstore = "a"\nstore = "b"\n': ":3: is not TOML: expected each key once",
    "[project]\n[project]\n": ":2: is not TOML: expected each table once",
}


@pytest.mark.parametrize("text", SETTINGS_BROKEN)
def test_settings_that_are_not_toml_say_what_was_expected(folder, text):
    folder.write("leadhand.toml", text)
    done = folder.run("ls")
    assert done.code == 2, done
    assert f"leadhand.toml{SETTINGS_BROKEN[text]}" in done.err, done


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1\n1 / 0\n", "workers.py:2: ZeroDivisionError: division by zero"),
        ("x = 1\ndef f(:\n", "workers.py:2: SyntaxError: invalid syntax"),
        ("import nosuchmodule\n", "workers.py:1: ModuleNotFoundError: No module named"),
    ],
)
def test_a_broken_module_is_named_once_with_line_and_error(folder, source, told):
    folder.write("workers.py", source)
    folder.plan({"id": "a", "worker": "say"})
    done = folder.run("run", "plan.json")
    assert done.code == 2, done
    assert told in done.err
    assert done.err.count("workers.py") == 1, done


def test_a_missing_file_is_compared_with_plans_only(folder):
    folder.plan({"id": "a", "worker": "say"})
    assert "Did you mean" not in folder.run("run", "workers.yaml").err
    assert "Did you mean plan.json?" in folder.run("run", "plam.yaml").err


def test_a_goal_without_facts_explains_facts(folder):
    source = "from leadhand import worker\n\n@worker(gives='report')\ndef w() -> str: return ''\n"
    folder.write("workers.py", source)
    for command in ("run", "plan"):
        done = folder.run(command, "Make it so")
        assert done.code == 2, done
        assert "A fact is the name of something that a worker makes true" in done.err
        assert "Workers here give: report." in done.err
        assert f"Example: leadhand {command} 'Make it so' --want report" in done.err


def test_a_missing_program_is_found_before_a_person_approves(folder):
    toml = '\n[workers.deploy]\ncommand = ["./deploy.sh"]\nrisk = "high"\n'
    folder.write("leadhand.toml", SETTINGS + toml)
    folder.write("plan.yaml", "steps:\n  - id: a\n    worker: deploy\n")
    place = "plan.yaml:3: {}[LH146 program-missing] at steps[0].worker"
    done = folder.run("lint", "plan.yaml")
    assert done.code == 0, done
    assert place.format("warning") in done.out
    for command in ("run", "review", "apply"):
        done = folder.run(command, "plan.yaml")
        assert done.code == 3, done
        assert place.format("error") in done.err
    assert folder.run("ls", "--json").doc == []


def test_doctor_reports_a_secret_that_is_not_set(folder):
    plan = "params:\n  {}\nsteps:\n  - {{id: a, worker: say}}\n"
    folder.write("plan.yaml", plan.format("key: {type: secret, env: NOT_SET_HERE}"))
    done = folder.run("doctor", "plan.yaml")
    assert done.code == 1, done
    assert "fail  secret         parameter key (env:NOT_SET_HERE)" in done.out
    assert "env:NOT_SET_HERE is not there" in done.out
    done = folder.run("doctor", "plan.yaml", NOT_SET_HERE="a-long-secret-value")
    assert done.code == 0, done
    assert "ok    secret         parameter key (env:NOT_SET_HERE)" in done.out
    assert "a-long-secret-value" not in done.out + done.err
    folder.write("plan.yaml", plan.format("key: {type: secret}"))
    done = folder.run("doctor", "plan.yaml")
    assert done.code == 0, done
    assert "--set key=env:VARIABLE" in done.out
    folder.write("plan.yaml", plan.format("key: {type: secret, required: false}"))
    assert "parameter key" not in folder.run("doctor", "plan.yaml").out


def test_doctor_names_the_line_of_a_finding(folder):
    folder.write("plan.yaml", PLAN)
    done = folder.run("doctor", "plan.yaml")
    assert done.code == 1, done
    assert "plan.yaml:7: steps[1].depends_on[0]" in done.out


def test_restarts_may_be_zero_as_they_are_by_default(folder):
    folder.plan({"id": "a", "worker": "say"})
    for number, code in ((0, 0), (-1, 2)):
        folder.write("leadhand.toml", f"{SETTINGS}\n[policy]\nrestarts = {number}\n")
        done = folder.run("lint", "plan.json")
        assert done.code == code, done
