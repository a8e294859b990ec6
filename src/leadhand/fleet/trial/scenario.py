"""The scenario of a trial: a repository, tasks, and the faults of the scripted agents."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.core.policy import Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.boundaries import Sharing
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.merge.train import BATCH_MAX, Rules
from leadhand.fleet.repository.git import Git
from leadhand.fleet.service import FleetConfig
from leadhand.fleet.settings import APPEND, LOCK_FILES

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.fleet.agents.base import Coder
    from leadhand.workers.processes.runner import Processes


RUN = "trial"
CLAIMED = 20
"""One pair of tasks in so many: each of the two is sound by itself, both together are red."""
HOT = "shared/core.py"
"""The file that most tasks edit, where tasks overlap."""
SHARED = 12
"""Further files that several tasks edit."""
FUNCTIONS = 100
"""Functions of a shared file; two tasks that edit the same one conflict."""
HISTORY = 60
"""Earlier commits of a repository with shared files, with edits as those of the tasks."""
NAMED = 0.5
"""The share of tasks with shared files whose goals name the functions that they edit."""
TRIES = 60
"""Attempts of one task that faults are drawn for; later ones go right."""
GATE = (
    "import pathlib, runpy, sys, time; sys.path.insert(0, '.'); began = time.monotonic();"
    "[runpy.run_path(str(p)) for p in sorted(pathlib.Path('checks').glob('*.py'))];"
    "time.sleep(max(0.0, float(sys.argv[1]) - time.monotonic() + began))"
)
CLAIMS = """import pathlib

texts = [path.read_text() for path in pathlib.Path("modules").glob("*.py")]
claims = [line for text in texts for line in text.splitlines() if line.startswith("CLAIM")]
assert len(claims) == len(set(claims)), "two modules claim the same"
"""


class TrialFault(NamedTuple):
    """One way to go wrong, and the right answer to it."""

    name: str
    catalogue: str
    """Its numbers in the catalogue of faults."""
    answer: str
    classes: frozenset[str]
    """How the attempt may end in the log; with "" it may land all the same."""
    leaves: bool = False
    """Whether the agent leaves work that must be kept."""


def _fault(
    name: str, catalogue: str, answer: str, *classes: str, leaves: bool = False
) -> TrialFault:
    return TrialFault(name, catalogue, answer, frozenset(classes), leaves)


FAULTS = {
    each.name: each
    for each in (
        _fault("crash", "F23 F24", "retry", "transient", "lost", "bug", leaves=True),
        _fault("hang", "F25 F38", "ended with its children, retry", "timeout", leaves=True),
        _fault("false done", "F32 F33", "not believed, retry with the reason", "criteria_unmet"),
        _fault("bad diff", "F32", "not taken, retry with the reason", "criteria_unmet"),
        _fault("gate red", "F32", "not taken, retry with the log", "criteria_unmet"),
        _fault("merge conflict", "F40", "its owner settles it on new main", ""),
        _fault("flaky test", "F34", "run once more, named, counted", ""),
        _fault("deletes its slot", "F42", "slot made anew, retry", "transient"),
        _fault("writes outside", "F60", "refused by the sandbox", ""),
        _fault("rewrites history", "F42", "files count, history does not", ""),
        _fault("plants a hook", "F44", "never run", ""),
        _fault("engine killed", "F45", "resumed, retry", "lost", leaves=True),
        _fault("disk full", "F48 F49", "waited for, or resumed", "", "transient", "lost"),
    )
}


ENDING = frozenset({"engine killed", "disk full"})
LOAD = 64.0
"""The load for each core above which no agent starts: scripted agents do not compute."""
START_S = 0.2
"""What starting an agent costs on two busy cores."""


def together_s(agents: int, tasks: int) -> float:
    """Return how long agents must work so that the first is still at it when the last begins."""
    return START_S * min(agents, tasks)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The setting of a trial."""

    agents: int = 20
    tasks: int = 100
    faults: float = 0.0
    gate_s: float = 0.0
    work_s: float = 0.0
    seed: int = 1
    strict: bool = False
    silence_s: float = 10.0
    kinds: tuple[str, ...] = tuple(FAULTS)
    attempts: int = 5
    """Tries of one task by one agent."""
    gates: int = 2
    batch: int = BATCH_MAX
    overlap: float = 0.0
    """Share of tasks that also edit the file that most tasks edit; other files are shared less."""
    exclusive: bool = False
    """Whether one task at a time writes a shared file."""

    @property
    def names(self) -> list[str]:
        """Return the names of the tasks."""
        return [f"m{number:04}" for number in range(self.tasks)]

    def fault(self, task: str, attempt: int) -> str:
        """Return the fault of this attempt; empty if it goes right."""
        if attempt >= TRIES:
            return ""
        draw = random.Random(f"{self.seed}/{task}/{attempt}")  # noqa: S311 - faults, not secrets
        # An engine that ends makes a new attempt of everybody's: if those ended it as well, a
        # hundred agents would never get anywhere.
        kinds = [kind for kind in self.kinds if attempt == 1 or kind not in ENDING]
        return draw.choice(kinds) if kinds and draw.random() < self.faults else ""

    def edits(self, task: str) -> list[tuple[str, int]]:
        """Return the shared files that a task, or an earlier commit, edits: with the function each.

        Functions at the head of a file are edited more often, as in real histories.
        """
        if not self.overlap:
            return []
        draw = random.Random(f"{self.seed}/{task}/edits")  # noqa: S311 - edits, not secrets
        shares = {HOT: self.overlap} | {
            f"shared/s{number:02}.py": self.overlap / (1.25 + number / 4)
            for number in range(SHARED)
        }
        return [
            (path, int(FUNCTIONS * draw.random() ** 2))
            for path, share in shares.items()
            if draw.random() < share
        ]

    def goal(self, task: str) -> str:
        """Return what a task is to do."""
        draw = random.Random(f"{self.seed}/{task}/goal")  # noqa: S311 - words, not secrets
        names = [symbol(path, number) for path, number in self.edits(task)]
        also = f" and extend {', '.join(names)}" if names and draw.random() < NAMED else ""
        return f"write the module {task} and its check{also}"

    def writes(self, task: str) -> list[str]:
        """Return the paths that a task may write."""
        shared = [path for path, _function in self.edits(task)]
        return [f"modules/{task}.py", f"checks/{task}.py", *shared]

    @property
    def fitting(self) -> int:
        """Return how many tasks can be at work at once if no two may share a file."""
        taken: set[str] = set()
        count = 0
        for task in self.names:
            if taken.isdisjoint(wanted := self.writes(task)):
                taken.update(wanted)
                count += 1
        return count

    def claim(self, task: str) -> str:
        """Return what both tasks of a pair claim; both are at work at the same time."""
        pair, whole = int(task[1:]) // 2, int(task[1:]) | 1 < self.tasks
        return f"pair{pair}" if whole and pair % CLAIMED == 0 else ""


class Places(NamedTuple):
    """Where everything of one trial lies."""

    root: Path

    @property
    def repo(self) -> Path:
        """Return the user's repository."""
        return self.root / "repo"

    @property
    def fleet(self) -> Path:
        """Return the fleet's folder."""
        return self.root / "fleet"

    @property
    def told(self) -> Path:
        """Return the folder that agents may read: the trial, for their faults."""
        return self.root / "told"

    @property
    def outside(self) -> Path:
        """Return the folder that no agent may change."""
        return self.root / "outside.txt"

    def trial(self) -> Trial:
        """Return the trial that was written here."""
        return msgspec.json.decode((self.told / "trial.json").read_bytes(), type=Trial)


async def lay_out(places: Places, trial: Trial) -> None:
    """Make the repository and the epic, and write down the trial."""
    places.told.mkdir()
    (places.told / "trial.json").write_bytes(msgspec.json.encode(trial))
    for task in trial.names:  # a file for each: a thousand agents read only their own
        about = {
            "claim": trial.claim(task),
            "faults": [trial.fault(task, attempt) for attempt in range(1, TRIES)],
            "work_s": trial.work_s,
            "outside": str(places.outside),
            "edits": trial.edits(task),
        }
        (places.told / f"{task}.json").write_text(json.dumps(about))
    places.outside.write_text("no agent writes here\n")
    await _repository(places, trial)
    lines = [
        f'  - {{id: {name}, goal: "{trial.goal(name)}", writes: [{", ".join(trial.writes(name))}]}}'
        for name in trial.names
    ]
    epics = places.fleet / "epics"
    epics.mkdir(parents=True)
    text = f"# A trial\n\nModules.\n\n```yaml\ntasks:\n{chr(10).join(lines)}\n```\n"
    (epics / f"{RUN}.md").write_text(text)


async def _repository(places: Places, trial: Trial) -> None:
    repo = places.repo
    (repo / "modules").mkdir(parents=True)
    (repo / "checks").mkdir()
    (repo / "README.md").write_text("A repository on trial.\n")
    (repo / "modules" / "__init__.py").write_text("")
    (repo / "checks" / "claims.py").write_text(CLAIMS)
    past = [f"h{number:04}" for number in range(HISTORY if trial.overlap else 0)]
    named = {path for task in (*trial.names, *past) for path, _function in trial.edits(task)}
    shared = {
        path: "\n\n".join(_function(path, number) for number in range(FUNCTIONS))
        for path in sorted(named)
    }
    for path, text in shared.items():
        (repo / path).parent.mkdir(exist_ok=True)
        (repo / path).write_text(text)
    git = git_of(places)
    await git("init", "--quiet", "--initial-branch=main", str(repo))
    await git("--work-tree", str(repo), "add", "--all")
    await git("--work-tree", str(repo), "commit", "--quiet", "--message", "The beginning")
    if past:
        stream = b"".join(_earlier(name, trial.edits(name), shared) for name in past)
        await git("fast-import", "--quiet", stdin=stream)
        await git("--work-tree", str(repo), "reset", "--quiet", "--hard")


def _earlier(name: str, edits: list[tuple[str, int]], shared: dict[str, str]) -> bytes:
    """Return an earlier commit for `git fast-import`, and make its edits in `shared`."""
    by = b"Trial <trial@localhost> 1700000000 +0000"
    parts = [b"commit refs/heads/main\ncommitter %s\n" % by, _data(f"Earlier work {name}")]
    parts.append(b"from refs/heads/main^0\n" if name == "h0000" else b"")
    for path, number in edits:
        end = f"    ]  # end {number:03}\n"
        shared[path] = shared[path].replace(end, f"        '{name}',\n{end}")
        parts += [f"M 100644 inline {path}\n".encode(), _data(shared[path])]
    return b"".join(parts)


def _data(text: str) -> bytes:
    return b"data %d\n%s\n" % (len(text.encode()), text.encode())


def symbol(path: str, number: int) -> str:
    """Return the name of a function of a shared file."""
    return f"{Path(path).stem}_{number:03}"


def _function(path: str, number: int) -> str:
    name = symbol(path, number)
    return (
        f"def {name}() -> list[str]:\n    return [\n        '{name}',\n    ]  # end {number:03}\n"
    )


def mark_of(repo: Path) -> str:
    """Return a digest of the user's checkout and configuration, which a fleet must not change."""
    digest = hashlib.sha256()
    skipped = {"objects", "refs", "logs"}
    for path in sorted(path for path in repo.rglob("*") if path.is_file()):
        name = path.relative_to(repo)
        if name.parts[0] != ".git" or name.parts[1] not in skipped:
            digest.update(f"{name}\0{path.stat().st_mode:o}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def git_of(places: Places) -> Git:
    """Git in the user's repository, as the user."""
    config = places.root / "gitconfig"
    config.write_text("[user]\nname = Trial\nemail = trial@localhost\n")
    return Git(places.repo / ".git", config)


def config_of(places: Places, trial: Trial) -> FleetConfig:
    """Return the configuration of the fleet on trial."""
    return FleetConfig(
        repo=places.repo,
        folder=places.fleet,
        gate=GateRules(
            commands=((sys.executable, "-I", "-c", GATE, str(trial.gate_s)),),
            failures=r"^FAILED (\S+)",
            flaky=("wobbles",),
        ),
        agents=trial.agents,
        gates=trial.gates,
        readable=(places.told, Path(sys.prefix), Path(sys.base_prefix)),
        rules=Rules(slots=trial.gates, strict=trial.strict, batch_max=trial.batch),
        sharing=Sharing(APPEND, LOCK_FILES, price=not trial.exclusive),
        load=LOAD,
        limits=AttemptLimits(time_s=600 + trial.work_s, silence_s=trial.silence_s + trial.work_s),
        policy=Policy(
            backoff_s=0.1,
            jitter=0.1,
            backoff_max_s=2.0,
            attempts_max=trial.attempts,
            max_concurrency=trial.agents + max(4, trial.agents // 4),
        ),
        stagger_s=0.0,
    )


def coders(places: Places) -> Callable[[Processes], list[tuple[str, Coder, str]]]:
    """Two scripted agents that are the same, so that the ladder has a rung more."""
    script = Path(__file__).resolve().parents[2] / "fleet" / "agents" / "scripted_agent.py"
    argv = [sys.executable, "-I", "-S", str(script), "{task}", "{attempt}", str(places.told)]
    homes = places.root / "homes"

    def made(processes: Processes) -> list[tuple[str, Coder, str]]:
        def coder(name: str) -> Coder:
            shown = [script.parent]
            return TemplateCoder(name, argv, readable=shown, processes=processes, homes=homes)

        return [("coder", coder("pretend"), "small"), ("coder@strong", coder("able"), "big")]

    return made
