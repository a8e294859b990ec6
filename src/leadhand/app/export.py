"""Reading the content of a bundle from a database, at one moment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leadhand.app.anchors import signer_of
from leadhand.app.reader import Reader
from leadhand.audit.anchors import Anchoring, file_of, lines_in, read_line
from leadhand.audit.bundle import BundledCommit, KeyedSigner, Parts, build
from leadhand.audit.keys import PrivateKey
from leadhand.audit.verify import artifacts_of
from leadhand.codec.events import decode_all
from leadhand.core import events as ev
from leadhand.engine.fold import NoWorkers
from leadhand.engine.secrets import secrets_of
from leadhand.errors import Conflict, LeadhandError, NotAllowed, StoreCorrupt
from leadhand.stores.archive import commit_links
from leadhand.stores.location import home
from leadhand.stores.permissions import create_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from leadhand.ports import Entry
    from leadhand.stores.location import StoreLocation


def export_run(store: StoreLocation, run: str, anchoring: Anchoring) -> bytes:
    """Return a run as a bundle, signed if there is a key.

    Raise `StoreCorrupt` if its log does not verify.
    """
    signer = signer_of(anchoring)
    key = KeyedSigner(signer, signer.public.raw) if isinstance(signer, PrivateKey) else None
    lines = _lines(file_of(home(store), anchoring))
    reader = Reader(store)
    try:
        with reader.store.snapshot():
            parts = _parts(reader, reader.resolve(run), lines)
    finally:
        reader.store.close_reader()
    data = build(parts, key)
    _refuse_secrets(parts.entries, data)
    return data


def _lines(file: Path) -> Sequence[bytes]:
    try:
        return lines_in(file.read_bytes())
    except FileNotFoundError:
        return []


def _parts(reader: Reader, run: str, lines: Sequence[bytes]) -> Parts:
    entries = reader.verified(run)
    if reader.store.erased(run):
        raise Conflict(
            f"secrets were erased from the archived log of run {run}, so its hashes prove nothing "
            f"to others, and it is not exported. Fix: leadhand show {run}, or leadhand logs {run}"
        )
    positions = reader.store.places(run)
    if len(positions) != len(entries) or not entries:
        raise StoreCorrupt(f"the log of run {run} is incomplete. Fix: leadhand verify {run}")
    anchor = _covering(lines, positions[-1])
    events = decode_all([(entry.version, entry.body) for entry in entries])
    artifacts, missing = {}, []
    for name in artifacts_of(events):
        try:
            artifacts[name] = reader.store.get_artifact(name)
        except LeadhandError:
            missing.append(name)
    commits = _commits(reader, positions, anchor)
    return Parts(
        run, reader.store.database_id, entries, positions, commits, anchor, artifacts, missing
    )


def _covering(lines: Sequence[bytes], position: int) -> bytes:
    """Return the first anchor taken after the run's last entry."""
    for line in lines:
        anchor = read_line(line)
        if anchor is not None and anchor.position >= position:
            return line
    return b""


def _commits(reader: Reader, positions: Sequence[int], anchor: bytes) -> list[BundledCommit]:
    """Return the commits from the run's first entry to its last, or to its anchor."""
    known = read_line(anchor) if anchor else None
    last = known.position if known else positions[-1]
    return [
        BundledCommit(batch.number, batch.first, batch.last, prev, batch.hash, tuple(hashes))
        for prev, batch, hashes in commit_links(reader.store, positions[0], last)
    ]


def _refuse_secrets(entries: Sequence[Entry], data: bytes) -> None:
    """Raise `NotAllowed` if a bundle contains a secret that was logged before it was known."""
    started = decode_all([(entries[0].version, entries[0].body)])[0]
    if not isinstance(started, ev.RunStarted):
        return
    secrets = secrets_of(started, NoWorkers())
    if secrets is not None and (mark := secrets.finds(data)):
        raise NotAllowed(
            f"the log of this run holds the value of {mark}, so it is not exported. "
            "Fix: see docs/reference/audit.md, how to erase a secret"
        )


def _refuse_other(file: Path, data: bytes) -> None:
    """Raise `Conflict` if the file holds something else; repeating an export changes nothing."""
    try:
        if file.stat().st_size == len(data) and file.read_bytes() == data:
            return
    except OSError:
        if not os.path.lexists(file):
            return
    raise Conflict(
        f"{file}: exists already with other content. Fix: name another file, or give "
        "--force (in Python: remove it first)"
    )


def write_bundle(file: Path, data: bytes, *, force: bool = False) -> None:
    """Write an export atomically: a truncated file is no evidence.

    Raise `Conflict` if the file holds something else, unless `force`; `NotAllowed` if it cannot be
    written.
    """
    if not force:
        _refuse_other(file, data)
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        create_private(part)
        part.write_bytes(data)
        os.replace(part, file)  # noqa: PTH105 - the name as it was given
    except OSError as error:
        part.unlink(missing_ok=True)
        raise NotAllowed(f"{file}: cannot be written: {error.strerror}") from None
