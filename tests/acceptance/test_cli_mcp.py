"""MCP servers of leadhand.toml through the real command line."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.cli import finished
from tests.support.mcp_trial import PROGRAM, noted, served
from tests.support.oauth_trial import browse, guarded

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOKEN = "sekret-7d1f0c55"


def settings(folder, how=None, more=""):
    """A file with one server."""
    reach = how or f"command = {json.dumps([*PROGRAM, '--log', str(folder.path / 'log')])}"
    folder.write("leadhand.toml", f"[mcp.trial]\n{reach}\n{more}")


ADD = {"id": "sum", "worker": "trial.add", "parameters": {"a": 20, "b": 22}}


def test_a_plan_runs_with_a_tool(folder):
    """From the table alone: described by the server, run, checked, recorded."""
    settings(folder, more='effects = []\n[mcp.trial.tools.add]\ncheck = "data.total > 0"\n')
    done = folder.run("run", folder.plan(ADD), "--quiet")
    assert done.code == 0, done
    assert json.loads(done.out)["total"] == 42
    assert [each["a"] for each in noted(folder.path / "log") if each.get("tool") == "add"] == [20]


def test_over_http_no_secret_is_kept(folder):
    with served("--log", str(folder.path / "log")) as (_, port):
        reach = f'url = "http://127.0.0.1:{port}/mcp"\n'
        reach += 'headers = {Authorization = {env = "TRIAL_TOKEN", prefix = "Bearer "}}'
        settings(folder, reach, 'tools = ["add"]\neffects = []\n')
        done = folder.run("run", folder.plan(ADD), "--quiet", TRIAL_TOKEN=TOKEN)
        assert done.code == 0, done
    sent = [each["headers"] for each in noted(folder.path / "log") if "headers" in each]
    assert {each.get("authorization") for each in sent} == {f"Bearer {TOKEN}"}
    kept = [file for file in (folder.path / ".leadhand").rglob("*") if file.is_file()]
    assert kept
    assert all(TOKEN.encode() not in file.read_bytes() for file in kept)
    assert TOKEN not in done.out + done.err


def test_descriptions_are_shown_escaped(folder):
    """A stranger's text does nothing to a terminal, and is no instruction to anybody."""
    settings(folder, more='tools = ["evil"]\n')
    for words in (("ls", "workers"), ("mcp", "tools"), ("ls", "workers", "--json")):
        done = folder.run(*words)
        assert done.code == 0, done
        assert "trial" in done.out
        assert "IGNORE ALL" in done.out
        assert all(char.isprintable() or char == "\n" for char in done.out), done
    assert "\\u001b" in folder.run("ls", "workers").out


def test_pinned_tools_need_no_server_and_must_stay_as_they_are(folder):
    starts = folder.path / "starts"
    line = f"echo >> {starts}; exec {' '.join(PROGRAM)} --log {folder.path / 'log'}"
    settings(folder, f"command = {json.dumps(['sh', '-c', line])}", 'tools = ["add", "say"]\n')
    done = folder.run("mcp", "tools", "--pin")
    assert done.code == 0, done
    assert "as pinned" in done.out
    assert starts.read_text() == "\n"
    shown = folder.run("ls", "workers", "--json").doc
    assert {row["worker"] for row in shown["workers"]} >= {"trial.add", "trial.say"}
    assert folder.run("lint", folder.plan(ADD)).code == 0
    assert starts.read_text() == "\n"  # nobody asked it again
    # The server changes its tool: `mcp` says so, and a run refuses it.
    pins = json.loads((folder.path / "leadhand.mcp.json").read_text())
    for tool in pins["servers"]["trial"]["tools"]:
        if tool["name"] == "add":
            tool["description"] = "Adds numbers, as somebody approved it."
    folder.write("leadhand.mcp.json", pins)
    done = folder.run("mcp", "tools", "trial")
    assert done.code == 1, done
    assert "changed: its description" in done.out
    done = folder.run("run", folder.plan({**ADD, "failure_action": "abort"}), "--yes")
    assert done.code == 1, done
    assert "is not what was approved: its description" in done.out + done.err
    assert not [each for each in noted(folder.path / "log") if each.get("tool") == "add"]


def test_doctor_says_whether_they_answer(folder):
    settings(folder)
    done = folder.run("doctor")
    assert "mcp            trial: trial, 13 tools" in done.out, done
    folder.write("leadhand.toml", '[mcp.gone]\ncommand = ["no-such-program"]\n')
    done = folder.run("doctor")
    assert done.code == 1
    assert "gone: does not answer" in done.out
    assert "No such file" in done.out


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('command = "npx server"', "mcp.trial.command: must be a list"),
        ("", "mcp.trial: needs `command` or `url`, and not both"),
        ('command = ["x"]\nheader = {}', "mcp.trial.header: is not known; did you mean headers?"),
        ('command = ["x"]\ntools.a.riks = "low"', "mcp.trial.tools.a.riks: is not known"),
        ('command = ["x"]\nrisk = "some"', "mcp.trial.risk: must be one of low, medium"),
        ('url = "http://x/"\nheaders = {A = "b"}', "headers.A must be {env"),
    ],
)
def test_mistakes_are_named_by_place(folder, table, message):
    settings(folder, table or "# nothing")
    done = folder.run("ls", "workers")
    assert done.code == 2, done
    assert message in done.err
    assert "leadhand.toml" in done.err
    assert "Traceback" not in done.err


def test_a_server_that_is_not_there_is_one_clear_message(folder):
    settings(folder, 'command = ["no-such-program"]')
    done = folder.run("run", folder.plan(ADD))
    assert done.code == 2, done
    assert "mcp trial: it cannot be started" in done.err
    assert "see that it runs; with `leadhand mcp tools --pin`" in done.err
    assert "Traceback" not in done.err


def test_help_and_lint_speak_to_nobody(folder):
    """What needs no workers starts no server, and does not even load the package."""
    mark = folder.path / "started"
    settings(folder, f'command = ["touch", "{mark}"]')
    code = "import sys; from leadhand.cli.main import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print('LOADED', *[m for m in sys.modules if m.split('.')[0] in ('mcp', 'mcp_types')])"
    for words in (["--help"], ["run", "--help"], ["schema"], ["ls"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=folder.path,
            env={**os.environ, "HOME": str(folder.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1].strip() == "LOADED", words
    assert not mark.exists()


# --- sign-in ----------------------------------------------------------------------------------


def signed_in(folder, *words):
    """Sign in by the command, with a browser that goes where it is sent."""
    with folder.start("mcp", "login", "trial", *words) as child:
        line = next(line for line in child.stderr if line.startswith("http"))
        browse(line.strip())
        return finished(child)


def test_a_person_signs_in_and_runs_use_it(folder):
    """Refused before; then the token is in one private file, and in no log and no output."""
    plan = folder.plan({"id": "who", "worker": "trial.whoami"})
    with guarded() as trial:
        settings(folder, f'url = "{trial.server}"\nauth = {{allow = ["127.0.0.1:*"]}}')
        for words in (("run", plan), ("mcp", "tools"), ("doctor",)):
            done = folder.run(*words)
            assert done.code != 0, done
            assert "leadhand mcp login trial" in done.out + done.err, done
        assert trial.grants() == []
        done = signed_in(folder, "--json")
        assert done.code == 0, done
        assert done.doc == {"server": "trial", "signed_in": True, "tools": ["whoami"]}
        done = folder.run("run", plan, "--quiet")
        assert (done.code, done.out) == (0, "called with [secret:trial.token]\n"), done
        (file,) = (folder.path / ".state" / "leadhand" / "mcp").glob("*.json")
        assert file.stat().st_mode & 0o777 == 0o600
        (token,) = trial.valid
        kept = [each for each in folder.path.rglob("*") if each.is_file() and each != file]
        assert kept
        assert all(token.encode() not in each.read_bytes() for each in kept)
        assert folder.run("mcp", "logout", "trial").out == "trial: signed out\n"
        assert not file.exists()
        assert folder.run("mcp", "logout", "trial").out == "trial: was not signed in\n"


def test_a_sign_in_that_fails_says_why(folder):
    with guarded() as trial:
        settings(folder, f'url = "{trial.server}"\nauth = {{}}')
        done = folder.run("mcp", "login", "trial")
        assert done.code == 4, done
        assert "the sign-in is refused: '127.0.0.1' is a loopback address; to allow" in done.err
        assert "to `auth.allow`" in done.err
        settings(folder, f'url = "{trial.server}"')
        done = folder.run("mcp", "login", "trial")
        assert (done.code, "has no `auth` table" in done.err) == (2, True), done
    assert folder.run("mcp", "login", "other").code == 2
