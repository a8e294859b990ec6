"""Orders of attempts for machines: made by the workflow, from its current state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporalio import workflow

if TYPE_CHECKING:
    from leadhand.temporal.workflow import RunFlow


with workflow.unsafe.imports_passed_through():
    import msgspec

    from leadhand.core import events as ev
    from leadhand.core.decide.effects import StartAttempt, StartProbe
    from leadhand.core.plan.graph import context_of
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.temporal.messages import AttemptOrder, DetachedValue, GivenResult, detach


class Orders:
    """Makes the orders of one workflow."""

    def __init__(self, flow: RunFlow) -> None:
        self._flow = flow
        self._slim: dict[str, ev.RunStarted] = {}
        self._start_bytes: dict[str, int] = {}

    def order(
        self, effect: StartAttempt | StartProbe, deadline: int, quota: float | None
    ) -> AttemptOrder:
        """Return everything that a machine needs for an attempt or a probe."""
        state = self._flow.state
        step = state.steps[effect.step]
        planned = step.doc.get("parameters") or {}
        parameters: Any = None
        holes: tuple[DetachedValue, ...] = ()
        if effect.parameters is not planned and effect.parameters != planned:
            parameters, holes = detach(effect.parameters)
        return AttemptOrder(
            run=state.run,
            step=effect.step,
            attempt=effect.attempt,
            epoch=effect.epoch,
            worker=effect.worker,
            action=effect.action,
            deadline=deadline,
            heartbeat_s=self._flow.ways.heartbeat_s,
            doc=step.doc,
            started=self._start(effect.worker),
            parameters=parameters,
            holes=holes,
            failures=step.failures,
            answers=_answers(state, effect.step),
            results=_results(state, step.doc),
            quota=quota,
        )

    def _start(self, worker: str) -> ev.RunStarted:
        """Return the start of the run for a machine: the same for all attempts of a worker."""
        if worker not in self._slim:
            started = self._flow.state.started
            assert started is not None
            specs = [spec for spec in started.catalog if spec.name == worker]
            self._slim[worker] = msgspec.structs.replace(
                started, catalog=specs, approvals=[], workers=()
            )
        return self._slim[worker]

    def size(self, effect: StartAttempt) -> int:
        """Return the approximate size of the order of an attempt, before compression."""
        state, worker = self._flow.state, effect.worker
        step = state.steps[effect.step]
        if worker not in self._start_bytes:
            self._start_bytes[worker] = _bytes(self._start(worker))
        more = (step.failures, _answers(state, step.id), _results(state, step.doc))
        return self._start_bytes[worker] + _bytes((step.doc, effect.parameters, *more))


def _bytes(value: Any) -> int:
    try:
        return len(msgspec.json.encode(value))
    except UnicodeEncodeError:  # a lone surrogate
        return len(str(value))


def _answers(state: State, step: str) -> tuple[Doc, ...]:
    return tuple(each for each in state.answers if each["step"] == step)


def _results(state: State, doc: Doc) -> dict[str, GivenResult]:
    found = {}
    for name, summary in context_of(doc).items():
        step = state.follow(name)
        if step is None or not (summary or step.status == "succeeded"):
            continue
        given = GivenResult(None if step.data_ref else step.data, step.data_ref)
        if summary:
            given = msgspec.structs.replace(
                given,
                worker=step.worker,
                action=step.action,
                status=step.status,
                recommendations=step.recommendations,
                failure=step.failure,
            )
        found[name] = given
    return found
