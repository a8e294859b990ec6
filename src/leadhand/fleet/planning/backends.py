"""Backends of the epic planner: a Python function, a command, or a model; none can write.

    def next_wave(told): return {"kind": "wave", "because": "...", "tasks": [...]}
    ("python", "plan.py")           gets the document on stdin, prints its answer
    "lead", "anthropic:…"           a tier or a model of the configuration

A function is the user's own code in our process. A command runs in the sandbox, in an empty folder
that is thrown away: it sees what it is told, and can change nothing else. A model answers; it has
no tools at all.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from leadhand.core.hashing import digest
from leadhand.errors import LeadhandError, UsageError
from leadhand.fleet.budget import DailyBudget
from leadhand.fleet.planning.prompt import looked, question
from leadhand.fleet.planning.reply import schema_for
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import AssistantMessage, ModelRequest, UserMessage
from leadhand.models.meter import payer
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.models.client import Client
    from leadhand.models.messages import Model, Turn
    from leadhand.models.meter import ModelCall, Payer
    from leadhand.models.registry import ModelRegistry
    from leadhand.workers.processes.runner import Processes
    from leadhand.workers.sandbox.sandbox import Sandbox


# Retries of passing trouble, with growing pauses and a limit.
#
# A provider that is down, a disk that is full, a git that was killed: none of these says anything
# about the epic, and a person who is asked could only wait as well.


PAUSES_S = (1.0, 4.0, 15.0, 60.0, 120.0, 240.0, 300.0, 300.0, 300.0)
PATIENCE_S = 1800.0
"""In all, with the tries themselves."""

T = TypeVar("T")


class RetryPatience:
    """For one thing that is tried again."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._pauses = iter(PAUSES_S)

    async def pause(self, asked: float | None = None) -> bool:
        """Wait, and no less than was asked for; false: it was waited long enough."""
        pause = next(self._pauses, None)
        if pause is None:
            return False
        pause = max(pause, asked or 0.0)
        if time.monotonic() - self._begun + pause > PATIENCE_S:
            return False
        await asyncio.sleep(pause)
        return True


async def retry_planning(
    call: Callable[[], Awaitable[T]], troubles: tuple[type[Exception], ...]
) -> T:
    """Return the result of `call`, repeated while it ends with one of these troubles."""
    patience = RetryPatience()
    while True:
        try:
            return await call()
        except troubles:
            if not await patience.pause():
                raise


Doc = dict[str, Any]
COMMAND_S = 600.0
GRACE_S = 2.0
ANSWER_BYTES_MAX = 1 << 20
ANSWER_TOKENS = 8192
MODEL_S = 300.0
PASSING = frozenset({"rate_limited", "transient", "timeout"})


class BackendFailed(LeadhandError):
    """The script or the model could not be asked, or gave no answer."""


class Tried(NamedTuple):
    """An answer that was sent back, and why; or a look, and what was found."""

    answer: Any
    findings: list[str]
    found: list[Doc] | None = None


class Backend(Protocol):
    """The backend of a planner: a function, a command or a model."""

    name: str

    async def answer(self, told: Doc, tried: Sequence[Tried]) -> Any:
        """Return the next answer, as JSON-like data. Raise `BackendFailed` if there is none."""


class FunctionBackend:
    """A function from the document to an answer; a plain one runs in a thread."""

    def __init__(self, function: Callable[[Doc], Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function

    async def answer(self, told: Doc, tried: Sequence[Tried]) -> Any:
        """Call it with a copy of its own."""
        given = json.loads(json.dumps(_with(told, tried)))
        if inspect.iscoroutinefunction(self._function):
            return await self._called(self._function(given))
        return await self._called(asyncio.to_thread(self._function, given))

    async def _called(self, call: Awaitable[Any]) -> Any:
        clock = asyncio.timeout(COMMAND_S)
        try:
            async with clock:
                return await call
        except Exception as error:
            if clock.expired():
                raise BackendFailed(f"{self.name} gave no answer within {COMMAND_S:g} s") from None
            raise BackendFailed(f"{self.name} failed: {type(error).__name__}: {error}") from error


class CommandBackend:
    """A program that reads the document and prints an answer."""

    def __init__(
        self, argv: Sequence[str], processes: Processes, sandbox: Sandbox, *, network: bool = False
    ) -> None:
        if not argv:
            raise UsageError("a planner that is a command needs a program")
        self.name = Path(argv[0]).name
        self._argv, self._processes, self._sandbox = tuple(argv), processes, sandbox
        self._network = network
        own = [Path(word) for word in argv if word.startswith("/")]
        self._own = [path for path in own if path.is_file()]

    async def answer(self, told: Doc, tried: Sequence[Tried]) -> Any:
        """Run it once."""
        data = json.dumps(_with(told, tried)).encode()
        try:
            with tempfile.TemporaryDirectory(prefix="leadhand-plan-") as place:
                folder = Path(place) / "work"
                folder.mkdir()
                done = await self._run(data, folder, Path(place) / "home")
        except (LeadhandError, OSError) as error:
            raise BackendFailed(f"{self.name} could not be run: {error}") from error
        if done.exit_code != 0:
            said = done.stderr.data[-2000:].decode("utf-8", "backslashreplace")
            how = f"code {done.exit_code}" if done.signal is None else f"signal {done.signal}"
            raise BackendFailed(f"{self.name} ended with {how}: {scrub(said.strip())}")
        if done.stdout.truncated:
            raise BackendFailed(f"{self.name} printed more than {ANSWER_BYTES_MAX:,} bytes")
        try:
            return json.loads(done.stdout.data)
        except ValueError as error:
            raise BackendFailed(f"{self.name} printed no JSON: {error}") from None

    async def _run(self, data: bytes, folder: Path, home: Path) -> Any:
        wrapped = self._sandbox.wrap(
            self._argv, folder, home=home, network=self._network, readable=self._own
        )
        process = await self._processes.spawn(
            wrapped.argv,
            cwd=wrapped.cwd,
            env=wrapped.env,
            stdin=data,
            stdout_limit=ANSWER_BYTES_MAX,
        )
        try:
            async with asyncio.timeout(COMMAND_S):
                return await process.wait()
        except TimeoutError:
            await process.end(GRACE_S)
            raise BackendFailed(f"no answer within {COMMAND_S:g} s") from None
        except asyncio.CancelledError:
            await asyncio.shield(process.end(0))
            raise


class _Counted:
    """Reports the cost of each call, whatever its outcome, and charges it to another payer."""

    def __init__(self, behind: Payer, paid: Callable[[float], None]) -> None:
        self._behind, self._paid = behind, paid

    async def reserve(self, wanted: float, least: float) -> float:
        return await self._behind.reserve(wanted, least)

    def settle(self, reserved: float, call: ModelCall) -> None:
        self._behind.settle(reserved, call)
        if call.cost:
            self._paid(call.cost)


class ModelBackend:
    """A language model; mistakes are sent back in the same conversation."""

    def __init__(
        self,
        client: Client,
        paid: Callable[[float], None] = lambda _cost: None,
        purse: DailyBudget | None = None,
    ) -> None:
        """`paid` is told what each call cost; `purse` is asked before each."""
        self.name = client.name
        self._client, self._paid, self._purse = client, paid, purse or DailyBudget()
        place = files("leadhand.fleet.planning").joinpath("prompts", "system.md")
        self._system = place.read_text(encoding="utf-8")
        self._digest = digest(self._system.encode())[:16]

    async def answer(self, told: Doc, tried: Sequence[Tried]) -> Any:
        """Ask, when money may be spent; a provider that is at fault is waited for."""
        turns: list[Turn] = [question(told)]
        for each in tried:
            turns.append(AssistantMessage(json.dumps(each.answer)))
            if each.found is not None:
                turns.append(UserMessage(looked(each.found)))
                continue
            wrong = "\n".join(f"- {finding}" for finding in each.findings)
            turns.append(UserMessage(f"That cannot be used:\n{scrub(wrong)}\nAnswer again, whole."))
        request = ModelRequest(
            system=self._system,
            turns=tuple(turns),
            schema=schema_for(told),
            max_tokens=ANSWER_TOKENS,
            timeout_s=MODEL_S,
        )
        await self._purse.open()  # what is waited for money is no trouble of the provider
        patience = RetryPatience()
        while True:
            try:
                return await self._asked(request)
            except ModelFailure as failure:
                if failure.failure_class == "invalid_output":
                    return failure.text or "(nothing that could be read)"
                passing = failure.failure_class in PASSING
                if not passing or not await patience.pause(failure.retry_after_s):
                    raise BackendFailed(f"{self.name}: {failure}") from failure

    async def _asked(self, request: ModelRequest) -> Any:
        await self._purse.open()
        paying = payer.set(_Counted(payer.get(), self._paid))
        try:
            return (await self._client.ask(request, prompt=self._digest)).data
        finally:
            payer.reset(paying)


Given = Backend | Callable[[Doc], Any] | Sequence[str] | str


def backend_of(
    given: Given | Model,
    book: ModelRegistry,
    processes: Processes,
    sandbox: Sandbox,
    *,
    network: bool = False,
    paid: Callable[[float], None] = lambda _cost: None,
    purse: DailyBudget | None = None,
) -> Backend:
    """Return the backend that `given` names; `paid` is called with the cost of a model's answers.

    A model is not asked while `purse` holds back.
    """
    if isinstance(given, str):
        if not book.knows(given):
            raise UsageError(
                f"{given!r} is no planner of epics: name a model or a tier, or give a command as a "
                "list, or a function"
            )
        return ModelBackend(book.client(given), paid, purse)
    if hasattr(given, "answer"):
        return given  # type: ignore[return-value]
    if hasattr(given, "ask"):
        return ModelBackend(book.client(given), paid, purse)  # type: ignore[arg-type]
    if callable(given):
        return FunctionBackend(given)
    return CommandBackend(given, processes, sandbox, network=network)


def _with(told: Doc, tried: Sequence[Tried]) -> Doc:
    """Return the document for a script, with the mistakes of its last answer."""
    last = tried[-1] if tried else None
    return {
        **told,
        "round": len(tried) + 1,
        "findings": last.findings if last else [],
        "last": last.answer if last else None,
        "looked": [found for each in tried for found in each.found or ()],
    }
