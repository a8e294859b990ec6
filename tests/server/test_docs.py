"""The examples of docs/reference/server.md that speak to a server are run, as they stand."""

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from leadhand.cli.group import group
from leadhand.server.rules import API, RULES
from tests.support.cli import environment
from tests.support.need import need
from tests.support.serving import process, project

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "server.md"


@pytest.mark.real
def test_the_examples_run(tmp_path):
    """Every line ends well; what is shown is JSON, events or figures."""
    need(shutil.which("curl"), "curl")
    project(tmp_path)
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "set -eu\n" + "".join(block for block in blocks if "api " in block)
    server = process(tmp_path)
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env=environment(tmp_path, URL=server.url, TOKEN=server.token),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr + done.stdout
    for word in (
        '"role":"approver"',
        '"decision":"let through"',
        "leadhand_runs",
        "event: RunStarted",
    ):
        assert word in done.stdout, word


def commands(command, path=()):
    """Every command of the terminal that does something by itself."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if not found.hidden:
            yield from commands(found, (*path, name))


def test_every_command_has_a_route_or_a_reason():
    """The table names each command once, routes that exist, and what the API lacks."""
    text = PAGE.read_text().partition("## Commands and routes")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(told) == sorted(commands(group))
    known = {f"{rule.method} {rule.path.removeprefix(API)}" for rule in RULES}
    named = [route for row in rows for route in re.findall(r"`([^`]+)`", row[1])]
    assert set(named) <= known
    assert all(len(row) == 3 and row[2] for row in rows if row[1] == "none")
    served = {name for row in rows if row[1] != "none" for name in re.findall(r"`([^`]+)`", row[0])}
    assert {"export", "verify", "fleet submit", "fleet drain", "library save"} <= served
