"""`leadhand fleet check`: set-up, gate and coders tried once, each problem with its fix."""

import json
import shutil
import sys

import pytest

from leadhand.fleet.check import CheckedCommand, problem_of
from leadhand.fleet.coder_trial import missing_paths, try_turn, try_version
from leadhand.fleet.settings import FleetSettings, fleet_of
from leadhand.settings import load_settings
from leadhand.workers.sandbox.sandbox import trial
from tests.fleet.places import every_byte, make_repo, run_git
from tests.support.cli import Folder
from tests.support.need import need

CODER = '[coders.own]\nkind = "command"\ncommand = ["sh", "-c", "true"]\n'


@pytest.fixture
def project(tmp_path):
    """Makes a project with a repository beside it; its settings are given."""
    make_repo(tmp_path / "shop", {"a.txt": "a\n", "run.sh": "echo hello\n"})

    def made(fleet, coders=CODER, sandbox="none"):
        folder = Folder(tmp_path)
        text = f'[fleet]\nrepo = "shop"\nsandbox = "{sandbox}"\n{fleet}\n{coders}'
        folder.write("leadhand.toml", text)
        return folder

    return made


@pytest.fixture
def boxed():
    """A sandbox, of whatever kind the machine has."""
    for kind in ("bubblewrap", "landlock"):
        if not trial(kind, network=True):
            return kind
    need(ok=False, why="a sandbox with a network")
    return ""


def test_it_runs_set_up_and_gate_once_and_leaves_the_checkout_alone(project, tmp_path):
    """With live output, times and the count of tests; nothing of it is left."""
    gate = [[sys.executable, "-m", "unittest", "-q", "a"], ["cat", "made.txt"]]
    files = {"a.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"}
    (tmp_path / "shop" / "a.py").write_text(files["a.py"])
    run_git(tmp_path / "shop", "add", "-A")
    run_git(tmp_path / "shop", "commit", "-qm", "a test")
    (tmp_path / "shop" / "a.txt").write_text("not committed\n")
    before = every_byte(tmp_path / "shop")
    setup = ["sh", "-c", "echo set-up-output; echo made-by-set-up > made.txt"]
    folder = project(f"setup = [{json.dumps(setup)}]\ngate = {json.dumps(gate)}")
    done = folder.run("fleet", "check", "--json", "--trust")
    assert done.code == 0, done.err
    doc = done.doc
    assert [(each["part"], each["code"]) for each in doc["commands"]] == [
        ("setup", 0),
        ("gate", 0),
        ("gate", 0),
    ]
    assert all(each["seconds"] > 0 for each in doc["commands"])
    assert doc["tests"].startswith("1 test")
    assert (doc["ok"], doc["problems"], doc["branch"], doc["files"]) == (True, [], "main", 3)
    assert doc["coders"][0] == {**doc["coders"][0], "name": "own", "problem": ""}
    assert "| set-up-output" in done.err
    assert "| made-by-set-up" in done.err
    assert every_byte(tmp_path / "shop") == before
    assert [each.name for each in (tmp_path / "leadhand-checkouts").iterdir()] == [".gitignore"]


def test_downloads_of_set_up_are_found_by_the_gate(project):
    """Package managers are led to one folder of the checkout; `env` of the settings comes first."""
    setup = ["sh", "-c", 'mkdir -p "$CARGO_HOME" && echo crate > "$CARGO_HOME/held"']
    gate = ["sh", "-c", 'cat .leadhand-downloads/cargo/held; echo "$GOMODCACHE" "$MAVEN_OPTS"']
    more = 'env = {GOMODCACHE = "/elsewhere"}'
    folder = project(f"setup = [{json.dumps(setup)}]\ngate = [{json.dumps(gate)}]\n{more}")
    done = folder.run("fleet", "check", "--json", "--trust")
    assert done.code == 0, done.err
    assert "| crate" in done.err
    assert "| /elsewhere -Dmaven.repo.local=" in done.err


def test_live_output_is_for_people(project):
    """Without colours, and of `go test -json` the words of the tests."""
    lines = [
        "\\033[32mgreen\\033[0m",
        '{"Time":"t","Action":"run","Test":"TestA"}',
        '{"Time":"t","Action":"output","Output":"=== RUN   TestA\\\\n"}',
        '{"Time":"t","Action":"output","Output":"--- PASS: TestA\\\\n"}',
        '{"Time": broken',
    ]
    gate = json.dumps([["printf", "%b\\n", *lines]])
    done = project(f"gate = {gate}").run("fleet", "check", "--trust")
    assert done.code == 0, done.err
    shown = [line.strip() for line in done.err.splitlines() if line.startswith("  |")]
    assert shown == ["| green", "| --- PASS: TestA", '| {"Time": broken']


def test_a_red_gate_is_one_problem_with_its_fix(project):
    folder = project('gate = [["sh", "-c", "echo the reason; exit 3"]]')
    done = folder.run("fleet", "check", "--trust")
    assert done.code == 1
    assert "problem     gate: sh -c" in done.out
    assert "failed with 3: the reason" in done.out
    assert "fix         Make the branch pass its own gate" in done.out
    assert "FAILED" in done.out


def test_a_gate_that_is_red_every_other_time_is_found_by_a_second_run(project, tmp_path):
    """The first run alone would not tell."""
    seen = tmp_path / "seen"
    script = f"if test -e {seen}; then echo FAILED t::wobbles; exit 1; fi; touch {seen}"
    folder = project(f'gate = [["sh", "-c", "{script}"]]\nfailures = "^FAILED (.+)$"')
    once = folder.run("fleet", "check", "--json", "--trust")
    assert (once.code, once.doc["flaky"]) == (0, [])
    seen.unlink()
    twice = folder.run("fleet", "check", "--json", "--trust", "--again")
    assert (twice.code, twice.doc["flaky"]) == (1, ["t::wobbles"])
    assert "[fleet] flaky" in twice.doc["problems"][0]["fix"]


@pytest.mark.parametrize("allowed", [[], ["index.example.com"]])
def test_a_host_that_set_up_may_not_reach_is_named(project, boxed, allowed):
    """The proxy knows what it refused, also where nothing is allowed."""
    code = "import urllib.request as r; r.urlopen('http://packages.example.com:81/x', timeout=9)"
    setup = json.dumps([["python3", "-c", code]])
    more = f"setup_hosts = {json.dumps(allowed)}\nsetup = {setup}"
    folder = project(f'{more}\ngate = ["true"]', sandbox=boxed)
    done = folder.run("fleet", "check", "--json", "--trust", "--no-coders")
    assert done.code == 1
    (problem,) = done.doc["problems"]
    assert problem["where"] == "setup"
    assert json.dumps([*allowed, "packages.example.com:81"]) in problem["fix"]
    assert done.doc["tests"] == ""
    assert done.doc["coders"] == []


def test_a_coder_is_tried_in_the_sandbox_and_what_it_misses_is_named(project, boxed, tmp_path):
    """By `doctor` too: outside of the sandbox it would work."""
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "needed.txt").write_text("1.2.3\n")
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec cat "{beside}/needed.txt"\n')
    program.chmod(0o755)
    coder = f'[coders.c]\nkind = "claude"\nprogram = "{program}"\nurl = "http://127.0.0.1:9"\n'
    folder = project('gate = ["true"]', coder, boxed)
    done = folder.run("fleet", "check", "--json", "--trust")
    (problem,) = done.doc["problems"]
    assert (done.code, problem["where"]) == (1, "coder c")
    assert problem["fix"] == f'Below [coders.c]: readable = ["{beside}/needed.txt"].'
    told = folder.run("doctor", "--trust")
    assert f'readable = ["{beside}/needed.txt"]' in told.out + told.err
    folder = project('gate = ["true"]', f'{coder}readable = ["{beside}"]\n', boxed)
    told = folder.run("doctor", "--trust")
    assert "c: claude, 1.2.3" in told.out


def test_a_coder_whose_interpreter_is_not_the_systems_is_started_by_it(tmp_path, boxed):
    """As of a version manager for Node: the program and its interpreter are in one folder."""
    folder = tmp_path / "versions" / "bin"
    folder.mkdir(parents=True)
    shutil.copy("/bin/sh", folder / "sh-of-its-own")
    program = folder / "claude"
    program.write_text("#!/usr/bin/env sh-of-its-own\necho 7.8.9\n")
    program.chmod(0o755)
    settings = settings_with(tmp_path, "c", "claude", program, boxed)
    tried = try_version(settings, fleet_of(settings).coders["c"])
    assert (tried.version, tried.problem) == ("7.8.9", "")


def settings_with(folder, name, kind, program, sandbox):
    coder = f'[coders.{name}]\nkind = "{kind}"\nprogram = "{program}"\nkey = "K"\n'
    text = f'[fleet]\ngate = ["true"]\nsandbox = "{sandbox}"\n{coder}'
    (folder / "leadhand.toml").write_text(text)
    return load_settings(environ={"HOME": str(folder)}, folder=folder)


@pytest.mark.real
@pytest.mark.parametrize("kind_of_coder", ["claude", "codex"])
async def test_real_coders_do_a_turn_that_costs_nothing(coders, kind_of_coder, boxed, tmp_path):
    """No provider, no key: an endpoint on this machine says one word."""
    program = getattr(coders, kind_of_coder)
    settings = settings_with(tmp_path, "it", kind_of_coder, program, boxed)
    slot = tmp_path / "slot"
    make_repo(slot)
    before = every_byte(slot)
    tried = await try_turn(settings, fleet_of(settings).coders["it"], slot, {})
    assert tried.problem == ""
    assert tried.version
    assert tried.turn_s is not None
    assert every_byte(slot) == before


CASES = [
    ("setup", 1, "could not resolve host: x", "", "setup_hosts"),
    ("gate", 1, "getaddrinfo ENOTFOUND registry", "", "The gate has no network"),
    ("setup", 1, "SSL: CERTIFICATE_VERIFY_FAILED", "", "[fleet] certificates"),
    ("gate", 1, "ModuleNotFoundError: No module named 'yaml'", "", "Install yaml"),
    ("gate", 1, "Error: Cannot find module 'left-pad'", "", "Install left-pad"),
    ("gate", -1, "not done after 900 s\n", "", "gate_time"),
    ("gate", 1, "OSError: Read-only file system", "", "outside of its checkout"),
    ("gate", 1, "1 failed, 2 passed", "", "Make the branch pass its own gate"),
    ("setup", 1, "make: *** error", "", "by hand in a fresh clone"),
    ("setup", 1, "403", "index.example.com:443 is not on the list", '"index.example.com:443"'),
    ("gate", 127, "cannot start no-such-tool", "", "Install it"),
]


@pytest.mark.parametrize(("part", "code", "output", "refused", "fix"), CASES)
def test_each_kind_of_failure_has_its_fix(part, code, output, refused, fix):
    command = "no-such-tool --all" if code == 127 else "make it"
    ran = CheckedCommand(part, command, code, 1.0, output)
    found = problem_of(ran, FleetSettings(), [refused] if refused else [])
    assert found.where == part
    assert fix in found.fix
    assert command in found.problem


def test_paths_that_exist_and_are_not_shown_are_what_is_missing(tmp_path):
    """Neither what is not there, nor what every sandbox shows."""
    (tmp_path / "lib.so").write_text("")
    text = f"cannot open {tmp_path}/lib.so; /usr/bin/env /no/such/file"
    assert missing_paths(text, []) == [f"{tmp_path}/lib.so"]
    assert missing_paths(text, [tmp_path]) == []


@pytest.mark.parametrize(
    ("coder", "said"),
    [
        ('kind = "claude"\nkey = "A"\ntoken = "B"', "key and token exclude each other"),
        ('kind = "codex"\ntoken = "B"', "a file that Codex itself renews"),
        ('kind = "command"\ncommand = ["true"]\ntoken = "B"', 'token goes with kind = "claude"'),
    ],
)
def test_the_token_of_a_login_is_for_claude_code_alone(project, coder, said):
    done = project('gate = ["true"]', f"[coders.ann]\n{coder}\n").run("fleet", "check", "--trust")
    assert done.code == 2, done
    assert said in done.err


def test_a_login_without_its_token_is_named_by_check_and_doctor(project, boxed, tmp_path):
    """By the name of the variable; the value of one that is set is shown by neither."""
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\necho 9.9 of a test\n")
    program.chmod(0o755)
    coder = f'[coders.ann]\nkind = "claude"\nprogram = "{program}"\ntoken = "ANNS_TOKEN"\n'
    folder = project('gate = ["true"]', coder)
    done = folder.run("fleet", "check", "--json", "--trust")
    assert [each["problem"] for each in done.doc["problems"]] == ["ANNS_TOKEN is not set"]
    assert "Set it to the token" in done.doc["problems"][0]["fix"]
    assert "ANNS_TOKEN is not set" in str(folder.run("doctor", "--json").doc)
    looked = folder.run("doctor", "--json", ANNS_TOKEN="secret-of-ann")
    assert "login by ANNS_TOKEN, which the agent can read" in looked.out
    assert "secret-of-ann" not in looked.out
    looked = project('gate = ["true"]', coder, boxed).run("doctor", "--json", ANNS_TOKEN="s")
    assert "login by ANNS_TOKEN, which only the proxy can read" in looked.out
