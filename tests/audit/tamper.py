"""Ten thousand ways to change a log, and whether each is found.

    python -m tests.audit.tamper [--count 10000] [--seed 0]

The attacker has the database, or the exported bundle, and knows exactly how both are made; what
they have not is the anchor file and the private key. Half of the tamperings are of the database
(bits and values in every column of every table, rows taken out, put in, copied and swapped, ends
cut off by entries, commits and whole runs, and chains computed anew so that every hash fits),
half of its signed bundle (bits anywhere in the file, files changed, taken out and put in, and
bundles made anew, with fitting hashes, from a changed log, signed by another key or not at all).
"""

import argparse
import asyncio
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from leadhand import Human, Lead, Permanent, Transient, worker
from leadhand.app.export import export_run
from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.audit.bundle import (
    MANIFEST,
    SIGNATURE,
    BundledCommit,
    KeyedSigner,
    _parts,
    _unpacked,
    build,
    pack,
    verify_bundle,
)
from leadhand.audit.chain import GENESIS, link, link_batch
from leadhand.audit.keys import PrivateKey
from leadhand.codec.events import decode
from leadhand.core.host_events import HOST_STREAM, HostOpened
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.run import summary
from leadhand.ports import Entry
from leadhand.stores import sql
from leadhand.stores.body_form import expand

TABLES = {
    "events": ("position", "run_id", "seq", "at", "version", "back", "body", "hash"),
    "runs": ("id", "run", "created", "updated", "seq", "hash", "last", "summary"),
    "batches": ("number", "first", "last", "hash"),
    "meta": ("value",),
}
KEYS = {"events": "position", "runs": "id", "batches": "number", "meta": "key"}


@worker
async def say(text: str = "hello") -> str:
    return text


@worker
async def flaky(attempts: dict) -> str:
    raise Transient("not now")


@worker
async def big() -> list:
    return ["a long line of a large result"] * 4000


@worker
async def broken() -> None:
    raise Permanent("it cannot be done")


PLANS = (
    [{"id": "a", "worker": "say"}, {"id": "b", "worker": "say", "depends_on": ["a"]}],
    [{"id": "large", "worker": "big"}, {"id": "x", "worker": "broken", "failure_action": "abort"}],
    [{"id": "ask", "worker": "person"}, {"id": "c", "worker": "say", "depends_on": ["ask"]}],
    [{"id": f"s{number}", "worker": "say"} for number in range(12)],
)


class Case:
    """An honest database with its anchors and the signed bundle of one of its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "honest.db"
        self.key = PrivateKey.new()
        keyfile = folder / "audit.key"
        keyfile.write_bytes(self.key.pem())
        keyfile.chmod(0o600)
        self.anchoring = Anchoring(folder / "elsewhere.anchors", key=keyfile)
        lead = Lead([say, big, broken, Human("person")], store=self.store, anchoring=self.anchoring)
        for steps in PLANS:
            outcome = lead.run_sync({"goal": "something to change", "steps": steps})
            while outcome.status == "waiting":
                question = outcome.waiting_for[0].id.partition("/")[2]
                asyncio.run(lead.answer(outcome.run, question, "done", text="it is done"))
                outcome = lead.resume_sync(outcome.run)
            self.run = outcome.run
        connection = sqlite3.connect(self.store)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        known = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        self.triggers = dict(connection.execute(known).fetchall())
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        self.image = self.store.read_bytes()
        self.bundles = [
            export_run(self.store, header.run, self.anchoring) for header in self._headers()
        ]
        shutil.copytree(f"{self.store}.artifacts", folder / "case.db.artifacts")
        self.case = folder / "case.db"

    def _headers(self):
        reader = Reader(self.store)
        try:
            return reader.runs()
        finally:
            reader.store.close_reader()

    def found_in_database(self, change) -> bool | None:
        """Whether a change is found; None when it changed nothing."""
        self.case.write_bytes(self.image)
        Path(f"{self.case}.verified").unlink(missing_ok=True)  # of the case before
        connection = sqlite3.connect(self.case)
        connection.execute("PRAGMA synchronous = OFF")
        try:
            before = _dump(connection)
            for name in self.triggers:
                connection.execute(f'DROP TRIGGER "{name}"')
            change(connection)
            for statement in self.triggers.values():  # whoever is careful leaves no other trace
                connection.execute(statement)
            connection.commit()
            if _dump(connection) == before:
                return None
        except sqlite3.Error:
            return None  # the file's own constraints forbid it
        finally:
            connection.close()
        return bool(self.problems())

    def problems(self):
        try:
            reader = Reader(self.case)
        except Exception as error:
            return [error]
        try:
            verdict = verify_database(reader, self.case, self.anchoring, key=self.key.public)
            return verdict.problems
        finally:
            reader.store.close_reader()


def _dump(connection):
    return [
        connection.execute(f"SELECT * FROM {table} ORDER BY {key}").fetchall()
        for table, key in KEYS.items()
    ]


# --- the database --------------------------------------------------------------------------


def _row(connection, rng, table):
    key = KEYS[table]
    rows = connection.execute(f"SELECT {key} FROM {table} ORDER BY {key}").fetchall()
    return rng.choice(rows)[0]


def flip_bit(connection, rng):
    """One bit of one value in any column of any table."""
    table = rng.choice(list(TABLES))
    column, row = rng.choice(TABLES[table]), _row(connection, rng, table)
    where = f"UPDATE {table} SET {column} = ? WHERE {KEYS[table]} = ?"
    value = connection.execute(
        f"SELECT {column} FROM {table} WHERE {KEYS[table]} = ?", (row,)
    ).fetchone()[0]
    connection.execute(where, (flipped(value, rng), row))


def flipped(value, rng):
    if isinstance(value, int):
        return value ^ (1 << rng.randrange(62))
    raw = bytearray(value.encode() if isinstance(value, str) else value or b"\0")
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return raw.decode("utf-8", "replace") if isinstance(value, str) else bytes(raw)


def other_value(connection, rng):
    """A value of another kind, or of another row."""
    table = rng.choice(list(TABLES))
    column, key = rng.choice(TABLES[table]), KEYS[table]
    row, other = _row(connection, rng, table), _row(connection, rng, table)
    there = connection.execute(f"SELECT {column} FROM {table} WHERE {key} = ?", (other,)).fetchone()
    value = rng.choice([there[0], 0, -1, 1.5, "", b"", "text", b"\xff" * 32, 2**62])
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, row))


def delete_row(connection, rng):
    table = rng.choice(["events", "runs", "batches"])
    connection.execute(
        f"DELETE FROM {table} WHERE {KEYS[table]} = ?", (_row(connection, rng, table),)
    )


def insert_row(connection, rng):
    """A copy of a row, in a place of its own; or a stranger."""
    table = rng.choice(["events", "runs", "batches"])
    columns, key = TABLES[table], KEYS[table]
    row = list(
        connection.execute(
            f"SELECT {', '.join(columns)} FROM {table} WHERE {key} = ?",
            (_row(connection, rng, table),),
        ).fetchone()
    )
    row[columns.index(key)] = rng.choice([0, -5, 10_000, rng.randrange(1, 200)])
    if table == "runs":
        row[1] = rng.choice(["stranger", f"{row[1]}x"])
        if rng.random() < 0.5:
            row[4:7] = [0, GENESIS, b""]
    elif table == "events" and rng.random() < 0.8:
        row[2] = rng.randrange(1, 60)
        row[1] = rng.choice([row[1], 77])
    marks = ", ".join("?" * len(columns))
    connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", row)


def swap_rows(connection, rng):
    """Two rows change places, in some or all of their columns."""
    table = rng.choice(["events", "runs", "batches"])
    key = KEYS[table]
    one, other = _row(connection, rng, table), _row(connection, rng, table)
    columns = [c for c in TABLES[table] if c != key and (table, c) != ("runs", "run")]
    chosen = rng.sample(columns, rng.randint(1, len(columns)))
    if table == "events":
        connection.execute("UPDATE events SET seq = seq + 1000000")  # out of each other's way
    values = [
        connection.execute(
            f"SELECT {', '.join(chosen)} FROM {table} WHERE {key} = ?", (row,)
        ).fetchone()
        for row in (one, other)
    ]
    sets = ", ".join(f"{column} = ?" for column in chosen)
    if table == "events" and "seq" in chosen and "run_id" not in chosen:
        connection.execute(f"UPDATE events SET seq = -1 WHERE {key} = ?", (other,))
    elif table == "events":
        connection.execute(f"UPDATE events SET seq = -1, run_id = -1 WHERE {key} = ?", (other,))
    connection.execute(f"UPDATE {table} SET {sets} WHERE {key} = ?", (*values[1], one))
    connection.execute(f"UPDATE {table} SET {sets} WHERE {key} = ?", (*values[0], other))
    if table == "events":
        connection.execute("UPDATE events SET seq = seq - 1000000 WHERE seq > 900000")


def cut_entries(connection, rng):
    """The last entries of a run, with its header put right."""
    run, seq = connection.execute(
        "SELECT id, seq FROM runs WHERE id = ?", (_row(connection, rng, "runs"),)
    ).fetchone()
    keep = rng.randrange(0, seq)
    connection.execute("DELETE FROM events WHERE run_id = ? AND seq > ?", (run, keep))
    _mend_heads(connection)
    if rng.random() < 0.7:
        _mend_batches(connection)


def cut_commits(connection, rng):
    """The last commits, with everything that is left put right."""
    last = connection.execute("SELECT max(number) FROM batches").fetchone()[0]
    keep = rng.randrange(0, last)
    position = connection.execute(
        "SELECT coalesce(max(last), 0) FROM batches WHERE number <= ?", (keep,)
    ).fetchone()[0]
    connection.execute("DELETE FROM batches WHERE number > ?", (keep,))
    connection.execute("DELETE FROM events WHERE position > ?", (position,))
    _mend_heads(connection)


def cut_run(connection, rng):
    """A whole run, with the chain over commits computed anew or not."""
    run = _row(connection, rng, "runs")
    connection.execute("DELETE FROM events WHERE run_id = ?", (run,))
    connection.execute("DELETE FROM runs WHERE id = ?", (run,))
    if rng.random() < 0.7:
        _mend_batches(connection, close_gaps=rng.random() < 0.7)


def compute_anew(connection, rng):
    """An entry changed so that it still makes sense, and every hash after it made to fit."""
    rows = connection.execute("SELECT position, at, body FROM events ORDER BY position").fetchall()
    position, at, body = rng.choice(rows)
    kind = rng.randrange(4)
    if kind == 0:
        connection.execute("UPDATE events SET at = ? WHERE position = ?", (at + 1, position))
    elif kind == 1:
        doc = msgspec.json.decode(expand(body))
        key = rng.choice(list(doc))
        doc[key] = flipped_json(doc[key], rng)
        connection.execute(
            "UPDATE events SET body = ? WHERE position = ?", (msgspec.json.encode(doc), position)
        )
    elif kind == 2:
        connection.execute("UPDATE runs SET run = run || 'x' WHERE id = 2")
    else:
        changed = body.replace(b"hello", b"jello").replace(b"done", b"gone")
        connection.execute("UPDATE events SET body = ? WHERE position = ?", (changed, position))
    mend(connection)


def flipped_json(value, rng):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + rng.choice(["x", " ", "é"])
    return ["other"] if isinstance(value, list) else {"other": 1}


def mend(connection):
    """All hashes, as whoever knows this program would compute them."""
    _mend_chains(connection)
    _mend_heads(connection)
    _mend_batches(connection)


def _mend_places(connection):
    """Where each run ends, and where the entry before each is."""
    for (ident,) in connection.execute("SELECT id FROM runs").fetchall():
        query = "SELECT position FROM events WHERE run_id = ? ORDER BY seq"
        places = [place for (place,) in connection.execute(query, (ident,))]
        for before, place in zip([None, *places], places, strict=False):
            back = 0 if before is None else place - before
            connection.execute("UPDATE events SET back = ? WHERE position = ?", (back, place))
        if places:
            connection.execute("UPDATE runs SET last = ? WHERE id = ?", (places[-1], ident))


def _mend_chains(connection):
    for ident, run in connection.execute("SELECT id, run FROM runs").fetchall():
        prev = GENESIS
        query = "SELECT position, seq, at, version, body FROM events WHERE run_id = ? ORDER BY seq"
        for position, seq, at, version, body in connection.execute(query, (ident,)).fetchall():
            prev = link(prev, run, seq, at, version, expand(body))
            connection.execute("UPDATE events SET hash = ? WHERE position = ?", (prev, position))


def _mend_heads(connection):
    for (ident,) in connection.execute("SELECT id FROM runs").fetchall():
        query = "SELECT seq, at, hash FROM events WHERE run_id = ? ORDER BY seq"
        rows = connection.execute(query, (ident,)).fetchall()
        if not rows:
            connection.execute("DELETE FROM runs WHERE id = ?", (ident,))
            continue
        seq, at, digest = rows[-1]
        connection.execute(
            "UPDATE runs SET seq = ?, updated = ?, created = ?, hash = ? WHERE id = ?",
            (seq, at, rows[0][1], digest, ident),
        )
    _mend_places(connection)
    _mend_beside(connection)


def _mend_beside(connection):
    """Summaries, the count of hosts, and what lists and totals show."""
    query = "SELECT at, version, body FROM events WHERE run_id = ? ORDER BY seq"
    for ident, run in connection.execute("SELECT id, run FROM runs").fetchall():
        state = State()
        try:
            rows = connection.execute(query, (ident,)).fetchall()
            events = [(at, decode(version, expand(body))) for at, version, body in rows]
            if run == HOST_STREAM:
                owner = [each.owner for _, each in events if isinstance(each, HostOpened)][-1]
                connection.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (owner,))
                continue
            for at, event in events:
                evolve(state, event, at)
        except Exception:
            continue  # what was changed no longer makes sense
        told = msgspec.json.encode(summary(state))
        connection.execute("UPDATE runs SET summary = ? WHERE id = ?", (told, ident))
    for name in ("told", "listing", "summed"):
        connection.execute(sql.queries("lists")[name])
    for name in ("forget_lists", "rebuild_lists", "forget_totals", "rebuild_totals"):
        connection.execute(sql.queries()[name])


def _mend_batches(connection, *, close_gaps=True):
    if close_gaps:
        rows = connection.execute("SELECT position FROM events ORDER BY position").fetchall()
        for place, (position,) in enumerate(rows, 1):
            connection.execute(
                "UPDATE events SET position = ? WHERE position = ?", (place, position)
            )
    sizes = [
        last - first + 1
        for first, last in connection.execute("SELECT first, last FROM batches ORDER BY number")
    ]
    hashes = [h for (h,) in connection.execute("SELECT hash FROM events ORDER BY position")]
    connection.execute("DELETE FROM batches")
    prev, first, number = GENESIS, 1, 0
    while first <= len(hashes):
        size = min(sizes[number] if number < len(sizes) else 1, len(hashes) - first + 1)
        number, last = number + 1, first + size - 1
        prev = link_batch(prev, first, last, hashes[first - 1 : last])
        row = (number, first, last, prev)
        connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", row)
        first = last + 1
    _mend_places(connection)


DATABASE = {
    flip_bit: 30,
    other_value: 15,
    delete_row: 8,
    insert_row: 12,
    swap_rows: 10,
    cut_entries: 6,
    cut_commits: 6,
    cut_run: 5,
    compute_anew: 18,
}


# --- the bundle ----------------------------------------------------------------------------


def flip_bits(data, rng):
    """One bit or a few, anywhere in the file."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut_file(data, rng):
    return data[: rng.randrange(len(data))]


def add_bytes(data, rng):
    place = rng.choice([0, len(data), rng.randrange(len(data))])
    return data[:place] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 9))) + data[place:]


def change_file(data, rng):
    """One file in it, with the zip file itself as it should be."""
    files = _unpacked(data)
    name = rng.choice(list(files))
    kind = rng.randrange(4)
    if kind == 0 and files[name]:
        files[name] = flip_bits(files[name], rng)
    elif kind == 1:
        del files[name]
    elif kind == 2:
        lines = files[name].splitlines(keepends=True)
        rng.shuffle(lines)
        files[name] = b"".join(lines)
    else:
        files[rng.choice(["artifacts/" + "0" * 64, "notes.txt", f"{name}.bak"])] = b"new"
    return pack(files)


def make_anew(data, rng):
    """From a changed log, with all hashes computed anew: signed by a stranger, or as before."""
    files = _unpacked(data)
    manifest = msgspec.json.decode(files[MANIFEST])
    parts = _parts(manifest, files)
    entries = list(parts.entries)
    place = rng.randrange(len(entries))
    kind = rng.randrange(3)
    if kind == 0 and len(entries) > 1:
        entries = entries[: max(1, place)]
    elif kind == 1:
        changed = entries[place].body.replace(b"hello", b"jello").replace(b"e", b"3", 1)
        entries[place] = entries[place]._replace(body=changed)
    else:
        entries[place] = entries[place]._replace(at=entries[place].at + 1)
    chained, prev = [], GENESIS
    for entry in entries:
        prev = link(prev, entry.run, entry.seq, entry.at, entry.version, entry.body)
        chained.append(Entry(*entry[:5], prev))
    positions = list(parts.positions)[: len(chained)]
    new = dict(zip(positions, (entry.hash for entry in chained), strict=True))
    commits, before = [], parts.commits[0].prev
    for commit in parts.commits:
        span = range(commit.first, commit.last + 1)
        hashes = tuple(new.get(p, h) for p, h in zip(span, commit.hashes, strict=True))
        digest = link_batch(before, commit.first, commit.last, hashes)
        commits.append(
            BundledCommit(commit.number, commit.first, commit.last, before, digest, hashes)
        )
        before = digest
    parts = parts._replace(
        entries=chained,
        positions=positions,
        commits=commits,
        anchor=b"" if rng.random() < 0.5 else parts.anchor,
    )
    stranger = PrivateKey.new()
    signers = [None, KeyedSigner(stranger, stranger.public.raw)]
    try:
        made = build(parts, rng.choice(signers))
    except Exception:
        return change_file(data, rng)  # what was changed no longer makes sense as a log
    if rng.random() < 0.4:
        files, other = _unpacked(made), _unpacked(data)
        files[SIGNATURE] = other[SIGNATURE]  # the honest signature, on what it is not for
        made = pack(files)
    return made


def sign_anew(data, rng):
    """Unchanged, but by another key, or by none."""
    files = _unpacked(data)
    parts = _parts(msgspec.json.decode(files[MANIFEST]), files)
    stranger = PrivateKey.new()
    return build(parts, rng.choice([None, KeyedSigner(stranger, stranger.public.raw)]))


BUNDLE = {flip_bits: 40, cut_file: 8, add_bytes: 8, change_file: 20, make_anew: 20, sign_anew: 4}


# --- all of it -----------------------------------------------------------------------------


def tamper(case, count, seed=0):
    """Half of each kind; gives what was tried by kind, and what was not found."""
    rng = random.Random(seed)
    tried, missed = Counter(), []
    assert not case.found_in_database(lambda connection: None)
    case.case.write_bytes(case.image)
    assert not case.problems(), case.problems()
    for bundle in case.bundles:
        assert not verify_bundle(bundle, case.key.public).problems
    while tried.total() < count:
        state = rng.getstate()
        if tried.total() % 2:
            how = rng.choices(list(BUNDLE), list(BUNDLE.values()))[0]
            data = rng.choice(case.bundles)
            changed = how(data, rng)
            if changed == data:
                continue
            found = bool(verify_bundle(changed, case.key.public).problems)
        else:
            how = rng.choices(list(DATABASE), list(DATABASE.values()))[0]
            outcome = case.found_in_database(lambda connection, how=how: how(connection, rng))
            if outcome is None:
                continue
            found = outcome
        tried[how.__name__] += 1
        if not found:
            missed.append((how.__name__, state))
    return tried, missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        tried, missed = tamper(Case(Path(name)), args.count, args.seed)
    lost = Counter(name for name, _ in missed)
    print(f"{'tampering':<14} {'tried':>6} {'found':>6}")
    for kind in [*DATABASE, *BUNDLE]:
        name = kind.__name__
        print(f"{name:<14} {tried[name]:>6} {tried[name] - lost[name]:>6}")
    share = 100 * (1 - len(missed) / tried.total())
    print(f"{'all':<14} {tried.total():>6} {tried.total() - len(missed):>6}  {share:.2f} % found")
    print(f"in {time.monotonic() - begin:.0f} s, seed {args.seed}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
