"""Coding agents as processes: start, supervision, clocks, and the class of a failure.

An adapter says what to start (`launch`) and how to read what it prints (`reading`). The rest is
here: the private home of each task, the sandbox, stopping, and messages.

A message to an agent at work ends its process, and the same conversation goes on with the
message in a new one: the one way that every agent with conversations has, with nobody waiting
on a standard input that stays open. The clocks and limits go on as they were.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.codec.events import escape_surrogates
from leadhand.errors import LeadhandError
from leadhand.fleet.agents.base import (
    AgentOutput,
    Assignment,
    CoderEvent,
    CoderResult,
    Ended,
    Ending,
    Heard,
    Launch,
    Workspace,
)
from leadhand.fleet.agents.provider_answers import ProviderAnswers
from leadhand.fleet.gate.gate import OURS
from leadhand.fleet.repository.toolchain import download_folders
from leadhand.fleet.workspace.clean_up import remove
from leadhand.fleet.workspace.process_limits import TreeLimits, excess
from leadhand.models.reset_times import wait_s
from leadhand.workers.processes.leftovers import ProcessError
from leadhand.workers.processes.runner import Finished, Process, Processes, SpawnError
from leadhand.workers.sandbox.sandbox import PATH, NoSandbox, Sandbox, Wrapped

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from leadhand.fleet.agents.base import Coder
    from leadhand.workers.sandbox.proxy import Proxy


# Failure classes: from a status or a message to a failure class of the core.
#
# Coders say their troubles in prose, and each in its own; what they have in common are the
# providers behind them. A status is believed before a message, and a message is searched for the
# narrower thing first: a rate limit that speaks of tokens is a rate limit.


STATUSES = {
    400: "permanent",
    401: "denied",
    402: "budget",
    403: "denied",
    404: "unavailable",
    408: "transient",
    413: "context_overflow",
    429: "rate_limited",
    529: "transient",
}

SAID: tuple[tuple[str, str], ...] = (
    ("budget", r"credit balance|insufficient_quota|spend limit|requires usage credits"),
    ("budget", r"billing|exceeded your current quota"),
    ("context_overflow", r"prompt is too long|context[ _-](?:length|window)|maximum context"),
    ("context_overflow", r"ran out of room|input is too long|request_too_large"),
    ("rate_limited", r"rate[ _-]?limit|too many (?:requests|tokens)|throttl|\b429\b"),
    ("rate_limited", r"resource[ _](?:has been )?exhausted|exhausted your capacity|limit reached"),
    ("rate_limited", r"(?:usage|session|weekly|daily|monthly|5-hour|opus|sonnet)[ _]limit"),
    ("rate_limited", r"(?:hit|reached) your (?:\w+ )?limit|quota (?:limit|will reset)"),
    ("rate_limited", r"quota[ _](?:exceeded|exhausted|reached)"),
    ("denied", r"authenticat|api[ _-]key|unauthori[sz]ed|not logged in|please run /login"),
    ("denied", r"permission_error|oauth|\b40[13]\b"),
    ("transient", r"connection refused|ECONNREFUSED"),
    ("policy", r"usage polic|content[ _-](?:filter|policy)|refus|cyber_policy"),
    ("transient", r"overloaded|timed? ?out|connection|stream (?:disconnected|closed|error)|ECONN"),
    (
        "transient",
        r"\b5\d\d\b|internal server error|bad gateway|unavailable|try again|network|temporar",
    ),
)
_SAID = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in SAID)
_STATUS = re.compile(r"(?:API Error|status(?: code)?|HTTP)[: ]+(\d{3})\b", re.IGNORECASE)


def classify(message: str, status: int | None = None) -> str:
    """Return the failure class of a message or status; empty if it is unknown."""
    if status is None and (found := _STATUS.search(message)):
        status = int(found[1])
    of_message = next((name for name, pattern in _SAID if pattern.search(message)), "")
    if of_message == "budget" and retry_after(message) is not None:
        of_message = "rate_limited"  # money that is spent does not come back at a stated time
    if status is None:
        return of_message
    of_status = STATUSES.get(status) or ("transient" if status >= 500 else "")
    # A status tells which side is at fault; the message tells what happened.
    narrower = {
        400: ("context_overflow", "policy", "budget", "denied", "rate_limited"),
        403: ("budget", "policy"),
        404: ("denied",),
        429: ("budget", "rate_limited"),
    }
    return of_message if of_message in narrower.get(status, ()) else of_status or of_message


def retry_after(message: str) -> float | None:
    """Return the seconds that a message says to wait; None if it does not say so to the minute."""
    return wait_s(message, time.time())


# Files that a coder's program needs to run in a sandbox: itself, and its own package.
#
# A program is one file, as most are that stand in a folder such as ``~/bin``; or it is part of a
# package, below ``node_modules`` or ``site-packages``, whose other files it reads. What lies beside
# it is somebody else's. What it needs beyond that is named by people (`readable`).


PACKAGES = ("node_modules", "site-packages", "dist-packages")
PACKAGES_MAX = 500
SHEBANG_BYTES_MAX = 200
MANIFEST_BYTES_MAX = 1 << 20
DEPENDENCIES = ("dependencies", "optionalDependencies")
PACKAGE_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")


def needed_by(program: str, apart: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the paths that a program needs; none for a program found among the system's.

    Nothing is shown that contains a home or a path in `apart`.
    """
    if "/" not in program:
        return ()
    file = Path(program).resolve()
    package = _package(file)
    kept = [place.resolve() for place in (Path.home(), *apart)]
    runs_it = tuple(map(Path, _interpreter(program)))
    if package is None or any(place.is_relative_to(package) for place in kept):
        return (file, *runs_it)
    shown = {path: None for each in _with_dependencies(package) for path in (each, each.resolve())}
    mine = (path for path in shown if not any(place.is_relative_to(path) for place in kept))
    return (*mine, *runs_it)


def started(program: str, sandbox: Sandbox) -> list[str]:
    """Return the words that start a program inside the sandbox, where a link may be missing.

    A script whose interpreter is not among the system's programs is started by its interpreter.
    """
    if sandbox.kind == "none" or "/" not in program:
        return [program]
    return [*_interpreter(program), str(Path(program).resolve())]


def _interpreter(program: str) -> tuple[str, ...]:
    """Return the interpreter that a script names by `env` and that sandboxes do not show.

    It is looked for beside the program first: managers of versions of Node put both there.
    """
    try:
        with Path(program).open("rb") as file:
            words = file.readline(SHEBANG_BYTES_MAX).decode("utf-8", "replace").split()
    except OSError:
        return ()
    if len(words) != 2 or words[0] not in ("#!/usr/bin/env", "#!/bin/env"):
        return ()
    if shutil.which(words[1], path=PATH):
        return ()
    beside = f"{Path(program).parent}:{os.environ.get('PATH', '')}"
    found = shutil.which(words[1], path=beside)
    return (str(Path(found).resolve()),) if found else ()


def _with_dependencies(package: Path) -> Iterator[Path]:
    """Yield a package, and those of npm that it says it needs and that are installed beside it.

    Programs come as a package for all machines and one for this machine, which lies beside it.
    """
    left, seen = [package], {package}
    while left and len(seen) <= PACKAGES_MAX:
        folder = left.pop(0)
        yield folder
        real = folder.resolve()
        holder = next((each for each in real.parents if each.name == "node_modules"), None)
        if holder is None:
            continue
        for name in _dependencies(real):
            beside = holder / name
            if beside.is_dir() and beside not in seen:
                seen.add(beside)
                left.append(beside)


def _dependencies(package: Path) -> list[str]:
    """Return the names of the packages that a package of npm needs."""
    file = package / "package.json"
    try:
        if file.stat().st_size > MANIFEST_BYTES_MAX:
            return []
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    tables = [manifest.get(key) for key in DEPENDENCIES] if isinstance(manifest, dict) else []
    names = [name for table in tables if isinstance(table, dict) for name in table]
    return [name for name in names if PACKAGE_NAME.fullmatch(name)]


def _package(file: Path) -> Path | None:
    """Return the folder of the package that a file belongs to, or None."""
    for folder in file.parents:
        holder = folder.parent
        if holder.name in PACKAGES and not folder.name.startswith("@"):
            return folder
        if folder.name.startswith("@"):  # the scope of a package of npm
            return None
        if holder.name.startswith("@") and holder.parent.name in PACKAGES:
            return folder
    return None


# Supervision of one coder's process: its events, its three clocks, and its end.
#
#     process    it is alive; when it ends, that is all there is, result or not
#     events     it speaks: anything but another try at the same request counts
#     artefacts  the slot changes (`Fingerprint`), looked at only when it matters
#
# A coder is silent when neither an event nor a change came for `silence_s`: a compiler that writes
# for ten minutes is no hang. It is stalled when it talks on while nothing has changed for
# `stall_s`. Tries at the same request are counted apart: a coder that waits for its provider by
# itself, ten times and for minutes, keeps a slot that others could use; after `RETRIES_MAX`, or
# when it would wait longer than `WAIT_S_MAX`, it is ended, and the ladder waits without holding
# one.
#
# The end is always the same: result, then a grace to leave by itself; `ending` is awaited so that
# work in progress can be saved; then TERM to the group, KILL to all of it, and it is seen dead. All
# of that is the supervisor's craft (`workers/processes/runner.py`), which is why coders run
# under it: a host that is killed leaves no agent behind, and an agent that daemonises is found.


# A coder's output as documents: one JSON object on each line, in bounded memory.
#
# A line that is longer than the most is dropped up to its end, and counted: a tool result of a
# hundred megabytes must neither fill our memory nor end the conversation. What is no JSON is kept
# as text, since that is how programs say what is wrong.


LINE_BYTES_MAX = 10 << 20


class AgentLines:
    """Takes chunks as they come, gives lines when they are whole."""

    def __init__(self, most: int = LINE_BYTES_MAX) -> None:
        self._most = most
        self._begun = bytearray()
        self._skipping = False
        self.dropped = 0
        """Lines that were too long."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that are complete."""
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._take(piece)
            if not self._skipping:
                yield bytes(self._begun)
            self._begun.clear()
            self._skipping = False
        self._take(rest)

    def rest(self) -> Iterator[bytes]:
        """Yield the last output, which has no end of line."""
        if self._begun and not self._skipping:
            yield bytes(self._begun)
        self._begun.clear()

    def _take(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._begun) + len(piece) > self._most:
            self._begun.clear()
            self._skipping = True
            self.dropped += 1
        else:
            self._begun += piece


def document(line: bytes) -> Mapping[str, Any] | None:
    """Return the object on a line; None for anything else."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    found: Mapping[str, Any] = escape_surrogates(value) if b"\\u" in line else value
    return found


# The third clock: whether anything in a slot has changed, and when.
#
# A fingerprint is made of names, sizes, kinds and change times, not of content: thousands of files
# in some milliseconds. Change times (ctime) cannot be set by a program, so touching files back does
# not hide a change. Git's own folder counts by its index and its HEAD only. What is larger than the
# most is looked at in part; the part is the same every time, as long as nothing changes.


ENTRIES_MAX = 50_000
PASSED_OVER = frozenset({".git", "node_modules", "__pycache__", ".venv"})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A slot at one moment."""

    digest: str
    changed_at: float
    """When the newest of its entries changed, by the clock on the wall."""


def fingerprint(folder: Path) -> Fingerprint:
    """Return the present fingerprint of a folder; a folder that is gone has one too."""
    seen, newest, count = blake2b(digest_size=16), 0.0, 0
    folders = [os.fspath(folder)]
    for name in (".git/index", ".git/HEAD"):
        try:
            state = os.lstat(folder / name)
        except OSError:
            continue
        seen.update(f"{name}\0{state.st_size}\0{state.st_ctime_ns}\n".encode())
        newest = max(newest, state.st_ctime)
    while folders and count < ENTRIES_MAX:
        here = folders.pop()
        try:
            with os.scandir(here) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            seen.update(b"gone\n")
            continue
        for entry in listed:
            if entry.name in PASSED_OVER:
                continue
            count += 1
            try:
                state = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
            except OSError:
                continue
            text = f"{entry.path}\0{state.st_mode}\0{state.st_size}\0{state.st_ctime_ns}\n"
            seen.update(text.encode(errors="surrogateescape"))
            newest = max(newest, state.st_ctime)
    return Fingerprint(seen.hexdigest(), newest)


GRACE_S = 30.0
TERM_S = 5.0
ENDING_S_MAX = 60.0
TICK_S_MAX = 1.0
LOOKS = 4  # at the slot, in the time after which it would be too late
RETRIES_MAX = 3
WAIT_S_MAX = 30.0
SUM_MAX = 1e6
"""Dollars or seconds: what a program says beyond that is no figure to be counted."""
OVER = 2.0
"""How many times its limit an attempt counts as having cost at most, where the program's output may
be that of others: they could spend a fleet's day in a line. Beyond its limit it is ended."""
TAIL_LINES = 200
NOISE_LINES = 20
LINES_PER_S = 500
"""Plain lines that are heard in a second. Of a flood only the last ones are: whoever prints a
hundred megabytes must not keep all others from being heard."""
LAST_CHARS = 200
TAIL_CHARS = 8_000
TEXT_CHARS = 20_000
KEPT_BYTES = 64 << 10
TREE = TreeLimits()
"""For an agent with all that it starts."""


class Attendance:
    """One process of one coder, from its start until it is seen dead."""

    def __init__(
        self,
        assignment: Assignment,
        reading: AgentOutput,
        heard: Heard,
        *,
        ending: Ending | None = None,
        plain: bool = False,
        grace_s: float = GRACE_S,
        term_s: float = TERM_S,
    ) -> None:
        """Attend to one process; `plain`: exit code 0 means done, and its output is text."""
        self.assignment = assignment
        self._reading, self._heard, self._ending = reading, heard, ending
        self._plain, self._grace_s, self._term_s = plain, grace_s, term_s
        self._out, self._err = AgentLines(), AgentLines()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._noise: deque[str] = deque(maxlen=NOISE_LINES)
        self._late: deque[tuple[str, bytes]] = deque(maxlen=NOISE_LINES)
        self._second, self._plain_lines = 0.0, 0
        self._wake = asyncio.Event()
        self._verdict: tuple[Ended, str, str] | None = None
        self._result: CoderEvent | None = None
        self._result_at = 0.0
        self._error = CoderEvent("other")
        self._limit_until = 0.0
        """When the limit ends that its tool told of in a field; 0: none."""
        self._begun = self._event_at = time.monotonic()
        self._looked_at = 0.0
        self._retries = 0
        self._texts = ""
        self.started = False
        self.session, self.cost = assignment.session, 0.0
        self.tokens_in = self.tokens_out = self.turns = 0
        self._before = self._now = Fingerprint("", 0.0)

    def stop(self, ended: Ended, failure: str, why: str) -> None:
        """Let it end for this reason, unless there is one already."""
        if self._verdict is None:
            self._verdict = (ended, failure, why)
            self._wake.set()

    async def attend(
        self, processes: Processes, wrapped: Wrapped, stdin: bytes | None
    ) -> CoderResult:
        """Start it and stay until it is gone; also when this is cancelled."""
        folder = wrapped.cwd
        self._before = self._now = await asyncio.to_thread(fingerprint, folder)
        process = await processes.spawn(
            wrapped.argv,
            cwd=folder,
            env=wrapped.env,
            stdin=stdin,
            stdout_limit=KEPT_BYTES,
            stderr_limit=KEPT_BYTES,
            on_output=self._printed,
            private=not self._plain,
        )
        self.started = True
        over = asyncio.ensure_future(process.wait())
        watcher = asyncio.create_task(self._watch(process.pid))
        try:
            while not over.done() and self._verdict is None:
                self._wake.clear()
                await self._pause(over)
                await self._look(wrapped)
            finished = await self._end(process, over)
        except BaseException:
            await _all_the_same(self._leave(process, over))
            raise
        finally:
            watcher.cancel()
        self._drain()
        self._now = await asyncio.to_thread(fingerprint, folder)
        return self._judge(finished)

    async def _watch(self, pid: int) -> None:
        self.stop("failed", "criteria_unmet", await excess(pid, TREE))

    # --- what it says ---

    def _printed(self, stream: str, chunk: bytes) -> None:
        lines = self._out if stream == "stdout" else self._err
        for line in lines.feed(chunk):
            self._line(stream, line)

    def _drain(self) -> None:
        for stream, lines in (("stdout", self._out), ("stderr", self._err)):
            for line in lines.rest():
                self._line(stream, line)
        self._catch_up()

    def _line(self, stream: str, line: bytes) -> None:
        found = document(line) if stream == "stdout" else None
        if found is None and self._flooded():
            self._late.append((stream, line))
        else:
            self._catch_up()
            self._said(stream, line, found)

    def _flooded(self) -> bool:
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._plain_lines = now, 0
        self._plain_lines += 1
        return self._plain_lines > LINES_PER_S

    def _catch_up(self) -> None:
        while self._late:
            self._said(*self._late.popleft(), None)

    def _said(self, stream: str, line: bytes, found: Mapping[str, Any] | None) -> None:
        if found is None:
            if text := line.decode(errors="replace").strip()[:TEXT_CHARS]:
                said = self._plain and stream == "stdout"
                self._noise.append(text)
                self._take(CoderEvent("text" if said else "other", text=text))
            return
        try:
            most = (self._plain and OVER * self.assignment.cost) or SUM_MAX
            events = [_sane(event, most) for event in self._reading.read(found)]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            events = [CoderEvent("other")]  # an unknown form
        for event in events:
            self._take(event)

    def _take(self, event: CoderEvent) -> None:
        self.session = event.session or self.session
        self.cost = self.cost if event.cost is None else event.cost
        self.turns += event.turn
        if event.total:
            self.tokens_in, self.tokens_out = event.tokens_in, event.tokens_out
        else:
            self.tokens_in += event.tokens_in
            self.tokens_out += event.tokens_out
        if event.kind == "retry":
            self._retries += 1
            self._error = event
        else:
            self._event_at = time.monotonic()
            if event.kind in ("text", "tool", "file"):
                self._retries = 0
        if event.kind in ("text", "error", "other") and event.text:
            self._tail.append(event.text[:TAIL_CHARS])
        if event.kind == "text":
            self._texts = event.text
        elif event.kind == "limit":
            self._limit_until = time.time() + (event.retry_after_s or 0.0)
        elif event.kind == "error":
            self._error = event
        elif event.kind == "result" and self._result is None:
            self._result, self._result_at = event, time.monotonic()
        try:
            self._heard(event)
        except Exception as error:  # noqa: BLE001 - a view that fails must not deafen the clocks
            context = {"message": "heard failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        self._check_limits()
        self._wake.set()

    def _check_limits(self) -> None:
        task = self.assignment
        if self._result is not None:
            return  # what was spent is spent, and the work is there
        if task.turns and self.turns > task.turns:
            self.stop("limit", "too_complex", f"more than {task.turns} turns")
        if task.cost and self.cost > task.cost:
            self.stop("limit", "budget", f"{self.cost:.2f} spent, and {task.cost:.2f} allowed")
        waits = self._retries and (self._error.retry_after_s or 0.0) > WAIT_S_MAX
        if self._retries > RETRIES_MAX or waits:
            self._give_up()

    def _give_up(self) -> None:
        failure = self._failure(self._error) or "transient"
        self.stop(_ended(failure), failure, f"{self._retries} tries: {self._error.text}"[:500])

    # --- the clocks ---

    async def _pause(self, over: asyncio.Future[Finished]) -> None:
        now = time.monotonic()
        times = [TICK_S_MAX, self._begun + self.assignment.time_s - now]
        times.append(self._event_at + self.assignment.silence_s - now)
        if self._result is not None:
            times.append(self._result_at + self._grace_s - now)
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait(
                (over, woken),
                timeout=max(0.01, min(times)),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            woken.cancel()

    async def _look(self, wrapped: Wrapped) -> None:
        """Check whether one of the clocks has run out."""
        task, now = self.assignment, time.monotonic()
        if self._result is not None:
            if now >= self._result_at + self._grace_s:
                self.stop("result", "", "it had ended, and stayed")
            return
        if now >= self._begun + task.time_s:
            self.stop("timeout", "timeout", f"not done after {task.time_s:g} s")
        quiet = now - self._event_at
        due = quiet >= task.silence_s or (
            task.stall_s and now - max(self._begun, self._looked_at) >= task.stall_s / LOOKS
        )
        if not due:
            return
        self._looked_at = now
        seen = await asyncio.to_thread(fingerprint, wrapped.cwd)
        if seen.digest != self._now.digest:
            self._now = seen
        unchanged = min(time.time() - seen.changed_at, now - self._begun)
        if seen.digest == self._before.digest:
            unchanged = now - self._begun
        if quiet >= task.silence_s and unchanged >= task.silence_s:
            if self._retries:
                self._give_up()
            self.stop("silent", "timeout", f"neither a word nor a change for {task.silence_s:g} s")
        elif quiet >= task.silence_s:
            self._event_at = now - max(0.0, min(unchanged, task.silence_s))
        if task.stall_s and unchanged >= task.stall_s:
            self.stop(
                "stalled", "too_complex", f"it talked, and changed nothing, {unchanged:.0f} s"
            )

    # --- the end ---

    async def _end(self, process: Process, over: asyncio.Future[Finished]) -> Finished:
        if not over.done() and self._verdict is not None:
            await self._save(self._verdict[2])
        if not over.done():
            await process.end(self._term_s)
        return await over

    async def _leave(self, process: Process, over: asyncio.Future[Finished]) -> None:
        """End the process because we are cancelled, and save its work first."""
        if not over.done():
            await self._save("its attempt was ended")
        await process.end(self._term_s)

    async def _save(self, why: str) -> None:
        """Saving is the fleet's concern; that it fails must not keep an agent alive."""
        if self._ending is not None:
            with suppress(TimeoutError, OSError, RuntimeError, LeadhandError):
                await asyncio.wait_for(self._ending(why), ENDING_S_MAX)

    def _judge(self, finished: Finished) -> CoderResult:
        ended, failure, why = self._verdict or ("result", "", "")
        error = self._error
        if self._verdict is None or ended == "result":
            result = self._result
            if result is not None and not result.failure:
                ended, failure = "result", ""
            elif result is not None or error.kind in ("error", "retry"):
                told = result if result is not None and result.failure else error
                failure = self._failure(told) or "permanent"
                ended, why = _ended(failure), told.text[:500]
            else:
                ended, failure, why = self._crashed(finished)
        waiting = max(0.0, self._limit_until - time.time())
        waiting = waiting or error.retry_after_s or retry_after(error.text or why) or 0.0
        return CoderResult(
            ended=ended,
            failure=failure,
            why=why,
            said=((self._result and self._result.text) or self._texts)[:TEXT_CHARS],
            session=self.session,
            cost=self.cost,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            turns=self.turns,
            retry_after_s=(waiting or None) if failure in ("rate_limited", "transient") else None,
            exit_code=finished.exit_code,
            tail="\n".join(self._tail)[-TAIL_CHARS:],
            changed=self._now.digest != self._before.digest,
            seconds=time.monotonic() - self._begun,
        )

    def _crashed(self, finished: Finished) -> tuple[Ended, str, str]:
        noise = "\n".join(self._noise)
        if finished.exit_code == 126 and "sandbox: " in noise:
            return "failed", "unavailable", noise[-500:]
        if self._plain and finished.exit_code == 0:
            return "result", "", ""
        how = f"signal {finished.signal}" if finished.signal else f"exit code {finished.exit_code}"
        last = f": {self._noise[-1][:LAST_CHARS]}" if self._noise else ""
        return "crashed", classify(noise) or "lost", f"it ended without a result ({how}){last}"

    def _failure(self, event: CoderEvent) -> str:
        return event.failure or classify(event.text)


def _sane(event: CoderEvent, cost_max: float) -> CoderEvent:
    """Return an event whose numbers can be added up and stored; none costs more than `cost_max`."""
    cost = _sum_of(event.cost)
    cost = min(cost, cost_max) if cost is not None else None
    return replace(event, cost=cost, retry_after_s=_sum_of(event.retry_after_s))


def _sum_of(said: float | None) -> float | None:
    return said if said is not None and 0 <= said <= SUM_MAX else None


def _ended(failure: str) -> Ended:
    match failure:
        case "rate_limited":
            return "rate_limited"
        case "policy":
            return "refused"
        case "budget":
            return "limit"
        case _:
            return "failed"


async def _all_the_same(work: Coroutine[Any, Any, None]) -> None:
    """See to it although we are being cancelled ourselves; cancelled again, wait all the same."""
    ending = asyncio.ensure_future(work)
    while not ending.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ending])
    ending.exception()


GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Git ends at once where it may not read the machine's configuration, as in a sandbox."""


@dataclass(slots=True)
class _Working:
    """One assignment at work, so that it can be stopped or sent a message."""

    attendance: Attendance | None = None
    messages: list[str] = field(default_factory=list)
    stopped: bool = False


class ProcessCoder:
    """A coder that is a program, one process for each assignment."""

    talks = True
    """Whether a conversation can be gone on with."""
    plain = False
    """Whether to end with 0 is a result."""

    def __init__(
        self,
        name: str,
        *,
        processes: Processes,
        homes: Path,
        env: Mapping[str, str] | None = None,
        login: str = "",
        grace_s: float = GRACE_S,
        term_s: float = TERM_S,
    ) -> None:
        self.name = name
        self.login = login or name
        """The account or key that it uses: agents of one login share its usage limits."""
        self.answers: ProviderAnswers | None = None
        """What its provider was seen to answer; None: its requests are not seen here."""
        self._processes, self._homes = processes, homes
        self._env = dict(env or {})
        self._grace_s, self._term_s = grace_s, term_s
        self._working: dict[tuple[str, str, int], _Working] = {}

    def launch(self, assignment: Assignment, slot: Path, home: Path, sandbox: Sandbox) -> Launch:
        """Return the program to start for an assignment."""
        raise NotImplementedError

    def reading(self, assignment: Assignment) -> AgentOutput:
        """Return the reader of its output."""
        raise NotImplementedError

    async def work(
        self,
        assignment: Assignment,
        slot: Workspace,
        sandbox: Sandbox,
        heard: Heard,
        *,
        ending: Ending | None = None,
    ) -> CoderResult:
        """Carry out one assignment; returns when nothing of the coder is left."""
        key, working = _key(assignment), _Working()
        if key in self._working:
            raise RuntimeError(f"{assignment.task} is being worked on already")
        self._working[key] = working
        sandbox = sandbox.through(self.name)
        begun, done, since = time.monotonic(), CoderResult(ended="stopped"), time.time()
        try:
            while not working.stopped:
                done = _sum(done, await self._once(assignment, slot, sandbox, heard, ending))
                if not (done.ended == "stopped" and working.messages and done.session):
                    break
                assignment = replace(
                    assignment,
                    session=done.session,
                    brief="\n\n".join(working.messages),
                    time_s=max(1.0, assignment.time_s - done.seconds),
                    turns=max(1, assignment.turns - done.turns) if assignment.turns else 0,
                    cost=max(0.01, assignment.cost - done.cost) if assignment.cost else 0.0,
                )
                working.messages.clear()
        finally:
            del self._working[key]
        return self._as_answered(replace(done, seconds=time.monotonic() - begun), since)

    def _as_answered(self, done: CoderResult, since: float) -> CoderResult:
        """Return a result whose times to wait are the provider's, where its answers are seen."""
        if self.answers is None or not done.failure:
            return done
        refusal = self.answers.since(since)
        if refusal is None:
            return replace(done, provider="answered", retry_after_s=None)
        if done.failure != "rate_limited":
            return replace(done, provider="refused")
        wait = max(0.0, refusal.until - time.time()) if refusal.until is not None else None
        return replace(done, provider="refused", why=refusal.words or done.why, retry_after_s=wait)

    async def _once(
        self,
        assignment: Assignment,
        slot: Workspace,
        sandbox: Sandbox,
        heard: Heard,
        ending: Ending | None,
    ) -> CoderResult:
        home = self.home(assignment)
        attendance = Attendance(
            assignment,
            self.reading(assignment),
            heard,
            ending=ending,
            plain=self.plain,
            grace_s=self._grace_s,
            term_s=self._term_s,
        )
        self._working[_key(assignment)].attendance = attendance
        try:
            launch = self.launch(assignment, slot.path.resolve(), home, sandbox)
            attendance.session = launch.session or attendance.session
            wrapped = sandbox.wrap(
                launch.argv,
                slot.path,
                home=home,
                network=launch.network,
                env={**GIT, **download_folders(slot.path.resolve()), **launch.env, **self._env},
                readable=launch.readable,
            )
            return await attendance.attend(self._processes, wrapped, launch.stdin)
        except (NoSandbox, OSError, SpawnError) as error:
            number = getattr(error, "errno", None)
            if number in OURS and not attendance.started:
                raise OSError(number, str(error)) from error  # the next attempt would fail too
            return _trouble(attendance, "failed", "unavailable", error)
        except ProcessError as error:
            # The supervisor was lost and nothing lives on; or something could not be killed.
            return _trouble(attendance, "crashed", "lost", error)

    def stop(self, assignment: Assignment) -> bool:
        """End the work on an assignment soon; false if there is none."""
        working = self._working.get(_key(assignment))
        if working is None:
            return False
        working.stopped = True
        if working.attendance is not None:
            working.attendance.stop("stopped", "transient", "stopped by request")
        return True

    def message(self, assignment: Assignment, text: str) -> bool:
        """Tell the agent something while it works; false if it cannot be told."""
        working = self._working.get(_key(assignment))
        attendance = working.attendance if working else None
        if not self.talks or working is None or attendance is None or not attendance.session:
            return False
        working.messages.append(text)
        attendance.stop("stopped", "transient", "there is a message for it")
        return True

    def home(self, assignment: Assignment) -> Path:
        """Return the private home of a task, which keeps its conversations between attempts."""
        return self._folder(assignment) / "home"

    def given(self, assignment: Assignment) -> Path:
        """Return the folder for files that we write and the agent can only read.

        It is never in the agent's home, where the agent may have put a link to a place that only we
        can write.
        """
        given = self._folder(assignment) / "given"
        given.mkdir(exist_ok=True)
        return given

    def _folder(self, assignment: Assignment) -> Path:
        folder = self._place(assignment)
        (folder / "home").mkdir(parents=True, exist_ok=True)
        return folder

    def _place(self, assignment: Assignment) -> Path:
        named = f"{assignment.run}\0{assignment.task}\0{self.name}"
        return self._homes / sha256(named.encode()).hexdigest()[:20]

    def forget(self, assignment: Assignment) -> None:
        """Its task is over: nothing of its conversations is kept."""
        remove(self._place(assignment))


def watch_answers(coders: Iterable[Coder], doors: Mapping[str, Proxy]) -> None:
    """Let each coder know what its provider answers, where its door has a route to it."""
    for coder in coders:
        door = doors.get(coder.name)
        if isinstance(coder, ProcessCoder) and door is not None and door.has_routes:
            answers = ProviderAnswers()
            door.answered, coder.answers = answers.heard, answers


def _trouble(attendance: Attendance, ended: Ended, failure: str, error: Exception) -> CoderResult:
    """Return the result of an end that the agent did not choose, with its cost until then."""
    return CoderResult(
        ended=ended,
        failure=failure,
        why=str(error),
        session=attendance.session,
        cost=attendance.cost,
        turns=attendance.turns,
    )


def _key(assignment: Assignment) -> tuple[str, str, int]:
    return assignment.run, assignment.task, assignment.attempt


def _sum(before: CoderResult, after: CoderResult) -> CoderResult:
    return replace(
        after,
        cost=before.cost + after.cost,
        tokens_in=before.tokens_in + after.tokens_in,
        tokens_out=before.tokens_out + after.tokens_out,
        turns=before.turns + after.turns,
        changed=before.changed or after.changed,
    )
