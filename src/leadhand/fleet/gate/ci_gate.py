"""The CI of the code host as the gate: a candidate branch is pushed, and its checks are awaited.

    tip of the merge queue ─► candidate branch ─► required checks of that commit ─► verdict of tree
                                    │                                                    │
                                    └───────────── deleted as soon as it is known ◄──────┘

There are as many candidate branches as `CiRules.candidates`, each with a name of its own below the
fleet's namespace (`leadhand/gate/MARK/1`, `/2`, ...): so the bound on what the merge queue tests
ahead is also seen at the host, and what a killed fleet left is found by its name. A record for each
tree is on disk before a branch is pushed.

Laws
    1. Green is success of every required check, on exactly the commit that was pushed, reported by
       `CiRules.app` where one is named. A check that did not report, was skipped or was neutral has
       not passed; `CiRules.accept` names the exceptions.
    2. A check that the host cancelled, ended for time, did not start or called stale says nothing
       about the change: another candidate of the same tree is tested, at most `CiRules.tries` in
       all. Then there is trouble (`GateTrouble`), never a verdict, unless `on_trouble` says "fail".
    3. A tree is not tested twice: a verdict is kept, across restarts. A red one is looked at again
       on the host, since people may have run a failed job again there.
    4. There are never more candidate branches than allowed: a number is free again only after the
       host has deleted its branch.
    5. Trouble of the host is waited out, and shown in `trouble`. A time limit ends a wait only
       after a look at the host, never because the host could not be asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self
from weakref import WeakValueDictionary

import msgspec

from leadhand.errors import LeadhandError
from leadhand.fleet.forge.delivery import Bell
from leadhand.fleet.forge.errors import (
    ForgeError,
    ForgeInvalid,
    ForgeNotFound,
    ForgeTransient,
)
from leadhand.fleet.forge.remote import KEPT, Moved
from leadhand.fleet.gate.gate import GateTrouble, GateVerdict
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence
    from pathlib import Path

    from leadhand.fleet.forge.port import Check, Forge
    from leadhand.fleet.forge.remote import HostRepository
    from leadhand.fleet.gate.gate import Command, Gate
    from leadhand.fleet.repository.hub import Hub

REUSE_S = 86_400.0
"""How long a verdict of CI is reused for the same tree."""
KEEP_S = 7 * 86_400.0
"""How long a record is kept."""
REST_S = 600.0
"""How long CI is left alone about a tree that it gave no verdict on, `tries` times."""
MAIN_START_S = 60.0
"""How long a commit that the host has already may be without checks before it gets a branch."""
PAUSE_S, PAUSE_S_MAX = 1.0, 60.0
PUSHES_MAX = 5
END_S = 10.0
"""How long the end of a fleet waits for the deletion of its candidate branches."""
LOGS_MAX = 3
LOG_CHARS = 12_000
BRANCHES = "candidate branches"
"""The subject of trouble with the branches themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CiRules:
    """What CI must say of a candidate, and how much of it may be asked for at once."""

    checks: tuple[str, ...]
    """The names of the checks that must pass."""
    app: str = ""
    """The app that must have reported them; empty: any."""
    accept: tuple[str, ...] = ()
    """Ends that count as passed besides success: `neutral`, `skipped`."""
    flaky: tuple[str, ...] = ()
    """Checks that are run once more when they are red."""
    time_s: float = 7200.0
    """How long the checks of a candidate may take."""
    start_s: float = 900.0
    """How long a candidate may be without a single required check."""
    candidates: int = 2
    """How many candidate branches there may be at once."""
    tries: int = 3
    """How many candidates of one tree are tested when the host does not carry out a check."""
    on_trouble: Literal["wait", "fail"] = "wait"
    """What happens after that: the change waits, or it is red."""

    @property
    def digest(self) -> str:
        """Return a hash of all that a verdict depends on."""
        about = [sorted(self.checks), self.app, sorted(self.accept)]
        return sha256(json.dumps(about).encode()).hexdigest()[:16]


class CiHost(NamedTuple):
    """The code host, as far as its CI is concerned."""

    forge: Forge
    remote: HostRepository
    namespace: str
    """How the names of candidate branches begin; no other fleet has the same."""
    base: str
    """The host's branch, whose commits CI tests without us."""
    look_s: float = 15.0
    """How often the host is looked at."""


class CiOutcome(NamedTuple):
    """What the checks of a commit say together."""

    kind: Literal["green", "red", "broken"]
    words: str
    checks: tuple[Check, ...] = ()
    """The red ones."""


def judge(rules: CiRules, checks: Sequence[Check], age_s: float) -> CiOutcome | None:
    """Return what the checks of a commit say; None while it is open.

    - `age_s`: for how long the commit has been there.
    """
    found = {check.name: check for check in checks}
    named = [found[name] for name in rules.checks if name in found]
    ended = [check for check in named if check.is_over]
    passed = [check for check in ended if check.status in ("passed", *rules.accept)]
    broken = [check for check in ended if check.broken and check not in passed]
    red = [check for check in ended if check not in passed and check not in broken]
    if red:
        words = ", ".join(f"{check.name} ({check.status})" for check in red)
        return CiOutcome("red", words, tuple(red))
    if broken:
        words = ", ".join(f"{each.name}: {each.summary or each.status}" for each in broken)
        return CiOutcome("broken", f"the host did not carry out {words}"[:1000])
    waits = [name for name in rules.checks if name not in found or not found[name].is_over]
    if not waits:
        return CiOutcome("green", ", ".join(rules.checks))
    if not named and age_s > rules.start_s:
        names = ", ".join(waits)
        return CiOutcome("broken", f"no required check ({names}) began in {rules.start_s:g} s")
    if age_s > rules.time_s:
        return CiOutcome("broken", f"no result of {', '.join(waits)} in {rules.time_s:g} s")
    return None


class CandidateRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of a tree: its candidate, or its verdict. On disk, for the next process."""

    tree: str
    rules: str
    """The digest of the rules that the verdict holds for."""
    commit: str = ""
    """The candidate that is tested; empty: none is."""
    number: int = 0
    """The number of its branch."""
    pushed_at: float = 0.0
    pushes: int = 0
    """How many candidates there were."""
    tries: int = 0
    """How many of them the host did not carry out, since it was last left alone."""
    verdict: Literal["", "green", "red"] = ""
    tested: str = ""
    """The commit that the verdict was given on."""
    words: str = ""
    log: str = ""
    red: list[str] = []
    """The checks that were red."""
    flaky: list[str] = []
    at: float = 0.0
    """When the verdict came, or when CI was given up for a while."""


class CiGate:
    """Asks CI for verdicts on trees. Open it with `async with`; `check` from many tasks."""

    def __init__(
        self,
        hub: Hub,
        host: CiHost,
        rules: CiRules,
        folder: Path,
        *,
        note: Callable[..., None] = lambda _what, **_more: None,
        pause_s: float = PAUSE_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create it; `folder` is where records are kept."""
        self._hub, self._forge, self._remote, self.rules = hub, host.forge, host.remote, rules
        self._folder, self._namespace, self._base = folder, host.namespace, host.base
        self._look_s, self._note, self._pause_s, self._now = host.look_s, note, pause_s, now
        self.bell = Bell()
        """Makes the next look at the host come at once."""
        self.trouble: dict[str, str] = {}
        """What keeps CI from answering, by subject."""
        self._free: set[int] = set()
        self._left: dict[str, tuple[int, str]] = {}
        """Branches of a killed process whose checks may still end: by tree, number and commit."""
        self._changed = asyncio.Condition()
        self._swept = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = {"pushed": 0, "reused": 0, "broken": 0}

    async def __aenter__(self) -> Self:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._begin(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        if tasks and self._swept.is_set():
            await asyncio.wait(tasks, timeout=END_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the verdict of a tree ---

    async def check(self, sha: str) -> GateVerdict:
        """Return the verdict of CI on the tree of a commit. Raise `GateTrouble` if there is none.

        A cancelled call deletes its candidate branch.
        """
        began = time.monotonic()
        tree = await self._hub.tree(sha)
        lock = self._locks.setdefault(tree, asyncio.Lock())
        async with lock:
            await self._swept.wait()
            record = self._record(tree)
            if found := await self._known(record, sha):
                self.counts["reused"] += 1
                return replace(found, reused=True, seconds=0.0)
            if record.at and not record.verdict and self._now() - record.at < REST_S:
                raise GateTrouble(record.words)
            verdict = await self._tested(record, sha)
        return replace(verdict, seconds=time.monotonic() - began)

    async def _known(self, record: CandidateRecord, sha: str) -> GateVerdict | None:
        """Return a verdict that is there already: kept here, or given by CI on the same tree."""
        if record.verdict == "red" and record.tested:  # people may have run a failed job again
            seen = judge(self.rules, await self._look(record.tested), 0.0)
            if seen is not None and seen.kind == "green":
                record.flaky = sorted({*record.flaky, *record.red})
                return await self._decided(record, record.tested, seen)
        if record.verdict:
            return self._verdict(record)
        if record.commit:
            return None
        for commit in await self._on_host(sha, record.tree):
            if commit == sha:
                short = min(self.rules.start_s, MAIN_START_S)
                outcome = await self._wait(sha, self._now(), replace(self.rules, start_s=short))
            else:
                seen = judge(self.rules, await self._look(commit), 0.0)
                outcome = seen or CiOutcome("broken", "")
            if outcome.kind == "green" or (outcome.kind == "red" and commit == sha):
                return await self._decided(record, commit, outcome)
            if commit == sha:  # its broken checks would stay: candidates are other commits
                record.pushes += 1
        return None

    async def _on_host(self, sha: str, tree: str) -> list[str]:
        """Return the commit and its parents, as far as the host has them with the same tree."""
        parents = (await self._hub.git("rev-parse", f"{sha}^@")).text.split()
        kept = f"{KEPT}/{self._base}"
        found = [sha] if await self._remote.is_ancestor(sha, kept) else []
        # A second parent is the head of a pull request, or a commit of the host's branch.
        return found + [each for each in parents[1:] if await self._hub.tree(each) == tree]

    async def _tested(self, record: CandidateRecord, sha: str) -> GateVerdict:
        """Test candidates of a tree until one has a verdict, or the tries are used up."""
        while True:
            if not await self._adopted(record):
                await self._push(record, sha)
            number, commit = record.number, record.commit
            try:
                outcome = await self._wait(commit, record.pushed_at, self.rules)
                names = [check.name for check in outcome.checks]
                flaky = not record.flaky and {*names} <= {*self.rules.flaky}
                again = outcome.kind == "red" and flaky
                if outcome.kind != "broken" and not again:
                    return await self._decided(record, commit, outcome)
            finally:  # also when the call is cancelled: its verdict is not wanted
                record.commit, record.number = "", 0
                self._save(record)
                self._begin(self._release(number, commit))
            if again:  # once: `flaky` is set from then on
                record.flaky = names
                self._save(record)
                continue
            self.counts["broken"] += 1
            record.tries, record.words = record.tries + 1, outcome.words
            self._note("ci broken", commit=commit, said=outcome.words[:300], tries=record.tries)
            if record.tries >= self.rules.tries:
                return self._gave_up(record)
            self._save(record)

    def _gave_up(self, record: CandidateRecord) -> GateVerdict:
        """Return red or raise trouble for a tree that CI gave no verdict on."""
        words = (
            f"CI gave no verdict after {record.tries} candidate branches: {record.words}. Fix: see "
            f"that CI runs for branches {self._namespace}* and reports the checks of [fleet.ci]"
        )
        record.tries, record.words, record.at = 0, words, self._now()
        if self.rules.on_trouble == "fail":
            record.verdict, record.log = "red", words
        self._save(record)
        if record.verdict:
            return self._verdict(record)
        raise GateTrouble(words)

    async def _decided(
        self, record: CandidateRecord, commit: str, outcome: CiOutcome
    ) -> GateVerdict:
        """Keep a verdict, and return it; a red one with the ends of its logs."""
        parts = []
        for check in outcome.checks[:LOGS_MAX]:
            said = scrub(await self._log_of(check) or check.summary)[-LOG_CHARS:]
            parts.append(f"check {check.name} {check.status} {check.url}\n{said}\n")
        record.verdict = "green" if outcome.kind == "green" else "red"
        record.tested, record.words, record.log = commit, outcome.words, "".join(parts)
        record.red = [check.name for check in outcome.checks]
        record.tries, record.at = 0, self._now()
        self._save(record)
        self._note("ci verdict", commit=commit, ok=record.verdict == "green", said=outcome.words)
        return self._verdict(record)

    def _verdict(self, record: CandidateRecord) -> GateVerdict:
        ok = record.verdict == "green"
        return GateVerdict(
            ok=ok,
            log=record.log or f"CI passed on {record.tested[:12]}: {record.words}\n",
            seconds=0.0,
            flaky=tuple(record.flaky) if ok else (),
            failed="" if ok else f"CI: {record.words}"[:500],
            tests=f"CI: {record.words}"[:200] if ok else "",
        )

    # --- what the host says ---

    async def _wait(self, commit: str, since: float, rules: CiRules) -> CiOutcome:
        """Wait until the checks of a commit say something."""
        while True:
            heard = self.bell.count
            outcome = judge(rules, await self._look(commit), self._now() - since)
            if outcome is not None:
                return outcome
            await self.bell.wait(self._look_s, heard)

    async def _look(self, commit: str) -> tuple[Check, ...]:
        """Return the checks of a commit; trouble of the host is waited out."""
        about = f"CI of {commit[:12]}"
        try:
            while True:
                try:
                    return await self._forge.checks(commit, app=self.rules.app)
                except (ForgeNotFound, ForgeInvalid):
                    return ()  # just pushed, it may not be known everywhere on the host
                except ForgeTransient as error:
                    self.trouble[about] = str(error)
                    wait = min(max(self._pause_s, error.retry_at - self._now()), 3600.0)
                except ForgeError as error:
                    raise GateTrouble(str(error)) from error
                await asyncio.sleep(wait)
        finally:
            self.trouble.pop(about, None)

    async def _log_of(self, check: Check) -> str:
        """Return the end of a check's log, or why it cannot be read: red is red without it."""
        for _ in range(PUSHES_MAX):
            try:
                return await self._forge.check_log(check)
            except ForgeTransient as error:
                said = str(error)
                wait = min(max(self._pause_s, error.retry_at - self._now()), 3600.0)
                await asyncio.sleep(wait)
            except ForgeError as error:
                return f"{check.summary}\n({error})".strip()
        return f"{check.summary}\n({said})".strip()

    # --- candidate branches ---

    def branch(self, number: int) -> str:
        """Return the name of a candidate branch."""
        return f"{self._namespace}{number}"

    async def _adopted(self, record: CandidateRecord) -> bool:
        """Return whether the candidate that a killed process pushed is used."""
        if not record.commit:
            return False
        left = self._left.pop(record.tree, None)
        if left != (record.number, record.commit):
            if left is not None:
                self._begin(self._release(*left))
            record.commit, record.number = "", 0
            return False
        record.pushed_at = record.pushed_at or self._now()
        return True

    async def _push(self, record: CandidateRecord, sha: str) -> None:
        """Push a candidate of a tree: the commit itself the first time, then another of its tree.

        CI adds the results of a second run to those of the first: a cancelled check would stay.
        """
        number = await self._number()
        try:
            commit = sha
            if record.pushes:
                parents = (await self._hub.git("rev-parse", f"{sha}^@")).text.split()
                trailers = {"Leadhand-Candidate": str(record.pushes + 1)}
                made = f"Test {record.tree[:12]} again"
                commit = await self._hub.commit(record.tree, parents, made, trailers)
            record.commit, record.number, record.pushed_at = commit, number, 0.0
            record.pushes += 1
            self._save(record)  # before the host hears of it
            await self._pushed(commit, number)
        except BaseException:
            self._begin(self._release(number, record.commit or sha))
            record.commit, record.number = "", 0
            self._save(record)
            raise
        record.pushed_at = self._now()
        self._save(record)
        self.counts["pushed"] += 1
        self._note("candidate", commit=commit, number=number, tree=record.tree)

    async def _pushed(self, commit: str, number: int) -> None:
        pause_s = self._pause_s
        for left in reversed(range(PUSHES_MAX)):
            try:
                await self._remote.push(commit, self.branch(number), "")
            except (LeadhandError, OSError) as error:
                self.trouble[BRANCHES] = str(error)
                if not left:
                    words = f"{self.branch(number)} cannot be pushed: {error}"
                    raise GateTrouble(words) from error
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            else:
                self.trouble.pop(BRANCHES, None)
                return

    async def _number(self) -> int:
        """Wait for a free number of a candidate branch, and take it."""
        async with self._changed:
            while not self._free:
                if self._left:  # nobody has asked for its tree since
                    self._begin(self._release(*self._left.pop(next(iter(self._left)))))
                await self._changed.wait()
            number = min(self._free)
            self._free.discard(number)
        return number

    async def _release(self, number: int, commit: str) -> None:
        """Delete a candidate branch; only then its number is free."""
        await self._delete(self.branch(number), commit)
        async with self._changed:
            if number <= self.rules.candidates:
                self._free.add(number)
            self._changed.notify_all()

    async def _delete(self, branch: str, commit: str) -> None:
        pause_s = self._pause_s
        while True:
            try:
                await self._remote.delete(branch, commit)
            except Moved:
                found = await self._branches()
                commit = found.get(branch, commit)
            except (LeadhandError, OSError) as error:
                self.trouble[BRANCHES] = f"{branch} cannot be deleted: {error}"
            else:
                self.trouble.pop(BRANCHES, None)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _branches(self) -> dict[str, str]:
        """Return the candidate branches that the host has; trouble is waited out."""
        pause_s = self._pause_s
        while True:
            try:
                if not self._swept.is_set():  # so that commits of the host's branch are known
                    await self._remote.tip(self._base)
                return await self._remote.branches(self._namespace)
            except (LeadhandError, OSError) as error:
                self.trouble[BRANCHES] = str(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _sweep(self) -> None:
        """Find what a killed process left: keep branches that may get a verdict, delete others."""
        found = await self._branches()
        self.trouble.pop(BRANCHES, None)
        pending = {
            each.commit: each for each in self._records() if each.commit and not each.verdict
        }
        taken = set()
        for branch, commit in found.items():
            record, tail = pending.get(commit), branch.removeprefix(self._namespace)
            number = int(tail) if tail.isdecimal() else 0
            useful = record is not None and 0 < number <= self.rules.candidates
            if record is not None and useful and branch == self.branch(record.number):
                self._left[record.tree] = number, commit
                taken.add(number)
            elif number:
                taken.add(number)
                self._begin(self._release(number, commit))
            else:
                self._begin(self._delete(branch, commit))
        self._free = {*range(1, self.rules.candidates + 1)} - taken
        self._swept.set()

    # --- records ---

    def _place(self, tree: str) -> Path:
        return self._folder / f"{tree}.json"

    def _record(self, tree: str) -> CandidateRecord:
        """Return what is known of a tree, without a verdict that is old or of other rules."""
        fresh = CandidateRecord(tree=tree, rules=self.rules.digest)
        try:
            found = msgspec.json.decode(self._place(tree).read_bytes(), type=CandidateRecord)
        except (OSError, msgspec.DecodeError):
            return fresh
        old = bool(found.verdict) and self._now() - found.at > REUSE_S
        if found.tree != tree or found.rules != self.rules.digest or old:
            # Its candidate counts no more, and no commit may be pushed a second time.
            fresh.pushes = found.pushes
            return fresh
        return found

    def _records(self) -> list[CandidateRecord]:
        """Return all records of these rules; remove those that are old."""
        found = []
        for place in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError):
                if self._now() - place.stat().st_mtime > KEEP_S:
                    place.unlink()
                    continue
            found.append(self._record(place.stem))
        return found

    def _save(self, record: CandidateRecord) -> None:
        place = self._place(record.tree)
        fresh = place.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place)


class CombinedGate:
    """The local gate, then CI on what passed it: what the merge queue asks."""

    def __init__(self, local: Gate, ci: CiGate) -> None:
        """Create it; a local gate without commands runs acceptance commands only."""
        self._local, self._ci = local, ci

    @property
    def digest(self) -> str:
        """Return a hash of what a verdict of CI depends on."""
        return self._ci.rules.digest

    async def check(
        self, sha: str, acceptance: Sequence[Command] = (), waived: Collection[str] | None = ()
    ) -> GateVerdict:
        """Return the verdict of both; CI is not asked about what is red here."""
        local = await self._local.check(sha, acceptance, waived)
        if not local.ok or local.altered:
            return local
        found = await self._ci.check(sha)
        return replace(
            local,
            ok=found.ok,
            log=local.log + found.log,
            seconds=local.seconds + found.seconds,
            flaky=(*local.flaky, *found.flaky),
            failed=found.failed,
            tests=", ".join(filter(None, (local.tests, found.tests))),
            reused=local.reused and found.reused,
        )
