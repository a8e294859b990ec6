"""A model that answers from a script: no network, no package of a provider.

    model = ScriptedModel([
        {"kind": "finish", "because": "it is there", "result": 42},   # data
        "some text",
        Calls(("search", {"query": "coffee"})),                       # tools to call
        ModelFailure("rate_limited", "too many calls", retry_after_s=2),
    ])
    Lead(workers=[...], planner=ModelPlanner(model))

Each question takes the next answer; a function is asked with the request instead. `requests`
holds what was asked. When the script is over, every further question is a failure.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.models.failures import ModelFailure
from leadhand.models.messages import ModelAnswer, ModelRequest, ToolCall, Usage
from leadhand.models.names import ModelName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leadhand.models.messages import Listener


class Calls(tuple[tuple[str, Any], ...]):
    """Tools that the model wants to be called, each with its arguments."""

    __slots__ = ()

    def __new__(cls, *calls: tuple[str, Any]) -> Calls:  # noqa: PYI034 - not for subclasses
        return super().__new__(cls, calls)


class Price(NamedTuple):
    """Dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0


class ScriptedModel:
    """A model that answers in the order of a script.

    `script` is a list of answers or a function of the request; `name` is the model's name, `price`
    its price per million tokens, and `usage` the tokens that each call reports.
    """

    def __init__(
        self,
        script: Iterable[Any] | Callable[[ModelRequest], Any],
        *,
        name: str = "scripted",
        price: Price | None = None,
        usage: Usage = Usage(100, 50),  # noqa: B008 - frozen
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._next = script if callable(script) else _in_order(script)
        self._usage = usage
        if price is not None:
            self.known = ModelName("chat", name, "scripted", "", price.input, price.output)

    async def ask(self, request: ModelRequest, heard: Listener | None = None) -> ModelAnswer:
        """Return the next answer of the script to `request`; `heard` gets its text as a stream."""
        self.requests.append(request)
        reply = self._next(request)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, BaseException):
            raise reply
        answer = self._answer(reply, request)
        if heard is not None and answer.text:
            heard(answer.text)
        return answer

    def _answer(self, reply: Any, request: ModelRequest) -> ModelAnswer:
        if isinstance(reply, ModelAnswer):
            return reply
        if isinstance(reply, Calls):
            turn = len(self.requests)
            calls = tuple(ToolCall(f"{turn}.{i}", *each) for i, each in enumerate(reply, 1))
            return ModelAnswer(calls=calls, usage=self._usage)
        if request.schema is not None:
            if isinstance(reply, str):
                words = f"{self.name}: the answer is no JSON"
                raise ModelFailure("invalid_output", words, usage=self._usage, text=reply)
            text = msgspec.json.encode(reply).decode()
            return ModelAnswer(text=text, data=reply, usage=self._usage)
        text = reply if isinstance(reply, str) else msgspec.json.encode(reply).decode()
        return ModelAnswer(text=text, usage=self._usage)


def _in_order(script: Iterable[Any]) -> Callable[[ModelRequest], Any]:
    replies = iter(script)

    def following(_request: ModelRequest) -> Any:
        over = ModelFailure("permanent", "the script has no answer left")
        return next(replies, over)

    return following
