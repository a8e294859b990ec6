"""`[fleet]` and `[coders]`: what is read, and what is refused with its place and fix."""

import re
from pathlib import Path

import pytest

from leadhand.app.documents import setting_rows
from leadhand.codec.tables import keys
from leadhand.errors import UsageError
from leadhand.fleet.configuration import config_of
from leadhand.fleet.forge.settings import ForgeTable, open_forge
from leadhand.fleet.machines.settings import MachinesTable
from leadhand.fleet.settings import SECTION, CoderTable, FleetTable, fleet_of
from leadhand.settings import load_settings


def load(folder, text, **env):
    (folder / "leadhand.toml").write_text(text)
    return load_settings(environ={"HOME": str(folder / "home"), **env}, folder=folder)


def test_a_fleet_and_its_coders_are_read(tmp_path):
    found = load(
        tmp_path,
        """
[fleet]
repo = "shop"
gate = ["make check", ["python", "-m", "pytest", "-q"]]
gate_time = "10 minutes"
setup = "pip install -e ."
cache = "~/wheels"
agents = 12
strict = true
protected = [".github/**"]
reviewer = "able"
daily_spend = 40
time = "1 hour"
env = {TOKEN = "hush"}

[coders.fast]
kind = "claude"
key = "ANTHROPIC_API_KEY"

[coders.able]
kind = "command"
tier = 2
command = ["./agent", "{brief_file}"]
hosts = ["api.example.com:443"]
""",
        LEADHAND_FLEET__GATES="7",
    )
    fleet = fleet_of(found)
    assert fleet.repo == tmp_path / "shop"
    assert fleet.gate == (("make", "check"), ("python", "-m", "pytest", "-q"))
    assert (fleet.gate_time, fleet.time, fleet.silence) == (600, 3600, 300)
    assert fleet.setup == (("pip", "install", "-e", "."),)
    assert (fleet.agents, fleet.gates, fleet.strict, fleet.daily_spend) == (12, 7, True, 40.0)
    assert fleet.coders["able"].command == ("./agent", "{brief_file}")
    assert fleet.coders["able"].tier == 2
    rows = {key: (value, origin) for key, value, origin in setting_rows(found)}
    assert rows["fleet.agents"] == (12, str(tmp_path / "leadhand.toml"))
    assert rows["fleet.gates"] == (7, "LEADHAND_FLEET__GATES")
    assert "hush" not in str(rows), "a variable's value may be a secret"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fleet]\nagent = 3", '[fleet] has no key "agent". Did you mean "agents"?'),
        ("[fleet]\nagents = -1", "agents must be a whole number from 0 to 2000"),
        ('[fleet]\ngate = ["make a && make b"]', "needs a shell, and none reads it"),
        ("[fleet]\ngate = []", "gate must be a list of commands"),
        ('[fleet]\ngate = ["make \'"]', "gate has a command that cannot be split"),
        ('[fleet]\nsandbox = "docker"', "sandbox must be one of auto, bubblewrap"),
        ('[fleet]\ngate_time = "soon"', "gate_time"),
        ('[fleet]\ngate_time = "-1 s"', "gate_time"),
        ('[fleet]\ngate_time = "0 s"', "gate_time must be above 0"),
        ("[fleet]\ntime = 0", "time must be above 0"),
        ('[fleet]\nkeep = ["node_modules", "../x"]', "keep must be in the repository"),
        ('[fleet]\nkeep = ["."]', "keep must be in the repository"),
        ('[fleet]\nchangelog = "/x.md"', "changelog must be in the repository"),
        ('[fleet]\nfailures = "FAILED"', "failures must have a group"),
        ("[fleet]\ndaily_spend = -1", "daily_spend must be US dollars"),
        ("[fleet]\nenv = {A = 1}", "env must be a table of texts"),
        ("[fleet]\nstrict = 1", "strict must be true or false"),
        ("[coders]\nfast = 3", "[coders.fast] must be a table"),
        ("[coders.Fast]\nkind = 'codex'", "a name has small letters"),
        ("[coders.a]\nkind = 'gpt'", "[coders.a]: kind must be one of claude, codex, command"),
        ("[coders.a]\nkind = 'codex'\nmodle = 'x'", "modle is not known; did you mean model?"),
        ("[coders.a]\nkind = 'command'", "its command is missing. Fix: write command ="),
        ("[coders.a]\nkind = 'codex'\ncommand = ['x']", 'command goes with kind = "command"'),
        ("[coders.a]\nkind = 'codex'\nkey = 'sk-123'", "never the key itself"),
        ("[coders.a]\nkind = 'codex'\ntier = 0", "tier must be a whole number from 1"),
        ("[coders.a]\nkind = 'codex'\nhosts = ['http://x']", "is no host"),
        ("[coders.a]\nkind = 'codex'\nhosts = ['a.b:99999']", '"a.b:99999" is no host'),
        ("[coders.a]\nkind = 'codex'\nhosts = ['a.b:0']", '"a.b:0" is no host'),
        ("[coders.a]\nkind = 'codex'\nurl = 'https://'", "url must be the address of a service"),
        (
            "[coders.a]\nkind = 'codex'\nurl = 'https://h:99999'",
            "url must be the address of a service",
        ),
        (
            "[coders.a]\nkind = 'codex'\nurl = 'https://h:x/v1'",
            "url must be the address of a service",
        ),
        ("[coders.a]\nkind = 'codex'\nurl = 'http://[::1'", "url must be the address of a service"),
        ("[coders.a]\nkind = 'codex'\nurl = 'ftp://h'", "url must be the address of a service"),
        ("[coders.a]\nkind = 'codex'\nurl = 'https://me:sk-123@h'", "without a name or a key"),
        ('[fleet]\nsetup_hosts = ["a.b:99999"]', 'setup_hosts has "a.b:99999", which is no host'),
        ('[fleet]\nplan_hosts = ["https://a.b"]', "plan_hosts has"),
        ("[coders.a]\nkind = 'codex'\nprice_in = 'x'", "price_in must be dollars"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(tmp_path, text, said):
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path / "leadhand.toml") in str(caught.value)
    assert "sk-123" not in str(caught.value)


PLANNED = """
[fleet]
repo = "."
gate = ["true"]
planner = {planner}
plan_paths = ["src"]
changelog = "CHANGES.md"

[coders.any]
kind = "command"
command = ["agent", "{{brief_file}}"]
"""


def test_who_plans_is_a_model_a_function_or_a_command(tmp_path, monkeypatch):
    (tmp_path / "plan.py").write_text("def next_wave(told):\n    return told\n")
    told = config_of(load(tmp_path, PLANNED.format(planner='"plan.py:next_wave"')))
    assert told.planner({"a": 1}) == {"a": 1}
    assert told.planning.paths == ("src",)
    assert told.planning.changelog == "CHANGES.md"
    told = config_of(load(tmp_path, PLANNED.format(planner='["python", "plan.py"]')))
    assert told.planner == ["python", str(tmp_path / "plan.py")]
    model = '"anthropic:claude-opus-4-5"'
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x" * 20)
    assert config_of(load(tmp_path, PLANNED.format(planner=model))).planner == model.strip('"')
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(UsageError, match="no key is there"):
        config_of(load(tmp_path, PLANNED.format(planner=model)))
    for planner in ('"nobody"', '"plan.py:no_such"', '"no.py:plan"'):
        with pytest.raises(UsageError):
            config_of(load(tmp_path, PLANNED.format(planner=planner)))


def test_every_setting_of_a_fleet_is_documented():
    """In the tables of docs/reference/settings.md, and nothing else is."""
    text = (Path(__file__).parents[1] / "docs" / "reference" / "settings.md").read_text()
    tables = {
        "[fleet]": FleetTable,
        "[fleet.forge]": ForgeTable,
        "[fleet.machines]": MachinesTable,
        "[coders.NAME]": CoderTable,
    }
    for title, schema in tables.items():
        part = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(keys(schema))


def test_the_hub_of_another_machine_needs_trust(tmp_path):
    """A machine gives a password to the hub, so the address is shown and can be refused."""
    table = '[fleet.machines]\nhub = "https://home.example/hub.git"\ntoken = "file:token"\n'
    found = load(tmp_path, table)
    fleet = fleet_of(found)
    trusted = [(kind, name) for kind, _, name, _ in SECTION.trusted(found, fleet)]
    assert trusted == [("fleet hub", "https://home.example/hub.git")]
    assert SECTION.without(fleet, {"fleet hub": {"https://home.example/hub.git"}}).machines is None
    assert SECTION.private(fleet) == [tmp_path / "token"]


FORGE = """
[fleet.forge]
repository = "acme/shop"
token = "file:secrets/token"
"""


def test_a_code_host_is_read(tmp_path):
    """Files of secrets are relative to the settings, hidden from workers, and need trust."""
    found = load(tmp_path, FORGE)
    forge = fleet_of(found).forge
    assert forge is not None
    assert (forge.kind, forge.repository) == ("github", "acme/shop")
    assert forge.token == f"file:{tmp_path / 'secrets' / 'token'}"
    assert SECTION.private(fleet_of(found)) == [tmp_path / "secrets" / "token"]
    assert [name for _, key, name, _ in SECTION.trusted(found, fleet_of(found))] == [
        "github acme/shop"
    ]
    assert SECTION.without(fleet_of(found), {"code host": {"github acme/shop"}}).forge is None
    rows = {key: value for key, value, _ in setting_rows(found)}
    assert rows["fleet.forge"] == "github acme/shop"


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ('repository = "shop"\ntoken = "env:T"', "repository must name the repository"),
        ('repository = "../x/y"\ntoken = "env:T"', "repository must name the repository"),
        ('repository = "acme/.."\ntoken = "env:T"', "repository must name the repository"),
        ('repository = "acme/shop"', "it has no token"),
        ('repository = "acme/shop"\ntoken = "ghp_secret0000"', "must name where the secret is"),
        ('repository = "acme/shop"\napp = "1"', "app goes with"),
        ('repository = "acme/shop"\napp = "1"\napp_key = "file:k"\ntoken = "env:T"', "app goes"),
        ('repository = "a/b"\ntoken = "env:T"\nlisten = "127.0.0.1:1"', "listen needs a secret"),
        ('kind = "git"', "plain git needs its address"),
        ('kind = "git"\nremote = "https://me:pw@host/x.git"', "without a token in it"),
        ('kind = "git"\nremote = "--upload-pack=x"', "remote must be an address for git"),
        ('kind = "svn"', "kind must be one of github, gitlab, git"),
    ],
)
def test_a_code_host_that_is_wrong(tmp_path, lines, wrong):
    """One message, with the place and the fix, without a secret."""
    with pytest.raises(UsageError, match=wrong) as caught:
        load(tmp_path, f"[fleet.forge]\n{lines}\n")
    assert "leadhand.toml" in str(caught.value)
    assert "ghp_secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ('repository = "acme/shop"\ntoken = "env:T"', "github.com/acme/shop"),
        ('repository = "a/b"\ntoken = "env:T"\napi = "https://git.x/api/v3"', "git.x/a/b"),
        ('repository = "a/b"\napp = "1"\napp_key = "file:k"', "github.com/a/b"),
        ('kind = "gitlab"\nrepository = "a/b/c"\ntoken = "env:T"', "gitlab.com/a/b/c"),
        ('kind = "git"\nremote = "git@host:a/b.git"', "host:a/b.git"),
    ],
)
def test_a_code_host_is_opened(tmp_path, lines, name):
    """Each kind has its client, which sends nothing yet."""
    forge = fleet_of(load(tmp_path, f"[fleet.forge]\n{lines}\n")).forge
    assert forge is not None
    assert open_forge(forge).name == name
