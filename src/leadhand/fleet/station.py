"""The station of a fleet at work: other processes read its status and send it orders here.

Other processes leave orders as files in `orders/`, and find the answer beside them: so nothing is
lost when a fleet is not there, and nobody needs a port. The server of the same process calls the
same functions. Once a second the station says who is at work (`live.json`).

    stop      end an agent; what it did is saved, and the ladder goes on with its task
    end       the same, and no attempt follows: the planner or a person decides about the task
    message   tell an agent something; it goes on with the same conversation
    pause     no new agents until `resume`, also after a restart
    drain     no new agents; those at work get a grace; then the fleet ends
    take      a person takes a task over: its agent is ended, and no try is used up (`take_over.py`)
    give      the person gives it back, to main with their commits or to an agent
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Self

from leadhand.core.calendar import iso
from leadhand.core.review.agents import is_agent
from leadhand.errors import Conflict, LeadhandError, NotAllowed, UsageError
from leadhand.fleet.agents import transcripts
from leadhand.fleet.agents.transcripts import TEXT_CHARS
from leadhand.fleet.background import watch
from leadhand.fleet.pause import end_pause, write_pause
from leadhand.fleet.planning.progress import EXAMINER
from leadhand.fleet.repositories import repository_of, unknown_repository
from leadhand.fleet.status.evidence import Evidence, live_of, write_live
from leadhand.fleet.status.figures import DONE, REPLACED
from leadhand.fleet.take_over import AGENT, MAIN
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.app.lead import Lead
    from leadhand.core.state.model import State, StepState
    from leadhand.fleet.context import AtWork
    from leadhand.fleet.service import Fleet
    from leadhand.fleet.take_over import TakenTask


Doc = dict[str, Any]
LOOK_S = 0.5
ORDER_BYTES_MAX = 1 << 20
ANSWER_S = 15.0
FRESH_S = 0.5
LOCKED_SHOWN = 300
VERBS = ("stop", "end", "message", "pause", "resume", "lift", "drain", "take", "give")
GIVEN = ("goal", "writes", "reads", "acceptance", "brief", "repository")
"""What a person is told of a task."""


_REFUSED = {
    "stop": "is not at work any more",
    "end": "is not at work any more",
    "message": "cannot be told anything: it has not begun to talk, or cannot be talked to "
    "(a command whose template has no {session})",
}


class Station:
    """Open it with `async with`, around a fleet that is open."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.url = ""
        """Where the page of the fleet is served."""
        self.folder = fleet.config.folder
        self.evidence = Evidence(self.folder)
        self.drained = asyncio.Event()
        """Set when the fleet is asked to end."""
        self._looking: asyncio.Task[None] | None = None
        self._held = ""
        self._drained: Doc | None = None
        self._counting = asyncio.Lock()
        self._counted: dict[float, tuple[float, Doc]] = {}
        """The last figures: pages that ask for them at the same time get the same ones."""
        self._trouble: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        (self.folder / "orders").mkdir(mode=0o700, exist_ok=True)
        write_live(self.folder, self.live())
        looking = watch("orders", self._look, self._trouble, LOOK_S)
        self._looking = asyncio.create_task(looking)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        (self.folder / "live.json").unlink(missing_ok=True)

    async def _look(self) -> None:
        with contextlib.suppress(OSError):  # a full disk hides the fleet, and must not stop it
            write_live(self.folder, self.live())
        held = self.fleet.held_back
        if held.partition(" ")[2] != self._held.partition(" ")[2]:
            self.fleet.shop.note("held", why=held)
        self._held = held
        for path in sorted((self.folder / "orders").glob("*.order")):
            self._carry_out(path)

    # --- what goes on ---

    @property
    def lead(self) -> Lead:
        """Return the Lead that drives the fleet's runs."""
        return self.fleet.lead

    async def figures(self, since_s: float) -> Doc:
        """Return the document of `leadhand fleet status --json` for the last `since_s` seconds."""
        async with self._counting:
            at, doc = self._counted.get(since_s, (0.0, {}))
            if time.monotonic() - at > FRESH_S:
                doc = await self.evidence.document(since_s, self.live())
                self._counted = {since_s: (time.monotonic(), doc)}
            return doc

    def live(self) -> Doc:
        """Return which agents are at work, and what holds others back."""
        shop, config = self.fleet.shop, self.fleet.config
        return {
            "pid": os.getpid(),
            "at": time.time(),
            "url": self.url,
            "repo": str(config.repo),
            "publish": config.publish,
            "follows": shop.hub.user.ref.removeprefix("refs/heads/") if config.follow else "",
            "aside": shop.hub.user.aside,
            "agents": [self._agent(each) for each in list(shop.at_work.values())],
            "machines": shop.machines.status() if shop.machines is not None else [],
            "places": {"most": shop.governor.most, "now": int(shop.governor.limit)},
            "waiting": shop.governor.waiting,
            "held_back": self.fleet.held_back,
            "limits": [
                limit.told_as(shop.governor.waiting_for(limit.login))
                for limit in shop.governor.limits.standing()
            ],
            "locked": {
                name: waits
                for site in self.fleet.sites.values()
                for name, waits in site.shop.boundaries.waits(LOCKED_SHOWN).items()
            },
            "draining": shop.governor.stopped,
            "taken": [taken_row(each) for each in shop.taken.all()],
            "drained": self._drained,
            "planner": self.lead.planner is not None,
            "paused": paused._asdict() if (paused := shop.governor.paused) else None,
            "refused": {**self.fleet.refused, **self._trouble},
            "train": shop.conductor.status(),
            "sandbox": shop.sandbox.kind,
            "daily_spend": config.daily,
            **self._others(),
        }

    def _agent(self, at_work: AtWork) -> Doc:
        """Return an agent at work; in a further repository with its name."""
        hub = at_work.slot.hub if at_work.slot is not None else None
        names = [name for name, site in self.fleet.sites.items() if name and site.shop.hub is hub]
        return {**_agent(at_work), **({"repository": names[0]} if names else {})}

    def _others(self) -> Doc:
        """Return what goes on in further repositories; nothing where there is one."""
        found = [site for name, site in self.fleet.sites.items() if name]
        if not found:
            return {}
        rows = [
            {
                "name": site.shop.name,
                "repo": str(site.config.repo),
                "publish": site.config.publish,
                "main": site.shop.hub.main(),
                "train": site.shop.conductor.status(),
                "against": site.sound.against,
            }
            for site in found
        ]
        return {"repositories": rows}

    # --- orders ---

    def _carry_out(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8") if _small(path) else "{}"
            order = json.loads(text)
            words = [str(order.get(key, "")) for key in ("verb", "task", "text", "actor")]
            told = self.order(*words)
        except LeadhandError as error:
            told = {"error": str(error)}
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            told = {"error": f"that is no order ({error})"}
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            fresh = path.with_suffix(".fresh")
            fresh.write_text(json.dumps(told), encoding="utf-8")
            fresh.replace(path.with_suffix(".answer"))

    def order(self, verb: str, task: str = "", text: str = "", actor: str = "") -> Doc:
        """Carry out an order.

        Raise `UsageError` or `Conflict` with the reason if that is impossible.
        """
        told = self._order(verb, task, text, actor)
        self._counted.clear()
        with contextlib.suppress(OSError):
            write_live(self.folder, self.live())
        about = {"name": told.get("task") or told.get("login", ""), "actor": actor}
        if "task" in told:
            about |= {"number": told["attempt"], "text": scrub(text[:TEXT_CHARS])}
        self.fleet.shop.note("ordered", verb=verb, **about)
        return told

    def submit(self, text: str, name: str, priority: int | None, actor: str) -> Doc:
        """Put an epic into the folder; raise `UsageError`, which names every mistake in it."""
        run, epic, _place = self.fleet.submit_text(text, name, priority)
        known = self.fleet.status_of(run)
        self.fleet.shop.note("ordered", verb="submit", name=run, actor=actor)
        self._counted.clear()
        tasks = {"tasks": len(epic.tasks), "priority": epic.priority}
        return {"run": run, "title": epic.title, **tasks, "known": known or None}

    def _order(self, verb: str, task: str, text: str, actor: str) -> Doc:
        governor, agents = self.fleet.shop.governor, len(self.fleet.shop.at_work)
        if verb == "drain":
            governor.stop()
            self._drained = {"by": actor, "at": iso(time.time_ns() // 1000)}
            self.drained.set()
            return {"draining": True, "agents": agents}
        if verb == "pause":
            governor.set_pause(write_pause(self.folder, actor))
            return {"paused": True, "agents": agents}
        if verb == "resume":
            end_pause(self.folder)
            governor.set_pause(None)
            return {"paused": False, "agents": agents}
        if verb == "lift":
            waiting = governor.waiting_for(task)
            if governor.limits.lift(task) is None:
                names = ", ".join(each.login for each in governor.limits.standing()) or "none"
                raise Conflict(f"no usage limit of {task!r} holds; logins with one: {names}")
            governor.look_again()
            return {"login": task, "tasks": waiting, "agents": agents}
        if verb not in VERBS:
            raise UsageError(f"{verb!r} is no order: {', '.join(VERBS)}")
        if verb in ("take", "give"):
            if is_agent(actor):
                raise NotAllowed(f"{actor} is an agent: a task is taken and given by people")
            return self._take(task, actor) if verb == "take" else self._give(task, text, actor)
        name, agent = self._find(task)
        if verb in ("stop", "end"):
            done = agent.coder.stop(agent.assignment)
            if done:
                agent.final = verb == "end"
                why = " ".join(text.split())
                agent.stopped = f"stopped by {actor or 'a person'}{why and ': '}{why}"
        elif not text.strip():
            raise UsageError("say what the agent is to be told")
        else:
            done = agent.coder.message(agent.assignment, text)
            if done and agent.transcript is not None:
                sent = scrub(text[:TEXT_CHARS])
                agent.transcript.note(f"message from {actor or 'a person'}", text=sent)
        if not done:
            raise Conflict(f"the agent of {name} {_REFUSED[verb]}")
        return {"task": name, "attempt": agent.assignment.attempt, verb: True}

    def _take(self, task: str, actor: str) -> Doc:
        """Let a person have a task; its agent is ended, and its work saved."""
        shop = self.fleet.shop
        state, step = self._find_open(task)
        name = f"{state.run}/{step.id}"
        agent = shop.at_work.get(name)
        if agent is None and name in shop.in_flight - shop.admitting and not self._waits(name):
            raise Conflict(
                f"the change of {name} is being tested or merged: there is no agent to take it "
                "from. Fix: try again if it comes back"
            )
        by, own = actor or "a person", repository_of(step.doc)
        if own not in self.fleet.sites:
            raise Conflict(
                f"{name}: {unknown_repository(own, list(self.fleet.config.repositories))}"
            )
        main = self.fleet.sites[own].shop.hub.main()
        ready = agent is None
        taken = shop.taken.take(state.run, step.id, by, ready=ready, base=main, repository=own)
        if agent is not None and not taken.ready:
            agent.coder.stop(agent.assignment)
        given = {key: step.doc.get("parameters", {}).get(key) for key in GIVEN}
        question = next((q.id for q in state.questions.values() if q.step == step.id), "")
        row = {"task": name, "attempt": step.attempts, "question": question, "by": taken.by}
        return {**row, "given": given, "stopped": agent is not None}

    def _waits(self, name: str) -> bool:
        run, _, step = name.partition("/")
        taken = self.fleet.shop.taken.of(run, step)
        return taken is not None and not taken.given

    def _give(self, task: str, text: str, actor: str) -> Doc:
        """Take a task back from the person who has it."""
        shop = self.fleet.shop
        state, step = self._find_open(task)
        taken = shop.taken.of(state.run, step.id)
        name = f"{state.run}/{step.id}"
        if taken is None:
            raise Conflict(f"{name} is not taken. Fix: leadhand fleet take {name}")
        if taken.by != (actor or "a person"):
            raise Conflict(f"{name} is taken by {taken.by}, who alone can give it back")
        told = json.loads(text)
        to = str(told.get("to", ""))
        if to not in (MAIN, AGENT):
            raise UsageError(f"{to!r}: a task is given to {MAIN} or to {AGENT}")
        shop.taken.change(
            state.run,
            step.id,
            given=to,
            head=str(told.get("head", "")),
            author=str(told.get("author", "")),
            message=scrub(str(told.get("message", ""))[:TEXT_CHARS]),
            refused="",
        )
        question = next((q.id for q in state.questions.values() if q.step == step.id), "")
        return {"task": name, "attempt": step.attempts, "question": question, "to": to}

    def _find_open(self, task: str) -> tuple[State, StepState]:
        """Return the step of an open epic by TASK or RUN/TASK, and its run."""
        run, _, name = task.rpartition("/")
        found = [
            (state, step)
            for state in self.fleet.states
            if state.ended is None and (not run or state.run.startswith(run))
            for step in state.steps.values()
            if step.id == name and step.worker != EXAMINER
        ]
        if len(found) > 1:
            names = ", ".join(f"{state.run}/{step.id}" for state, step in found[:8])
            raise UsageError(f"{task} could be any of: {names}")
        if not found:
            raise Conflict(f"no open epic has a task {task}")
        state, step = found[0]
        if step.status in (DONE, REPLACED, "skipped", "cancelled"):
            raise Conflict(f"{state.run}/{step.id} is {step.status}: there is nothing to take over")
        return state, step

    def _find(self, task: str) -> tuple[str, AtWork]:
        at_work = self.fleet.shop.at_work
        found = [name for name in at_work if task in (name, name.partition("/")[2])]
        run, _, step = task.partition("/")
        if not found and step and not self.fleet.status_of(run):  # else that epic was meant
            found = [n for n in at_work if n.startswith(run) and n.partition("/")[2] == step]
        if len(found) == 1:
            return found[0], at_work[found[0]]
        if found:
            raise UsageError(f"{task} could be any of: {', '.join(sorted(found)[:8])}")
        names = ", ".join(sorted(at_work)[:8]) or "none"
        raise Conflict(f"no agent works on {task}; at work: {names}")

    async def drain(self, grace_s: float) -> int:
        """Start no more agents, wait `grace_s` for those at work, and return how many are left."""
        governor = self.fleet.shop.governor
        governor.stop()
        until = time.monotonic() + grace_s
        while governor.busy and time.monotonic() < until:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.1)
        return governor.busy

    async def task(self, run: str, task: str) -> Doc:
        """Return one task in detail. Raise `UsageError` if there is none."""
        return await self.evidence.task(run, task, self.live())

    def transcript(self, run: str, task: str, attempt: int = 0) -> Doc:
        """Return the transcript of a task's last agent, or of another `attempt`."""
        files = transcripts.attempts(self.folder / "transcripts", run, task)
        found = [path for path in files if not attempt or int(path.stem) == attempt]
        if not found:
            raise UsageError(f"there is no transcript of {run}/{task}")
        lines = transcripts.all_lines(found[-1])
        return {"run": run, "task": task, "attempt": int(found[-1].stem), "lines": lines[-500:]}


def _agent(at_work: AtWork) -> Doc:
    given = at_work.assignment
    return {
        "run": given.run,
        "task": given.task,
        "attempt": given.attempt,
        "goal": given.goal[:200],
        "coder": at_work.coder.name,
        "model": given.model,
        "since": iso(round(at_work.since * 1e6)),
        "words": at_work.words,
        "heard": iso(round((at_work.heard or at_work.since) * 1e6)),
        "silence_s": given.silence_s,
        "cost": at_work.cost,
        "machine": str(getattr(at_work.coder, "machine", "")),
    }


def taken_row(taken: TakenTask) -> Doc:
    """Return a taken task, for views."""
    row = {"run": taken.run, "task": taken.task, "by": taken.by, "at": taken.at}
    row |= {"repository": taken.repository} if taken.repository else {}
    return {**row, "given": taken.given, "refused": taken.refused[:LOCKED_SHOWN]}


def _small(path: Path) -> bool:
    return path.stat().st_size <= ORDER_BYTES_MAX


async def leave_order(
    folder: Path, verb: str, task: str = "", text: str = "", actor: str = ""
) -> Doc:
    """Give an order to the fleet of a folder, and wait for its answer."""
    if live_of(folder) is None:
        raise Conflict(f"no fleet is at work in {folder}. Fix: leadhand fleet start --repo PATH")
    place = folder / "orders" / f"{time.time_ns()}-{secrets.token_hex(4)}.order"
    fresh = place.with_suffix(".new")
    order = {"verb": verb, "task": task, "text": text, "actor": actor}
    fresh.write_text(json.dumps(order), encoding="utf-8")
    fresh.replace(place)
    answer, until = place.with_suffix(".answer"), time.monotonic() + ANSWER_S
    while not answer.exists():
        if time.monotonic() > until:
            place.unlink(missing_ok=True)
            raise Conflict(f"the fleet in {folder} does not answer")
        await asyncio.sleep(0.05)
    told: Doc = json.loads(answer.read_text(encoding="utf-8"))
    answer.unlink(missing_ok=True)
    if "error" in told:
        raise Conflict(str(told["error"]))
    return told
