"""Make a virtual environment ready: `python3 scripts/environment.py NAME`, see ENVIRONMENTS below.

Standard library only, since it runs before anything is installed. What was installed, from
which lock files and by which Python, is recorded inside the environment; when that still
holds nothing is done. A changed lock file, Python or place of the checkout means a new
environment, so that nothing left over can help a test to pass.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Environment:
    folder: str
    locks: tuple[str, ...]
    """Lock files under requirements/, without their ending."""
    project: bool
    """Whether Leadhand itself is installed, editable."""
    alone: bool = False
    """Whether the packages are installed without what they depend on."""
    sources: bool = False
    """Whether the source archives are unpacked in the folder, and nothing is installed."""


ENVIRONMENTS = {
    "run": Environment(".venv", ("base", "build"), project=True),
    "dev": Environment(".venv", ("dev",), project=True),
    "model": Environment(".venv-model", ("model",), project=False, alone=True),
    "coders": Environment(".venv-coders", ("coders",), project=False, alone=True),
    "postgres": Environment(".venv-postgres", ("postgres",), project=False, alone=True),
    "temporal": Environment(".venv-temporal", ("temporal",), project=False, alone=True),
    "suite": Environment(".venv-suite", ("suite",), project=False, sources=True),
    "agentdojo": Environment(".venv-agentdojo", ("agentdojo",), project=False, alone=True),
    "bench": Environment(".venv-bench", ("bench",), project=False),
    "deploy": Environment(".venv-deploy", ("deploy",), project=False),
    "docs": Environment(".venv-docs", ("docs",), project=False),
    "lock": Environment(".venv-lock", ("lock",), project=False),
    "node": Environment(".venv-node", ("node",), project=False),
}

COVERS = {"dev": ("base", "build")}
"""Lock files that hold all of others, with the same versions."""


@dataclass
class Record:
    """What stands in an environment, as it was recorded when it got there."""

    made: str = ""
    locks: dict[str, str] = field(default_factory=dict)
    project: str = ""


def main(name: str) -> None:
    wanted = ENVIRONMENTS[name]
    # Two commands started at once must not build the same environment together.
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.sources:
            unpack(wanted)
            return
        if wanted.project:
            furnish(tests=name == "dev")
        prepare(wanted)
        if name == "dev":
            conformance()


def furnish(*, tests: bool) -> None:
    """Have the dashboard's third-party files, and what its tests take; soft, since only they do."""
    path = ROOT / "src" / "leadhand" / "server" / "npm_assets.py"
    spec = importlib.util.spec_from_file_location("npm_assets", path)
    assert spec is not None
    assert spec.loader is not None
    npm_assets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(npm_assets)
    lists = [(npm_assets.LOCK, npm_assets.FOLDER)]
    if tests:
        lists.append((ROOT / "tests" / "web" / "npm-lock.json", ROOT / "build" / "npm"))
    wanted = [each for each in lists if not npm_assets.ready(*each)]
    if wanted and not npm_assets.machine_npm():
        prepare(ENVIRONMENTS["node"])
        npm_assets.HOME = ROOT / ENVIRONMENTS["node"].folder / "bin"
    for each in wanted:
        npm_assets.fetch_if_possible(say, *each)


def conformance() -> None:
    """Have the conformance suite of MCP, by the hashes of its lock; soft, since one test needs it.

    It wants a newer Node than many machines have, so it gets the one of `.venv-node`.
    """
    lock, into = ROOT / "tests" / "mcp" / "conformance", ROOT / "build" / "mcp-conformance"
    texts = {name: (lock / name).read_text() for name in ("package.json", "package-lock.json")}
    known = fingerprint(*texts.values())
    if read(into).locks == {"npm": known}:
        return
    say("fetching the conformance suite of MCP (locked packages; this happens once)")
    prepare(ENVIRONMENTS["node"])
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name, text in texts.items():
        (into / name).write_text(text)
    home = ROOT / ENVIRONMENTS["node"].folder / "bin"
    command = [str(home / "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    path = os.pathsep.join((str(home), os.environ.get("PATH", "")))
    done = subprocess.run(
        command, cwd=into, env={**os.environ, "PATH": path}, capture_output=True, check=False
    )
    if done.returncode:
        say(f"it could not be fetched: {done.stderr.decode(errors='replace')[-500:]}")
        return
    write(into, Record(locks={"npm": known}))


def prepare(wanted: Environment) -> None:
    folder = ROOT / wanted.folder
    record = read(folder)
    made = fingerprint(str(ROOT), sys.version, sys.base_prefix)
    fresh = record.made != made or not (folder / "bin" / "python").exists()
    fresh = fresh or any(digest_lock(lock) != known for lock, known in record.locks.items())
    if fresh:
        record = Record(made=made)
    if wanted.project and copied(folder):
        record.project = ""
    held = set(record.locks).union(*(COVERS.get(lock, ()) for lock in record.locks))
    missing = [lock for lock in wanted.locks if lock not in held]
    project = digest_project() if wanted.project else record.project
    if not missing and project == record.project:
        return

    say(f"setting up {wanted.folder} (locked packages; this happens once)")
    if fresh:
        create(folder)
    if missing:
        files = [arg for lock in missing for arg in ("-r", f"requirements/{lock}.txt")]
        alone = ["--no-deps"] if wanted.alone else []
        pip(folder, "--require-hashes", *alone, *files)
        record.locks |= {lock: digest_lock(lock) for lock in missing}
    if project != record.project:
        pip(folder, "--no-build-isolation", "--no-deps", "--editable", ".")
        record.project = project
    write(folder, record)


def unpack(wanted: Environment) -> None:
    """Have source archives, by their hashes, unpacked side by side."""
    folder = ROOT / wanted.folder
    locks = {lock: digest_lock(lock) for lock in wanted.locks}
    if read(folder).locks == locks:
        return
    say(f"setting up {wanted.folder} (locked sources; this happens once)")
    shutil.rmtree(folder, ignore_errors=True)
    archives = folder / "archives"
    files = [arg for lock in wanted.locks for arg in ("-r", f"requirements/{lock}.txt")]
    names = [line.split("==")[0] for lock in wanted.locks for line in lines_of(lock)]
    # No binary of these: only the source archives hold the tests.
    binary = [arg for name in names for arg in ("--no-binary", name)]
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"]
    run([*command, "--require-hashes", "--no-deps", *binary, "--dest", str(archives), *files])
    for archive in archives.glob("*.tar.gz"):
        with tarfile.open(archive) as held:
            held.extractall(folder, filter="data")
    write(folder, Record(locks=locks))


def lines_of(lock: str) -> list[str]:
    """The packages that a lock file names."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return [line for line in text.splitlines() if "==" in line and line[0].isalnum()]


def copied(folder: Path) -> bool:
    """Whether `pip install '.[EXTRA]'` put a copy there, which would be run and tested instead."""
    return any(folder.glob("lib/python*/site-packages/leadhand/__init__.py"))


def create(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # Some systems ship Python without ensurepip; then this Python's own pip serves from outside.
    bare = [] if importlib.util.find_spec("ensurepip") else ["--without-pip"]
    run([sys.executable, "-m", "venv", *bare, str(folder)])


def pip(folder: Path, *args: str) -> None:
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip"]
    if not any(folder.glob("lib/python*/site-packages/pip")):
        command = [sys.executable, "-m", "pip", "--python", str(python)]
    run([*command, "install", "--disable-pip-version-check", "--no-input", *args])


def run(command: list[str]) -> None:
    """Run quietly; show all that was said when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        say(f"set-up failed: {' '.join(command)}")
        sys.exit(1)


def read(folder: Path) -> Record:
    try:
        known: dict[str, Any] = json.loads((folder / "record.json").read_text())
        return Record(**known)
    except (OSError, ValueError, TypeError):
        return Record()


def write(folder: Path, record: Record) -> None:
    (folder / "record.json").write_text(json.dumps(vars(record), indent=2) + "\n")


def digest_lock(name: str) -> str:
    path = ROOT / "requirements" / f"{name}.txt"
    return fingerprint(path.read_text()) if path.exists() else "missing"


def digest_project() -> str:
    """Only what an install reads: changing a lint rule installs nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = project["build-system"], project["project"], project["tool"]["hatch"]
    return fingerprint(json.dumps(parts, sort_keys=True))


def fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def say(text: str) -> None:
    print(f"leadhand: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ENVIRONMENTS:
        sys.exit(f"usage: environment.py {'|'.join(ENVIRONMENTS)}")
    main(sys.argv[1])
