"""All trials of a suite: several at a time, in a drawn order, continued after an interruption.

Each trial has a fresh copy of the suite's folder and a process of its own (`trial.py`); then the
goal's check looks at that folder. Every result is one line of `trials.jsonl`, durable before the
next trial begins, so that a campaign that was interrupted goes on where it stopped.

    order    drawn from the seed: what slows the machine down for a while meets every arm
    pairs    `LEADHAND_EVAL_SEED` depends on the goal and the repetition, not on the arm, so that
             workers that fail by chance fail alike for all arms
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from leadhand.core.hashing import digest
from leadhand.errors import Conflict, UsageError
from leadhand.evals.suite import Arm, EvalGoal, Suite
from leadhand.evals.trial import TrialRun, TrialSpec
from leadhand.models.recordings import VARIABLE
from leadhand.settings import load_settings

TRIALS = "trials.jsonl"
FORMAT = "leadhand-eval/1"
LEFT_OUT = (".git", ".leadhand", ".venv", "__pycache__", "node_modules")
COPY_BYTES_MAX = 200 * 1024 * 1024
SAID_MAX = 2000
REACHED, NOT_REACHED = 0, 1
"""What the exit code of a check says; every other one is an error of the check."""
RAISED = "Traceback (most recent call last):"
"""A Python check that raises ends with 1 too, and that is no verdict."""


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: what the run says of itself, and what the check says."""

    goal: str
    arm: str
    trial: int
    """The number of the repetition, from 1."""
    run: TrialRun
    reached: bool
    """Whether the goal was reached, by its check."""
    said: str = ""
    """What the check printed, shortened; for an error, what the process printed last."""

    @property
    def claimed(self) -> bool:
        """Whether the run calls itself a success."""
        return self.run.status == "succeeded"

    @property
    def error(self) -> bool:
        """Whether the trial could not be carried out or judged."""
        return self.run.status == "error"


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    suite: str
    digest: str
    format: str = FORMAT


class _Place(NamedTuple):
    goal: EvalGoal
    arm: Arm
    trial: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.goal.name, self.arm.name, self.trial


Progress = Callable[[TrialResult, int, int], None]
"""Called after each trial with its result, how many are done, and of how many."""


class Campaign:
    """The trials of a suite, and the folder that keeps their results."""

    def __init__(self, suite: Suite, output: Path, *, jobs: int = 2, record: bool = False) -> None:
        self.suite, self.output = suite, output
        self._jobs, self._record = jobs, record
        self._file = output / TRIALS
        self._ended = threading.Event()
        self._children: set[int] = set()

    def run(self, progress: Progress) -> list[TrialResult]:
        """Carry out the trials that are missing; return all results, in the order of the suite.

        Raises:
            Conflict: the folder holds results of another suite, or of another state of this one.
            UsageError: the folder cannot be used.
        """
        begun = [each for each in self._begun() if not each.error]  # an error is tried again
        done = {(each.goal, each.arm, each.trial): each for each in begun}
        places = [*self._places()]
        missing = [place for place in places if place.key not in done]
        Random(self.suite.seed).shuffle(missing)  # noqa: S311 - an order that can be repeated
        for result in self._each(missing):
            done[result.goal, result.arm, result.trial] = result
            self._keep(result)
            progress(result, len(done), len(places))
        return [done[place.key] for place in places]

    def _places(self) -> Iterator[_Place]:
        for goal in self.suite.goals:
            for arm in self.suite.arms:
                for trial in range(1, self.suite.repeat + 1):
                    yield _Place(goal, arm, trial)

    def _each(self, places: list[_Place]) -> Iterator[TrialResult]:
        """Yield results as they come; end every process if the caller stops."""
        waiting = iter(places)
        with ThreadPoolExecutor(self._jobs) as pool:
            running: set[Future[TrialResult]] = set()
            try:
                while True:
                    for place in waiting:
                        running.add(pool.submit(self._one, place))
                        if len(running) == self._jobs:
                            break
                    if not running:
                        return
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in ended:
                        yield each.result()
            finally:
                self._ended.set()
                for pid in list(self._children):
                    _end(pid)

    def _begun(self) -> list[TrialResult]:
        """Return the results of an earlier call. Begin the file if there is none."""
        header = _Header(suite=self.suite.name, digest=self.suite.digest)
        try:
            self.output.mkdir(parents=True, exist_ok=True)
            lines = self._file.read_bytes().split(b"\n") if self._file.exists() else []
        except OSError as error:
            raise UsageError(f"{self.output}: {error.strerror}") from None
        if not lines:
            self._append(msgspec.json.encode(header))
            return []
        if lines[-1]:  # a line without its end was cut off by a crash: its trial is repeated
            with self._file.open("r+b") as opened:
                opened.truncate(len(b"\n".join(lines[:-1])) + (len(lines) > 1))
        try:
            found = msgspec.json.decode(lines[0], type=_Header)
            results = [msgspec.json.decode(each, type=TrialResult) for each in lines[1:-1]]
        except msgspec.MsgspecError as error:
            raise Conflict(
                f"{self._file}: holds something else than results ({error}). "
                "Fix: give another folder with --output"
            ) from None
        if found != header:
            raise Conflict(
                f"{self._file}: holds results of another suite, or of this one before it was "
                "changed. Fix: give another folder with --output"
            )
        return results

    def _keep(self, result: TrialResult) -> None:
        self._append(msgspec.json.encode(result))

    def _append(self, line: bytes) -> None:
        with self._file.open("ab") as opened:
            opened.write(line + b"\n")
            opened.flush()
            os.fsync(opened.fileno())

    def _one(self, place: _Place) -> TrialResult:
        """Carry out and judge one trial."""
        with tempfile.TemporaryDirectory(prefix="leadhand-eval-", ignore_cleanup_errors=True) as at:
            root = Path(at) / "root"
            shutil.copytree(self.suite.root, root, ignore=self._left_out, symlinks=True)
            folder = root / self.suite.folder.relative_to(self.suite.root)
            run, said = self._carried_out(place, folder, Path(at))
            if run.status != "error":
                return self._judged(place, folder, run)
        return TrialResult(
            goal=place.goal.name,
            arm=place.arm.name,
            trial=place.trial,
            run=run,
            reached=False,
            said=said,
        )

    def _left_out(self, folder: str, names: list[str]) -> Iterable[str]:
        beside = Path(folder).resolve()
        return [
            name for name in names if name in LEFT_OUT or beside / name == self.output.resolve()
        ]

    def _carried_out(self, place: _Place, folder: Path, at: Path) -> tuple[TrialRun, str]:
        goal, arm = place.goal, place.arm
        tape = arm.fill(arm.tape, goal.name, place.trial)
        kept = at / Path(tape).name if tape and self._record else folder / tape
        spec = TrialSpec(
            goal=goal,
            planner=arm.planner,
            mode=arm.mode,
            plan=arm.fill(arm.plan, goal.name, place.trial),
            tape=str(kept) if tape else "",
            record=self._record,
            approve=self.suite.approve,
            settings=arm.settings,
        )
        (at / "spec.json").write_bytes(msgspec.json.encode(spec))
        command = [sys.executable, "-m", "leadhand.evals.trial", str(at / "spec.json")]
        code, said = self._process([*command, str(at / "run.json")], place, folder, b"")
        try:
            run = msgspec.json.decode((at / "run.json").read_bytes(), type=TrialRun)
            if run.status != "error" and tape and self._record:
                _take_over(kept, self.suite.folder / tape)
            return run, said
        except FileNotFoundError:
            limit = f"took longer than {self.suite.timeout_s:g} s"
            why = limit if code is None else f"ended with exit code {code}"
            return TrialRun(status="error", reason=f"the process of the trial {why}"), said

    def _judged(self, place: _Place, folder: Path, run: TrialRun) -> TrialResult:
        told = {"goal": place.goal.name, "status": run.status, "result": run.result}
        try:
            given = msgspec.json.encode(told)
            code, said = self._process(place.goal.check, place, folder, given)
        except OSError as error:
            code, said = -1, f"{place.goal.check[0]}: {error.strerror}"
        if code not in (REACHED, NOT_REACHED) or (code == NOT_REACHED and RAISED in said):
            reason = f"the check {self._trouble(code)}"
            run = msgspec.structs.replace(run, status="error", reason=reason)
        return TrialResult(
            goal=place.goal.name,
            arm=place.arm.name,
            trial=place.trial,
            run=run,
            reached=code == REACHED,
            said=said,
        )

    def _trouble(self, code: int | None) -> str:
        """Return why a check gave no verdict."""
        if code is None:
            return f"took longer than {self.suite.timeout_s:g} s"
        if code == NOT_REACHED:
            return "raised an exception"
        return "could not be started" if code < 0 else f"ended with exit code {code}"

    def _process(
        self, command: list[str], place: _Place, folder: Path, given: bytes
    ) -> tuple[int | None, str]:
        """Run a command in a trial's folder; return its exit code (None: too long) and its words.

        Whatever it started in its group is ended with it.
        """
        if self._ended.is_set():
            raise InterruptedError
        if command[0] == "python":
            command = [sys.executable, *command[1:]]
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=self._environment(place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._children.add(child.pid)
        try:
            said, _ = child.communicate(given, timeout=self.suite.timeout_s)
            code: int | None = child.returncode
        except subprocess.TimeoutExpired:
            _end(child.pid)
            said, _ = child.communicate()
            code = None
        finally:
            _end(child.pid)
            self._children.discard(child.pid)
        return code, said.decode(errors="replace")[-SAID_MAX:].strip()

    def _environment(self, place: _Place) -> dict[str, str]:
        seed = digest(f"{self.suite.seed}/{place.goal.name}/{place.trial}".encode())
        left = {name: value for name, value in os.environ.items() if name != VARIABLE}
        return {
            **left,
            **place.arm.env,
            "LEADHAND_EVAL_SEED": str(int(seed[:8], 16)),
            "LEADHAND_EVAL_TRIAL": str(place.trial),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }


def refuse_unready(suite: Suite, *, record: bool) -> None:
    """Raise `UsageError` for what would make every trial of an arm fail: tapes, plans, settings."""
    found: dict[str, None] = {}
    tapes: dict[Path, None] = {}
    for arm in suite.arms:
        try:
            load_settings(arm.settings, folder=suite.folder)
        except UsageError as error:
            told = re.sub(r"^flag --\S+: ", "", str(error))
            found[f"{suite.file}: settings of {arm.name}: {told}"] = None
        for goal in suite.goals:
            for trial in range(1, suite.repeat + 1):
                plan = arm.fill(arm.plan, goal.name, trial) or goal.plan
                if plan and not (suite.folder / plan).exists():
                    found[f"{suite.file}: {plan}: there is no such plan"] = None
                tape = suite.folder / arm.fill(arm.tape, goal.name, trial)
                if arm.tape and not record and not tape.exists():
                    tapes[tape] = None
    if tapes:
        more = f", and {len(tapes) - 1} more" if len(tapes) > 1 else ""
        found[
            f"{next(iter(tapes))}: there is no such tape{more}. Fix: give --record, which asks the "
            "models and keeps what they say; or fewer repetitions with --repeat"
        ] = None
    if found:
        raise UsageError("\n".join([*found][:10]))


def refuse_large(suite: Suite) -> None:
    """Raise `UsageError` if the folder that every trial copies is too large."""
    size = 0
    for folder, folders, files in os.walk(suite.root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in files:
            with suppress(OSError):
                size += (Path(folder) / name).lstat().st_size
        if size > COPY_BYTES_MAX:
            raise UsageError(
                f"{suite.root}: has more than {COPY_BYTES_MAX >> 20} MB, and every trial gets a "
                "copy. Fix: give the suite a folder of its own, or a smaller `root`"
            )


def _take_over(tape: Path, place: Path) -> None:
    """Put a whole new tape in the place of an older one, which is kept until then."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    shutil.copyfile(tape, fresh)
    fresh.replace(place)


def _end(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def as_table(results: Iterable[TrialResult]) -> list[dict[str, Any]]:
    """Return the results as rows of one table, for CSV."""
    rows = []
    for each in results:
        run = {
            name: value
            for name, value in msgspec.structs.asdict(each.run).items()
            if name != "result"
        }
        rows.append(
            {"goal": each.goal, "arm": each.arm, "trial": each.trial, "reached": each.reached} | run
        )
    return rows
