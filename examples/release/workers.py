"""The workers of the release: real tests, a real backup, a real switch of slots.

What must not be done twice blindly says how to find out whether it took effect: `probe`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from leadhand import Context, Permanent, Unavailable, worker

HERE = Path(__file__).resolve().parent
SITE = HERE / "site"
LIVE = SITE / "live"
BACKUPS = SITE / "backups"


# Tests.


@worker(
    name="test-runner",
    action="run_tests",
    checks={"all_tests_pass": lambda data: data["failed"] == 0 and data["passed"] > 0},
    idempotent=True,
    effects=(),
    timeout="10 minutes",
)
async def run_tests(version: str, context: Context) -> dict[str, int]:
    """Run the service's own tests with pytest and count them from its report."""
    report = HERE / f"tests-{context.run}-{context.attempt}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    context.progress(f"pytest for {version}", 0.1)
    process = await asyncio.create_subprocess_exec(
        *command,
        f"--junitxml={report}",
        cwd=HERE,
        env={**os.environ, "AUTH_VERSION": version},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    print(said.decode(errors="replace"))
    try:
        whole = ET.parse(report)  # noqa: S314 - our own pytest wrote it
        suite = whole.getroot().find("testsuite")
    except (OSError, ET.ParseError) as error:
        raise Unavailable(f"pytest left no report: {error}") from None
    finally:
        report.unlink(missing_ok=True)
    assert suite is not None
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return {"passed": int(suite.get("tests", 0)) - failed, "failed": failed}


# The database.


def _backup_of(database: str, context: Context) -> Path:
    """Return the file of this step's backup: the same for all of its attempts."""
    return BACKUPS / f"{database}-{context.run}.db"


def _described(file: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as copy:
        if copy.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise Permanent(f"{file.name} is damaged")
        (users,) = copy.execute("SELECT count(*) FROM users").fetchone()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"file": str(file.relative_to(HERE)), "users": users, "sha256": digest}


def backup_is_there(database: str, context: Context) -> dict[str, Any] | None:
    """Tell whether the backup was made, after a host that died while it was."""
    file = _backup_of(database, context)
    return _described(file) if file.exists() else None


@worker(
    name="db-manager",
    action="backup_database",
    effects=["backups"],
    probe=backup_is_there,
    timeout="10 minutes",
)
def backup_database(database: str, backup_type: str, context: Context) -> dict[str, Any]:
    """Copy the database with SQLite's own backup, and check the copy before it counts."""
    if backup_type != "full":
        raise Permanent(f"SQLite makes full backups, and no {backup_type} ones")
    file = _backup_of(database, context)
    BACKUPS.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(f"{SITE / database}.db")) as source,
        closing(sqlite3.connect(part)) as copy,
    ):
        source.backup(copy)
    part.replace(file)  # a file with this name is whole
    return _described(file)


@worker(name="db-manager", action="restore_database", effects=["database"], idempotent=True)
def restore_database(database: str, file: str, sha256: str) -> str:
    """Put a backup back, if it is the one that was made."""
    data = (HERE / file).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Permanent(f"{file} is not what was backed up")
    with (
        closing(sqlite3.connect(HERE / file)) as source,
        closing(sqlite3.connect(f"{SITE / database}.db")) as target,
    ):
        source.backup(target)
    return f"{database} is what it was"


# The slots.


def _ask(url: str) -> dict[str, Any]:
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310 - production is local here
            found: dict[str, Any] = json.load(answer)
            return found
    except HTTPError as error:
        return json.load(error)  # type: ignore[no-any-return]


def _switch(slot: Path) -> None:
    """Make a slot live, in one step: there is no moment without a link."""
    new = LIVE.with_name("live.new")
    new.unlink(missing_ok=True)
    new.symlink_to(slot.relative_to(SITE))
    new.replace(LIVE)


def _idle() -> Path:
    return SITE / "slots" / ("green" if LIVE.resolve().name == "blue" else "blue")


def version_is_live(url: str, version: str) -> str | None:
    """Tell whether a version is live, after a host that died while it was deployed."""
    return f"{version} is live" if _ask(f"{url}/health").get("version") == version else None


@worker(
    name="deployer",
    action="deploy_service",
    effects=["production"],
    risk="high",
    probe=version_is_live,
    timeout="10 minutes",
)
def deploy_service(url: str, version: str, database: str, strategy: str, context: Context) -> str:
    """Fill the idle slot, migrate the database, switch, and let every account log in."""
    slot = _idle()
    shutil.rmtree(slot, ignore_errors=True)
    shutil.copytree(HERE / "versions" / version, slot)
    context.progress(f"{version} in slot {slot.name}", 0.3)
    with closing(sqlite3.connect(f"{SITE / database}.db")) as opened:
        people = [name for (name,) in opened.execute("SELECT name FROM users")]
    subprocess.run([sys.executable, "server.py", "migrate", slot.name], cwd=HERE, check=True)
    _switch(slot)
    context.progress(f"slot {slot.name} is live", 0.7)
    for name in people:
        answer = _ask(f"{url}/login?name={quote(name)}")
        if "error" in answer:
            raise Permanent(f"{version} is live, and {name} cannot log in: {answer['error']}")
    return f"{version} is live in slot {slot.name} ({strategy})"


@worker(name="deployer", action="switch_back", effects=["production"], idempotent=True)
def switch_back(url: str, to: str) -> str:
    """Make the other slot live again, if it holds the version that is wanted."""
    if _ask(f"{url}/health").get("version") == to:
        return f"{to} is live"
    _switch(_idle())
    found = _ask(f"{url}/health").get("version")
    if found != to:
        raise Permanent(f"the other slot holds {found}, not {to}")
    return f"{to} is live"
