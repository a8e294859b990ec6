"""`[fleet.forge]` becomes a client and the rules of the flow; `doctor` tries it."""

import pytest

from leadhand.errors import UsageError
from leadhand.fleet.commands.doctor import checks
from leadhand.fleet.configuration import config_of
from leadhand.fleet.forge.rules import ForgeRules, key_for
from leadhand.fleet.gate.ci_gate import CiRules
from leadhand.settings import load_settings
from tests.fleet.forge.standin.github import TOKEN, GitHubStandIn
from tests.fleet.places import make_repo

BASE = """
[fleet]
repo = "user"
gate = ["true"]
{fleet}
[fleet.forge]
repository = "acme/shop"
token = "env:FORGE_TOKEN"
{forge}
[coders.house]
kind = "command"
command = ["true", "{{brief_file}}"]
"""


def settings_of(folder, forge="", fleet=""):
    if not (folder / "user").exists():
        make_repo(folder / "user")
    (folder / "leadhand.toml").write_text(BASE.format(fleet=fleet, forge=forge))
    return load_settings(environ={"HOME": str(folder)}, folder=folder)


def test_the_table_becomes_rules(tmp_path):
    words = 'writes = ["src/**"]\nmerge = "host"\nchecks = ["ci"]\nstart = ["maintain", "ann"]'
    setup = config_of(settings_of(tmp_path, words)).forge
    assert setup.rules == ForgeRules(
        writes=("src/**",), merge="host", checks=("ci",), start=("maintain", "ann")
    )
    assert setup.listen is None
    words += '\nlisten = "127.0.0.1:8787"\nwebhook_secret = "env:HOOK"'
    assert config_of(settings_of(tmp_path, words)).forge.listen is not None


@pytest.mark.parametrize(
    ("forge", "fleet", "words"),
    [
        ("", "", "what the task of an issue may write"),
        ('writes = ["src/**"]', 'publish = "out"', "remove publish and pull_request"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, forge, fleet, words):
    with pytest.raises(UsageError, match=words):
        config_of(settings_of(tmp_path, forge, fleet))


@pytest.mark.parametrize(
    ("start", "user", "level", "may"),
    [
        (("write",), "ann", "write", True),
        (("write",), "ann", "admin", True),
        (("write",), "ann", "triage", False),
        (("write",), "ann", "odd", False),
        (("none",), "ann", "none", False),
        (("@Ann",), "ann", "none", True),
        (("ann",), "bob", "admin", False),
    ],
)
def test_who_may_start_work(start, user, level, may):
    assert ForgeRules(start=start).may_start(user, level) is may


def test_keys_differ_with_their_parts():
    assert (
        len({key_for("pull", "a", "bc"), key_for("pull", "ab", "c"), key_for("x", "a", "bc")}) == 3
    )


@pytest.mark.parametrize(("level", "problem"), [("write", ""), ("read", "cannot push")])
def test_doctor_signs_in_and_looks_at_the_access(tmp_path, monkeypatch, level, problem):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    host = GitHubStandIn()
    host.access["leadhand-bot"] = level
    with host.serving():
        words = f'writes = ["src/**"]\napi = "{host.url}"'
        found = {each.what: each for each in checks(settings_of(tmp_path, words))}
    said = found["code host"]
    assert f"as leadhand-bot ({level} access)" in str(said)
    assert problem in str(said)


CI = """writes = ["src/**"]
[fleet.ci]
checks = ["build", "test"]
"""


def test_ci_as_the_gate(tmp_path):
    """Both by default; the queue goes no further ahead than CI; the files of CI are protected."""
    config = config_of(settings_of(tmp_path, CI + "candidates = 5", 'flaky = ["test", "test_a"]'))
    assert config.ci == CiRules(checks=("build", "test"), flaky=("test",), candidates=5)
    assert config.rules.slots == 5
    assert config.gate.commands == (("true",),)
    assert ".github/workflows/**" in config.protected
    config = config_of(settings_of(tmp_path, CI + 'where = "remote"\ntime = "1 hour"'))
    assert config.ci.time_s == 3600
    assert config.gate.commands == ()
    config = config_of(settings_of(tmp_path, CI + 'where = "local"'))
    assert config.ci is None
    assert config.rules.slots == config.gates
    assert config.protected == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[fleet.ci]\nchecks = []", "checks must name at least one check"),
        ("[fleet.ci]\nwhere = 'both'", "checks"),
        ("[fleet.ci]\nchecks = ['a']\naccept = ['cancelled']", "accept"),
        ("[fleet.ci]\nchecks = ['a']\ncandidates = 0", "candidates"),
        ("[fleet.ci]\nchecks = ['a']", "needs a code host that runs checks"),
    ],
)
def test_what_ci_cannot_be_is_refused(tmp_path, text, words):
    make_repo(tmp_path / "user")
    base = BASE.partition("[fleet.forge]")[0].format(fleet="") + text
    coder = '\n[coders.house]\nkind = "command"\ncommand = ["true", "{brief_file}"]\n'
    (tmp_path / "leadhand.toml").write_text(base + coder)
    with pytest.raises(UsageError, match=words):
        config_of(load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path))
