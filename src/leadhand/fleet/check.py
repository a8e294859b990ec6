"""First contact with a repository: set-up, gate and coders tried once, before a fleet starts.

Everything runs as it does for agents and gates: a checkout of the branch's tip, made by a hub of
its own in the folder of checkouts, in the sandbox, with the same environment and the same doors to
the network. So nothing of the user's checkout is touched, and a fleet may be at work meanwhile.

    repository ─► set-up, each command ─► gate, each command ─► once more, if asked ─► coders

Each problem comes with a fix, as far as output, exit code and refused hosts tell.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.fleet.coder_trial import PLACEHOLDER, missing_paths, try_turn
from leadhand.fleet.configuration import checkouts_folder, coders_by_tier, config_of, way_out
from leadhand.fleet.gate.gate import Gate, GateTrouble
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.settings import fleet_of
from leadhand.fleet.workspace.clean_up import remove
from leadhand.fleet.workspace.slots import Slots, make_checkouts_folder
from leadhand.models.secret_patterns import scrub
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.proxy import Proxy, open_doors
from leadhand.workers.sandbox.sandbox import SETUP, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.fleet.gate.gate import GateVerdict
    from leadhand.fleet.service import FleetConfig
    from leadhand.fleet.settings import FleetSettings
    from leadhand.settings import Settings


OUTPUT_CHARS = 600
LATE = -1
"""The exit code of a command that took too long."""
PREFIX = "check-"
MISSING_PROGRAM = (126, 127)


@dataclass(frozen=True, slots=True)
class CheckedCommand:
    """One command of set-up or gate, as it ran."""

    part: str
    """`setup` or `gate`."""
    command: str
    code: int
    seconds: float
    output: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """What is wrong, and how to put it right."""

    where: str
    problem: str
    fix: str


@dataclass(slots=True)
class CheckResult:
    """What was found."""

    repository: str
    branch: str
    commit: str = ""
    files: int = 0
    sandbox: str = ""
    commands: list[CheckedCommand] = field(default_factory=list)
    tests: str = ""
    flaky: list[str] = field(default_factory=list)
    coders: list[dict[str, Any]] = field(default_factory=list)
    problems: list[CheckProblem] = field(default_factory=list)
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the document of `leadhand fleet check --json`."""
        return {
            "ok": not self.problems,
            "repository": self.repository,
            "branch": self.branch,
            "commit": self.commit,
            "files": self.files,
            "sandbox": self.sandbox,
            "commands": [
                {
                    "part": each.part,
                    "command": each.command,
                    "code": each.code,
                    "seconds": round(each.seconds, 3),
                }
                for each in self.commands
            ],
            "tests": self.tests,
            "flaky": self.flaky,
            "coders": self.coders,
            "problems": [
                {"where": each.where, "problem": each.problem, "fix": each.fix}
                for each in self.problems
            ],
            "seconds": round(self.seconds, 3),
        }


class Follower:
    """Follows the commands of a gate, and passes on what they print, line by line."""

    def __init__(
        self, result: CheckResult, setup: Sequence[str], say: Callable[[str], None]
    ) -> None:
        self._result, self._say = result, say
        self._setup = list(setup)
        self._begun = b""

    def started(self, command: str) -> None:
        """Say which command begins."""
        self._say(f"{self._part(command)}: {command}")

    def printed(self, chunk: bytes) -> None:
        """Pass on the lines that are whole."""
        *lines, self._begun = (self._begun + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            self._line(line)
        self._begun = self._begun[-4096:]

    def ended(self, command: str, code: int, output: str, seconds: float) -> None:
        """Keep how a command ended, and say so."""
        if self._begun:
            self._line(self._begun)
            self._begun = b""
        made = CheckedCommand(self._part(command), command, code, seconds, output)
        self._result.commands.append(made)
        self._say(f"{'ended' if not code else _ended(code)} after {seconds:.1f} s")

    def _part(self, command: str) -> str:
        return "setup" if command in self._setup else "gate"

    def _line(self, line: bytes) -> None:
        text = line.rpartition(b"\r")[2].decode("utf-8", "replace")
        text = _go_output(_COLOUR.sub("", text)).rstrip()
        if text:
            self._say(f"  | {scrub(text)}")


_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


def _go_output(line: str) -> str:
    """Return what a line of `go test -json` holds for people; any other line as it is."""
    if not line.startswith('{"Time":'):
        return line
    try:
        told = json.loads(line)
    except ValueError:
        return line
    said = told.get("Output", "") if isinstance(told, dict) else line
    return said if isinstance(said, str) and not said.startswith("=== RUN") else ""


def _ended(code: int) -> str:
    return "took too long, ended" if code == LATE else f"failed with {code}"


async def check_repository(
    settings: Settings,
    repo: Path | None,
    say: Callable[[str], None],
    *,
    again: bool = False,
    coders: bool = True,
) -> CheckResult:
    """Run set-up and gate once on the tip of the branch, and try each coder.

    `say` gets a line for each thing that happens, and the output of commands. `again` runs the gate
    a second time on the same commit: what fails once is flaky. Raise `UsageError` where the
    settings do not say enough.
    """
    began = time.monotonic()
    fleet = fleet_of(settings)
    keys = {each.credential: PLACEHOLDER for each in fleet.coders.values() if each.credential}
    config = config_of(settings, repo, {**keys, **os.environ})
    refused: list[str] = []
    result = CheckResult(str(config.repo), config.branch)
    async with contextlib.AsyncExitStack() as stack:
        place = _place(checkouts_folder(settings))
        stack.callback(remove, place)
        hub = await stack.enter_async_context(
            await Hub.open(place / "hub", config.repo, config.branch)
        )
        await _look(result, hub, say)
        doors = await open_doors(stack, _doors(config, settings, refused))
        readable = (*config.readable, hub.git.folder / "objects")
        sandbox = choose(config.sandbox, readable=readable, doors=doors)
        result.sandbox = sandbox.kind
        processes = await stack.enter_async_context(Processes("fleet-check", strict=True))
        pool = Slots(hub, place / "gates", 1, prefix="gate")
        made = sandbox.through(SETUP)
        rules = replace(config.gate, setup_network=True)  # by its door, which refuses and tells
        gate = Gate(hub, pool, rules, processes=processes, sandbox=made)
        gate.listener = Follower(result, list(map(shlex.join, fleet.setup)), say)
        say(f"sandbox: {sandbox.kind}")
        await _gate(result, gate, hub.main(), fleet, refused, again=again)
        if coders:
            agents = Slots(hub, place / "slots", 1)
            async with agents.lease(hub.main()) as slot:
                await _coders(result, settings, slot.path, say)
    result.seconds = time.monotonic() - began
    return result


def _place(checkouts: Path) -> Path:
    """Return a new folder for a check, and remove those that killed ones left."""
    make_checkouts_folder(checkouts)
    for left in checkouts.glob(f"{PREFIX}*"):
        pid = left.name.split("-")[1]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            remove(left)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=checkouts))


def _doors(config: FleetConfig, settings: Settings, refused: list[str]) -> dict[str, Proxy]:
    """Return the doors of the fleet; the one of set-up tells which hosts it refused.

    Set-up gets a door also where no host is allowed, which refuses all: so each can be named.
    """
    fleet, doors = fleet_of(settings), dict(config.doors)
    if fleet.setup:
        out = way_out(settings, os.environ)
        doors[SETUP] = Proxy(fleet.setup_hosts, refused=refused.append, **out)
    return doors


async def _look(result: CheckResult, hub: Hub, say: Callable[[str], None]) -> None:
    result.commit = hub.main()
    result.branch = hub.user.ref.removeprefix("refs/heads/")
    listed = await hub.git("ls-tree", "-r", "-z", "--name-only", result.commit)
    result.files = listed.out.count(b"\0")
    say(
        f"repository: {result.repository}, {result.branch} at {result.commit[:10]}, "
        f"{result.files} files"
    )


async def _gate(
    result: CheckResult,
    gate: Gate,
    commit: str,
    fleet: FleetSettings,
    refused: list[str],
    *,
    again: bool,
) -> None:
    """Run set-up and gate, once or twice."""
    first = await _run_gate(result, gate, commit)
    if first is not None:
        result.tests = first.tests
    second = await _run_gate(result, gate, commit) if again and first is not None else None
    red = [each for each in (first, second) if each is not None and not each.ok]
    if first is not None and second is not None and first.ok != second.ok:
        names = dict.fromkeys([*first.flaky, *second.flaky, *gate.flakes.sightings])
        result.flaky = list(names) or [red[0].failed]
        named = ", ".join(result.flaky[:5])
        problem = f"the same commit passed once and failed once: {named}"
        fix = "Repair the test, or name it in [fleet] flaky: a known one is tried once more."
        result.problems.append(CheckProblem("gate", problem, fix))
        return
    failed = [each for each in result.commands if each.code]
    for each in failed[:1]:
        result.problems.append(problem_of(each, fleet, refused))
    if red and not failed:
        problem = f"{red[0].failed} is red: {_tail(red[0].log)}"
        result.problems.append(CheckProblem("gate", problem, RED))


async def _run_gate(result: CheckResult, gate: Gate, commit: str) -> GateVerdict | None:
    """Return the verdict; None where a set-up failed, or the gate could not be run."""
    before = len(result.commands)
    try:
        return await gate.check(commit)
    except GateTrouble as trouble:
        if not any(each.code for each in result.commands[before:]):
            words, _, fix = str(trouble).partition(". Fix: ")
            result.problems.append(CheckProblem("gate", words, fix or "See the message."))
        return None


RED = "Make the branch pass its own gate, or change [fleet] gate: no change could pass it."
_NETWORK = re.compile(
    r"name resolution|Could not resolve|getaddrinfo|\bENOTFOUND|EAI_AGAIN|ECONNREFUSED|"
    r"Network is unreachable|Connection refused|Failed to establish a new connection|"
    r"no such host|Unknown host|Could not transfer artifact|failed to download|"
    r"No matching distribution found|is not on the list|offline mode",
    re.IGNORECASE,
)
_CERTIFICATE = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|self[- ]signed certificate|UNABLE_TO_(?:VERIFY|GET_ISSUER)|"
    r"unable to get local issuer|x509: certificate|SSL certificate problem|PKIX path",
    re.IGNORECASE,
)
_NO_MODULE = re.compile(
    r"No module named '?([\w.]+)|Cannot find (?:module|package) '([^']+)'|command not found"
)
_READ_ONLY = re.compile(r"Read-only file system|Permission denied|EROFS|EACCES", re.IGNORECASE)
_SPAWN = re.compile(r"cannot start|No such file or directory|not found", re.IGNORECASE)


def problem_of(ran: CheckedCommand, fleet: FleetSettings, refused: Sequence[str]) -> CheckProblem:
    """Return what went wrong with a command, and the setting that puts it right."""
    problem = f"{ran.command} {_ended(ran.code)}: {_tail(ran.output)}"
    return CheckProblem(ran.part, problem, _fix(ran, fleet, refused))


def _fix(ran: CheckedCommand, fleet: FleetSettings, refused: Sequence[str]) -> str:
    hosts = [each.partition(" is not on the list")[0] for each in refused]
    text, part = ran.output, ran.part
    argv = shlex.split(ran.command)
    missing = missing_paths(text, fleet.readable)
    if ran.code == LATE and "not done after" in text:
        return f"Take a quicker command, or raise [fleet] gate_time (now {fleet.gate_time:g} s)."
    if ran.code in MISSING_PROGRAM and (fix := _program_fix(argv[0], fleet, part)):
        return fix
    if part == "setup" and hosts:
        named = ", ".join(f'"{each}"' for each in dict.fromkeys([*fleet.setup_hosts, *hosts]))
        return f"Allow the hosts that it asked for: [fleet] setup_hosts = [{named}]."
    if _CERTIFICATE.search(text):
        return (
            "Name the file with your company's certificates (PEM): "
            '[fleet] certificates = "/path/to/certificates.pem".'
        )
    if _NETWORK.search(text):
        if part == "gate":
            return (
                "The gate has no network: download in [fleet] setup, which may reach the hosts "
                "of [fleet] setup_hosts, or take the test out."
            )
        return (
            "It needs the network: name the hosts of its package index in [fleet] setup_hosts; "
            "behind a proxy, name that in [fleet] proxy."
        )
    if found := _NO_MODULE.search(text):
        what = found[1] or found[2] or "a program"
        return f"Install {what} by a command of [fleet] setup: the sandbox shows no other copy."
    if missing:
        shown = ", ".join(f'"{each}"' for each in missing)
        return f"Show it what it reads: [fleet] readable = [{shown}]."
    if _READ_ONLY.search(text):
        return (
            "It writes outside of its checkout, which the sandbox forbids: lead it to the "
            "checkout or to $HOME, as with [fleet] env."
        )
    return RED if part == "gate" else f"Run it by hand in a fresh clone: {ran.command}."


def _program_fix(program: str, fleet: FleetSettings, part: str) -> str:
    """Return how a program that was not found can be: as `leadhand doctor` says it."""
    from leadhand.fleet.commands.doctor import gate_program

    if "/" in program and not program.startswith("/"):
        return f"{program} is not in the commit, or not executable: git add --chmod=+x {program}."
    found = gate_program(fleet, part, [program])
    if found.fix:
        return found.fix
    return f"Install {program}, or change [fleet] {part}." if not shutil.which(program) else ""


def _tail(text: str) -> str:
    words = scrub(" ".join(_COLOUR.sub("", text).split()))
    cut = f"… {words[-OUTPUT_CHARS:]}" if len(words) > OUTPUT_CHARS else words
    return cut or "no output"


async def _coders(
    result: CheckResult, settings: Settings, slot: Path, say: Callable[[str], None]
) -> None:
    """Try each coder inside the sandbox."""
    for coder in coders_by_tier(settings):
        say(f"coder: {coder.name} ({coder.kind}) in the sandbox")
        tried = await try_turn(settings, coder, slot, os.environ)
        name = coder.credential
        if not tried.problem and name and not os.environ.get(name):
            fix = f"Set it to the {'token' if coder.token else 'key'}, where the fleet is started."
            tried = replace(tried, problem=f"{name} is not set", fix=fix)
        result.coders.append(
            {
                "name": coder.name,
                "kind": coder.kind,
                "version": tried.version,
                "turn_s": None if tried.turn_s is None else round(tried.turn_s, 3),
                "problem": tried.problem,
                "fix": tried.fix,
            }
        )
        if tried.problem:
            where = f"coder {coder.name}"
            result.problems.append(CheckProblem(where, tried.problem, tried.fix))
