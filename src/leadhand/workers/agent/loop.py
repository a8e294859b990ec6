"""One attempt of an agent: ask, call the tools, ask again, until it is done or at its bounds.

1. Only a whole answer counts. A stream that is cut raises before any of its calls is seen, so no
   tool runs on half an answer.
2. A tool is called when it exists, its arguments fit its schema, and nothing in them looks like a
   secret. Otherwise the model is told why not.
3. What tools give back is data: without secrets, between marks, cut to a length.
4. Calls of one answer run one after the other. The first ending that is valid ends the attempt;
   calls behind it are not made.
5. Every way out is bounded: turns, calls of tools in one answer and in all, tokens, money, time,
   one correction of the result, and the same call with the same result a third time. A call beyond
   these bounds is not made, and the model is told so.
6. What a failure leaves behind is said as it is: once a tool ran that may change something, the
   effect is "done", or "unknown" when that tool did not say how it ended; never "none" again.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.hashing import canonical, digest
from leadhand.core.report import Failure, Report
from leadhand.errors import WorkerFailure
from leadhand.models.messages import ModelRequest, Result, Turn, Usage, UserMessage
from leadhand.models.secret_patterns import finds, scrub, scrubbed
from leadhand.models.telemetry import span
from leadhand.ports import is_external_cancellation
from leadhand.workers.agent.prompt import attempt_prompt
from leadhand.workers.agent.tools import (
    ENDINGS,
    FINISH,
    NEEDS_INFO,
    ONLY_RESULT,
    as_text,
    marked,
    misfit,
    shortened,
)
from leadhand.workers.reports import EFFECTS, bounded_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.plan.model import Doc
    from leadhand.core.report import Effect
    from leadhand.models.client import Client
    from leadhand.models.messages import ModelAnswer, ToolCall
    from leadhand.ports import Context, Task
    from leadhand.workers.agent.prompt import Prompt
    from leadhand.workers.agent.tools import Tool, Toolbox


# The transcript of one attempt of an agent, for people to read.


PIECE_CHARS_MAX = 2_000
CHARS_MAX = 400_000


class AgentTranscript:
    """The lines of an attempt, bounded: a long one keeps its beginning and its end."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._chars = 0
        self._left_out = 0

    def turn(self, number: int, answer: ModelAnswer) -> None:
        """Add one answer of the model, with its tokens."""
        used = answer.usage
        cached = f" ({used.cache_read} cached)" if used.cache_read else ""
        cost = f", {answer.cost:.6f} spent" if answer.cost else ""
        tokens = f"{used.input} tokens in{cached}, {used.output} out"
        self.add(f"turn {number}: {answer.model}, {tokens}{cost}")
        if answer.text.strip():
            self.add(_indented(answer.text))

    def called(self, call: ToolCall, result: str) -> None:
        """Add a tool call, made or refused, and its result."""
        self.add(f"  {call.tool} {shortened(as_text(call.arguments), PIECE_CHARS_MAX)}")
        self.add(_indented(result, "    "))

    def add(self, line: str, *, always: bool = False) -> None:
        """Add one line."""
        if self._chars + len(line) > CHARS_MAX and not always:
            self._left_out += 1
            return
        self._chars += len(line)
        self._lines.append(line)

    def ended(self, how: str) -> str:
        """Return the whole text, with the reason of its end."""
        if self._left_out:
            self.add(f"[… {self._left_out} entries left out …]", always=True)
        self.add(how, always=True)
        return scrub("\n".join(self._lines)) + "\n"


def _indented(text: str, by: str = "  ") -> str:
    lines = shortened(text.strip(), PIECE_CHARS_MAX).splitlines()
    return "\n".join(by + line for line in lines)


SAME_CALLS_MAX = 3
"""A call that gave the same result so often leads nowhere."""
ANSWER_S = 300.0
"""How long one answer may take."""
QUIET_S = 0.2
"""Progress is told no more often than this."""
TAIL_CHARS = 120
TOKEN_CHARS_MOST = 6
"""More characters than a token mostly has: a question that is too long even so is not asked."""


class Bounds(NamedTuple):
    """How far one attempt may go."""

    turns: int = 20
    tokens: int = 200_000
    """Of all questions and answers together."""
    answer_tokens: int = 4096
    timeout_s: float | None = None
    budget: float | None = None
    answer_calls: int = 16
    """Calls of tools in one answer; those beyond are refused."""
    calls: int = 200
    """Calls of tools in the whole attempt."""


class AgentLoop:
    """The conversation of one attempt."""

    def __init__(
        self,
        client: Client,
        prompt: Prompt,
        tools: Toolbox,
        returns: Doc | None,
        bounds: Bounds,
    ) -> None:
        self._client, self._prompt, self._tools = client, prompt, tools
        self._returns, self._bounds = returns, bounds
        self.effect: Effect = "none"
        self.log = AgentTranscript()
        self._turns: list[Turn] = []
        self._used = Usage()
        self._corrected = False
        self._seen: Counter[str] = Counter()
        self._calls = 0

    async def run(self, task: Task, context: Context) -> Report:
        """Run the conversation to its end. Raise `ModelFailure` if the model cannot be called."""
        hide: Callable[[Any], Any] = getattr(context, "hide", _as_it_is)
        self._turns = [UserMessage(attempt_prompt(task, context, hide))]
        for number in range(1, self._bounds.turns + 1):
            answer = await self._ask(number, context)
            self.log.turn(number, answer)
            self._turns.append(answer.turn())
            report = await self._heard(answer, number, context, hide)
            if report is not None:
                return report
            used = self._used.input + self._used.output
            if used >= self._bounds.tokens:
                return self._too_much(f"it used {used:,} of {self._bounds.tokens:,} tokens")
            if used + self._said() // TOKEN_CHARS_MOST > self._bounds.tokens:
                words = f"what was said would pass {self._bounds.tokens:,} tokens if asked again"
                return self._too_much(words)
        return self._too_much(f"it was not done after {self._bounds.turns} turns")

    def _said(self) -> int:
        """Return a lower bound of the next question's length in characters."""
        return sum(len(turn.text) for turn in self._turns)

    async def _ask(self, number: int, context: Context) -> ModelAnswer:
        context.progress(f"turn {number}")
        left = self._bounds.tokens - self._used.input - self._used.output
        request = ModelRequest(
            system=self._prompt.text,
            turns=tuple(self._turns),
            tools=self._tools.shown,
            must_call=self._returns is not None,
            max_tokens=min(self._bounds.answer_tokens, max(1, left)),
            timeout_s=min(self._bounds.timeout_s or ANSWER_S, ANSWER_S),
        )
        heard = _Heard(number, context)
        answer = await self._client.ask(request, heard, prompt=self._prompt.digest)
        self._used += answer.usage
        return answer

    async def _heard(
        self, answer: ModelAnswer, number: int, context: Context, hide: Callable[[Any], Any]
    ) -> Report | None:
        """Act on an answer: return the report, or None if the conversation goes on."""
        if not answer.calls:
            if self._returns is None:
                return self._succeeded(answer.text, hide)
            wanted = "the task ends with a call of `finish`, and there was none"
            if report := self._wrong(wanted):
                return report
            self._turns.append(
                UserMessage(f"{wanted[0].upper()}{wanted[1:]}. Call one of the tools.")
            )
            return None
        room = min(self._bounds.answer_calls, self._bounds.calls - self._calls)
        for call in answer.calls:
            if call.tool in ENDINGS:
                found = self._ending(call, hide)
                if isinstance(found, Report):
                    self.log.called(call, found.error.message if found.error else "done")
                    return found
            elif room <= 0:
                self._refuse(call)
                continue
            else:
                room, self._calls = room - 1, self._calls + 1
                context.progress(f"turn {number}: {call.tool}")
                found = await self._call(call, context, hide)
            self.log.called(call, found)
            self._turns.append(Result(call.id, call.tool, found))
            said = digest(call.tool, canonical(call.arguments), found)
            self._seen[said] += 1
            if self._seen[said] >= SAME_CALLS_MAX:
                words = f"it called {call.tool} {SAME_CALLS_MAX} times with the same result"
                return self._too_much(words)
        return None

    def _refuse(self, call: ToolCall) -> None:
        """Tell the model that a call is not made, since there were too many."""
        bounds = self._bounds
        if self._calls >= bounds.calls:
            why = f"this task may make {bounds.calls} calls of tools. Finish with what you have."
        else:
            why = f"one answer may make {bounds.answer_calls} calls. Make it in your next answer."
        self.log.called(call, f"error: not called: {why}")
        self._turns.append(Result(call.id, call.tool, f"error: not called: {why}"))

    # Endings.

    def _ending(self, call: ToolCall, hide: Callable[[Any], Any]) -> Report | str:
        """Return the report that a closing tool stands for, or the mistake in the call."""
        shown = next(each for each in self._tools.shown if each.name == call.tool)
        arguments = call.arguments
        if call.tool == FINISH:
            if self._returns is None and isinstance(arguments, dict) and "result" in arguments:
                return self._succeeded(arguments["result"], hide)
            wrong = self._unfinished(arguments, shown.parameters)
            if not wrong:
                return self._succeeded(arguments["result"], hide)
            finding = f"the result does not have the form it was to have: {wrong}"
            return self._wrong(finding) or f"error: {finding}. Call `finish` again."
        if wrong := misfit(arguments, shown.parameters, "arguments"):
            return f"error: {wrong}"
        arguments = scrubbed(hide(arguments))
        if call.tool == NEEDS_INFO:
            return self._failed("needs_info", arguments["question"])
        parts = tuple(
            f"split off: {bounded_text(part)}" for part in arguments.get("parts", ())[:20]
        )
        return self._failed("too_complex", arguments["reason"], parts)

    def _unfinished(self, arguments: Any, parameters: Any) -> str:
        """Return the mistake in a call of `finish`, judged by the result's own schema."""
        if self._returns is None or not isinstance(arguments, dict) or "result" not in arguments:
            return misfit(arguments, parameters, "arguments")
        return misfit(arguments["result"], self._returns, "arguments.result") or misfit(
            {**arguments, "result": None}, ONLY_RESULT, "arguments"
        )

    def _succeeded(self, data: Any, hide: Callable[[Any], Any]) -> Report:
        return Report("succeeded", scrubbed(hide(data)))

    def _wrong(self, finding: str) -> Report | None:
        """Return the final report if the model was corrected before, else None."""
        if self._corrected:
            return self._failed("invalid_output", finding)
        self._corrected = True
        return None

    def _too_much(self, reason: str) -> Report:
        return self._failed("too_complex", reason)

    def _failed(self, kind: str, message: str, said: tuple[str, ...] = ()) -> Report:
        failure = Failure(kind, bounded_text(scrub(message)), self.effect)
        return Report("failed", error=failure, recommendations=said)

    # Tools.

    async def _call(self, call: ToolCall, context: Context, hide: Callable[[Any], Any]) -> str:
        """Return what the model is told about one call; make the call only if it is valid."""
        tool = self._tools.get(call.tool)
        if tool is None:
            return f"error: {self._tools.unknown(call.tool)}"
        if not isinstance(call.arguments, dict):
            return "error: the arguments are no JSON object; the tool was not called"
        if finds(call.arguments) or hide(call.arguments) != call.arguments:
            return "error: the arguments hold what looks like a secret; the tool was not called"
        if wrong := misfit(call.arguments, tool.parameters, "arguments"):
            return f"error: {wrong}; the tool was not called"
        with span(
            "execute_tool",
            call.tool,
            gen_ai__tool__name=call.tool,
            gen_ai__tool__call__id=call.id,
        ) as made:
            made.content("gen_ai.tool.call.arguments", call.arguments)
            text = await self._made(tool, call, context)
            shown = marked(call.tool, as_text(hide(text)))
            made.content("gen_ai.tool.call.result", shown)
        return shown

    async def _made(self, tool: Tool, call: ToolCall, context: Context) -> str:
        """Return the result or the failure of a call as text, and note its possible effects."""
        changes = tool.effects is None or bool(tool.effects)
        before = self.effect
        if changes:
            self.effect = "unknown"  # until it has said how it ended
        after: Effect = "done"
        try:
            text = as_text(await tool.call(call.arguments, context))
        except WorkerFailure as failure:
            after = failure.effect if failure.effect in EFFECTS else "unknown"  # type: ignore[assignment]
            text = f"error ({failure.failure_class}): {failure}"
        except BaseException as error:
            if is_external_cancellation(error):
                raise
            after = "unknown"
            text = f"error: {type(error).__name__}: {error}"
        if changes:
            self.effect = max(before, after, key=EFFECTS.index)
        return text


class _Heard:
    """Tells how an answer comes along, now and then."""

    def __init__(self, number: int, context: Context) -> None:
        self._number, self._context = number, context
        self._text, self._told = "", 0.0

    def __call__(self, piece: str) -> None:
        self._text = (self._text + piece)[-TAIL_CHARS:]
        now = time.monotonic()
        if now - self._told >= QUIET_S:
            self._told = now
            tail = " ".join(scrub(self._text).split())
            self._context.progress(f"turn {self._number}: {tail}")


def _as_it_is(value: Any) -> Any:
    return value
