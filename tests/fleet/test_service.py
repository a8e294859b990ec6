"""A fleet from its settings: what each coder is given, and what it costs."""

import json
import sys

import pytest

from leadhand.errors import UsageError
from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.configuration import coder_price, config_of, crew_of
from leadhand.fleet.settings import CoderSettings
from leadhand.fleet.workspace.slots import make_checkouts_folder
from leadhand.models.messages import Usage
from leadhand.settings import load_settings
from leadhand.workers.sandbox.sandbox import Sandbox
from tests.fleet.places import make_repo, run_git

FLEET = '[fleet]\ngate = ["true"]\nsandbox = "{sandbox}"\n'
CLAUDE = f'[coders.fast]\nkind = "claude"\nprogram = "{sys.executable}"\nkey = "MY_KEY"\n'
CODEX = f'[coders.able]\nkind = "codex"\nprogram = "{sys.executable}"\ntier = 2\nkey = "OTHER"\n'
HOUSE = (
    '[coders.house]\nkind = "command"\ntier = 3\nkey = "HOUSE_KEY"\nhosts = ["api.example.com"]\n'
    'command = ["{root}/agent", "{brief_file}"]\n'
)
ENV = {"MY_KEY": "one-secret", "OTHER": "two-secret", "HOUSE_KEY": "three-secret"}


def made(folder, text, sandbox):
    (folder / "leadhand.toml").write_text(FLEET.format(sandbox=sandbox) + text)
    (folder / "repo").mkdir()
    settings = load_settings(environ={"HOME": str(folder)}, folder=folder)
    config = config_of(settings, folder / "repo", ENV)
    return config, crew_of(settings, ENV)(None)


def launched(coder, folder, sandbox):
    slot, home = folder / "slot", folder / "home"
    assignment = Assignment(run="r", task="t", brief="Do it.", model="m")
    return coder.launch(assignment, slot, home, sandbox)


def test_in_a_sandbox_no_agent_holds_the_key_of_its_provider(tmp_path):
    """The proxy adds it; a command has its own, and only the hosts that are named."""
    (tmp_path / "agent").write_text("")
    config, crew = made(tmp_path, CODEX + HOUSE + CLAUDE, "auto")
    assert [name for name, _coder, _model in crew] == ["coder", "coder@able", "coder@house"]
    boxed = Sandbox(kind="landlock", proxy=tmp_path / "door")
    for _name, coder, _model in crew[:2]:
        launch = launched(coder, tmp_path, boxed)
        told = json.dumps([launch.argv, dict(launch.env), coder._env])
        assert "secret" not in told
        assert f"/{coder.name}" in told, "by its route"
    routes = {name: door._routes for name, door in config.doors.items()}
    assert {name: list(each) for name, each in routes.items()} == {
        "fast": ["fast"],
        "able": ["able"],
        "house": [],
    }
    assert routes["fast"]["fast"].headers == {"x-api-key": "one-secret"}
    assert routes["able"]["able"].headers == {"authorization": "Bearer two-secret"}
    hosts = {name: door._hosts for name, door in config.doors.items() if door._hosts}
    assert hosts == {"house": {("api.example.com", 443)}}
    house = crew[2][1]
    assert house._env == {"HOUSE_KEY": "three-secret"}
    assert launched(house, tmp_path, boxed).argv[0] == str(tmp_path / "agent")


def test_the_files_that_a_command_names_can_be_read_by_it(tmp_path):
    """And only the files: a folder may hold the fleet's own database."""
    (tmp_path / "agent").write_text("")
    command = '["sh", "{root}/agent", "{root}", "{root}/none", "{brief_file}"]'
    text = f'[coders.own]\nkind = "command"\ncommand = {command}\n'
    _config, crew = made(tmp_path, text, "auto")
    shown = launched(crew[0][1], tmp_path, Sandbox(kind="landlock")).readable
    assert tmp_path / "agent" in shown
    assert tmp_path not in shown
    assert tmp_path / "none" not in shown


def test_without_a_sandbox_each_program_finds_its_key_where_it_looks(tmp_path):
    config, crew = made(tmp_path, CODEX + CLAUDE, "none")
    assert not config.doors
    assert crew[0][1]._env == {"ANTHROPIC_API_KEY": "one-secret"}
    assert crew[1][1]._env["CODEX_API_KEY"] == "two-secret"


def test_an_agent_that_could_not_reach_its_model_is_refused_before_anybody_works(tmp_path):
    keyless = CLAUDE.replace('key = "MY_KEY"\n', "")
    with pytest.raises(UsageError, match=r"coders\.fast.*cannot reach its model.*key = "):
        made(tmp_path, keyless, "auto")
    (tmp_path / "repo").rmdir()
    made(tmp_path, keyless, "none")
    (tmp_path / "repo").rmdir()
    made(tmp_path, keyless + 'url = "http://127.0.0.1:9/v1"\n', "auto")


def test_settings_reach_the_fleet(tmp_path):
    more = (
        'gate_time = "5 s"\nagents = 9\ngates = 5\nstrict = true\nbatch = 4\ncache = "wheels"\n'
        'setup = ["make deps"]\nprotected = ["a/**"]\nreviewer = "able"\ndaily_spend = 3\n'
        'time = "1 min"\nturns = 7\ncost = 2\nepics = "wishes"\n'
    )
    config, _crew = made(tmp_path, more + CLAUDE + CODEX, "auto")
    assert config.gate.commands == (("true",),)
    assert (config.gate.time_s, config.gate.setup) == (5.0, (("make", "deps"),))
    assert config.gate.env["LEADHAND_CACHE"] == str(tmp_path / "wheels")
    assert config.readable == (tmp_path / "wheels",)
    assert (config.agents, config.gates, config.rules.slots) == (9, 5, 5)
    assert (config.rules.strict, config.rules.batch_max) == (True, 4)
    assert (config.reviewer, config.daily, config.protected) == ("able", 3.0, ("a/**",))
    assert config.limits[:2] == (60.0, 300.0)
    assert (config.limits.turns, config.limits.cost) == (7, 2.0)
    assert config.epics == tmp_path / "wishes"


def test_checkouts_lie_below_no_folder_with_a_dot_unless_that_is_said(tmp_path):
    """Suites of real projects fail there."""
    for name, more, place in (
        ("a", "", "leadhand-checkouts"),
        ("b", 'checkouts = "here"\n', "here"),
        ("c", 'folder = "all"\n', "all"),
    ):
        (tmp_path / name).mkdir()
        config, _crew = made(tmp_path / name, more + CLAUDE, "auto")
        assert config.checkouts == tmp_path / name / place
    (tmp_path / "d").mkdir()
    with pytest.raises(UsageError, match="checkouts is the repository itself"):
        made(tmp_path / "d", 'checkouts = "repo"\n' + CLAUDE, "auto")


def test_the_folder_of_checkouts_is_left_out_by_git(tmp_path):
    """Nobody's `git status` shows it, and what is in a folder already stays as it is."""
    make_repo(tmp_path / "repo")
    make_checkouts_folder(tmp_path / "repo" / "leadhand-checkouts")
    assert run_git(tmp_path / "repo", "status", "--porcelain", "-uall") == ""
    (tmp_path / "mine").mkdir()
    make_checkouts_folder(tmp_path / "mine")
    assert not list((tmp_path / "mine").iterdir())


def test_certificates_are_shown_and_named_in_the_variables_of_tools(tmp_path):
    """To set-up, gates and agents; what `env` says comes first."""
    file = tmp_path / "company.pem"
    file.write_text("# ours\n-----BEGIN CERTIFICATE-----\n")
    more = 'certificates = "company.pem"\nenv = {PIP_CERT = "/own"}\n'
    config, crew = made(tmp_path, more + CLAUDE, "auto")
    assert file in config.readable
    own = crew[0][1]._env
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE"):
        assert (config.gate.env[name], own[name]) == (str(file), str(file))
    assert config.gate.env["PIP_CERT"] == "/own"


@pytest.mark.parametrize(("text", "words"), [(None, "cannot be read"), ("no", "has no certif")])
def test_a_file_without_certificates_is_refused(tmp_path, text, words):
    if text is not None:
        (tmp_path / "company.pem").write_text(text)
    with pytest.raises(UsageError, match=rf"\[fleet\] certificates: .*{words}.*Fix: "):
        made(tmp_path, 'certificates = "company.pem"\n' + CLAUDE, "auto")


@pytest.mark.parametrize(
    ("coders", "whose"),
    [
        (CODEX + CLAUDE + "tier = 2\n", '"fast"'),
        (CODEX + CLAUDE + "tier = 3\n", '"fast"'),
        (CODEX, "itself"),
    ],
)
def test_a_reviewer_that_is_no_stronger_than_who_writes_is_refused(tmp_path, coders, whose):
    with pytest.raises(UsageError, match=f'"able" is no stronger than {whose}.*Fix: '):
        made(tmp_path, 'reviewer = "able"\n' + coders, "auto")


@pytest.mark.parametrize(("kind", "model"), [("codex", "gpt-5"), ("claude", "claude-haiku-4-5")])
def test_what_agents_cost_is_reckoned_from_their_tokens(kind, model):
    own = CoderSettings(name="a", kind=kind, price_in=2.0, price_out=8.0)
    assert coder_price(own)("whatever", Usage(1_000_000, 500_000)) == pytest.approx(6.0)
    pytest.importorskip("genai_prices")
    published = coder_price(CoderSettings(name="a", kind=kind))
    assert published(model, Usage(1_000_000)) > published(model, Usage(1_000_000, 0, 900_000)) > 0
    assert published("nobody-knows-this-model", Usage(1_000_000)) == 0.0


def test_agents_are_given_their_prices(tmp_path):
    prices = "price_in = 2.0\nprice_out = 8.0\n"
    _config, crew = made(tmp_path, CODEX + prices + CLAUDE + prices, "none")
    for _name, coder, _model in crew:
        assert coder._price("whatever", Usage(1_000_000)) == 2.0


def test_the_proxy_of_the_network_comes_from_the_settings(tmp_path, monkeypatch):
    """Its password is in a variable; an address that holds one is refused, and not shown."""
    monkeypatch.setitem(ENV, "PROXY_LOGIN", "ann:open sesame")
    out = 'proxy = "http://proxy.example.com:3128"\nproxy_login = "PROXY_LOGIN"\n'
    more = f'{out}no_proxy = [".internal"]\nsetup_hosts = ["index.example.com"]\n'
    config, _crew = made(tmp_path, more + CLAUDE, "auto")
    for door in config.doors.values():
        assert (door._upstream.host, door._upstream.port) == ("proxy.example.com", 3128)
        assert door._upstream.login == "ann:open sesame"
        assert not door._upstream.leads_to("x.internal")
    assert set(config.doors) == {"fast", "/setup"}
    monkeypatch.delitem(ENV, "PROXY_LOGIN")
    (tmp_path / "repo").rmdir()
    with pytest.raises(UsageError, match="PROXY_LOGIN is not set"):
        made(tmp_path, more + CLAUDE, "auto")
    (tmp_path / "repo").rmdir()
    wrong = 'proxy = "http://ann:sesame@proxy.example.com"\n'
    with pytest.raises(UsageError, match="no address of a proxy") as told:
        made(tmp_path, wrong + CLAUDE, "auto")
    assert "sesame" not in str(told.value)
