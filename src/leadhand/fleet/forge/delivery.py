"""The pull request of a task: proposed, judged by checks and reviews, merged.

    change that passed the gate ─► branch ─► pull request ─► checks, reviews ─► merged ─► main
                                      ▲                          │ red, or a change is asked for
                                      └── next attempt ◄── a failed attempt, with log and words

A task has one branch and one pull request, whatever becomes of its attempts. A later attempt is
another commit on the same branch; commits that people push to it are kept. Nothing is forced.

Laws
    1. What was handed over is on disk before the host hears of it (`PullRecord`). A fleet that was
       killed goes on with the record: no agent works twice for it, and every write to the host has
       a key, so that it is made once.
    2. The host says what is true: merged, closed, red, approved. Nothing of it is remembered here.
    3. Text of a host is untrusted. It reaches an agent as a quotation, and only from people who
       may start work (`ForgeRules.start`). Each review reaches an agent once.
    4. Trouble of the host is no verdict: it is waited out, and `fleet status` shows it.
    5. While people and checks take their time, neither a slot nor a place nor a path is held.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.errors import LeadhandError
from leadhand.fleet.agents.brief import pull_in
from leadhand.fleet.forge.context import write_durably
from leadhand.fleet.forge.description import (
    body_of,
    log_end,
    message_of,
    one_line,
    shown,
    shown_trailers,
    title_of,
)
from leadhand.fleet.forge.errors import ForgeConflict, ForgeError, ForgeTransient
from leadhand.fleet.forge.remote import Moved
from leadhand.fleet.forge.rules import key_for
from leadhand.fleet.merge.conductor import Ejected, Landed, QueuedChange
from leadhand.fleet.repository.hub import ref_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from leadhand.core.report import Failure
    from leadhand.fleet.forge.context import ForgeContext
    from leadhand.fleet.forge.port import Check, PullRequest, Review
    from leadhand.ports import Context

Doc = dict[str, Any]
PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
LOG_CHARS = 3_000
SAID_CHARS = 12_000
"""How much of reviews an agent is told."""
REMARKS_MAX = 40


class PullRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A change that was handed over: all that is needed to go on with it after a restart."""

    run: str
    task: str
    attempt: int
    change: Doc
    """The `QueuedChange`, as data."""
    handoff: Doc = {}
    cost: float = 0.0
    files: list[str] = []
    tests: str = ""
    flaky: list[str] = []
    remarks: list[str] = []
    same: bool = False
    issue: int = 0
    heard: list[str] = []
    """Reviews that earlier attempts were told."""
    before: str = ""
    """The commit that earlier attempts left at the tip of the branch."""
    pushed: str = ""
    """The commit of this attempt at the tip of the branch; empty: not made yet."""
    old: str = ""
    """Where the branch was when `pushed` was made."""
    onto: str = ""
    """The commit of the base branch that `pushed` was made on."""
    since: float = 0.0
    """When it was pushed, in seconds since 1970."""
    number: int = 0
    url: str = ""

    @property
    def queued(self) -> QueuedChange:
        """Return the change for the merge queue."""
        return msgspec.convert(self.change, QueuedChange)

    @property
    def head(self) -> str:
        """Return the commit that the agent left."""
        return str(self.change["head"])


@dataclass(frozen=True, slots=True)
class Rejected:
    """Not accepted as it is: a red check, a requested change, or a closed pull request."""

    kind: str
    """red, review, closed"""
    words: str
    details: Mapping[str, Any] = field(default_factory=dict)


Outcome = Landed | Ejected | Rejected


class Bell:
    """Wakes all who wait for news of the host."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.count = 0
        """How often it rang."""

    def ring(self) -> None:
        """Let everybody look now."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, time_s: float, heard: int) -> None:
        """Wait until it rings, at most `time_s`.

        - `heard`: `count` before the last look; if it rang since then, there is no wait.
        """
        if self.count != heard:
            return
        try:
            async with asyncio.timeout(time_s):
                await self._event.wait()
        except TimeoutError:
            pass


class Delivery:
    """Brings changes to the host's branch by pull requests."""

    def __init__(
        self,
        context: ForgeContext,
        follow: Callable[[], Awaitable[None]],
        plan: Callable[[str], Sequence[tuple[str, str]]] = lambda _run: (),
    ) -> None:
        """Create it; `follow` brings the host's branch to main, `plan` lists tasks of a run."""
        self._hub, self._forge, self.rules = context.hub, context.forge, context.rules
        self._remote, self._people, self._note = context.remote, context.people, context.note
        self._conductor, self._folder = context.conductor, context.folder
        self._follow, self._plan = follow, plan
        self._enqueued: set[str] = set()
        """Heads that were put into the host's merge queue."""
        self.bell = Bell()
        self.trouble: dict[str, str] = {}
        """What keeps pull requests from going on, by name."""

    # --- records ---

    def pending(self, run: str, task: str, failures: Iterable[Failure]) -> PullRecord | None:
        """Return the change of a task that was handed over and not judged yet, or None."""
        found = self.record(run, task)
        if found is None:
            return None
        judged = {pull_in([each]).get("head") for each in failures}
        return None if found.head in judged else found

    def record(self, run: str, task: str) -> PullRecord | None:
        """Return the last record of a task; None if there is none that can be read."""
        try:
            return msgspec.json.decode(self._place(run, task).read_bytes(), type=PullRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def records(self, run: str) -> list[PullRecord]:
        """Return the last record of each task of a run."""
        places = sorted(self._place(run, "x").parent.glob("*.json"))
        found = [self.record(run, place.stem) for place in places]
        return [each for each in found if each is not None]

    def make_record(
        self, change: QueuedChange, failures: Sequence[Failure], issue: int, **more: Any
    ) -> PullRecord:
        """Return the record of a change that an agent left; keep it on disk."""
        told = [pull_in([each]) for each in failures]
        earlier = self.record(change.run, change.task)
        made = PullRecord(
            run=change.run,
            task=change.task,
            attempt=change.attempt,
            change=msgspec.to_builtins(change),
            issue=issue,
            heard=[str(each) for one in told for each in one.get("reviews", ())],
            before=(earlier.pushed or earlier.before) if earlier is not None else "",
            number=earlier.number if earlier is not None else 0,
            url=earlier.url if earlier is not None else "",
            **more,
        )
        self._save(made)
        return made

    def _place(self, run: str, task: str) -> Path:
        return self._folder / "pulls" / run / f"{task}.json"

    def _save(self, record: PullRecord) -> None:
        write_durably(self._place(record.run, record.task), msgspec.json.encode(record))

    # --- the way to main ---

    def branch_of(self, record: PullRecord) -> str:
        """Return the branch of a task."""
        return f"{self.rules.prefix}{record.run}/{record.task}"

    async def land(self, record: PullRecord, progress: Callable[[str], None]) -> Outcome:
        """Wait until a change is on main, or has to go back to its owner."""
        name = f"the pull request of {record.task}"
        pause_s = PAUSE_S
        try:
            while True:
                try:
                    return await self._land(record, progress, name)
                except ForgeTransient as error:
                    self.trouble[name] = str(error)
                    wait = min(max(PAUSE_S, error.retry_at - time.time()), 3600.0)
                except (LeadhandError, OSError) as error:
                    self.trouble[name] = f"{error}; it is tried again"
                    wait, pause_s = pause_s, min(2 * pause_s, PAUSE_S_MAX)
                await asyncio.sleep(wait)
        finally:
            self.trouble.pop(name, None)

    async def _land(
        self, record: PullRecord, progress: Callable[[str], None], name: str
    ) -> Outcome:
        told: Outcome | None = await self._propose(record)
        while told is None:
            heard = self.bell.count
            pull = await self._forge.pull(record.number)
            told = await self._judge(record, pull, progress)
            self.trouble.pop(name, None)
            if told is None:
                await self.bell.wait(self.rules.look_s, heard)
        return self._landed(record, told)

    def _landed(self, record: PullRecord, told: Outcome) -> Outcome:
        """Note that a change landed: a merge by people may leave no trailers on main."""
        if isinstance(told, Landed):
            about = {"run": record.run, "task": record.task, "attempt": record.attempt}
            self._note("pull landed", **about, sha=told.sha)
        return told

    async def _propose(self, record: PullRecord) -> Ejected | None:
        """Push the branch and open the pull request, or bring both up to date.

        Return why the change cannot be proposed, if it is in conflict with the host's branch.
        """
        branch, base = self.branch_of(record), self.rules.base
        if not record.pushed:
            told = await self._compose(record, branch)
            if told is not None:
                return told
        now = await self._remote.tip(branch)
        if not (now and await self._remote.is_ancestor(record.pushed, now)):
            try:
                await self._remote.push(record.pushed, branch, record.old)
            except Moved:  # somebody pushed to it meanwhile: their commits are kept
                record.pushed = ""
                self._save(record)
                raise
        key = key_for("pull", record.run, record.task)
        title, body = title_of(record), body_of(record, self._plan(record.run))
        pull = await self._forge.open_pull(branch, base, title, body, key)
        if pull.number != record.number:
            self._note("pull request", run=record.run, task=record.task, code=0, said=pull.url)
        record.number, record.url = pull.number, pull.url
        self._save(record)
        await self._reply(record)
        return None

    async def _compose(self, record: PullRecord, branch: str) -> Ejected | None:
        """Make the commit of this attempt: on the host's branch, and after earlier attempts."""
        hub, change, base = self._hub, record.queued, self.rules.base
        onto, tip = await self._remote.tip(base), await self._remote.tip(branch)
        if not onto:
            raise LeadhandError(f"{self._forge.name} has no branch {base!r}")
        merged = await hub.merge(onto, change.head, change.base)
        if merged.tree is None:
            return await self._conductor.conflict(change, onto, merged.conflicts)
        if merged.tree == await hub.tree(onto):
            return Ejected("empty", f"all of it is on {base} already")
        made = merged.tree, (onto,), change.goal, shown_trailers(change.trailers)
        sha = await hub.commit(*made, author=change.author)
        if tip and not await self._remote.is_ancestor(tip, onto):
            tree, mine = merged.tree, record.before or tip
            if tip != mine and await self._remote.is_ancestor(mine, tip):
                theirs = await hub.merge(sha, tip, mine)
                if theirs.tree is None:
                    why = f"people changed the branch {branch} meanwhile, in conflict with this"
                    return Ejected.over("conflict", why, theirs.conflicts)
                tree = theirs.tree
            parents = (tip,) if await self._remote.is_ancestor(onto, tip) else (tip, onto)
            sha = await hub.commit(tree, parents, *made[2:], author=change.author)
        await hub.submit(ref_of("pull", record.run, record.task, record.attempt), sha)
        record.pushed, record.old, record.onto, record.since = sha, tip, onto, time.time()
        self._save(record)
        return None

    async def _reply(self, record: PullRecord) -> None:
        """Tell reviewers, at each remark that an attempt was told, which commit answers it."""
        if not record.heard:
            return
        for review in await self._forge.reviews(record.number):
            if review.id in record.heard:
                for remark in review.comments[:REMARKS_MAX]:
                    words = f"Reworked: see {record.pushed[:12]} (attempt {record.attempt})."
                    await self._forge.reply(remark, words, key_for("rework", remark.id))

    # --- what the host says ---

    async def _judge(
        self, record: PullRecord, pull: PullRequest, progress: Callable[[str], None]
    ) -> Outcome | None:
        """Return the outcome if there is one by now."""
        named = f"pull request {pull.url or pull.number}"
        if pull.state == "merged":
            progress(f"{named} is merged")
            return await self._merged(pull)
        if pull.state == "closed":
            words = f"{named} was closed without being merged"
            return Rejected("closed", words, {"head": record.head, "number": pull.number})
        reviews = await self._people.only(await self._forge.reviews(pull.number))
        checks = {each.name: each for each in await self._forge.checks(pull.head)}
        red = self._red(checks)
        asked = [
            each
            for each in reviews
            if each.verdict == "changes_requested" and each.id not in record.heard
        ]
        if red or asked:
            return await self._rejected(record, pull, red, reviews)
        waits = self._waiting(checks)
        if waits and time.time() - record.since > self.rules.check_time_s:
            words = f"{named}: no result of {', '.join(waits)} within the time for checks"
            return Rejected("red", words, {"head": record.head, "number": pull.number})
        if pull.mergeable is False:
            return await self._renew(record)
        progress(f"{named}: waits for {', '.join(waits) if waits else 'people'}")
        return None if waits else await self._merge(record, pull, reviews)

    def _red(self, checks: Mapping[str, Check]) -> list[Check]:
        """Return the checks that failed; a required one that was skipped has not passed."""
        wanted = self.rules.checks
        bad = ("failed", "cancelled", "skipped") if wanted else ("failed", "cancelled")
        found = [checks[name] for name in (wanted or checks) if name in checks]
        return [each for each in found if each.status in bad]

    def _waiting(self, checks: Mapping[str, Check]) -> list[str]:
        """Return the names of checks that have not passed yet; a missing one has not."""
        names = self.rules.checks or tuple(checks)
        return [name for name in names if name not in checks or not checks[name].is_over]

    async def _rejected(
        self,
        record: PullRecord,
        pull: PullRequest,
        red: Sequence[Check],
        reviews: Sequence[Review],
    ) -> Rejected:
        """Return what an agent is told: the logs of red checks, and every review it has not."""
        named = f"pull request {pull.url or pull.number}"
        parts = []
        for check in red[:3]:
            log = log_end(await self._log_of(check) or check.summary, LOG_CHARS)
            parts.append(f"{named}: check {one_line(check.name)} {check.status}:\n{log}")
        fresh = [each for each in reviews if each.id not in record.heard]
        asked = [each for each in fresh if each.verdict == "changes_requested"]
        parts += [f"{named}: {each.author} asks for changes" for each in asked]
        details = {
            "head": record.head,
            "number": pull.number,
            "reviews": [each.id for each in fresh],
            "said": said_in(fresh),
            "tip": await self._remote.tip(self.branch_of(record)),
            "base": record.onto,
        }
        return Rejected("red" if red else "review", "\n".join(parts), details)

    async def _log_of(self, check: Check) -> str:
        """Return the log of a check, or why it cannot be read: a red check is red without it."""
        try:
            return await self._forge.check_log(check)
        except ForgeTransient:
            raise
        except ForgeError as error:
            return f"{check.summary}\n({error})".strip()

    async def _renew(self, record: PullRecord) -> Outcome | None:
        """Make the branch again on the host's branch of now: it cannot be merged as it is."""
        tip = await self._remote.tip(self.rules.base)
        if tip == record.onto:
            return None  # the host has not computed it yet, or has reasons of its own
        record.before, record.pushed = record.pushed, ""
        self._save(record)
        return await self._propose(record)

    # --- merging ---

    async def _merge(
        self, record: PullRecord, pull: PullRequest, reviews: Sequence[Review]
    ) -> Outcome | None:
        """Merge what is green and approved, as the rules say; None: not yet."""
        if self.rules.merge == "people" or not self._approved(pull, reviews):
            return None
        if self.rules.merge == "train":
            return await self._by_train(record, pull)
        try:
            return await self._by_host(record, pull)
        except ForgeConflict as error:
            if error.reason in ("conflicts", "behind"):
                return await self._renew(record)
            if error.reason in ("head_moved", "closed"):
                return None
            raise

    async def _by_host(self, record: PullRecord, pull: PullRequest) -> Outcome | None:
        """Let the host merge it; a branch that wants its merge queue gets it by the queue."""
        queue = "queue" in self._forge.offers
        if queue and pull.head in self._enqueued and await self._forge.queued(pull.number):
            return None
        message, key = message_of(record), key_for("merge", record.run, record.task)
        try:
            merged = await self._forge.merge(
                pull.number, pull.head, self.rules.method, key, message=message
            )
        except ForgeConflict as error:
            if error.reason != "blocked" or not queue:
                raise
            try:
                await self._forge.enqueue(pull.number, pull.head)
            except ForgeTransient:
                raise
            except ForgeError:  # there is no queue: what blocks it is something else
                raise error from None
            self._enqueued.add(pull.head)
            return None
        self._note("pull merged", run=record.run, task=record.task, said=pull.url)
        return await self._merged(merged)

    def _approved(self, pull: PullRequest, reviews: Iterable[Review]) -> bool:
        """Return whether enough people approve this head, and none still wants a change."""
        last: dict[str, Review] = {}
        for each in reviews:
            if each.verdict != "commented":
                last[each.author] = each
        if any(each.verdict == "changes_requested" for each in last.values()):
            return False
        given = [e for e in last.values() if e.verdict == "approved" and e.commit == pull.head]
        return len(given) >= self.rules.approvals

    async def _by_train(self, record: PullRecord, pull: PullRequest) -> Outcome | None:
        """Land what was reviewed by the fleet's merge queue, then give main to the host."""
        change = replace(record.queued, base=record.onto, head=pull.head, also=pull.head)
        if pull.head != record.pushed:  # people added to it, and others approved all of it
            base = (await self._hub.git("merge-base", record.onto, pull.head)).text
            change = replace(change, base=base, paths=(), bound="")
        told = await self._conductor.land(change)
        if isinstance(told, Ejected):
            return told
        await self._follow()
        tip = await self._remote.tip(self.rules.base)
        main = self._hub.main()
        if not await self._remote.is_ancestor(main, tip):
            await self._remote.push(main, self.rules.base, tip)
        self._note("pull merged", run=record.run, task=record.task, said=pull.url)
        return told

    async def _merged(self, pull: PullRequest) -> Landed | None:
        """Return that it landed, once the fleet's main holds it."""
        await self._follow()
        sha = pull.merge_commit or pull.head
        main = self._hub.main()
        if not await self._remote.is_ancestor(sha, main):
            return None
        return Landed(sha, main, 0.0)


class Rework(NamedTuple):
    """Where an attempt begins whose pull request was sent back; empty: on main."""

    tip: str = ""
    base: str = ""


def rework_of(context: Context) -> Rework:
    """Return where the next attempt begins: at the tip of its branch if a host sent it back."""
    found = pull_in(context.failures)
    tip, base = str(found.get("tip") or ""), str(found.get("base") or "")
    return Rework(tip, base) if tip and base else Rework()


def said_in(reviews: Iterable[Review]) -> list[Doc]:
    """Return the words of reviews for an agent: at most `SAID_CHARS` in all, the oldest first."""
    found: list[Doc] = []
    room = SAID_CHARS
    for review in reviews:
        rows = [(review.body, "", 0)]
        rows += [(each.body, each.path, each.line) for each in review.comments[:REMARKS_MAX]]
        for body, path, line in rows:
            words = shown(body).strip()[: max(0, room)]
            room -= len(words)
            if words:
                row: Doc = {"by": review.author, "verdict": review.verdict, "text": words}
                place = one_line(path, 300)
                found.append({**row, "path": place, "line": line} if place else row)
    return found
