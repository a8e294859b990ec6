"""`leadhand connect`: what it writes for each agent, shown first, and taken back."""

import json
import os
import tomllib

import pytest

from leadhand.cli.group import execute
from leadhand.connect.targets import AGENTS
from tests.support.cli import Done, Folder, environment

SKILLS = {"claude": ".claude/skills", "codex": ".agents/skills", "cursor": ".cursor/skills"}


@pytest.fixture
def folder(tmp_path, monkeypatch, capfd):
    """A project folder; its commands run in this process, which is quick."""
    (tmp_path / "project").mkdir()
    found = Folder(tmp_path / "project")
    home = {"HOME": str(tmp_path / "home"), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
    home["XDG_STATE_HOME"] = str(tmp_path / "state")

    def run(*args, **env):
        with monkeypatch.context() as patch:
            patch.chdir(found.path)
            for name, value in {**environment(found.path), **home, **env}.items():
                patch.setenv(name, value)
            capfd.readouterr()
            return Done(execute(list(args)), *capfd.readouterr())

    found.run = run
    return found


def tree(path):
    """Every file below a folder with its bytes."""
    return {
        str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()
    }


@pytest.fixture(params=AGENTS)
def agent(request):
    return request.param


@pytest.mark.parametrize("scope", ["project", "user"])
def test_it_connects_once_and_takes_everything_back(folder, agent, scope):
    """Shown first; the second time nothing changes; removed, nothing is left."""
    root = folder.path if scope == "project" else folder.path.parent / "home"
    root.mkdir(exist_ok=True)
    before = sorted(root.rglob("*"))
    shown = folder.run("connect", agent, "--scope", scope, "--show")
    assert (shown.code, sorted(root.rglob("*"))) == (0, before)
    done = folder.run("connect", agent, "--scope", scope, "--yes", "--json")
    assert done.code == 0, done
    files = {row["file"]: row for row in done.doc["files"]}
    assert done.doc["written"]
    assert {str(root / name) for name in tree(root)} == set(files)
    assert all(f"+++ {name}" in shown.out for name in files)
    skill = root / SKILLS[agent] / "leadhand" / "SKILL.md"
    assert skill.read_text().startswith("---\nname: leadhand\ndescription: ")
    again = folder.run("connect", agent, "--scope", scope, "--json")
    assert (again.code, again.doc["files"]) == (0, [])
    removed = folder.run("connect", agent, "--scope", scope, "--remove", "--yes")
    assert removed.code == 0, removed
    assert sorted(root.rglob("*")) == before


def test_each_agent_gets_the_server_where_it_looks(folder):
    """The program is named by its path where no `leadhand` on PATH is this one."""
    for name in AGENTS:
        assert folder.run("connect", name, "--yes", PATH="/nowhere").code == 0
    at = folder.path
    claude = json.loads((at / ".claude/skills/leadhand/.mcp.json").read_text())
    codex = tomllib.loads((at / ".codex/config.toml").read_text())
    cursor = json.loads((at / ".cursor/mcp.json").read_text())
    for found in (claude["mcpServers"], codex["mcp_servers"], cursor["mcpServers"]):
        assert list(found) == ["leadhand"]
        assert found["leadhand"]["args"] == ["mcp", "serve"]
        assert os.path.isabs(found["leadhand"]["command"])  # noqa: PTH117 - a text
    assert sorted(each.name for each in (at / ".claude/skills/leadhand/commands").iterdir()) == [
        "inbox.md",
        "plan.md",
        "run.md",
    ]
    names = {each.name for each in (at / ".agents/skills").iterdir()}
    assert names == {"leadhand", "leadhand-inbox", "leadhand-plan", "leadhand-run"}
    assert "$ARGUMENTS" not in (at / ".agents/skills/leadhand-plan/SKILL.md").read_text()
    assert "$ARGUMENTS" not in (at / ".cursor/commands/leadhand-plan.md").read_text()


def test_entries_of_the_user_stay_as_they_are(folder):
    """Also comments, in a file of Codex and in one of Cursor."""
    config, servers = folder.path / ".codex/config.toml", folder.path / ".cursor/mcp.json"
    theirs = {
        config: '# mine\nmodel = "o3"   # quick\n\n[mcp_servers.docs]\ncommand = "docs"\n',
        servers: '{\n  // mine\n  "mcpServers": {\n    "docs": {"command": "docs"},\n  },\n}\n',
    }
    for file, text in theirs.items():
        file.parent.mkdir()
        file.write_text(text)
    for name in ("codex", "cursor"):
        assert folder.run("connect", name, "--yes").code == 0
    assert config.read_text().startswith(theirs[config])
    assert "// mine" in servers.read_text()
    assert '"docs": {"command": "docs"},' in servers.read_text()
    for name in ("codex", "cursor"):
        assert folder.run("connect", name, "--remove", "--yes").code == 0
    assert {file: file.read_text() for file in theirs} == theirs


def test_the_gate_is_off_unless_asked_for_and_kept_until_refused(folder, agent):
    hooks = {
        "claude": ".claude/skills/leadhand-gate/hooks/hooks.json",
        "codex": ".codex/hooks.json",
        "cursor": ".cursor/hooks.json",
    }[agent]
    file = folder.path / hooks
    assert folder.run("connect", agent, "--yes").code == 0
    assert not file.exists()
    assert folder.run("connect", agent, "--yes", "--require-plan").code == 0
    assert f"plan-gate {agent} || exit 2" in file.read_text()
    assert folder.run("connect", agent, "--yes").code == 0
    assert file.exists()
    assert folder.run("connect", agent, "--yes", "--no-require-plan").code == 0
    assert not file.exists()
    assert folder.run("connect", agent, "--yes", "--require-plan").code == 0
    assert folder.run("connect", agent, "--remove", "--yes").code == 0
    assert not tree(folder.path)


def test_without_a_terminal_it_asks_for_yes(folder):
    done = folder.run("connect", "claude")
    assert done.code == 2
    assert "add --yes" in done.err
    assert not tree(folder.path)


def test_what_was_changed_since_is_kept(folder):
    """The whole command refuses, and names the file."""
    assert folder.run("connect", "claude", "--yes").code == 0
    skill = folder.path / ".claude/skills/leadhand/SKILL.md"
    skill.write_text(skill.read_text() + "\nMine.\n")
    before = tree(folder.path)
    for more in (("--remove",), ()):
        done = folder.run("connect", "claude", "--yes", *more)
        assert done.code == 7, done
        assert "SKILL.md" in done.err
        assert tree(folder.path) == before


def test_it_can_be_taken_back_without_its_record(folder):
    """In a clone, another machine wrote the files: what this version would write is removed."""
    assert folder.run("connect", "codex", "--yes").code == 0
    other = {"XDG_STATE_HOME": str(folder.path.parent / "other")}
    done = folder.run("connect", "codex", "--remove", "--yes", **other)
    assert done.code == 0, done
    assert not (folder.path / ".agents/skills/leadhand/SKILL.md").exists()
    assert "leadhand" not in (folder.path / ".codex/config.toml").read_text()


def test_a_link_out_of_the_project_is_refused(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder.path / ".claude").symlink_to(tmp_path / "elsewhere")
    done = folder.run("connect", "claude", "--yes")
    assert done.code == 4
    assert "is a link" in done.err
    assert not tree(tmp_path / "elsewhere")


def test_what_was_never_connected_is_not_removed_and_said_so(folder):
    done = folder.run("connect", "claude", "--remove", "--yes")
    assert done.code == 0
    assert "Claude Code was not connected here; nothing was removed\n" in done.err
    assert folder.run("connect", "claude", "--scope", "user", "--yes").code == 0
    done = folder.run("connect", "claude", "--remove", "--yes")
    assert "connected elsewhere: leadhand connect claude --scope user --remove" in done.err


def test_options_that_do_not_go_together_are_refused(folder):
    done = folder.run("connect", "claude", "--remove", "--require-plan")
    assert (done.code, "--require-plan" in done.err) == (2, True)


def looks(folder, what):
    """The checks of `leadhand doctor` with this name."""
    found = folder.run("doctor", "--json").doc["checks"]
    return [each for each in found if each["what"] == what]


def test_doctor_lists_connected_agents_and_says_what_one_account_cannot_prevent(folder):
    assert looks(folder, "agent") == looks(folder, "agents") == []
    assert folder.run("connect", "codex", "--require-plan", "--yes").code == 0
    (check,) = looks(folder, "agent")
    assert check["value"] == "Codex connected (project, a plan is required)"
    assert check["status"] == "ok"
    (account,) = looks(folder, "agents")
    assert account["status"] == "warning"
    assert "write to the log and use any name" in account["problem"]
    (folder.path / ".codex" / "config.toml").write_text("")
    (folder.path / ".agents/skills/leadhand/SKILL.md").write_text("mine")
    (check,) = looks(folder, "agent")
    assert (check["status"], "SKILL.md was changed since" in check["problem"]) == ("warning", True)
    assert check["fix"] == "Connect again: leadhand connect codex"


def test_doctor_says_that_it_runs_in_the_session_of_an_agent(folder, monkeypatch):
    monkeypatch.setenv("CLAUDECODE", "1")
    (check,) = looks(folder, "agent session")
    assert "a session of claude-code, which approves nothing" in check["value"]


def test_code_that_is_not_trusted_yet_is_named(folder):
    """The MCP server does not start before: the person learns that now, and not from the agent."""
    (folder.path / "leadhand.toml").write_text('[project]\nworkers = ["workers.py"]\n')
    done = folder.run("connect", "claude", "--yes", LEADHAND_TRUST="")
    assert (done.code, "leadhand trust" in done.err) == (0, True)
