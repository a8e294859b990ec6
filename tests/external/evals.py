"""How well it plans and schedules: one table, every figure beside its goal.

`make evals` runs everything; `make test` runs a part of it that a seed draws (`test_evals.py`).
Each suite has cases, a way to play one (through the engine, in virtual time), and lines of the
table, which rest on the word of judges that share no code with what they judge: `pddl_world`, the
checker in `timed`, the data's own gold values, and `graph_world` for worker graphs of our own.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pool
from typing import Any, NamedTuple

from leadhand import GoalPlanner
from tests.external import (
    asynchow,
    behaviours,
    data,
    dialogues,
    faulty,
    iterative,
    oracle,
    psplib,
    pursuit,
    recorded,
)

SEED = 20
UNSOLVABLE = "unsolvable_blocksworld"
COST_MOST = 1.02
"""What a run may cost, as a share of the optimum, where no fault is hidden."""
CALLS_MAX = 3
"""How often a planner may be asked before it must have proved that there is no way."""


class Line(NamedTuple):
    """One figure."""

    what: str
    n: int
    figure: str
    wanted: str = ""
    met: bool = True


class Suite(NamedTuple):
    """What is played, and how it is judged."""

    folder: str
    """Where its data is; empty: it needs none."""
    cases: Callable[[], list[Any]]
    play: Callable[[Any], Any]
    lines: Callable[[list[Any]], list[Line]]
    part: int | None = None
    """How many cases are played by `make test`; None: all."""


def share(what: str, good: int, of: int, least: float) -> Line:
    """A share that must not be less than something."""
    return Line(what, of, _percent(good, of), f">= {least:.1%}", bool(of) and good >= least * of)


def none_of(what: str, bad: Sequence[str], of: int) -> Line:
    """Something that must not happen; the first that did is shown."""
    first = f": {bad[0][:60]}" if bad else ""
    return Line(what, of, f"{len(bad)}{first}", "0", not bad)


def _percent(good: int, of: int) -> str:
    return f"{good / of:.1%}" if of else "-"


# PlanBench: plans that models wrote; problems without a way; faults.


def recorded_cases() -> list[Any]:
    """Each problem with all plans that were recorded for it."""
    return sorted(recorded.cases().items())


def recorded_play(case: Any) -> list[recorded.Played]:
    """All plans of one problem."""
    return recorded.play(*case)


def recorded_lines(played: list[list[recorded.Played]]) -> list[Line]:
    """Whether the goal was reached, whatever the model had planned."""
    every = [each for some in played for each in some]
    n, told = len(every), [each for each in every if each.label is not None]
    reached = [each for each in every if each.result.reached and each.result.status == "succeeded"]
    alone = sum(each.alone for each in every)
    agree = sum(each.alone == each.label for each in told)
    late = [each for each in every if each.alone != (not each.result.handed)]
    return [
        Line("recorded plans: right as written", n, _percent(alone, n)),
        share("recorded plans: the judge agrees with the benchmark", agree, len(told), 0.999),
        share("recorded plans: reach the goal with the goal planner behind", len(reached), n, 1.0),
        none_of("recorded plans: handed over without need, or not in time", _names(late), n),
        _no_violations("recorded plans", [each.result for each in every]),
        _nothing_impossible("recorded plans", [each.result for each in every]),
    ]


def _names(played: list[recorded.Played]) -> list[str]:
    return [each.result.handed or "not handed over" for each in played]


def _no_violations(name: str, results: list[pursuit.Result]) -> Line:
    found = [str(each) for result in results for each in result.violations]
    return none_of(f"{name}: logs that break an invariant", found, len(results))


def _nothing_impossible(name: str, results: list[pursuit.Result]) -> Line:
    found = [each for result in results for each in result.impossible]
    return none_of(f"{name}: steps started that cannot be done", found, len(results))


def dialogues_lines(played: list[dialogues.Played]) -> list[Line]:
    """Whether the model planner says of recorded plans what was recorded of them."""
    verdicts = [verdict for each in played for verdict in each.verdicts]
    agree = sum(verdict.accepted == verdict.valid for verdict in verdicts)
    dumb = [verdict.feedback for verdict in verdicts if not verdict.named]
    odd = [each.name for each in played if (each.asked, each.solved) != each.ought]
    lost = [each.name for each in played if each.tokens != each.ledger]
    return [
        share("dialogues: verdicts on recorded plans agree", agree, len(verdicts), 1.0),
        none_of("dialogues: feedback without the first unmet need", dumb, len(verdicts)),
        none_of("dialogues: rounds beyond the cap, or too few", odd, len(played)),
        none_of("dialogues: tokens that are not in the ledger", lost, len(played)),
    ]


def unsolvable_cases() -> list[Any]:
    """Problems that are known to have no way."""
    return sorted(pursuit.texts(UNSOLVABLE).problems)


def unsolvable_play(name: str) -> pursuit.Result:
    """One of them."""
    return pursuit.pursue(pursuit.problem(pursuit.texts(UNSOLVABLE), name), GoalPlanner())


def unsolvable_lines(results: list[pursuit.Result]) -> list[Line]:
    """Proved at once, with the reason, and nothing done."""
    proved = [
        each
        for each in results
        if each.status == "failed" and "impossible" in each.reason and not each.tried
    ]
    asked = [str(each.planned) for each in results if each.planned > CALLS_MAX]
    return [
        share("unsolvable: proved so, with the reason", len(proved), len(results), 1.0),
        none_of(f"unsolvable: more than {CALLS_MAX} decisions", asked, len(results)),
    ]


def faulty_play(name: str) -> faulty.Played:
    """One problem, everybody."""
    return faulty.play(name, SEED)


def faulty_lines(played: list[faulty.Played]) -> list[Line]:
    """The goal planner against retrying alone, forgetting, and knowing everything."""
    n, head = len(played), f"{faulty.BROKEN:.0%} broken, {faulty.SHAKY:.0%} shaky"
    lines = []
    for name in faulty.CONTENDERS:
        results = [each.results[name] for each in played]
        good = sum(each.reached and each.status == "succeeded" for each in results)
        tried = sum(each.tried for each in results) / max(n, 1)
        line = share(f"{head}: {name}", good, n, 0.98 if name == "goal" else 0.0)
        line = line._replace(figure=f"{line.figure} ({tried:.1f} attempts)")
        lines.append(line if name == "goal" else line._replace(wanted=""))
    ours = [each.results["goal"] for each in played]
    lost = [hopeless for each in played for hopeless in each.hopeless]
    bad = [each.status for each in lost if each.status == "succeeded" or not each.reason]
    lines += [
        none_of(f"{head}, no way left: ends without a reason", bad, len(lost)),
        _no_violations(head, ours + lost),
        _nothing_impossible(head, ours + lost),
    ]
    return lines


# Time: AsyncHow and PSPLIB.


def asynchow_play(task: asynchow.Task) -> tuple[bool, list[str]]:
    """One task."""
    seconds, wrong = asynchow.carried_out(task)
    return asynchow.equal(task, seconds), wrong


def asynchow_lines(played: list[tuple[bool, list[str]]]) -> list[Line]:
    """As quick as can be, without being told what can be done at once."""
    wrong = [each for _, some in played for each in some]
    equal = sum(equal for equal, _ in played)
    return [
        share("asynchow: takes the gold time", equal, len(played), 0.99),
        none_of("asynchow: rules broken", wrong, len(played)),
    ]


def psplib_play(case: tuple[str, str]) -> tuple[str, float, list[str]]:
    """One project."""
    size, name = case
    return (size, *psplib.gap(psplib.project(size, name)))


def psplib_lines(played: list[tuple[str, float, list[str]]]) -> list[Line]:
    """The mean distance from the best known, for each size."""
    lines = []
    for size, most in psplib.SIZES.items():
        gaps = [gap for each, gap, _ in played if each == size]
        mean = sum(gaps) / len(gaps) if gaps else 1.0
        what = f"psplib {size}: over the best known"
        lines.append(Line(what, len(gaps), f"{mean:.2%}", f"<= {most:.0%}", mean <= most))
    wrong = [each for _, _, some in played for each in some]
    return [*lines, none_of("psplib: schedules that break a rule", wrong, len(played))]


# Random worker graphs: nothing from outside is needed.


def graphs_lines(verdicts: list[oracle.Verdict]) -> list[Line]:
    """Every kind of fault over all graphs, then what each family reached and what it cost."""
    n, can = len(verdicts), [each for each in verdicts if each.reachable]
    reached = sum(each.reached for each in can)
    line = share("graphs: reachable goals that are reached", reached, len(can), 0.995)
    lines = [line._replace(figure=f"{line.figure} ({len(can) - reached} missed)")]
    for what, wrong in oracle.FAULTS.items():
        bad = [oracle.command(each) for each in verdicts if wrong(each)]
        lines.append(none_of(f"graphs: {what}", bad, n))
    for family in oracle.FAMILIES:
        own = [each for each in verdicts if each.family == family]
        if own:
            lines += _family(family, own)
    return lines


def _family(name: str, own: list[oracle.Verdict]) -> list[Line]:
    can = [each for each in own if each.reachable]
    reached = sum(each.reached for each in can)
    ends = f"{len(own) - len(can)} had no way"
    figure = f"{reached} of {len(can)}, {ends}"
    lines = [Line(f"graphs, {name}: reached", len(own), figure)]
    ratios = [each.spent / each.optimum for each in own if each.optimum and each.reached]
    if ratios:
        mean, most = sum(ratios) / len(ratios), max(ratios)
        figure = f"{mean:.4f} (at worst {most:.2f})"
        what = f"graphs, {name}: cost over the optimum"
        lines.append(Line(what, len(ratios), figure, f"<= {COST_MOST}", mean <= COST_MOST))
    return lines


def iterative_lines(played: list[iterative.Played]) -> list[Line]:
    """Planners of one step at a time under ordinary faults."""
    lines = []
    for kind in iterative.PLANNERS:
        own = [each for each in played if each.kind == kind]
        if own:
            good = [each for each in own if each.good]
            line = share(f"iterative, {kind}: goal or question", len(good), len(own), 1.0)
            asked = sum(each.asked for each in own) / len(own)
            people = sum(each.end == "asked" for each in own)
            more = f"{asked:.1f} decisions, {people} ask a person"
            lines.append(line._replace(figure=f"{line.figure} ({more})"))
    refused = [f"{each.kind} {each.seed}" for each in played if each.refused]
    broken = [each.violations[0] for each in played if each.violations]
    return [
        *lines,
        none_of("iterative: answers refused", refused, len(played)),
        none_of("iterative: logs that break an invariant", broken, len(played)),
    ]


def behaviours_lines(found: list[behaviours.Played]) -> list[Line]:
    """Whether a model that plans badly does harm, or never ends."""
    n, rows = len(found), [each.row for each in found]
    bad = [f"{each.row.name}: {each.wrong[0]}" for each in found if each.wrong]
    most, ends = max(rows, key=lambda row: row.calls), [row.status for row in rows]
    return [
        none_of("models: false successes", [row.name for row in rows if row.false_success], n),
        none_of("models: steps that cannot be done", [e for r in rows for e in r.impossible], n),
        none_of("models: logs that break an invariant", [e for r in rows for e in r.violations], n),
        none_of("models: behaviours that are answered otherwise than they should", bad, n),
        Line(
            "models: most calls of one run",
            n,
            f"{most.calls}, {most.tokens:,} tokens: {most.name}",
            f"<= {behaviours.CALLS_MAX}",
            most.calls <= behaviours.CALLS_MAX,
        ),
        Line("models: runs that reach the goal", n, str(ends.count("succeeded"))),
        Line("models: runs that ask a person", n, str(ends.count("waiting"))),
    ]


SUITES = {
    "recorded": Suite("planbench", recorded_cases, recorded_play, recorded_lines, 15),
    "dialogues": Suite("planbench", dialogues.cases, dialogues.play, dialogues_lines, 20),
    "unsolvable": Suite("planbench", unsolvable_cases, unsolvable_play, unsolvable_lines),
    "faulty": Suite("planbench", faulty.cases, faulty_play, faulty_lines, 6),
    "asynchow": Suite("asynchow", asynchow.tasks, asynchow_play, asynchow_lines),
    "psplib": Suite("psplib", psplib.cases, psplib_play, psplib_lines),
    "graphs": Suite("", oracle.cases, oracle.played, graphs_lines, 75),
    "behaviours": Suite("", behaviours.cases, behaviours.played, behaviours_lines, 8),
    "iterative": Suite("", iterative.cases, iterative.play, iterative_lines, 30),
}


def there(name: str) -> bool:
    """Whether the data of a suite is."""
    folder = SUITES[name].folder
    return not folder or data.folder(folder).is_dir()


def play(name: str, part: int | None = None, jobs: int = 1) -> list[Line]:
    """The lines of one suite; of a part of it, drawn by the seed."""
    suite = SUITES[name]
    cases = suite.cases()
    if part is not None and part < len(cases):
        cases = random.Random(SEED).sample(cases, part)
    if jobs == 1:
        return suite.lines([suite.play(case) for case in cases])
    with Pool(jobs) as pool:
        return suite.lines(pool.map(suite.play, cases, chunksize=1))


def table(lines: Sequence[Line]) -> str:
    """The lines, aligned."""
    rows = [("what", "n", "figure", "wanted", "verdict")]
    for line in lines:
        verdict = "" if not line.wanted else "met" if line.met else "MISSED"
        rows.append((line.what, f"{line.n:,}", line.figure, line.wanted, verdict))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main() -> int:
    """Play everything and print the table; 1 when a figure is missed or data is not there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="A,B", help=f"of {','.join(SUITES)}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--part", action="store_true", help="only what `make test` plays")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(SUITES)
    if unknown := set(names) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    lines: list[Line] = []
    for name in names:
        began = time.monotonic()
        if there(name):
            lines += play(name, SUITES[name].part if given.part else None, given.jobs)
        else:
            lines.append(Line(f"{name}: no data", 0, "-", "data", met=False))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(table(lines))
    print(f"seed {SEED}")
    return 0 if all(line.met for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
