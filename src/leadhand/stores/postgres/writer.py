"""The one thread that writes to PostgreSQL: a group of appends is one call of one function.

    take all that waits ─► check each against its run's head ─► leadhand.append(…)
         outcomes      ◄─  landed? (only where nobody knows)  ◄─ committed, refused or lost

What may come back, and what is known then:

    a batch          committed, and durable
    LH001            nothing was written: another owner has the log          (Fenced)
    LH002            nothing was written: a run ends elsewhere; its head is read again, and the
                     appends that expected something else are refused       (Conflict)
    40001, 40P01, …  nothing was written: it is said again
    disk full        nothing was written; the next append may go through    (StoreFull)
    nothing          the connection is lost, perhaps after the commit. A new one is made, and
                     each append looked for by the hash of its last entry: what is there has
                     landed, what is not is written now. An older attempt that is still on its
                     way at the server cannot get between: both lock the log's end, and whoever
                     comes second finds its run moved.

Before a new connection is used the writer sees that the log is still the one it wrote: that
its last commit is there with the same hash. A server that was put back to an older copy, or a
follower promoted without the last commits, is refused rather than continued.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from leadhand.audit.chain import GENESIS, Batch, verify
from leadhand.errors import (
    Bug,
    Conflict,
    Fenced,
    LeadhandError,
    NotAllowed,
    StoreBroken,
    StoreCorrupt,
    StoreError,
)
from leadhand.stores.body_form import shorten
from leadhand.stores.group_commit import AppendRequest, CommitDurations, Committer, Head
from leadhand.stores.postgres import schema
from leadhand.stores.postgres.schema import HOSTING
from leadhand.stores.postgres.session import OPEN_PATIENCE_S, Session, explain, lost, queries

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from leadhand.ports import Entry
    from leadhand.stores.archive import ArchiveFiling
    from leadhand.stores.postgres.address import Address

HEADS_MAX = 100_000
NUMBERS_END = 1 << 63
HURRY = "SET synchronous_commit = off"
FENCED, MOVED = "LH001", "LH002"


class _Touched:
    """The changes of a group to one run."""

    __slots__ = ("before", "created", "head", "summary", "updated")

    def __init__(self, head: Head, created: int) -> None:
        self.head, self.before = head, head.seq
        self.created = self.updated = created
        self.summary: bytes | None = None


class _Group(NamedTuple):
    """Appends that are committed together."""

    touched: dict[str, _Touched]
    entries: list[Any]

    def add(self, request: AppendRequest, head: Head) -> None:
        """Add an append; if this raises, nothing of it was added."""
        _refuse_odd(request)
        one = self.touched.get(request.run)
        if one is None:
            one = self.touched[request.run] = _Touched(head, request.entries[0].at)
        last = request.entries[-1]
        one.head = Head(head.id, last.seq, last.hash)
        one.updated = last.at
        if request.summary is not None:
            one.summary = request.summary
        self.entries.extend(request.entries)

    def values(self, owner: int | None) -> tuple[Any, ...]:
        """Return the arguments of `leadhand.append`."""
        runs = list(self.touched.values())
        names, seqs, ats, versions, bodies, hashes = map(list, zip(*self.entries, strict=True))
        return (
            owner,
            list(self.touched),
            [one.before for one in runs],
            [one.created for one in runs],
            [one.updated for one in runs],
            [one.head.seq for one in runs],
            [one.head.hash for one in runs],
            [one.summary for one in runs],
            *(names, seqs, ats, versions),
            list(map(shorten, bodies)),
            hashes,
        )


def _refuse_odd(request: AppendRequest) -> None:
    """Raise `Bug` for a value that PostgreSQL would refuse, and with it the whole group."""
    request.run.encode()
    good = "\0" not in request.run and type(request.summary) in (bytes, type(None))
    for _, seq, at, version, body, digest in request.entries:
        good = good and type(body) is bytes and type(digest) is bytes and len(digest) == 32
        good = good and all(-NUMBERS_END <= number < NUMBERS_END for number in (seq, at, version))
    if not good:
        raise Bug(f"{request.run[:100]!r}: an entry or a summary that cannot be stored")


class PostgresWriter(Committer[Session]):
    """The owner of the writing connection and of the thread that uses it."""

    def __init__(
        self, address: Address, *, patience_s: float, debug: bool, shared: bool = False
    ) -> None:
        super().__init__(Session(address, "writer", patience_s=patience_s))
        self._address = address
        self._debug = debug
        self._shared = shared
        self._heads: dict[str, Head] = {}
        self._epoch = 0
        self._backend = 0
        """Our connection at the server: after a loss it may still seem alive there."""
        self._locked = self._lock_shared = False
        self._removed = False
        """Whether an archive was filed since space was last given back."""
        self.head = Batch(0, 0, 0, GENESIS)
        """The last commit, which anchors outside the database record."""
        self.took = CommitDurations()
        if not shared:
            self.refusal = Fenced(f"{address}: not claimed yet")
        self._connection.ready = self._restore
        self._connection.open()
        self.start()

    def claim(self) -> Future[int]:
        """Become the owner."""
        return self.ask(lambda _session: self._claim())

    def lock(self, *, shared: bool = False) -> Future[bool]:
        """Become the host: no other can while this one lives. False if there is one.

        `shared`: keep hosts out, together with other sharing holders.
        """

        def take(session: Session) -> bool:
            self._lock_shared = shared
            return session.do(self._lock, OPEN_PATIENCE_S)

        return self.ask(take)

    def unlock(self) -> Future[None]:
        """Release that lock."""
        return self.ask(self._unlock)

    def hurry(self) -> None:
        """Let the server answer before a commit is on its disk: for a copy, which can be resumed.

        Does not apply to later connections.
        """
        self.ask(lambda session: session.do(lambda c: c.execute(HURRY))).result()

    def stop(self) -> Future[None]:
        """Finish all queued appends, close the connection, end the thread."""
        return self.ask(Session.close, last=True)

    # All below runs in the writer's thread.

    def file_away(self, session: Session, filing: ArchiveFiling) -> None:
        """Record an archive and remove what it holds, in one commit; see `KeptStore.file_away`."""
        record = filing.record

        def remove(connection: psycopg.Connection[Any], position: int) -> None:
            number = record.archive
            execute = connection.execute
            execute(queries()["add_archive"], (number, record.commit, position))
            execute(queries()["add_archived"], (number, list(filing.runs)))
            execute(queries()["remove_entries"], (record.position, number))
            execute(queries()["remove_commits"], (record.commit,))

        self._note_with(session, filing.entry, remove)
        self._removed = True

    def note_archive(self, session: Session, number: int, entry: Entry, what: str) -> None:
        """Record that an archive was rewritten or deleted; see `KeptStore.note_archive`."""

        def note(connection: psycopg.Connection[Any], position: int) -> None:
            connection.execute(queries()[f"archive_{what}"], (position, number))

        self._note_with(session, entry, note)

    def _note_with(
        self,
        session: Session,
        entry: Entry,
        change: Callable[[psycopg.Connection[Any], int], None],
    ) -> None:
        """Commit an entry of the host together with a change of the tables, or neither."""
        if self.refusal is not None:
            raise self.refusal
        no_future: Any = None
        request = AppendRequest(no_future, no_future, entry.run, entry.seq - 1, [entry], None, 0)
        connection = session.connected(time.monotonic() + session.patience_s)
        try:
            with connection.transaction():
                self._load_heads(connection, {entry.run})
                group = _Group({}, [])
                group.add(request, self._checked_head(request, group))
                values = group.values(self._owner)
                row = connection.execute(queries()["append"], values, binary=True).fetchone()
                assert row is not None
                batch = Batch(*row)
                change(connection, batch.last)
        except psycopg.Error as error:
            if error.sqlstate is None or lost(error):
                self.refusal = StoreBroken(
                    f"{self._address}: the server went away during a commit, and whether that was "
                    "kept is not known. Fix: look after the server, then the same command again"
                )
                raise self.refusal from None
            if error.sqlstate == "42501":
                raise NotAllowed(
                    f"{self._address}: archives are made by the owner of the tables. "
                    "Fix: name the owner in the address"
                ) from None
            raise self._failure(error) from None
        self._remember(group, batch)

    def give_back(self, session: Session) -> int:
        """Write the tables anew without what was removed; see `KeptStore.give_back`."""
        if not self._removed:
            return 0

        def write(connection: psycopg.Connection[Any]) -> int:
            (before,) = connection.execute(queries()["size"]).fetchone() or (0,)
            connection.execute(queries()["give_back"])
            (after,) = connection.execute(queries()["size"]).fetchone() or (0,)
            return max(0, before - after)

        freed = session.do(write)
        self._removed = False
        return freed

    def _commit(self, requests: list[AppendRequest]) -> list[LeadhandError | None]:
        """Write a group; return for each request why it failed, or None."""
        self.settled_bytes += sum([request.size for request in requests])
        if self.refusal is not None:
            return [self.refusal] * len(requests)
        outcomes: dict[int, LeadhandError | None] = {}
        try:
            self._write_all(requests, outcomes)
        except Exception as error:  # noqa: BLE001 - whatever it is, every caller must hear of it
            failure = self._failure(error)
            if isinstance(failure, Fenced):
                outcomes = {place: each for place, each in outcomes.items() if each is None}
            return [outcomes.get(place, failure) for place in range(len(requests))]
        return [outcomes.get(place) for place in range(len(requests))]

    def _write_all(
        self, requests: list[AppendRequest], outcomes: dict[int, LeadhandError | None]
    ) -> None:
        """Write or refuse each request; `outcomes` holds what is certain."""
        deadline = time.monotonic() + self._connection.patience_s
        sent = unsure = False
        while True:
            try:
                connection = self._connected(deadline, unsure=unsure)
                if unsure:
                    self._find_landed(connection, requests, outcomes)
                group = self._gathered(connection, requests, outcomes)
                if not group.entries:
                    self._check_owner(connection)
                    return
                began, sent = time.perf_counter(), True
                row = connection.execute(
                    queries()["append"], group.values(self._owner), binary=True
                ).fetchone()
                self.took.add(time.perf_counter() - began)
                assert row is not None
                self._remember(group, Batch(*row))
                return
            except psycopg.Error as error:
                # A refusal of the server left nothing behind; a missing answer may have.
                unsure = unsure or (sent and (error.sqlstate is None or lost(error)))
                again = error.sqlstate == MOVED or self._connection.passed(error)
                if not again or time.monotonic() > deadline:
                    raise
                sent = False
                self._heads.clear()

    def _connected(self, deadline: float, *, unsure: bool) -> psycopg.Connection[Any]:
        try:
            return self._connection.connected(deadline)
        except StoreError as error:
            # If the log is a copy, the next writer compares it with the original.
            if unsure and not self._shared and type(error) is StoreError:
                words = str(error).partition(" Fix: ")[0]
                raise StoreBroken(
                    f"{words} It went away during a commit, and whether that was kept is not "
                    "known. Fix: look after the server, then resume."
                ) from None
            raise

    @property
    def _owner(self) -> int | None:
        return None if self._shared else self._epoch

    def _gathered(
        self,
        connection: psycopg.Connection[Any],
        requests: list[AppendRequest],
        outcomes: dict[int, LeadhandError | None],
    ) -> _Group:
        """Return the group of all requests that can be written together; refuse the others."""
        left = [(place, each) for place, each in enumerate(requests) if place not in outcomes]
        self._load_heads(connection, {request.run for _, request in left})
        group = _Group({}, [])
        for place, request in left:
            try:
                group.add(request, self._checked_head(request, group))
            except LeadhandError as error:
                outcomes[place] = error
            except (TypeError, ValueError, AttributeError) as error:
                outcomes[place] = Bug(f"{request.run}: not an entry ({error})")
        return group

    def _load_heads(self, connection: psycopg.Connection[Any], runs: set[str]) -> None:
        """Read the ends of runs not known yet, or of all runs if others write too."""
        if len(self._heads) > HEADS_MAX or self._shared:
            self._heads.clear()
        unknown = list(runs - self._heads.keys())
        if unknown:
            for run, *head in connection.execute(
                queries()["find_heads"], (unknown,), binary=True
            ).fetchall():
                self._heads[run] = Head(*head)

    def _checked_head(self, request: AppendRequest, group: _Group) -> Head:
        """Return the end of the request's run, including the group.

        Raise `Conflict` if it differs.
        """
        touched = group.touched.get(request.run)
        head = touched.head if touched else self._heads.get(request.run, Head(0, 0, GENESIS))
        if head.seq != request.expected:
            raise Conflict(f"{request.run}: the log ends at {head.seq}, not at {request.expected}")
        if self._debug and (problems := verify(request.entries, head.hash, head.seq)):
            raise Bug(f"entries that do not chain: {problems[0]}")
        return head

    def _remember(self, group: _Group, batch: Batch) -> None:
        self.head = batch
        for run, one in group.touched.items():
            self._heads[run] = one.head

    def _find_landed(
        self,
        connection: psycopg.Connection[Any],
        requests: list[AppendRequest],
        outcomes: dict[int, LeadhandError | None],
    ) -> None:
        """Find requests that are already stored.

        The hash of the last entry covers all before it.
        """
        left = [(place, each) for place, each in enumerate(requests) if place not in outcomes]
        lasts = [request.entries[-1] for _, request in left]
        values = ([e.run for e in lasts], [e.seq for e in lasts], [e.hash for e in lasts])
        found = connection.execute(queries()["landed"], values, binary=True).fetchall()
        for (number,) in found:
            outcomes[left[number - 1][0]] = None
        if found:
            self._see_end(connection)

    def _see_end(self, connection: psycopg.Connection[Any]) -> None:
        row = connection.execute(queries()["tail"], binary=True).fetchone()
        assert row is not None
        self.head = Batch(row[2], 0, row[0], row[3])

    def _check_owner(self, connection: psycopg.Connection[Any]) -> None:
        """Check the owner, as the commit otherwise does."""
        row = connection.execute(queries()["epoch"], binary=True).fetchone()
        if not self._shared and (row is None or row[0] != self._epoch):
            raise self._overtaken()

    def _overtaken(self) -> Fenced:
        return Fenced(f"{self._address}: another host has taken over this database")

    def _failure(self, error: Exception) -> LeadhandError:
        """Return the error of a failed commit; a permanent one also refuses later appends."""
        if isinstance(error, psycopg.Error):
            if error.sqlstate == FENCED:
                known: LeadhandError = self._overtaken()
            elif (error.sqlstate or "").startswith("23"):
                known = StoreCorrupt(
                    f"{self._address}: not as its owner left it ({error.sqlstate})"
                )
            else:
                known = explain(error, self._address)
        elif isinstance(error, LeadhandError):
            known = error
        else:
            return Bug(f"{self._address}: {type(error).__name__}: {error}")
        if isinstance(known, (Fenced, StoreBroken, StoreCorrupt)):
            self.refusal = known
        return known

    def _claim(self) -> int:
        """Raise the epoch, and start from the current end of the log."""
        if self.refusal is not None and not isinstance(self.refusal, Fenced):
            raise self.refusal

        def raised(connection: psycopg.Connection[Any]) -> tuple[int, Batch]:
            with connection.transaction():
                row = connection.execute(queries()["claim"], binary=True).fetchone()
                ends = connection.execute(queries()["ends"], binary=True).fetchone()
                if row is None or ends is None or tuple(row[1:]) != tuple(ends):
                    raise StoreCorrupt(
                        f"{self._address}: its counters are damaged, so nothing can be added. "
                        "Fix: put back a copy; nothing was changed."
                    )
            return row[0], Batch(row[3], 0, row[1], row[4])

        self._epoch, self.head = self._connection.do(raised, OPEN_PATIENCE_S)
        self._heads.clear()
        self.refusal = None
        return self._epoch

    def _restore(self, connection: psycopg.Connection[Any]) -> None:
        """Check a new connection: the log is still the one we wrote, and we are its host."""
        schema.check(connection, self._address)
        if self.head.number:
            row = connection.execute(queries()["batch"], (self.head.number,)).fetchone()
            if row is None or bytes(row[0]) != self.head.hash:
                raise StoreBroken(
                    f"{self._address}: the server lost what it had confirmed: commit "
                    f"{self.head.number} is not there, or is another. It was put back to an older "
                    "copy, or a follower took over too early. Fix: put the newer log back"
                )
        if self._locked:
            self._locked = False
            if not self._lock(connection):
                raise self._overtaken()
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        self._backend = row[0] if row else 0

    def _lock(self, connection: psycopg.Connection[Any]) -> bool:
        if self._lock_shared:
            self._locked = self._try_lock(connection)
            return self._locked
        if not self._try_lock(connection):
            holder = connection.execute(queries()["lock_holder"], (HOSTING,)).fetchone()
            if holder is None or holder[0] != self._backend:
                return self._try_lock(connection) if holder is None else False
            # Our own lost connection: the server has not yet noticed that it is dead.
            connection.execute(queries()["end_session"], (self._backend,))
            if not self._try_lock(connection):
                return False
        who = (os.getpid(), socket.gethostname(), time.time_ns() // 1000)
        connection.execute(queries()["set_host"], who)
        self._locked = True
        return True

    def _try_lock(self, connection: psycopg.Connection[Any]) -> bool:
        name = "try_lock_shared" if self._lock_shared else "try_lock"
        row = connection.execute(queries()[name], (HOSTING,)).fetchone()
        return bool(row and row[0])

    def _unlock(self, session: Session) -> None:
        if self._locked:
            self._locked = False
            name = "unlock_shared" if self._lock_shared else "unlock"
            session.do(lambda connection: connection.execute(queries()[name], (HOSTING,)))
