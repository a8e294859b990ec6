"""Of the disk a coder's program shows itself and its own package, wherever it was installed."""

import json
import subprocess

import pytest

from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.claude import ClaudeCoder
from leadhand.fleet.agents.codex import CodexCoder
from leadhand.workers.sandbox.sandbox import Sandbox

PACKAGES = "home/lib/node_modules"
PLACES = {
    "home/bin/agent": "home/bin/agent",
    "opt/agent": "opt/agent",
    "home/.cargo/bin/agent": "home/.cargo/bin/agent",
    f"{PACKAGES}/agent/bin/run.js": f"{PACKAGES}/agent",
    f"{PACKAGES}/@maker/agent/bin/run.js": f"{PACKAGES}/@maker/agent",
    "home/venv/lib/python3/site-packages/agent/_bundled/agent": (
        "home/venv/lib/python3/site-packages/agent"
    ),
}


@pytest.fixture(params=[ClaudeCoder, CodexCoder])
def launched(request, tmp_path, monkeypatch):
    """Makes what is started for a program; the home is a folder of the test's."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def made(program, kind="landlock"):
        coder = request.param(program=program, processes=None, homes=tmp_path / "fleet" / "homes")
        given = Assignment(run="r", task="t", brief="Do it.")
        return coder.launch(given, tmp_path / "slot", tmp_path / "own", Sandbox(kind=kind))

    return made


def put(folder, name, text=""):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("place", PLACES)
def test_what_lies_beside_a_program_is_not_shown(tmp_path, launched, place):
    put(tmp_path, place)
    launch = launched(str(tmp_path / place))
    assert launch.readable == (tmp_path / PLACES[place],)


def test_a_link_leads_to_the_program_and_not_to_what_is_beside_it(tmp_path, launched):
    file = put(tmp_path, f"{PACKAGES}/agent/run.js")
    link = tmp_path / "home" / "bin" / "agent"
    link.parent.mkdir()
    link.symlink_to(file)
    launch = launched(str(link))
    assert launch.argv[0] == str(file), "the link is not to be seen inside"
    assert launch.readable == (file.parent,)
    assert launched(str(link), "none").argv[0] == str(link)


def test_packages_that_a_program_needs_are_shown_where_npm_puts_them(tmp_path, launched):
    """Codex of npm: the program for this machine is a package of its own, beside it."""
    file = put(tmp_path, f"{PACKAGES}/@openai/codex/bin/codex.js")
    needed = {"@openai/codex-linux-x64": "1", "not-installed": "1", "../../../secret": "1"}
    manifest = {"dependencies": {"small": "1"}, "optionalDependencies": needed}
    put(tmp_path, f"{PACKAGES}/@openai/codex/package.json", json.dumps(manifest))
    put(tmp_path, f"{PACKAGES}/@openai/codex-linux-x64/vendor/codex")
    put(tmp_path, f"{PACKAGES}/@openai/codex-linux-x64/package.json", "[broken")
    put(tmp_path, f"{PACKAGES}/small/package.json", '{"dependencies": {"smaller": "1"}}')
    put(tmp_path, f"{PACKAGES}/smaller/package.json", '{"dependencies": {"small": "1"}}')
    put(tmp_path, f"{PACKAGES}/other/secret")
    put(tmp_path, "home/secret")
    names = ("@openai/codex", "small", "@openai/codex-linux-x64", "smaller")
    assert launched(str(file)).readable == tuple(tmp_path / PACKAGES / name for name in names)


def test_packages_that_are_links_are_shown_with_what_they_lead_to(tmp_path, launched):
    """As pnpm installs them."""
    store = f"{PACKAGES}/.pnpm"
    file = put(tmp_path, f"{store}/agent@1/node_modules/agent/run.js")
    put(file.parent, "package.json", '{"optionalDependencies": {"native": "1"}}')
    real = put(tmp_path, f"{store}/native@1/node_modules/native/bin").parent
    link = file.parent.parent / "native"
    link.symlink_to(real)
    assert launched(str(file)).readable == (file.parent, link, real)


@pytest.mark.parametrize("inner", ["home", "fleet/homes"])
def test_no_package_that_holds_a_home_or_the_fleet_is_shown(tmp_path, launched, monkeypatch, inner):
    """Who works inside of such a folder has everything in it."""
    outer = tmp_path / "node_modules" / "agent"
    (outer / inner).mkdir(parents=True)
    if inner == "home":
        monkeypatch.setenv("HOME", str(outer / inner))
    else:
        (tmp_path / "fleet").symlink_to(outer / "fleet")
    file = put(outer, "bin/agent")
    assert launched(str(file)).readable == (file,)


def test_a_program_of_the_system_shows_nothing(launched):
    assert launched("agent").readable == ()


@pytest.mark.real
def test_a_program_in_a_home_runs_and_cannot_read_that_home(tmp_path, launched, kind, bwrap):
    """As the kernel sees it."""
    secret = put(tmp_path, "home/secret", "SECRET")
    program = put(tmp_path, "home/bin/agent", f"#!/bin/sh\necho up; cat {secret}\n")
    slot = tmp_path / "slot"
    slot.mkdir()
    launch = launched(str(program))
    wrapped = Sandbox(kind=kind, bwrap=bwrap).wrap(
        launch.argv, slot, home=tmp_path / "own", readable=launch.readable
    )
    done = subprocess.run(
        wrapped.argv, cwd=wrapped.cwd, env=wrapped.env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "up\n", done.stderr
