"""`@worker`: a function that plans may call; `@method`: a task split into smaller ones.

    @worker
    async def fetch_prices(competitor: str) -> list[Price]: ...

    @worker(name="tests", action="run", checks={"all_tests_pass": lambda data: data["failed"] == 0})
    def run_tests(suite: str = "all") -> dict: ...

The function stays what it was and can be called as before; `__leadhand__` carries what was
declared. Nothing is registered: a `Lead` is given the functions, or the module they stand in.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from leadhand.core import durations
from leadhand.core.catalog import Method
from leadhand.core.plan.model import RISKS
from leadhand.errors import UsageError
from leadhand.workers.sandbox.confinement import Confinement, declared

F = TypeVar("F", bound=Callable[..., Any])
Texts = str | Iterable[str]
Check = Callable[[Any], Any]

MARK = "__leadhand__"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z")


class WorkerOptions(TypedDict, total=False):
    """The keywords of `@worker`."""

    name: str
    """How plans call it; the function's name if not given. The same name with different
    actions makes one worker."""
    action: str
    """The one action it carries out; without it, it takes any."""
    actions: Iterable[str]
    """Several actions that this one function carries out."""
    description: str
    """For people and planners; the docstring if not given."""
    checks: Mapping[str, Check]
    """Functions of the result's data that success criteria may name; True means it holds."""
    check: Check
    """Says whether a result is good when a step has no criteria of its own."""
    risk: str
    """low, medium, high or critical."""
    effects: Texts
    """What it changes in the world; a sync function that changes something runs in a process
    of its own where it can, so that it can be killed."""
    reads: Texts
    """Paths and places that it reads."""
    writes: Texts
    """Paths and places that it writes."""
    idempotent: bool
    """Whether doing it twice is the same as doing it once."""
    probe: Callable[..., Any]
    """A function of the same parameters: the result if the thing happened, None if it did
    not; it raises when it cannot tell."""
    timeout: float | str
    """The longest that one attempt may take, in seconds or as a text: `"5 minutes"`."""
    est: float | str
    """How long it usually takes: 90, "5 minutes"."""
    cost: float
    """What one attempt may cost, in cost units; it is reserved in the budget while the attempt
    runs."""
    version: str
    """A digest of all it runs of its own project if not given; approvals are bound to it."""
    needs: Texts
    """Facts that must be true before it; the parameters without a default if not given."""
    gives: Texts
    """Facts that are true once it has succeeded; if not given, the name of the class it returns,
    where that is one of your own: `-> PriceTable` gives `price_table`."""
    drops: Texts
    """Facts that are no longer true after it."""
    isolate: Literal["thread", "process"] | None
    """Where a sync function runs."""
    sandbox: bool | Mapping[str, Iterable[str]]
    """Whether each call runs in a process of its own behind the walls of `confinement`: no network,
    nothing to write, no key, token or database in reach. A mapping says more: `writable`,
    `readable` (paths from the function's folder), `hosts`, `env`."""
    max_concurrency: int
    """The number of calls at once."""
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    """Exceptions that mean: the same call may work soon."""
    secrets: Texts
    """Environment variables whose values must not get into the log, whatever it returns, prints
    or raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration of one function by `@worker`."""

    function: Callable[..., Any]
    name: str
    actions: tuple[str, ...] = ("",)
    description: str = ""
    checks: Mapping[str, Check] = field(default_factory=dict)
    check: Check | None = None
    risk: str | None = None
    effects: tuple[str, ...] | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    idempotent: bool = False
    probe: Callable[..., Any] | None = None
    timeout_s: float | None = None
    est_s: float | None = None
    cost: float = 0.0
    version: str = ""
    needs: tuple[str, ...] | None = None
    """None: as the signature says."""
    gives: tuple[str, ...] | None = None
    """None: as the signature says."""
    drops: tuple[str, ...] = ()
    isolate: Literal["thread", "process"] | None = None
    sandbox: Confinement | None = None
    max_concurrency: int | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    secrets: tuple[str, ...] = ()
    scope: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Names of the function it was written in, for annotations given as text."""


@overload
def worker(function: F, /) -> F: ...


@overload
def worker(**options: Unpack[WorkerOptions]) -> Callable[[F], F]: ...


def worker(
    function: Callable[..., Any] | None = None, /, **options: Unpack[WorkerOptions]
) -> Callable[..., Any]:
    """Make `function` a worker; with `options`, return a decorator that does.

    `options` are the keywords of `WorkerOptions`. Return the function itself, so that it can be
    called as before. Raise `UsageError` for a malformed option or signature.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - annotations may name what the caller sees
    scope = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)

    def decorate(decorated: F) -> F:
        declaration = declare(decorated, options, scope)
        # Bound and static methods refuse attributes; what they wrap does not.
        setattr(getattr(decorated, "__func__", decorated), MARK, declaration)
        return decorated

    return decorate if function is None else decorate(function)


def declare(
    function: Callable[..., Any], options: WorkerOptions, scope: Mapping[str, Any] | None = None
) -> Declaration:
    """Read the options; UsageError names the first that makes no sense."""
    plain = getattr(function, "__func__", function)
    name = str(options.get("name") or getattr(plain, "__name__", ""))
    where = f"@worker on {name or plain!r}"
    if unknown := sorted(set(options) - set(WorkerOptions.__annotations__)):
        raise UsageError(f"{where}: there is no option {unknown[0]}=")
    if not callable(plain) or inspect.isclass(plain):
        raise UsageError(f"{where}: only functions and methods can be workers")
    if not NAME.match(name):
        raise UsageError(f"{where}: name: {name!r} is not a name; use letters, digits, _ . -")
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise UsageError(f"{where}: a generator cannot be a worker; return a list")
    checks = dict(options.get("checks") or {})
    for label, check in [*checks.items(), *[("check", each) for each in [options.get("check")]]]:
        if check is not None and (not callable(check) or inspect.iscoroutinefunction(check)):
            raise UsageError(f"{where}: {label}: a check is an ordinary function of the data")
    isolate = options.get("isolate")
    if isolate not in (None, "thread", "process"):
        raise UsageError(f'{where}: isolate: must be "thread", "process" or None')
    if isolate == "thread" and inspect.iscoroutinefunction(plain):
        raise UsageError(f"{where}: isolate: an async function cannot run in a thread")
    if isolate == "thread" and options.get("sandbox"):
        raise UsageError(f"{where}: sandbox: a thread has no walls; leave isolate out")
    retry_on = options.get("retry_on") or ()
    file = getattr(getattr(plain, "__code__", None), "co_filename", "")
    folder = Path(file).resolve().parent if file else Path.cwd()
    return Declaration(
        function=plain,
        name=name,
        actions=_actions(options, where),
        description=options.get("description") or inspect.cleandoc(plain.__doc__ or ""),
        checks=checks,
        check=options.get("check"),
        risk=_risk(options.get("risk"), where),
        effects=None if options.get("effects") is None else _texts(options, "effects", where),
        reads=_texts(options, "reads", where),
        writes=_texts(options, "writes", where),
        idempotent=bool(options.get("idempotent")),
        probe=_callable(options.get("probe"), where),
        timeout_s=_seconds(options.get("timeout"), "timeout", where),
        est_s=_seconds(options.get("est"), "est", where),
        cost=_cost(options.get("cost", 0.0), where),
        version=str(options.get("version") or ""),
        needs=_texts(options, "needs", where) if "needs" in options else None,
        gives=_texts(options, "gives", where) if "gives" in options else None,
        drops=_texts(options, "drops", where),
        isolate=isolate,
        sandbox=declared(options.get("sandbox"), folder, where),
        max_concurrency=_count(options.get("max_concurrency"), where),
        retry_on=retry_on if isinstance(retry_on, tuple) else (retry_on,),
        secrets=_texts(options, "secrets", where),
        scope=_needed(plain, scope or {}),
    )


def _needed(function: Any, scope: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the scope if annotations are texts that may refer to it; else an empty one."""
    annotations = getattr(function, "__annotations__", {}).values()
    return scope if any(isinstance(each, str) for each in annotations) else {}


def _actions(options: WorkerOptions, where: str) -> tuple[str, ...]:
    several = options.get("actions")
    if several is not None and "action" in options:
        raise UsageError(f"{where}: give action= or actions=, not both")
    if isinstance(several, str):
        several = [several]
    actions = tuple(several) if several is not None else (options.get("action", ""),)
    for action in actions:
        if not isinstance(action, str) or (action and not NAME.match(action)):
            raise UsageError(f"{where}: action: {action!r} is not a name")
    if not actions or len(set(actions)) < len(actions):
        raise UsageError(f"{where}: actions: give each action once")
    return actions


def _texts(options: WorkerOptions, key: str, where: str) -> tuple[str, ...]:
    value: Any = options.get(key, ())
    texts = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(each, str) and each for each in texts):
        raise UsageError(f"{where}: {key}: must be texts")
    return texts


def _risk(value: str | None, where: str) -> str | None:
    if value is not None and value not in RISKS:
        raise UsageError(f"{where}: risk: must be one of {', '.join(RISKS)}, not {value!r}")
    return value


def _seconds(value: float | str | None, key: str, where: str) -> float | None:
    if value is None:
        return None
    try:
        found = durations.seconds(value)
        if key == "timeout" and (short := durations.too_short(found)):
            raise ValueError(short)
    except ValueError as problem:
        raise UsageError(f"{where}: {key}: {problem}") from None
    return found


def _cost(value: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise UsageError(f"{where}: cost: must be a number that is not negative")
    return float(value)


def _count(value: int | None, where: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{where}: max_concurrency: must be a whole number from 1")
    return value


def _callable(value: Any, where: str) -> Callable[..., Any] | None:
    if value is not None and not callable(value):
        raise UsageError(f"{where}: probe: must be a function")
    return value  # type: ignore[no-any-return]


M = TypeVar("M", bound=Callable[..., Sequence[str]])

METHOD = "__leadhand_method__"


def method(fact: str, /, *, name: str = "") -> Callable[[M], M]:
    """Declare how to give `fact` in several smaller steps, when one worker finds it too complex.

        @method("table")
        def clean_in_parts():
            return ["split_raw", "clean_part*", "merge_table"]

    The function names workers, first to last; the last one gives the fact. Each worker is handed
    the result of the one before it; `name*` is one step for each item of a list, and the next
    worker gets the list of their results. The function may take facts by name, to decide by them.

    Nothing is registered: give the function to a `Lead` among its workers, or put it into their
    module. `name` is the name shown to people; the function's by default. Raise `UsageError`
    if `fact` is no name, or if the function cannot be called with facts alone.
    """
    if not isinstance(fact, str) or not fact:
        raise UsageError('@method: say which fact it gives, as in @method("table")')

    def decorate(function: M) -> M:
        setattr(function, METHOD, _declared(function, fact, name))
        return function

    return decorate


def method_of(given: Any) -> Method | None:
    """Return the method that `given` was declared as, or None."""
    found = getattr(given, METHOD, None)
    return found if isinstance(found, Method) else None


def _declared(function: Callable[..., Sequence[str]], fact: str, name: str) -> Method:
    label = name or getattr(function, "__name__", "")
    where = f"@method on {label or function!r}"
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise UsageError(f"{where}: a method is an ordinary function that names workers")
    kinds = inspect.Parameter
    takes = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY):
            raise UsageError(f"{where}: it takes facts by name; {parameter} cannot be filled")
        if parameter.default is kinds.empty:
            takes.append(parameter.name)
    return Method(fact=fact, name=label, takes=tuple(takes), stages=function)
