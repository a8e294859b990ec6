"""`leadhand fleet init`: settings from a look at many kinds of repositories, hostile ones too."""

import json
import os
import shutil
import tomllib

import pytest

from leadhand.fleet.commands.init import (
    SurveyedRepository,
    ToolPlaces,
    settings_lines,
    tool_places,
)
from leadhand.fleet.repository.toolchain import (
    TEXT_BYTES_MAX,
    CommitFiles,
    detect,
    targets,
    wanted_texts,
)
from leadhand.fleet.settings import SECTION
from leadhand.settings import load_settings
from tests.fleet.places import every_byte, make_repo, run_git
from tests.support.cli import Folder

PYPROJECT = """
[build-system]
requires = ["hatchling"]
[project]
name = "shop"
version = "1"
dependencies = ["httpx"]
optional-dependencies.dev = ["pytest", "ruff"]
[tool.ruff]
line-length = 100
"""
CI = (
    "on: push\njobs:\n  test:\n    steps:\n      - run: pytest -q\n      - run: |\n          more\n"
)
PACKAGE = {
    "scripts": {"test": "node --test", "lint": "eslint ."},
    "devDependencies": {"eslint": "9"},
}
GO_MOD = "module example.com/shop\n\ngo 1.22\n\nrequire example.com/money v1.0.0\n"
CARGO = '[package]\nname = "shop"\nversion = "0.1.0"\n[dependencies]\nserde = "1"\n'
MAKEFILE = ".PHONY: check\nCC := gcc\ncheck: lint test\nlint:\n\ttrue\ntest:\n\tgo test ./...\n"
REPOSITORIES = {
    "python": {
        "pyproject.toml": PYPROJECT,
        "src/shop.py": "x = 1\n",
        "tests/test_shop.py": "def test_it():\n    pass\n",
        ".github/workflows/ci.yml": CI,
    },
    "node": {
        "package.json": json.dumps(PACKAGE),
        "package-lock.json": "{}",
        "shop.test.js": "//\n",
        "Dockerfile": "FROM scratch\n",
    },
    "go": {
        "go.mod": GO_MOD,
        "go.sum": "x\n",
        "shop.go": "package s\n",
        "shop_test.go": "package s\n",
    },
    "rust": {"Cargo.toml": CARGO, "Cargo.lock": "\n", "src/lib.rs": "#[test]\nfn it() {}\n"},
    "make": {
        "Makefile": MAKEFILE,
        "api/go.mod": "module api\n",
        "api/api_test.go": "package api\n",
        "web/package.json": json.dumps(PACKAGE),
        "db/migrations/1.sql": "SELECT 1;\n",
        "deploy/prod.yaml": "replicas: 1\n",
        ".gitlab-ci.yml": "test:\n  script:\n    - make check\n",
    },
    "maven": {
        "pom.xml": "<project/>\n",
        "mvnw": "#!/bin/sh\n",
        "src/main/java/shop/Shop.java": "package shop;\n",
        "src/test/java/shop/TestData.java": "package shop;\nclass TestData {}\n",
        "src/test/java/shop/TestShop.java": "package shop;\nclass TestShop { @Test void a() {} }\n",
    },
    "gradle": {
        "build.gradle.kts": "plugins { java }\n",
        "gradlew": "#!/bin/sh\n",
        "src/test/java/shop/ShopTest.java": "package shop;\nclass ShopTest {}\n",
    },
}
GATES = {
    "python": [["-m", "ruff", "check", "."], ["-m", "pytest", "-q"]],
    "node": [["npm", "run", "lint"], ["npm", "test"]],
    "go": [["go", "vet", "./..."], ["go", "test", "-json", "./..."]],
    "rust": [["cargo", "test", "--locked"]],
    "make": [["make", "check"]],
    "maven": [["mvn", "-B", "-ntp", "-o", "test"]],
    "gradle": [
        ["./gradlew", "--no-daemon", "--console=plain", "--offline", "test", "--rerun-tasks"]
    ],
}
SETUP = {
    "python": [["python3", "-m", "venv", ".venv"], ["-m", "pip", "install", "-e", "./[dev]"]],
    "node": [["npm", "ci"]],
    "go": [["go", "mod", "download"]],
    "rust": [["cargo", "fetch", "--locked"]],
    "make": [],
    "maven": [
        [
            *("mvn", "-B", "-ntp", "-Dtest=TestShop", "-DfailIfNoTests=false"),
            *("-Dsurefire.failIfNoSpecifiedTests=false", "-Dmaven.test.failure.ignore=true"),
            "test",
        ]
    ],
    "gradle": [["./gradlew", "--no-daemon", "--console=plain", "test"]],
}
PROTECTED = {
    "python": [".github/**"],
    "node": ["Dockerfile", "package-lock.json"],
    "go": ["go.sum"],
    "rust": ["Cargo.lock"],
    "make": [".gitlab-ci.yml", "db/migrations/**", "deploy/**"],
    "maven": [],
    "gradle": [],
}


RUST_HOME = "stable-x86_64-unknown-linux-gnu"


def commit(files):
    """The files of a commit, as `fleet init` would have read them."""
    sizes = {name: len(text) for name, text in files.items()}
    return CommitFiles(sizes, {name: files[name] for name in wanted_texts(sizes)})


def written(files, inside=False):
    """What `leadhand.toml` would hold for these files, and its text."""
    found = SurveyedRepository("../shop", "main", "checked out", detect(commit(files)), inside)
    text = "\n".join(settings_lines(found))
    return tomllib.loads(text), text


def short(commands):
    """Commands without the Python of their virtual environment."""
    return [words[1:] if words[0] == ".venv/bin/python" else words for words in commands]


def problems(done):
    return [each["problem"] for each in done.doc["checks"] if each["status"] == "problem"]


@pytest.mark.parametrize("kind", REPOSITORIES)
@pytest.mark.real
def test_settings_of_seven_kinds_of_repositories_are_accepted(tmp_path, kind):
    """Doctor is green, or names exactly the programs that this machine lacks."""
    make_repo(tmp_path / "shop", REPOSITORIES[kind])
    before = every_byte(tmp_path / "shop")
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "claude")
    (tmp_path / "fleet").mkdir()
    folder = Folder(tmp_path / "fleet")
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LEADHAND_TRUST": ""}
    done = folder.run("fleet", "init", "--repo", "../shop", "--json", **env)
    assert done.code == 0, done
    assert short(done.doc["gate"]) == GATES[kind]
    assert short(done.doc["setup"]) == SETUP[kind]
    assert sorted(done.doc["protected"]) == PROTECTED[kind]
    looked = folder.run("doctor", "--json", ANTHROPIC_API_KEY="a-key", **env)
    names = {words[0] for words in (*done.doc["gate"], *done.doc["setup"]) if "/" not in words[0]}
    lacking = {name for name in names if shutil.which(name, path=env["PATH"]) is None}
    said = [each for each in problems(looked) if "sandbox" not in each or "gates" in each]
    assert {each.split()[0] for each in said} == lacking, looked
    assert every_byte(tmp_path / "shop") == before, "the repository is only read"


@pytest.mark.real
def test_what_is_missing_is_said_exactly(tmp_path):
    """No test, no agent, no key: each is a TODO in the file and a problem of doctor."""
    make_repo(tmp_path / "shop", {"notes.txt": "nothing\n"})
    folder = Folder(tmp_path / "shop")
    no_path = {"PATH": "/usr/bin:/bin"}
    done = folder.run("fleet", "init", **no_path)
    assert done.code == 0, done
    assert "TODO   no tests were found" in done.err
    text = (tmp_path / "shop" / "leadhand.toml").read_text()
    assert "# TODO: name the command that tests it." in text
    assert "# TODO: neither claude nor codex is installed here." in text
    assert tomllib.loads(text)["fleet"]["repo"] == "."
    assert tomllib.loads(text)["fleet"]["protected"] == ["leadhand.toml"]
    said = " | ".join(problems(folder.run("doctor", "--json", **no_path)))
    assert "[fleet] gate is missing" in said
    assert 'there is no program "claude"' in said
    assert "ANTHROPIC_API_KEY is not set" in said
    again = folder.run("fleet", "init")
    assert again.code == 7, again
    assert "exists already" in again.err
    assert (tmp_path / "shop" / "leadhand.toml").read_text() == text


@pytest.mark.real
def test_printing_writes_nothing_and_other_folders_are_refused(tmp_path):
    make_repo(tmp_path / "shop", REPOSITORIES["go"])
    before = every_byte(tmp_path / "shop")
    folder = Folder(tmp_path / "shop")
    done = folder.run("fleet", "init", "--print")
    assert done.code == 0, done
    assert tomllib.loads(done.out)["fleet"]["branch"] == "main"
    state = [name for name in every_byte(tmp_path / "shop") if name not in before]
    assert not [name for name in state if b"leadhand.toml" in name]
    (tmp_path / "empty").mkdir()
    assert Folder(tmp_path / "empty").run("fleet", "init").code == 2
    run_git(tmp_path / "empty", "init", "-q")
    done = Folder(tmp_path / "empty").run("fleet", "init")
    assert (done.code, "has no commit yet" in done.err) == (2, True), done


@pytest.mark.real
def test_nothing_of_a_hostile_repository_is_executed_or_followed(tmp_path):
    """Hooks, monitors and filters of its configuration, links, odd names, and files of any size."""
    repo, trap = tmp_path / "shop", tmp_path / "trapped"
    files = {
        "package.json": "{" * 100_000,
        "pyproject.toml": "[project\n" * 100,
        "Makefile": "test:\n\t:\n" + "#" * TEXT_BYTES_MAX,
        'we"ird\n[coders.evil]\nkind = "command"/package.json': json.dumps(PACKAGE),
        "tests/test_a\nb.py": "import pytest\n",
        ".github/workflows/c\ni.yml": "jobs:\n  - run: evil \x1b[2J\u202e\n",
        ".gitattributes": "* filter=evil\n",
    }
    make_repo(repo, files)
    (repo / "Cargo.toml").symlink_to("/etc/passwd")
    (repo / "go.mod").symlink_to(repo)
    run_git(repo, "add", "-A")
    run_git(repo, "commit", "-qm", "links")
    script = repo / ".git" / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {trap}\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "filter.evil.clean", "filter.evil.smudge"):
        run_git(repo, "config", key, str(script))
    (tmp_path / "fleet").mkdir()
    done = Folder(tmp_path / "fleet").run("fleet", "init", "--repo", str(repo))
    assert done.code == 0, done
    assert not trap.exists()
    text = (tmp_path / "fleet" / "leadhand.toml").read_text()
    held = tomllib.loads(text)
    assert set(held["coders"]) == {"claude"}
    assert held["fleet"]["gate"] == [[".venv/bin/python", "-m", "pytest", "-q"]]
    for name in ("package.json", "pyproject.toml", "Makefile"):
        assert f"could not be read: {name}" in text
    assert not [name for name in ("Cargo", "cargo", "go.mod") if name in text], "links are not read"
    assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_every_line_says_where_it_comes_from(kind):
    """Each command, host and path has a comment, and the settings are read without a complaint."""
    held, text = written(REPOSITORIES[kind])
    rows = [line for line in text.splitlines() if line.startswith("    ")]
    assert rows
    assert not [row for row in rows if ",  # " not in row]
    assert held["fleet"]["publish"] == "leadhand/main"


def test_settings_are_those_that_a_fleet_reads(tmp_path):
    (tmp_path / "leadhand.toml").write_text(written(REPOSITORIES["python"])[1])
    fleet = SECTION.of(load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path))
    assert fleet.gate[-1] == (".venv/bin/python", "-m", "pytest", "-q")
    assert fleet.setup_hosts == (), "hosts depend on the machine: a TODO in the file"
    assert fleet.coders["claude"].key == "ANTHROPIC_API_KEY"


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("python", "pip"),
        ("node", "npm"),
        ("go", "go"),
        ("rust", "cargo"),
        ("maven", "Maven"),
        ("gradle", "Gradle"),
    ],
)
def test_hosts_of_a_set_up_are_left_to_the_person(kind, program):
    """Neither a public index nor a text of the repository opens the network of the sandbox."""
    files = dict(REPOSITORIES[kind])
    files |= {
        "package.json": '{"dependencies": {"a": "1"}}' if kind == "node" else None,
        "go.mod": "module a\nrequire b v1.0.0\n" if kind == "go" else None,
        "Cargo.toml": '[package]\nname = "a"\n[dependencies]\nb = "1"\n'
        if kind == "rust"
        else None,
    }
    held, text = written({name: body for name, body in files.items() if body is not None})
    assert "setup_hosts" not in held["fleet"]
    assert f"# TODO: {program} downloads" in text


@pytest.mark.parametrize(
    "scripts",
    [
        None,
        [],
        "node --test",
        {},
        {"test": ""},
        {"test": None},
        {"test": ["node"]},
        {"test": {"a": 1}},
        {"test": "true"},
        {"test": " " * 100_000},
        {"test": 'echo "Error: no test specified" && exit 1'},
        {"test": "echo nothing to do"},
    ],
)
def test_scripts_that_test_nothing_are_no_gate(scripts):
    held, text = written({"package.json": json.dumps({"scripts": scripts}), "a.js": ""})
    assert "gate" not in held["fleet"]
    assert "# TODO: name the command that tests it." in text


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"a": 1e999999}', "\ufeff{}", "[" * 9_999]
)
@pytest.mark.parametrize("name", ["package.json", "Cargo.toml", "pyproject.toml"])
def test_files_that_cannot_be_read_are_named(name, text):
    """A document of any form leads to settings that can be read, never to an error."""
    held, _ = written({name: text, "src/main.py": "x"})
    assert "gate" not in held["fleet"]


def test_a_repository_without_a_root_project_is_tested_part_by_part():
    files = {
        "api/go.mod": "module api\n",
        "api/a_test.go": "",
        "web/package.json": json.dumps(PACKAGE),
        "web/package-lock.json": "{}",
        "core/Cargo.toml": CARGO,
        "core/tests/a.rs": "",
        "jobs/pyproject.toml": PYPROJECT,
        "jobs/tests/test_a.py": "",
        "a b/package.json": json.dumps(PACKAGE),
        "-rf/package.json": json.dumps(PACKAGE),
    }
    gate = written(files)[0]["fleet"]["gate"]
    assert ["go", "-C", "api", "test", "-json", "./..."] in gate
    assert ["npm", "--prefix", "web", "test"] in gate
    assert ["cargo", "test", "--manifest-path", "core/Cargo.toml"] in gate
    assert [".venv/bin/python", "-m", "pytest", "-q", "jobs"] in gate
    assert not [words for words in gate if "a b" in words or "-rf" in words]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"uv.lock": "x", "tests/test_a.py": ""}, "uv run --no-sync python -m pytest -q"),
        ({"poetry.lock": "x", "tests/test_a.py": ""}, "poetry run python -m pytest -q"),
        ({"tests/test_a.py": "import unittest\n"}, "python3 -m unittest discover -s tests"),
        ({"pnpm-lock.yaml": "x", "package.json": json.dumps(PACKAGE)}, "pnpm test"),
        ({"yarn.lock": "x", "package.json": json.dumps(PACKAGE)}, "yarn test"),
        ({"bun.lock": "x", "package.json": json.dumps(PACKAGE)}, "bun run test"),
        ({"justfile": "test filter='':\n  cargo test\n"}, "just test"),
    ],
)
def test_the_package_manager_is_told_by_its_lockfile(files, words):
    assert words.split() in written(files)[0]["fleet"]["gate"]


def test_targets_of_makefiles_are_read_and_not_run():
    text = "A := $(shell touch x)\nB=1\nall: b c # d\nb c::\n\techo: no\n.PHONY: all\nv = a:b\n"
    assert targets(text) == {"all": {"b", "c"}, "b": set(), "c": set()}


def test_groups_of_dependencies_are_installed_by_a_pip_that_knows_them():
    """Debian's pip does not; the one of the virtual environment is brought up first."""
    project = '[project]\nname = "shop"\nversion = "1"\n[dependency-groups]\ndev = ["pytest"]\n'
    found = detect(commit({"pyproject.toml": project, "tests/test_a.py": "def test_a(): pass\n"}))
    words = [list(each.argv) for each in found.setup]
    assert short(words)[1] == ["-m", "pip", "install", "pip>=25.1"]
    assert short(words)[2] == ["-m", "pip", "install", "--group", "pyproject.toml:dev"]


def test_tests_of_java_are_counted_by_their_reports():
    """Maven and Gradle leave JUnit XML, in each module's folder."""
    assert written(REPOSITORIES["maven"])[0]["fleet"]["reports"] == [
        "**/target/surefire-reports/TEST-*.xml"
    ]
    assert written(REPOSITORIES["gradle"])[0]["fleet"]["reports"] == [
        "**/build/test-results/test/TEST-*.xml"
    ]


def test_scripts_around_tests_that_ask_a_registry_are_left_out_of_the_gate():
    scripts = {"test": "tape test", "pretest": "eslint .", "posttest": "npx aud --production"}
    held, text = written({"package.json": json.dumps({"scripts": scripts})})
    assert held["fleet"]["gate"] == [["npm", "test", "--ignore-scripts"]]
    assert "left out: posttest, which would need the network" in text
    del scripts["posttest"]
    held, _ = written({"package.json": json.dumps({"scripts": scripts})})
    assert held["fleet"]["gate"] == [["npm", "test"]]


def rustup(home):
    """A home with rustup: its programs are links to rustup itself, which picks the toolchain."""
    tools = home / ".rustup" / "toolchains" / RUST_HOME / "bin"
    proxies = home / ".cargo" / "bin"
    for folder in (tools, proxies):
        folder.mkdir(parents=True)
        shutil.copy("/bin/true", folder / "cargo")
    (home / ".rustup" / "settings.toml").write_text(f'default_toolchain = "{RUST_HOME}"\n')
    return tools, proxies


def test_a_toolchain_of_a_version_manager_is_shown_to_the_sandbox(tmp_path, monkeypatch):
    """For Rust that of rustup, for a link the folder of its version; the system's needs nothing."""
    monkeypatch.setattr("leadhand.fleet.commands.init.PATH", str(tmp_path / "system"))
    tools, proxies = rustup(tmp_path)
    node = tmp_path / "node" / "v22" / "bin"
    node.mkdir(parents=True)
    shutil.copy("/bin/true", node / "npm-real")
    (proxies / "npm").symlink_to(node / "npm-real")
    environ = {"HOME": str(tmp_path), "PATH": str(proxies)}
    found = tool_places(["cargo", "npm", "mvn", "./gradlew"], environ)
    assert found.folders == (str(tools), str(node))
    assert found.readable == (str(tools.parent), str(node.parent))
    assert (found.names, found.missing) == (("cargo", "npm"), ("mvn",))
    surveyed = SurveyedRepository("../a", "main", "so", detect(commit({})), False, found)
    text = "\n".join(settings_lines(surveyed))
    held = tomllib.loads(text)["fleet"]
    assert held["readable"] == list(found.readable)
    assert held["env"]["PATH"].split(":")[:2] == list(found.folders)
    assert "# TODO: mvn is not installed on this machine" in text
    (tmp_path / "system").mkdir()
    for name in ("cargo", "npm", "mvn"):
        shutil.copy("/bin/true", tmp_path / "system" / name)
    assert tool_places(["cargo", "npm", "mvn"], environ) == ToolPlaces()


def test_an_agent_that_is_not_on_the_path_of_the_settings_is_named_in_full(tmp_path, monkeypatch):
    """The tools' `PATH` replaces that of the account, where the agent was found."""
    monkeypatch.setattr("leadhand.fleet.commands.init.PATH", str(tmp_path / "system"))
    for name in ("tools/cargo", "own/claude"):
        (tmp_path / name).parent.mkdir()
        shutil.copy("/bin/true", tmp_path / name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{tmp_path / 'own'}")

    def coders(programs):
        places = tool_places(programs, {"PATH": str(tmp_path / "tools")})
        found = SurveyedRepository("../a", "main", "so", detect(commit({})), False, places)
        return tomllib.loads("\n".join(settings_lines(found)))["coders"]

    assert coders(["cargo"])["claude"]["program"] == str(tmp_path / "own" / "claude")
    assert "program" not in coders([])["claude"], "without a PATH of its own, that of the account"
    shutil.copy("/bin/true", tmp_path / "tools" / "claude")
    assert "program" not in coders(["cargo"])["claude"]


@pytest.mark.parametrize("settings", ["", "default_toolchain = 3\n", "[[[", 'version = "12"\n'])
def test_a_rustup_without_a_readable_choice_is_a_program_like_others(
    tmp_path, monkeypatch, settings
):
    monkeypatch.setattr("leadhand.fleet.commands.init.PATH", str(tmp_path / "system"))
    _, proxies = rustup(tmp_path)
    (tmp_path / ".rustup" / "settings.toml").write_text(settings)
    environ = {"HOME": str(tmp_path), "PATH": str(proxies)}
    assert tool_places(["cargo"], environ).folders == (str(proxies),)
