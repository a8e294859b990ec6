"""F45 to F56: the engine's process, its files, its databases and its clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from leadhand import Lead
from tests.chaos.postgres import Campaign, chaos
from tests.engine import test_kill
from tests.proof.fault_stage import Stage
from tests.proof.table import ROOT
from tests.support.cli import Done, environment
from tests.support.disk import Disk, rebuild
from tests.support.postgres import Server, find_programs, reachable, serving
from tests.support.serving import ended, process

SLOW = """
[workers.slow]
command = ["/bin/sh", "slow.sh", "{value}", "{nap}"]
probe = ["grep", "-qx", "{value}", "effects"]
effects = ["world"]
risk = "low"
timeout = "60 s"
"""


def chain(stage: Stage, count: int, nap: float = 0.3, more: str = "", policy: str = "") -> str:
    """Write a plan of steps one after the other, each with an effect and a probe."""
    stage.write("slow.sh", 'sleep "$2"; sh act.sh "$1"\n')
    stage.settings(SLOW + more, policy=policy)
    steps: list[dict[str, Any]] = []
    for number in range(count):
        values = {"value": f"s{number}", "nap": f"{nap:g}"}
        step: dict[str, Any] = {"id": f"s{number}", "worker": "slow", "parameters": values}
        steps.append({**step, **({"depends_on": [f"s{number - 1}"]} if number else {})})
    return stage.plan(*steps)


def all_of(count: int) -> list[str]:
    """Return the effects of such a plan."""
    return [f"s{number}" for number in range(count)]


def f45(stage: Stage) -> None:
    """kill -9 just before one of its operations: appends, commits, effects, calls of workers."""
    kinds = ["probed"] * 6
    world = test_kill.World(stage.path, test_kill.plan(kinds, width=3))
    at = stage.draw.randint(1, 90)
    stage.fault()
    first = world.finish(kill_at=at)
    result = world.finish() if first is None else first
    stage.ended = time.time()
    assert result is not None
    stage.claimed, stage.people = result["status"] == "succeeded", len(result["asks"])
    stage.told = f"killed before operation {at}" if first is None else "ended before the kill"
    stage.effects(*[f"s{number}" for number in range(len(kinds))])
    stage.store = world.database
    stage.verified = stage.run("verify", "--all", "--store", str(world.database)).code == 0


def f46(stage: Stage) -> None:
    """The host is stopped (SIGSTOP) and another one tries to take over; then it goes on."""
    plan = chain(stage, 5, 0.2)
    count = stage.draw.randint(1, 3)
    with stage.start("run", plan, "--quiet") as child:
        stage.until(lambda: stage.lines("effects") >= count, "some effects")
        child.send_signal(signal.SIGSTOP)
        stage.fault()
        run = ""
        with contextlib.suppress(Exception):
            run = stage.latest()["run"]
        with stage.start("resume", run, "--quiet") as second:
            time.sleep(stage.draw.uniform(2, 4))
            early = stage.lines("effects")
            child.send_signal(signal.SIGCONT)
            first_code = child.wait(120)
            second_code = second.wait(120)
    stage.claimed, stage.ended = first_code == 0, time.time()
    stage.people = len(stage.run("inbox", "--json").doc)
    stage.effects(*all_of(5))
    stage.told = f"the second: exit {second_code}"
    stage.expect(early <= count + 1, "the second engine worked while the first held the log")


def f47(stage: Stage) -> None:
    """Another process holds an exclusive transaction on the database for ten seconds."""
    plan = chain(stage, 4)
    with stage.start("run", plan, "--quiet") as child:
        stage.until(lambda: stage.lines("effects") >= stage.draw.randint(1, 2), "an effect")
        with contextlib.closing(sqlite3.connect(stage.store, timeout=20)) as other:
            other.isolation_level = None
            other.execute("BEGIN EXCLUSIVE")
            stage.fault()
            time.sleep(10)
            other.execute("ROLLBACK")
        code = child.wait(120)
    stage.claimed, stage.ended = code == 0, time.time()
    stage.people = len(stage.run("inbox", "--json").doc)
    stage.effects(*all_of(4))


BIG = """
from leadhand import worker


@worker(idempotent=True)
def big(number: int) -> str:
    import random
    return random.Random(number).randbytes(150_000).hex()
"""


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a small file system; it needs the right to mount."""
    folder.mkdir()
    options = f"size={megabytes}m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def fill(folder: Path) -> Path:
    """Leave no byte free."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    opened.write(bytes(size))
    return file


def f48(stage: Stage) -> None:
    """The disk of the database is full under a server that has work; then there is space again."""
    stage.settings("", BIG)
    folder = stage.path / ".leadhand"
    steps: list[dict[str, Any]] = []
    for number in range(8):
        step: dict[str, Any] = {"id": f"b{number}", "worker": "big"}
        step["parameters"] = {"number": number}
        steps.append({**step, **({"depends_on": [f"b{number - 1}"]} if number else {})})
    act = {"id": "act", "worker": "act", "parameters": {"value": "all"}, "depends_on": ["b7"]}
    with small_disk(folder, 24):
        server = process(stage.path)
        try:
            with server.client() as client:
                sent = client.post("/runs", json={"plan": {"goal": "g", "steps": [*steps, act]}})
                run = sent.json()["run"]
                stage.until(
                    lambda: client.get(f"/runs/{run}/steps/b0").json()["status"] == "succeeded",
                    "the first step",
                )
                filler = fill(folder)
                stage.fault()
                threading.Timer(stage.draw.uniform(3, 6), filler.unlink).start()
                listed = client.get("/runs").status_code
                stage.expect(listed == 200, f"{listed} for the list of runs while full")
                plan = {"goal": "g", "steps": [{**act, "id": "x", "depends_on": []}]}
                plan["steps"][0]["parameters"] = {"value": "new"}
                sent = client.post("/runs", json={"plan": plan}, timeout=60)
                taken = sent.status_code in (200, 201, 202)
                stage.told = f"a new run while full: {sent.status_code}"
                if taken:
                    stage.expect(ended(client, sent.json()["run"], 60)["status"] == "succeeded",
                                 "a run that was taken did not succeed")  # fmt: skip
                done = ended(client, run, 60)
            stage.claimed, stage.ended = done["status"] == "succeeded", time.time()
            stage.people = len(done.get("questions", ()))
        finally:
            server.stop()
        if not stage.claimed:
            stage.told += f"; {done['status']}"
        stage.effects("all", *(["new"] if taken else []))
        stage.verify()
        _keep(folder, stage)


def _keep(folder: Path, stage: Stage) -> None:
    """Copy the database to where it can be read once the small disk is gone."""
    kept = stage.path / "kept"
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*.sock", "filler"))
    stage.store = kept / "leadhand.db"


WITH_DISK = """
import runpy, sys
from tests.support.disk import install_from_env
install_from_env()
sys.argv[0] = "leadhand"
runpy.run_module("leadhand.cli", run_name="__main__", alter_sys=True)
"""


def with_disk(stage: Stage, spec: dict[str, Any], *args: str) -> Done:
    """Run a command whose SQLite stands on a disk that fails as `spec` says."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    env = environment(stage.path, PYTHONPATH=path, LEADHAND_TEST_DISK=json.dumps(spec))
    done = subprocess.run(
        [sys.executable, "-c", WITH_DISK, *args],
        cwd=stage.path, env=env, capture_output=True, text=True, timeout=180, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def f49(stage: Stage) -> None:
    """A sync or a write fails with an I/O error: it stops at once; a new process goes on."""
    plan = chain(stage, 4, 0.0)
    what = stage.draw.choice(("fail_sync", "fail_write"))
    more = {"code": "ioerr"} if what == "fail_write" else {}
    spec = {what: {"after_n": stage.draw.randint(12, 30), "match": "*-wal", **more}}
    stage.fault()
    first = with_disk(stage, spec, "run", plan, "--quiet")
    stage.told = f"{what}: exit {first.code}"
    stage.expect("Traceback" not in first.err, f"a traceback: {first.err[-200:]}")
    if first.code == 0:
        stage.settle(first)
    else:
        runs = stage.run("ls", "--json").doc
        again = ("resume", runs[0]["run"]) if runs else ("run", plan)
        stage.settle(stage.run(*again, "--quiet"))
    stage.effects(*all_of(4))


@cache
def _programs() -> Path:
    return find_programs()


@contextlib.contextmanager
def database(*, sync: bool = False) -> Iterator[Server]:
    """A PostgreSQL server of its own."""
    with reachable(_programs()) as programs, serving(programs, sync=sync) as server:
        yield server


def f50(stage: Stage) -> None:
    """PostgreSQL is restarted in three ways under runs, also in the middle of commits."""
    campaign = Campaign(
        runs=12, between_s=(0.5, 1.5), step_s=(0.2, 0.8), at_once=6,
        seed=stage.draw.randrange(10**6), down_s=0.5,
    )  # fmt: skip
    stage.fault()
    with database(sync=True) as server:
        figures = asyncio.run(chaos(campaign, server, stage.path))
    stage.ended = time.time()
    stage.claimed = figures["runs"] == campaign.runs
    # Every sum, every count of a worker and every event of a follower is compared by `chaos`.
    stage.right = figures["steps"] == 5 * campaign.runs and not figures["wrong"]
    stage.problems += figures["wrong"][:3]
    stage.verified = not figures["wrong"]
    stage.told = f"{sum(figures['restarts'].values())} restarts, {figures['runs']} runs"


FAILS = """
CREATE SEQUENCE public.commits;
GRANT ALL ON SEQUENCE public.commits TO PUBLIC;
CREATE FUNCTION public.conflict() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n bigint := nextval('public.commits');
BEGIN
  IF n % {every} = 0 THEN
    RAISE EXCEPTION 'of the test' USING ERRCODE = '{code}';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER conflict AFTER INSERT ON leadhand.events
  FOR EACH STATEMENT EXECUTE FUNCTION public.conflict();
"""


def f51(stage: Stage) -> None:
    """Commits fail with a serialization failure or as the victim of a deadlock, again and again."""
    code = stage.draw.choice(("40001", "40P01"))
    every = stage.draw.randint(3, 6)
    stage.told = f"{code}, every {every}."
    plan = chain(stage, 4, 0.0)
    with database() as server:
        address = server.new(stage.path)
        name = address.dsn.rpartition("/")[2]
        url = server.url(name)
        made = stage.run("ls", "--store", url)
        before = {"id": "x", "worker": "act", "parameters": {"value": "before"}}
        first = stage.plan(before, name="x.json")
        opened = stage.run("run", first, "--store", url, "--quiet")
        stage.expect(opened.code == 0, f"{made.err[-200:]} {opened.err[-300:]}")
        with server.connect(name) as connection:
            connection.execute(FAILS.format(every=every, code=code))
        stage.fault()
        done = stage.run("run", plan, "--store", url, "--quiet")
        stage.claimed, stage.ended = done.code == 0, time.time()
        stage.people = len(stage.run("inbox", "--json", "--store", url).doc)
        if done.code:
            stage.problems.append(done.err[-300:])
        with server.connect(name) as connection:
            row = connection.execute("SELECT last_value FROM public.commits").fetchone()
        stage.told += f" of {row[0] if row else 0} commits"
        stage.verified = stage.run("verify", "--all", "--store", url).code == 0
    stage.effects("before", *all_of(4))


JUMPS = """
import os, runpy, sys, time
by = {by}
real_ns, real = time.time_ns, time.time


def offset():
    return by if os.path.exists("jump") else 0


time.time_ns = lambda: real_ns() + offset() * 10**9
time.time = lambda: real() + offset()
sys.argv[0] = "leadhand"
runpy.run_module("leadhand.cli", run_name="__main__", alter_sys=True)
"""


def f52(stage: Stage) -> None:
    """The calendar jumps by an hour, forward or back, while steps work and wait."""
    by = stage.draw.choice((3600, -3600))
    stage.told = f"{by:+d} s"
    workers = """
import time
from pathlib import Path
from leadhand import Context, Transient, worker


@worker(idempotent=True, timeout="20 s")
async def long() -> str:
    import asyncio
    Path("calls").open("a").write("long\\n")
    await asyncio.sleep(3)
    return "done"


@worker(idempotent=True)
def shaky(context: Context) -> str:
    Path("calls").open("a").write("shaky\\n")
    if context.attempt == 1:
        Path("jump").touch()
        raise Transient("not yet")
    return "done"
"""
    stage.settings("", workers)
    steps: list[dict[str, Any]] = [{"id": "a", "worker": "long"}, {"id": "b", "worker": "shaky"}]
    act = {"id": "act", "worker": "act", "parameters": {"value": "all"}, "depends_on": ["a", "b"]}
    stage.plan(*steps, act)
    began = time.monotonic()
    stage.fault()
    program = [sys.executable, "-c", JUMPS.format(by=by), "run", "plan.json", "--quiet"]
    done = subprocess.run(
        program, cwd=stage.path, env=environment(stage.path), capture_output=True, text=True,
        timeout=180, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    stage.settle(Done(done.returncode, done.stdout, done.stderr))
    stage.effects("all")
    calls = sorted((stage.path / "calls").read_text().split())
    stage.expect(calls == ["long", "shaky", "shaky"], f"attempts: {calls}")
    stage.expect(time.monotonic() - began < 90, "it waited for the calendar")


def f53(stage: Stage) -> None:
    """The power is cut after a write or sync of a live run; files are as the disk has them."""
    count = 5
    plan = chain(stage, count, 0.0)
    held: dict[int, int] = {}
    with Disk() as disk:
        effects = stage.path / "effects"

        def look(_number: int, _operation: object) -> None:
            found = effects.read_text().count("\n") if effects.exists() else 0
            held[len(disk.journal)] = found

        disk.hook = look
        store = stage.path / "live" / "leadhand.db"
        store.parent.mkdir()
        before = Path.cwd()
        os.chdir(stage.path)
        environ = dict(os.environ)
        os.environ |= {"HOME": str(stage.path), "LEADHAND_TRUST": str(stage.path.resolve())}
        try:
            lead = Lead.from_settings(stage.path, store=store)
            lead.run_sync(str(stage.path / plan), run_id="cut")
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environ)
    places = sorted(held)
    cut = stage.draw.choice(places[len(places) // 5 :])
    torn = stage.draw if stage.draw.random() < 0.5 else None
    stage.store.parent.mkdir()
    rebuild(disk.journal, cut, stage.path / "disk", torn=torn)
    for each in (stage.path / "disk").iterdir():
        shutil.copy(each, stage.store.parent / each.name)
    lines = effects.read_text().splitlines(keepends=True) if effects.exists() else []
    effects.write_text("".join(lines[: held[cut]]))
    (stage.path / "twice").unlink(missing_ok=True)
    stage.fault()
    stage.told = f"cut {cut} of {len(disk.journal)}, {held[cut]} effects"
    runs = stage.run("ls", "--json")
    known = [row["run"] for row in runs.doc] if runs.code == 0 else []
    again = ("resume", "cut") if "cut" in known else ("run", plan)
    stage.settle(stage.run(*again, "--quiet"))
    stage.effects(*all_of(count))


def f54(stage: Stage) -> None:
    """A killed run is taken up by two engines at the same moment."""
    plan = chain(stage, 5, 0.2)
    with stage.start("run", plan, "--quiet") as child:
        stage.until(lambda: stage.lines("effects") >= stage.draw.randint(1, 3), "an effect")
        child.kill()
        child.wait()
    stage.fault()
    run = stage.latest()["run"]
    done: list[Done] = []
    both = [
        threading.Thread(target=lambda: done.append(stage.run("resume", run, "--quiet")))
        for _ in range(2)
    ]
    for each in both:
        each.start()
        time.sleep(stage.draw.uniform(0, 0.2))
    for each in both:
        each.join(120)
    stage.claimed, stage.ended = any(each.code == 0 for each in done), time.time()
    stage.told = f"exit {' and '.join(str(each.code) for each in done)}"
    stage.people = len(stage.run("inbox", "--json").doc)
    stage.effects(*all_of(5))


def f55(stage: Stage) -> None:
    """A row of the log is changed: it is found, nothing more runs, and a person is told."""
    plan = chain(stage, 4, 0.2)
    with stage.start("run", plan, "--quiet") as child:
        stage.until(lambda: stage.lines("effects") >= 2, "two effects")
        child.kill()
        child.wait()
    run = stage.latest()["run"]
    before = stage.lines("effects")
    with contextlib.closing(sqlite3.connect(stage.store)) as other:
        # Someone who can write the file can take the guards away as well.
        guards = other.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = guards.fetchall()
        for name, _sql in triggers:
            other.execute(f'DROP TRIGGER "{name}"')
        query = "SELECT position, body FROM events WHERE run_id ="
        rows = other.execute(f"{query} (SELECT id FROM runs WHERE run = ?)", (run,))
        position, body = stage.draw.choice(rows.fetchall())
        data = bytearray(body if isinstance(body, bytes) else body.encode())
        at = stage.draw.randrange(len(data))
        changed = bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]])
        other.execute("UPDATE events SET body = ? WHERE position = ?", (changed, position))
        other.commit()
    stage.fault()
    done = stage.run("resume", run, "--quiet")
    found = stage.run("verify", "--all")
    stage.ended = time.time()
    stage.claimed = done.code == 0
    told = done.code != 0 and found.code != 0 and "Traceback" not in done.err + found.err
    stage.people = int(told)
    stage.told = f"resume: exit {done.code}, verify: exit {found.code}"
    stage.expect(stage.lines("effects") <= before + 1, "steps ran on a changed log")
    with contextlib.closing(sqlite3.connect(stage.store)) as other:
        other.execute("UPDATE events SET body = ? WHERE position = ?", (body, position))
        for _name, sql in triggers:
            other.execute(sql)
        other.commit()
    mended = stage.run("resume", run, "--quiet")
    stage.expect(mended.code == 0, f"once it is as it was: exit {mended.code}")
    stage.effects(*all_of(4))


BLOCKS = """
import time
from leadhand import worker


@worker(idempotent=True)
async def blocks() -> str:
    open("faults", "a").write(f"{time.time()}\\n")
    time.sleep(5)
    return "done"
"""


def f56(stage: Stage) -> None:
    """The host's loop is blocked for five seconds, or there are no files left for it to open."""
    way: Callable[[Stage], None] = stage.draw.choice((_blocked, _no_files))
    stage.told = way.__name__.strip("_").replace("_", " ")
    way(stage)


def _blocked(stage: Stage) -> None:
    more = '[workers.calm]\ncommand = ["/bin/sh", "calm.sh"]\nrisk = "low"\ntimeout = "4 s"\n'
    stage.write("calm.sh", "echo call >> calls; sleep 1.5\n")
    stage.settings(f"{more}idempotent = true\n", BLOCKS)
    steps: list[dict[str, Any]] = [{"id": f"c{n}", "worker": "calm"} for n in range(3)]
    steps.append({"id": "b", "worker": "blocks"})
    act = {"id": "act", "worker": "act", "parameters": {"value": "all"}}
    stage.go(stage.plan(*steps, {**act, "depends_on": ["c0", "c1", "c2", "b"]}))
    stage.effects("all")
    stage.expect(stage.lines("calls") == 3, f"{stage.lines('calls')} attempts of three steps")


def _no_files(stage: Stage) -> None:
    stage.write("calm.sh", "sleep 0.5\n")
    table = '[workers.calm]\ncommand = ["/bin/sh", "calm.sh"]\nidempotent = true\nrisk = "low"\n'
    stage.settings(table, policy="concurrency = 40")
    text = (stage.path / "leadhand.toml").read_text()
    stage.write("leadhand.toml", text.replace('backoff = "0.1 s"', 'backoff = "1 s"'))
    steps: list[dict[str, Any]] = [{"id": f"c{n}", "worker": "calm"} for n in range(40)]
    act = {"id": "act", "worker": "act", "parameters": {"value": "all"}}
    plan = stage.plan(*steps, {**act, "depends_on": [each["id"] for each in steps]})
    stage.fault()
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); "
    limit += "sys.argv[0] = 'leadhand'; runpy.run_module('leadhand.cli', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", limit, "run", plan, "--quiet"],
        cwd=stage.path, env=environment(stage.path), capture_output=True, text=True,
        timeout=180, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    stage.settle(Done(done.returncode, done.stdout, done.stderr))
    stage.expect("Traceback" not in done.stderr, done.stderr[-300:])
    stage.effects("all")
