"""Metrics over the logs of any number of runs. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from leadhand.core import events as ev
from leadhand.core.review.decisions import NOBODY
from leadhand.core.views.recovery_stats import RecoveryOutcome, recoveries

if TYPE_CHECKING:
    from collections.abc import Sequence


DOCUMENT = "document"
"""The planner of a run that was given its plan: no planner was asked."""


class Metrics(msgspec.Struct, kw_only=True):
    """Counts of attempts, recoveries and outcomes."""

    attempts: int = 0
    tried: int = 0
    """Steps with at least one verified or refused attempt."""
    first_pass: int = 0
    """Steps whose first attempt was verified."""
    planner_calls: int = 0
    questions: int = 0
    answered_by_default: int = 0
    failed_steps: int = 0
    """Steps that failed at least once and whose recovery is decided."""
    recovered: int = 0
    """Those of them whose last recovery succeeded."""
    origins: Counter[str] = msgspec.field(default_factory=Counter)
    """Runs that ended without success, by origin of the failure."""
    answers: list[RecoveryOutcome] = msgspec.field(default_factory=list)
    """Every recovery decision, with whether it succeeded."""

    def add(self, events: Sequence[ev.Event]) -> None:
        """Add the whole log of a run."""
        planned, origin = True, ""
        for event in events:
            match event:
                case ev.RunStarted():
                    planned = event.planner != DOCUMENT
                case ev.AttemptStarted():
                    self.attempts += 1
                case ev.AttemptReported() if event.attempt == 1:
                    self.tried += 1
                    self.first_pass += event.met
                case ev.AttemptLost() if event.attempt == 1:
                    self.tried += 1
                case ev.PlannerAsked() if planned:
                    self.planner_calls += 1
                case ev.QuestionAsked():
                    self.questions += 1
                case ev.QuestionAnswered() if event.actor == NOBODY:
                    self.answered_by_default += 1
                case ev.RunEnded():
                    origin = event.origin
                case ev.RunReopened():
                    origin = ""
                case _:
                    pass  # not counted
        if origin:
            self.origins[origin] += 1
        found = recoveries(events)
        self.answers += found
        last = {each.step: each.won for each in found if each.won is not None}
        self.failed_steps += len(last)
        self.recovered += sum(last.values())

    def join(self, other: Metrics) -> None:
        """Add the counts of other runs."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def first_pass_rate(self) -> float | None:
        """The share of steps that needed no second attempt."""
        return self.first_pass / self.tried if self.tried else None

    @property
    def recovery_rate(self) -> float | None:
        """The share of failed steps that succeeded in the end."""
        return self.recovered / self.failed_steps if self.failed_steps else None
