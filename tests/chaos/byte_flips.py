"""Byte flips over a database: no command ends in a traceback, and no changed row is missed.

    python -m tests.chaos.byte_flips --trials 500 --from 1

Each trial copies a database with an ended and an open run, flips one to four bytes (a third of the
trials on the page of the schema, a third in rows of `events`) and has the commands look at it.
"""

import argparse
import contextlib
import os
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadhand.cli.group import execute
from tests.support.cli import WORKERS

COMMANDS = (
    *("verify --all", "verify {run}", "ls", "inbox", "show {run}"),
    *("logs {run}", "export {run}"),
)
PAGE = 4096
TABLES = ("meta", "runs", "events", "batches")


@dataclass
class Trial:
    """What came of one database."""

    seed: int
    flips: list[tuple[int, int]]
    changed: bool = False
    """Whether a row is another one, or cannot be read."""
    codes: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, away from the settings of whoever tests."""
    before, environ = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ |= {"HOME": str(folder), "LEADHAND_TRUST": str(folder.resolve())}
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environ)


def told(*words: str) -> tuple[int, str]:
    """The exit code of a command in this process, and what it says."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        kept = os.dup(1), os.dup(2)
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            os.dup2(said.fileno(), number)
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = execute(list(words))
        finally:
            for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
                stream.flush()
                os.dup2(kept[number - 1], number)
                os.close(kept[number - 1])
        said.flush()
        said.seek(0)
        return code, said.read()


def made(folder: Path) -> str:
    """A database with an ended run and one that waits; the id of the latter."""
    (folder / "workers.py").write_text(WORKERS)
    (folder / "leadhand.toml").write_text("[project]\nworkers = ['workers.py']\n")
    steps = ",".join(f'{{"id": "s{n}", "worker": "say"}}' for n in range(12))
    (folder / "done.json").write_text(f'{{"goal": "say it", "steps": [{steps}]}}')
    (folder / "open.json").write_text(
        '{"goal": "dare", "steps": [{"id": "a", "worker": "danger"}]}'
    )
    with inside(folder):
        for plan, code in (("done.json", 0), ("open.json", 5)):
            found, said = told("run", plan, "--quiet")
            assert found == code, said
    with contextlib.closing(sqlite3.connect(folder / ".leadhand" / "leadhand.db")) as database:
        query = "SELECT run FROM runs WHERE run NOT LIKE '$%' ORDER BY id DESC"
        return str(database.execute(query).fetchone()[0])


def rows_of(database: Path) -> Any:
    """All rows, from the tables themselves; None where they cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as found:
            found.text_factory = bytes
            return [found.execute(f"SELECT * FROM {t} NOT INDEXED").fetchall() for t in TABLES]
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def flipped(database: Path, chance: random.Random) -> list[tuple[int, int]]:
    """Change some bytes of a file, each to another value."""
    data = bytearray(database.read_bytes())
    where = chance.randrange(3)
    first, last = (0, PAGE) if where == 0 else (0, len(data))
    if where == 1:
        body = data.find(b'{"type"', chance.randrange(len(data)))
        first, last = (max(0, body - 80), body + 20) if body > 0 else (first, last)
    places = chance.sample(range(first, last), chance.choice((1, 1, 2, 4)))
    for place in places:
        data[place] ^= chance.randrange(1, 256)
    database.write_bytes(data)
    return [(place, data[place]) for place in places]


def tried(base: Path, run: str, seed: int, scratch: Path) -> Trial:
    """One copy, its flips, and what every command makes of it."""
    chance = random.Random(seed)
    sound = base / ".leadhand" / "leadhand.db"
    copy = scratch / f"trial-{seed}"
    shutil.copytree(base, copy)
    database = copy / ".leadhand" / "leadhand.db"
    trial = Trial(seed, flipped(database, chance))
    trial.changed = rows_of(database) != rows_of(sound)
    with inside(copy):
        for words in (*COMMANDS, "resume {run}"):
            code, said = told(*words.format(run=run).split())
            trial.codes[words] = code
            if code == 70 or "Traceback" in said or "bug in Leadhand" in said:
                trial.wrong.append(f"{words}: exit {code}: {said[-300:]}")
    if trial.changed and trial.codes["verify --all"] == 0:
        trial.wrong.append("a row was changed, and verify --all says 0")
    shutil.rmtree(copy)
    return trial


def campaign(scratch: Path, first: int, trials: int) -> Iterator[Trial]:
    """So many trials, from a seed on."""
    base = scratch / "base"
    base.mkdir()
    run = made(base)
    for seed in range(first, first + trials):
        yield tried(base, run, seed, scratch)


def main() -> int:
    """Print what was missed or broke, and how many trials there were."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--from", type=int, default=1, dest="first")
    options = parser.parse_args()
    changed = bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for trial in campaign(Path(scratch), options.first, options.trials):
            changed += trial.changed
            bad += bool(trial.wrong)
            for each in trial.wrong:
                sys.stdout.write(f"seed {trial.seed} {trial.flips}: {each}\n")
    sys.stdout.write(f"{options.trials} trials, {changed} changed a row, {bad} went wrong\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
