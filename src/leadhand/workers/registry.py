"""The workers of one host: collected, merged by name, described.

What may be given: functions with `@worker`, objects whose methods have it, modules that hold
such functions, and anything that fulfils the Worker protocol. Functions that share a name
become one worker with several actions; everything else must have a name of its own. Functions
with `@method` are kept apart, for the planner.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from leadhand.core.catalog import Catalog, Method
from leadhand.errors import UsageError
from leadhand.workers.caller import NAME as CALLER
from leadhand.workers.caller import Caller
from leadhand.workers.coverage import Coverage
from leadhand.workers.functions.decorator import MARK, Declaration, method_of
from leadhand.workers.functions.snapshot import load_module
from leadhand.workers.functions.threads import Threads
from leadhand.workers.functions.worker import FunctionAction, FunctionWorker
from leadhand.workers.human import NAME as HUMAN
from leadhand.workers.human import Human

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.models.registry import ModelRegistry
    from leadhand.ports import Worker
    from leadhand.workers.processes.runner import Processes


DIRECT = "direct"
"""The agent that is there without being declared."""


class Registry:
    """Workers by name."""

    def __init__(
        self,
        workers: Iterable[Any] = (),
        *,
        processes: Processes | None = None,
        threads: Threads | None = None,
    ) -> None:
        self.threads = threads or Threads()
        self.hidden: tuple[Path, ...] = ()
        """What no worker with a sandbox may see: keys, the state folder, trust."""
        self.methods: list[Method] = []
        """Ways to split what is too complex, for planners that know how."""
        self.left_out: dict[str, str] = {}
        """Workers that were declared and cannot be used, with the reason: for views."""
        self._workers: dict[str, Worker] = {}
        self._book: ModelRegistry | None = None
        self._stronger: list[str] = []
        """Those that stand behind another of a weaker tier."""
        functions: dict[str, list[FunctionAction]] = {}
        for given in workers:
            for each in _collected(given):
                if isinstance(each, Method):
                    self.methods += [each] if each not in self.methods else []
                elif isinstance(each, FunctionAction):
                    functions.setdefault(each.declaration.name, []).append(each)
                else:
                    self._add(each)
        made = [
            FunctionWorker(name, _once(actions), threads=self.threads)
            for name, actions in functions.items()
        ]
        beside = {path: name for each in made for path, name in each.files.items()}
        secrets = frozenset(name for each in made for name in each.secret_names)
        for each in made:
            each.beside, each.secrets_beside = beside, secrets
            self._add(each)
        self._undeclared: dict[str, Worker] = {HUMAN: Human(), CALLER: Caller()}
        """People, and the agent that drives a run."""
        if processes is not None:
            self.attach(processes)

    def _add(self, worker: Worker) -> None:
        name = worker.spec.name
        if name in self._workers:
            raise UsageError(f"worker {name!r} is declared twice; give one another name")
        self._workers[name] = worker

    def add(self, workers: Iterable[Worker]) -> None:
        """Workers that are made of others, and so come after them."""
        for worker in workers:
            self._add(worker)

    def attach(self, processes: Processes) -> None:
        """Give the workers that start programs the means to do so."""
        for worker in self._workers.values():
            attach = getattr(worker, "attach", None)
            if attach is not None:
                attach(processes)

    async def detach(self) -> None:
        """Have the workers that keep a connection for the host's life hang up."""
        for worker in self._workers.values():
            detach = getattr(worker, "detach", None)
            if detach is not None:
                await detach()

    def use_models(self, book: ModelRegistry) -> None:
        """Tell the workers that ask models which models there are.

        An agent of a tier with a stronger one is registered a second time, with the stronger
        models.
        """
        self.leave_out(self._stronger)
        self._stronger.clear()
        self._book = book
        for worker in list(self._workers.values()):
            self._told(worker, book)

    def _told(self, worker: Worker, book: ModelRegistry) -> None:
        use = getattr(worker, "use_models", None)
        if use is not None:
            use(book)
            stronger = getattr(worker, "stronger", lambda: None)()
            if stronger is not None:
                self._add(stronger)
                self._stronger.append(stronger.spec.name)

    @property
    def agents(self) -> list[Any]:
        """Return the workers that ask models."""
        return [each for each in self._workers.values() if each.spec.kind == "agent"]

    def get(self, name: str) -> Worker | None:
        """Return a worker by name.

        People, the agent that drives a run, and the agent of direct mode need no declaration.
        """
        found = self._workers.get(name) or self._undeclared.get(name)
        return self.direct() if found is None and name == DIRECT else found

    def direct(self) -> Worker | None:
        """Return the agent of direct mode, or None: the tier `hand`, with all functions as tools.

        From then on it is one of the workers: recorded and reviewed as any other.
        """
        if DIRECT in self._workers or self._book is None or "hand" not in self._book.tiers:
            return self._workers.get(DIRECT)
        from leadhand.workers.agent import Agent
        from leadhand.workers.agent.tools import worker_tools

        functions = [each for each in self._workers.values() if each.spec.kind == "function"]
        agent = Agent(DIRECT, tools=[tool for each in functions for tool in worker_tools(each)])
        self._add(agent)
        self._told(agent, self._book)
        return agent

    def leave_out(self, names: Iterable[str]) -> None:
        """Forget some workers: others do their work here."""
        for name in names:
            self._workers.pop(name, None)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def __len__(self) -> int:
        return len(self._workers)

    def catalog(self) -> Catalog:
        """Return the descriptions of all workers, and of those that need no declaration."""
        specs = [worker.spec for worker in self._workers.values()]
        more = [w.spec for name, w in self._undeclared.items() if name not in self._workers]
        return Catalog([*specs, *more])

    def coverage(self) -> dict[str, Coverage]:
        """Return what the version of each worker covers; by default its version alone."""
        return {
            worker.spec.name: getattr(worker, "coverage", None)
            or Coverage(values={"declaration": worker.spec.version})
            for worker in self._workers.values()
        }

    async def close(self) -> None:
        """Close them all."""
        for worker in self._workers.values():
            await worker.close()


def load_workers(name: str) -> list[Any]:
    """Return the workers of a module, or of a Python file given by its path."""
    module = load_module(name)
    found = list(_from_module(module))
    if not found:
        raise UsageError(f"{name}: holds no workers; mark functions with @worker")
    return found


def _collected(given: Any) -> Iterator[FunctionAction | Worker | Method]:
    if isinstance(given, ModuleType):
        for each in _from_module(given):
            yield from _collected(each)
    elif (method := method_of(given)) is not None:
        yield method
    elif isinstance(getattr(given, MARK, None), Declaration):
        yield FunctionAction(getattr(given, MARK), given)
    elif inspect.isclass(given):
        raise UsageError(
            f"{given.__name__}: is a class; give an instance of it, {given.__name__}()"
        )
    elif hasattr(given, "perform") and hasattr(given, "spec"):
        yield given
    else:
        methods = list(_methods(given))
        if not methods:
            what = getattr(given, "__name__", None) or f"a {type(given).__name__}"
            raise UsageError(f"{what}: is no worker; mark the function with @worker")
        yield from methods


def _methods(instance: Any) -> Iterator[FunctionAction]:
    for name in dir(type(instance)):
        method = inspect.getattr_static(type(instance), name)
        declaration = getattr(getattr(method, "__func__", method), MARK, None)
        if isinstance(declaration, Declaration):
            yield FunctionAction(declaration, getattr(instance, name))


def _from_module(module: ModuleType) -> Iterator[Any]:
    """Yield functions and workers in the order of the module, imported ones included."""
    seen: set[int] = set()
    for value in vars(module).values():
        marked = isinstance(getattr(value, MARK, None), Declaration) or method_of(value) is not None
        made = not inspect.isclass(value) and hasattr(value, "perform") and hasattr(value, "spec")
        if (marked or made) and not inspect.ismodule(value) and id(value) not in seen:
            seen.add(id(value))
            yield value


def _once(actions: list[FunctionAction]) -> list[FunctionAction]:
    """Count a function that is given twice, say alone and with its module, once."""
    seen: dict[Any, FunctionAction] = {}
    for each in actions:
        seen.setdefault(each.function, each)
    return list(seen.values())
