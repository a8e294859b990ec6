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
from leadhand.fleet.planning.lint import Ground, GroundOf, PlanRules, lint_reply, warn_reply
from leadhand.fleet.planning.look import Looker
from leadhand.fleet.planning.map_cache import FactsCache
from leadhand.fleet.planning.progress import CHANGELOG, MOVABLE, EpicQuestion, read_notes, standing
from leadhand.fleet.planning.prompt import planner_document
from leadhand.fleet.planning.record import planning_record
from leadhand.fleet.planning.reply import MisreadReply, read
from leadhand.fleet.planning.steps import PlannedRepository, ladder
from leadhand.fleet.planning.survey import survey
from leadhand.fleet.planning.symbols import reader
from leadhand.fleet.repositories import landed_words, repository_of
from leadhand.fleet.repository.git import GitFailed
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from leadhand.core.report import Decision, PlannerView
    from leadhand.fleet.boundaries import Sharing
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


class FurtherRepository(NamedTuple):
    """A repository besides the main one, as far as plans go."""

    hub: Hub
    sharing: Sharing
    protected: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Where planned tasks may write; nothing said: everywhere but what is protected."""
    gate: tuple[Mapping[str, Any], ...] = ()
    cache: Path | None = None
    has_program: Callable[[str], bool] = lambda name: shutil.which(name) is not None


class EpicPlanner:
    """Plans epics of a repository, or of several."""

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
        others: Mapping[str, FurtherRepository] | None = None,
    ) -> None:
        """`has_program` tells whether acceptance commands find a program where they run.

        `others` are further repositories, by the name that tasks give them.
        """
        self._known: dict[str, FactsCache] = {}
        self._others = others or {}
        self._has_program = has_program
        self._hub, self._backend, self.rules = hub, backend, rules or PlanRules()
        self._sources = sources or PlannerSources()
        self._protected, self._tiers = tuple(protected), tuple(tiers)
        self._seen: dict[str, Survey] = {}

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
            steps = shaping.given_steps(epic, self._repositories(), self._tiers)
            notes.waves = 1
            return Propose(tuple(steps), because="wave 1: the tasks that the epic names")
        said = self._answered(view, notes)
        if said is not None:
            return said
        stand = standing(view, notes)
        over = stand.split()
        if over and not stand.matters:
            return self._letter(over, notes, stand)
        if stand.reds > notes.reds:
            notes.reds, notes.done = stand.reds, None
            if stand.reds >= self.rules.reds and stand.check is not None:
                words = stand.check.error.message if stand.check.error is not None else ""
                failed = f"not achieved: its acceptance fails after {stand.reds} looks: {words}"
                return GiveUp(self._with_landed(failed, stand))
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
        others = {name: await self._survey(name) for name in self._others}
        ground = self._ground(view, notes, stand, seen, others)
        more: dict[str, Any] = {"commands": list(self._sources.gate)}
        given = {
            name: (found, {"commands": list(self._others[name].gate)})
            for name, found in others.items()
        }
        doc = await asyncio.to_thread(
            planner_document, view, epic, notes, ground, seen, more, given
        )
        notes.heard = len(view.recommendations)
        tried = [Tried(None, list(view.findings))] if view.findings else []
        hubs = {name: (self._others[name].hub, found) for name, found in others.items()}
        looker, notes.predicted = Looker(self._hub, seen, hubs), []
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
        self,
        view: PlannerView,
        notes: EpicNotes,
        stand: EpicProgress,
        seen: Survey,
        others: Mapping[str, Survey],
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
            others={
                name: GroundOf(
                    found.files,
                    found.map,
                    each.sharing,
                    each.protected,
                    each.paths,
                    each.has_program,
                )
                for name, found in others.items()
                for each in (self._others[name],)
            },
        )

    def _repositories(self) -> shaping.Repositories:
        """Return all repositories as they are now, for steps."""
        own = {"": PlannedRepository(self._hub.main(), self.rules.sharing, self._protected)}
        return own | {
            name: PlannedRepository(each.hub.main(), each.sharing, each.protected)
            for name, each in self._others.items()
        }

    def _with_landed(self, words: str, stand: EpicProgress) -> str:
        """Return the words with what has landed where, if the epic spans several repositories."""
        landed: dict[str, list[tuple[str, str]]] = {}
        for step in stand.tasks:
            rows = landed.setdefault(repository_of(step.planned), [])
            if step.status == "succeeded" and isinstance(step.data, dict):
                rows.append((step.id, str(step.data.get("commit", ""))))
        if not self._others or not any(landed.values()):
            return words
        return f"{words} {landed_words(landed)}"

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
                return GiveUp(self._with_landed(scrub(reply.reason), stand))
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
        places = self._repositories()
        places = {**places, "": places[""]._replace(main=seen.main)}
        for name in self._others:  # what the planner saw: later commits are changes of others
            places[name] = places[name]._replace(main=self._seen[name].main)
        steps = shaping.wave_steps(reply, stand, notes, places, epic.priority, self._tiers)
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

    async def _survey(self, name: str = "") -> Survey:
        """Return the survey of a repository at its main."""
        own = self._others[name] if name else None
        hub = own.hub if own is not None else self._hub
        place = own.cache if own is not None else self._sources.cache
        found = self._seen.get(name)
        if found is None or found.main != hub.main():
            cache = self._known.get(name) or FactsCache(place, reader())
            if name not in self._known:
                await asyncio.to_thread(cache.load)
                self._known[name] = cache
            found = self._seen[name] = await retry_planning(lambda: survey(hub, cache), TROUBLES)
        return found

    # --- people ---

    def _letter(self, over: list[Matter], notes: EpicNotes, stand: EpicProgress) -> Ask:
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
        text = self._with_landed(text, stand)
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
                words = f"{_who(said)} gave it up: {text or asked.text}"
                return GiveUp(self._with_landed(words, standing(view, notes)))
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
        places, told = self._repositories(), text or "A person wants it to be tried again."
        return [
            shaping.told_step(view.steps[name], f"A person says: {told}", notes, places, anew=True)
            for name in asked.tasks
        ]

    # --- the end ---

    @property
    def _hubs(self) -> dict[str, Hub]:
        return {"": self._hub} | {name: each.hub for name, each in self._others.items()}

    async def _close(
        self, epic: Epic, notes: EpicNotes, stand: EpicProgress, view: PlannerView
    ) -> Decision:
        """Take the next step to the end: the changelog entry, the acceptance, the result."""
        last, path = stand.check, self.rules.changelog
        if last is not None and last.status == "succeeded":
            result = await retry_planning(
                lambda: result_of(self._hubs, view, epic, notes, stand), TROUBLES
            )
            return Finish(result, "its acceptance holds")
        entries = [step for step in stand.tasks if step.id.startswith(f"{CHANGELOG}-")]
        if path and not entries and stand.landed:
            entry = shaping.changelog_step(path, entry_of(epic, notes), 1, self._hub.main())
            return Propose((entry,), because="an entry in the changelog")
        landed = dict.fromkeys(repository_of(step.planned) for step in stand.landed)
        step = shaping.check_step(epic.acceptance, stand, [name for name in landed if name])
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
    hubs: Mapping[str, Hub],
    view: PlannerView,
    epic: Epic,
    notes: EpicNotes,
    stand: EpicProgress,
) -> dict[str, Any]:
    """Return the result of the run. Its commits come from git, by their trailers."""
    own = [
        {"sha": commit.sha, "task": commit.trailers.get("Leadhand-Task", "")}
        | ({"repository": name} if name else {})
        for name, hub in hubs.items()
        for commit in await hub.commits()
        if commit.trailers.get("Leadhand-Run") == view.run
    ]
    tasks = len(stand.landed)
    check = stand.check
    words = (notes.done or {}).get("summary", "").strip()
    data = check.data if check is not None and isinstance(check.data, dict) else {}
    return {
        "achieved": True,
        "summary": words or f"{epic.title}: {tasks} tasks landed in {notes.waves} waves.",
        "changelog": entry_of(epic, notes),
        "commits": own[-COMMITS_TOLD:],
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
