"""The planner of an epic: asks a backend for the next wave, and accepts only valid ones.

    where it stands ─► what is told ─► backend ─► answer ─► lint ─► revision of the plan
                                        ▲                    │ wrong
                                        └── first findings ──┘   (at most 3 rounds, then a person)

A wave is a revision like any other: it is logged, can be read and compared, and waits for review
where the policy says so. The planner is asked again when a wave has landed and when a task was
too much for its agents, asks something, was overtaken by others, or comes with a recommendation.

The end is not the backend's to say. When it says "done", the epic's own acceptance commands run on
main, through the gate; only when they hold is the epic achieved. When they do not, the backend is
told, a few times; then the run says that the epic was not achieved.

Nothing is held in memory: notes and counters stand in the log with each decision, so a fleet that
is killed and started again plans nothing twice.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.report import Ask, Finish, GiveUp, Propose
from leadhand.core.wording import listed
from leadhand.errors import UsageError
from leadhand.fleet.epics import Epic
from leadhand.fleet.planning import steps as shaping
from leadhand.fleet.planning.backends import BackendFailed, Tried, retry_planning
from leadhand.fleet.planning.lint import Ground, PlanRules, lint_reply, warn_reply
from leadhand.fleet.planning.look import Looker
from leadhand.fleet.planning.map_cache import FactsCache
from leadhand.fleet.planning.progress import CHANGELOG, MOVABLE, EpicQuestion, read_notes, standing
from leadhand.fleet.planning.prompt import planner_document
from leadhand.fleet.planning.record import planning_record
from leadhand.fleet.planning.reply import MisreadReply, read
from leadhand.fleet.planning.steps import ladder
from leadhand.fleet.planning.survey import survey
from leadhand.fleet.planning.symbols import reader
from leadhand.fleet.repository.git import GitFailed
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from leadhand.core.report import Decision, PlannerView
    from leadhand.fleet.planning.backends import Backend
    from leadhand.fleet.planning.progress import EpicNotes, EpicProgress, Matter
    from leadhand.fleet.planning.record import PlannedEpic
    from leadhand.fleet.planning.reply import Reply
    from leadhand.fleet.planning.survey import Survey
    from leadhand.fleet.repository.hub import Hub


NOTES_CHARS = 4000
TROUBLES = (GitFailed, OSError)
"""Of the machine, not of the epic."""
AGAIN, DROP, GIVE_UP = "again", "drop", "give up"


class PlannerSources(NamedTuple):
    """What the planner knows besides the repository and the run."""

    past: Callable[[], list[PlannedEpic]] = list
    """What came of the plans of all epics."""
    gate: tuple[Mapping[str, Any], ...] = ()
    """The commands of set-up and gate."""
    cache: Path | None = None
    """The file that keeps what files of the repository hold."""


class EpicPlanner:
    """Plans epics of one repository."""

    name = "epic"
    replans = True
    splits = True
    consult = "on_surprise"
    source = ""

    def __init__(
        self,
        hub: Hub,
        backend: Backend,
        rules: PlanRules | None = None,
        *,
        protected: Sequence[str] = (),
        tiers: Sequence[str] = (),
        sources: PlannerSources | None = None,
        has_program: Callable[[str], bool] = lambda name: shutil.which(name) is not None,
    ) -> None:
        """`has_program` tells whether acceptance commands find a program where they run."""
        self._known: FactsCache | None = None
        self._has_program = has_program
        self._hub, self._backend, self.rules = hub, backend, rules or PlanRules()
        self._sources = sources or PlannerSources()
        self._protected, self._tiers = tuple(protected), tuple(tiers)
        self._seen: Survey | None = None

    async def decide(self, view: PlannerView) -> Decision:
        """Return the next decision.

        A repository that cannot be read is waited for, then a person is asked.
        """
        notes, epic = read_notes(view.notes), epic_of(view)
        try:
            decision = await self._decide(view, epic, notes)
        except TROUBLES as trouble:
            notes = read_notes(view.notes)  # nothing of what was begun
            text = f"The epic cannot be planned: {scrub(str(trouble))[:1500]}. Answer {AGAIN} when "
            text += f"it is mended, or {GIVE_UP}."
            decision = _asking(notes, "plan", text, (), (AGAIN, GIVE_UP))
        return replace(decision, notes=msgspec.to_builtins(notes))

    async def _decide(self, view: PlannerView, epic: Epic, notes: EpicNotes) -> Decision:
        if not view.steps and epic.tasks:
            steps = shaping.given_steps(
                epic, self._hub.main(), self._tiers, self._protected, self.rules.sharing
            )
            notes.waves = 1
            return Propose(tuple(steps), because="wave 1: the tasks that the epic names")
        said = self._answered(view, notes)
        if said is not None:
            return said
        stand = standing(view, notes)
        over = stand.split()
        if over and not stand.matters:
            return self._letter(over, notes)
        if stand.reds > notes.reds:
            notes.reds, notes.done = stand.reds, None
            if stand.reds >= self.rules.reds and stand.check is not None:
                words = stand.check.error.message if stand.check.error is not None else ""
                return GiveUp(
                    f"not achieved: its acceptance fails after {stand.reds} looks: {words}"
                )
        if view.why.startswith("changes:"):
            notes.done = None
        if stand.matters or stand.open or notes.done is None:
            return await self._plan(view, epic, notes, stand)
        return await self._close(epic, notes, stand, view)

    # --- the backend ---

    async def _plan(
        self, view: PlannerView, epic: Epic, notes: EpicNotes, stand: EpicProgress
    ) -> Decision:
        seen = await self._survey()
        ground = self._ground(view, notes, stand, seen)
        commands = list(self._sources.gate)
        doc = await asyncio.to_thread(
            planner_document, view, epic, notes, ground, seen, {"commands": commands}
        )
        notes.heard = len(view.recommendations)
        tried = [Tried(None, list(view.findings))] if view.findings else []
        looker, notes.predicted = Looker(self._hub, seen), []
        rounds = 0
        while rounds < self.rules.rounds:
            answer: Any = None
            try:
                answer = await self._backend.answer(doc, tried)
                reply = read(answer)
                looks = reply.kind == "look"
                findings = looker.objections(reply) if looks else lint_reply(reply, ground)
            except (MisreadReply, BackendFailed) as problem:
                findings, looks = [str(problem)], False
            if looks and not findings:
                tried.append(Tried(answer, [], await looker.answer(reply)))
                notes.looked = looker.record
                continue
            notes.proposals += 1
            rounds += 1
            if not findings and not notes.predicted:
                notes.predicted = findings = warn_reply(reply, ground)
            if not findings:
                notes.usable += 1
                return await self._decided(reply, view, epic, notes, stand, seen)
            before = tried[-1] if tried and tried[-1].found is None else None
            stubborn = before is not None and answer is not None and answer == before.answer
            tried.append(Tried(answer, findings))
            if stubborn:
                break
        usable = f"{notes.usable} of {notes.proposals} answers were usable"
        why = f"{self._backend.name}: {scrub('; '.join(tried[-1].findings))[:1500]} ({usable})"
        return _asking(
            notes,
            "plan",
            f"The epic cannot be planned: {why}. What should be known?",
            (),
            (AGAIN, GIVE_UP),
        )

    def _ground(
        self, view: PlannerView, notes: EpicNotes, stand: EpicProgress, seen: Survey
    ) -> Ground:
        return Ground(
            rules=self.rules,
            standing=stand,
            statuses={step.id: step.status for step in view.timeline},
            files=seen.files,
            map=seen.map,
            protected=self._protected,
            tiers=self._tiers,
            budget_left=view.budget_left,
            waves=notes.waves,
            has_program=self._has_program,
            record=planning_record(self._sources.past()),
        )

    async def _decided(
        self,
        reply: Reply,
        view: PlannerView,
        epic: Epic,
        notes: EpicNotes,
        stand: EpicProgress,
        seen: Survey,
    ) -> Decision:
        notes.said = scrub(reply.notes)[:NOTES_CHARS] or notes.said
        match reply.kind:
            case "ask":
                return _asking(notes, "plan", scrub(reply.question), (), reply.choices)
            case "give_up":
                return GiveUp(scrub(reply.reason))
            case "done":
                notes.done = {"summary": scrub(reply.summary), "changelog": scrub(reply.changelog)}
                return await self._close(epic, notes, stand, view)
            case _:
                return self._wave(reply, epic, notes, stand, seen)

    def _wave(
        self, reply: Reply, epic: Epic, notes: EpicNotes, stand: EpicProgress, seen: Survey
    ) -> Propose:
        notes.main = seen.main
        notes.waves += bool(reply.tasks)
        movable = {step.id for step in stand.open if step.status in MOVABLE}
        notes.dropped += [name for name in reply.drop if name not in notes.dropped]
        steps = shaping.wave_steps(
            reply, stand, notes, seen.main, epic.priority, self._tiers, self.rules.sharing
        )
        because = scrub(reply.because)[:500]
        return Propose(
            tuple(steps),
            outlook=shaping.outlook_steps([scrub(text) for text in reply.outlook]),
            because=f"wave {notes.waves}: {because}" if reply.tasks else because or "it goes on",
            cancel=tuple(name for name in dict.fromkeys(reply.drop) if name in movable),
            answers=tuple(
                {"comment": each.comment, "addressed": each.addressed, "reason": scrub(each.reason)}
                for each in reply.comments
            ),
        )

    async def _survey(self) -> Survey:
        if self._seen is None or self._seen.main != self._hub.main():
            cache = self._known or FactsCache(self._sources.cache, reader())
            if self._known is None:
                await asyncio.to_thread(cache.load)
                self._known = cache
            self._seen = await retry_planning(lambda: survey(self._hub, cache), TROUBLES)
        return self._seen

    # --- people ---

    def _letter(self, over: list[Matter], notes: EpicNotes) -> Ask:
        """Ask a person at the end of the ladder, about the first of the tasks."""
        matter = over[0]
        step = matter.step
        notes.count(step.id, "asked")
        words = scrub(matter.told)[:1500]
        if matter.kind == "question":
            text = f"Task {step.id} asks: {words} Answer {AGAIN}, with what it should know as text."
        else:
            line = notes.rungs.get(notes.root(step.id), {})
            steps = listed([f"{name} {count}" for name, count in line.items()])
            text = (
                f"Task {step.id} cannot be done ({steps}): {words} Answer {AGAIN}, with what an "
                f"agent should know as text; {DROP}; or {GIVE_UP}."
            )
        return _asking(notes, matter.kind, text, (step.id,), (AGAIN, DROP, GIVE_UP))

    def _answered(self, view: PlannerView, notes: EpicNotes) -> Decision | None:
        """Return the decision that follows from people's answers; None: ask the backend."""
        answers = {str(each.get("question", "")): each for each in view.answers}
        answered = [(asked, answers[asked.text]) for asked in notes.asked if asked.text in answers]
        notes.asked = [asked for asked in notes.asked if asked.text not in answers]
        steps: list[Any] = []
        for asked, said in answered:
            choice, text = str(said.get("choice", "")), str(said.get("text") or "")
            if choice == GIVE_UP:
                return GiveUp(f"{_who(said)} gave it up: {text or asked.text}")
            if choice == DROP:
                notes.dropped += asked.tasks
            if choice == AGAIN:
                steps += self._again(view, asked, text, notes)
        if steps:
            names = listed(list(dict.fromkeys(_who(said) for _, said in answered)))
            return Propose(tuple(steps), because=f"{names} said so")
        if any(asked.about == "plan" for asked in notes.asked):
            return Propose((), because="a person was asked, and has not answered")
        return None

    def _again(
        self, view: PlannerView, asked: EpicQuestion, text: str, notes: EpicNotes
    ) -> list[Any]:
        """Return the tasks that a person wants to be tried again, with their remarks."""
        main, told = self._hub.main(), text or "A person wants it to be tried again."
        return [
            shaping.told_step(view.steps[name], f"A person says: {told}", notes, main, anew=True)
            for name in asked.tasks
        ]

    # --- the end ---

    async def _close(
        self, epic: Epic, notes: EpicNotes, stand: EpicProgress, view: PlannerView
    ) -> Decision:
        """Take the next step to the end: the changelog entry, the acceptance, the result."""
        last, path = stand.check, self.rules.changelog
        if last is not None and last.status == "succeeded":
            result = await retry_planning(
                lambda: result_of(self._hub, view, epic, notes, stand), TROUBLES
            )
            return Finish(result, "its acceptance holds")
        entries = [step for step in stand.tasks if step.id.startswith(f"{CHANGELOG}-")]
        if path and not entries and stand.landed:
            entry = shaping.changelog_step(path, entry_of(epic, notes), 1, self._hub.main())
            return Propose((entry,), because="an entry in the changelog")
        step = shaping.check_step(epic.acceptance, stand)
        return Propose((step,), because="the epic's own acceptance, on main")


def epic_of(view: PlannerView) -> Epic:
    """Return the epic of a run, from the run's parameters."""
    try:
        return msgspec.convert(view.params["epic"], Epic)
    except (KeyError, msgspec.ValidationError) as error:
        raise UsageError(f"run {view.run} is no epic: {error}") from None


def _asking(
    notes: EpicNotes, about: str, text: str, tasks: Sequence[str], choices: Sequence[str]
) -> Ask:
    notes.asked.append(EpicQuestion(about, text, list(tasks)))
    return Ask(text, tuple(choices))


def _who(said: Mapping[str, Any]) -> str:
    return str(said.get("actor", "a person"))


# The result of an epic as data: a summary, a changelog entry and the evidence.


COMMITS_TOLD = 500


def entry_of(epic: Epic, notes: EpicNotes) -> str:
    """Return the entry for the changelog: the planner's words, else the epic's title."""
    return (notes.done or {}).get("changelog", "").strip() or epic.title


async def result_of(
    hub: Hub, view: PlannerView, epic: Epic, notes: EpicNotes, stand: EpicProgress
) -> dict[str, Any]:
    """Return the result of the run. Its commits come from git, by their trailers."""
    own = [c for c in await hub.commits() if c.trailers.get("Leadhand-Run") == view.run]
    tasks = len(stand.landed)
    check = stand.check
    words = (notes.done or {}).get("summary", "").strip()
    data = check.data if check is not None and isinstance(check.data, dict) else {}
    return {
        "achieved": True,
        "summary": words or f"{epic.title}: {tasks} tasks landed in {notes.waves} waves.",
        "changelog": entry_of(epic, notes),
        "commits": [
            {"sha": commit.sha, "task": commit.trailers.get("Leadhand-Task", "")}
            for commit in own[-COMMITS_TOLD:]
        ],
        "waves": notes.waves,
        "tasks": tasks,
        "dropped": list(notes.dropped),
        "acceptance": {
            "commit": data.get("commit", ""),
            "commands": [list(argv) for argv in epic.acceptance],
            "looks": len(stand.checks),
        },
        "ladder": ladder(stand, notes, _same_conversation(view)),
    }


def _same_conversation(view: PlannerView) -> dict[str, int]:
    """For each task how many attempts went on with a conversation, as far as they failed."""
    found: dict[str, int] = {}
    for each in view.failed_attempts:
        details = each.failure.details
        if isinstance(details, dict) and details.get("conversation") == "same":
            found[each.step] = found.get(each.step, 0) + 1
    return found
