"""Verification of a database: chains, log rules, headers, signatures, anchors.

    run chain      each entry follows from the one before it             change, gap, order
    head           the log ends where its header says, and says the same  a cut end, a summary
    taken over     a re-run's given results are those of the run named    results that were made up
    signatures     each approval is by whom it names                     one that was made up
    batch chain    each commit follows, and each entry is of one          a missing run, strangers
    archives       their records, ends and files (archive_check.py)       runs that were taken out
    anchors        the log is the one that was written down outside       a cut or rewritten log
    store          the database's own check: pages, indexes, schema        damage below the log
    lists          lists and totals follow from the summaries             a hidden run, a wrong sum

A host may be writing meanwhile: everything is read from one snapshot. (Where several processes
share the runs, each run is read from the snapshot of one of them.)

A verification of everything that finds nothing wrong writes down where the log ended
(`VerifiedPoint`, a file beside the database), and the next one goes on from there: it checks the
commits since then, each run that was written to since then, and every anchor. What lies before is
not read again if it is long, which the result says; `full` reads it.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from leadhand.app.archive_check import ArchiveFindings, check_archives
from leadhand.app.hosting_service import hosting_service
from leadhand.app.reader import reading
from leadhand.audit import chain
from leadhand.audit.anchors import AnchorFindings, file_of, lines_in, read_line, verify_anchors
from leadhand.audit.chain import Batch, ChainProblem
from leadhand.audit.signatures import Signatures
from leadhand.audit.verify import (
    artifacts_of,
    check_header,
    check_summary,
    read_log,
    unreadable,
)
from leadhand.codec.events import decode
from leadhand.core.calendar import iso
from leadhand.core.carried import carried_results, result_digest
from leadhand.core.events import AttemptReported, ProbeReported, RunStarted
from leadhand.core.host_events import HOST_STREAM, ApprovalUsed, HostOpened, RunJoined
from leadhand.core.views.totals import DAY_US, LAST_DAY
from leadhand.engine.results import load_artifact
from leadhand.errors import ArchiveMissing, LeadhandError, Unreachable, UsageError
from leadhand.stores.location import home
from leadhand.stores.log import ALL, each_batch, each_position
from leadhand.stores.permissions import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from leadhand.app.reader import Reader
    from leadhand.audit.anchors import Anchor, Anchoring
    from leadhand.audit.keys import PublicKey
    from leadhand.core.carried import CarriedResult
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Entry, RunHeader
    from leadhand.settings import Settings
    from leadhand.stores.location import StoreLocation
    from leadhand.stores.log import Log


class Violation(Struct, kw_only=True):
    """One thing that does not verify."""

    run: str
    """The run; empty for the chain of commits and the database."""
    seq: int
    """The number of the entry."""
    rule: str
    """The rule that is broken, or the part that was checked."""
    message: str
    """What is wrong."""


class LastAnchor(Struct, kw_only=True):
    """The last anchor that the log agrees with."""

    commit: int
    """The number of the commit."""
    at: int
    """When it was taken, in UTC microseconds."""


class AnchorsDocument(Struct, kw_only=True):
    """What the anchors outside the database say."""

    file: str
    """The file of the anchors."""
    lines: int
    """How many anchors it holds."""
    signed: int
    """How many of them are signed by `key`."""
    key: str | None
    """The name of the key that was checked."""
    last: LastAnchor | None
    """The last anchor that holds."""
    entries_since: int
    """The number of entries that no anchor covers."""


class VerifiedPoint(Struct, kw_only=True, frozen=True):
    """Where the log ended when all of it was last found in order."""

    database: str
    """The id of the database."""
    commit: int
    """The number of the last commit."""
    position: int
    """The position of the last entry."""
    hash: str
    """The hash of the last commit."""
    at: int
    """When it was verified, in UTC microseconds."""


class VerificationDocument(Struct, kw_only=True):
    """The result of a verification, as `leadhand verify --json`."""

    valid: bool
    """Whether everything that was checked holds."""
    runs: int
    """How many runs were checked."""
    entries: int
    """How many entries were checked."""
    since: VerifiedPoint | None
    """The place from which this verification went on; null if it began at the beginning."""
    violations: list[Violation]
    """What does not hold."""
    anchors: AnchorsDocument
    """What the anchors say."""
    signed_approvals: int
    """How many approvals have a valid signature."""
    archives: int
    """How many archives there are."""
    archived_runs: int
    """How many runs are in them."""
    cannot_be_shown: list[str]
    """What this verification cannot exclude, and why."""


@dataclass
class Verification:
    """The result of a verification, and what could not be checked."""

    problems: list[ChainProblem] = field(default_factory=list)
    runs: int = 0
    entries: int = 0
    since_point: VerifiedPoint | None = None
    """The place from which this verification went on."""
    file: Path | None = None
    lines: int = 0
    """The number of lines of the anchor file."""
    held: Anchor | None = None
    signed: int = 0
    since: int = 0
    """The number of entries that no anchor covers."""
    checked_key: str = ""
    signatures: Signatures = field(default_factory=Signatures)
    archives: ArchiveFindings = field(default_factory=ArchiveFindings)
    not_compared: str = ""
    """Why the log was not compared with the service that hosts the runs; empty if it was, or none
    does."""

    def document(self) -> Doc:
        """Return the result in the form of `verify --json`."""
        held = self.held
        return {
            "valid": not self.problems,
            "runs": self.runs,
            "entries": self.entries,
            "since": self.since_point,
            "violations": [each._asdict() for each in self.problems],
            "anchors": {
                "file": str(self.file),
                "lines": self.lines,
                "signed": self.signed,
                "key": self.checked_key or None,
                "last": None if held is None else {"commit": held.number, "at": held.at},
                "entries_since": self.since,
            },
            "signed_approvals": self.signatures.good,
            "archives": self.archives.count,
            "archived_runs": self.archives.runs,
            "cannot_be_shown": self.unshown(),
        }

    def unshown(self) -> list[str]:
        """Return a sentence for each thing that this verification cannot exclude."""
        elsewhere = [self.not_compared] if self.not_compared else []
        archived = self.archives.unshown
        return [
            *self._unread(),
            *archived,
            *self._unanchored(),
            *self.signatures.unshown(),
            *elsewhere,
        ]

    def _unread(self) -> list[str]:
        point = self.since_point
        if point is None:
            return []
        sentence = (
            f"that the first {point.position} events, and the lists, are still as they were when "
            f"they were verified ({iso(point.at)}): they were not read again; --full reads them"
        )
        return [sentence]

    def _unanchored(self) -> list[str]:
        rewritten = "that the log was not truncated, or rewritten with matching hashes"
        if not self.lines:
            return [f"{rewritten}: there is no anchor ({self.file})"]
        if self.since:
            events = "the last event" if self.since == 1 else f"the last {self.since} events"
            return [f"{rewritten}, as far as {events} are concerned: they came after the anchor"]
        return []


class VerificationScope(NamedTuple):
    """What is verified, and how."""

    run: str | None = None
    """One run, and the commits from its first one to the next anchor; None: everything."""
    full: bool = False
    """Begin at the beginning, also if a verified place is written down."""
    processes: int = 1
    """Processes that share the runs, where there are many."""
    progress: Callable[[int, int], None] | None = None
    """Called with the number of runs that were checked, and that of all."""

    def show(self, done: int, total: int) -> None:
        """Tell how many runs were checked."""
        if self.progress is not None:
            self.progress(done, total)


EVERYTHING = VerificationScope()
SKIPPED_MIN = 20_000
"""Fewer entries than this are always read again: that takes a second."""
RUNS_SHARED = 2000
"""From this number of runs on, it is worth starting further processes."""
RUNS_TOGETHER = 1000
"""Runs that a process checks before it reports."""


def verify_database(
    reader: Reader,
    store: StoreLocation,
    anchoring: Anchoring,
    scope: VerificationScope = EVERYTHING,
    *,
    key: PublicKey | None = None,
    approvers: Mapping[str, str] | None = None,
) -> Verification:
    """Verify what is in `scope`.

    `key` must have signed the anchors; `approvers` are the known approvers with their keys.
    """
    verdict = Verification(file=file_of(home(store), anchoring))
    lines = _lines(verdict.file)  # before the snapshot: anchors are never ahead of the log
    anchors = [anchor for line in lines if (anchor := read_line(line)) is not None]
    batches: dict[int, Batch] = {}
    with reader.store.snapshot():
        name = _name(reader)
        point = _read_point(store, name) if scope.run is None else None
        try:
            verdict.archives = _archives(reader, anchors, scope, point, key)
        except Exception as error:  # noqa: BLE001 - what was changed may be anything
            verdict.problems.append(unreadable(HOST_STREAM, error))
        verdict.problems += verdict.archives.problems
        if point is not None:
            verdict.since_point = _going_on(reader, verdict, store, point, full=scope.full)
        verdict.signatures = Signatures(approvers, _used(reader))
        try:
            _check_runs(reader, verdict, store, scope)
            batches = _batches_at(reader.store, {anchor.number for anchor in anchors})
            batches |= verdict.archives.batches
            if scope.run is None:
                _check_commits(reader, verdict)
            else:
                _check_commits_of(reader, verdict, scope.run, anchors)
        except Exception as error:  # noqa: BLE001 - what was changed may be anything
            verdict.problems.append(unreadable("", error))
        _check_anchors(verdict, lines, batches, name, key)
        if verdict.since_point is None:
            verdict.problems += _damage(reader)
    if scope.run is None and not verdict.problems and batches:
        _write_point(store, name, batches[max(batches)])
    return verdict


def _batches_at(log: Log, numbers: set[int]) -> dict[int, Batch]:
    """Return the commits with these numbers, and the last one."""
    found = {}
    for number in {*numbers, log.commits()}:
        for batch in log.batches(number - 1, 1):
            if batch.number == number:  # otherwise it is gone, and this is a later one
                found[number] = batch
    return found


def _check_commits(reader: Reader, verdict: Verification) -> None:
    """Check the chain of commits from the verified place on, and what is checked with it."""
    log, point = reader.store, verdict.since_point
    if point is None:
        begin = verdict.archives.begin
        verdict.problems += chain.verify_batches(
            each_batch(log), each_position(log, begin.last or -ALL), begin
        )
    else:
        after = Batch(point.commit, 0, point.position, bytes.fromhex(point.hash))
        verdict.problems += chain.verify_batches(
            each_batch(log, after.number), each_position(log, after.last), after
        )
    verdict.problems += _check_owner(reader)
    if point is None:
        verdict.problems += _strays(reader)
        verdict.problems += _odd(reader)
        verdict.problems += _lists(reader)


def _check_commits_of(
    reader: Reader, verdict: Verification, run: str, anchors: Sequence[Anchor]
) -> None:
    """Check the commits from the first one of a run to the next anchor after its last one.

    Without such an anchor, to the end of the log: up to there the hashes of commits depend on it.
    """
    log, begin = reader.store, verdict.archives.begin
    try:
        places = log.places(run)
    except ArchiveMissing:
        return  # that was said
    if not places or places[-1] <= begin.last:
        return  # its header is checked, and says so; or its archive was
    stop = min((each.position for each in anchors if each.position >= places[-1]), default=ALL)
    first = max(places[0], begin.last + 1)
    before = [each for each in log.batches_from(first, first) if each.last < first]
    after = before[-1] if before else begin
    batches = takewhile(lambda batch: batch.first <= stop, each_batch(log, after.number))
    entries = takewhile(lambda entry: entry[0] <= stop, each_position(log, after.last))
    verdict.problems += chain.verify_batches(batches, entries, after)


# The place up to which the log is verified.


def _point_file(store: StoreLocation) -> Path:
    return Path(f"{home(store)}.verified")


def _read_point(store: StoreLocation, name: str) -> VerifiedPoint | None:
    """Return the place that was written down for the database called `name`; None if none was."""
    try:
        point = msgspec.json.decode(_point_file(store).read_bytes(), type=VerifiedPoint)
        bytes.fromhex(point.hash)
    except (OSError, ValueError):  # none was written, or what stands there is none
        return None
    return point if point.database == name else None


def _archives(
    reader: Reader,
    anchors: Sequence[Anchor],
    scope: VerificationScope,
    point: VerifiedPoint | None,
    key: PublicKey | None,
) -> ArchiveFindings:
    """Check the archives: all files if all is read, else those made since the last verification.

    With one run in scope, only the archive that holds it is read.
    """
    wanted = {anchor.number for anchor in anchors}
    if point is not None:
        wanted.add(point.commit)
    after = point.position if point is not None and not scope.full else -1
    return check_archives(reader, wanted, ALL if scope.run is not None else after, key, scope.run)


def _going_on(
    reader: Reader,
    verdict: Verification,
    store: StoreLocation,
    point: VerifiedPoint,
    *,
    full: bool,
) -> VerifiedPoint | None:
    """Return the place to go on from; None to begin at the beginning.

    A place that the log contradicts is a problem, as an anchor would be: the log was cut off or
    written anew since then.
    """
    archives = verdict.archives
    try:
        stored = [archives.batches[point.commit]] if point.commit in archives.batches else []
        if point.commit > archives.begin.number:
            stored = reader.store.batches(point.commit - 1, 1)
        elif not stored:
            return None  # in an archive that could not be read, which was said
        # What the place says of the length can be forged with it, so the entries are counted.
        here = len(reader.store.positions(limit=SKIPPED_MIN))
    except (LeadhandError, OverflowError):
        return None
    short = here + archives.entries < SKIPPED_MIN
    stands = [(batch.number, batch.last, batch.hash.hex()) for batch in stored]
    if stands != [(point.commit, point.position, point.hash)]:
        message = (
            f"the log was verified up to commit {point.commit} on {iso(point.at)}, and that commit "
            "is no longer as it was. Fix: if an older copy was put back on purpose, remove "
            f"{_point_file(store)}"
        )
        verdict.problems.append(ChainProblem("", point.commit, "verified", message))
        return None
    behind = point.commit < archives.begin.number
    return None if full or short or behind or point.position < SKIPPED_MIN else point


def _write_point(store: StoreLocation, name: str, head: Batch) -> None:
    """Write down that the log is verified up to `head`, if the folder can be written to."""
    point = VerifiedPoint(
        database=name,
        commit=head.number,
        position=head.last,
        hash=head.hash.hex(),
        at=time.time_ns() // 1000,
    )
    with suppress(OSError):
        write_private(_point_file(store), msgspec.json.encode(point))


# The runs.


class _Part(NamedTuple):
    """The result of checking some of the runs."""

    problems: list[ChainProblem]
    runs: int
    entries: int
    signatures: Signatures


def _check_runs(
    reader: Reader, verdict: Verification, store: StoreLocation, scope: VerificationScope
) -> None:
    """Check the runs that are in scope, in several processes if that is worth it."""
    log = reader.store
    if scope.run is not None:
        header = log.header(scope.run)
        headers: Iterable[RunHeader] = [] if header is None else [header]
        _add(verdict, _check_each(reader, headers, verdict.signatures, _choice(verdict, full=True)))
        return
    if verdict.since_point is not None:
        changed = log.runs_since(verdict.since_point.position)
        headers = [header for run in changed if (header := log.header(run)) is not None]
        _add(verdict, _check_each(reader, headers, verdict.signatures, _choice(verdict, full=True)))
        return
    total = log.count_runs()
    if scope.processes > 1 and total >= RUNS_SHARED:
        _check_apart(verdict, log, store, scope, total)
        return
    done = 0
    for _, _, headers in _parts(log):
        _add(
            verdict,
            _check_each(reader, headers, verdict.signatures, _choice(verdict, full=scope.full)),
        )
        done += len(headers)
        scope.show(done, total)


def _check_apart(
    verdict: Verification, log: Log, store: StoreLocation, scope: VerificationScope, total: int
) -> None:
    """Check the runs in further processes, some at a time. Problems come in the order of runs."""
    known = dict(verdict.signatures.known)
    parts: dict[int, _Part] = {}
    # Not forked: the database is open here, and a connection must not be used on both sides.
    with ProcessPoolExecutor(scope.processes, get_context("spawn")) as pool:
        waiting = {
            pool.submit(
                _check_part, store, after, last, known, _choice(verdict, full=scope.full)
            ): after
            for after, last, _ in _parts(log)
        }
        for done in as_completed(waiting):
            parts[waiting[done]] = done.result()
            scope.show(min(len(parts) * RUNS_TOGETHER, total), total)
    for _, part in sorted(parts.items()):
        _add(verdict, part)
        verdict.signatures.add(part.signatures)


def _check_part(
    store: StoreLocation,
    after: int,
    last: int,
    known: Mapping[str, str],
    archives: frozenset[int] | None,
) -> _Part:
    """Check the runs with numbers above `after` up to `last`, in a process of its own."""
    with reading(store) as reader, reader.store.snapshot():
        signatures = Signatures(known, _used(reader))
        page = reader.store.numbered_runs(after, RUNS_TOGETHER)
        headers = [header for number, header in page if number <= last]
        return _check_each(reader, headers, signatures, archives)


def _choice(verdict: Verification, *, full: bool) -> frozenset[int] | None:
    """Return the archives whose runs are read; None if there is no archive at all."""
    if not verdict.archives.count:
        return None
    return verdict.archives.readable if full else frozenset()


def _parts(log: Log) -> Iterator[tuple[int, int, list[RunHeader]]]:
    """Yield the runs in parts: the number before the first one, the last number, the runs."""
    after = -ALL  # a number may be forged: nothing is counted up to one
    while page := log.numbered_runs(after, RUNS_TOGETHER):
        last = page[-1][0]
        yield after, last, [header for _, header in page]
        after = last


def _check_each(
    reader: Reader,
    headers: Iterable[RunHeader],
    signatures: Signatures,
    archives: frozenset[int] | None,
) -> _Part:
    """Check some runs; of archived ones only those in `archives`. None: there is no archive."""
    problems: list[ChainProblem] = []
    runs = entries = 0
    for header in headers:
        number = reader.store.archive_number(header.run) if archives is not None else 0
        if number and number not in (archives or ()):
            continue
        found, size = check_run(reader, header, signatures, archived=number > 0)
        problems += found
        if not header.run.startswith("$"):
            runs, entries = runs + 1, entries + size
    return _Part(problems, runs, entries, signatures)


def _add(verdict: Verification, part: _Part) -> None:
    verdict.problems += part.problems
    verdict.runs += part.runs
    verdict.entries += part.entries


async def compare_histories(
    verdict: Verification, settings: Settings, reader: Reader, run: str = ""
) -> None:
    """Compare the log with the histories of the service that hosts the runs, if one does.

    `run` is the run that was verified; by default all. What differs is added to the problems of
    `verdict`.
    """
    service = hosting_service(settings)
    if service is None:
        return
    try:
        found = await service.status(reader).forks(run)
    except (Unreachable, UsageError) as error:
        verdict.not_compared = f"that the log agrees with {service.name}'s histories: {error}"
        return
    verdict.problems += [ChainProblem(each, 0, "fork", why) for each, why in found.items()]


def _damage(reader: Reader) -> list[ChainProblem]:
    """Return the findings of the database's own check, with a fix."""
    then = "Fix: put back a copy; what the log says and the chains confirm can be exported before"
    return [
        ChainProblem("", 0, "store", f"{each}. {then}" if "Fix:" not in each else each)
        for each in reader.store.damage()
    ]


def _lines(file: Path | None) -> Sequence[bytes]:
    try:
        return lines_in(file.read_bytes()) if file is not None else []
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{file}: the anchors cannot be read: {error.strerror}") from None


def _name(reader: Reader) -> str:
    try:
        return reader.store.database_id
    except LeadhandError:
        return ""


def _used(reader: Reader) -> dict[str, str] | None:
    """Return the run that used each approval; None if the host's own log is unreadable."""
    found: dict[str, str] = {}
    try:
        for entry in reader.entries(HOST_STREAM):
            event = decode(entry.version, entry.body)
            if isinstance(event, ApprovalUsed):
                found.setdefault(event.id, event.run)
    except Exception:  # noqa: BLE001 - what was changed may be anything, and is reported as that
        return None
    return found


def check_run(
    reader: Reader, header: RunHeader, signatures: Signatures, *, archived: bool = False
) -> tuple[list[ChainProblem], int]:
    """Return the problems of one run; the chain first, since the rest depends on it."""
    ident = header.run
    entries: list[Entry] = []
    try:
        entries = reader.entries(ident)
        if archived and (erased := reader.store.erased(ident)):
            return _check_erased(header, entries, erased), len(entries)
        of_run = not ident.startswith("$")  # the host and the library have streams of their own
        if of_run:
            events, found = read_log(ident, entries)
        else:
            events, found = [], chain.verify(entries)
        found += check_header(header, entries)
        if of_run and not found:
            found += check_summary(header, entries, events)
            found += signatures.check(ident, events)
        if not found:
            events = events or [decode(entry.version, entry.body) for entry in entries]
            found += _check_artifacts(reader, ident, events)
        if of_run and not found:
            found += _check_carried(reader, ident, events[0])
    except ArchiveMissing as error:
        found = [ChainProblem(ident, 0, "archive", str(error))]
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        found = [unreadable(ident, error)]
    return found, len(entries)


def _check_erased(
    header: RunHeader, entries: Sequence[Entry], erased: Sequence[int]
) -> list[ChainProblem]:
    """Check an archived log from which secrets were erased, as far as it can still be checked.

    The bytes that are left of an erased entry prove nothing; its hash stands in the chain.
    """
    found = [
        each for each in chain.verify(entries) if each.rule != "hash" or each.seq not in erased
    ]
    return found + check_header(header, entries)


def _check_carried(reader: Reader, ident: str, first: Event) -> list[ChainProblem]:
    """Compare the results that a re-run took over with the log of the run they come from."""
    plan = first.plan if isinstance(first, RunStarted) else {}
    found = []
    by_run: dict[str, list[tuple[str, CarriedResult]]] = {}
    for step, each in carried_results(plan).items():
        by_run.setdefault(each.run, []).append((step, each))
    for run, taken in by_run.items():
        try:
            log = {entry.seq: entry for entry in reader.entries(run)}  # once for all that are taken
        except ArchiveMissing:
            continue  # what cannot be shown says that its archive is not there
        for step, each in taken:
            entry = log.get(each.entry)
            event = decode(entry.version, entry.body) if entry is not None else None
            if not _reported(reader, event, step, each):
                source = f"attempt {each.attempt} in run {run}"
                message = f"what was taken over for step {step} is not the result of {source}"
                found.append(ChainProblem(ident, 1, "taken over", message))
    return found


def _reported(reader: Reader, event: Event | None, step: str, result: CarriedResult) -> bool:
    """Return whether an event is the verified report of exactly this result."""
    if not isinstance(event, AttemptReported | ProbeReported) or not event.met:
        return False
    data = load_artifact(reader.store, event.data_ref) if event.data_ref else event.data
    same = (event.step, event.attempt) == (step, result.attempt)
    return same and result_digest(data) == result.digest


def _check_artifacts(reader: Reader, ident: str, events: Sequence[Event]) -> list[ChainProblem]:
    found = []
    for name, seq in artifacts_of(events).items():
        try:
            reader.store.get_artifact(name)
        except LeadhandError as error:
            found.append(ChainProblem(ident, seq, "artifact", str(error)))
    return found


def _strays(reader: Reader) -> list[ChainProblem]:
    """Return entries whose run does not exist: the chain covers them, but no run shows them."""
    return [
        ChainProblem("", position, "run", f"entry {position} belongs to no run")
        for position in reader.store.strays()
    ]


def _odd(reader: Reader) -> list[ChainProblem]:
    return [
        ChainProblem(run, 0, "summary", "what stands beside its log was not written by a host")
        for run in reader.store.odd_summaries()
    ]


def _lists(reader: Reader) -> list[ChainProblem]:
    """Check what lists and totals show: it follows from the summaries, which were checked."""
    fix = "Fix: leadhand verify --all --rebuild"
    found = [
        ChainProblem(run, 0, "list", f"lists do not show it as its summary says. {fix}")
        for run in reader.store.wrong_lists()
    ]
    for day, key, summed, told in reader.store.wrong_totals():
        date = iso(day * DAY_US)[:10] if type(day) is int and 0 <= day <= LAST_DAY else repr(day)
        message = f"the total {key} of {date} is {told!r}, and the runs add up to {summed!r}. {fix}"
        found.append(ChainProblem("", 0, "totals", message))
    return found


def _check_owner(reader: Reader) -> list[ChainProblem]:
    """Check the owner count: each host raises it and records that first."""
    entries = reader.entries(HOST_STREAM)
    known = 0
    for entry in entries:
        event = decode(entry.version, entry.body)
        if isinstance(event, (HostOpened, RunJoined)):
            known = max(known, event.owner)
    epoch = reader.store.epoch()
    if epoch == known or not known:  # no host so far (engines of Temporal are none)
        return []
    message = (
        f"the count of hosts is {epoch}, and the log knows of {known}: it was changed by hand, "
        "or a host died as it opened (then the next one puts it right)"
    )
    return [ChainProblem(HOST_STREAM, len(entries), "owner", message)]


def _check_anchors(
    verdict: Verification,
    lines: Sequence[bytes],
    batches: dict[int, Batch],
    database: str,
    key: PublicKey | None,
) -> None:
    verdict.lines = len(lines)
    found = AnchorFindings([], None)
    if lines or key is not None:
        archived = verdict.archives.begin.number
        found = verify_anchors(lines, batches, database, key.check if key else None, archived)
    verdict.problems += found.problems
    verdict.held, verdict.signed = found.held, found.signed
    verdict.checked_key = key.name if key is not None else ""
    try:
        last = max((batch.last for batch in batches.values()), default=0)
        verdict.since = last - (found.held.position if found.held else 0)
    except TypeError:
        verdict.since = 0  # damage, which is reported
