"""The one place that runs git.

Git reads commands out of files: hooks, filters, file system monitors, aliases, pagers, helpers,
included configuration. Agents write files. So:

Laws
    1. Git is pointed at repositories that we made, by name (``--git-dir``), never at what it might
       find by looking around. An agent's ``.git`` is data and is never opened by our git.
    2. The environment is built from nothing, system and home configuration are not read, and what
       could start a program is switched off on the command line, which wins over any file.
    3. A call has no terminal and no prompt, a time limit, a limit on what it may print, and a
       process group of its own. It is asked to end before it is killed: git takes its lock files
       away when asked, and leaves them behind when killed.
    4. What a failure means is for the caller to say; here it is a ``GitFailed`` with the exit
       code and the end of what git said. ``full`` tells that the disk had no room. A machine
       that has no process, descriptor or memory left for git is one, too.
    5. File names are bytes. They are handed around as text with surrogate escapes; ``shown`` makes
       a text of one that can be printed and stored.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leadhand.errors import LeadhandError, UsageError

OLDEST = (2, 38)
"""The first git that merges in memory (`merge-tree --write-tree`)."""
TIME_S = 120.0
GRACE_S = 3.0
OUTPUT_BYTES_MAX = 256 << 20
SAID_BYTES_MAX = 16 << 10
AT_ONCE = 8
OF_THE_FOLDER = (FileNotFoundError, NotADirectoryError, PermissionError)
"""What starting git in a folder comes to that is gone, or closed."""

SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=false",
    "core.sshCommand=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.alternateRefsCommand=:",
    "core.quotePath=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.fsync=objects,reference",
    "core.fsyncMethod=batch",
    "credential.helper=",
    "diff.external=",
    "diff.renames=false",
    "merge.directoryRenames=false",
    "merge.renormalize=false",
    "commit.gpgSign=false",
    "gc.auto=0",
    "gc.autoDetach=false",
    "maintenance.auto=false",
    "receive.autogc=false",
    "fetch.prune=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "protocol.ext.allow=never",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "index.threads=1",
    "advice.detachedHead=false",
)

_FULL = re.compile(rb"no space left on device|disk quota exceeded|file too large", re.IGNORECASE)


class GitFailed(LeadhandError):
    """Git failed: trouble of the machine or of the repository."""

    def __init__(
        self, arguments: Sequence[str], code: int | None, err: str, *, begun: bool = True
    ) -> None:
        self.arguments, self.code, self.err = tuple(arguments), code, err
        ended = "did not end in time" if code is None else f"ended with {code}"
        ended = ended if begun else "could not be run"
        super().__init__(f"git {arguments[0]} {ended}: {err.strip() or 'it said nothing'}")

    @property
    def full(self) -> bool:
        """Return whether the disk was full."""
        return bool(_FULL.search(self.err.encode(errors="replace"))) or self.code == -signal.SIGXFSZ


@dataclass(frozen=True, slots=True)
class GitResult:
    """The exit code and output of a call."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return name_of(self.out).strip()

    def names(self) -> list[str]:
        """Return the output as a list of names, each ended by a NUL."""
        return [name_of(name) for name in self.out.split(b"\0") if name]


@dataclass(frozen=True, slots=True)
class Git:
    """Git on one repository: its folder, and the file that replaces all home configuration.

    The file exists because configuration on the command line does not reach the other end of a
    fetch. `held` are descriptors each call inherits: if the lock on one of them is free, no git of
    an earlier process is still at work.
    """

    folder: Path
    configuration: Path
    held: tuple[int, ...] = ()
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def __call__(
        self,
        *arguments: str,
        stdin: bytes = b"",
        files: Path | None = None,
        index: Path | None = None,
        env: Mapping[str, str] | None = None,
        codes: Sequence[int] = (0,),
        time_s: float = TIME_S,
    ) -> GitResult:
        """Run it; an exit code that is not expected is a `GitFailed`.

        `files` is the folder of files it works on, `index` the index it uses for them.
        """
        variables = environment(self.configuration)
        if index is not None:
            variables["GIT_INDEX_FILE"] = str(index)
        if files is not None:
            variables["GIT_WORK_TREE"] = str(files)
        variables.update(env or {})
        command = [program(), f"--git-dir={self.folder}"]
        for setting in SETTINGS:
            command += ["-c", setting]
        try:
            async with self.room:
                said = await _run(
                    [*command, *arguments], files, variables, stdin, time_s, self.held
                )
        except OSError as error:
            if files is not None and isinstance(error, OF_THE_FOLDER):
                raise  # the owner of the files handles it
            raise GitFailed(arguments, None, str(error), begun=False) from error
        if said is None:
            raise GitFailed(arguments, None, f"no answer within {time_s:g} s, or too much of it")
        if said.code not in codes:
            raise GitFailed(arguments, said.code, said.err)
        return said


def environment(configuration: Path) -> dict[str, str]:
    """Return the whole environment of git, made from nothing."""
    nobody = "Leadhand"
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/dev/null",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(configuration),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_GRAFT_FILE": "/nonexistent",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_ASKPASS": "false",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_AUTHOR_NAME": nobody,
        "GIT_AUTHOR_EMAIL": "leadhand@localhost",
        "GIT_COMMITTER_NAME": nobody,
        "GIT_COMMITTER_EMAIL": "leadhand@localhost",
    }


def program() -> str:
    """Return the path of git."""
    found = shutil.which("git")
    if found is None:
        raise UsageError("git is not installed, or not in PATH")
    return found


async def check_version() -> str:
    """Return the version of git. Raise `UsageError` if it is too old."""
    env = environment(Path(os.devnull))
    try:
        said = await _run([program(), "version"], None, env, b"", TIME_S, ())
    except OSError as error:
        raise GitFailed(("version",), None, str(error), begun=False) from error
    found = re.search(r"(\d+)\.(\d+)\S*", said.text if said else "")
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        version = found[0] if found else "unknown"
        raise UsageError(f"git {'.'.join(map(str, OLDEST))} or newer is needed; this is {version}")
    return found[0]


def name_of(raw: bytes) -> str:
    """Return the bytes of a file name as text; `raw_of` returns the same bytes again."""
    return raw.decode("utf-8", "surrogateescape")


def raw_of(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def printable_name(name: str) -> str:
    """Return a file name that can be printed and stored, with unusual characters escaped."""
    plain = raw_of(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


def lines_of(names: Iterable[str]) -> bytes:
    """Names for a call that reads them ended by NULs."""
    return b"".join(raw_of(name) + b"\0" for name in names)


async def _run(
    command: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str],
    stdin: bytes,
    time_s: float,
    held: tuple[int, ...],
) -> GitResult | None:
    """None: it took too long or said too much, and is gone."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd or "/",
        env=env,
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        pass_fds=held,
    )
    talk = asyncio.ensure_future(_talk(process, stdin))
    try:
        async with asyncio.timeout(time_s):
            out, err = await asyncio.shield(talk)
            code = await process.wait()
    except (TimeoutError, _TooMuch):
        return None
    else:
        return GitResult(code, out, name_of(err[-SAID_BYTES_MAX:]))
    finally:
        talk.cancel()
        await _end(process, talk)


class _TooMuch(Exception):
    """The output exceeds the limit."""


async def _talk(process: asyncio.subprocess.Process, stdin: bytes) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    out, err, _ = await asyncio.gather(
        _read(process.stdout, OUTPUT_BYTES_MAX, keep_last=False),
        _read(process.stderr, SAID_BYTES_MAX, keep_last=True),
        _feed(process, stdin),
    )
    return out, err


async def _read(stream: asyncio.StreamReader, limit: int, *, keep_last: bool) -> bytes:
    got = bytearray()
    while chunk := await stream.read(1 << 16):
        got += chunk
        if len(got) > limit:
            if not keep_last:
                raise _TooMuch
            del got[:-limit]
    return bytes(got)


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _end(
    process: asyncio.subprocess.Process, talk: asyncio.Future[tuple[bytes, bytes]]
) -> None:
    """End the process and see it gone, even if we are cancelled meanwhile."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
    with contextlib.suppress(asyncio.CancelledError, _TooMuch):
        await talk


# Commits of a repository.


# Trailers of a commit: the task and attempt it belongs to, in lines that programs can read.
#
# The trailers are the last paragraph of a message. They are facts that recovery relies on, and the
# rest of a message is a stranger's text: a line in it that looks like one of ours is quoted, so
# that nobody can claim a task for another by writing so.


OURS = ("Leadhand-", "Assisted-by")
SUBJECT_MAX = 72
BODY_MAX = 20_000
VALUE_MAX = 500

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_LINE = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (.*)")
_CLAIM = re.compile(rf"(?im)^(?=\s*(?:{'|'.join(map(re.escape, OURS))})[\w-]*\s*:)")


def message_of(text: str, trailers: Mapping[str, str]) -> str:
    """Return a commit message: a subject, a body, and the trailers."""
    plain = "".join(c for c in text.strip()[:BODY_MAX] if c in "\n\t" or c.isprintable())
    subject, _, body = plain.partition("\n")
    if len(subject) > SUBJECT_MAX:
        subject, body = _shortened(subject), f"{subject}\n{body}"
    wanted = "\n".join(f"{_named(name)}: {_value(value)}" for name, value in trailers.items())
    said = [_quoted(part.strip("\n")) for part in (subject or "A change", body) if part.strip()]
    return "\n\n".join([*said, *([wanted] if wanted else [])]) + "\n"


def trailers_of(message: str) -> dict[str, str]:
    """Return the trailers of a message: its last paragraph, if it holds nothing else."""
    last = message.strip().rsplit("\n\n", 1)[-1]
    found = [_LINE.fullmatch(line) for line in last.splitlines()]
    return {line[1]: line[2] for line in found if line} if all(found) else {}


def _quoted(text: str) -> str:
    return _CLAIM.sub("> ", text)


def _shortened(subject: str) -> str:
    return subject[: SUBJECT_MAX - 1].rsplit(" ", 1)[0].rstrip() + "…"


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a trailer")
    return name


def _value(value: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in value[:VALUE_MAX])
    return " ".join(plain.split()) or "-"


FORM = "--format=tformat:%H%x00%P%x00%T%x00%ct%x00%an%x00%B"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, with its trailers."""

    sha: str
    parents: tuple[str, ...]
    tree: str
    at: int
    author: str
    message: str
    trailers: Mapping[str, str]

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


async def read_log(git: Git, *what: str) -> list[Commit]:
    """Commits, oldest first."""
    said = await git("log", "-z", "--reverse", "--no-show-signature", FORM, *what)
    parts = said.out.split(b"\0")
    found = []
    for at in range(0, len(parts) - 5, 6):
        sha, parents, tree, when, author, text = (name_of(part) for part in parts[at : at + 6])
        about = (sha, tuple(parents.split()), tree, int(when), author, text)
        found.append(Commit(*about, trailers_of(text)))
    return found
