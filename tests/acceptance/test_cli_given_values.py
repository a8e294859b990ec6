"""Values of variables that workers are given are in nothing that is kept or shown."""

import sys
import zipfile

import pytest

from leadhand.audit.redaction import is_kept_out

pytestmark = pytest.mark.real

PASSED = {
    "DATABASE_URL": "postgres://app:hunter-2@db.example.com/shop",
    "SESSION_ID": "0f9a8b7c6d5e4f3a",
    "STRIPE_KEY": "sk_live_51Habcdef",
    "GH_PAT": "ghp_0123456789abcdef",
    "SENTRY_DSN": "https://public1@o1.ingest.example.com/7",
    "PROXY_AUTH": "wholly-letters",
    "REGION": "eu-west-17b",
}
SET = {"PGPASSWORD": "correct horse", "FOO_TOKEN": "tok-1234567", "BUILD": "build-99-xyz"}
OPEN = {"STAGE": "production", "DEBUG": "true", "WORKERS": "8", "SHOWN": "shown-value-77"}

ECHO = """
import base64, json, os, sys, urllib.parse
values = [os.environ[name] for name in sys.argv[1].split(",")]
for value in values:
    print(value, json.dumps(value), urllib.parse.quote(value, safe=""), value.encode().hex())
    print(base64.b64encode(b"user:" + value.encode()).decode())
    for letter in value:  # in small chunks
        sys.stdout.write(letter); sys.stdout.flush()
    print()
    print("error", value, file=sys.stderr)
print("x" * 70000, *values)
"""


def toml(table):
    return ", ".join(f"{name} = {value!r}" for name, value in table.items())


FILES = {"echo.py": ECHO}


@pytest.fixture
def folder(folder):
    names = ",".join([*PASSED, *SET])
    passed = [*PASSED, *[name for name in OPEN if name != "STAGE"]]
    folder.write(
        "leadhand.toml",
        f"""
[workers.echo]
command = ["{sys.executable}", "echo.py", "{names}"]
env = {passed}
set_env = {{{toml(SET | {"STAGE": "production"})}}}
public = ["SHOWN"]
[workers.open]
command = ["{sys.executable}", "echo.py", "{",".join(OPEN)}"]
env = {list(OPEN)}
public = ["SHOWN"]
[workers.fails]
command = ["sh", "-c", "echo $DATABASE_URL >&2; exit 3"]
env = ["DATABASE_URL"]
""",
    )
    return folder


def everything(folder, run):
    """All that is kept and shown, as one text."""
    parts = [
        folder.run("show", run, "--json").out,
        folder.run("logs", run).out,
        folder.run("logs", run, "--json").out,
        folder.run("show", run).out,
    ]
    folder.run("export", run, "-o", "run.zip", **PASSED)
    with zipfile.ZipFile(folder.path / "run.zip") as bundle:
        parts += [bundle.read(name).decode(errors="replace") for name in bundle.namelist()]
    state = folder.path / ".leadhand"
    parts += [
        each.read_bytes().decode(errors="replace") for each in state.rglob("*") if each.is_file()
    ]
    return "\n".join(parts)


def test_no_value_is_kept_or_shown(folder):
    steps = [{"id": "echo", "worker": "echo"}, {"id": "fails", "worker": "fails"}]
    steps[1]["failure_action"] = "continue"
    folder.plan(*steps)
    done = folder.run("run", "plan.json", "--no-input", **PASSED, **OPEN)
    assert done.code in (0, 1), done
    run = folder.latest()["run"]
    text = done.out + done.err + everything(folder, run)
    for name, value in (PASSED | SET).items():
        for form in (value, value.encode().hex()):
            assert form not in text, name
        assert f"[secret:{name}]" in text, name


def test_words_and_public_values_stay(folder):
    folder.plan({"id": "open", "worker": "open"})
    done = folder.run("run", "plan.json", **OPEN)
    assert done.code == 0, done
    for value in OPEN.values():
        assert value in done.out
    assert "[secret:" not in done.out


def test_what_the_plan_says_openly_is_no_secret(folder):
    """A region that is a parameter too is not taken out of the plan, nor is the plan refused."""
    region = PASSED["REGION"]
    folder.plan({"id": "echo", "worker": "echo"}, params={"region": region})
    done = folder.run("run", "plan.json", **PASSED, **OPEN)
    assert done.code == 0, done
    assert region in done.out
    assert PASSED["DATABASE_URL"] not in done.out


@pytest.mark.parametrize(
    ("name", "value", "kept_out"),
    [
        ("X", "1", False),
        ("X", "true", False),
        ("X", "prod", False),
        ("X", "production", False),
        ("X", "eu/west/shop-app", False),
        ("GIT_AUTHOR_NAME", "Ada Lovelace", False),
        ("DB_PASSWORD", "production", True),
        ("X", "correcthorsebatterystaplesword", True),
        ("X", "postgres://a:b@c/d", True),
        ("X", "a1b2c3d4", True),
        ("X", "a1b2c3d", False),
    ],
)
def test_the_rule(name, value, kept_out):
    assert is_kept_out(name, value) == kept_out
