"""What every test may rely on: no network, no silent skip, one place for Hypothesis profiles.

Here too is decided what `make fast` runs: `QUICK` and nothing that is marked `slow` or `real`.
"""

import atexit
import gc
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Fixtures that more than one folder needs.
pytest_plugins = [
    "tests.support.coders",
    "tests.support.postgres",
    "tests.support.smollm",
    "tests.support.temporal",
]

HERE = Path(__file__).resolve().parent
QUICK = frozenset(
    {
        *("audit", "codec", "core", "engine", "golden", "planners", "testing"),
        *("test_architecture.py", "test_house.py", "test_settings.py", "test_settings_fleet.py"),
        "acceptance/test_cli_newcomers.py",
        "fleet/test_train.py",
        "stores/test_memory.py",
        "workers/test_function.py",
    }
)
"""Folders and files of tests that need no server and few processes; all others are slow. In a
folder what is marked `real` is slow too; a file that stands here by name is quick as a whole."""

# A deadline per example only measures how busy the machine is.
settings.register_profile("default", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=20)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)


class NetworkForbiddenError(RuntimeError):
    """A test tried to leave this machine. Serve what it needs on a loopback address."""


def pytest_configure() -> None:
    """Prepare every process that runs tests: the tests of one machine are those of any."""
    gc.disable()  # until all tests are collected, which makes objects that stay
    hear_signals()
    forbid_network()
    keep_to_ourselves()


def keep_to_ourselves() -> None:
    """Keep what Leadhand remembers of an account out of the account that runs the tests."""
    if "PYTEST_XDIST_WORKER" not in os.environ and "XDG_STATE_HOME" not in os.environ:
        folder = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="leadhand-state-")
        atexit.register(remove_own, folder, os.getpid())


def remove_own(folder: str, pid: int) -> None:
    """Remove a folder at the end of the process that made it, and not of a fork of it."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def hear_signals() -> None:
    """Undo ignored signals, which children inherit: `make test &` and nohup ignore some."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def forbid_network() -> None:
    """Let tests reach loopback only, so that none depends on the world outside."""
    connect = socket.socket.connect

    def guarded(sock: socket.socket, address: object) -> None:
        outside = sock.family in {socket.AF_INET, socket.AF_INET6} and isinstance(address, tuple)
        if outside and not is_loopback(str(address[0])):
            raise NetworkForbiddenError(f"connection to {address!r}")
        connect(sock, address)

    socket.socket.connect = guarded


def is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith(("127.", "::ffff:127."))


def is_slow(path: Path, *, real: bool = False) -> bool:
    """Whether tests in a file are slow because of where they stand, or start real processes."""
    if not path.is_relative_to(HERE):
        return False
    inside = path.relative_to(HERE)
    return inside.as_posix() not in QUICK and (real or inside.parts[0] not in QUICK)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what is slow where only the quick tests are wanted."""
    wanted = config.getoption("markexpr") == "not slow" and collection_path.suffix == ".py"
    return True if wanted and is_slow(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what stands outside the quick folders or starts real processes."""
    for item in items:
        if is_slow(item.path, real=item.get_closest_marker("real") is not None):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from scanning the collected tests again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A test that did not run is named, with its reason, where nobody can miss it."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section(f"NOT RUN: {len(skipped)}", sep="!", yellow=True, bold=True)
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")
