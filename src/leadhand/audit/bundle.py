"""A run as one file that can be checked without its database.

    index.html              for people
    README.txt              how to check it
    plan/revision-N.json    the plan, as each revision left it
    approvals.json          who allowed what
    ledger/*.jsonl          what was meant, and what was done
    artifacts/…             results that are kept apart, by their hash
    log/entries.jsonl       the run's entries: exact bytes, hashes, positions
    log/commits.jsonl       the links of the batch chain that hold them, up to the anchor
    log/anchors.jsonl       the anchor that covers them, when there is one
    manifest.json           every file with its hash
    signature.json          over the manifest, when there is a key

It is a zip file without compression and without times: the same run gives the same bytes, and a
reader can put it together again and compare. Everything but log/ and artifacts/ follows from
those, so a reader of the same version makes it again too.

Everything here is pure.
"""

from __future__ import annotations

import io
import zipfile
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.audit.page import render
from leadhand.audit.story import tell
from leadhand.codec.events import decode_all
from leadhand.core.calendar import iso
from leadhand.core.events import REVIEW_EVENTS
from leadhand.core.plan.revisions import revisions
from leadhand.core.review.approval import allowed, digests
from leadhand.core.views.ledger import describe, ledger_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadhand.audit.anchors import Signer
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Entry

FORMAT = 1
PURPOSE = b"leadhand bundle\n"
"""Signed with each manifest: a signature given for something else is none for this."""
MADE_BY = "leadhand 0.1.0"
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
_WHEN = (1980, 1, 1, 0, 0, 0)


class Commit(NamedTuple):
    """One link of the batch chain, with what it is over."""

    number: int
    first: int
    last: int
    prev: bytes
    hash: bytes
    hashes: tuple[bytes, ...]


class Parts(NamedTuple):
    """What a bundle is made from."""

    run: str
    database: str
    entries: Sequence[Entry]
    positions: Sequence[int]
    commits: Sequence[Commit]
    anchor: bytes
    """The line of the anchor that covers the run, or nothing."""
    artifacts: Mapping[str, bytes]
    missing: Sequence[str] = ()
    """Artifacts that are no longer there."""


class KeyedSigner(NamedTuple):
    """A signer and its public half, as it stands in the bundle."""

    signer: Signer
    public: bytes


def build(parts: Parts, key: KeyedSigner | None = None) -> bytes:
    """The file."""
    files = members(parts)
    manifest = manifest_of(parts, files)
    files[MANIFEST] = manifest
    if key is not None:
        signature = key.signer.sign(PURPOSE + manifest)
        files[SIGNATURE] = _document(
            {
                "algorithm": "Ed25519",
                "key": key.signer.name,
                "public": b64encode(key.public).decode(),
                "signature": b64encode(signature).decode(),
            }
        )
    return pack(files)


def pack(files: Mapping[str, bytes]) -> bytes:
    """Files as a zip file whose bytes depend on nothing else."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _WHEN)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, files[name])
    return out.getvalue()


def manifest_of(parts: Parts, files: Mapping[str, bytes]) -> bytes:
    """What the signature is over: every other file, and what the run is."""
    last = parts.entries[-1]
    return _document(
        {
            "format": FORMAT,
            "made_by": MADE_BY,
            "run": parts.run,
            "database": parts.database,
            "entries": len(parts.entries),
            "head": last.hash.hex(),
            "missing": sorted(parts.missing),
            "files": {
                name: {"sha256": sha256(files[name]).hexdigest(), "bytes": len(files[name])}
                for name in sorted(files)
            },
        }
    )


def members(parts: Parts) -> dict[str, bytes]:
    """Every file but the manifest and its signature."""
    entries = parts.entries
    events = decode_all([(entry.version, entry.body) for entry in entries])
    log = list(zip(entries, events, strict=True))
    files = {
        "README.txt": _README.format(run=parts.run, made_by=MADE_BY).encode(),
        "index.html": render(tell(log, parts)).encode(),
        "approvals.json": _document(_approvals(log)),
        "log/entries.jsonl": _lines(map(_entry, parts.positions, entries)),
        "log/commits.jsonl": _lines(map(_commit, parts.commits)),
    }
    for ledger in ("intent", "execution"):
        rows = [
            {
                "seq": entry.seq,
                "at": iso(entry.at),
                "type": type(each).__name__,
                "text": describe(each),
            }
            for entry, each in log
            if ledger_of(each) == ledger
        ]
        files[f"ledger/{ledger}.jsonl"] = _lines(rows)
    names = digests((entry.at, event) for entry, event in log)
    for each in revisions(events):
        shown = names.get(each.hash, "")
        head = {"revision": each.number, "digest": shown, "hash": each.hash, "author": each.author}
        doc = {**head, "status": each.status, "plan": each.doc}
        files[f"plan/revision-{each.number}.json"] = _document(doc)
    if parts.anchor:
        files["log/anchors.jsonl"] = parts.anchor + b"\n"
    for name, data in parts.artifacts.items():
        files[f"artifacts/{name.partition(':')[2]}"] = data
    return files


def _allows(event: Event) -> bool:
    """Whether people, or the policy in their place, allow or forbid something in it."""
    return isinstance(event, REVIEW_EVENTS)


def _approvals(log: list[tuple[Entry, Event]]) -> Doc:
    """Who allowed what: each approval, and every word of people and the policy about the run.

    Times are ISO 8601 in UTC; `log/entries.jsonl` has the exact numbers.
    """
    given = allowed((entry.at, event) for entry, event in log)
    said = [_event(entry) for entry, event in log if _allows(event)]
    return {"approvals": [each.document() for each in given], "events": said}


_MOMENTS = ("at", "expires", "until")


def _event(entry: Entry) -> Doc:
    body: Doc = msgspec.json.decode(entry.body)
    doc: Doc = {"seq": entry.seq, "at": entry.at, **body}
    doc |= {key: iso(doc[key]) for key in _MOMENTS if isinstance(doc.get(key), int) and doc[key]}
    if isinstance(doc.get("instants"), dict):
        doc["instants"] = {step: iso(at) for step, at in doc["instants"].items()}
    return doc


def _entry(position: int, entry: Entry) -> Doc:
    return {
        "position": position,
        "seq": entry.seq,
        "at": entry.at,
        "version": entry.version,
        "body": entry.body.decode(),
        "hash": entry.hash.hex(),
    }


def _commit(commit: Commit) -> Doc:
    return {
        "number": commit.number,
        "first": commit.first,
        "last": commit.last,
        "prev": commit.prev.hex(),
        "hash": commit.hash.hex(),
        "entries": [each.hex() for each in commit.hashes],
    }


def _document(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _lines(rows: Any) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


_README = """\
This is the record of run {run}, made by Leadhand.

Open index.html in a browser: it says what was wanted, what was allowed and by whom, what was
done, what failed and what followed, and what it cost. It loads nothing from anywhere.

To check it, without the database it came from:

    leadhand verify THIS-FILE.zip
    leadhand verify THIS-FILE.zip --key audit.key.pub     (that this key signed it)

`leadhand` is a command of the Python package of that name (Python 3.11 or newer, Apache-2.0).
Install it with pip, from the package or the repository that the sender works with; this file was
made by {made_by}. Checking needs no account, no network and no database.

Without signature.json this file is not signed: its parts fit together, but whoever could write it
could have made it up whole. Then ask the sender for a signed export ([audit] key in leadhand.toml,
made by `leadhand audit-key`; get the public half by another way than this file), or for the anchor
file that is kept apart from the database, or compare the head of the log on index.html with the one
that `leadhand verify` prints beside the database.

Times are ISO 8601 in UTC, in approvals.json and ledger/ too; "at" in log/entries.jsonl is in
microseconds since 1970, as the hashes cover it.

log/entries.jsonl holds each entry of the run's log with its exact bytes. Each hash is SHA-256
over the hash before it (32 zero bytes before the first), the length of the run's name (4 bytes),
seq (8), at (8), version (4), the name, and the body; numbers are big-endian.
"""
