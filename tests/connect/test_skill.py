"""The skill and the plugin are what agents take, and say what is so."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from leadhand.connect.targets import COMMANDS
from leadhand.core.lint.plan import lint

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "src" / "leadhand" / "connect" / "claude"
MARKDOWN = sorted(PLUGINS.glob("**/*.md"))


def front(file):
    """The front matter of a file, and the text below it."""
    _, head, text = file.read_text().split("---\n", 2)
    return yaml.safe_load(head), text


def test_the_skill_keeps_to_the_standard():
    """Agent Skills: a name as the folder's, a description of at most 1,024 characters."""
    head, text = front(PLUGINS / "leadhand" / "SKILL.md")
    assert head["name"] == "leadhand"
    assert 0 < len(head["description"]) <= 1024
    assert len(text.splitlines()) < 500


def test_the_plan_of_the_skill_is_a_good_one():
    text = (PLUGINS / "leadhand" / "SKILL.md").read_text()
    plan = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    assert [str(each) for each in lint(plan, None) if each.level != "note"] == []
    assert {step["worker"] for step in plan["steps"]} == {"caller"}


def test_every_command_of_leadhand_that_is_named_exists():
    from leadhand.cli.group import group

    named = {
        word for file in MARKDOWN for word in re.findall(r"`leadhand ([a-z-]+)", file.read_text())
    }
    assert named <= set(group.list_commands(None))


def test_every_tool_that_is_named_exists():
    from leadhand.mcp.tools import Tools

    words = {w for file in MARKDOWN for w in re.findall(r"`([a-z]+_[a-z_]+)`", file.read_text())}
    assert words - {"for_person", "input_required"} <= {
        tool.name for tool in Tools(None, None).all()
    }


def test_the_commands_have_a_description():
    assert {file.stem for file in (PLUGINS / "leadhand" / "commands").iterdir()} == set(COMMANDS)
    for file in (PLUGINS / "leadhand" / "commands").iterdir():
        assert front(file)[0]["description"]


def test_versions_are_the_package_s():
    text = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"', text, re.MULTILINE)[1]
    for manifest in PLUGINS.glob("*/.claude-plugin/plugin.json"):
        assert json.loads(manifest.read_text())["version"] == version


@pytest.mark.real
@pytest.mark.parametrize("what", [".", "leadhand", "leadhand-gate"])
def test_claude_code_accepts_the_marketplace_and_the_plugins(coders, tmp_path, what):
    folder = ROOT if what == "." else PLUGINS / what
    done = subprocess.run(
        [coders.claude, "plugin", "validate", "--strict", folder],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "DISABLE_AUTOUPDATER": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
