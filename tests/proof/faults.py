"""The 60 faults of the chaos catalogue as one campaign: injected, and judged from outside.

Each fault is data: what it is, how it is injected, which answer is expected, and whether a person
is the right answer (class X, five of the 60). `play` injects it through what users have: the
command line in processes of its own, sockets, git, SQLite and PostgreSQL files, an endpoint that
stands for a provider of models, scripted agents. `fault_stage` says what the oracle looks at.

    episode              one fault with one seed
    self-recovered       the world is right, success was claimed, nobody was needed, within bounds,
                         and the log verifies
    correctly handled    self-recovered; for class X one clear escalation with nothing lost
    false success        success was claimed and the world is not right
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.proof import (
    fault_engine,
    fault_git,
    fault_models,
    fault_people,
    fault_planners,
    fault_workers,
)
from tests.proof.fault_stage import Episode, Stage, episode
from tests.proof.table import Figure, Row, of
from tests.support.cli import Folder

MODULES = (
    fault_models,
    fault_planners,
    fault_workers,
    fault_git,
    fault_engine,
    fault_people,
)


class Fault(NamedTuple):
    """One fault of the catalogue."""

    ident: str
    what: str
    expected: str
    person: bool = False
    """Class X: a person is the right answer."""

    @property
    def play(self) -> Callable[[Stage], None]:
        """Return the function that injects it."""
        found = [getattr(each, self.ident.lower(), None) for each in MODULES]
        (play,) = [each for each in found if each is not None]
        return play  # type: ignore[no-any-return]

    @property
    def injection(self) -> str:
        """Return the first sentence about how it is injected."""
        return " ".join((self.play.__doc__ or "").partition("\n\n")[0].split())


FAULTS = (
    Fault("F01", "connection reset, no name, timeout", "retry, then another model"),
    Fault("F02", "429 with Retry-After", "retry after that time, fleet-wide"),
    Fault("F03", "429 without a header, 50 workers", "fewer at once; at most 10 % repeated"),
    Fault("F04", "bursts of 500, 502, 503, 529", "retry, circuit, another"),
    Fault("F05", "provider down", "another model, or park and resume alone"),
    Fault("F06", "stream stalls", "idle timeout, retry"),
    Fault("F07", "truncated or empty answer", "retry, then another"),
    Fault("F08", "malformed JSON", "repair or retry, at most twice"),
    Fault("F09", "result against the schema", "retry with the reason"),
    Fault("F10", "context overflow", "split, never the same again"),
    Fault("F11", "refusal", "another way; asked at most twice"),
    Fault("F12", "model gone (404)", "the next of the tier"),
    Fault("F13", "key revoked, no second one", "one escalation for all", person=True),
    Fault("F14", "planner names no such worker", "refuse with the reason, retry"),
    Fault("F15", "cyclic plan", "refuse with the cycle, retry"),
    Fault("F16", "dangling, doubled, too many, too deep", "refuse or cap"),
    Fault("F17", "a finished step is planned again", "dedupe; effect once"),
    Fault("F18", "plans on after the goal is met", "end; at most one extra plan"),
    Fault("F19", "no progress, ping-pong", "another planner"),
    Fault("F20", "says done too early", "goal check, plan again"),
    Fault("F21", "planner dies", "retry from the last event"),
    Fault("F22", "plan asks for more than allowed", "block; never run; another plan"),
    Fault("F23", "exception, exit code", "classify; retry or another"),
    Fault("F24", "killed by a signal", "retry with a new epoch"),
    Fault("F25", "hang", "kill the group, retry"),
    Fault("F26", "progress without progress", "deadline; retry, then another"),
    Fault("F27", "out of memory", "a bigger worker, not the same again"),
    Fault("F28", "zombie returns", "quarantine"),
    Fault("F29", "report comes twice", "dedupe; conflict"),
    Fault("F30", "messages out of order", "order by attempt and epoch"),
    Fault("F31", "effect done, crash, no probe", "one question; effect once", person=True),
    Fault("F32", "claims success wrongly", "verify, retry, another"),
    Fault("F33", "claims tests that it did not run", "run them"),
    Fault("F34", "flaky check", "at most three tries"),
    Fault("F35", "1 GB of output", "cap; bounded memory"),
    Fault("F36", "invalid UTF-8, NUL, surrogates, ANSI, bidi", "store escaped"),
    Fault("F37", "program missing", "preflight, another"),
    Fault("F38", "waits for input", "no input; another way in a minute"),
    Fault("F39", "leaves a daemon", "nothing left"),
    Fault("F40", "merge conflict", "again on the new base"),
    Fault("F41", "semantic conflict", "later one again; target green"),
    Fault("F42", "stale locks, dirty clones", "clean only its own"),
    Fault("F43", "push rejected, remote down", "retry; never forced"),
    Fault("F44", "hostile repository", "nothing of it runs"),
    Fault("F45", "kill -9 at a failpoint", "resume; nothing twice"),
    Fault("F46", "SIGSTOP, second engine, SIGCONT", "one writer"),
    Fault("F47", "database locked for 10 s", "wait, retry"),
    Fault("F48", "disk full", "refuse, read on, resume"),
    Fault("F49", "fsync or I/O error", "stop at once, restart"),
    Fault("F50", "PostgreSQL restarts", "retry with a look first"),
    Fault("F51", "serialization failure, deadlock", "retry"),
    Fault("F52", "clock ± 1 h", "nothing"),
    Fault("F53", "power cut at a write", "recover"),
    Fault("F54", "two engines on one file", "one writer"),
    Fault("F55", "log tampered", "detect, park, escalate", person=True),
    Fault("F56", "loop blocked, no descriptors", "no false expiry; shed load"),
    Fault("F57", "approval never comes", "park, one question", person=True),
    Fault("F58", "budget exhausted", "stop calls, park, one question", person=True),
    Fault("F59", "repeated POST, dropped stream, stalled reader", "dedupe, resume"),
    Fault("F60", "injection, secret, SSRF, foreign page", "block or redact, go on"),
)
Z = 1.959964
"""Two-sided 95 %."""


def wilson(part: float, whole: int) -> float:
    """Return the lower Wilson bound of a share, at 95 %."""
    if not whole:
        return 0.0
    share = part / whole
    centre = share + Z * Z / (2 * whole)
    margin = Z * math.sqrt(share * (1 - share) / whole + Z * Z / (4 * whole * whole))
    return (centre - margin) / (1 + Z * Z / whole)


def begin() -> None:
    """Let a process of the campaign import what commands import, before anything is timed."""
    with tempfile.TemporaryDirectory() as folder:
        Folder(Path(folder)).run("ls")


def one(ident: str, seed: int) -> Episode:
    """Play one episode in a folder of its own."""
    (fault,) = [each for each in FAULTS if each.ident == ident]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return episode(fault.ident, seed, Path(folder).resolve(), fault.play)


def handled(fault: Fault, seen: Episode) -> bool:
    """Return whether an episode went as the catalogue says."""
    return seen.escalated if fault.person else seen.recovered


def campaign(faults: Iterable[Fault], seeds: Iterable[int], jobs: int = 1) -> list[Episode]:
    """Play every fault with every seed, seed by seed, so many at once."""
    order = [(fault, seed) for seed in seeds for fault in faults]
    found: list[Episode] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=begin) as pool:
        names = [fault.ident for fault, _ in order]
        for (fault, _), seen in zip(
            order, pool.map(one, names, [seed for _, seed in order]), strict=True
        ):
            found.append(seen)
            mark = "+" if handled(fault, seen) else "MISSED"
            problems = f" {list(seen.problems)}" if seen.problems else ""
            sys.stderr.write(f"{mark} {seen.fault} {seen.seed} {seen.seen}{problems}\n")
    return found


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def _share(what: str, good: list[bool], wanted: float) -> Figure:
    share, low = sum(good) / max(1, len(good)), wilson(sum(good), len(good))
    seen = f"{of(sum(good), len(good))}; Wilson lower bound {low:.1%}"
    return Figure(what, seen, f"at least {wanted:.0%}", share >= wanted)


def figures(faults: tuple[Fault, ...], found: list[Episode]) -> list[Figure]:
    """Return the figures of a campaign."""
    by = {fault.ident: fault for fault in faults}
    recovered = [each.recovered for each in found]
    recoverable = [each.recovered for each in found if not by[each.fault].person]
    right = [handled(by[each.fault], each) for each in found]
    false = sum(each.false_success for each in found)
    taken = [each.recovery_s for each in found if each.recovered and each.recovery_s is not None]
    ceiling = sum(not fault.person for fault in faults) / len(faults)
    whole = [f.ident for f in faults if all(e.recovered for e in found if e.fault == f.ident)]
    middle = statistics.median(taken) if taken else 0.0
    return [
        Figure("faults, and episodes", f"{len(faults)}, {len(found)}"),
        _share(f"self-recovered, of all (ceiling {ceiling:.1%})", recovered, 0.90),
        _share("self-recovered, of the recoverable", recoverable, 0.98),
        _share("correctly handled", right, 1.0),
        Figure("faults that recovered in every episode", of(len(whole), len(faults))),
        Figure("false success", str(false), "0", false == 0),
        Figure("episodes whose log does not verify at the end",
               str(sum(not each.verified for each in found)), "0",
               all(each.verified for each in found)),
        Figure("time to recovery, from the first fault to the end of the run",
               f"p50 {middle:.1f} s, p95 {_percentile(taken, 0.95):.1f} s"),
        Figure("attempts begun in an episode, on average",
               f"{_mean([each.attempts for each in found]):.1f}"),
    ]  # fmt: skip


def _mean(values: list[int]) -> float:
    return sum(values) / max(1, len(values))


def listed(faults: tuple[Fault, ...], found: list[Episode]) -> str:
    """Return the table of all faults, in Markdown."""
    lines = ["| # | fault | injected | expected | seen (last episode) | recovered | as expected |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for fault in faults:
        mine = [each for each in found if each.fault == fault.ident]
        missed = [each for each in mine if not handled(fault, each)]
        last = missed[-1] if missed else mine[-1]
        why = f": {'; '.join(last.problems)[:160]}" if missed and last.problems else ""
        asked = f"; {last.people} questions" if last.people > 1 else ""
        seen = f"{last.seen or 'nothing needed'}{asked}{why}".replace("|", "\\|")
        person = " (X)" if fault.person else ""
        recovered = f"{sum(each.recovered for each in mine)} of {len(mine)}"
        good = f"{len(mine) - len(missed)} of {len(mine)}"
        cells = [f"{fault.ident}{person}", fault.what, fault.injection, fault.expected]
        lines.append("| " + " | ".join([*cells, seen.replace("\n", " "), recovered, good]) + " |")
    return "\n".join(lines)


LIMITS = """\
What the injections do not reach: outages of minutes are outages of seconds here, with the settings
scaled (F05, F46); F25 and F26 end by the step's deadline, since a command sends no heartbeats; F27
limits the memory of one process, not of a group; F49 and F53 are SQLite's; restarts after a kill
are commands of the campaign, as a service manager would give them."""


def row(seeds: int = 5, jobs: int = 1) -> Row:
    """Play all faults with so many seeds."""
    found = campaign(FAULTS, range(1, seeds + 1), jobs)
    return Row(
        name="The 60 faults",
        source="The fault catalogue of the project's reliability references (section 3): models "
        "and providers, planners, workers, git, engine and storage, people, clients and attacks",
        version=f"seeds 1 to {seeds}, {jobs} at once",
        left_out="Pairs of faults; 50 seeds of each, where fewer were played; weights by published "
        "frequency.",
        figures=figures(FAULTS, found),
        repeat="make proof ARGS=faults",
        notes=f"X: a person is the right answer. {LIMITS}\n\n{listed(FAULTS, found)}",
    )
