"""`leadhand fleet take` and `give`: a person has a task that an agent worked on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from leadhand.cli.group import command
from leadhand.cli.options import actor_of
from leadhand.cli.rendering.text import clean, clean_lines
from leadhand.errors import Conflict, UsageError
from leadhand.fleet.commands.service import folder_option, settings_for

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.core.plan.model import Doc
    from leadhand.fleet.take_over import TakenTask


READY_S_MAX = 180.0
LOOK_S = 0.2
CONVERSATION_BYTES_MAX = 64 << 20
BRIEF = "leadhand-brief.md"
KEY = "leadhand.task"
NO_PUSH = "give-it-back-with-leadhand-fleet-give"
OBEYED = (
    ".claude/**",
    ".codex/**",
    ".cursor/**",
    ".devcontainer/**",
    ".direnv/**",
    ".envrc",
    ".gemini/**",
    ".gitattributes",
    ".gitmodules",
    ".husky/**",
    ".idea/**",
    ".mcp.json",
    ".mise.toml",
    ".vscode/**",
    "AGENTS.md",
    "CLAUDE.md",
    "mise.toml",
)
"""Files that programs execute or obey when a person opens a folder with them."""
OBEYED_SHOWN = 10
SESSION = re.compile(r"[0-9A-Za-z_-]{8,80}")


# Git in the person's own folder, with the person's own settings.


def _git(folder: Path, *words: str, check: bool = True) -> str:
    program = shutil.which("git") or "git"
    done = subprocess.run(
        [program, "-C", str(folder), *words], capture_output=True, text=True, check=False
    )
    if done.returncode and check:
        said = done.stderr.strip() or done.stdout.strip()
        raise UsageError(f"git {words[0]} in {folder} failed: {clean_lines(said)}")
    return done.stdout.strip() if not done.returncode else ""


@command("take", "leadhand fleet take query\nleadhand fleet take query --to ../query")
@click.argument("task")
@click.option(
    "--to",
    "place",
    type=click.Path(path_type=Path),
    help="The folder of the clone; the default is TASK in the working folder.",
)
@click.option("--no-conversation", is_flag=True, help="Do not bring the agent's conversation.")
@folder_option
def take(
    console: Console, task: str, place: Path | None, folder: str | None, *, no_conversation: bool
) -> int:
    """Take a task over from its agent.

    TASK may be written RUN/TASK. The agent is stopped, its work is saved, and no attempt is used
    up. You get a clone with the work staged on a branch of its own, the brief of the task, and the
    agent's conversation if its program can resume one. No agent works on the task until
    `leadhand fleet give`, also after a restart.
    """
    from leadhand.fleet.configuration import fleet_folder
    from leadhand.fleet.station import leave_order

    settings = settings_for(folder)
    root = fleet_folder(settings)
    target = (place or Path(task.rpartition("/")[2])).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already. Fix: name another folder with --to")
    told = asyncio.run(leave_order(root, "take", task, actor=actor_of(settings)))
    taken = _when_ready(root, *told["task"].split("/", 1))
    branch = _clone(*asyncio.run(_sources(root, taken)), taken, target)
    (target / ".git" / BRIEF).write_text(_brief(told, taken), encoding="utf-8")
    obeyed = _obeyed(target)
    resume = "" if no_conversation else _conversation(settings, taken, target)
    doc = {
        "task": told["task"],
        "by": taken.by,
        "folder": str(target),
        "branch": branch,
        "brief": str(target / ".git" / BRIEF),
        "stopped": told["stopped"],
        "session": taken.session,
        "resume": resume,
        "obeyed": obeyed,
    }
    if console.json:
        console.document(doc)
        return 0
    console.out(str(target))
    console.say(f"{told['task']} is yours; branch {branch}, the brief is {doc['brief']}")
    if obeyed:
        named = ", ".join(clean(each) for each in obeyed[:OBEYED_SHOWN])
        console.say(f"read before you open it in an editor or an agent: {named} (by the agent)")
    if resume:
        console.say(f"the agent's conversation: {resume}")
    if told["question"]:
        run = told["task"].partition("/")[0]
        console.say(f"it waits for an answer too: {run}/{told['question']} (leadhand inbox)")
    console.next(f"commit in {target}, then leadhand fleet give {told['task']} --from {target}")
    return 0


def _when_ready(root: Path, run: str, task: str) -> TakenTask:
    """Wait until the agent of a taken task has ended, and its work is saved."""
    from leadhand.fleet.take_over import TakenTask, file_of

    until = time.monotonic() + READY_S_MAX
    while time.monotonic() < until:
        try:
            found = msgspec.json.decode(file_of(root, run, task).read_bytes(), type=TakenTask)
        except FileNotFoundError:
            raise Conflict(f"{run}/{task} is not taken any more: it has landed") from None
        if found.ready:
            return found
        time.sleep(LOOK_S)
    raise Conflict(
        f"the agent of {run}/{task} has not ended after {READY_S_MAX:g} s. "
        "Fix: leadhand fleet take it again"
    )


async def _sources(root: Path, taken: TakenTask) -> tuple[str, str, str]:
    """Return the hub, the commit that the agent began with, and its work if there is any."""
    from leadhand.fleet.repositories import repository_folder
    from leadhand.fleet.repository.hub import Hub, ref_of

    hub = await Hub.look(repository_folder(root, taken.repository) / "hub")
    source = str(hub.git.folder)
    if taken.work:
        return source, taken.base, taken.work
    prefix = ref_of("wip", taken.run, taken.task, 0).removesuffix("0")
    saved = await hub.kept(prefix)
    numbers = {int(rest): ref for ref in saved if (rest := ref[len(prefix) :]).isdigit()}
    if not numbers:
        return source, hub.main(), ""
    work = saved[numbers[max(numbers)]]
    return source, await hub.resolve(f"{work}^1"), work


def _clone(source: str, base: str, work: str, taken: TakenTask, target: Path) -> str:
    """Make a clone of the hub with the agent's work staged; return the name of its branch."""
    branch = f"leadhand/{re.sub(r'[^A-Za-z0-9_-]', '-', taken.task)}"
    target.mkdir(parents=True, exist_ok=True)
    _git(target, "init", "--quiet", "--initial-branch", branch)
    for key, value in (
        (KEY, taken.name),
        ("remote.fleet.url", source),
        ("remote.fleet.pushurl", NO_PUSH),
        ("remote.fleet.fetch", "+refs/heads/main:refs/remotes/fleet/main"),
    ):
        _git(target, "config", key, value)
    _git(target, "fetch", "--quiet", "--no-tags", "fleet")
    _git(target, "fetch", "--quiet", "--no-tags", source, base, *([work] if work else []))
    _git(target, "checkout", "--quiet", "-B", branch, work or base)
    if work:
        _git(target, "reset", "--quiet", "--soft", base)
    return branch


def _obeyed(target: Path) -> list[str]:
    """Return the staged files of the agent that programs of the person would execute or obey."""
    from leadhand.fleet.boundaries import within

    names = _git(target, "diff", "--cached", "--name-only", "-z").split("\0")
    patterns = (*OBEYED, *(f"**/{each}" for each in OBEYED))
    return [name for name in names if name and within(name, patterns)]


def _brief(told: Doc, taken: TakenTask) -> str:
    """Return the task as text for a person."""
    given = told["given"]
    parts = [f"# {told['task']}\n\n{given.get('goal') or ''}", str(given.get("brief") or "")]
    if given.get("repository"):
        parts.insert(1, f"In the repository {given['repository']}.")
    for title, key in (("You may change", "writes"), ("Look at", "reads")):
        if given.get(key):
            parts.append(f"## {title}\n" + "\n".join(f"- {each}" for each in given[key]))
    if given.get("acceptance"):
        lines = "\n".join(f"- {shlex.join(argv)}" for argv in given["acceptance"])
        parts.append(f"## It is done when these succeed\n{lines}")
    parts.append(f"Give it back: leadhand fleet give {taken.name}")
    return "\n\n".join(part for part in parts if part) + "\n"


# The agent's conversation: one file, copied to where the person's own program finds it.
#
# Nothing else of the agent's home is brought: it is written by the agent, and settings or hooks in
# it would be executed outside of the sandbox.


def _conversation(settings: Any, taken: TakenTask, target: Path) -> str:
    """Copy the conversation of a taken task; return the command that resumes it, or nothing."""
    from leadhand.fleet.settings import fleet_of

    coder = fleet_of(settings).coders.get(taken.coder)
    if coder is None or not SESSION.fullmatch(taken.session) or not taken.home:
        return ""
    home = Path(taken.home)
    if coder.kind == "claude":
        pattern = f"projects/*/{taken.session}.jsonl"
        source = home / ".claude"
        own = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
        into = own / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(target.resolve()))
        resume = f"claude --resume {taken.session}"
    elif coder.kind == "codex":
        pattern = f"sessions/*/*/*/rollout-*-{taken.session}.jsonl"
        source = home / ".codex"
        own = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
        into, resume = own, f"codex resume {taken.session}"
    else:
        return ""
    found = sorted(source.glob(pattern))
    data = _regular(found[-1]) if found else None
    if data is None or not own.is_dir():  # the person does not use that program here
        return ""
    below = found[-1].relative_to(source).parent if coder.kind == "codex" else Path()
    place = into / below / found[-1].name
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not place.exists():
        with place.open("xb") as file:
            file.write(data)
    return f"cd {shlex.quote(str(target))} && {resume}"


def _regular(path: Path) -> bytes | None:
    """Return the content of a plain file; None for a link, or what is too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        inside = os.path.realpath(path) == os.path.abspath(path)  # noqa: PTH100 - as it is written
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1 or not inside:
            return None
        return file.read() if about.st_size <= CONVERSATION_BYTES_MAX else None


@command("give", "leadhand fleet give query\nleadhand fleet give query --to-agent")
@click.argument("task")
@click.option(
    "--from",
    "place",
    type=click.Path(path_type=Path, file_okay=False),
    help="The clone with your commits; the default is the working folder, or TASK in it.",
)
@click.option("--to-agent", is_flag=True, help="Let an agent go on; it is told of your commits.")
@click.option("--message", default="", help="What the agent is told, or why you give it back.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has landed or was refused.")
@folder_option
def give(console: Console, task: str, **options: Any) -> int:
    """Give a task back that you took, with your commits.

    They pass the same guard, gate and merge queue as an agent's work, and land under your name.
    What is refused comes back to you with the reason, and the exit code is 1: repair it, commit
    and give it again. With --to-agent an agent goes on instead.
    """
    from leadhand.fleet.configuration import fleet_folder
    from leadhand.fleet.station import leave_order
    from leadhand.fleet.take_over import AGENT, MAIN, file_of

    settings = settings_for(options["folder"])
    root, to = fleet_folder(settings), AGENT if options["to_agent"] else MAIN
    taken = _taken(root, task)
    clone = _clone_of(taken, options["place"], needed=to == MAIN)
    about: Doc = {"to": to, "message": options["message"]}
    if clone is not None:
        bundle = file_of(root, taken.run, taken.task).with_suffix(".bundle")
        about |= _bundled(clone, bundle, needed=to == MAIN)
    order = leave_order(root, "give", taken.name, json.dumps(about), actor_of(settings))
    told = asyncio.run(order)
    outcome = {"task": taken.name, "to": to, "landed": "", "refused": "", "asked": False}
    if to == MAIN and not options["no_wait"] and not told["question"]:
        console.say("guard, gate and merge queue")
        outcome |= asyncio.run(_outcome(root, taken))
    if console.json:
        console.document(outcome)
    else:
        _say_outcome(console, outcome)
    if told["question"]:
        console.say(f"it goes on with: leadhand answer {taken.run}/{told['question']} retry")
    return 1 if outcome["refused"] else 0


def _say_outcome(console: Console, outcome: Doc) -> None:
    if outcome["landed"]:
        console.out(f"landed as {outcome['landed']}")
    elif outcome["refused"]:
        console.out(f"refused, and yours again: {clean_lines(outcome['refused'])}")
    elif outcome["asked"]:
        console.out("it passes, and waits for an approver: leadhand inbox")
    else:
        console.out(f"{clean(outcome['task'])} is given to {outcome['to']}")


def _taken(root: Path, task: str) -> TakenTask:
    from leadhand.fleet.take_over import read_taken

    run, _, name = task.rpartition("/")
    found = [e for e in read_taken(root) if e.task == name and e.run.startswith(run)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{task} could be any of: {', '.join(each.name for each in found)}")
    others = ", ".join(each.name for each in read_taken(root)) or "none"
    raise UsageError(f"{task} is not taken (taken: {others}). Fix: leadhand fleet take {task}")


def _clone_of(taken: TakenTask, place: Path | None, *, needed: bool) -> Path | None:
    """Return the clone of a taken task. Raise `UsageError` if it is needed and not found."""
    tried = [place] if place else [Path.cwd(), Path.cwd() / taken.task]
    for each in tried:
        if each.is_dir() and _git(each, "config", "--get", KEY, check=False) == taken.name:
            return each.absolute()
    if needed or place:
        named = " or ".join(map(str, tried))
        raise UsageError(
            f"{named} is no clone of {taken.name}. Fix: name the one that "
            "`leadhand fleet take` made, with --from"
        )
    return None


def _bundled(clone: Path, bundle: Path, *, needed: bool) -> Doc:
    """Put the person's commits into a file of the fleet; return the last one and its author."""
    if changed := _git(clone, "status", "--porcelain"):
        first = changed.splitlines()[0]
        raise UsageError(f"{clone} has changes that are not committed ({first}). Fix: git commit")
    head = _git(clone, "rev-parse", "HEAD")
    fresh = _git(clone, "rev-list", "--count", "HEAD", "--not", "refs/remotes/fleet/main")
    if fresh == "0":
        if needed:
            raise UsageError(f"{clone} has no commit of yours. Fix: git commit, or give --to-agent")
        return {}
    part = bundle.with_suffix(".part")
    words = ("bundle", "create", "--quiet", str(part), "HEAD")
    _git(clone, *words, "--not", "refs/remotes/fleet/main")
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(bundle)
    return {"head": head, "author": _git(clone, "log", "-1", "--format=%an <%ae>")}


async def _outcome(root: Path, taken: TakenTask) -> Doc:
    """Wait until what was given has landed, was refused, or waits for an approver."""
    from leadhand.fleet.repositories import repository_folder
    from leadhand.fleet.repository.hub import Hub
    from leadhand.fleet.status.evidence import live_of
    from leadhand.fleet.take_over import ASKED, TakenTask, file_of

    while True:
        try:
            data = file_of(root, taken.run, taken.task).read_bytes()
        except FileNotFoundError:
            hub = await Hub.look(repository_folder(root, taken.repository) / "hub")
            return {"landed": hub.landed(taken.run, taken.task) or ""}
        now = msgspec.json.decode(data, type=TakenTask)
        if not now.given:
            return {"refused": now.refused or "no reason was given"}
        if now.given == ASKED:
            return {"asked": True}
        if live_of(root) is None:
            raise Conflict(
                f"the fleet has ended; what you gave is kept, and {taken.name} goes on with the "
                "next `leadhand fleet start`"
            )
        await asyncio.sleep(LOOK_S)
