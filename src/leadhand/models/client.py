"""A model as planners and agents use it: metered, recorded, with others to fall back on.

    client = models.client("hand")
    answer = await client.ask(request, heard)

Each try of each model is one call: reserved, made, settled, recorded. If the model itself is the
problem (down, overloaded, out of quota, key refused) the next model of its tier is asked; if the
request or the answer is, no other is. The last failure is raised.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from msgspec.structs import astuple, replace

from leadhand.models import prices
from leadhand.models.call_record import answer_digest, contents
from leadhand.models.failures import ELSEWHERE, ModelFailure
from leadhand.models.messages import Usage
from leadhand.models.meter import ModelCall, payer
from leadhand.models.recordings import current, key_of
from leadhand.models.telemetry import chatting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.models.messages import Listener, Model, ModelAnswer, ModelRequest
    from leadhand.models.names import ModelName

ANSWER_TOKENS_MIN = 64
"""A call that can pay for fewer tokens of an answer is not made."""
TOKENS_MAX = 10**12


class Client:
    """One tier: models in the order in which they are asked."""

    def __init__(self, models: Sequence[Model], tier: str = "") -> None:
        assert models, "a client needs a model"
        self.models = tuple(models)
        self.tier = tier

    @property
    def name(self) -> str:
        """Return the name of the first model, which stands for all of them."""
        return self.models[0].name

    @property
    def is_priced(self) -> bool:
        """Return whether the price of each model is known; without prices no budget can be kept.

        With a recording the answer is always False, so that requests are the same whether or not
        prices are installed.
        """
        if current() is not None:
            return False
        names = [getattr(model, "known", None) for model in self.models]
        return all(name is None or prices.has_price(name) for name in names)

    async def ask(
        self, request: ModelRequest, heard: Listener | None = None, *, prompt: str = ""
    ) -> ModelAnswer:
        """Ask the models in order and return the first answer; `prompt`: its template's digest.

        Raise the `ModelFailure` of the last model if none of them answers.
        """
        for model in self.models[:-1]:
            try:
                return await self._ask(model, request, heard, prompt)
            except ModelFailure as failure:
                if failure.failure_class not in ELSEWHERE:
                    raise
        return await self._ask(self.models[-1], request, heard, prompt)

    async def _ask(
        self, model: Model, request: ModelRequest, heard: Listener | None, prompt: str
    ) -> ModelAnswer:
        name: ModelName | None = getattr(model, "known", None)
        paying = payer.get()
        if name is not None and name.max_tokens:
            request = replace(request, max_tokens=min(request.max_tokens, name.max_tokens))
        asked, each = prices.bound(name, request) if name is not None else (0.0, 0.0)
        least = asked + min(request.max_tokens, ANSWER_TOKENS_MIN) * each
        if name is not None and not prices.has_price(name):
            least = asked = math.inf
        reserved = await paying.reserve(asked + request.max_tokens * each, least)
        if each and math.isfinite(reserved):
            affordable = int((reserved - asked) / each + 1e-6)
            request = replace(request, max_tokens=max(1, min(request.max_tokens, affordable)))
        known_by = key_of(request)
        call = ModelCall(
            model=model.name, tier=self.tier, failure="lost", prompt=prompt, asked=known_by
        )
        began = time.monotonic()
        # Until the usage is known, an interrupted call counts as its request.
        used, said = Usage(input=prices.question_tokens(request) // 2), 0.0
        try:
            with chatting(model.name, request) as span:
                answer = await model.ask(request, heard)
                span.answered(answer)
            used, said = _counted(answer, used), answer.cost
            call = replace(
                call,
                failure="",
                answer=answer_digest(answer),
                contents=contents(request, answer),
            )
        except ModelFailure as failure:
            call = replace(
                call,
                failure=failure.failure_class,
                answer=answer_digest(failure.text),
                contents=contents(request, failure.text),
            )
            unused = failure.failure_class in ("rate_limited", "denied", "unavailable")
            if failure.usage != Usage() or unused:
                used = failure.usage
            raise
        finally:
            used = _sane(used)
            cost = _cost(name, used, said)
            call = replace(call, usage=used, cost=cost, seconds=time.monotonic() - began)
            paying.settle(reserved, call)
        return replace(answer, model=model.name, usage=used, cost=cost)


def _counted(answer: ModelAnswer, asked: Usage) -> Usage:
    """Return the tokens that a call used.

    Tokens that a provider does not count, or counts absurdly, are estimated by length: they would
    otherwise be free, and no budget would ever end.
    """
    used = _sane(answer.usage)
    if not used.input and not used.cache_read and not used.cache_write:
        used = replace(used, input=asked.input)
    return used if used.output else replace(used, output=prices.answer_tokens(answer))


def _sane(used: Usage) -> Usage:
    """Token counts that are counts: a negative one would pay into the budget."""
    return Usage(*(_count(each) for each in astuple(used)))


def _count(value: float) -> int:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return min(TOKENS_MAX, max(0, math.ceil(value)))


def _cost(name: ModelName | None, used: Usage, said: float) -> float:
    found = said if name is None else prices.cost(name, used) or 0.0
    return found if math.isfinite(found) and found > 0 else 0.0
