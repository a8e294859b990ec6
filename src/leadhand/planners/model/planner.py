"""The model planner: ask, rehearse, send back the first thing that is wrong, hand over.

    Lead(workers=[...], planner="anthropic:claude-opus-4-5")
    ModelPlanner("lead", style="next_step", rounds=3)

    state ─► prompt ─► model ─► decision ─► lint, rehearsal, memory ─► proposal
                         ▲                          │ wrong
                         └──── the first unmet need ┘  (at most 3 rounds, never the same twice)

A model is never believed: a step it proposes must exist, fit its worker, and have what it needs
when it starts; a plan that calls itself final must give what is wanted; what failed for good is
not proposed again. What is wrong goes back in one sentence, which is what makes capable models
good and weak ones give up soon. After the last round the planner gives up, which makes `Hybrid`
hand over to the goal planner, or asks a person where nobody else can plan.

The model is told summaries within a budget of tokens, may look at whole results, and in the end
puts them together into the result, which the engine checks against the acceptance criteria.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import msgspec

from leadhand.codec.values import plain
from leadhand.core.hashing import canonical, digest
from leadhand.core.policy import MODEL_BUDGET, MODEL_CALLS
from leadhand.core.report import Ask, Finish, GiveUp, Propose, Wait, decision_doc
from leadhand.core.wording import listed
from leadhand.errors import UsageError
from leadhand.models.call_record import report_refusal
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import AssistantMessage, ModelRequest, UserMessage
from leadhand.models.registry import ModelRegistry
from leadhand.models.secret_patterns import finds, scrub, scrubbed
from leadhand.models.telemetry import span
from leadhand.planners.goal.operators import OperatorCache
from leadhand.planners.goal.world import fold
from leadhand.planners.model import answers, prompt
from leadhand.planners.model import answers as numbered_list
from leadhand.planners.model.prompt import Prompts
from leadhand.planners.progress import IDLE, Idle, Progress, is_met, over, warning
from leadhand.planners.proposal_check import (
    ends_short,
    first_wrong,
    forbidden_change,
    not_true,
    repeats,
    repeats_effect,
    too_dear,
    undroppable,
)

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import Decision, PlannerView
    from leadhand.models.client import Client
    from leadhand.models.messages import Model, ModelAnswer, Turn
    from leadhand.planners.goal.world import World

STYLES = ("whole", "next_step", "list")
ROUNDS = 3
LOOKS_MAX = 3
BACKOFF_S = (1.0, 4.0)
WAIT_MAX_S = 30.0
PASSING = frozenset({"rate_limited", "transient", "timeout"})
TOKENS = 12_000
"""About how much the model is told."""
ANSWER_TOKENS = 4096
NOTES_CHARS_MAX = 4000
TIMEOUT_MAX_S = 1e6
MONEY_MAX = 1e12

CARRIES = (
    "a step carries what looks like a secret; name the parameter that holds it, as in "
    "${{ params.NAME }}"
)

EMPTY = '"propose" comes without steps, and nothing is under way that could be waited for'
MET = "everything that is wanted is true; further revisions are not part of the goal"
NOTHING_PENDING = (
    "it waits, and nothing is under way, tried again or asked; propose, finish, ask or give up"
)
NOTHING_DONE = (
    "nothing was done and nothing can be checked; a result is put together from what workers did"
)

STYLE = {
    "whole": "Propose the whole plan as far as you can see it: all steps with their dependencies. "
    "You are asked again when something surprising happens and when all of it is done.",
    "next_step": "Propose only the next step, or the next ones that can start right now. You are "
    "asked again after every report. Say in `outlook` what you expect to follow.",
    "list": "",
}


class ModelNotes(msgspec.Struct, omit_defaults=True):
    """The notes kept from one decision to the next."""

    asked: int = 0
    """How many proposals the model made."""
    accepted: int = 0
    said: str = ""
    """The model's notes to itself."""
    idle: Idle = msgspec.field(default_factory=Idle)
    """Its revisions that brought the goal no nearer."""


class ModelPlanner:
    """A planner that asks a language model.

    - `model`: a tier, the name of a model, or a model.
    - `style`: "whole" asks for the whole plan, "next_step" for the next steps after every report,
      "list" for a numbered list.
    - `prompts`: a folder of Markdown files that replace built-in prompts of the same name.
    - `rounds`: how often a proposal with findings is sent back to the model.
    - `tokens`, `max_tokens`: the approximate size of a request, and the limit of an answer.
    - `timeout_s`, `temperature`: passed to the model with each call.
    - `book`: the registry of models and tiers.
    - `asks`: whether a person is asked when the rounds are over; else it gives up.
    - `idle`: how much revisions without progress may count before the model is told; at twice as
      much it is no longer asked (`leadhand.planners.progress`).
    - `budget`, `calls`: the dollars a run may spend and how often the model is asked, if neither
      the run's policy nor its goal says; None: no limit.
    """

    name = "model"
    replans = True
    splits = True

    def __init__(  # noqa: PLR0913 - each with a default
        self,
        model: str | Model | Client = "lead",
        *,
        style: str = "whole",
        prompts: str | Path | None = None,
        rounds: int = ROUNDS,
        tokens: int = TOKENS,
        max_tokens: int = ANSWER_TOKENS,
        timeout_s: float = 180.0,
        temperature: float | None = None,
        book: ModelRegistry | None = None,
        asks: bool = True,
        idle: int = IDLE,
        budget: float | None = MODEL_BUDGET,
        calls: int = MODEL_CALLS,
    ) -> None:
        """Create the planner. Raise `UsageError` for a malformed option."""
        if style not in STYLES:
            raise UsageError(f"style is one of {', '.join(STYLES)}, not {style!r}")
        for name, value in {
            "rounds": rounds,
            "tokens": tokens,
            "max_tokens": max_tokens,
            "idle": idle,
            "calls": calls,
        }.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is a whole number from 1, not {value!r}")
        if not isinstance(timeout_s, int | float) or not 0 < timeout_s < TIMEOUT_MAX_S:
            raise UsageError(f"timeout_s is a number above 0, not {timeout_s!r}")
        self.model, self.style, self.rounds, self.tokens = model, style, rounds, tokens
        self._limits: dict[str, Any] = {
            "max_tokens": max_tokens,
            "timeout_s": timeout_s,
            "temperature": temperature,
        }
        self.prompts = Prompts(prompts)
        if budget is not None and not (isinstance(budget, int | float) and 0 < budget < MONEY_MAX):
            raise UsageError(f"budget is a number above 0, or None, not {budget!r}")
        self.asks, self.idle, self.calls, self._budget = asks, idle, calls, budget
        self.source = model if isinstance(model, str) else ""
        """Where it can be loaded from again: its name."""
        self.consult = "every_report" if style == "next_step" else "on_surprise"
        self._client = (book or ModelRegistry()).client(model)
        self._operators = OperatorCache()
        self._progress = Progress(idle)

    @property
    def budget(self) -> float | None:
        """Return the default budget of a run; None if a price is unknown."""
        return self._budget if self._client.is_priced else None

    def asking(self) -> Self:
        """Return the same planner, which asks a person instead of giving up."""
        made = copy(self)
        made.asks = True
        return made

    async def decide(self, view: PlannerView) -> Decision:
        """Return the model's decision on `view`, or why it gave no usable answer."""
        kept = _read(view.notes)
        self._progress.look(kept.idle, view, self._operators.of(view.catalog))
        if self._progress.is_over(kept.idle):
            done = is_met(view, fold(view)) and not any(
                step.status == "failed" for step in view.timeline
            )
            decision = Finish(because=MET) if done else self._over(over(kept.idle), kept)
            kept.idle.count = self.idle  # After an answer it is told, and has as many again.
            return replace(decision, notes=msgspec.to_builtins(kept))
        style = self._style(view)
        parts = prompt.state_parts(view, self.tokens, lists=style == "list")
        parts["style"] = STYLE[style] or self.prompts.fill("list")
        if kept.said:
            parts["now"] += f"\nYour notes: {kept.said}"
        if self._progress.is_told(kept.idle):
            world, operators = fold(view), self._operators.of(view.catalog)
            told = warning(kept.idle, self.idle, view, world, operators)
            parts["now"] += f"\nMind: {told}"
        turns: list[Turn] = [self.prompts.question(parts)]
        with span("plan", "planner", gen_ai__agent__name="planner", leadhand__run=view.run):
            decision = await self._rounds(view, kept, turns, style)
        if isinstance(decision, Propose):
            self._progress.revised(kept.idle, decision_doc(decision)["steps"], view)
        return replace(decision, notes=msgspec.to_builtins(kept))

    def _style(self, view: PlannerView) -> str:
        mode = view.goal.mode
        return mode if mode in ("whole", "next_step") and self.style != "list" else self.style

    async def _rounds(
        self, view: PlannerView, kept: ModelNotes, turns: list[Turn], style: str
    ) -> Decision:
        world, seen, looks, problem = fold(view), set[str](), 0, ""
        round_ = 0
        while round_ < self.rounds:
            said, found = await self._answer(turns, view, world, style)
            if isinstance(found, tuple) and isinstance(found[0], answers.LookRequest):
                looks += 1
                if looks <= LOOKS_MAX:
                    data = prompt.whole(view, found[0].steps, self.tokens)
                    turns += [said, UserMessage(f"{data}\n\nNow decide.")]
                    continue
                found = f"you have looked {LOOKS_MAX} times; decide now"
            round_ += 1
            kept.asked += 1
            if isinstance(found, str):
                problem = found
                report_refusal(problem, said.text)
                if style == "list" and said.text in seen:
                    return self._over(f"it proposes again what was refused ({problem})", kept)
                seen.add(said.text)
            else:
                decision, notes = found
                assert not isinstance(decision, answers.LookRequest)
                kept.said = scrub(notes)[:NOTES_CHARS_MAX] or kept.said
                mark = _mark(decision)
                again = bool(mark) and mark in seen
                seen.add(mark)
                decision = self._final(decision, view, style)
                if _says_nothing(decision) and _pending(view, world):
                    decision = Wait(decision.because)  # type: ignore[union-attr]  # a proposal
                problem = self._wrong(decision, view, world)
                if not problem:
                    kept.accepted += 1
                    if isinstance(decision, GiveUp) and self.asks:
                        return self._over(f"it gives up: {decision.reason}", kept)
                    return _without_secrets(decision)
                report_refusal(problem, said.text)
                if again:
                    return self._over(f"it proposes again what was refused ({problem})", kept)
            facts = listed(sorted(world.facts), 60) or "nothing"
            wrong = self.prompts.fill("wrong", {"problem": scrub(problem), "facts": facts})
            turns += [said, UserMessage(wrong)]
        return self._over(f"{self.rounds} rounds brought nothing usable; the last: {problem}", kept)

    async def _answer(
        self, turns: list[Turn], view: PlannerView, world: World, style: str
    ) -> tuple[AssistantMessage, tuple[Decision | answers.LookRequest, str] | str]:
        """Return the model's message, and its decision or the mistake in it."""
        try:
            answer = await self._ask(turns, None if style == "list" else answers.schema_for(view))
        except ModelFailure as failure:
            if failure.failure_class != "invalid_output":
                raise
            said = AssistantMessage(failure.text or "(nothing that could be read)")
            return said, self._listed(failure.text, view, world) or str(failure)
        said = AssistantMessage(answer.text or msgspec.json.encode(answer.data).decode())
        if style == "list":
            return said, self._listed(answer.text, view, world) or "that is no numbered list"
        try:
            return said, answers.read(answer.data, view.catalog.workers)
        except answers.MisreadAnswer as problem:
            return said, str(problem)

    def _listed(
        self, text: str, view: PlannerView, world: World
    ) -> tuple[Decision, str] | str | None:
        """Return the plan in a numbered list, the mistake in it, or None if it is no list."""
        try:
            plan = numbered_list.read_numbered_list(
                text, view, self._operators.of(view.catalog), world
            )
        except answers.MisreadAnswer as problem:
            return str(problem)
        return None if plan is None else (plan, "")

    async def _ask(self, turns: list[Turn], schema: Doc | None) -> ModelAnswer:
        """Return one answer of this schema, None for a numbered list.

        If the provider is at fault, ask again a little later.
        """
        request = ModelRequest(
            system=self.prompts.fill("system_list" if schema is None else "system"),
            turns=tuple(turns),
            schema=schema,
            **self._limits,
        )
        for wait in (*BACKOFF_S, None):
            try:
                return await self._client.ask(request, prompt=self.prompts.digest)
            except ModelFailure as failure:
                asked = failure.retry_after_s or 0.0
                if failure.failure_class not in PASSING or wait is None or asked > WAIT_MAX_S:
                    raise
                await asyncio.sleep(max(wait, asked))
        raise AssertionError("the last try returns or raises")

    def _final(self, decision: Decision, view: PlannerView, style: str) -> Decision:
        """Mark a first plan of one step as final: nothing is planned beyond it (mode auto)."""
        if not isinstance(decision, Propose) or view.timeline or style != "whole":
            return decision
        alone = len(decision.steps) == 1 and not decision.outlook
        return replace(decision, final=True) if alone and view.goal.mode == "auto" else decision

    def _wrong(self, decision: Decision, view: PlannerView, world: World) -> str:
        """Return the first mistake of a decision as text; empty if it can be accepted."""
        match decision:
            case Propose():
                doc: Doc = plain(decision_doc(decision), place="decision")
                steps = doc["steps"]
                return (
                    _says_nothing(decision)
                    or (CARRIES if finds(steps) else "")
                    or first_wrong(steps, view, world)
                    or forbidden_change(steps, decision.cancel, view)
                    or undroppable(decision.drop, view)
                    or repeats(steps, view)
                    or repeats_effect(steps, view)
                    or too_dear(steps, view)
                    or (ends_short(steps, view, world) if decision.final else "")
                )
            case Finish():
                missing = [fact for fact in view.goal.want if fact not in world.facts]
                if missing:
                    return f"it is not done: {not_true(missing)}"
                return undroppable(decision.drop, view) or (
                    "" if _can_be_checked(view) else NOTHING_DONE
                )
            case Wait() if not _pending(view, world):
                return NOTHING_PENDING
            case _:
                return ""

    def _over(self, why: str, kept: ModelNotes) -> Decision:
        usable = f"{kept.accepted} of {kept.asked} proposals were usable"
        told = f"{self._client.name}: {scrub(why)} ({usable})"
        if not self.asks:
            return GiveUp(told)
        return Ask(f"The model cannot plan this: {told}. What should it know?")


def _says_nothing(decision: Decision) -> str:
    """Return why a proposal changes nothing; empty if it does, or if it is no proposal."""
    if not isinstance(decision, Propose):
        return ""
    says = decision.steps or decision.cancel or decision.drop or decision.final
    return "" if says else EMPTY


def _pending(view: PlannerView, world: World) -> bool:
    """Return whether anything is under way, by itself or by a person, that can be waited for."""
    return bool(view.in_flight or view.retries or view.questions or world.under_way)


def _can_be_checked(view: PlannerView) -> bool:
    """Return whether more than a model's claim backs a result: a criterion, or a step's effect."""
    return bool(view.goal.want or view.goal.acceptance or view.results or view.answers)


def _without_secrets(decision: Decision) -> Decision:
    """Remove secrets from a decision's texts; steps that carry a secret are refused instead."""
    match decision:
        case Finish():
            told = {"result": scrubbed(decision.result), "because": scrub(decision.because)}
        case Ask():
            told = {
                "question": scrub(decision.question),
                "choices": tuple(map(scrub, decision.choices)),
            }
        case GiveUp():
            told = {"reason": scrub(decision.reason)}
        case Wait():
            told = {"because": scrub(decision.because)}
        case Propose():
            told = {
                "because": scrub(decision.because),
                "outlook": tuple(scrubbed(list(decision.outlook))),
            }
        case _:
            told = {}
    return replace(decision, **told)


def _mark(decision: Decision) -> str:
    """Return a digest of a proposal without its reasons; empty for other decisions."""
    if not isinstance(decision, Propose) or _says_nothing(decision):
        return ""
    doc: Any = decision_doc(decision)
    steps = [{k: v for k, v in step.items() if k != "because"} for step in doc["steps"]]
    return digest(canonical(plain(steps, place="decision")))


def _read(notes: Json) -> ModelNotes:
    try:
        return msgspec.convert(notes or {}, ModelNotes)
    except msgspec.ValidationError:
        return ModelNotes()
