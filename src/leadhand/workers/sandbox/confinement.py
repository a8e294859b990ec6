"""`sandbox` of command and function workers: what their programs may write, read and reach.

    [workers.report]
    command = ["./report.py", "{month}"]
    sandbox = true

    [workers.fetch]
    command = ["./fetch.py", "{name}"]
    sandbox = {writable = ["cache"], hosts = ["api.example.com:443"]}

The walls are those of a fleet's agents (`sandbox.py`): the kernel's, not a promise of the program.

Laws
    1. Shown: the system's programs, the folder that the worker runs in, and what `readable` names.
       Writable: what `writable` names, and a home and a /tmp of its own that go with the attempt.
    2. Hidden, also where a folder that holds it is shown: whatever a process could decide with in
       the name of a person. That is the state folder with the database, its token, socket and
       anchors, the keys, and the folder of trust.
    3. No network but the listed hosts, by a proxy; not even the loopback of this machine.
    4. The environment is built from nothing, as for every command; a function gets the variables
       of its `secrets` and of `env`, nothing else of the host's.
    5. It fails closed: where there is no sandbox, the worker is unavailable. Its offer says so, so
       that lint, review and doctor find it before anything is approved.

A home folder is not shown as a whole: it holds the keys of everything else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadhand.core.wording import closest
from leadhand.errors import UsageError
from leadhand.workers.sandbox.sandbox import NoSandbox, Wrapped, choose

KEYS = ("writable", "readable", "hosts", "env")
DOOR = "worker"
FIX = "Install bubblewrap (apt install bubblewrap), or use Linux 6.12 or newer with namespaces."


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The `sandbox` of a worker."""

    folder: Path
    """What paths are relative to."""
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Such as `api.example.com:443`; exact, no patterns."""
    env: tuple[str, ...] = ()
    """Of a function: names of variables that it gets."""

    @classmethod
    def of(cls, value: Any, folder: Path) -> Confinement | None:
        """Read `true`, `false` or a table; ValueError is the end of a sentence."""
        if value is None or value is False:
            return None
        table = {} if value is True else value
        if not isinstance(table, Mapping):
            raise ValueError("must be true, false, or a table with writable, readable, hosts")  # noqa: TRY004 - the end of a sentence
        for key, given in table.items():
            if key not in KEYS:
                meant = closest(str(key), KEYS)
                raise ValueError(
                    f"has no key {key!r}" + (f"; did you mean {meant}?" if meant else "")
                )
            if isinstance(given, str) or not all(isinstance(x, str) and x for x in given):
                raise ValueError(f"{key} must be a list of texts")
        made = cls(folder=folder, **{key: tuple(given) for key, given in table.items()})
        made.refuse_missing()
        return made

    def refuse_missing(self) -> None:
        """ValueError where a path is not there, or a host cannot be one."""
        for key in ("writable", "readable"):
            for path in self.paths(getattr(self, key)):
                if not path.exists():
                    raise ValueError(f"{key}: there is no {path}")
                if _holds_home(path):
                    raise ValueError(f"{key}: {path} holds your home folder, with the keys in it")
        from leadhand.workers.sandbox.proxy import Proxy

        try:
            Proxy(self.hosts)
        except ValueError as problem:
            raise ValueError(f"hosts: {problem}") from None

    def paths(self, names: Iterable[str]) -> list[Path]:
        """Paths of the declaration, absolute."""
        return [self.folder / Path(name).expanduser() for name in names]

    def __str__(self) -> str:
        reaches = f"reaches only {', '.join(self.hosts)}" if self.hosts else "no network"
        writes = f"writes only {', '.join(self.writable)}" if self.writable else "writes nothing"
        reads = f"; reads also {', '.join(self.readable)}" if self.readable else ""
        given = f"; gets {', '.join(self.env)}" if self.env else ""
        return f"{reaches}; {writes}{reads}{given}"

    def missing(self) -> str:
        """Return why this machine has no such sandbox, with a fix; empty if it has one."""
        try:
            choose(doors={DOOR: Path()} if self.hosts else None)
        except NoSandbox as error:
            said = str(error).partition("(")[2].rpartition(")")[0] or str(error)
            return f"its sandbox cannot be had here ({said}). Fix: {FIX}"
        return ""

    @asynccontextmanager
    async def around(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        *,
        hidden: Sequence[Path] = (),
        readable: Sequence[Path] = (),
    ) -> AsyncIterator[Wrapped]:
        """Yield what to start in place of a program; its home and its door last as long as this.

        Raise `NoSandbox` if the sandbox is not available, or would keep nothing out.
        """
        from leadhand.workers.sandbox.proxy import Proxy

        if _holds_home(cwd):
            raise NoSandbox(f"{cwd} holds your home folder, which a sandbox does not show")
        async with AsyncExitStack() as stack:
            doors = {}
            if self.hosts:
                proxy = await stack.enter_async_context(Proxy(self.hosts))
                doors = {DOOR: proxy.socket}
            box = await asyncio.to_thread(choose, doors=doors)
            home = Path(tempfile.mkdtemp(prefix="leadhand-box-"))
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            own = {name: value for name, value in env.items() if name not in ("HOME", "TMPDIR")}
            yield box.through(DOOR).wrap(
                argv,
                cwd,
                home=home,
                network=bool(self.hosts),
                env=own,
                readable=[*self.paths(self.readable), *readable],
                writable=self.paths(self.writable),
                hidden=[*hidden, cwd / ".leadhand"],
                fixed=True,
            )


def program_folders(program: str, cwd: Path, path: str) -> list[Path]:
    """Return what a program needs to start: itself, and its virtual environment."""
    found = str(cwd / program) if os.sep in program else shutil.which(program, path=path)
    if not found or not Path(found).exists():
        return []
    place = Path(found).absolute()
    shown, root = [place], place.parent.parent
    config = root / "pyvenv.cfg"
    if config.is_file() and not _holds_home(root):
        shown.append(root)
        lines = config.read_text(encoding="utf-8", errors="replace").splitlines()
        homes = [line.partition("=")[2].strip() for line in lines if line.startswith("home")]
        base = Path(homes[0]).parent if homes else root
        shown += [base] if base.is_dir() and not _holds_home(base) else []
    return shown


def python_folders() -> list[Path]:
    """Return what a child Python reads: its installation, and the folders of modules."""
    places = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[3])]
    places += [entry for entry in sys.path if entry]
    found = [Path(each).absolute() for each in dict.fromkeys(places)]
    return [path for path in found if path.exists() and not _holds_home(path)]


def _holds_home(path: Path) -> bool:
    home = os.environ.get("HOME", "")
    return bool(home) and Path(home).resolve().is_relative_to(path.resolve())


def declared(value: Any, folder: Path, where: str) -> Confinement | None:
    """Read `sandbox=` of a decorator. Raise `UsageError` with the mistake."""
    try:
        return Confinement.of(value, folder)
    except ValueError as problem:
        raise UsageError(f"{where}: sandbox: {problem}") from None
