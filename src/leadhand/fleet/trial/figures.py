"""What became of a trial: counted from the log, the journal and git, each against the others."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.app.reader import Reader
from leadhand.core import events as ev
from leadhand.core.views.recovery_stats import RecoveryOutcome, recoveries
from leadhand.fleet.repository.commits import Commit, read_log
from leadhand.fleet.repository.git import Git
from leadhand.fleet.repository.hub import MAIN, START, ref_of
from leadhand.fleet.runs import EPIC, FLEET_DATABASE
from leadhand.fleet.status import journal
from leadhand.fleet.status.evidence import Evidence
from leadhand.fleet.trial.scenario import ENDING, FAULTS, GATE, Places, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leadhand.fleet.trial.referee import Desk


WINDOW_S = 300
STARVED = frozenset({"transient", "unavailable"})
"""How attempts end for want of room on the disk."""
Doc = dict[str, Any]
Attempt = tuple[str, int]


class TrialEvidence(NamedTuple):
    """Everything that the figures come from."""

    run: str
    ends: dict[Attempt, str]
    """By attempt: the class of its failure; nothing when it landed."""
    cut: set[Attempt]
    """Attempts that ended with the engine."""
    answers: list[RecoveryOutcome]
    done: set[str]
    """Tasks that the log calls done."""
    asked: set[str]
    """Tasks that wait for a person."""
    begun: list[Attempt]
    tips: list[str]
    commits: list[Commit]
    kept: set[str]
    """Names of what the hub keeps."""
    touched: dict[str, list[str]]
    """By commit: its paths."""


async def counted(
    places: Places, trial: Trial, desk: Desk, took_s: float, told: Callable[[str], None]
) -> Doc:
    """The document of a trial."""
    seen = await _seen(places)
    evidence = await Evidence(places.fleet).document()
    ours = [each for each in seen.commits if each.trailers.get("Leadhand-Task")]
    landed = {each.trailers["Leadhand-Task"] for each in ours}
    table = _table(trial, seen, desk, landed)
    every = [each.sha for each in seen.commits] if trial.strict else seen.tips
    red = await asyncio.to_thread(_red, places, every, told)
    injected = sum(row["times"] for row in table.values())
    recovered = sum(row["recovered"] for row in table.values())
    outside = places.outside.read_text()
    return {
        "agents": trial.agents,
        "tasks": trial.tasks,
        "landed": len(landed),
        "peak_agents": evidence["agents"]["peak"],
        "seconds": round(took_s, 1),
        "per_hour": round(len(ours) / took_s * 3600),
        "per_hour_slowest": _slowest([each.at for each in ours]),
        "faults": injected,
        "recovery_rate": round(recovered / injected, 4) if injected else 1.0,
        "recovery_by_class": _by_class(seen, landed - seen.asked),
        "red_commits": len(red),
        "tested_again": len(every),
        "lost": trial.tasks - len(landed) - len(seen.asked - landed),
        "waiting": len(seen.asked - landed),
        "twice": len(ours) - len(landed),
        "unhandled": injected - sum(row["handled"] for row in table.values()),
        "lost_work": sum(row["lost_work"] for row in table.values()),
        "false_success": len(seen.done - landed) + _wrongly(trial, ours, desk.void),
        "foreign": sum(not _own(each, seen.touched) for each in ours),
        "wrote_outside": _trespasses(places, outside),
        "hooks_run": outside.count("a hook ran"),
        "semantic_pairs": sum(bool(trial.claim(task)) for task in trial.names) // 2,
        "semantic_clashes": _clashes(trial, seen),
        "engine_kills": _lives(places) - 1,
        "disagreements": evidence["disagreements"],
        "memory_mb": _memory(desk.memory),
        "catalogue": table,
    }


async def _seen(places: Places) -> TrialEvidence:
    hub = Git(places.fleet / "hub" / "hub.git", places.fleet / "hub" / "gitconfig")
    commits = await read_log(hub, "--first-parent", f"{START}..{MAIN}")
    shas = "".join(f"{each.sha}\n" for each in commits).encode()
    said = await hub("diff-tree", "--stdin", "-r", "-m", "--name-only", stdin=shas)
    touched: dict[str, list[str]] = {}
    sha = ""
    for line in said.text.splitlines():
        if len(line) == len(commits[0].sha) and "/" not in line and "." not in line:
            sha = line
        else:
            touched.setdefault(sha, []).append(line)
    notes = journal.read(places.fleet)
    kept = (await hub("for-each-ref", "--format=%(refname)", "refs/leadhand/")).text.splitlines()
    reader = Reader(places.fleet / FLEET_DATABASE)
    try:
        (run,) = [each.run for each in reader.runs() if each.run.startswith(EPIC)]
        events = [event for _entry, event in reader.events(run)]
    finally:
        reader.store.close_reader()
    return TrialEvidence(
        run,
        dict(_ends(events)),
        {(each.step, each.attempt) for each in events if isinstance(each, ev.AttemptLost)},
        recoveries(iter(events)),
        {each.step for each in events if isinstance(each, ev.AttemptReported) and each.met},
        {each.step for each in events if isinstance(each, ev.QuestionAsked)},
        [(str(n["task"]), int(n["attempt"])) for n in notes if n["what"] == "agent"],
        [str(note["tip"]) for note in notes if note["what"] == "moved"],
        commits,
        set(kept),
        touched,
    )


def _ends(events: Iterable[ev.Event]) -> Iterable[tuple[Attempt, str]]:
    for event in events:
        match event:
            case ev.AttemptReported(step=step, attempt=attempt, met=True):
                yield (step, attempt), ""
            case ev.AttemptReported(step=step, attempt=attempt, failure=failure):
                yield (step, attempt), str((failure or {}).get("class", "criteria_unmet"))
            case ev.AttemptLost(step=step, attempt=attempt, failure_class=kind):
                yield (step, attempt), kind
            case ev.ProbeReported(step=step, attempt=attempt, outcome="done"):
                yield (step, attempt), ""
            case _:
                pass


def _table(trial: Trial, seen: TrialEvidence, desk: Desk, landed: set[str]) -> dict[str, Doc]:
    """For each fault how often it was made, and how it was answered."""
    rows: dict[str, Doc] = {}
    answered = {(each.step, each.attempt): each.strategy for each in seen.answers}
    for task, attempt in dict.fromkeys(seen.begun):
        end = seen.ends.get((task, attempt), "lost")
        name = _really(trial, seen, desk, (task, attempt), end)
        if not name:
            continue
        fault = FAULTS[name]
        row = rows.setdefault(
            name,
            {
                "catalogue": fault.catalogue,
                "expected": fault.answer,
                "times": 0,
                "handled": 0,
                "recovered": 0,
                "lost_work": 0,
                "answers": Counter(),
            },
        )
        right = end in fault.classes or (bool(trial.claim(task)) and end == "criteria_unmet")
        must_keep = fault.leaves and (name != "engine killed" or (task, attempt) in desk.asked)
        lost = must_keep and ref_of("wip", seen.run, task, attempt) not in seen.kept
        over = task in landed or task in seen.asked
        row["times"] += 1
        row["handled"] += right and over and not lost
        row["recovered"] += task in landed and task not in seen.asked
        row["lost_work"] += lost
        row["answers"][answered.get((task, attempt), end or "landed")] += 1
    return {name: {**rows[name], "answers": dict(rows[name]["answers"])} for name in sorted(rows)}


def _really(trial: Trial, seen: TrialEvidence, desk: Desk, attempt: Attempt, end: str) -> str:
    """What went wrong in an attempt: what it was told to do, if it came to that."""
    name = trial.fault(*attempt)
    if not name or attempt in desk.void:
        return ""
    if attempt in seen.cut and not (name in ENDING and attempt in desk.asked):
        return "engine killed"  # for another's sake, before it did what it was told to do
    if end in STARVED and "" in FAULTS[name].classes and desk.fulls:
        return "disk full"  # as above
    return name


def _by_class(seen: TrialEvidence, recovered: set[str]) -> dict[str, Doc]:
    """For each class of failure how many attempts ended so, and of how many the task landed."""
    rows: dict[str, Doc] = {}
    for (task, _attempt), kind in sorted(seen.ends.items()):
        if kind:
            row = rows.setdefault(kind, {"times": 0, "recovered": 0})
            row["times"] += 1
            row["recovered"] += task in recovered
    for row in rows.values():
        row["rate"] = round(row["recovered"] / row["times"], 4)
    return rows


def _wrongly(trial: Trial, commits: Iterable[Commit], void: set[Attempt]) -> int:
    """Commits of attempts that did not do their task."""
    count = 0
    for each in commits:
        attempt = (each.trailers["Leadhand-Task"], int(each.trailers["Leadhand-Attempt"]))
        name = trial.fault(*attempt)
        count += bool(name) and attempt not in void and "" not in FAULTS[name].classes
    return count


def _own(commit: Commit, touched: dict[str, list[str]]) -> bool:
    task = commit.trailers["Leadhand-Task"]
    return set(touched.get(commit.sha, ())) <= {f"modules/{task}.py", f"checks/{task}.py"}


def _trespasses(places: Places, outside: str) -> int:
    beside = places.fleet / "slots" / "README.md"
    head = (places.fleet / "hub" / "hub.git" / "HEAD").read_text()
    return outside.count("written by") + beside.exists() + head.count("written by")


def _clashes(trial: Trial, seen: TrialEvidence) -> int:
    """Changes of pairs that were sound by themselves and came back red."""
    return sum(
        end == "criteria_unmet" and bool(trial.claim(task)) and not trial.fault(task, attempt)
        for (task, attempt), end in seen.ends.items()
    )


def _lives(places: Places) -> int:
    return sum(note["what"] == "opened" for note in journal.read(places.fleet))


def _slowest(times: Sequence[int]) -> int | None:
    """Landed in an hour, in the slowest five minutes; nothing when it was shorter than twice that.

    Up to the last landing but the last five minutes: at the end there is not enough left to do.
    """
    if not times or max(times) - min(times) < WINDOW_S * 2:
        return None
    first, last = min(times), max(times) - WINDOW_S
    counts = [
        sum(start <= at < start + WINDOW_S for at in times)
        for start in range(first, last - WINDOW_S + 1, 30)
    ]
    return round(min(counts) * 3600 / WINDOW_S) if counts else None


def _memory(samples: Sequence[float]) -> Doc:
    fifth = max(1, len(samples) // 5)
    parts = {"early": samples[fifth : 2 * fifth] or samples, "late": samples[-fifth:]}
    found = {name: round(statistics.median(part or [0.0])) for name, part in parts.items()}
    return {**found, "peak": round(max(samples, default=0.0))}


def _red(places: Places, shas: Sequence[str], told: Callable[[str], None]) -> list[str]:
    """Commits that do not pass when they are checked out and tested, apart from the fleet."""
    red = []
    hub = places.fleet / "hub" / "hub.git"
    with tempfile.TemporaryDirectory(dir=places.root) as folder:
        files = Path(folder) / "files"
        files.mkdir()
        env = {**os.environ, "GIT_INDEX_FILE": str(Path(folder) / "index")}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        git = ["git", f"--git-dir={hub}", f"--work-tree={files}"]
        for number, sha in enumerate(shas):
            argv = [*git, "read-tree", "--reset", "-u", sha]
            subprocess.run(argv, env=env, check=True, cwd=files)
            gate = [sys.executable, "-I", "-c", GATE, "0"]
            quiet = subprocess.DEVNULL
            done = subprocess.run(gate, env=env, cwd=files, stderr=quiet, check=False)
            if done.returncode:  # as the gate does with a test that is known to be flaky
                done = subprocess.run(gate, env=env, cwd=files, stderr=quiet, check=False)
            (files / "wobbled").unlink(missing_ok=True)
            if done.returncode:
                red.append(sha)
            if number % 50 == 49:
                told(f"{number + 1} of {len(shas)} tested again")
    return red
