"""The one thread that writes to a SQLite file. `store.py` explains why.

    event loop                        writer thread
    append() ── request ──► queue ──► take all that waits
                                      check each against its run's head
                                      one statement: owner, entries, heads, batch; commit
    futures  ◄── one call per loop ── outcomes
                                      a checkpoint when one is due

Failures, by what is known afterwards:

    Conflict      that append alone was left out
    Fenced        none was written, none will be: another owner has the file
    StoreFull     none was written; the next append may go through
    StoreError    none was written (locked for too long, and the like)
    StoreBroken   nobody knows; every later append is refused

An append queued behind a failed one of its run meets an unexpected head, and so fails with
Conflict: the written log of a run never has a hole.
"""

from __future__ import annotations

import os
import sqlite3
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from leadhand.audit.chain import GENESIS, Batch, link_batch, verify
from leadhand.errors import (
    Bug,
    Conflict,
    Fenced,
    LeadhandError,
    StoreBroken,
    StoreCorrupt,
    StoreError,
)
from leadhand.stores import sql
from leadhand.stores.body_form import shorten
from leadhand.stores.group_commit import (
    AppendRequest,
    CommitDurations,
    CommitGroup,
    Committer,
    Head,
    name_list,
)
from leadhand.stores.sqlite.connection import DAMAGE, explain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leadhand.ports import Entry
    from leadhand.stores.archive import ArchiveFiling, CopyStart


CHECKPOINT_BYTES = 16 * 1024 * 1024
LOG_PIECES = 4
"""A log that readers hold is tried again after each such fraction of the checkpoint size."""
LOG_FAR = 2
"""From this multiple of the checkpoint size, the writer waits for readers."""
COMMIT_OVERHEAD_BYTES = 5 * 4096
"""An estimate of what a commit writes besides the entries: a page of each table and index."""
HEADS_MAX = 100_000
NUMBERS_MAX = 1 << 62
"""Far beyond any counter of ours; a larger one was written by another program."""
LOCK_POLL_S = 0.01
GIVE_BACK_SHARE = 10
"""A file of which less than one page in so many is empty is not written anew."""


class Locked(StoreError):
    """Another program holds the file's lock; nothing was written."""


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - once for each commit, and a Path takes thrice as long
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Writer(Committer[sqlite3.Connection]):
    """The owner of the writing connection and of the thread that uses it."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, *, busy_s: float, debug: bool
    ) -> None:
        super().__init__(connection)
        self._path = path
        self._place = str(path)
        self._identity = _identity(self._place)
        self._busy_s = busy_s
        self._patient = True
        self._debug = debug
        self._sql = sql.queries()
        self._heads: dict[str, Head] = {}
        self._epoch = self._position = self._run_id = self._number = 0
        self._batch_hash = GENESIS
        self._logged_bytes = 0
        self._tried_at = 0
        """The length of the log when readers last kept it from restarting."""
        self.head = Batch(0, 0, 0, GENESIS)
        """The last commit, which anchors outside the database record."""
        self.took = CommitDurations()
        self.refusal = Fenced(f"{path}: not claimed yet")
        connection.execute("PRAGMA busy_timeout = 0")  # we wait ourselves: see _execute
        for name in ("counter", "intake", "file_intake"):
            connection.execute(sql.queries("writer")[name])
        for statement in sql.queries("lists").values():
            connection.execute(statement)
        self.start()

    def write_now(self, request: AppendRequest) -> bool:
        """Commit an append in the caller's thread, if the writer is idle. Return whether it did.

        A round trip of a lone append through another thread costs more than the commit. The caller
        has nothing else to do meanwhile, but does not want to wait for another program's lock
        either: then it is left to the writer.
        """
        if not self._queue.empty() or not self._busy.acquire(blocking=False):
            return False
        try:
            self._patient = False
            (outcome,) = self._commit([request])
            if isinstance(outcome, Locked):
                self.settled_bytes -= request.size
                return False
        finally:
            self._patient = True
            self._busy.release()
        self._deliver([(request, outcome)])
        if self._checkpoint_due():
            self.ask(lambda _connection: self._rest())
        return True

    def claim(self) -> Future[int]:
        """Become the owner."""
        return self.ask(self._claim)

    def stop(self) -> Future[None]:
        """Finish all queued appends, close the connection, end the thread."""
        return self.ask(sqlite3.Connection.close, last=True)

    # All below runs in the writer's thread, or in write_now.

    def file_away(self, filing: ArchiveFiling) -> None:
        """Record an archive and remove what it holds, in one commit; see `KeptStore.file_away`."""
        record = filing.record

        def remove(connection: sqlite3.Connection) -> None:
            number = record.archive
            values = (number, record.commit, self._position)
            connection.execute(self._sql["add_archive"], values)
            connection.executemany(
                self._sql["add_archived"], [(number, run) for run in filing.runs]
            )
            connection.execute(self._sql["remove_entries"], (record.position, number))
            connection.execute(self._sql["remove_commits"], (record.commit,))

        self._note_with(filing.entry, remove)

    def note_archive(self, number: int, entry: Entry, what: str) -> None:
        """Record that an archive was rewritten or deleted; see `KeptStore.note_archive`."""
        self._note_with(
            entry,
            lambda connection: connection.execute(
                self._sql[f"archive_{what}"], (self._position, number)
            ),
        )

    def begin_after(self, start: CopyStart) -> None:
        """Begin a copy after the commits that archives cover; see `Copy.begin_after`."""
        if self._number:
            return  # an earlier copy came further
        execute, execute_many = self._connection.execute, self._connection.executemany
        last: dict[str, int] = {}
        entries = []
        for position, each in start.entries:
            back = position - last[each.run] if each.run in last else 0
            entries.append((position, *each[:4], shorten(each.body), each.hash, back))
            last[each.run] = position
        try:
            self._execute("BEGIN IMMEDIATE")
            execute_many(
                self._sql["copy_run"],
                [
                    (
                        number,
                        *each[:5],
                        None if each.run[:1] == "$" else each.summary,
                        last.get(each.run, 0),
                    )
                    for number, each in start.runs
                ],
            )
            execute_many(self._sql["copy_entry"], entries)
            execute_many(self._sql["copy_archive"], start.archives)
            execute_many(self._sql["copy_archived"], start.archived)
            execute("COMMIT")
        except DAMAGE as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise explain(error, self._path) from error
        self._position, self._number = start.end.last, start.end.number
        self._batch_hash, self.head = start.end.hash, start.end
        self._run_id = max((number for number, _ in start.runs), default=0)
        self._heads.clear()

    def _note_with(self, entry: Entry, change: Callable[[sqlite3.Connection], Any]) -> None:
        """Commit an entry of the host together with a change of the tables, or neither."""
        before = (self._position, self._number, self._batch_hash, self.head, self._logged_bytes)
        self._execute("BEGIN IMMEDIATE")
        try:
            no_future: Any = None
            request = AppendRequest(
                no_future, no_future, entry.run, entry.seq - 1, [entry], None, len(entry.body)
            )
            (failed,) = self._commit([request])
            self.settled_bytes -= request.size
            if failed is not None:
                raise failed
            change(self._connection)
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            self._position, self._number, self._batch_hash, self.head, self._logged_bytes = before
            self._heads.clear()
            if isinstance(error, DAMAGE):
                known = explain(error, self._path)
                if isinstance(known, StoreBroken | StoreCorrupt):
                    self.refusal = known
                raise known from error
            raise
        self._logged_bytes += CHECKPOINT_BYTES  # what was removed went through the log
        self._rest()

    def give_back(self) -> int:
        """Write the file anew without its empty pages; see `KeptStore.give_back`."""
        try:
            size = self._path.stat().st_size
            ((free, pages),) = self._execute(self._sql["free_pages"])
            if free * GIVE_BACK_SHARE < pages:
                return 0
            self._execute(self._sql["give_back"])
            self._execute(self._sql["checkpoint_far"])
            return max(0, size - self._path.stat().st_size)
        except DAMAGE as error:
            raise explain(error, self._path) from error

    def _commit(self, requests: list[AppendRequest]) -> list[LeadhandError | None]:
        """Write a group; return for each request why it failed, or None."""
        self.settled_bytes += sum([request.size for request in requests])
        if self.refusal is not None:
            return [self.refusal] * len(requests)
        outcomes: list[LeadhandError | None] = [None] * len(requests)
        group = CommitGroup(self._run_id, self._position)
        try:
            self._load_heads(requests)
            for index, request in enumerate(requests):
                try:
                    group.add(request, self._checked_head(request, group))
                except LeadhandError as error:
                    outcomes[index] = error
                except (TypeError, ValueError, AttributeError) as error:
                    outcomes[index] = Bug(f"{request.run}: not an entry ({error})")
            if group.hashes:
                began = time.perf_counter()
                self._write(group)
                self.took.add(time.perf_counter() - began)
            else:
                self._check_owner()  # the remembered heads are valid only if this holds
        except Exception as error:  # noqa: BLE001 - whatever it is, every caller must hear of it
            failure = self._failure(error)
            lost = isinstance(failure, Fenced)
            return [failure if outcome is None or lost else outcome for outcome in outcomes]
        return outcomes

    def _load_heads(self, requests: list[AppendRequest]) -> None:
        """Read the ends of runs not known yet.

        Known ends stay right: while the owner's epoch, which every commit checks, is ours, no other
        process has written.
        """
        if len(self._heads) > HEADS_MAX:
            self._heads.clear()
        unknown = {request.run for request in requests} - self._heads.keys()
        if unknown:
            find = sql.queries("writer")["find_heads"]
            for run, *head in self._execute(find, name_list(unknown)):
                self._heads[run] = Head(*head)

    def _checked_head(self, request: AppendRequest, group: CommitGroup) -> Head:
        """Return the end of the request's run, including the group.

        Raise `Conflict` if it differs.
        """
        touched = group.touched.get(request.run)
        head = touched.head if touched else self._heads.get(request.run)
        if head is None:
            head = Head(group.last_run_id + 1, 0, GENESIS, 0)
        if head.seq != request.expected:
            raise Conflict(f"{request.run}: the log ends at {head.seq}, not at {request.expected}")
        if head.seq and not 0 < head.position < group.next_position:
            raise StoreCorrupt(f"{request.run}: its end is damaged. Fix: put back a copy.")
        if self._debug and (problems := verify(request.entries, head.hash, head.seq)):
            raise Bug(f"entries that do not chain: {problems[0]}")
        return head

    def _check_owner(self) -> None:
        """Check the owner, as the commit otherwise does."""
        ((epoch,),) = self._execute(self._sql["meta"], ("epoch",))
        if epoch != self._epoch:
            raise sqlite3.IntegrityError("fenced")

    def _write(self, group: CommitGroup) -> None:
        """Commit the group, then remember its changes."""
        first, number = self._position + 1, self._number + 1
        last = self._position + len(group.hashes)
        batch_hash = link_batch(self._batch_hash, first, last, group.hashes)
        layout = group.layout()
        self._execute(self._sql["commit"], (self._epoch, number, batch_hash, first, *layout))
        self._check_place()
        self._position, self._number, self._batch_hash = last, number, batch_hash
        self.head = Batch(number, first, last, batch_hash)
        self._run_id = group.last_run_id
        for run, one in group.touched.items():
            self._heads[run] = one.head
        self._logged_bytes += len(layout.data) + 100 * layout.rows + COMMIT_OVERHEAD_BYTES

    def _check_place(self) -> None:
        """Raise `StoreBroken` if the file was removed or replaced: writes to it are not kept."""
        if _identity(self._place) != self._identity:
            self.refusal = StoreBroken(
                f"{self._path}: was removed or replaced while in use, so nothing more can be "
                "kept in it. Fix: put the file back, or start again."
            )
            raise self.refusal

    def _execute(self, statement: str, values: Any = ()) -> list[Any]:
        """Run one statement; retry while another program holds the file's lock."""
        deadline = time.monotonic() + self._busy_s
        while True:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                locked = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                if not locked or not self._patient or time.monotonic() > deadline:
                    raise
            time.sleep(LOCK_POLL_S)

    def _failure(self, error: Exception) -> LeadhandError:
        """Return the error of a failed commit; a permanent one also refuses later appends."""
        if isinstance(error, LeadhandError):
            return error
        if isinstance(error, UnicodeDecodeError):
            self.refusal = explain(error, self._path)
            return self.refusal
        if not isinstance(error, sqlite3.Error):
            return Bug(f"{self._path}: {type(error).__name__}: {error}")
        if self._connection.in_transaction:
            self._connection.rollback()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if str(error) == "fenced":
            self.refusal = Fenced(f"{self._path}: another host has taken over this database")
        elif code == sqlite3.SQLITE_BUSY:
            return Locked(*explain(error, self._path).args)
        elif code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}:
            return explain(error, self._path)  # rolled back; the next append may succeed
        elif code in {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            self.refusal = StoreCorrupt(f"{self._path}: not as its owner left it ({error})")
        else:
            self.refusal = StoreBroken(
                f"{self._path}: a write failed, and what was written is not known ({error}). "
                "Fix: look after the disk, then resume."
            )
        return self.refusal

    def _rest(self) -> None:
        """Move the log into the file now and then, after the answers are out.

        Done here, because an automatic checkpoint would be part of a commit and would not report a
        failed sync.

        The log restarts at its beginning only when no reader needs its content. Among readers that
        come and go there is always one, so a log that has grown is tried again with every added
        piece, and for a log that has grown far the writer waits: new readers need nothing of it,
        and earlier ones end soon. Space held by a reader with one long snapshot (`verify`, a copy)
        is freed when it ends.
        """
        if not self._checkpoint_due() or self.refusal is not None:
            return
        far = self._logged_bytes >= LOG_FAR * CHECKPOINT_BYTES
        try:
            if far:
                self._connection.execute(self._sql["wait_for_readers"])
            try:
                statement = self._sql["checkpoint_far" if far else "checkpoint"]
                ((busy, _, _),) = self._connection.execute(statement).fetchall()
            finally:
                if far:
                    self._connection.execute("PRAGMA busy_timeout = 0")
        except DAMAGE as error:
            busy, known = 1, explain(error, self._path)
            if isinstance(known, StoreBroken | StoreCorrupt):
                self.refusal = known
        if busy:
            self._tried_at = self._logged_bytes
        else:
            self._logged_bytes = self._tried_at = 0

    def _checkpoint_due(self) -> bool:
        again = self._tried_at + CHECKPOINT_BYTES // LOG_PIECES if self._tried_at else 0
        return self._logged_bytes >= max(CHECKPOINT_BYTES, again)

    def _claim(self, connection: sqlite3.Connection) -> int:
        """Raise the epoch, and start from the current end of the file."""
        if self.refusal is not None and not isinstance(self.refusal, Fenced):
            raise self.refusal
        try:
            self._execute("BEGIN IMMEDIATE")
            connection.execute(self._sql["raise_epoch"])
            found = connection.execute(self._sql["meta"], ("epoch",)).fetchone()
            ends = connection.execute(self._sql["ends"]).fetchone()
            self._refuse_damage(*(found or (0,)), *ends[:3])
            connection.execute("COMMIT")
        except DAMAGE as error:
            if connection.in_transaction:
                connection.rollback()
            raise explain(error, self._path) from error
        (self._epoch,) = found
        self._position, self._run_id, self._number, head = ends
        self._batch_hash = head or GENESIS
        self.head = Batch(self._number, 0, self._position, self._batch_hash)
        self._heads.clear()
        self.refusal = None
        return self._epoch

    def _refuse_damage(self, epoch: object, *ends: object) -> None:
        """Raise `StoreCorrupt` for damaged counters: going on would spread the damage."""
        for number, least in ((epoch, 1), *((each, 0) for each in ends)):
            if type(number) is not int or not least <= number < NUMBERS_MAX:
                self._connection.rollback()
                raise StoreCorrupt(
                    f"{self._path}: its counters are damaged, so nothing can be added. "
                    "Fix: put back a copy; nothing was changed."
                )
