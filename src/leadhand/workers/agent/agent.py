"""`Agent`: a language model with tools, as a worker.

    research = Agent(
        "research",
        model="hand",
        tools=[search, fetch],
        instructions="Find what was asked for; name your sources.",
        returns=Findings,
        gives="findings",
    )

What planners, policy and approvals see of it follows from its tools: its effects are all of
theirs, its risk is at least the highest of theirs, and its version is a digest of models, prompt,
instructions, tools and form of the result. So an approval of the agent is one of exactly these.
Its results are untrusted unless that is said otherwise: a model wrote them, from what it read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from leadhand.core import durations
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.model import RISKS
from leadhand.core.report import Failure, Report
from leadhand.errors import UsageError
from leadhand.models.failures import ModelFailure
from leadhand.models.meter import payer
from leadhand.models.names import STRONGER
from leadhand.models.registry import ModelRegistry
from leadhand.models.secret_patterns import scrub
from leadhand.models.telemetry import span
from leadhand.workers.agent.loop import AgentLoop, Bounds
from leadhand.workers.agent.prompt import Prompt
from leadhand.workers.agent.tools import Toolbox
from leadhand.workers.functions.decorator import NAME, Check
from leadhand.workers.functions.signature import schema_of
from leadhand.workers.reports import bounded_text, holds

if TYPE_CHECKING:
    from leadhand.models.client import Client
    from leadhand.models.messages import Model
    from leadhand.models.meter import ModelCall, Payer
    from leadhand.ports import Context, Task
    from leadhand.workers.processes.runner import Processes


# The budget of one attempt, within the run's budget.


ROUNDING = 1e-9


class AgentBudget:
    """The budget of one attempt: a limit of its own, paid from the run's budget."""

    def __init__(self, purse: Payer, limit: float) -> None:
        self._purse = purse
        self._limit = limit
        self._spent = 0.0
        """What was settled, and what calls in flight have set aside."""

    async def reserve(self, wanted: float, least: float) -> float:
        """Money for a call, from both."""
        if math.isinf(least):
            raise ModelFailure(
                "budget",
                "the agent has a budget, and the price of its model is not known. "
                "Fix: name the model under [models] with price_in and price_out.",
            )
        left = self._limit - self._spent + ROUNDING
        if left < least:
            raise ModelFailure(
                "budget",
                f"{max(0.0, left):.6f} is left of the agent's budget of {self._limit:g} for one "
                f"attempt, and the call may cost {least:.6f}",
            )
        reserved = await self._purse.reserve(min(wanted, left), least)
        self._spent += reserved
        return reserved

    def settle(self, reserved: float, call: ModelCall) -> None:
        """Return the reservation and count what the call cost."""
        self._spent += call.cost - reserved
        self._purse.settle(reserved, call)


Texts = str | Iterable[str]
MARGIN = 0.05
"""The part of its time that is kept for the report, so that the attempt itself says it is up."""


class AgentOptions(TypedDict, total=False):
    """Further options of an agent, with the same names as for `@worker`."""

    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its parameters; without it, it takes any."""
    needs: Texts
    gives: Texts
    drops: Texts
    risk: str
    effects: Texts
    """Beyond what its tools declare."""
    reads: Texts
    writes: Texts
    idempotent: bool
    """Whether doing it twice is the same as doing it once, with any of its tools."""
    est: float | str
    cost: float
    checks: Mapping[str, Check | str]
    check: Check | str
    max_concurrency: int
    trusted: bool
    prompt: str | Path
    """Instead of the house's own system message, which its instructions follow."""


class Agent:
    """A worker that is a language model with tools. It carries out one step at a time.

    - `name`: the name that plans use.
    - `model`: a tier, the name of a model, or a model.
    - `tools`: workers, functions, `CommandTool`s and MCP tools that the model may call.
    - `instructions`: a text, or a file that ends with .md or .txt.
    - `returns`: a type or JSON Schema that the result must fit.
    - `max_turns`: answers of the model in an attempt.
    - `max_tokens`, `max_calls`: the limits of a whole attempt for tokens and tool calls.
    - `answer_tokens`, `answer_calls`: the same for one answer; further calls are refused.
    - `budget`: dollars for an attempt, besides the run's budget; None: no limit of its own.
    - `timeout`: the time of an attempt, such as "5 minutes".
    - `options`: the keywords of `AgentOptions`, which mean the same as for `@worker`.
    """

    def __init__(  # noqa: PLR0913 - what an agent is
        self,
        name: str,
        model: str | Model | Client = "hand",
        *,
        tools: Iterable[Any] = (),
        instructions: str | Path = "",
        returns: Any = None,
        max_turns: int = 20,
        max_tokens: int = 200_000,
        answer_tokens: int = 4096,
        budget: float | None = None,
        timeout: float | str | None = None,
        answer_calls: int = 16,
        max_calls: int = 200,
        **options: Unpack[AgentOptions],
    ) -> None:
        """Create the agent. Raise `UsageError` for a malformed name or option."""
        self.name = name
        place = f"agent {name!r}"
        if not NAME.match(name):
            raise UsageError(f"{place}: is not a name; use letters, digits, _ . -")
        if unknown := sorted(set(options) - set(AgentOptions.__annotations__)):
            raise UsageError(f"{place}: there is no option {unknown[0]}=")
        self.model = model
        self.bounds = Bounds(
            _count(max_turns, f"{place}: max_turns"),
            _count(max_tokens, f"{place}: max_tokens"),
            _count(answer_tokens, f"{place}: answer_tokens"),
            None if timeout is None else _seconds(timeout, f"{place}: timeout"),
            None if budget is None else _money(budget, f"{place}: budget"),
            _count(answer_calls, f"{place}: answer_calls"),
            _count(max_calls, f"{place}: max_calls"),
        )
        self._returns, own = schema_of(returns, place)
        self._options = options
        self._tools = Toolbox(tools, self._returns, place)
        self._prompt = Prompt(options.get("prompt", ""), instructions, place)
        self._gives = _texts(options["gives"]) if "gives" in options else own
        self.fixed = False
        """Whether it stays with its own model even if a step names a tier."""
        self._stronger = ""
        self._book = ModelRegistry()
        if options.get("risk") not in (None, *RISKS):
            raise UsageError(f"{place}: risk: must be one of {', '.join(RISKS)}")

    @cached_property
    def spec(self) -> WorkerSpec:
        """Its description, made when first asked for."""
        options = self._options
        effects, more = self._tools.effects, _texts(options.get("effects", ()))
        offer = Offer(
            parameters=_plain(options.get("parameters")),
            returns=self._returns,
            checks=tuple(options.get("checks", ())),
            result_check="check" in options,
            risk=self._tools.risk(options.get("risk", "medium")),
            effects=None if effects is None else tuple(sorted({*effects, *more})),
            reads=_texts(options.get("reads", ())),
            writes=tuple(sorted({*_texts(options.get("writes", ())), *self._tools.writes})),
            idempotent=bool(options.get("idempotent")),
            timeout_s=self.bounds.timeout_s,
            est_s=durations.seconds(options["est"]) if "est" in options else None,
            cost=float(options.get("cost", 0.0)),
            needs=_texts(options.get("needs", ())),
            gives=self._gives,
            drops=_texts(options.get("drops", ())),
        )
        return WorkerSpec(
            name=self.name,
            kind="agent",
            version=self._version(),
            description=options.get("description") or _first_line(self._prompt.instructions),
            offers={"": offer},
            max_concurrency=options.get("max_concurrency"),
            trusted=bool(options.get("trusted")),
            stronger=self._stronger,
        )

    def _version(self) -> str:
        """Return a digest of everything that decides what the agent does; approvals bind it."""
        word = self.model if isinstance(self.model, str) else self.model.name
        models = {word: [word]}
        if word in self._book.tiers:
            models = {tier: list(names) for tier, names in self._book.tiers.items()}
        known = {
            name: str(self._book.models[name])
            for names in models.values()
            for name in names
            if name in self._book.models
        }
        parts = [word, models, known, self._prompt.text, self._returns, list(self.bounds)]
        return digest(canonical(parts), self._tools.version())[:16]

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the variables whose values must not get into the log.

        These are the variables of its tools, and of its models, whose servers could repeat them.
        """
        found = [name for tool in self._tools for name in getattr(tool, "secret_names", ())]
        with suppress(UsageError):
            found += self._book.key_variables(self.model)
        return tuple(found)

    @property
    def given_values(self) -> dict[str, str]:
        """Variables that its tools are given, with their values."""
        given: dict[str, str] = {}
        for tool in self._tools:
            given |= getattr(tool, "given_values", {})
        return given

    @property
    def is_priced(self) -> bool:
        """Return whether the prices of its models are known.

        A model that cannot be asked costs nothing.
        """
        try:
            return self._client("").is_priced
        except UsageError:
            return True

    def use_models(self, book: ModelRegistry) -> None:
        """Use the tiers and models of the registry `book`."""
        self._book = book
        self._stronger = "" if self._above() is None else f"{self.name}@{self._above()}"
        self.__dict__.pop("spec", None)

    def stronger(self) -> Agent | None:
        """Return the same agent with models of the next tier, or None if there is none."""
        tier = self._above()
        if tier is None:
            return None
        other = copy(self)
        other.name, other.model, other.fixed = self._stronger, tier, True
        other.use_models(self._book)
        return other

    def _above(self) -> str | None:
        tiers = self._book.tiers
        tier = STRONGER.get(self.model) if isinstance(self.model, str) else None
        known = tier in tiers and self.model in tiers
        return tier if known and tiers[str(tier)] != tiers[str(self.model)] else None

    def attach(self, processes: Processes) -> None:
        """Enable its tools to start programs with `processes`."""
        for tool in self._tools:
            attach = getattr(tool, "attach", None)
            if attach is not None:
                attach(processes)

    async def detach(self) -> None:
        """Close the connections that tools keep for the life of the host."""
        for tool in self._tools:
            detach = getattr(tool, "detach", None)
            if detach is not None:
                await detach()

    async def perform(self, task: Task, context: Context) -> Report:
        """Run one attempt: the conversation, and its report."""
        try:
            client = self._client(context.tier)
        except UsageError as problem:
            return Report.failed("unavailable", bounded_text(str(problem)))
        loop = AgentLoop(client, self._prompt, self._tools, self._returns, self.bounds)
        limit, budget = self.bounds.timeout_s, self.bounds.budget
        paying = payer.get()
        token = payer.set(paying if budget is None else AgentBudget(paying, budget))
        try:
            with span("invoke_agent", self.name, gen_ai__agent__name=self.name) as made:
                async with asyncio.timeout(limit and limit * (1 - MARGIN)) as clock:
                    report = await loop.run(task, context)
                if report.error is not None:
                    made.failed(report.error.failure_class)
        except TimeoutError:
            if not clock.expired():
                raise
            report = _failed("timeout", f"it was not done within {limit:g} s", loop)
        except ModelFailure as failure:
            report = _failed(failure.failure_class, str(failure), loop, failure.retry_after_s)
        except UsageError as problem:  # packages of its provider are missing
            report = _failed("unavailable", str(problem), loop)
        finally:
            payer.reset(token)
        error = report.error
        how = f"failed: {error.failure_class}: {error.message}" if error else "finished"
        return replace(report, output=loop.log.ended(how))

    def _client(self, wanted: str) -> Client:
        """Return the client to ask: of the tier that the step names, else its own."""
        if wanted and not self.fixed:
            return self._book.client(wanted)
        return self._book.client(self.model)

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Raise `LookupError`: the effects of an interrupted conversation are unknown."""
        raise LookupError(f"{self.name} has no probe")

    def check(self, name: str, action: str, data: Any) -> bool:
        """Return whether a named check holds for `data`, or the result check if `name` is empty."""
        checks = self._options.get("checks", {})
        return holds(checks.get(name) if name else self._options.get("check"), name, data)

    async def close(self) -> None:
        """Release the resources of its tools."""
        for tool in self._tools:
            close = getattr(tool, "close", None)
            if close is not None:
                await close()


def _failed(kind: str, message: str, loop: AgentLoop, retry_after_s: float | None = None) -> Report:
    failure = Failure(kind, bounded_text(scrub(message)), loop.effect, retry_after_s)
    return Report("failed", error=failure)


def _texts(value: Texts) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _plain(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if schema is None else {"properties": {}, **schema}


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{what}: must be a whole number from 1")
    return value


def _money(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise UsageError(f"{what}: must be a number above 0")
    return float(value)


def _seconds(value: float | str, what: str) -> float:
    try:
        found = durations.seconds(value)
        if short := durations.too_short(found):
            raise ValueError(short)
    except ValueError as problem:
        raise UsageError(f"{what}: {problem}") from None
    return found
