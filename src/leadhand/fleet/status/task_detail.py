"""One task in detail: its attempts with the output of the gate, and the change that it made.

The log keeps the end of each failed gate run; git keeps the merged commit, or the work that was
saved of the last attempt. Everything is bounded: a difference and a log are read by people.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.fleet.repositories import repository_of
from leadhand.fleet.repository.git import Git, GitFailed, read_log
from leadhand.fleet.repository.hub import MAIN, ref_of
from leadhand.fleet.status.figures import was_stopped
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from leadhand.core.state.model import StepState


Doc = dict[str, Any]
FILES_SHOWN = 100
PATCH_CHARS = 40_000
DIFF_CHARS = 200_000
MESSAGE_CHARS = 8000
ATTEMPTS_SHOWN = 50
TESTS_SHOWN = 20
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FAILING = re.compile(
    r"^(?:FAILED (?P<pytest>[^\s(]\S*)(?: - .*)?|(?:FAIL|ERROR): (?P<unittest>\S+ \([^)\n]*\)|\S+)"
    r"|\s*--- FAIL: (?P<go>\S+)|\s*not ok \d+ - (?P<tap>.+)"
    r"|test (?P<rust>\S+) \.\.\. FAILED|\s*● (?P<jest>.+))$",
    re.MULTILINE,
)


def failing_tests(log: str) -> list[str]:
    """Return the names of failed tests in the output of a test runner, as far as it names them."""
    found = ((match[match.lastgroup or 0] or "").strip() for match in _FAILING.finditer(log))
    return list(dict.fromkeys(name for name in found if name))[:TESTS_SHOWN]


def attempts_of(
    log: Iterable[tuple[int, ev.Event]], task: str, waited: Container[int] = ()
) -> list[Doc]:
    """Return the attempts of a task, oldest first, each with what followed from it.

    Those in `waited` were lost before an agent began: the fleet ended while they stood in line.
    """
    found: dict[int, Doc] = {}
    for at, event in log:
        if getattr(event, "step", "") != task:
            continue
        match event:
            case ev.AttemptStarted():
                found[event.attempt] = {
                    "attempt": event.attempt,
                    "worker": event.worker,
                    "started": iso(at),
                    "outcome": "running",
                }
            case ev.AttemptReported():
                row = found.setdefault(event.attempt, {"attempt": event.attempt})
                outcome = "stopped" if was_stopped(event.failure) else "failed"
                row |= {"ended": iso(at), "outcome": "merged" if event.met else outcome}
                row |= {"cost": round(event.cost or 0.0, 6), **_failure(event.failure)}
                if by := stand_in_of(event):
                    row |= {"worker": by["worker"], "stand_in_for": by["for_login"]}
            case ev.AttemptLost():
                row = found.setdefault(event.attempt, {"attempt": event.attempt})
                outcome = "not started" if event.attempt in waited else "lost"
                row |= {"ended": iso(at), "outcome": outcome, "class": event.failure_class}
            case ev.RecoveryDecided() if event.attempt in found:
                # Its reason repeats the failure, which is told already.
                recovery = {"strategy": event.strategy, "reason": event.reason.split("; ")[-1]}
                found[event.attempt]["recovery"] = {**recovery, "worker": event.worker}
            case _:
                pass
    return list(found.values())[-ATTEMPTS_SHOWN:]


def stand_in_of(event: ev.AttemptReported) -> Doc | None:
    """Return the worker of another login that did the attempt, if one took it over."""
    told = event.data if event.met else (event.failure or {}).get("details")
    found = told.get("stand_in") if isinstance(told, dict) else None
    return found if isinstance(found, dict) and {"worker", "for_login"} <= found.keys() else None


def _failure(failure: Mapping[str, Any] | None) -> Doc:
    """Return the failure of an attempt: a sentence, and what was printed, with failed tests."""
    if not failure:
        return {}
    head, _, log = str(failure.get("message", "")).partition("\n")
    log = log[-MESSAGE_CHARS:].strip("\n")
    kind = "" if was_stopped(failure) else str(failure.get("class", ""))
    found = {"class": kind, "message": head[:MESSAGE_CHARS].rstrip(":")}
    return {**found, "log": log, "tests": failing_tests(log)}


def planned_of(step: StepState) -> Doc:
    """Return what was planned: goal, paths, acceptance, dependencies."""
    given = step.doc.get("parameters") or {}
    return {
        "goal": str(given.get("goal", ""))[:MESSAGE_CHARS],
        "brief": str(given.get("brief", ""))[:MESSAGE_CHARS],
        "writes": [str(path) for path in given.get("writes") or ()][:FILES_SHOWN],
        "acceptance": [list(map(str, argv)) for argv in given.get("acceptance") or ()][:20],
        "why": str(step.doc.get("description", ""))[:MESSAGE_CHARS],
        "worker": step.worker,
        "superseded_by": step.superseded_by,
        **({"repository": name} if (name := repository_of(step.doc)) else {}),
    }


def is_commit(name: str) -> bool:
    """Return whether a name is that of a commit.

    A person who does a task gives its result, which may hold anything: also an option of git.
    """
    return _SHA.fullmatch(name) is not None


async def change_of(git: Git, run: str, task: str, commit: str, attempts: int) -> Doc | None:
    """Return the difference that a task made: merged, or else the work saved of an attempt."""
    if commit and not is_commit(commit):
        return None
    try:
        if commit:
            return {"of": "commit", "commit": commit, **await _difference(git, commit)}
        for number in range(attempts, 0, -1):
            for kind in ("task", "wip"):
                ref = ref_of(kind, run, task, number)
                sha = (await git("for-each-ref", "--format=%(objectname)", ref)).text.strip()
                if sha:
                    saved = {"of": "saved work", "attempt": number, "commit": sha}
                    return {**saved, **await _difference(git, sha)}
    except GitFailed:
        return None
    return None


async def commit_of(git: Git, sha: str, live: Mapping[str, Any] | None = None) -> Doc | None:
    """Return a commit on main; None if there is none of that name.

    Its branch is the one that the fleet publishes to; without one, main of the fleet's own clone.
    """
    if not is_commit(sha):
        return None
    try:
        found = await read_log(git, "--max-count=1", sha)
    except GitFailed:
        return None
    if not found:
        return None
    by = found[0].trailers.get("Assisted-by", "")
    tests = found[0].trailers.get("Leadhand-Tests", "")
    about = {"sha": found[0].sha, "subject": found[0].subject, "by": by, "tests": tests}
    branch = (live or {}).get("publish") or MAIN.removeprefix("refs/heads/")
    return {**about, "at": iso(found[0].at * 1_000_000), "branch": branch}


async def _difference(git: Git, sha: str) -> Doc:
    options = ("-p", "-M", "--no-ext-diff", "--no-textconv")
    said = await git("diff-tree", *options, f"{sha}^1", sha)
    text = scrub(said.out[: 4 * DIFF_CHARS].decode("utf-8", "backslashreplace"))
    files = list(_files(text))
    return {"files": files[:FILES_SHOWN], "left_out": max(0, len(files) - FILES_SHOWN)}


def _files(text: str) -> Iterable[Doc]:
    """Yield the files of a difference; patches beyond the bounds are cut, and say so."""
    room = DIFF_CHARS
    for part in re.split(r"(?m)^(?=diff --git )", text):
        if not part.startswith("diff --git "):
            continue
        head, _, body = part.partition("\n@@")
        body = f"@@{body}" if body else ""
        lines = body.splitlines()
        shown = body[: max(0, min(PATCH_CHARS, room))]
        room -= len(shown)
        yield {
            "path": _path(head.splitlines()),
            "added": sum(line.startswith("+") for line in lines),
            "removed": sum(line.startswith("-") for line in lines),
            "patch": shown or ("" if body else "\n".join(head.splitlines()[1:])[:2000]),
            "cut": len(shown) < len(body),
        }


def _path(head: Sequence[str]) -> str:
    for mark in ("+++ b/", "rename to ", "--- a/"):
        for line in head:
            if line.startswith(mark) and not line.endswith("/dev/null"):
                return line.removeprefix(mark)
    return head[0].rpartition(" b/")[2] if head else ""
