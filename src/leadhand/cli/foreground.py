"""Hosting a run in this process: show it, handle signals, notify people, print its end.

The engine does the work; this module waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadhand.app.approvals import signed_answer, to_approve
from leadhand.app.commands import hosted_runs
from leadhand.app.hosting_service import hosting_service
from leadhand.app.rollback import roll_back
from leadhand.app.run_limits import limits_doc
from leadhand.app.store_factory import host_info
from leadhand.cli.approval_prompt import ApprovalPrompt
from leadhand.cli.rendering.live import View, view_for
from leadhand.cli.rendering.outcome import outcome_document, print_outcome, print_result
from leadhand.cli.rendering.text import clean, count
from leadhand.cli.signals import Signals
from leadhand.codec.events import decode
from leadhand.core.rollback import to_roll_back
from leadhand.core.views.inbox import inbox_row
from leadhand.core.views.run import ENDED, exit_code, run_status
from leadhand.engine.fold import NoWorkers
from leadhand.engine.results import result_of
from leadhand.errors import Conflict, NotAllowed, Queued
from leadhand.notify.notifier import Notifier
from leadhand.settings import Settings
from leadhand.settings.folders import make_store_folder
from leadhand.stores.location import StoreAddress

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.audit.keys import PrivateKey
    from leadhand.cli.console import Console
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import State
    from leadhand.core.views.inbox import InboxRow
    from leadhand.ports import Host, RunHandle


LOOK_S = 0.2
SILENT_S = 5.0
"""How long a run may take to start before a waiting person is told that it has not."""
CONFIRM_S = 0.7
"""How long a service elsewhere may take to confirm a run that is no longer waited for."""
HOSTED = "is the host of this database"

Begin = Callable[["Lead", "Host"], Awaitable["RunHandle"]]
MakeLead = Callable[[Callable[[str, str, str], None]], "Lead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedJob:
    """A run to be hosted, and how."""

    settings: Settings
    lead: MakeLead
    begin: Begin
    approve_as: str = ""
    """Answer reviews as this person."""
    stay: bool = False
    """Host it while it waits for a person, instead of leaving."""
    quiet: bool = False
    why: bool = False
    """Print decisions and their reasons above the live picture."""
    after: int = 0
    """Events up to this seq were already shown."""
    resumes: str = ""
    """The run that is resumed, if it is not a new one."""
    request: Doc | None = None
    """The same as data, for a process of its own: if another process hosts the database."""
    started: Callable[[str], None] = lambda _run: None
    """Called with the run's id once its start is durable."""
    actor: str = ""
    """The person at the terminal, who may be asked; empty: no person is there."""
    resume_options: tuple[str, ...] = ()
    """What `leadhand resume` needs besides the run, to load the same workers."""


def host(console: Console, job: HostedJob) -> int:
    """Host a run until it ends or waits; return the exit code."""
    make_store_folder(job.settings.store)
    session = _Session(console, job)
    try:
        code = asyncio.run(session.run())
        if session.load_again:
            session.start_again()
        return code
    except _Beside:
        from leadhand.cli.guest_run import hand_over

        return hand_over(console, job)


def settings_digest(settings: Settings) -> str:
    """Return a digest of the settings files as they are on disk."""
    from leadhand.core.hashing import digest

    texts = []
    for path in settings.files:
        try:
            texts.append(path.read_bytes().hex())
        except OSError:
            texts.append("")
    return digest(*texts)


class _Asked:
    """A run that this process hosts, for the prompt."""

    def __init__(self, opened: Host, run: RunHandle, actor: str, stale: Callable[[], str]) -> None:
        self._opened = opened
        self._run = run
        self._actor = actor
        self.stale = stale

    @property
    def state(self) -> State:
        return self._run.state

    def log(self) -> list[Event]:
        """Return the events of the run."""
        entries = self._opened.store.read(self._run.id)
        return [decode(entry.version, entry.body) for entry in entries]

    async def send(self, verb: str, details: Doc) -> Doc:
        """Send a command of the person to the run."""
        return await self._opened.send_command(
            self._run.id, verb, self._actor, details, NoWorkers()
        )


class _Beside(Exception):
    """Another process hosts the database, and the run has not started."""


class _Session:
    def __init__(self, console: Console, job: HostedJob) -> None:
        self._console = console
        self._job = job
        self._service = hosting_service(job.settings)
        self._view: View | None = None
        self._ident = self._queued = self._first = ""
        self._ended = ""
        """How it ended, once only printing can fail."""
        self._seq = job.after
        self._key: PrivateKey | None = None
        self._prompt = ApprovalPrompt(console, job.settings, job.actor)
        self._files = settings_digest(job.settings)

    @property
    def load_again(self) -> bool:
        """Whether workers or settings changed, and the run is to be shown with the new ones."""
        return self._prompt.load_again

    def start_again(self) -> None:
        """Go on in place of this process with a new one, which loads workers and settings again."""
        words = ["resume", self._first, *(["--quiet"] if self._job.quiet else [])]
        self._console.restart([*words, *self._job.resume_options])

    async def run(self) -> int:
        try:
            return await self._host()
        except BaseException as error:
            self._close_view()
            if self._goes_beside(error):
                raise _Beside from None
            if self._ended:
                way = self._console.command(f"show {self._ident} --json")
                self._console.say(f"The run is over ({self._ended}); see it with: {way}")
            elif self._ident:
                self._console.say(f"Continue with: {self._way_on()}")
            if isinstance(error, Conflict):
                raise await self._explained(error) from error
            raise

    def _goes_beside(self, error: BaseException) -> bool:
        """Return whether the run can be driven beside the existing host."""
        job = self._job
        taken = isinstance(error, Conflict) and HOSTED in str(error)
        return taken and job.request is not None and not self._ident and _is_file(job.settings)

    async def _host(self) -> int:
        async def rows(run: str) -> list[InboxRow]:
            hosted = opened.runs.get(run)
            state = hosted.state if hosted is not None else None
            return [inbox_row(state, each) for each in state.questions] if state else []

        notifier = Notifier(self._job.settings, self._note, rows=rows)

        def notice(kind: str, run: str, text: str) -> None:
            if kind != "waiting" or not self._will_approve(opened, run):
                notifier(kind, run, text)

        lead = self._job.lead(notice)
        self._key = lead.key
        async with lead.hosting() as opened:
            refuse_when_stopped(opened, self._console)
            with Signals(self._drain_note, self._second) as signals:
                await self._say_lonely(opened)
                run = await self._begun(lead, opened, signals)
                if run is None:
                    return self._not_begun(signals.number)
                self._job.started(run.id)
                self._first = run.id
                await self._follow(opened, run, signals)
                result = result_of(run.host.store, run.state)
                back = await self._taken_back(lead, opened, run, signals)
            await notifier.finish()
        if self._prompt.load_again:
            return exit_code(run.state)
        return self._finish(run.state, result, signals.number, back)

    async def _say_lonely(self, opened: Host) -> None:
        """Say that a run hosted elsewhere waits while no engine serves it."""
        if self._service is None or await opened.engines():
            return
        self._console.say(
            f"no process serves runs at {self._service.address} now; waiting a minute for "
            "one. Start one with: leadhand worker --engine, or leadhand serve"
        )

    async def _begun(self, lead: Lead, opened: Host, signals: Signals) -> RunHandle | None:
        """Start the run; None if it waits for an engine longer than we do."""
        if self._service is None:
            return await self._job.begin(lead, opened)
        if signals.number:
            return None
        opened.launched = self._launched
        begin = asyncio.ensure_future(self._job.begin(lead, opened))
        told = asyncio.create_task(signals.came.wait())
        try:
            tasks, first = [begin, told], asyncio.FIRST_COMPLETED
            if not (await asyncio.wait(tasks, timeout=SILENT_S, return_when=first))[0]:
                self._console.say("no engine has taken it yet: see leadhand doctor")
                await asyncio.wait(tasks, return_when=first)
            if not self._queued:  # the server is just being asked, and will have answered
                await asyncio.wait([begin], timeout=CONFIRM_S)
            return await begin if begin.done() else None
        except Queued:
            return None
        finally:
            for task in (begin, told):
                task.cancel()
            await asyncio.gather(begin, told, return_exceptions=True)

    def _launched(self, run: str) -> None:
        self._queued = run
        if not self._job.quiet:
            self._console.say(f"run {run}")

    def _not_begun(self, signal: int) -> int:
        """Print the state of a run that no engine has started."""
        run = self._queued
        if run:
            self._console.say(
                f"run {run} is queued: it begins when an engine is there. Start one with: "
                "leadhand worker --engine, or leadhand serve; or withdraw the run with: "
                f"{self._console.command(f'cancel {run}')}"
            )
        else:
            name = self._service.name if self._service is not None else ""
            self._console.say(f"no run was started, as far as the {name} server has said")
        if self._console.json:
            self._console.document({"run": run or None, "status": "queued" if run else None})
        return 128 + signal if signal else Queued.exit_code

    async def _follow(self, opened: Host, run: RunHandle, signals: Signals) -> None:
        """Show a run until it is over, or need not be waited for."""
        self._ident = run.id
        view = self._view = view_for(self._console, quiet=self._job.quiet, why=self._job.why)
        watcher = asyncio.create_task(self._watch(opened, run, view))
        try:
            await self._until_over(opened, run, signals, view)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        self._tick(opened, run, view)
        self._close_view()

    async def _taken_back(
        self, lead: Lead, opened: Host, run: RunHandle, signals: Signals
    ) -> RunHandle | None:
        """Run the rollback that a failed run asks for, shown like the run."""
        if not to_roll_back(run.state) or signals.number:
            return None
        sources = run.state.started.workers if run.state.started else ()
        back = await roll_back(lead, opened, run.id, sources)
        self._console.say(f"Taking back what was done, in run {back.id}")
        self._seq = 0
        await self._follow(opened, back, signals)
        return back

    async def _until_over(self, opened: Host, run: RunHandle, signals: Signals, view: View) -> None:
        over = asyncio.create_task(self._over(run))
        told = asyncio.create_task(signals.came.wait())
        asking = asyncio.create_task(self._ask(opened, run, signals, view))
        tasks: list[asyncio.Task[Any]] = [over, told]
        try:
            await asyncio.wait([*tasks, asking], return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
            if not over.done():
                asking.cancel()
                drained = asyncio.create_task(opened.drain())
                tasks.append(drained)
                await asyncio.wait([over, drained], return_when=asyncio.FIRST_COMPLETED)
            for task in (over, *tasks[2:]):
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, asking):
                task.cancel()
            await asyncio.gather(*tasks, asking, return_exceptions=True)

    async def _ask(self, opened: Host, run: RunHandle, signals: Signals, view: View) -> None:
        """Ask about each revision that waits for an approval, in place of the live view."""
        prompt = self._prompt
        asked = _Asked(opened, run, self._job.actor, self._changed_files)
        while self._asks:
            if prompt.wants(run.state):
                prompt.open = True
                self._tick(opened, run, view)
                view.pause()
                await prompt.ask(asked, signals)
                if run_status(run.state) != "waiting":
                    view.go_on()
            await asyncio.sleep(LOOK_S)
        await asyncio.Event().wait()

    @property
    def _asks(self) -> bool:
        return bool(self._job.actor) and not self._job.approve_as and self._prompt.possible

    def _changed_files(self) -> str:
        """Return what changed on disk since it was loaded; "" if nothing did."""
        from leadhand.workers.functions.snapshot import SOURCES

        if self._service is not None:
            return ""
        if settings_digest(self._job.settings) != self._files:
            return "the settings"
        return "the file of a worker" if SOURCES.stale() else ""

    async def _over(self, run: RunHandle) -> None:
        """Wait until the run has ended, or waits for a person and we need not stay."""
        while True:
            status = await run.wait_idle()
            if status in ENDED and not self._prompt.open:  # the prompt says what became of it
                return
            asking = self._asks and (self._prompt.open or self._prompt.wants(run.state))
            approved = status == "waiting" and not asking and await self._approve(run)
            if status == "waiting" and not asking and not approved and not self._job.stay:
                return
            await asyncio.sleep(LOOK_S)  # paused, or waiting: another process will send a command

    def _will_approve(self, opened: Host, run: str) -> bool:
        """Return whether `--yes` answers everything that waits, without a notification."""
        hosted = opened.runs.get(run)
        questions = hosted.state.questions.values() if hosted else ()
        return bool(self._job.approve_as) and all(each.kind == "review" for each in questions)

    async def _approve(self, run: RunHandle) -> bool:
        actor = self._job.approve_as
        review = to_approve(run.state, actor) if actor else ""
        if review:
            await run.submit_and_wait(signed_answer(review, "approve", actor, self._key))
        return bool(review)

    async def _watch(self, opened: Host, run: RunHandle, view: View) -> None:
        while True:
            if not self._prompt.open:
                self._tick(opened, run, view)
            await asyncio.sleep(view.period_s)

    def _tick(self, opened: Host, run: RunHandle, view: View) -> None:
        entries = opened.store.read(run.id, self._seq) if view.reads_log else []
        if entries:
            self._seq = entries[-1].seq
        logged = [(entry, decode(entry.version, entry.body)) for entry in entries]
        stopped = opened.shared.stopped_by if opened.shared.stopped else ""
        view.tick(run.state, opened.time().at, run.progress, logged, stopped)

    async def _explained(self, error: Conflict) -> Conflict:
        """Return a conflict with a second host, with its process and the ways out."""
        store = self._job.settings.store
        there = host_info(store) if HOSTED in str(error) else None
        if there is None:
            return error
        pid, runs = there["pid"], await hosted_runs(store)
        what = f", with {count(len(runs), 'run')}: {', '.join(runs[:3])}" if runs else ""
        more = ", …" if len(runs) > 3 else ""
        watch = self._console.command(f"watch {runs[0] if runs else ''}".rstrip())
        resumes = self._job.resumes
        if resumes in runs:
            way = self._console.command(f"watch {resumes}")
            return Conflict(f"run {resumes} is hosted by process {pid} already. Fix: {way}")
        if isinstance(store, StoreAddress):
            return Conflict(
                f"{store}: process {pid} on {there['machine']} is the host of this database"
                f"{what}{more}. Runs are driven beside a host only where the database is a file, "
                "since the host of one in PostgreSQL may be on another machine; nothing was "
                f"started here. Fix: wait until that host is done: {watch}\n"
                "  or, if it is leadhand serve, start the run through it: POST /api/v1/runs\n"
                "  or let Temporal host the runs, which lets many start them: "
                "docs/reference/temporal.md"
            )
        return Conflict(
            f"{store}: process {pid} is the host of this database{what}{more}, and nothing was "
            f"started here. Fix: wait until that host is done: {watch}"
        )

    def _drain_note(self, number: int) -> None:
        word = "Ctrl-C" if number == 2 else "SIGTERM"
        if self._service is not None:
            more = f"; the run goes on, where {self._service.name} hosts it" if self._view else ""
            self._note(f"{word}: no longer waiting{more}.")
            return
        self._note(f"{word}: no new steps start; waiting for running steps. Repeat to end now.")

    def _note(self, text: str) -> None:
        (self._view.note if self._view else self._console.say)(text)

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.close()

    def _second(self) -> None:
        self._close_view()
        if self._ident:
            self._console.say(f"Ended at once. Continue with: {self._way_on()}")

    def _way_on(self) -> str:
        return self._console.command(f"resume {self._ident}")

    def _finish(self, state: State, result: Json, signal: int, back: RunHandle | None) -> int:
        status = run_status(state)
        self._ident, self._ended = state.run, status if status in ENDED else ""
        interrupted = bool(signal) and status not in ENDED
        undone = back.state if back is not None else None
        print_end(self._console, state, result, undone)
        return 128 + signal if interrupted else exit_code(state)


def print_end(
    console: Console,
    state: State,
    result: Json,
    back: State | None,
    *,
    hosted: bool | None = None,
) -> None:
    """Print the end of a run that was followed, and its result.

    `back` is its rollback. `hosted`: whether a process drives it; None if this one did.
    """
    status = run_status(state)
    print_outcome(console, state, hosted=hosted)
    if back is not None:
        console.say(f"rollback, run {back.run}:")
        print_outcome(console, back, hosted=hosted)
    if console.json:
        doc = outcome_document(console, state, result)
        if state.policy.budget is not None:
            doc.limits = limits_doc(state.policy)
        if back is not None:
            doc.rollback = outcome_document(console, back, None)
        console.document(doc)
    elif status in ENDED:
        print_result(console, result)
    if status in ENDED:
        ways = [console.command(f"{word} {state.run}") for word in ("logs", "verify")]
        console.next("   or   ".join(ways))


def _is_file(settings: Settings) -> bool:
    """Return whether the database is a file: other processes here can reach its host."""
    return not isinstance(settings.store, StoreAddress)


def refuse_when_stopped(opened: Host, console: Console) -> None:
    """Raise `NotAllowed` while stop-all is in force."""
    if opened.shared.stopped:
        by = clean(opened.shared.stopped_by, 60)
        raise NotAllowed(
            f"everything on this database was stopped by {by}. "
            f"Fix: {console.command('stop-all --lift')}"
        )
