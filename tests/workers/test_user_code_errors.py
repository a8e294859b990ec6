"""What user code may raise or say besides errors and texts: it fails, or is shown, and no more."""

import asyncio
import signal

import pytest

from leadhand import Context, Goal, Lead, worker
from leadhand.codec.values import progress_note
from leadhand.core.report import Propose, Report
from leadhand.ports import is_external_cancellation

STRAYS = [GeneratorExit, KeyboardInterrupt, asyncio.CancelledError, SystemExit, BaseException]
QUICK_S = 10.0


def plan(name, **more):
    step = {"id": "a", "worker": name, "failure_action": "abort", "timeout": "60s", **more}
    return {"goal": "g", "steps": [step]}


async def outcome_of(lead, what):
    """An attempt that nobody reports would hang until its deadline, a minute from now."""
    async with asyncio.timeout(QUICK_S):
        return await lead.run(what)


@pytest.mark.parametrize("kind", STRAYS)
async def test_an_async_function_that_raises_a_stray_failed(kind, tmp_path):
    @worker
    async def stray() -> None:
        await asyncio.sleep(0)
        raise kind

    outcome = await outcome_of(Lead([stray], store=tmp_path / "d.db"), plan("stray"))
    assert outcome.status == "failed"
    assert kind.__name__ in outcome.reason


@pytest.mark.parametrize("kind", STRAYS)
async def test_a_sync_function_that_raises_a_stray_failed(kind, tmp_path):
    @worker
    def stray() -> None:
        raise kind

    outcome = await outcome_of(Lead([stray], store=tmp_path / "d.db"), plan("stray"))
    assert outcome.status == "failed"


@pytest.mark.parametrize("kind", STRAYS)
async def test_a_check_that_raises_a_stray_does_not_hold(kind, tmp_path):
    def check(_data):
        raise kind

    @worker(checks={"good": check})
    async def fine() -> int:
        return 1

    what = plan("fine", success_criteria="good")
    outcome = await outcome_of(Lead([fine], store=tmp_path / "d.db"), what)
    assert outcome.status == "failed"


@pytest.mark.parametrize("kind", STRAYS)
async def test_a_planner_that_raises_a_stray_gave_no_answer(kind, tmp_path):
    calls = []

    async def planner(_view):
        calls.append(1)
        if len(calls) == 1:
            raise kind
        return Propose([{"id": "a", "worker": "fine"}], final=True)

    @worker
    async def fine() -> int:
        return 1

    lead = Lead([fine], planner, store=tmp_path / "d.db")
    outcome = await outcome_of(lead, Goal(text="a goal"))
    assert outcome.status == "succeeded"
    assert len(calls) >= 2


async def test_a_cancellation_by_the_engine_is_still_one():
    """Told from a raise of the same kind by the task: somebody cancelled it."""
    seen = []

    async def cancelled():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            seen.append(is_external_cancellation(error))
            raise

    task = asyncio.create_task(cancelled())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert seen == [True]
    assert task.cancelled()


def test_closing_a_coroutine_ends_it():
    seen = []

    async def closed():
        try:
            await asyncio.Future(loop=loop)
        except GeneratorExit as error:
            seen.append(is_external_cancellation(error))
            raise

    loop = asyncio.new_event_loop()
    coroutine = closed()
    coroutine.send(None)
    coroutine.close()
    loop.close()
    assert seen == [True]


def test_ctrl_c_is_not_the_worker_s_own():
    """A signal interrupts wherever the code is; a `raise` is the code's own."""
    with pytest.raises(KeyboardInterrupt) as caught:
        signal.raise_signal(signal.SIGINT)
    assert is_external_cancellation(caught.value)
    with pytest.raises(KeyboardInterrupt) as caught:
        raise KeyboardInterrupt
    assert not is_external_cancellation(caught.value)


class Nasty:
    def __str__(self):
        raise RuntimeError("no text of me")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (("half", 0.5), ("half", 0.5)),
        ((None, None), ("", None)),
        ((7, "x"), ("7", None)),
        (("far", 42), ("far", None)),
        (("nan", float("nan")), ("nan", None)),
        (("inf", float("-inf")), ("inf", None)),
        (({"a": 1}, [1]), ("{'a': 1}", None)),
        ((Nasty(), 1), ("(Nasty)", 1.0)),
        (("half a \ud800", 0), ("half a \\ud800", 0.0)),
        (("x" * 1000, True), ("x" * 500, 1.0)),
    ],
)
def test_progress_of_any_kind_can_be_shown(said, shown):
    assert progress_note(*said) == shown


def talk(context):
    context.progress(object(), object())
    context.progress(None, float("nan"))
    context.progress(b"bytes", "half")
    return 1


@worker
def in_a_thread(context: Context) -> int:
    return talk(context)


@worker(isolate="process")
def in_a_process(context: Context) -> int:
    return talk(context)


@worker
async def in_the_loop(context: Context) -> int:
    await asyncio.sleep(0.01)
    return talk(context)


@pytest.mark.parametrize("talks", [in_a_thread, in_a_process, in_the_loop])
async def test_wrong_progress_harms_nothing(talks, tmp_path, capfd):
    outcome = await outcome_of(Lead([talks], store=tmp_path / "d.db"), plan(talks.__name__))
    assert outcome.status == "succeeded", outcome
    assert "Traceback" not in capfd.readouterr().err


async def test_a_worker_class_that_raises_a_stray_failed(tmp_path):
    """Not only functions: whatever is registered as a worker."""

    @worker
    async def stand_in() -> None: ...

    lead = Lead([stand_in], store=tmp_path / "d.db")
    (made,) = lead.registry

    async def perform(_task, _context) -> Report:
        raise GeneratorExit

    made.perform = perform
    assert (await outcome_of(lead, plan("stand_in"))).status == "failed"
