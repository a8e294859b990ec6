"""Verification of a database: chains, log rules, headers, signatures, anchors.

    run chain      each entry follows from the one before it             change, gap, order
    head           the log ends where its header says, and says the same  a cut end, a summary
    taken over     a re-run's given results are those of the run named    results that were made up
    signatures     each approval is by whom it names                     one that was made up
    batch chain    each commit follows, and each entry is of one          a missing run, strangers
    anchors        the log is the one that was written down outside       a cut or rewritten log
    store          the database's own check: pages, indexes, schema        damage below the log
    lists          lists and totals follow from the summaries             a hidden run, a wrong sum

A host may be writing meanwhile: everything is read from one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from leadhand.app.hosting_service import hosting_service
from leadhand.audit import chain
from leadhand.audit.anchors import AnchorFindings, file_of, lines_in, verify_anchors
from leadhand.audit.chain import ChainProblem
from leadhand.audit.signatures import Signatures
from leadhand.audit.verify import (
    artifacts_of,
    check_header,
    check_log,
    check_summary,
    unreadable,
)
from leadhand.codec.events import decode
from leadhand.core.calendar import iso
from leadhand.core.carried import carried_results, result_digest
from leadhand.core.events import AttemptReported, ProbeReported, RunStarted
from leadhand.core.host_events import HOST_STREAM, ApprovalUsed, HostOpened, RunJoined
from leadhand.core.views.totals import DAY_US, LAST_DAY
from leadhand.engine.results import load_artifact
from leadhand.errors import LeadhandError, Unreachable, UsageError
from leadhand.stores.location import home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from leadhand.app.reader import Reader
    from leadhand.audit.anchors import Anchor, Anchoring
    from leadhand.audit.chain import Batch
    from leadhand.audit.keys import PublicKey
    from leadhand.core.carried import CarriedResult
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Entry, RunHeader
    from leadhand.settings import Settings
    from leadhand.stores.location import StoreLocation


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


class VerificationDocument(Struct, kw_only=True):
    """The result of a verification, as `leadhand verify --json`."""

    valid: bool
    """Whether everything that was checked holds."""
    runs: int
    """How many runs were checked."""
    entries: int
    """How many entries were checked."""
    violations: list[Violation]
    """What does not hold."""
    anchors: AnchorsDocument
    """What the anchors say."""
    signed_approvals: int
    """How many approvals have a valid signature."""
    cannot_be_shown: list[str]
    """What this verification cannot exclude, and why."""


@dataclass
class Verification:
    """The result of a verification, and what could not be checked."""

    problems: list[ChainProblem] = field(default_factory=list)
    runs: int = 0
    entries: int = 0
    file: Path | None = None
    lines: int = 0
    """The number of lines of the anchor file."""
    held: Anchor | None = None
    signed: int = 0
    since: int = 0
    """The number of entries that no anchor covers."""
    checked_key: str = ""
    signatures: Signatures = field(default_factory=Signatures)
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
            "cannot_be_shown": self.unshown(),
        }

    def unshown(self) -> list[str]:
        """Return a sentence for each thing that this verification cannot exclude."""
        elsewhere = [self.not_compared] if self.not_compared else []
        return [*self._unanchored(), *self.signatures.unshown(), *elsewhere]

    def _unanchored(self) -> list[str]:
        rewritten = "that the log was not truncated, or rewritten with matching hashes"
        if not self.lines:
            return [f"{rewritten}: there is no anchor ({self.file})"]
        if self.since:
            events = "the last event" if self.since == 1 else f"the last {self.since} events"
            return [f"{rewritten}, as far as {events} are concerned: they came after the anchor"]
        return []


def verify_database(
    reader: Reader,
    store: StoreLocation,
    anchoring: Anchoring,
    *,
    run: str | None = None,
    key: PublicKey | None = None,
    approvers: Mapping[str, str] | None = None,
) -> Verification:
    """Verify everything, or one run and the commits that hold it.

    `key` must have signed the anchors; `approvers` are the known approvers with their keys.
    """
    verdict = Verification(file=file_of(home(store), anchoring))
    lines = _lines(verdict.file)  # before the snapshot: anchors are never ahead of the log
    with reader.store.snapshot():
        verdict.signatures = Signatures(approvers, _used(reader))
        for header in _headers(reader, verdict):
            ident = header.run
            if run not in (None, ident):
                continue
            found, size = check_run(reader, header, verdict.signatures)
            verdict.problems += found
            if not ident.startswith("$"):
                verdict.runs += 1
                verdict.entries += size
        batches: dict[int, Batch] = {}
        try:
            stored = reader.store.batches()
            batches = {batch.number: batch for batch in stored}
            verdict.problems += chain.verify_batches(stored, reader.store.positions())
            verdict.problems += _strays(reader)
            if run is None:
                verdict.problems += _check_owner(reader)
                verdict.problems += _odd(reader)
                verdict.problems += _lists(reader)
        except Exception as error:  # noqa: BLE001 - what was changed may be anything
            verdict.problems.append(unreadable("", error))
        _check_anchors(verdict, lines, batches, _name(reader), key)
        verdict.problems += _damage(reader)
    return verdict


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


def _headers(reader: Reader, verdict: Verification) -> list[RunHeader]:
    try:
        return reader.store.runs()
    except LeadhandError as error:
        verdict.problems.append(unreadable("", error))
        return []


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
    reader: Reader, header: RunHeader, signatures: Signatures
) -> tuple[list[ChainProblem], int]:
    """Return the problems of one run; the chain first, since the rest depends on it."""
    ident = header.run
    entries: list[Entry] = []
    try:
        entries = reader.entries(ident)
        of_run = not ident.startswith("$")  # the host and the library have streams of their own
        found = check_log(ident, entries) if of_run else chain.verify(entries)
        found += check_header(header, entries)
        if of_run and not found:
            found += check_summary(header, entries)
            found += signatures.check(ident, (decode(e.version, e.body) for e in entries))
        if not found:
            found += _check_artifacts(reader, ident, entries)
        if of_run and not found:
            found += _check_carried(reader, ident, decode(entries[0].version, entries[0].body))
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        found = [unreadable(ident, error)]
    return found, len(entries)


def _check_carried(reader: Reader, ident: str, first: Event) -> list[ChainProblem]:
    """Compare the results that a re-run took over with the log of the run they come from."""
    plan = first.plan if isinstance(first, RunStarted) else {}
    found = []
    by_run: dict[str, list[tuple[str, CarriedResult]]] = {}
    for step, each in carried_results(plan).items():
        by_run.setdefault(each.run, []).append((step, each))
    for run, taken in by_run.items():
        log = {entry.seq: entry for entry in reader.entries(run)}  # once, however many are taken
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


def _check_artifacts(reader: Reader, ident: str, entries: Sequence[Entry]) -> list[ChainProblem]:
    found = []
    events = [decode(entry.version, entry.body) for entry in entries]
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
        found = verify_anchors(lines, batches, database, key.check if key else None)
    verdict.problems += found.problems
    verdict.held, verdict.signed = found.held, found.signed
    verdict.checked_key = key.name if key is not None else ""
    try:
        last = max((batch.last for batch in batches.values()), default=0)
        verdict.since = last - (found.held.position if found.held else 0)
    except TypeError:
        verdict.since = 0  # damage, which is reported
