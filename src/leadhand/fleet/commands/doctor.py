"""What a coding fleet needs, for `leadhand doctor`: git, a sandbox, agents, and room for them."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadhand.cli.commands.doctor import DoctorCheck
from leadhand.cli.rendering.text import count
from leadhand.errors import LeadhandError, UsageError
from leadhand.fleet.settings import fleet_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leadhand.fleet.settings import CoderSettings, FleetSettings
    from leadhand.settings import Settings


VERSION_S_MAX = 20.0
HOST_S_MAX = 30.0
SLOT_MB = 100.0
"""For a checkout whose size is not known."""
AGENTS_A_CORE = 8
"""Agents wait for their models most of the time; starting one takes most of a second of a core."""
RESERVE_MB = 500.0


class AgentProgram(NamedTuple):
    """A program that codes, and what one of it takes while it works."""

    program: str
    memory_mb: float


KINDS = {"claude": AgentProgram("claude", 300.0), "codex": AgentProgram("codex", 160.0)}
"""Measured: resident memory at its highest, for a short conversation; long ones take more."""
OTHER = "any other"
OTHER_MB = 300.0
"""What is reckoned for any other command."""


def checks(settings: Settings, *, fix: bool = False) -> Iterator[DoctorCheck]:
    """Yield all checks; a problem only if a fleet is configured.

    `fix` has nothing to repair here.
    """
    del fix
    fleet = fleet_of(settings)
    wanted = bool(fleet.coders or fleet.gate or fleet.repo)
    yield _git(wanted=wanted)
    yield _sandbox(settings, wanted=wanted)
    if wanted:
        yield _secrets()
        if fleet.repo:
            yield _repository(fleet)
        yield from _gate(fleet)
        if fleet.forge is not None and fleet.forge.kind != "git":
            yield _code_host(fleet)
    yield from _programs(settings)
    yield _room(settings)


def _git(*, wanted: bool) -> DoctorCheck:
    from leadhand.fleet.repository.git import check_version

    try:
        return DoctorCheck("git", asyncio.run(check_version()))
    except (LeadhandError, OSError) as error:
        fix = "Install a newer git."
        return DoctorCheck("git", "cannot be used by a fleet", str(error), fix, warning=not wanted)


def _code_host(fleet: FleetSettings) -> DoctorCheck:
    """Sign in to the code host, and look at what the flow needs of it."""
    from leadhand.fleet.forge.settings import open_forge

    assert fleet.forge is not None
    table = fleet.forge

    async def look() -> str:
        forge = open_forge(table, fleet.certificates)
        try:
            account = await forge.account()
            level = await forge.permission(account)
            await forge.issues(label=table.label, assignee=table.assignee)
            access = await forge.git_access()
            return f"{forge.name} as {account} ({level} access), git by {access.url}"
        finally:
            await forge.aclose()

    async def bounded() -> str:
        async with asyncio.timeout(HOST_S_MAX):
            return await look()

    try:
        said = asyncio.run(bounded())
    except (LeadhandError, OSError, TimeoutError) as error:
        fix = "Check token, repository and api in [fleet.forge]."
        return DoctorCheck("code host", "cannot be used", str(error) or "no answer", fix)
    if not table.app and any(f"({level} access)" in said for level in ("none", "read", "triage")):
        need = "It cannot push branches or merge: it needs write access."
        fix = "Give the account or the app write access to contents, issues and pull requests."
        return DoctorCheck("code host", said, need, fix)
    return DoctorCheck("code host", said)


def _sandbox(settings: Settings, *, wanted: bool) -> DoctorCheck:
    from leadhand.workers.sandbox.sandbox import FIX, probe

    if fleet_of(settings).sandbox == "none":
        said = "agents may do what you may do: [fleet] sandbox is none"
        return DoctorCheck("sandbox", "none", said, "Take it out of the settings.", warning=True)
    found = probe()
    works = re.search(r": works", found) is not None
    problem = "" if works else "no agent can be kept in its place here, so none is run"
    return DoctorCheck("sandbox", found, problem, "" if works else f"{FIX}.", warning=not wanted)


def _secrets() -> DoctorCheck:
    from leadhand.fleet.gate.secret_scan import has_detector

    if has_detector():
        return DoctorCheck("secrets", "looked for by detect-secrets in what agents leave")
    said = "detect-secrets is not installed: only a few patterns are looked for"
    fix = "pip install 'leadhand[fleet]'."
    return DoctorCheck("secrets", "a few patterns", said, fix, warning=True)


def _repository(fleet: FleetSettings) -> DoctorCheck:
    """Check that git can read the repository, and that its branch has a commit."""
    from leadhand.fleet.repository.git import Git
    from leadhand.fleet.repository.user_repository import User

    assert fleet.repo is not None
    shown = f"{fleet.repo}{', branch ' + fleet.branch if fleet.branch else ''}"
    try:
        asyncio.run(
            User.find(fleet.repo, fleet.branch or "HEAD", Git(Path(os.devnull), Path(os.devnull)))
        )
    except LeadhandError as error:
        problem, _, fix = str(error).partition(". Fix: ")
        fix = f"{fix[:1].upper()}{fix[1:]}." if fix else "Commit to it, or change [fleet] branch."
        return DoctorCheck("repository", shown, problem, fix)
    return DoctorCheck("repository", shown)


def _gate(fleet: FleetSettings) -> Iterator[DoctorCheck]:
    """Check that there is a gate, and each program that runs in its checkouts once."""
    if not fleet.gate and fleet.tested_by != "remote":
        problem = "[fleet] gate is missing: a fleet does not start without a command that tests"
        yield DoctorCheck("gate", "none", problem, 'Write, for example, gate = ["make check"].')
    seen: set[str] = set()
    driver = (fleet.merge_driver,) if fleet.merge_driver else ()
    settling = (("regenerate", tuple(fleet.regenerate.values())), ("merge_driver", driver))
    for key, commands in (("gate", fleet.gate), ("setup", fleet.setup), *settling):
        for argv in commands:
            if argv[0] not in seen:
                seen.add(argv[0])
                yield gate_program(fleet, key, argv)


def gate_program(fleet: FleetSettings, key: str, argv: Sequence[str]) -> DoctorCheck:
    """Check that a program is installed where the sandbox of gates shows it."""
    from leadhand.workers.sandbox.sandbox import PATH, SYSTEM

    line = shlex.join(argv)
    if "/" in argv[0] and not argv[0].startswith("/"):
        return DoctorCheck(key, f"{line}: a file of the checkout")
    boxed = fleet.sandbox != "none"
    path = fleet.env.get("PATH") or (PATH if boxed else None)
    found = shutil.which(argv[0], path=path)
    places = [*SYSTEM, *map(str, fleet.readable), *([str(fleet.cache)] if fleet.cache else [])]
    named = argv[0].startswith("/") or not boxed
    if found and (named or any(Path(found).is_relative_to(each) for each in places)):
        return DoctorCheck(key, f"{line}: {found}")
    elsewhere = found or shutil.which(argv[0])
    if elsewhere is None:
        fix = f"Install it, or change [fleet] {key}."
        return DoctorCheck(key, line, f"{argv[0]} is not installed", fix)
    folder = Path(elsewhere).parent
    problem = f"{argv[0]} is in {folder}, which the sandbox of gates does not show"
    fix = (
        f'Below [fleet]: env = {{PATH = "{folder}:{path or PATH}"}}, and readable = ["{folder}"] '
        "with what else it needs."
    )
    return DoctorCheck(key, line, problem, fix)


def _programs(settings: Settings) -> Iterator[DoctorCheck]:
    """Check each known or configured kind: its path, and its version."""
    for name, kind in KINDS.items():
        if any(coder.kind == name for coder in fleet_of(settings).coders.values()):
            continue
        path = shutil.which(kind.program)
        said = _version(path) if path else "not installed, and no coder here needs it"
        yield DoctorCheck("coder", f"{name}: {said}")
    for coder in fleet_of(settings).coders.values():
        yield from _configured(settings, coder)


def _configured(settings: Settings, coder: CoderSettings) -> Iterator[DoctorCheck]:
    """Check a coder of the settings: its program, and the variable with its key."""
    from leadhand.fleet.configuration import program_of

    shown = f"{coder.name}: {coder.kind}{' ' + coder.model if coder.model else ''}"
    path, missing = "", bool(coder.credential and not os.environ.get(coder.credential))
    try:
        path = program_of(settings, coder)
    except UsageError as error:
        problem, _, fix = str(error).partition(". Fix: ")
        yield DoctorCheck("coder", shown, problem, f"{fix[:1].upper()}{fix[1:]}.")
    if missing:
        fix = f"Set it to the {'token' if coder.token else 'key'}, where the fleet is started."
        yield DoctorCheck("coder", shown, f"{coder.credential} is not set", fix)
    elif path:
        yield _tried(settings, coder, shown, path)


def _tried(settings: Settings, coder: CoderSettings, shown: str, path: str) -> DoctorCheck:
    """Start a coder's program inside the sandbox, where it may miss what a shell finds."""
    from leadhand.fleet.coder_trial import try_version

    tried = try_version(settings, coder)
    if tried.problem:
        return DoctorCheck("coder", shown, tried.problem, tried.fix)
    if coder.kind != "command":
        reader = "the agent" if fleet_of(settings).sandbox == "none" else "only the proxy"
        held = f"; login by {coder.token}, which {reader} can read" if coder.token else ""
        return DoctorCheck("coder", f"{shown}, {tried.version} ({path}){held}")
    held = f"; the agent can read {coder.key}" if coder.key else ""
    return DoctorCheck("coder", f"{shown}, {path}{held}")


def _version(path: str) -> str:
    """Return the version that a program prints, run with an empty home folder."""
    env = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent", "DISABLE_AUTOUPDATER": "1"}
    try:
        done = subprocess.run(
            [path, "--version"],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} ({type(error).__name__})"
    said = done.stdout.strip().splitlines()
    return f"{said[0][:60] if said else 'no version'} ({path})"


def _room(settings: Settings) -> DoctorCheck:
    """Check how many agents fit, and what limits their number."""
    from leadhand.fleet.governor import room_of

    folder = next(each for each in (settings.root, *settings.root.parents) if each.exists())
    room, slot = room_of(folder), slot_mb(fleet_of(settings).repo)
    cores = os.cpu_count() or 1
    fit = {
        name: fitting(room.memory_mb, mb, room.disk_mb, slot, cores)
        for name, mb in [*((k, each.memory_mb) for k, each in KINDS.items()), (OTHER, OTHER_MB)]
    }
    kinds = [coder.kind for coder in fleet_of(settings).coders.values()]
    least = min((fit.get(kind, fit[OTHER]) for kind in kinds), default=0)
    parts = [f"{number} {name}" for name, number in fit.items()]
    value = (
        f"{', '.join(parts)}: {room.memory_mb:,.0f} MB of memory, {room.disk_mb:,.0f} MB of disk "
        f"at {slot:,.0f} MB a slot, {count(cores, 'core')}"
    )
    if not fleet_of(settings).coders or fleet_of(settings).agents <= least:
        return DoctorCheck("agents fit", value)
    problem = f"[fleet] agents is {fleet_of(settings).agents}, and about {least} fit"
    return DoctorCheck(
        "agents fit", value, problem, "Take fewer; more are held back.", warning=True
    )


def fitting(memory_mb: float, each_mb: float, disk_mb: float, slot_mb: float, cores: int) -> int:
    """Return how many agents fit: by memory, by disk and by cores, the least of these."""
    by_memory = max(0.0, memory_mb - RESERVE_MB) / each_mb
    by_disk = max(0.0, disk_mb - RESERVE_MB) / slot_mb
    return int(min(by_memory, by_disk, cores * AGENTS_A_CORE))


def slot_mb(repo: Path | None) -> float:
    """Return the size of a checkout of a repository, by its tracked files."""
    git = shutil.which("git")
    if repo is None or git is None:
        return SLOT_MB
    done = subprocess.run(
        [git, "-c", "core.fsmonitor=false", "-C", str(repo), "ls-tree", "-rlz", "HEAD"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    sizes = re.findall(rb"blob [0-9a-f]+ +(\d+)\t", done.stdout)
    return max(1.0, sum(map(int, sizes)) / 1e6) if done.returncode == 0 else SLOT_MB
