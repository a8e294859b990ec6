"""Function workers: how they are declared, called, cancelled, isolated and reported on."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec
import pytest

from leadhand import errors
from leadhand.core.jsonschema import problems
from leadhand.core.report import Failure, Report
from leadhand.errors import UsageError
from leadhand.ports import Context
from leadhand.workers.functions.decorator import worker
from leadhand.workers.functions.signature import Signature
from leadhand.workers.processes import capture
from leadhand.workers.processes.runner import Processes
from leadhand.workers.registry import Registry, load_workers
from leadhand.workers.reports import RULES, report_doc, report_from, report_from_doc, report_of
from tests.support.attempts import FakeContext, task

if TYPE_CHECKING:
    import leadhand.ports as known_to_type_checkers


async def perform(
    given: Any, action: str = "", /, context: FakeContext | None = None, **parameters: Any
) -> Report:
    (made,) = Registry([given])
    return await made.perform(task(action, **parameters), context or FakeContext())


def spec_of(given: Any) -> Any:
    (made,) = Registry([given])
    return made.spec


# --- declaring ------------------------------------------------------------------------------


async def test_the_decorated_function_stays_what_it_was():
    @worker
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    @worker(name="triple", action="go")
    async def three(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert await three(4) == 12
    assert double.__leadhand__.name == "double"
    spec = spec_of(double)
    assert (spec.name, spec.kind, spec.trusted) == ("double", "function", True)
    assert spec.description == "Twice as much."
    assert list(spec.offers) == [""]
    assert list(spec_of(three).offers) == ["go"]


def test_everything_that_is_declared_stands_in_the_offer():
    @worker(
        name="deployer",
        actions=["deploy", "redeploy"],
        checks={"up": lambda data: data["up"]},
        check=bool,
        risk="high",
        effects="deploys",
        timeout="5 minutes",
        est=90,
        idempotent=True,
        probe=lambda: None,
        cost=0.5,
        version="v7",
        needs="image",
        gives=["service"],
        drops=["downtime"],
        reads=["registry"],
        writes=["cluster"],
        isolate="thread",
        max_concurrency=2,
        description="Deploys.",
    )
    def deploy() -> dict[str, bool]:
        return {"up": True}

    spec = spec_of(deploy)
    assert (spec.version, spec.description, spec.max_concurrency) == ("v7", "Deploys.", 2)
    assert list(spec.offers) == ["deploy", "redeploy"]
    offer = msgspec.to_builtins(spec.offers["deploy"])
    assert offer == {
        "parameters": Signature(lambda: None).parameters,
        "returns": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "checks": ("up",), "result_check": True, "risk": "high", "effects": ("deploys",),
        "reads": ("registry",), "writes": ("cluster",), "idempotent": True, "probe": True,
        "timeout_s": 300.0, "est_s": 90.0, "cost": 0.5, "needs": ("image",),
        "gives": ("service",), "drops": ("downtime",),
    }  # fmt: skip


BAD_OPTIONS = [
    ({"nmae": "x"}, "no option nmae="),
    ({"name": "a b"}, "is not a name"),
    ({"action": "a", "actions": ["b"]}, "not both"),
    ({"actions": []}, "each action once"),
    ({"actions": ["a", "a"]}, "each action once"),
    ({"action": "a/b"}, "is not a name"),
    ({"risk": "scary"}, "must be one of low"),
    ({"timeout": "soon"}, "timeout: "),
    ({"timeout": "5"}, "timeout: "),
    ({"cost": -1}, "not negative"),
    ({"cost": float("nan")}, "not negative"),
    ({"max_concurrency": 0}, "from 1"),
    ({"isolate": "vm"}, "isolate"),
    ({"checks": {"x": 1}}, "ordinary function"),
    ({"probe": "x"}, "must be a function"),
    ({"effects": [1]}, "must be texts"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(UsageError, match=message) as caught:
        worker(**options)(test_options_that_make_no_sense)
    assert str(caught.value).startswith("@worker on ")


def test_what_cannot_be_a_worker():
    def generator():
        yield 1

    async def async_check(data):
        return True

    with pytest.raises(UsageError, match="generator"):
        worker(generator)
    with pytest.raises(UsageError, match="only functions"):
        worker(int)
    with pytest.raises(UsageError, match="is not a name"):
        worker(lambda: None)
    with pytest.raises(UsageError, match="ordinary function"):
        worker(check=async_check)(test_what_cannot_be_a_worker)


def test_the_version_follows_the_source():
    def made(body: str) -> str:
        scope: dict[str, Any] = {}
        exec(f"def f():\n    {body}", scope)
        return spec_of(worker(name="f")(scope["f"])).version

    assert made("return 1") == made("return 1") != made("return 2")

    @worker(name="same")
    def one() -> int:
        return 1

    @worker(name="same", check=lambda data: data == 1)
    def one_checked() -> int:
        return 1

    assert spec_of(one).version == spec_of(one).version != spec_of(one_checked).version
    assert len(spec_of(one).version) == 32


async def test_one_worker_with_several_actions():
    @worker(name="db", action="read")
    async def read(key: str) -> str:
        return f"read {key}"

    @worker(name="db", action="write", risk="high", max_concurrency=1)
    def write(key: str, value: int) -> str:
        return f"wrote {key}"

    registry = Registry([read, write])
    db = registry.get("db")
    assert len(registry) == 1
    assert sorted(db.spec.offers) == ["read", "write"]
    assert (await db.perform(task("read", key="a"), FakeContext())).data == "read a"
    assert (await db.perform(task("write", key="a", value=1), FakeContext())).data == "wrote a"
    report = await db.perform(task("drop"), FakeContext())
    assert report.error.failure_class == "permanent"
    assert registry.catalog().risk("db", "write") == "high"

    @worker(name="db", action="read")
    async def again() -> None: ...

    with pytest.raises(UsageError, match="worker 'db': the action 'read' is declared twice"):
        Registry([read, again])
    assert len(Registry([read, read])) == 1, "the same function given twice is one"


async def test_an_unnamed_action_takes_any():
    @worker
    async def anything() -> str:
        return "done"

    assert (await perform(anything, "whatever")).data == "done"


async def test_an_object_with_decorated_methods():
    class Shop:
        def __init__(self, stock: int) -> None:
            self.stock = stock

        @worker(name="shop", action="take")
        async def take(self, n: int) -> int:
            self.stock -= n
            return self.stock

        @worker(name="shop", action="count")
        def count(self) -> int:
            return self.stock

        @worker(name="shop", action="name")
        @staticmethod
        def called() -> str:
            return "shop"

    shop = Shop(5)
    (made,) = Registry([shop])
    assert (await made.perform(task("take", n=2), FakeContext())).data == 3
    assert (await made.perform(task("count"), FakeContext())).data == 3
    assert (await made.perform(task("name"), FakeContext())).data == "shop"
    assert shop.stock == 3
    with pytest.raises(UsageError, match=r"give an instance of it, Shop\(\)"):
        Registry([Shop])


def test_what_is_no_worker():
    with pytest.raises(UsageError, match="is no worker; mark the function with @worker"):
        Registry([test_what_is_no_worker])
    with pytest.raises(UsageError, match="is no worker"):
        Registry([42])


# --- parameters -----------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Struct(msgspec.Struct):
    name: str
    points: list[Point] = []


class Typed(TypedDict):
    a: int


TYPES = [
    # annotation, a value from JSON, what arrives, a value that is refused
    (str, "a", "a", 1),
    (int, 3, 3, "3"),
    (float, 1, 1.0, "1"),
    (bool, True, True, 1),
    (None, None, None, 0),
    (list[int], [1, 2], [1, 2], [1, "2"]),
    (dict[str, float], {"a": 1}, {"a": 1.0}, {"a": "1"}),
    (Literal["a", "b"], "a", "a", "c"),
    (int | None, None, None, "x"),
    (int | str, "x", "x", 1.5),
    (Point, {"x": 1}, Point(1, 0), {"y": 1}),
    (list[Point], [{"x": 1, "y": 2}], [Point(1, 2)], [{"x": "1"}]),
    (Struct, {"name": "n", "points": [{"x": 1}]}, Struct("n", [Point(1)]), {}),
    (Typed, {"a": 1}, {"a": 1}, {"a": "1"}),
    (Colour, "red", Colour.RED, "green"),
    (Any, {"a": [1]}, {"a": [1]}, None),
    (object, [1], [1], None),
    (Path, "a/b", Path("a/b"), 1),
    (Path | None, "a/b", Path("a/b"), 1),
    (tuple[int, str], [1, "a"], (1, "a"), [1]),
]


@pytest.mark.parametrize(("kind", "value", "arrives", "refused"), TYPES)
async def test_parameters_are_checked_and_converted(kind, value, arrives, refused):
    got = []

    async def take(it):
        got.append(it)

    take.__annotations__["it"] = kind
    marked = worker(take)
    schema = spec_of(marked).offers[""].parameters
    assert problems({"it": value}, schema) == []
    assert (await perform(marked, it=value)).status == "succeeded"
    assert got == [arrives]
    assert type(got[0]) is type(arrives)
    if refused is not None:
        assert problems({"it": refused}, schema), "a plan with it is refused"
        report = await perform(marked, it=refused)
        assert report.error.failure_class == "permanent"
        assert report.error.message.startswith("parameter it: ")
        assert len(got) == 1


async def test_defaults_extras_and_positions():
    @worker
    async def mixed(a: int, /, b: str = "x", *, c: float = 1.5, **more: Any) -> list[Any]:
        return [a, b, c, more]

    schema = spec_of(mixed).offers[""].parameters
    assert schema["required"] == ["a"]
    assert schema["additionalProperties"] is True
    assert schema["properties"]["b"] == {"type": "string", "default": "x"}
    assert (await perform(mixed, a=1, z=2)).data == [1, "x", 1.5, {"z": 2}]
    assert (await perform(mixed, a=1, b="y", c=2)).data == [1, "y", 2.0, {}]
    assert (await perform(mixed)).error.message == "parameter a: is missing"


async def test_unknown_parameters_are_refused():
    @worker
    async def none_at_all() -> None: ...

    assert (await perform(none_at_all, x=1)).error.message == "parameter x: is not known"


async def test_annotations_that_only_type_checkers_can_read():
    @worker
    async def shy(a: NotImportedAnywhere, told: known_to_type_checkers.Context) -> AlsoNot:  # noqa: F821
        return [a, told.goal]

    assert spec_of(shy).offers[""].parameters["properties"] == {"a": {}}
    assert (await perform(shy, a=1)).data == [1, "the goal"]


async def test_annotations_that_name_what_the_caller_sees():
    @dataclass
    class Local:
        n: int

    @worker
    async def take(it: Local) -> int:
        assert isinstance(it, Local)
        return it.n

    assert (await perform(take, it={"n": 4})).data == 4


def test_what_json_cannot_make_is_refused_when_it_is_declared():
    class Session:
        pass

    @worker
    async def bad(session: Session) -> None: ...

    @worker
    async def fine(n: int, session: Session | None = None) -> None: ...

    with pytest.raises(
        UsageError, match=r"bad .*test_function.py:\d+\): parameter session: Session"
    ):
        Registry([bad])
    assert list(spec_of(fine).offers[""].parameters["properties"]) == ["n"]


RETURNS = [
    (int, {"type": "integer"}),
    (list[str], {"type": "array", "items": {"type": "string"}}),
    (None, {"type": "null"}),
    (Any, None),
    (object, None),
    (Report, None),
    (Report | int, None),
    (threading.Thread, None),
    ("Unknown", None),
]


@pytest.mark.parametrize(("kind", "schema"), RETURNS)
def test_the_return_annotation_is_a_schema_where_it_can_be(kind, schema):
    def give():
        pass

    give.__annotations__["return"] = kind
    assert Signature(give).returns == schema


def test_recursive_and_nested_types_have_usable_schemas():
    def take(it: Struct, more: list[Point]) -> Struct: ...

    signature = Signature(take)
    good = {"it": {"name": "a", "points": [{"x": 1}]}, "more": [{"x": 2}]}
    assert problems(good, signature.parameters) == []
    assert len(problems({"it": {"points": [{"x": "1"}]}, "more": [{}]}, signature.parameters)) == 3
    assert problems({"name": "a"}, signature.returns) == []
    assert problems({"name": 1}, signature.returns)


# --- context --------------------------------------------------------------------------------


async def test_the_context_is_given_to_those_who_ask():
    @worker
    async def curious(n: int, ctx: Context) -> dict[str, Any]:
        ctx.progress("half", 0.5)
        return {"n": n, "goal": ctx.goal, "key": ctx.key, "attempt": ctx.attempt}

    context = FakeContext()
    report = await perform(curious, context=context, n=1)
    assert report.data == {"n": 1, "goal": "the goal", "key": "key-1", "attempt": 2}
    assert context.said == [("half", 0.5)]
    assert list(spec_of(curious).offers[""].parameters["properties"]) == ["n"]


async def test_a_sync_function_speaks_through_the_loop():
    where = []

    class Watching(FakeContext):
        def progress(self, message: str = "", fraction: float | None = None) -> None:
            where.append((message, threading.current_thread() is threading.main_thread()))

    @worker
    def talk(context: Context | None) -> str:
        context.progress("one")
        with pytest.raises(AttributeError, match="a context has no 'plan'"):
            _ = context.plan
        return context.run

    assert (await perform(talk, context=Watching())).data == "run-1"
    assert where == [("one", True)]


# --- results --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_what_json_cannot_hold_is_invalid_output_with_its_place(mode):
    def bad() -> Any:
        return {"rows": [1, {"when": {1, 2}}]}

    async def bad_async() -> Any:
        return bad()

    report = await perform(worker(bad if mode == "thread" else bad_async))
    assert report.error.failure_class == "invalid_output"
    assert "rows[1].when" in report.error.message
    assert report.error.effect == "none"


@pytest.mark.parametrize(
    "value", [float("nan"), b"x", {1: 2}, object(), "\ud800", lambda: 1, 2**70]
)
def test_values_that_are_refused(value):
    assert report_from(value).error.failure_class == "invalid_output"
    assert report_from(value, effects=True).error.effect == "done"


async def test_a_report_of_its_own():
    @worker
    async def full() -> Report:
        return Report(
            "failed",
            {"point": Point(1)},
            Failure("rate_limited", "slow down", "none", 3.0),
            recommendations=("use the mirror",),
            cost=2,
        )

    report = await perform(full)
    assert report.data == {"point": {"x": 1, "y": 0}}
    assert (report.error.failure_class, report.error.retry_after_s) == ("rate_limited", 3.0)
    assert report.recommendations == ("use the mirror",)
    assert report.cost == 2.0


BAD_REPORTS = [
    Report("done"),  # type: ignore[arg-type]
    Report(cost=float("nan")),
    Report(cost=-1),
    Report(data={1, 2}),
    Report("failed", error=Failure("oops", "x")),
    Report("failed", error=Failure("transient", "x", "maybe")),  # type: ignore[arg-type]
    Report("failed", error=Failure("transient", "x", retry_after_s=float("inf"))),
]


@pytest.mark.parametrize("report", BAD_REPORTS)
def test_reports_that_make_no_sense_are_invalid_output(report):
    assert report_from(report).error.failure_class == "invalid_output"


def test_a_failure_without_a_reason_is_still_a_failure():
    assert report_from(Report("failed")).error.failure_class == "unavailable"


def test_reports_survive_the_way_through_a_document():
    report = Report(
        "failed", [1], Failure("lost", "gone", "unknown", 2.0, {"a": 1}), ("r",), ("sha256:0",), 0.5
    )
    assert report_from_doc(report_doc(report)) == report
    for doc in (1, {"status": "x"}, {"error": "x"}, {"error": {}}, {"stat": 1}, {"artifacts": 5}):
        assert report_from_doc(doc).error.failure_class == "invalid_output"


# --- exceptions: the table ------------------------------------------------------------------


class Own(Exception):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


EXCEPTIONS = [
    # exception, class, effect, effect where effects are declared
    (ConnectionError("x"), "transient", "none", "unknown"),
    (ConnectionResetError("x"), "transient", "none", "unknown"),
    (BrokenPipeError("x"), "transient", "none", "unknown"),
    (ConnectionRefusedError("x"), "transient", "none", "none"),
    (socket.gaierror(1, "x"), "transient", "none", "none"),
    (TimeoutError("x"), "timeout", "unknown", "unknown"),
    (subprocess.TimeoutExpired("x", 1), "timeout", "unknown", "unknown"),
    (PermissionError("x"), "denied", "none", "none"),
    (FileNotFoundError("x"), "unavailable", "none", "none"),
    (ImportError("x"), "unavailable", "none", "none"),
    (ModuleNotFoundError("x"), "unavailable", "none", "none"),
    (MemoryError("x"), "too_complex", "none", "none"),
    (RecursionError("x"), "too_complex", "none", "none"),
    (ValueError("x"), "unavailable", "none", "none"),
    (KeyError("x"), "unavailable", "none", "none"),
    (Own("x"), "unavailable", "none", "none"),
    (Unprintable("x"), "unavailable", "none", "none"),
    (StopIteration("x"), "unavailable", "none", "none"),
    (SystemExit(3), "unavailable", "none", "none"),
    (errors.Transient("x"), "transient", "none", "none"),
    (errors.RateLimited("x"), "rate_limited", "none", "none"),
    (errors.Unavailable("x"), "unavailable", "none", "none"),
    (errors.Denied("x"), "denied", "none", "none"),
    (errors.TooComplex("x"), "too_complex", "none", "none"),
    (errors.Ambiguous("x"), "ambiguous", "none", "none"),
    (errors.NeedsInfo("x"), "needs_info", "none", "none"),
    (errors.InvalidOutput("x"), "invalid_output", "none", "none"),
    (errors.Permanent("x"), "permanent", "none", "none"),
    (errors.Transient("x", effect="unknown"), "transient", "unknown", "unknown"),
    (errors.Permanent("x", effect="done"), "permanent", "done", "done"),
    (ExceptionGroup("g", [errors.Transient("x")]), "transient", "none", "none"),
    (
        ExceptionGroup("g", [TimeoutError("x"), ValueError("y")]),
        "unavailable",
        "unknown",
        "unknown",
    ),
]


@pytest.mark.parametrize(
    ("error", "failure_class", "effect", "effect_if_declared"),
    EXCEPTIONS,
    ids=[type(row[0]).__name__ for row in EXCEPTIONS],
)
async def test_what_an_exception_means(error, failure_class, effect, effect_if_declared):
    async def fails() -> None:
        raise error

    def fails_too() -> None:
        raise error

    # A coroutine cannot raise StopIteration: Python itself makes it a RuntimeError.
    functions = [fails_too] if isinstance(error, StopIteration) else [fails, fails_too]
    for function in functions:
        got = (await perform(worker(function))).error
        assert (got.failure_class, got.effect) == (failure_class, effect)
        got = (await perform(worker(effects="x", isolate=None)(function))).error
        assert (got.failure_class, got.effect) == (failure_class, effect_if_declared)


def test_the_table_ends_with_everything():
    assert RULES[-1].types == (BaseException,)


async def test_what_a_worker_attaches_to_its_failure_is_kept():
    @worker
    async def fails() -> None:
        raise errors.RateLimited(
            "slow", retry_after_s=7, data={"left": 0}, recommendations=["wait"]
        )

    report = await perform(fails)
    assert report.error == Failure("rate_limited", "slow", "none", 7)
    assert (report.data, report.recommendations) == ({"left": 0}, ("wait",))


async def test_retry_on_names_exceptions_that_pass():
    @worker(retry_on=(Own, KeyError))
    async def fails() -> None:
        raise Own("again")

    error = (await perform(fails)).error
    assert (error.failure_class, error.message) == ("transient", "Own: again")


async def test_details_say_where_and_never_what():
    @worker
    async def fails() -> None:
        password = "s3cr3t-canary" * 1  # noqa: F841
        raise ValueError("the message")

    error = (await perform(fails)).error
    assert error.message == "ValueError: the message"
    assert error.details["type"] == "ValueError"
    assert "test_function.py" in error.details["traceback"][-2]
    assert len(error.details["traceback"]) <= 12
    msgspec.json.encode(error.details)


@pytest.mark.parametrize("text", ["x" * 100_000, "\ud800", "a\0b", ""])
def test_messages_are_bounded_and_fit_json(text):
    error = report_of(ValueError(text)).error
    assert len(error.message) < 2_100
    assert "\0" not in error.message
    msgspec.json.encode(error.message)


# --- cancelling -----------------------------------------------------------------------------


async def test_a_cancelled_async_function_is_cancelled():
    ended = []

    @worker
    async def sleeps() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    running = asyncio.create_task(perform(sleeps))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [True]


async def test_a_cancellation_from_inside_is_a_failure():
    @worker
    async def gives_up() -> None:
        raise asyncio.CancelledError

    assert (await perform(gives_up)).error.failure_class == "unavailable"


async def test_an_abandoned_thread_learns_of_it_and_holds_its_slot():
    go_on, started, seen = threading.Event(), [], []

    @worker(max_concurrency=1)
    def stuck(ctx: Context) -> None:
        started.append(True)
        while not go_on.wait(0.005):
            if ctx.cancelled and not seen:
                seen.append(True)

    (made,) = Registry([stuck])
    running = asyncio.create_task(made.perform(task(), FakeContext()))
    while not started:
        await asyncio.sleep(0.005)
    assert made.abandoned == 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert made.abandoned == 1
    async with asyncio.timeout(60):
        while not seen:
            await asyncio.sleep(0.005)
    second = asyncio.create_task(made.perform(task(), FakeContext()))
    await asyncio.sleep(0.05)
    assert len(started) == 1, "the slot is held until the thread really ends"
    go_on.set()
    await second
    assert len(started) == 2
    assert (made.abandoned, made.threads.abandoned) == (0, 0)


async def test_a_call_cancelled_while_it_waits_never_runs():
    ran, hold = [], threading.Event()

    @worker(max_concurrency=1)
    def one(n: int) -> None:
        ran.append(n)
        hold.wait(5)

    (made,) = Registry([one])
    first = asyncio.create_task(made.perform(task(n=1), FakeContext()))
    second = asyncio.create_task(made.perform(task(n=2), FakeContext()))
    await asyncio.sleep(0.02)
    second.cancel()
    await asyncio.wait([second])
    hold.set()
    await first
    assert (await made.perform(task(n=3), FakeContext())).status == "succeeded"
    assert ran == [1, 3]


async def test_threads_grow_are_reused_and_are_daemons():
    names: set[str] = set()
    together = threading.Barrier(40)

    @worker
    def quick(*, meet: bool = False) -> bool:
        names.add(threading.current_thread().name)
        if meet:
            together.wait(120)
        return threading.current_thread().daemon

    (made,) = Registry([quick])
    for _ in range(50):
        assert (await made.perform(task(), FakeContext())).data is True
    assert len(names) == 1
    reports = await asyncio.gather(
        *(made.perform(task(meet=True), FakeContext()) for _ in range(40))
    )
    assert all(report.data is True for report in reports)
    assert len(names) == 40
    await made.close()


async def test_without_threads_the_attempt_fails_and_may_be_retried(monkeypatch):
    @worker(max_concurrency=1)
    def quick() -> int:
        return 1

    def none_left(_thread):
        raise RuntimeError("can't start new thread")

    (made,) = Registry([quick])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        assert (await made.perform(task(), FakeContext())).error.failure_class == "transient"
    assert (await made.perform(task(), FakeContext())).data == 1


async def test_context_variables_reach_the_thread():
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour")
    colour.set("red")

    @worker
    def look() -> str:
        return colour.get()

    assert (await perform(look)).data == "red"


def test_a_worker_serves_several_event_loops_one_after_the_other():
    @worker(max_concurrency=1)
    def slow() -> int:
        time.sleep(0.01)
        return 1

    (made,) = Registry([slow])

    async def twice() -> list[Report]:
        return await asyncio.gather(*(made.perform(task(), FakeContext()) for _ in range(3)))

    for _ in range(3):
        assert [report.data for report in asyncio.run(twice())] == [1, 1, 1]


# --- output ---------------------------------------------------------------------------------


@contextmanager
def capturing():
    """Inside a test, not as a fixture: pytest changes the streams between the two."""
    before = sys.stdout, sys.stderr
    capture.install_capture()
    capture.install_capture()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


async def test_what_is_printed_belongs_to_the_attempt(capsys):
    @worker
    async def loud(n: int) -> None:
        for _ in range(3):
            print("async", n)
            await asyncio.sleep(0)
        sys.stderr.write("err\n")

    @worker
    def loud_thread(n: int) -> None:
        print("thread", n)
        sys.stdout.buffer.write(b"bytes\xff\n")
        sys.stdout.flush()
        assert not sys.stdout.isatty()

    (one, two) = Registry([loud, loud_thread])
    with capturing():
        print("before")
        reports = await asyncio.gather(
            *(each.perform(task(n=n), FakeContext()) for n in range(3) for each in (one, two))
        )
        print("after")
    for n in range(3):
        assert reports[2 * n].output == f"async {n}\n" * 3 + "err\n"
        assert reports[2 * n + 1].output == f"thread {n}\nbytes\\xff\n"
    out, err = capsys.readouterr()
    assert (out, err) == ("before\nafter\n", "")


async def test_output_of_a_failure_is_kept():
    @worker
    async def fails() -> None:
        print("so far so good")
        raise ValueError

    with capturing():
        assert (await perform(fails)).output == "so far so good\n"


async def test_a_gigabyte_of_output_is_bounded(capsys):
    @worker
    def huge() -> None:
        print("first")
        for _ in range(1024):
            print("x" * (1 << 20))
        print("last")

    with capturing():
        report = await perform(huge)
    assert len(report.output) < (1 << 20) + 200
    assert report.output.startswith("first\n")
    assert report.output.endswith("last\n")
    assert "characters left out" in report.output
    assert capsys.readouterr().out == ""


def test_many_small_writes_are_bounded_too():
    sink = capture.Sink(1000)
    for n in range(20_000):
        sink.write(str(n % 10))
    assert len(sink.text()) < 1_100
    assert "19,000 characters left out" in sink.text()


# --- isolation in a process -----------------------------------------------------------------

MODULE = """
import os, sys, time, signal
from dataclasses import dataclass
from helper_beside import HELP
from leadhand.errors import RateLimited
from leadhand.ports import Context
from leadhand.workers.functions.decorator import worker

@dataclass
class Point:
    x: int

@worker(effects="writes")
def with_effects(n: int, at: Point | None = None) -> dict:
    print("printed in the child")
    os.system("echo from a grandchild")
    return {"pid": os.getpid(), "n": n, "x": at.x if at else None, "help": HELP}

@worker(isolate="process")
async def async_one(ctx: Context) -> list:
    ctx.progress("working", 0.5)
    said = ctx.answers[0]["answer"]
    return [ctx.goal, ctx.key, ctx.attempt, ctx.failures[0].message, ctx.results, said]

@worker(isolate="process")
def fails(how: str):
    if how == "typed":
        raise RateLimited("slow", retry_after_s=3)
    if how == "exit":
        sys.exit(4)
    if how == "hard":
        os._exit(5)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "set":
        return {1, 2}
    if how == "large":
        return "x" * 70_000_000
    raise ValueError("in the child")

@worker(isolate="process")
def sleeps(marker: str):
    open(marker, "w").write(str(os.getpid()))
    try:
        time.sleep(60)
    finally:
        open(marker + ".ended", "w").close()
"""


@pytest.fixture
def module(tmp_path):
    (tmp_path / "helper_beside.py").write_text("HELP = 'helped'\n")
    file = tmp_path / "some_workers.py"
    file.write_text(textwrap.dedent(MODULE))
    return str(file)


@pytest.fixture
async def registry(module):
    async with Processes("test-function") as processes:
        yield Registry(load_workers(module), processes=processes)


async def test_effects_run_in_a_process_of_their_own(registry):
    context = FakeContext()
    made = registry.get("with_effects")
    report = await made.perform(task(n=3, at={"x": 7}), context)
    assert report.status == "succeeded", report
    assert report.data["pid"] != os.getpid()
    assert report.data["pid"] == context.processes[0].pid
    assert (report.data["n"], report.data["x"], report.data["help"]) == (3, 7, "helped")
    assert "printed in the child\n" in report.output
    assert "from a grandchild\n" in report.output


async def test_the_child_knows_the_context_and_reports_progress(registry):
    answers = ({"answer": "yes"},)
    context = FakeContext(failures=(Failure("lost", "before"),), results={"a": 1}, answers=answers)
    report = await registry.get("async_one").perform(task(), context)
    assert report.data == ["the goal", "key-1", 2, "before", {"a": 1}, "yes"]
    assert context.said == [("working", 0.5)]


@pytest.mark.parametrize(
    ("how", "failure_class", "effect", "message"),
    [
        ("typed", "rate_limited", "none", "slow"),
        ("value", "unavailable", "none", "ValueError: in the child"),
        ("exit", "unavailable", "none", "SystemExit: 4"),
        ("hard", "lost", "unknown", "the process ended with 5 and no report"),
        ("killed", "lost", "unknown", "the process was ended by signal 9"),
        ("set", "invalid_output", "none", "data is a set; "),
        ("large", "invalid_output", "unknown", "larger than"),
    ],
)
async def test_failures_in_a_child_come_back_typed(registry, how, failure_class, effect, message):
    error = (await registry.get("fails").perform(task(how=how), FakeContext())).error
    assert (error.failure_class, error.effect) == (failure_class, effect)
    assert message in error.message
    if how == "typed":
        assert error.retry_after_s == 3


async def test_a_cancelled_child_is_ended_and_gone(registry, tmp_path):
    marker = tmp_path / "marker"
    running = asyncio.create_task(
        registry.get("sleeps").perform(task(marker=str(marker)), FakeContext())
    )
    while not marker.exists() or not marker.read_text():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)
    assert (tmp_path / "marker.ended").exists(), "it could clean up"


async def test_functions_inside_functions_fall_back_to_threads():
    @worker(effects="x")
    def inner() -> int:
        return os.getpid()

    @worker(isolate="process")
    def wants() -> None: ...

    async with Processes("test-function") as processes:
        made = Registry([inner], processes=processes).get("inner")
        assert (await made.perform(task(), FakeContext())).data == os.getpid()
    with pytest.raises(UsageError, match="isolate: a process can only run"):
        Registry([wants])


async def test_a_process_that_cannot_be_had_is_said_so(module):
    made = Registry(load_workers(module)).get("fails")
    assert (await made.perform(task(how="x"), FakeContext())).error.failure_class == "unavailable"


# --- checks and probes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (lambda data: data["failed"] == 0, True),
        (lambda data: 1, False),
        (lambda data: "yes", False),
        (lambda data: None, False),
        (lambda data: data["missing"], KeyError),
        (lambda data: data.attribute, AttributeError),
        (lambda: True, TypeError),
    ],
)
def test_only_true_counts(check, expected):
    @worker(checks={"named": check}, check=check)
    async def suite() -> None: ...

    (made,) = Registry([suite])
    for name, action in (("named", ""), ("", ""), ("named", "other action")):
        if isinstance(expected, bool):
            assert made.check(name, action, {"failed": 0}) is expected
        else:
            with pytest.raises(expected):
                made.check(name, action, {"failed": 0})
    with pytest.raises(LookupError, match="there is no check 'unknown'"):
        made.check("unknown", "", {"failed": 0})


@pytest.mark.parametrize("is_async", [True, False])
async def test_probes(is_async):
    done: dict[str, Any] = {"a": {"id": 1}, "b": None}

    def look(key: str) -> Any:
        return done[key]

    async def look_async(key: str) -> Any:
        return look(key)

    @worker(probe=look_async if is_async else look)
    async def order(key: str, amount: int = 1) -> None: ...

    (made,) = Registry([order])
    assert made.spec.offers[""].probe
    assert (await made.probe(task(key="a", amount=3), FakeContext())).data == {"id": 1}
    assert await made.probe(task(key="b"), FakeContext()) is None
    with pytest.raises(LookupError, match="cannot tell: KeyError"):
        await made.probe(task(key="c"), FakeContext())
    with pytest.raises(LookupError, match="cannot be called: parameter key"):
        await made.probe(task(), FakeContext())


async def test_without_a_probe_nobody_can_tell():
    @worker
    async def order() -> None: ...

    (made,) = Registry([order])
    with pytest.raises(LookupError, match="declares no probe"):
        await made.probe(task(), FakeContext())


# --- cost -----------------------------------------------------------------------------------


async def test_the_quick_way_is_short():
    @worker
    async def noop() -> None: ...

    (made,) = Registry([noop])
    context, todo, calls = FakeContext(), task(), 0
    await made.perform(todo, context)

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await made.perform(todo, context)
    finally:
        sys.setprofile(None)
    assert calls < 60, "each call of a quick function costs the engine as many calls"
