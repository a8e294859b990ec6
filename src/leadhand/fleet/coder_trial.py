"""Whether a coder works inside the sandbox: its program starts there, and answers.

A program that runs in a shell need not run in a sandbox, which shows it the system and its own
package only. So it is started there, exactly as an agent would be:

    version    the program prints its version. For a command of your own nothing is started, since
               it could cost money: the sandbox is asked whether it shows the program
    turn       Claude Code and Codex do one turn against an endpoint on this machine that says
               one word. No provider is asked, no key is used, nothing is paid

What is missing is read from what the program printed: files that are there, and that the sandbox
does not show.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leadhand.errors import LeadhandError
from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.process import needed_by, started
from leadhand.fleet.configuration import coder_of, env_of, program_of
from leadhand.fleet.settings import fleet_of
from leadhand.models.secret_patterns import scrub
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.proxy import Proxy, Route
from leadhand.workers.sandbox.sandbox import SYSTEM, Wrapped, choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.fleet.settings import CoderSettings
    from leadhand.settings import Settings
    from leadhand.workers.sandbox.sandbox import Sandbox


VERSION_S_MAX = 60.0
TURN_S_MAX = 120.0
OUTPUT_CHARS = 1_500
VERSION_CHARS = 60
PLACEHOLDER = "none-is-needed-for-a-trial"
_PATH = re.compile(r"/[\w@.+-]+(?:/[\w@.+-]+)+")
_OURS = re.compile(r"/leadhand-trial-|/check-\d+-")
"""The folders of a trial and of a check, which are shown."""
_LIBRARY = re.compile(r"loading shared libraries: (\S+):")
_MODULE = re.compile(r"Cannot find (?:module|package) '([^']+)'")


@dataclass(frozen=True, slots=True)
class CoderTrial:
    """How a coder fared inside the sandbox; no `problem`: well."""

    version: str = ""
    problem: str = ""
    fix: str = ""
    turn_s: float | None = None
    """How long a turn took; None: none was tried."""


def try_version(settings: Settings, coder: CoderSettings) -> CoderTrial:
    """Start a coder's program in the sandbox of agents, to print its version."""
    try:
        program = program_of(settings, coder)
        sandbox = _sandbox(settings)
    except LeadhandError as error:
        return _stated(error)
    if coder.kind == "command" and "/" in program and not program.startswith("/"):
        return CoderTrial(version=f"{program}, a file of the checkout")
    with tempfile.TemporaryDirectory(prefix="leadhand-trial-") as folder:
        wrapped = _wrapped(settings, coder, program, sandbox, Path(folder))
        code, output = _run(wrapped)
    if code == 0:
        lines = output.strip().splitlines()
        named = coder.kind == "command"
        version = program if named else (lines[0] if lines else "no version")[:VERSION_CHARS]
        return CoderTrial(version=version)
    return _failed(settings, coder, program, code, output)


def _stated(error: LeadhandError) -> CoderTrial:
    problem, _, fix = str(error).partition(". Fix: ")
    return CoderTrial(problem=problem, fix=f"{fix[:1].upper()}{fix[1:]}." if fix else "")


def _sandbox(settings: Settings) -> Sandbox:
    fleet = fleet_of(settings)
    shown = [*fleet.readable, *filter(None, (fleet.cache, fleet.certificates))]
    return choose(fleet.sandbox, readable=shown)


def _wrapped(
    settings: Settings, coder: CoderSettings, program: str, sandbox: Sandbox, folder: Path
) -> Wrapped:
    """Return the command that tries a program, in an empty slot."""
    slot = folder / "slot"
    slot.mkdir()
    readable = [settings.root / Path(each).expanduser() for each in coder.readable]
    env = {**env_of(settings), **coder.env}
    if coder.kind == "command":
        words = [each.replace("{root}", str(settings.root)) for each in coder.command]
        files = [Path(each) for each in words if each.startswith("/")]
        readable += [path for path in files if path.is_file()]
        argv = ["/bin/sh", "-c", 'command -v "$1" >/dev/null || { echo "$1"; exit 127; }']
        argv += ["sh", words[0]]
    else:
        readable += needed_by(program)
        argv = [*started(program, sandbox), "--version"]
        env |= {"DISABLE_AUTOUPDATER": "1"}
    return sandbox.wrap(argv, slot, home=folder / "home", env=env, readable=readable)


def _run(wrapped: Wrapped) -> tuple[int, str]:
    """Return exit code and output; end all that it started."""
    with subprocess.Popen(
        wrapped.argv,
        cwd=wrapped.cwd,
        env=wrapped.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=VERSION_S_MAX)
        except subprocess.TimeoutExpired:
            return -1, f"no answer after {VERSION_S_MAX:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out.decode("utf-8", "replace")


def _failed(
    settings: Settings, coder: CoderSettings, program: str, code: int, output: str
) -> CoderTrial:
    """Return what is missing, as far as the output tells, and how to allow it."""
    last = scrub(" ".join(output.split()))[-OUTPUT_CHARS:]
    problem = f"it does not start in the sandbox (exit code {code}): {last or 'no output'}"
    missing = missing_paths(output, [*fleet_of(settings).readable, Path(program).resolve()])
    if coder.kind == "command" and code == 127:
        missing = [str(Path(program).resolve().parent)]
    if missing:
        shown = ", ".join(f'"{each}"' for each in missing)
        return CoderTrial(
            problem=problem, fix=f"Below [coders.{coder.name}]: readable = [{shown}]."
        )
    if found := _LIBRARY.search(output):
        fix = f"Name the folder of {found[1]} in [coders.{coder.name}] readable."
        return CoderTrial(problem=problem, fix=fix)
    if found := _MODULE.search(output):
        fix = (
            f"Install {found[1]} beside the program (npm install -g again), or name its folder in "
            f"[coders.{coder.name}] readable."
        )
        return CoderTrial(problem=problem, fix=fix)
    fix = f"Name what it reads besides its own package in [coders.{coder.name}] readable."
    return CoderTrial(problem=problem, fix=fix)


def missing_paths(output: str, shown: Sequence[Path]) -> list[str]:
    """Return files named in the output that exist and that a sandbox does not show."""
    places = [*map(Path, SYSTEM), Path("/proc"), Path("/dev"), *shown]
    found = []
    for name in dict.fromkeys(_PATH.findall(output)):
        path = Path(name)
        inside = any(path.is_relative_to(place) for place in places)
        if not inside and not _OURS.search(name) and path.exists():
            found.append(name)
    return found[:5]


async def try_turn(
    settings: Settings, coder: CoderSettings, slot_folder: Path, environ: Mapping[str, str]
) -> CoderTrial:
    """Have Claude Code or Codex do one turn in the sandbox, against an endpoint of our own.

    `slot_folder` is a checkout of the repository, as agents get it.
    """
    from leadhand.testing.endpoint import Endpoint, Say

    tried = try_version(settings, coder)
    if tried.problem or coder.kind == "command":
        return tried
    fleet = fleet_of(settings)
    if fleet.sandbox == "none":
        return tried  # it would use the login of the account that runs this
    env = {**environ, **({coder.credential: PLACEHOLDER} if coder.credential else {})}
    trial = msgspec.structs.replace(
        coder, url=coder.url or "http://127.0.0.1"
    )  # a route, whatever its login
    with tempfile.TemporaryDirectory(prefix="leadhand-trial-") as homes:
        async with Endpoint(lambda _request: Say("ready")) as endpoint:
            base = endpoint.url + ("/v1" if coder.kind == "codex" else "")
            async with (
                Proxy(routes={coder.name: Route(base)}) as door,
                Processes("fleet-trial", strict=True) as processes,
            ):
                shown = [*fleet.readable, *filter(None, (fleet.cache, fleet.certificates))]
                sandbox = choose(fleet.sandbox, readable=shown, doors={coder.name: door.socket})
                agent = coder_of(settings, trial, env, processes, Path(homes))
                given = Assignment(
                    run="check",
                    task="check",
                    brief="Say the word ready, and nothing else.",
                    model=coder.model,
                    time_s=TURN_S_MAX,
                    silence_s=TURN_S_MAX,
                )
                done = await agent.work(given, _Folder(slot_folder), sandbox, lambda _event: None)
    if done.ended == "result" and not done.failure:
        return replace(tried, turn_s=done.seconds)
    why = scrub(" ".join(f"{done.why} {done.tail}".split()))[-OUTPUT_CHARS:]
    failed = _failed(settings, coder, program_of(settings, coder), done.exit_code or 1, why)
    return replace(failed, problem=f"it starts in the sandbox, and does not do a turn: {why}")


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path
