"""Plan and execution on the same rows: against recorded histories and simulated worlds."""

import re

import pytest
from msgspec import UNSET

from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.core.views.rows import OPEN, RowFold, rows_document
from tests.golden.test_replay import NAMES, events
from tests.simulation.logs import simulated_logs

SEEDS = range(100, 125)


@pytest.fixture(scope="module")
def logs():
    """Recorded histories, and the logs of simulated worlds full of faults: (at, event)."""
    found = {name: [(at, event) for at, _batch, event in events(name)] for name in NAMES}
    for name, entries in simulated_logs(SEEDS).items():
        found[name] = [(e.at, decode(e.version, e.body)) for e in entries]
    return found


def attempts_in(log):
    """By step: the (attempt, start, end) that the log itself tells, in microseconds."""
    found = {}
    for at, event in log:
        match event:
            case ev.AttemptStarted():
                found.setdefault(event.step, []).append([event.attempt, at, OPEN])
            case ev.AttemptReported() | ev.AttemptLost():
                found[event.step][-1][2] = at
            case _:
                pass
    return found


def folded(log):
    fold = RowFold()
    for at, event in log:
        fold.add(at, event)
    return fold


def test_segments_cover_what_the_log_says_and_do_not_overlap(logs):
    """From the approval of a step to its end; attempts exactly as the log has them."""
    kinds = set()
    for name, log in logs.items():
        fold, made = folded(log), attempts_in(log)
        added = {}
        for at, event in log:
            if isinstance(event, ev.RevisionApproved):
                for ident in fold.state.steps:
                    if fold.state.steps[ident].revision == event.number:
                        added[ident] = at
        reopened = {at for at, event in log if isinstance(event, ev.RunReopened)}
        for ident, step in fold.state.steps.items():
            spans = fold.segments.get(ident, [])
            kinds |= {span.kind for span in spans}
            told = [[s.attempt, s.start, s.end] for s in spans if s.kind == "attempt"]
            assert told == made.get(ident, []), (name, ident)
            here = added[ident]
            for span in spans:
                assert span.start == here or span.start in reopened, (name, ident, span)
                assert span.end >= span.start or (span.end == OPEN and span is spans[-1])
                here = span.end
            assert bool(spans and spans[-1].end == OPEN) == (not step.settled), (name, ident)
    waits = {"dependencies", "start_time", "queued", "held", "retry", "question", "probe"}
    assert waits | {"attempt"} <= kinds


KINDS = {
    "waiting": {"dependencies"},
    "ready": {"queued", "start_time", "held"},
    "backing_off": {"retry", "held"},
    "running": {"attempt"},
    "probing": {"probe"},
    "asking": {"question"},
    "undecided": {"recovery"},
}


def test_after_each_event_every_row_says_what_its_step_does(logs):
    """The fold looks only at steps near an event; here all of them are looked at."""
    for name, log in logs.items():
        fold = RowFold()
        for at, event in log:
            fold.add(at, event)
            for ident, step in fold.state.steps.items():
                spans = fold.segments.get(ident, [])
                going = spans[-1].kind if spans and spans[-1].end == OPEN else ""
                wanted = KINDS.get(step.status, {""})
                assert going in wanted, (name, ident, step.status, going, type(event).__name__)


def test_a_pause_ends_when_it_was_to_end_and_the_rest_is_waiting_for_a_worker(logs):
    """Retry pauses and start times: a later start is told as a queue, not as a longer pause."""
    later = 0
    for name, log in logs.items():
        fold = folded(log)
        decided = {(e.step, at): e.until for at, e in log if isinstance(e, ev.RecoveryDecided)}
        for ident, spans in fold.segments.items():
            for place, span in enumerate(spans):
                if span.kind != "retry" or (ident, span.start) not in decided:
                    continue
                assert span.end <= decided[ident, span.start], (name, ident, span)
                later += [each.kind for each in spans[place + 1 : place + 2]] == ["queued"]
    assert later >= 5


def test_what_changed_since_completes_what_was_known(logs):
    """A reader that asks for changes holds the same rows as one that asks for all."""
    for name, log in logs.items():
        for cut in {1, len(log) // 2, len(log) - 1}:
            before = rows_document(log[:cut])
            more = rows_document(log, before.seq)
            held = {row.id: row for row in before.rows} | {row.id: row for row in more.rows}
            whole = rows_document(log)
            assert len(held) == whole.total, name
            for row in whole.rows:
                assert held[row.id] == row, (name, cut, row.id)


def test_a_replaced_step_stands_beside_its_successor_with_the_reason():
    """`iterative` replaces a step; the successor says which revision added it, and why."""
    doc = rows_document([(at, event) for at, _batch, event in events("iterative")])
    old = next(row for row in doc.rows if row.replaced_by is not UNSET)
    new = doc.rows[doc.rows.index(old) + 1]
    assert (new.id, new.replaces) == (old.replaced_by, old.id)
    assert new.added.revision > doc.approved == 1
    assert any(
        each.kind == "revision" and f"{new.id} replaces {old.id}" in each.text
        for each in doc.deviations
    )


def test_what_was_not_planned_is_listed(logs):
    """Another worker, retries, left-out steps: one line each, and none for a plain run."""
    assert rows_document(logs["chain"]).deviations == []
    (other, *_) = [d for d in rows_document(logs["reroute"]).deviations if d.kind == "worker"]
    assert other.text.startswith("attempt 2 by other instead of ")
    (again,) = [d for d in rows_document(logs["retry"]).deviations if d.kind == "retry"]
    assert re.match(r"\d attempts by \w+; the last failure: ", again.text)
    kinds = {d.kind for log in logs.values() for d in rows_document(log).deviations}
    assert {"failed", "revision", "worker", "retry", "left_out", "tolerated", "redo"} == kinds


def test_the_critical_path_is_what_the_end_waited_for(logs):
    """Each step of it began after the one before it had ended; the last one ended last."""
    assert rows_document(logs["chain"]).critical == ["fetch", "parse", "store"]
    for name, log in logs.items():
        rows = {row.id: row for row in rows_document(log).rows}
        made = {
            ident: [each for each in row.segments if each.kind in ("attempt", "probe")]
            for ident, row in rows.items()
        }
        path = rows_document(log).critical
        assert bool(path) == any(made.values()), name
        ends = [max(each.end or 0 for each in made[ident]) for ident in path]
        assert not path or max(e.end or 0 for all_ in made.values() for e in all_) <= ends[-1]
        firsts = [made[ident][0].start for ident in path]
        for before, after in zip(path[:-1], range(1, len(path)), strict=True):
            assert made[before][0].start <= firsts[after], (name, path)


def test_steps_of_the_approved_outlook_are_expected_and_all_others_deviate(logs):
    """A row says which; what was added later is either expected or a deviation."""
    for name, log in logs.items():
        doc = rows_document(log)
        told = {ident for each in doc.deviations if each.kind == "revision" for ident in each.steps}
        for row in doc.rows:
            if row.added is UNSET:
                assert row.id not in doc.expected, (name, row.id)
            else:
                assert row.added.expected == (row.id in doc.expected) != (row.id in told), name
