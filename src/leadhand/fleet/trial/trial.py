"""One trial, from the first file to the last figure."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.app.reader import Reader
from leadhand.core import events as ev
from leadhand.core.state.recovery_log import RecoveryOutcome
from leadhand.core.views.recovery_stats import recoveries
from leadhand.errors import LeadhandError
from leadhand.fleet.product_log import EPIC, FLEET_DATABASE
from leadhand.fleet.repository.git import Commit, Git, GitFailed, read_log
from leadhand.fleet.repository.hub import MAIN, START, ref_of
from leadhand.fleet.status import journal
from leadhand.fleet.status.evidence import Evidence
from leadhand.fleet.trial.scenario import (
    ENDING,
    FAULTS,
    GATE,
    Places,
    Trial,
    git_of,
    lay_out,
    mark_of,
)
from leadhand.workers.sandbox.sandbox import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leadhand.fleet.trial.scenario import Places


# The referee of a trial: starts the engine, does what agents ask for, and watches.
#
# An agent cannot kill the engine or fill the disk from inside its sandbox. It asks by a file in its
# slot, which is all it can write, and here it is done: SIGKILL to the engine, which is then started
# again; a limit on the size of files for the engine's process, which then cannot write; a commit on
# the user's branch by somebody who is no agent. The answer is a file beside the question.


LOOK_S = 0.1
FULL_S = 1.5
"""How long the disk is full."""
PATIENCE_S = 20.0
"""An engine that stops rather than guess what was written does so within this time after."""
TAKEN_S = 240.0
"""How long a person's commit may take to be on main, behind everybody else's."""
END_S = 60.0
"""How long an engine may take to end its agents when the trial is ended."""
LINE_BYTES = 16 << 20
DEATHS_MAX = 3

Told = dict[str, Any]


class Desk:
    """Runs one trial to its end."""

    def __init__(self, places: Places, told: Callable[[Told], None] | None) -> None:
        self._places, self._told = places, told
        self._engine: asyncio.subprocess.Process | None = None
        self._blow, self._pen = asyncio.Lock(), asyncio.Lock()
        self._wanted = False
        self._seen: dict[Path, int] = {}
        self._struck, self._full_until = 0, 0.0
        self.asked: set[tuple[str, int]] = set()
        """Attempts that wanted something done, and when it was done were in the middle of it."""
        self.void: set[tuple[str, int]] = set()
        """Attempts for which it could not be done in time, so that nothing went wrong."""
        self.fulls = 0
        self.words: deque[str] = deque(maxlen=100)
        """The last that the engine said on standard error."""
        self.memory: list[float] = []
        """Of the engine, in MB, each second."""

    async def run(self) -> float:
        """Run until the engine reports that all is done; return how long it took."""
        began = time.monotonic()
        looking = asyncio.get_running_loop().create_task(self._look())
        try:
            await self._lives()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self._end()
        return time.monotonic() - began

    async def _end(self) -> None:
        """End an engine that is still at work: first by itself, with its agents."""
        engine = self._engine
        if engine is None or engine.returncode is not None:
            return
        if engine.stdin is not None:
            engine.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await asyncio.gather(self._listen(engine), self._hear(engine), engine.wait())
        except TimeoutError:
            engine.kill()
            await engine.wait()

    async def _lives(self) -> None:
        deaths = 0
        while True:
            # Not to a file: its disk may be full just when it has something to say.
            pipe = asyncio.subprocess.PIPE
            self._engine = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "leadhand.fleet.trial.fleet_process", str(self._places.root),
                stdin=pipe, stdout=pipe, stderr=pipe, limit=LINE_BYTES,
            )  # fmt: skip
            await asyncio.gather(self._listen(self._engine), self._hear(self._engine))
            code = await self._engine.wait()
            if code == 0:
                return
            expected = self._wanted or time.monotonic() < self._full_until
            deaths, self._wanted = 0 if expected else deaths + 1, False
            if deaths > DEATHS_MAX:
                words = "".join(self.words)
                raise LeadhandError(f"the engine of the trial ends by itself ({code}):\n{words}")

    async def _listen(self, engine: asyncio.subprocess.Process) -> None:
        if engine.stdout is None:
            return
        async for line in engine.stdout:
            with contextlib.suppress(ValueError):
                status = json.loads(line)
                self.memory.append(_memory_mb(engine.pid))
                if self._told is not None:
                    self._told(status)

    async def _hear(self, engine: asyncio.subprocess.Process) -> None:
        if engine.stderr is not None:
            async for line in engine.stderr:
                self.words.append(line.decode(errors="replace"))

    # --- what agents ask for ---------------------------------------------------------------

    async def _look(self) -> None:
        doing: set[asyncio.Task[None]] = set()
        while True:
            for asked in self._places.fleet.glob("slots/*/.git/deed.json"):
                with contextlib.suppress(OSError, ValueError):
                    when = asked.stat().st_mtime_ns
                    if self._seen.get(asked) == when:
                        continue
                    wanted = json.loads(asked.read_text())
                    self._seen[asked] = when
                    task = asyncio.create_task(self._do(asked, wanted, when))
                    doing.add(task)
                    task.add_done_callback(doing.discard)
            await asyncio.sleep(LOOK_S)

    async def _do(self, asked: Path, wanted: dict[str, Any], when: int) -> None:
        attempt = (wanted["task"], wanted["attempt"])
        again = attempt in self.asked  # its agent goes on after a conflict: once is enough
        self.asked.add(attempt)
        if again:
            pass
        elif wanted["deed"] == "engine killed":
            await self._kill(when)
        elif wanted["deed"] == "disk full":
            await self._fill_disk()
        elif not await self._commit(*attempt):
            self.void.add(attempt)
        with contextlib.suppress(OSError):
            asked.with_name("deed.done").touch()

    async def _kill(self, when: int) -> None:
        async with self._blow:
            if when < self._struck or self._engine is None:
                return  # an earlier fault served this request too
            engine, self._wanted, self._struck = self._engine, True, time.time_ns()
            with contextlib.suppress(ProcessLookupError):
                engine.send_signal(signal.SIGKILL)
            await engine.wait()

    async def _fill_disk(self) -> None:
        async with self._blow:
            engine = self._engine
            if engine is None or engine.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self.fulls += 1
                self._full_until = time.monotonic() + FULL_S + PATIENCE_S
                before = resource.prlimit(engine.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (0, before[1]))
                await asyncio.sleep(FULL_S)
                resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, before)

    async def _commit(self, task: str, attempt: int) -> bool:
        """Commit to the task's file as the user; return whether it came to main in time."""
        async with self._pen:
            sha = await self._written(task, attempt)
        hub = Git(self._places.fleet / "hub" / "hub.git", self._places.root / "gitconfig")
        until = time.monotonic() + TAKEN_S
        while time.monotonic() < until:
            with contextlib.suppress(GitFailed):
                said = await hub("merge-base", "--is-ancestor", sha, "main", codes=(0, 1, 128))
                if said.code == 0:
                    return True
            await asyncio.sleep(LOOK_S * 3)
        return False

    async def _written(self, task: str, attempt: int) -> str:
        git = git_of(self._places)
        text = f'"""By a person, for {task}, in spite of attempt {attempt}."""\n'.encode()
        blob = (await git("hash-object", "-w", "--stdin", stdin=text)).text
        index = self._places.root / "pen"
        await git("read-tree", "main", index=index)
        entry = f"100644,{blob},modules/{task}.py"
        await git("update-index", "--add", "--cacheinfo", entry, index=index)
        tree = (await git("write-tree", index=index)).text
        words = f"Another person writes {task} too"
        sha = (await git("commit-tree", tree, "-p", "main", "-m", words)).text
        await git("update-ref", "refs/heads/main", sha)
        return sha


def _memory_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a user's
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0


# Figures of a trial, counted from the log, the journal and git, which must agree.


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


async def trial_figures(
    places: Places, trial: Trial, desk: Desk, took_s: float, told: Callable[[str], None]
) -> Doc:
    """Return the document of a trial."""
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
        "gate_runs": evidence["gate"]["runs"],
        "queue_gate_runs": evidence["train"]["tests"],
        "reused_verdicts": evidence["train"]["reused"],
        "fitting": trial.fitting,
        "redone": round(max(0, len(seen.begun) - len(landed)) / max(1, len(landed)), 4),
        "conflicts": evidence["train"]["conflicts"],
        "batch_mean": evidence["train"]["batch_mean"],
        "questions": len(seen.asked),
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
        "foreign": sum(not _own(trial, each, seen.touched) for each in ours),
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
        lost = (
            _left_work(trial, desk, name, (task, attempt))
            and ref_of("wip", seen.run, task, attempt) not in seen.kept
        )
        over = task in landed or task in seen.asked
        row["times"] += 1
        row["handled"] += right and over and not lost
        row["recovered"] += task in landed and task not in seen.asked
        row["lost_work"] += lost
        row["answers"][answered.get((task, attempt), end or "landed")] += 1
    return {name: {**rows[name], "answers": dict(rows[name]["answers"])} for name in sorted(rows)}


def _left_work(trial: Trial, desk: Desk, fault: str, attempt: Attempt) -> bool:
    """Return whether an agent had left work that must be kept when its attempt ended so.

    One that was killed with the engine had, if it asked for just that: others ask before they write
    anything, or had not begun.
    """
    if fault == "engine killed":
        return trial.fault(*attempt) == fault and attempt in desk.asked
    return FAULTS[fault].leaves


def _really(trial: Trial, seen: TrialEvidence, desk: Desk, attempt: Attempt, end: str) -> str:
    """Return the fault that happened in an attempt, if it came to that."""
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


def _own(trial: Trial, commit: Commit, touched: dict[str, list[str]]) -> bool:
    return set(touched.get(commit.sha, ())) <= {*trial.writes(commit.trailers["Leadhand-Task"])}


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


WRONG = (
    "lost",
    "twice",
    "red_commits",
    "unhandled",
    "lost_work",
    "false_success",
    "foreign",
    "wrote_outside",
    "hooks_run",
    "checkout_changed",
    "disagreements",
)
"""Figures that are 0, or something is wrong with the fleet."""


async def simulate(
    trial: Trial,
    told: Callable[[dict[str, Any]], None] | None = None,
    said: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Run it, and count."""
    sandbox = choose("auto")
    with tempfile.TemporaryDirectory(prefix="leadhand-fleet-") as folder:
        places = Places(Path(folder))
        await lay_out(places, trial)
        before = mark_of(places.repo)
        desk = Desk(places, told)
        took = await desk.run()
        found = await trial_figures(places, trial, desk, took, said)
        changed = int(mark_of(places.repo) != before)
        return {**found, "checkout_changed": changed, "sandbox": sandbox.kind}
