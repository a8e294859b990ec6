"""Settings: who wins, where each value came from, and what is refused."""

import os
import re

import pytest

from leadhand.codec.tables import keys
from leadhand.errors import NotAllowed, UsageError
from leadhand.settings import load_settings
from leadhand.settings.folders import make_store_folder
from leadhand.settings.schema import SCHEMAS
from tests.support.need import need


def load(folder, flags=None, **env):
    return load_settings(flags, environ={"HOME": str(folder / "home"), **env}, folder=folder)


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_defaults(tmp_path):
    """Nothing configured: the database lies below the working folder."""
    found = load(tmp_path)
    assert found.store == tmp_path / ".leadhand" / "leadhand.db"
    assert (found.root, found.workers, found.files) == (tmp_path, (), ())
    assert found.origin("project.store") == "default"


def test_the_stronger_source_wins_for_each_key(tmp_path):
    """Flag, variable, leadhand.toml, pyproject.toml, user: five sources, one key each left."""
    names = ["attempts", "concurrency", "steps", "planner_calls", "planner_rounds"]

    def table(level, count):
        return "".join(f"{key} = {level}\n" for key in names[:count])

    user = write(tmp_path, "home/.config/leadhand/config.toml", f"[policy]\n{table(1, 5)}")
    project = write(tmp_path, "pyproject.toml", f"[tool.leadhand.policy]\n{table(2, 4)}")
    own = write(tmp_path, "leadhand.toml", f"[policy]\n{table(3, 3)}")
    env = {"LEADHAND_POLICY__ATTEMPTS": "4", "LEADHAND_POLICY__CONCURRENCY": "4"}
    found = load(tmp_path, {"policy.attempts": 5, "policy.steps": None}, **env)
    values = [getattr(found.policy, keys(SCHEMAS["policy"])[key].name) for key in names]
    assert values == [5, 4, 3, 2, 1]
    origins = [found.origin(f"policy.{key}") for key in names]
    assert origins == [
        "flag --attempts",
        "LEADHAND_POLICY__CONCURRENCY",
        str(own),
        str(project),
        str(user),
    ]
    assert found.files == (own, project, user)


def test_the_users_folder_follows_xdg(tmp_path):
    write(tmp_path, "xdg/leadhand/config.toml", "[project]\nactor = 'Ada'\n")
    assert load(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg")).actor == "Ada"


def test_files_are_found_upwards_and_paths_are_relative_to_them(tmp_path):
    write(tmp_path, "leadhand.toml", "[project]\nworkers = ['w.py', 'pkg.mod', 'sub/x.py']\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = load(below)
    assert found.root == tmp_path
    assert found.store == tmp_path / ".leadhand" / "leadhand.db"
    assert found.workers == (str(tmp_path / "w.py"), "pkg.mod", str(tmp_path / "sub" / "x.py"))
    flagged = load(below, {"project.workers": ["w.py"], "project.store": "x.db"})
    assert flagged.workers == (str(below / "w.py"),)
    assert flagged.store == below / "x.db"


def test_a_pyproject_without_our_table_is_somebody_elses(tmp_path):
    write(tmp_path, "pyproject.toml", "[tool.leadhand.project]\nactor = 'outer'\n")
    write(tmp_path, "inner/pyproject.toml", "[project]\nname = 'x'\n")
    found = load(tmp_path / "inner")
    assert found.actor == "outer"
    assert found.root == tmp_path


def test_declared_workers_keep_their_folder(tmp_path):
    write(tmp_path, "leadhand.toml", "[workers.a]\ncommand = ['true']\n")
    write(
        tmp_path,
        "home/.config/leadhand/config.toml",
        "[workers.a]\nurl='x'\n[workers.b]\nurl='y'\n",
    )
    found = load(tmp_path)
    assert found.declared == {"a": {"command": ["true"]}, "b": {"url": "y"}}
    assert found.folders["a"] == tmp_path
    assert found.folders["b"] == tmp_path / "home" / ".config" / "leadhand"


def test_variables(tmp_path):
    found = load(
        tmp_path,
        LEADHAND_WORKERS="a.py, pkg.b",
        LEADHAND_ACTOR="42",
        LEADHAND_POLICY__TIMEOUT="90s",
        LEADHAND_POLICY__REVIEW="true",
        LEADHAND_POLICY__RESOURCES='{"gpu": 2}',
        LEADHAND_NOTIFY__COMMAND='["tell", "{text}"]',
        LEADHAND_PLANNER="",
        LEADHAND_DEBUG="1",
    )
    assert found.workers == (str(tmp_path / "a.py"), "pkg.b")
    assert (found.actor, found.planner) == ("42", "")
    assert (found.policy.timeout_s, found.policy.review) == (90, True)
    assert found.policy.resources == {"gpu": 2}
    assert found.notify.command == ("tell", "{text}")


WRONG = {
    "unknown table": ("[polcy]\n", 'has no table "polcy". Did you mean "policy"?'),
    "unknown key": ("[policy]\nconcurency = 1\n", '[policy] has no key "concurency". Did you mean'),
    "unlike anything": (
        "[project]\nzzzzzz = 1\n",
        "There are: name, environment, store, workers, planner, actor.",
    ),
    "not TOML": ("[project\n", "is not TOML"),
    "no table": ("policy = 3\n", "policy must be a table"),
    "worker not a table": ("workers = ['a.py']\n", "workers must be a table"),
    "worker a list": ("[workers]\na = ['x']\n", "[project] workers"),
    "text for number": ("[policy]\nattempts = 'three'\n", "attempts must be a whole number"),
    "zero": ("[policy]\nattempts = 0\n", "attempts must be a whole number from 1"),
    "true is no number": ("[policy]\nbudget = true\n", "budget must be a number"),
    "bad duration": ("[policy]\ntimeout = '5'\n", "timeout"),
    "no duration": ("[policy]\ntimeout = 0\n", "longer than nothing"),
    "bad risk": ("[policy]\nauto_risk = 'some'\n", "must be one of low, medium, high, critical"),
    "shell string": ("[notify]\ncommand = 'rm -rf x'\n", "must be a list of arguments"),
    "webhook": ("[notify]\nwebhook = 'ftp://x'\n", "https://"),
    "secret in place of a reference": (
        "[notify]\nwebhook_secret = 'hunter2'\n",
        "webhook_secret must name where the secret is",
    ),
    "password in place of a reference": (
        "[notify.email]\nserver='a:1'\nsender='b'\npassword='hunter2'\n",
        "email.password must name where the secret is",
    ),
    "mail server without a port": (
        "[notify.email]\nserver='smtp'\nsender='b'\n",
        "email.server must be a name with a port",
    ),
    "public address without TLS": (
        "[server]\naddress='http://leadhand.example'\n",
        "address must begin with https://",
    ),
    "public address with a path": ("[server]\naddress='https://x.example/y'\n", "address must be"),
    "slack name": (
        "[server.people.ann]\nrole='viewer'\ntoken='sha256:" + "0" * 64 + "'\nslack='@ann'\n",
        "a member id of Slack",
    ),
    "jitter": ("[policy]\njitter = 2\n", "from 0 to 1"),
    "factor": ("[policy]\nbackoff_factor = 0.5\n", "from 1"),
    "resources": ("[policy]\nresources = {gpu = 0}\n", "whole number from 1"),
    "store": ("[project]\nstore = ''\n", "store must be a text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_sense_is_refused_with_its_file(tmp_path, case):
    text, words = WRONG[case]
    path = write(tmp_path, "leadhand.toml", text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert "hunter2" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_an_unknown_variable_of_ours_is_refused_and_others_are_not(tmp_path):
    load(tmp_path, LEADHAND_SOMETHING="1")
    with pytest.raises(UsageError, match=r"LEADHAND_POLICY__TIMEUOT.*Did you mean .timeout"):
        load(tmp_path, LEADHAND_POLICY__TIMEUOT="1")
    with pytest.raises(UsageError, match="LEADHAND_POLCY__TIMEOUT"):
        load(tmp_path, LEADHAND_POLCY__TIMEOUT="1")


@pytest.mark.parametrize("name", ["leadhand.toml", "pyproject.toml"])
def test_a_settings_file_that_is_no_file_does_not_give_way_to_one_above(tmp_path, name):
    """A link to nothing and a folder are errors: the settings above have another store."""
    (tmp_path / "leadhand.toml").write_text('[project]\nactor = "above"\n')
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / name).symlink_to("absent.toml")
    said = f"{inner / name}: is a link to absent.toml, which does not exist"
    with pytest.raises(UsageError, match=re.escape(said)):
        load(inner)
    (inner / name).unlink()
    (inner / name).mkdir()
    with pytest.raises(UsageError, match=re.escape(f"{inner / name}: is a folder")):
        load(inner)


def test_settings_of_a_stranger_are_refused(tmp_path):
    """They name code to run. A file in the folder itself is its owner's business."""
    need(os.geteuid() == 0, "root, to give files away")
    path = write(tmp_path, "leadhand.toml", "")
    below = tmp_path / "mine"
    below.mkdir()
    os.chown(path, 12345, 12345)
    load(tmp_path)
    with pytest.raises(NotAllowed, match="belongs to another user"):
        load(below)
    os.chown(below, 12345, 12345)
    load(below)


def test_a_store_folder_is_made_with_its_gitignore(tmp_path):
    store = tmp_path / ".leadhand" / "leadhand.db"
    make_store_folder(store)
    assert (tmp_path / ".leadhand" / ".gitignore").read_text() == "*\n"
    make_store_folder(store)
    make_store_folder(tmp_path / "other" / "x.db")
    assert not (tmp_path / "other").exists()


def test_every_policy_key_fills_a_field(tmp_path):
    """A key that fills nothing would be a setting that is silently ignored."""
    from leadhand.core.policy import Policy

    fields = set(Policy.__struct_fields__)
    filled = [each.name for each in keys(SCHEMAS["policy"]).values()]
    assert set(filled) <= fields
    assert len(set(filled)) == len(filled)
    assert fields - set(filled) == {
        "inline_bytes",
        "rules",
        "reviewers",
        "approvers",
        "agent_risk",
        "approval_s",
    }


# --- review --------------------------------------------------------------------------------

KEY = "ed25519:" + "A" * 43 + "="


def review_settings(tmp_path, text):
    (tmp_path / "leadhand.toml").write_text(text)
    return load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)


def test_rules_reviewers_and_approvers_become_policy(tmp_path):
    """What runs record: rules in order, reviewers by name, people with their keys."""
    text = f"""
[review]
rules = [{{risk = "high", then = "two"}}, {{effects = ["pay"], then = "refuse", name = "no"}}]
reviewers = ["checks:look"]
expires = "8 hours"
key = "ann.key"

[approvers]
ann = "{KEY}"
"""
    found = review_settings(tmp_path, text)
    assert [rule.then for rule in found.policy.rules] == ["two", "refuse"]
    assert found.policy.rules[1].effects == ("pay",)
    assert found.policy.reviewers == ("checks:look",)
    assert found.policy.approval_s == 8 * 3600
    assert found.policy.approvers == {"ann": KEY}
    assert found.approver_key == tmp_path / "ann.key"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[review]\nrules = 3", "must be a list of rules"),
        ("[review]\nrules = [{rsik = 'high'}]", 'did you mean "risk"'),
        ("[review]\nrules = [{risk = 'huge'}]", "one of low"),
        ("[review]\nrules = [{then = 'three'}]", "it is one of allow"),
        ("[review]\nrules = [{workers = 'one'}]", "has an invalid rule"),
        ("[review]\nrules = [{cost_over = -1}]", "negative"),
        ("[review]\nreviewers = 'checks:look'", "must be a list"),
        ("[review]\nreviewers = ['checks']", "module:function"),
        ("[review]\nexpires = 'soon'", "expires"),
        ("[review]\nrule = []", 'Did you mean "rules"'),
        ("[approvers]\nann = 'ed25519:abc'", "must be a public key"),
        ("[approvers]\nann = 3", "must be a public key"),
    ],
)
def test_what_makes_no_sense_is_an_error_with_its_place(tmp_path, text, said):
    """A rule that is silently ignored is no rule."""
    with pytest.raises(UsageError, match=said) as raised:
        review_settings(tmp_path, text)
    assert "leadhand.toml" in str(raised.value)
