"""The sandbox of an agent: writes its slot and a private home, reads the system, no more.

Agents run code that nobody has read. So they are not trusted to keep to their slot; they are
kept there by the kernel. Workers with `sandbox` run behind the same walls (`confinement.py`): the
project is shown to them and not theirs to write, and what they may decide with is hidden.

Laws
    1. Writable: the slot, the home with its TMPDIR, and what vanishes with the agent (/tmp).
       Readable: the system's programs, a few named files of /etc, and what is named in
       `readable`. Nothing else of the disk: not the user's home, not another slot, no socket.
    2. The environment is built from nothing: what is given, and where the agent lives.
    3. There is no network, or there is one door: a local proxy (`proxy.py`) that lets through what
       is on its list. It is a Unix socket; a forwarder on the agent's own loopback leads there, so
       the agent has no network namespace with a way out in either case. Each coder has a door of
       its own, for behind a door may be its key; so have set-up commands, and a planner.
    4. No privileges, none to be gained; no signal and no debugger reaches a process outside.
    5. It fails closed: where no sandbox can be had, nothing is run. `none` is a sandbox only for
       those who ask for it by name.

Two kinds, tried for real before they are chosen:

    bubblewrap  namespaces: what is not mounted is not there; other processes are not to be seen.
    landlock    the kernel's own rules (Linux 6.12 or newer, which keep signals in), a seccomp
                filter for what they leave open (sockets), and, where the kernel lets this user
                have them, namespaces of network, mounts and processes. Files outside can then still
                be stat'ed, not read. Without namespaces a network can only be "none at all", not
                even loopback, and the modes and times of the user's own files are not protected.

Both end in `inside.py`, which sets the limits and becomes the agent. TERM reaches the agent, not
the sandbox around it, so that a grace is one; KILL ends both, and `--die-with-parent` and the
supervisor see to it that neither outlives the host.

Limits are those of `setrlimit`: for each process, and the number of processes is not limited for
root. All processes of an agent together are looked at from outside
(`fleet/workspace/process_limits.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from leadhand.errors import LeadhandError

Kind = Literal["bubblewrap", "landlock", "none"]
KINDS: tuple[Kind, ...] = ("bubblewrap", "landlock")
INSIDE = Path(__file__).with_name("inside.py")
PORT = 3128
SETUP, PLANNER = "/setup", "/planner"
"""Doors that are no coder's: none has such a name."""
SOCKET = "/run/leadhand/proxy.sock"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "group",
    "hosts",
    "java-*/*.cfg",
    "java-*/*.properties",
    "java-*/security",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "maven/logging",
    "maven/m2.conf",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
"""Of /etc only what programs need: it holds secrets too (private keys beside the certificates,
passwords of servers in Maven's settings), and root may read them."""
TMP_BYTES = 1 << 30
TRIAL_S_MAX = 20.0
FIX = (
    "install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap), "
    'or run on Linux 6.12 or newer, or say sandbox = "none" if agents may do what you may'
)


class NoSandbox(LeadhandError):
    """No agent can be kept in its place here, so none is run."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """For each process; 0 is no limit but the system's."""

    memory_bytes: int = 8 << 30
    """Of private writable memory: agents reserve far more addresses than they use, so addresses
    are not limited. Claude Code needs 1 GiB to begin."""
    files: int = 16_384
    processes: int = 4_096
    file_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The command to start instead of the program."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """How programs are run in their slots. Made by `choose`, which has tried it."""

    kind: Kind
    readable: tuple[Path, ...] = ()
    """Shown to every program besides the system: tool chains, the hub, a cache of packages."""
    limits: ProcessLimits = ProcessLimits()
    proxy: Path | None = None
    """The socket of the proxy, for programs that may use the network."""
    doors: Mapping[str, Path] = field(default_factory=dict, hash=False)
    """Such sockets by the names of those they are for (`through`)."""
    bwrap: str = ""
    """The program of bubblewrap; empty: the one on our PATH."""

    @property
    def gateway(self) -> str:
        """Return the proxy's address as a program inside sees it; empty if there is none."""
        return f"http://127.0.0.1:{PORT}" if self.proxy and self.kind != "none" else ""

    def through(self, name: str) -> Sandbox:
        """Return the same sandbox with the door for `name`; by default with its own proxy."""
        return replace(self, proxy=self.doors.get(name, self.proxy), doors={})

    def wrap(  # noqa: PLR0913 - each with a default
        self,
        argv: Sequence[str],
        slot: Path,
        *,
        home: Path,
        network: bool = False,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        fixed: bool = False,
    ) -> Wrapped:
        """Return the same program inside the sandbox; create the home if it is not there.

        `writable` may be written besides. With `fixed` the slot is shown, not writable. `hidden`
        can be neither read nor written, even if a folder that holds it is shown.
        """
        if not argv:
            raise ValueError("there is no program in the argument list")
        slot, home = _folder(slot), _private(home)
        given = {
            "PATH": PATH,
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "LANG": "C.UTF-8",
            **(self._proxied() if network else {}),
            **(env or {}),
        }
        if self.kind == "none":
            return Wrapped(tuple(argv), given, slot)
        if network and self.proxy is None:
            raise NoSandbox("a program may use the network, and no proxy leads there")
        shown = tuple(_shown([*self.readable, *readable]))
        writes = [*([] if fixed else [slot]), *(path.resolve() for path in writable), home]
        shown = (*shown, slot) if fixed else shown
        covered = _covered(hidden, [*shown, *writes])
        forward = self.proxy if network else None
        if self.kind == "bubblewrap":
            program = self.bwrap or which_bwrap()
            words = [program, *_bubblewrap(program, slot, writes, shown, covered, forward)]
            spec = self._spec(SOCKET if forward else "")
            # A signal that is ignored stays so across exec: TERM passes bubblewrap by.
            outer = ["/bin/sh", "-c", 'trap "" TERM; exec "$@"', "sh", *words]
        else:
            reads = [*_system(), *map(str, shown)]
            places = {"read": reads, "write": [*map(str, writes)], "hide": [*map(str, covered)]}
            spec = self._spec(str(forward or ""), **places)
            outer = []
        return Wrapped((*outer, *_inside(spec), *argv), given, slot)

    def _proxied(self) -> dict[str, str]:
        if not self.gateway:
            return {}
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        proxied = {spelled: self.gateway for name in names for spelled in (name, name.lower())}
        proxied |= {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
        return {**proxied, "JAVA_TOOL_OPTIONS": _java_proxy(self.gateway)}

    def _spec(self, forward: str, **landlock: list[str]) -> str:
        limits = self.limits
        spec = {
            "limits": [limits.memory_bytes, limits.files, limits.processes, limits.file_bytes],
            "forward": [PORT, forward] if forward else None,
            "landlock": landlock or None,
        }
        return json.dumps(spec, separators=(",", ":"))


def _java_proxy(gateway: str) -> str:
    """Return the options that lead Java through a proxy: it reads none of the variables."""
    found = urlsplit(gateway)
    words = [
        f"-D{scheme}.proxy{key}={value}"
        for scheme in ("http", "https")
        for key, value in (("Host", found.hostname), ("Port", found.port))
    ]
    # Maven from 3.9 on takes the options of Java only if it is told to.
    return " ".join([*words, "-Daether.connector.http.useSystemProperties=true"])


def choose(
    wanted: str = "auto",
    *,
    readable: Sequence[Path] = (),
    limits: ProcessLimits | None = None,
    doors: Mapping[str, Path] | None = None,
    bwrap: str = "",
) -> Sandbox:
    """Return the wanted sandbox, or the best available. Raise `NoSandbox` with a fix."""
    if wanted not in ("auto", *KINDS, "none"):
        raise NoSandbox(f"there is no sandbox {wanted!r}: auto, bubblewrap, landlock or none")
    kinds: tuple[Kind, ...] = KINDS if wanted == "auto" else (wanted,)  # type: ignore[assignment]
    troubles = []
    for kind in kinds:
        made = Sandbox(
            kind=kind,
            readable=tuple(readable),
            limits=limits or ProcessLimits(),
            doors=dict(doors or {}),
            bwrap=bwrap,
        )
        trouble = "" if kind == "none" else trial(kind, bwrap, network=bool(doors))
        if not trouble:
            return made
        troubles.append(f"{kind}: {trouble}")
    raise NoSandbox(f"agents cannot be kept in their slots ({'; '.join(troubles)}); {FIX}")


def probe() -> str:
    """Return in one line which sandbox is available, for `leadhand doctor`."""
    said = []
    for kind in KINDS:
        trouble = trial(kind, network=True)
        alone = trouble and not trial(kind, network=False)
        works = "works, without a network" if alone else "works"
        said.append(f"{kind}: {works if alone or not trouble else trouble}")
    return "; ".join(said)


@lru_cache
def trial(kind: Kind, bwrap: str = "", *, network: bool) -> str:
    """Run a program that does nothing in the sandbox; return the error, or an empty text."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="leadhand-") as folder:
        slot = Path(folder, "slot")
        slot.mkdir()
        door = Path(folder, "door") if network else None
        if door:
            door.touch()
        made = Sandbox(kind=kind, proxy=door, bwrap=bwrap)
        try:
            tried = made.wrap(["/bin/true"], slot, home=Path(folder, "home"), network=network)
            code, err = _tried(tried)
        except (OSError, NoSandbox, subprocess.TimeoutExpired) as error:
            return str(error)
    said = err.decode(errors="replace").strip().splitlines()
    return "" if code == 0 else (said or [f"ended with {code}"])[-1][:300]


def _tried(wrapped: Wrapped) -> tuple[int, bytes]:
    """Return exit code and output; end the forwarder, which outlives the program."""
    with subprocess.Popen(
        wrapped.argv,
        cwd=wrapped.cwd,
        env=wrapped.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _out, err = process.communicate(timeout=TRIAL_S_MAX)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, err


def which_bwrap() -> str:
    """Return the path of bubblewrap on our own PATH. Raise `NoSandbox` if it is not installed."""
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox("bubblewrap is not installed")
    return program


@lru_cache
def _options(program: str) -> frozenset[str]:
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    return frozenset(re.findall(r"--[a-z-]+", done.stdout + done.stderr))


def _bubblewrap(
    program: str,
    slot: Path,
    writes: Sequence[Path],
    shown: Sequence[Path],
    hidden: Sequence[Path],
    door: Path | None,
) -> list[str]:
    known = _options(program)
    words = ["--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL"]
    words += [word for word in ("--disable-userns",) if word in known]
    for name in SYSTEM:
        if Path(name).is_symlink():
            words += ["--symlink", str(Path(name).readlink()), name]
        else:
            words += ["--ro-bind-try", name, name]
    for name in _etc():
        words += ["--ro-bind", name, name]
    # Root owns the switches of the kernel there, with or without privileges.
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    words += ["--size", str(TMP_BYTES)] if "--size" in known else []
    words += ["--tmpfs", "/tmp"]  # noqa: S108 - one of its own
    folders: list[Path] = []
    for path in (Path(sys.base_prefix), INSIDE, *shown):
        if any(path.is_relative_to(folder) for folder in folders):
            continue  # it is there; and a link within a folder cannot be mounted over
        words += ["--ro-bind", str(path), str(path)]
        folders += [path] if path.is_dir() else []
    for path in writes:
        words += ["--bind", str(path), str(path)]
    for path in hidden:
        if path.is_dir():
            words += ["--tmpfs", str(path), "--remount-ro", str(path)]
        else:
            words += ["--ro-bind", os.devnull, str(path)]
    if door is not None:
        words += ["--ro-bind", str(door), SOCKET]
    return [*words, "--remount-ro", "/", "--chdir", str(slot), "--"]


def _inside(spec: str) -> list[str]:
    """Our last program before the agent, run by this Python, wherever it is installed."""
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    return [str(python), "-I", "-S", str(INSIDE), spec]


def _system() -> list[str]:
    here = [name for name in SYSTEM if Path(name).exists()]
    return [*here, *_etc(), sys.base_prefix, str(INSIDE)]


def _etc() -> list[str]:
    return [str(path) for name in ETC for path in sorted(Path("/etc").glob(name)) if path.exists()]


def _shown(paths: Sequence[Path]) -> list[Path]:
    """Return the paths that exist, as given and resolved."""
    absolute = [Path(os.path.abspath(path)) for path in paths if path.exists()]  # noqa: PTH100
    return list(dict.fromkeys([*absolute, *(path.resolve() for path in absolute)]))


def _covered(hidden: Sequence[Path], seen: Sequence[Path]) -> list[Path]:
    """Return the hidden paths that would be visible, outer ones only.

    Raise `NoSandbox` if everything would be hidden.
    """
    found: list[Path] = []
    for path in sorted({each.resolve() for each in hidden if each.exists()}):
        if any(each.is_relative_to(path) for each in seen):
            raise NoSandbox(f"{path} is hidden from programs, and this one is to run inside of it")
        inside = any(path.is_relative_to(each) for each in seen)
        if inside and not any(path.is_relative_to(each) for each in found):
            found.append(path)
    return found


def _folder(path: Path) -> Path:
    if path.is_symlink() or not path.is_dir():
        raise NoSandbox(f"{path} is no folder to work in")
    return path.resolve()


def _private(home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    if home.is_symlink():
        raise NoSandbox(f"{home} is no home for an agent")
    home.chmod(0o700)
    temporary = home / "tmp"
    if temporary.is_symlink() or (temporary.exists() and not temporary.is_dir()):
        temporary.unlink()
    temporary.mkdir(exist_ok=True)
    return home.resolve()
