"""The gate: what a change must pass, run by us, on exactly one commit.

An agent's word for its tests counts for nothing. The gate checks a commit out into a slot of its
own and runs the acceptance commands and then the gate's own, in the sandbox, without a network,
with a home that is new each time. Where the commit changes the gate's own files, the gate's
commands run once more with those files as they are on main: whoever could change the test could
pass it. Both must be green, for the changed ones are the gate of everybody who comes after. Which
files these are is configured, or else read off the commands (`gatefiles.py`).

Laws
    1. Green is an exit code of 0 from every command. Too long, killed, not to be found: red.
    2. What keeps a command from being run is trouble (`GateTrouble`), never a verdict: no room on
       the disk, no sandbox, a lost supervisor, git's own failures.
    3. When `check` returns or is cancelled, no process of it is left.
    4. A failure that is known to be flaky is tried once more, in front of everybody: both runs are
       in the log, the verdict names it, the record counts it. What is flaky is known from the
       configuration, or because one and the same tree was seen red and green.
    5. Time and output of each command are bounded.
"""

import asyncio
import errno
import json
import re
import shlex
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from leadhand.errors import LeadhandError
from leadhand.fleet.gatefiles import named, shadowing
from leadhand.fleet.git import raw_of
from leadhand.fleet.hub import Hub
from leadhand.fleet.patterns import within
from leadhand.fleet.scrubbing import remove
from leadhand.fleet.slots import Slot, Slots
from leadhand.workers.processes import Finished, ProcessError, Processes, SpawnError

Command = tuple[str, ...]

TIME_S = 900.0
GRACE_S = 2.0
OUTPUT_BYTES = 256 << 10
ROOM_BYTES = 64 << 20
REMEMBERED = 2_000
GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Git ends at once where it may not read the machine's configuration, as in a sandbox."""
OURS = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO}
"""A command that could not be started for one of these is the machine's trouble."""


class GateTrouble(LeadhandError):
    """The gate could not be run, which says nothing about the change."""


class Wrapped(Protocol):
    """What is started instead of a command."""

    @property
    def argv(self) -> tuple[str, ...]: ...
    @property
    def env(self) -> dict[str, str]: ...
    @property
    def cwd(self) -> Path: ...


class Sandbox(Protocol):
    """What keeps a command in its slot (`sandbox.py`)."""

    def wrap(
        self,
        argv: Sequence[str],
        slot: Path,
        *,
        home: Path,
        network: bool = False,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> Wrapped: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate said of a commit; `failed` is the command that was red."""

    ok: bool
    log: str
    seconds: float
    flaky: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """What is run, and how."""

    commands: tuple[Command, ...]
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


class Flakes:
    """What failed and passed without a change: a file of lines, each one sighting."""

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
        """Whether all of these are flaky; nothing is nothing."""
        return bool(names) and all(name in self.sightings for name in names)

    def record(self, names: Sequence[str], sha: str, *, green: bool) -> None:
        """Each was red, and then tried again."""
        lines = ["\n"]  # the last one may have been cut off
        for name in names:
            self.sightings[name] = self.sightings.get(name, 0) + 1
            about = {"name": name, "sha": sha, "green": green, "at": round(time.time())}
            lines.append(json.dumps(about) + "\n")
        with self._path.open("a") as file:
            file.write("".join(lines))


class Gate:
    """Runs the gate; as many at once as there are slots."""

    def __init__(
        self,
        hub: Hub,
        slots: Slots,
        rules: GateRules,
        *,
        processes: Processes,
        sandbox: Sandbox,
        flakes: Flakes | None = None,
    ) -> None:
        self._hub, self._slots, self.rules = hub, slots, rules
        self._processes, self._sandbox = processes, sandbox
        self.flakes = flakes or Flakes(hub.path / "flakes.jsonl", rules.flaky)
        self._failures = re.compile(rules.failures, re.MULTILINE) if rules.failures else None
        for left in slots.folder.glob("home-*"):  # by a process that was killed
            remove(left)
        self._seen: OrderedDict[tuple[str, str], tuple[bool, tuple[str, ...]]] = OrderedDict()

    def in_slots(self, slots: Slots) -> "Gate":
        """The same gate with slots of its own; what is known of flaky tests is shared."""
        other = copy(self)
        other._slots = slots  # noqa: SLF001 - it is one of us
        return other

    async def check(self, sha: str, acceptance: Sequence[Command] = ()) -> Verdict:
        """Whether a commit passes the acceptance commands and the gate."""
        began = time.monotonic()
        tree = await self._hub.tree(sha)
        log, flaky, failed = await self._tested(sha, tree, acceptance)
        judged = await self._as_on_main(tree)
        if not failed and judged != tree:
            log.append("once more, with the gate's own files as they are on main:\n")
            more, again, failed = await self._tested(sha, judged, ())
            log, flaky = log + more, flaky + again
        took = time.monotonic() - began
        return Verdict(not failed, "".join(log), took, tuple(dict.fromkeys(flaky)), failed)

    async def _tested(
        self, sha: str, tree: str, acceptance: Sequence[Command]
    ) -> tuple[list[str], list[str], str]:
        """What was printed, what is flaky, and the command that was red."""
        async with self._slots.lease(sha, tree) as slot:
            await asyncio.to_thread(self._look_at_room)
            home = Path(tempfile.mkdtemp(prefix="home-", dir=self._slots.folder))
            try:
                check = _Check(self, slot, tree, home)
                failed = await check.all(acceptance)
            finally:
                await asyncio.shield(asyncio.to_thread(remove, home))
        return check.log, check.flaky, failed

    async def _own(self) -> tuple[str, ...]:
        """The gate's files: those that are configured, or those on main that its commands name."""
        if self.rules.gate_paths:
            return self.rules.gate_paths
        found = await self._on_main({name for argv in self.rules.commands for name in named(argv)})
        return tuple(name for name, kind in found.items() if kind == "blob")

    async def _shadows(self) -> tuple[str, ...]:
        """What is not on main, and would come before what the gate's commands mean there."""
        wanted = {name for argv in self.rules.commands for name in shadowing(argv)}
        return tuple(sorted(wanted - {*await self._on_main(wanted)}))

    async def _on_main(self, names: Collection[str]) -> dict[str, str]:
        """Those of these that are there: what kind of thing each is."""
        if not names:
            return {}
        said = await self._hub.git("ls-tree", "-z", self._hub.main(), "--", *sorted(names))
        lines = [line.partition("\t") for line in said.names()]
        return {name: about.split(" ")[1] for about, _, name in lines}

    async def _as_on_main(self, tree: str) -> str:
        """The same files, with the gate's own as they are on main."""
        own = (*await self._own(), *await self._shadows())
        theirs = await self._hub.entries(self._hub.main(), tree) if own else []
        ours = [entry for entry in theirs if within(entry.path, own)]
        if not ours:
            return tree
        lines = b"".join(
            f"{entry.old_mode.lstrip('0') or '0'} {entry.old_blob}\t".encode()
            + raw_of(entry.path)
            + b"\0"
            for entry in ours
        )
        with tempfile.TemporaryDirectory(dir=self._hub.path, prefix="gate-") as folder:
            index = Path(folder) / "index"
            await self._hub.git("read-tree", tree, index=index)
            await self._hub.git("update-index", "-z", "--index-info", stdin=lines, index=index)
            return (await self._hub.git("write-tree", index=index)).text

    def _look_at_room(self) -> None:
        free = shutil.disk_usage(self._slots.folder).free
        if free < ROOM_BYTES:
            raise GateTrouble(f"{free >> 20} MB are left on the disk, too little to run the gate")

    async def run(self, argv: Command, slot: Slot, home: Path, *, network: bool) -> tuple[int, str]:
        """One command: its exit code (-1: too long) and what it printed."""
        objects = self._hub.git.folder / "objects"
        env = {**GIT, **self.rules.env}
        try:
            wrapped = self._sandbox.wrap(
                argv, slot.path, home=home, network=network, env=env, readable=[objects]
            )
            process = await self._processes.spawn(
                wrapped.argv,
                cwd=wrapped.cwd,
                env=wrapped.env,
                stdout_limit=OUTPUT_BYTES,
                stderr_limit=OUTPUT_BYTES,
            )
        except SpawnError as error:
            if error.errno in OURS:
                raise GateTrouble(str(error)) from error
            return 127, f"{error}\n"
        except (ProcessError, OSError, LeadhandError) as error:
            raise GateTrouble(f"the gate could not be run: {error}") from error
        late = ""
        try:
            async with asyncio.timeout(self.rules.time_s):
                done = await process.wait()
        except TimeoutError:
            late = f"not done after {self.rules.time_s:g} s\n"
            done = await process.end(GRACE_S)
        except ProcessError as error:
            raise GateTrouble(str(error)) from error
        except asyncio.CancelledError:
            await asyncio.shield(process.end(0))
            raise
        return (-1 if late else _code(done)), _printed(done) + late

    def failures_in(self, text: str) -> tuple[str, ...]:
        """The names of failed tests, if the project says how to find them."""
        if self._failures is None:
            return ()
        return tuple(dict.fromkeys(found[1] for found in self._failures.finditer(text)))

    def compare(self, key: tuple[str, str], names: tuple[str, ...], *, green: bool) -> None:
        """One command on one tree, red and green: what failed then is flaky."""
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

    async def all(self, acceptance: Sequence[Command]) -> str:
        """The command that was red, or nothing."""
        rules = self.gate.rules
        for argv in rules.setup:
            if not await self._one(argv, network=rules.setup_network):
                return shlex.join(argv)
        for argv in dict.fromkeys(tuple(each) for each in (*acceptance, *rules.commands)):
            if not await self._passes(argv):
                return shlex.join(argv)
        return ""

    async def _passes(self, argv: Command) -> bool:
        if await self._one(argv):
            return True
        names = self._names(argv)
        if not self.gate.flakes.known(names):
            return False
        self.log.append(f"known to be flaky, tried once more: {', '.join(names)}\n")
        green = await self._one(argv)
        self.gate.flakes.record(names, self.slot.base, green=green)
        self.flaky += names
        return green

    async def _one(self, argv: Command, *, network: bool = False) -> bool:
        code, printed = await self.gate.run(argv, self.slot, self.home, network=network)
        self.log.append(f"$ {shlex.join(argv)}\n{printed}exit {code}\n")
        names = () if code == 0 else self._names(argv)
        self.gate.compare((self.tree, shlex.join(argv)), names, green=code == 0)
        return code == 0

    def _names(self, argv: Command) -> tuple[str, ...]:
        return self.gate.failures_in(self.log[-1]) or (shlex.join(argv),)


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
