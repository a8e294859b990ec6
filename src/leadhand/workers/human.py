"""A worker that is a person: the step is a question in the inbox, and the answer is its report.

    Lead(workers=[fetch, Human("reviewer", "Is the table right?", gives="approved:table")])

Every run knows one called `human`. The core asks the question and waits, for months if need be;
what is performed here is only the reading of the answer, which is then judged as any report is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.codec.values import plain
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.durations import seconds
from leadhand.core.report import Report
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.ports import Context, Task

NAME = "human"


class Human:
    """A person as a worker: the step appears in the inbox until it is answered.

    - `name`: the name that plans use.
    - `description`: the question to the person.
    - `needs`, `gives`: facts that must be true before the step, and that it makes true.
    - `cost`, `est`: the declared cost and usual duration, for planners.
    - `timeout`: how long the person may take; then `default` is the result.
    - `default`: the result without an answer in time; None: the step fails then.
    """

    def __init__(
        self,
        name: str = NAME,
        description: str = "A person: the step stands in the inbox until it is answered.",
        *,
        needs: str | Iterable[str] = (),
        gives: str | Iterable[str] = (),
        cost: float = 0.0,
        est: str | float | None = None,
        timeout: str | float | None = None,
        default: Any = None,
    ) -> None:
        if default is not None and timeout is None:
            raise UsageError(f"{name}: a default counts when time is up. Fix: give timeout= too.")
        offer = Offer(
            idempotent=True,
            needs=_names(needs),
            gives=_names(gives),
            cost=cost,
            est_s=None if est is None else seconds(est),
            timeout_s=None if timeout is None else seconds(timeout),
            risk="low",
            silence=plain(default, place=f"default of {name}"),
        )
        self.spec = WorkerSpec(
            name=name, kind="human", version="1", description=description, offers={"": offer}
        )

    async def perform(self, _task: Task, context: Context) -> Report:
        """Report the person's last answer "done": its data, else its text."""
        said = [answer for answer in context.answers if answer.get("choice") == "done"]
        answer: dict[str, Any] = said[-1] if said else {}
        data = answer.get("data")
        return Report(data=data if data is not None else answer.get("text") or None)

    async def probe(self, _task: Task, _context: Context) -> Report | None:
        """Raise `LookupError`: only the person knows the outcome."""
        raise LookupError("only the person knows")

    def check(self, _name: str, _action: str, _data: Any) -> bool:
        """People have no checks of their own; the step's criteria are all there is."""
        return False

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def _names(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
