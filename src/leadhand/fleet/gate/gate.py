"""The gate: the commands that a change must pass, run by the fleet on exactly one commit.

An agent's word for its tests counts for nothing. The gate checks a commit out into a slot of its
own and runs the acceptance commands and then the gate's own, in the sandbox, without a network,
with a home that is new each time. Which tests ran is read from reports of their runners
(`test_runs.py`), and every test that passed on main must pass. Where the commit touches tests or
the gate's own files (`guard.py`), the gate's commands run once more with all of these as
they are on main: an author who can change the test can pass it.

    as the change has them    red: the change is red. A test of main that is missing, skipped or
                              fewer than on main: red, unless the task may remove tests
    tests as main has them    red: the change does not do what main's tests want, and has changed
                              tests. That may be right, and a person decides (`Verdict.altered`)
    gate files as main's      red: the change is red

Laws
    1. Green is an exit code of 0 from every command, and no report that says otherwise. Too long,
       killed, not to be found: red.
    2. What keeps a command from being run is trouble (`GateTrouble`), never a verdict: no room on
       the disk, no sandbox, a lost supervisor, git's own failures, a set-up that fails (unless it
       fails on the change alone, again and again, while it passes on main: `gate_memory.py`).
    3. When `check` returns or is cancelled, no process of it is left.
    4. A failure that is known to be flaky is tried once more, and not in secret: both runs are in
       the log, the verdict names it, the record counts it. What is flaky is known from the
       configuration, or because one and the same tree was seen red and green.
    5. Time and output of each command are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import tempfile
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from leadhand.errors import LeadhandError
from leadhand.fleet.gate.gate_memory import GreenVerdicts, SetUpFailures
from leadhand.fleet.gate.guard import judged_by
from leadhand.fleet.gate.test_runs import (
    REPORT_BYTES,
    REPORTER,
    Ran,
    Reports,
    parse_junit,
    parse_test_output,
    some_names,
)
from leadhand.fleet.merge.same_change import TreeEntry
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.repository.toolchain import download_folders
from leadhand.fleet.workspace.clean_up import remove
from leadhand.fleet.workspace.process_limits import TreeLimits, excess
from leadhand.fleet.workspace.slots import Slot, Slots
from leadhand.workers.processes.leftovers import ProcessError
from leadhand.workers.processes.runner import Finished, Process, Processes, SpawnError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.fleet.gate.ci_gate import CombinedGate

Command = tuple[str, ...]

SILENT = "(the command printed nothing)\n"
TIME_S = 900.0
GRACE_S = 2.0
OUTPUT_BYTES = 256 << 10
ROOM_BYTES = 64 << 20
REMEMBERED = 2_000
REPORTS_MAX = 100
TREES_KEPT = 64
REMOVED = "the tests that main has"
MORE_RUNS = "more runs of tests than on main"
"""Listed in `Verdict.altered`: the code under test can reach the unclaimed keys of runs that main
does not have, and could report tests with one of them that never ran."""
GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Git ends at once where it may not read the machine's configuration, as in a sandbox."""
OURS = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO}
"""A command that could not be started for one of these is the machine's trouble."""


class GateTrouble(LeadhandError):
    """The gate could not be run, which says nothing about the change."""


class _NotSetUp(Exception):
    """A command of the set-up failed; what it printed is in the log of the check."""

    def __init__(self, command: str, log: list[str]) -> None:
        super().__init__(command)
        self.command, self.log = command, log


class SandboxedCommand(Protocol):
    """The command to start instead of the given one."""

    @property
    def argv(self) -> tuple[str, ...]: ...
    @property
    def env(self) -> dict[str, str]: ...
    @property
    def cwd(self) -> Path: ...


class CommandSandbox(Protocol):
    """A sandbox that keeps a command in its slot (`sandbox.py`)."""

    def wrap(
        self,
        argv: Sequence[str],
        slot: Path,
        *,
        home: Path,
        network: bool = False,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> SandboxedCommand: ...


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The gate's verdict on a commit; `failed` is the command that was red."""

    ok: bool
    log: str
    seconds: float
    flaky: tuple[str, ...] = ()
    failed: str = ""
    tests: str = ""
    """How many tests ran, in words; "tests not counted" where no report could be read."""
    removed: tuple[str, ...] = ()
    """Tests that passed on main and did not run here, or not as often."""
    altered: tuple[str, ...] = ()
    """Tests of main that fail against it, where it has changed tests: a person decides."""
    reused: bool = False
    """Whether it was not run again: the same tree was green against the same main."""

    @property
    def only_removed(self) -> bool:
        """Return whether the only objection is that tests of main are gone."""
        return bool(self.removed) and self.failed == REMOVED


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """The commands of the gate, and how they are run."""

    commands: tuple[Command, ...]
    """None: the CI of the code host is the gate (`ci_gate.py`), and acceptance commands run here.
    """
    setup: tuple[Command, ...] = ()
    """Run first, in each checkout; the only ones that may use the network, if that is said."""
    setup_network: bool = False
    gate_paths: tuple[str, ...] = ()
    """The gate's own files: tested as the change has them, and as main has them."""
    time_s: float = TIME_S
    env: Mapping[str, str] = field(default_factory=dict)
    failures: str = ""
    """A pattern whose first group is the name of a failed test in the output."""
    flaky: tuple[str, ...] = ()
    """Tests or commands that are known to be flaky."""
    reports: tuple[str, ...] = ()
    """Files of JUnit XML that commands write, as patterns of paths in the checkout."""
    tree: TreeLimits = field(default_factory=TreeLimits)
    """For a command and all that it starts."""
    tampering: bool = True
    """Whether code that reaches for the machinery of tests is for a person to see."""


class Flakes:
    """Tests that failed and passed without a change: a file with one line for each sighting."""

    def __init__(self, path: Path, declared: Sequence[str] = ()) -> None:
        self._path = path
        self.sightings: dict[str, int] = dict.fromkeys(declared, 0)
        if path.exists():
            for line in path.read_text(errors="replace").splitlines():
                try:
                    name = str(json.loads(line)["name"])
                except (ValueError, LookupError, TypeError, RecursionError):
                    continue  # a line that was cut off
                self.sightings[name] = self.sightings.get(name, 0) + 1

    def known(self, names: Sequence[str]) -> bool:
        """Return whether all of `names` are flaky; False if there are none."""
        return bool(names) and all(name in self.sightings for name in names)

    def record(self, names: Sequence[str], sha: str, *, green: bool) -> None:
        """Record the second try of tests that were red."""
        lines = ["\n"]  # the last one may have been cut off
        for name in names:
            self.sightings[name] = self.sightings.get(name, 0) + 1
            about = {"name": name, "sha": sha, "green": green, "at": round(time.time())}
            lines.append(json.dumps(about) + "\n")
        with self._path.open("a") as file:
            file.write("".join(lines))


@dataclass(slots=True)
class _Tested:
    """A run of the gate on a tree, and the runs that followed it."""

    log: list[str]
    flaky: list[str]
    failed: str
    ran: Ran

    def add(self, other: _Tested) -> None:
        """Another run of it."""
        self.log += other.log
        self.flaky += other.flaky

    def verdict(
        self, began: float, removed: Sequence[str] = (), altered: Sequence[str] = ()
    ) -> GateVerdict:
        """Return the verdict that follows from the runs."""
        log, failed = self.log, self.failed
        if removed:
            log = [*log, f"tests of main that did not pass: {some_names(removed)}\n"]
        return GateVerdict(
            ok=not failed and not removed,
            log="".join(log),
            seconds=time.monotonic() - began,
            flaky=tuple(dict.fromkeys(self.flaky)),
            failed=failed or (REMOVED if removed else ""),
            tests=self.ran.words,
            removed=tuple(removed),
            altered=tuple(altered),
        )


LINE_BYTES = 400


@dataclass(slots=True)
class RunningCommand:
    """A command of the gate that runs now."""

    command: str
    since: float
    last: str = ""
    """The last line that it printed and that is not empty."""

    def heard(self, chunk: bytes) -> None:
        """Take a piece of output."""
        lines = chunk[-8 * LINE_BYTES :].replace(b"\r", b"\n").split(b"\n")
        for line in reversed(lines):
            if text := line[-LINE_BYTES:].decode("utf-8", "replace").strip():
                self.last = text
                return


class GateListener(Protocol):
    """Follows each command of set-up and gate while it runs, for a person who waits."""

    def started(self, command: str) -> None: ...
    def printed(self, chunk: bytes) -> None: ...
    def ended(self, command: str, code: int, output: str, seconds: float) -> None: ...


class KnownTests:
    """Which tests ran, by tree: in memory for many trees, in a file for the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: OrderedDict[str, Ran] = OrderedDict()
        self._green: OrderedDict[str, None] = OrderedDict()
        self.looking = asyncio.Lock()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            passed = Counter({str(name): int(times) for name, times in kept["tests"].items()})
            ran = Ran(passed, counted=bool(kept["counted"]), runs=int(kept["runs"]))
            self._found[str(kept["tree"])] = ran

    def of(self, tree: str) -> Ran | None:
        """Return which tests ran on a tree; None when the gate has not run on it."""
        return self._found.get(tree)

    def keep(self, tree: str, ran: Ran) -> None:
        """Record which tests ran on a tree."""
        self._found[tree] = ran
        if len(self._found) > TREES_KEPT:
            self._found.popitem(last=False)
        about = {"tree": tree, "tests": ran.passed, "counted": ran.counted, "runs": ran.runs}
        fresh = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):  # the next process runs the gate on main again
            fresh.write_text(json.dumps(about), encoding="utf-8")
            fresh.replace(self._path)

    def is_green(self, tree: str) -> bool:
        """Return whether a tree passed with main's tests, none of them waived."""
        return tree in self._green

    def keep_green(self, tree: str) -> None:
        """Record that a tree with main's tests passed, with none of them waived."""
        self._green[tree] = None
        if len(self._green) > REMEMBERED:
            self._green.popitem(last=False)


class Gate:
    """Runs the gate; as many at once as there are slots."""

    def __init__(
        self,
        hub: Hub,
        slots: Slots,
        rules: GateRules,
        *,
        processes: Processes,
        sandbox: CommandSandbox,
    ) -> None:
        self._hub, self._slots, self.rules = hub, slots, rules
        self._processes, self._sandbox = processes, sandbox
        self.known = KnownTests(hub.path / "tests.json")
        self.flakes = Flakes(hub.path / "flakes.jsonl", rules.flaky)
        self._failures = re.compile(rules.failures, re.MULTILINE) if rules.failures else None
        for left in slots.folder.glob("home-*"):  # by a process that was killed
            remove(left)
        self._seen: OrderedDict[tuple[str, str], tuple[bool, tuple[str, ...]]] = OrderedDict()
        self._verdicts, self._set_ups = GreenVerdicts(), SetUpFailures()
        self._reuses = self._urgent = False
        self.running: dict[Path, RunningCommand] = {}
        """The command that runs in each slot."""
        self.listener: GateListener | None = None

    def for_train(self) -> Gate:
        """Return the same gate for the merge queue: its runs come before those of single changes.

        It does not run again what either of them saw green (`gate_memory.py`).
        """
        other = copy(self)
        other._urgent = other._reuses = True  # noqa: SLF001 - the same class
        return other

    async def check(
        self, sha: str, acceptance: Sequence[Command] = (), waived: Collection[str] | None = ()
    ) -> GateVerdict:
        """Return whether a commit passes the acceptance commands and the gate.

        It is judged by the tests of the main that it was made on: what main gained since then is
        not in it, and is tested when the merge queue puts both together.

        `waived` are tests of main that a person has waived, by name. None: main's tests do not
        count, as for commits of people.
        """
        if not self.rules.commands and not acceptance:
            return GateVerdict(ok=True, log="", seconds=0.0)
        main = await self._hub.base_on_main(sha)
        tree, mains = await self._hub.tree(sha), await self._hub.tree(main)
        if waived is None or waived:
            return await self._checked(sha, tree, main, mains, acceptance, waived)
        key = (tree, mains, tuple(dict.fromkeys(map(tuple, acceptance))))
        if self._reuses and (found := self._verdicts.of(key)):
            age, verdict = found
            note = f"not run again: green {age:.0f} s before, the same tree on the same main\n"
            return replace(verdict, log=note + verdict.log, seconds=0.0, reused=True)
        verdict = await self._checked(sha, tree, main, mains, acceptance, waived)
        self._verdicts.keep(key, verdict)
        return verdict

    async def _checked(
        self,
        sha: str,
        tree: str,
        main: str,
        mains: str,
        acceptance: Sequence[Command],
        waived: Collection[str] | None,
    ) -> GateVerdict:
        """Run the gate on a commit; `mains` is the tree of main."""
        began = time.monotonic()
        first = await self._tested(sha, tree, acceptance)
        if tree == mains:
            self.known.keep(tree, first.ran)
        if tree == mains or waived is None or first.failed:
            return first.verdict(began)
        before = await self._on_main(main, mains)
        removed = self._lost(before, first.ran, waived)
        altered = await self._with_mains(sha, tree, main, before, first, waived)
        if before.counted and first.ran.runs > before.runs and MORE_RUNS not in waived:
            altered.append(MORE_RUNS)
        if not first.failed and not removed:
            self.known.keep(tree, first.ran)
        return first.verdict(began, removed, altered)

    async def _with_mains(
        self,
        sha: str,
        tree: str,
        main: str,
        before: Ran,
        first: _Tested,
        waived: Collection[str],
    ) -> list[str]:
        """Run once more with main's tests and gate files, and return what fails then.

        `before` is what ran on main, `waived` the tests and commands that a person let go. The
        command that is red is listed where tests of main that fail do not explain it. Where it is
        red with main's gate files alone, `first` becomes red.
        """
        own, tests = await judged_by(self._hub, self.rules, main, tree)
        both = await self._restored(tree, [*own, *tests])
        if both == tree or self.known.is_green(both):
            return []
        first.log.append("once more, with tests and the gate's own files as they are on main:\n")
        again = await self._tested(sha, both, ())
        first.add(again)
        lost = self._lost(before, again.ran, waived)
        if not again.failed and not lost:
            if not waived:  # else it holds for this change alone
                self.known.keep_green(both)
            return []
        if own:
            alone = again
            if tests:
                first.log.append("once more, with the gate's own files as they are on main:\n")
                alone = await self._tested(sha, await self._restored(tree, own), ())
                first.add(alone)
            if alone.failed:
                first.failed = alone.failed
                return []
        explained = again.ran.fails_only({*lost, *waived, *self.rules.flaky})
        if again.failed and again.failed not in waived and not explained:
            lost.append(again.failed)
        return lost

    def _lost(self, before: Ran, ran: Ran, waived: Collection[str]) -> list[str]:
        """Return the tests that passed on main and not in this run, if main's are counted."""
        return ran.lost(before.passed, {*waived, *self.rules.flaky}) if before.counted else []

    async def _on_main(self, main: str, tree: str) -> Ran:
        """Return which tests ran on main, whose tree is `tree`; run the gate on it if need be."""
        async with self.known.looking:
            found = self.known.of(tree)
            if found is None:
                found = (await self._tested(main, tree, ())).ran
                self.known.keep(tree, found)
        return found

    async def _tested(self, sha: str, tree: str, acceptance: Sequence[Command]) -> _Tested:
        """Run the gate on a tree: output, flaky tests, the red command, and which tests ran."""
        try:
            async with self._checking(sha, tree) as check:
                failed = await check.all(acceptance)
        except _NotSetUp as wrong:
            await self._blame(tree, wrong)
            return _Tested(wrong.log, [], wrong.command, Ran())
        return _Tested(check.log, check.flaky, failed, check.ran)

    @contextlib.asynccontextmanager
    async def _checking(self, sha: str, tree: str) -> AsyncIterator[_Check]:
        """Check a tree out, for a check that begins with the set-up."""
        async with self._slots.lease(sha, tree, urgent=self._urgent) as slot:
            await asyncio.to_thread(self._look_at_room)
            home = Path(tempfile.mkdtemp(prefix="home-", dir=self._slots.folder))
            try:
                check = _Check(self, slot, tree, home)
                await check.set_up()
                self._set_ups.passed(tree)
                yield check
            finally:
                await asyncio.shield(asyncio.to_thread(remove, home))

    @contextlib.asynccontextmanager
    async def workshop(self, sha: str, tree: str) -> AsyncIterator[tuple[Slot, Path]]:
        """Check a tree out and set it up, for commands that are no test (`run`): slot and home."""
        try:
            async with self._checking(sha, tree) as check:
                yield check.slot, check.home
        except _NotSetUp as wrong:
            said = "".join(wrong.log)[-SAID_CHARS:]
            raise GateTrouble(f"a checkout cannot be set up: {wrong.command}\n{said}") from wrong

    async def _blame(self, tree: str, wrong: _NotSetUp) -> None:
        """Raise trouble for a set-up that failed; return where the tree itself is at fault."""
        main = self._hub.main()
        mains = await self._hub.tree(main)
        if self._set_ups.failed(tree) and tree != mains:
            if self._set_ups.at_fault(tree):
                return
            try:
                async with self._checking(main, mains):
                    self._set_ups.main_tried(tree, ok=True)
            except _NotSetUp:
                self._set_ups.main_tried(tree, ok=False)
        said = "".join(wrong.log)[-SAID_CHARS:]
        raise GateTrouble(f"a checkout of the gate cannot be set up: {wrong.command}\n{said}")

    async def _restored(self, tree: str, entries: Sequence[TreeEntry]) -> str:
        """Return the tree with `entries` as they are on main."""
        if not entries:
            return tree
        old = [(entry.old_mode, entry.old_blob, entry.path) for entry in entries]
        return await self._hub.replaced(tree, old)

    def _look_at_room(self) -> None:
        free = shutil.disk_usage(self._slots.folder).free
        if free < ROOM_BYTES:
            raise GateTrouble(
                f"{free >> 20} MB are free in {self._slots.folder}, too little to run the gate. "
                f"Fix: free {ROOM_BYTES >> 20} MB or more there"
            )

    async def run(
        self,
        argv: Command,
        slot: Slot,
        home: Path,
        *,
        network: bool,
        reports: Reports | None = None,
    ) -> tuple[int, str]:
        """Run one command; return its exit code (-1: too long) and its output."""
        running = RunningCommand(shlex.join(argv), time.monotonic())
        self.running[slot.path] = running
        if self.listener is not None:
            self.listener.started(running.command)
        try:
            done = await self._run(argv, slot, home, network=network, reports=reports)
        finally:
            self.running.pop(slot.path, None)
        if self.listener is not None:
            self.listener.ended(running.command, *done, time.monotonic() - running.since)
        return done

    async def _run(
        self,
        argv: Command,
        slot: Slot,
        home: Path,
        *,
        network: bool,
        reports: Reports | None,
    ) -> tuple[int, str]:
        shown = [self._hub.git.folder / "objects", *([REPORTER] if reports else [])]
        env = {**GIT, **download_folders(slot.path), **self.rules.env}
        env = env if reports is None else reports.env(env)
        running = self.running.get(slot.path)

        def heard(_stream: str, chunk: bytes) -> None:
            if running is not None:
                running.heard(chunk)
            if self.listener is not None:
                self.listener.printed(chunk)

        try:
            wrapped = self._sandbox.wrap(
                argv, slot.path, home=home, network=network, env=env, readable=shown
            )
            process = await self._processes.spawn(
                wrapped.argv,
                cwd=wrapped.cwd,
                env=wrapped.env,
                stdout_limit=OUTPUT_BYTES,
                stderr_limit=OUTPUT_BYTES,
                on_output=heard,
            )
        except SpawnError as error:
            if error.errno in OURS:
                raise GateTrouble(str(error)) from error
            return 127, f"{error}\n"
        except (ProcessError, OSError, LeadhandError) as error:
            raise GateTrouble(f"the gate could not be run: {error}") from error
        done, late = await self._ended(process)
        return (-1 if late else _code(done)), _printed(done) + late

    async def _ended(self, process: Process) -> tuple[Finished, str]:
        """Return how a command ended, and why it was ended if it was: too long, or too much."""
        waiting = asyncio.ensure_future(process.wait())
        watcher = asyncio.create_task(excess(process.pid, self.rules.tree))
        both: set[asyncio.Future[Any]] = {waiting, watcher}
        try:
            await asyncio.wait(both, timeout=self.rules.time_s, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result(), ""
            late = f"not done after {self.rules.time_s:g} s\n"
            if watcher.done():
                late = f"ended: {watcher.result()}\n"
            return await process.end(GRACE_S), late
        except ProcessError as error:
            raise GateTrouble(str(error)) from error
        except asyncio.CancelledError:
            await asyncio.shield(process.end(0))
            raise
        finally:
            watcher.cancel()

    def failures_in(self, text: str) -> tuple[str, ...]:
        """Return the names of failed tests, if the project says how to find them."""
        if self._failures is None:
            return ()
        return tuple(dict.fromkeys(found[1] for found in self._failures.finditer(text)))

    def compare(self, key: tuple[str, str], names: tuple[str, ...], *, green: bool) -> None:
        """Record tests as flaky that one command on one tree failed and then passed."""
        before = self._seen.pop(key, None)
        self._seen[key] = (green, names)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        if before is not None and before[0] != green:
            self.flakes.record(before[1] if green else names, key[0], green=green)


@dataclass(slots=True)
class _Check:
    """One commit on its way through the gate."""

    gate: Gate
    slot: Slot
    tree: str
    home: Path
    log: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    ran: Ran = field(default_factory=Ran)

    async def all(self, acceptance: Sequence[Command]) -> str:
        """Run all commands but the set-up's; return the one that was red, or an empty text."""
        rules = self.gate.rules
        await asyncio.to_thread(self._discard_files)
        for argv in dict.fromkeys(tuple(each) for each in (*acceptance, *rules.commands)):
            if not await self._passes(argv):
                return shlex.join(argv)
        return ""

    async def _passes(self, argv: Command) -> bool:
        green, ran = await self._one(argv)
        if not green:
            names = self._names(argv, ran)
            if not self.gate.flakes.known(names):
                self.ran.merge(ran)
                return False
            self.log.append(f"known to be flaky, tried once more: {', '.join(names)}\n")
            green, ran = await self._one(argv)
            self.gate.flakes.record(names, self.slot.base, green=green)
            self.flaky += names
        if argv in self.gate.rules.commands:
            self.ran.merge(ran)
        return green

    async def set_up(self) -> None:
        """Run the commands of the set-up; raise `_NotSetUp` at the first that fails."""
        network = self.gate.rules.setup_network
        for argv in self.gate.rules.setup:
            code, text = await self.gate.run(argv, self.slot, self.home, network=network)
            self.log.append(f"$ {shlex.join(argv)}\n{text or SILENT}exit {code}\n")
            if code:
                raise _NotSetUp(shlex.join(argv), self.log)

    async def _one(self, argv: Command) -> tuple[bool, Ran]:
        """Run a command; whether it is green, and which tests it ran."""
        reports = Reports(Path(tempfile.mkdtemp(prefix="r", dir=self.home)), os.urandom(32))
        code, text = await self.gate.run(argv, self.slot, self.home, network=False, reports=reports)
        ran = await asyncio.to_thread(self._read, reports, text)
        against = list(ran.problems)
        if code == 0 and ran.failed:
            against.append(
                f"tests failed, though the command's exit code is 0: {some_names(ran.failed)}"
            )
        green = code == 0 and not against
        notes = "".join(f"{each}\n" for each in against)
        self.log.append(f"$ {shlex.join(argv)}\n{text or SILENT}exit {code}\n{notes}")
        names = () if green else self._names(argv, ran)
        self.gate.compare((self.tree, shlex.join(argv)), names, green=green)
        return green, ran

    def _read(self, reports: Reports, text: str) -> Ran:
        ran = reports.read()
        if not ran.counted:
            ran = parse_test_output(text)
        for number, path in enumerate(self._files()):
            try:
                if number < REPORTS_MAX and path.stat().st_size <= REPORT_BYTES:
                    ran.merge(parse_junit(path.read_bytes()))
                path.unlink()  # the next command writes its own
            except OSError as error:
                ran.problems.append(f"a report of tests that cannot be read or removed: {error}")
        return ran

    def _discard_files(self) -> None:
        """Remove the reports that the commit brings along: they tell of no run in this slot."""
        for path in self._files():
            with contextlib.suppress(OSError):  # `_read` finds it again, and is red
                path.unlink()

    def _files(self) -> Iterator[Path]:
        """Yield the files that `reports` names, but none that is a link or lies behind one."""
        top = self.slot.path.resolve()
        for pattern in self.gate.rules.reports:
            for path in sorted(top.glob(pattern)):
                if os.path.realpath(path) == str(path) and os.path.isfile(path):  # noqa: PTH113
                    yield path  # `Path.resolve` and `is_file` raise at loops and closed folders

    def _names(self, argv: Command, ran: Ran) -> tuple[str, ...]:
        return self.gate.failures_in(self.log[-1]) or tuple(ran.failed) or (shlex.join(argv),)


def _code(done: Finished) -> int:
    return done.exit_code if done.exit_code is not None else 128 + (done.signal or 0)


def _printed(done: Finished) -> str:
    said = []
    for stream in (done.stdout, done.stderr):
        data = stream.data
        if stream.truncated:
            gap = f"\n… {stream.total - len(data)} bytes left out …\n".encode()
            data = data[: stream.head] + gap + data[stream.head :]
        text = data.decode("utf-8", "backslashreplace")
        said.append(text if not text or text.endswith("\n") else text + "\n")
    return "".join(said)


# Health of main: whether it passes its own gate, checked before the first agent starts.
#
# A gate that is red on a main that nobody has touched is red for every change: a command that is
# mistyped, a tool that is not in the sandbox, a repository that is broken. Every agent would be
# paid to fail, and blamed for it. So nobody starts until main was seen green once, with these
# rules. From then on the train keeps it so. What was seen is written down: a restart does not look
# again.
#
# One green run says nothing of a test that fails now and then. While agents write their first
# changes the gate has nothing to do: it runs on main some times more, and what is red there though
# it was green is known as flaky before a change is blamed for it.


AGAIN_S = 300.0
"""A main that is red is looked at again when it has moved, or after this long."""
TROUBLE_S = 10.0
"""A main that could not be tested is looked at again after this long."""
LOOK_S = 1.0
TRIES = 3
REPEATS = 4
"""How often main is tested once more when it is green, to learn its flaky tests."""
SAID_CHARS = 1200
COMMAND_CHARS = 80
LINE_CHARS = 120
LOOKING = "main is being tested before anybody starts"


class Soundness:
    """Checks whether main passes its own gate before agents start."""

    def __init__(
        self,
        hub: Hub,
        gate: Gate,
        folder: Path,
        note: Callable[..., None] | None = None,
        ci: CombinedGate | None = None,
    ) -> None:
        """Create it; with `ci`, main is tested by the CI of the code host as well."""
        self._hub, self._gate, self._path = hub, gate, folder / "sound.json"
        self._ci = ci
        self._note = note or (lambda _what, **_more: None)
        self.log = ""
        """What the gate printed, where main is red."""
        self.against = "" if self._seen_green() else LOOKING
        self._repeats = REPEATS if self.against else 0

    @property
    def progress(self) -> str:
        """Return which command tests main, for how long, and its last line; empty: none does."""
        if self.against != LOOKING:
            return ""
        now = [
            f"{each.command[:COMMAND_CHARS]} for {time.monotonic() - each.since:.0f} s"
            + (f": {each.last[:LINE_CHARS]}" if each.last else "")
            for each in self._gate.running.values()
        ]
        return f"{LOOKING}: {', '.join(now)}" if now else LOOKING

    async def watch(self) -> None:
        """Look until main is green; then repeat its tests, and there is nothing left to do."""
        while self.against:
            main = self._hub.main()
            pause = AGAIN_S
            try:
                await self._look(main)
            except Exception as error:  # noqa: BLE001 - no agent would ever start: report it
                self.against = f"main could not be tested: {str(error) or type(error).__name__}"
                pause = TROUBLE_S
            waited = 0.0
            while self.against and waited < pause and self._hub.main() == main:
                await asyncio.sleep(LOOK_S)
                waited += LOOK_S
        main = self._hub.main()
        for _ in range(self._repeats):
            with contextlib.suppress(OSError, LeadhandError):  # agents are at work meanwhile
                await self._test(main)

    async def _test(self, main: str) -> GateVerdict:
        verdict = await (self._ci or self._gate).check(main)
        about = {"ok": verdict.ok, "failed": verdict.failed, "tests": verdict.tests}
        self._note("looked", sha=main, seconds=round(verdict.seconds, 3), **about)
        return verdict

    async def _look(self, main: str) -> None:
        for _ in range(TRIES):  # gates are flaky; what is broken is red each time
            verdict = await self._test(main)
            if verdict.ok:
                break
        if verdict.ok:
            self._write(main)
            self.against = self.log = ""
            return
        self.log = verdict.log[-SAID_CHARS:]
        self.against = (
            f"main itself does not pass {verdict.failed}, so no change could; no agent is started"
        )

    def _rules(self) -> str:
        rules = self._gate.rules
        about = [rules.commands, rules.setup, rules.gate_paths, dict(rules.env)]
        if self._ci is not None:
            about.append(self._ci.digest)
        return sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def _seen_green(self) -> bool:
        """Return whether main was green for an earlier fleet with the same rules."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return bool(found["rules"] == self._rules())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _write(self, main: str) -> None:
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps({"rules": self._rules(), "main": main}), encoding="utf-8")
            fresh.replace(self._path)
        except OSError:
            return  # the next start looks again
