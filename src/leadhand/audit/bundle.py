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
reader can rebuild and compare it. Everything but log/ and artifacts/ is derived from those, so a
reader of the same version rebuilds it too.

Everything here is pure.
"""

from __future__ import annotations

import io
import zipfile
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.audit.anchors import is_signed, read_line
from leadhand.audit.chain import ChainProblem, link_batch
from leadhand.audit.export_page import render
from leadhand.audit.signatures import Signatures
from leadhand.audit.story import tell
from leadhand.audit.verify import artifacts_of, check_log, unreadable
from leadhand.codec.events import decode, decode_all
from leadhand.core.calendar import iso
from leadhand.core.events import REVIEW_EVENTS
from leadhand.core.plan.revisions import revisions
from leadhand.core.review.approval import approvals_in_log, digests
from leadhand.core.views.ledger import describe, ledger_of
from leadhand.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.audit.anchors import Anchor, Signer
    from leadhand.audit.keys import PublicKey
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc


# Checking a bundle alone: its bytes, hashes and signature, and the log in it.


BYTES_MAX = 1 << 32


@dataclass
class BundleVerdict:
    """The result of checking a bundle, and what could not be checked."""

    run: str = ""
    entries: int = 0
    problems: list[ChainProblem] = field(default_factory=list)
    signed_by: str = ""
    """The name of the key that signed it, as far as verifiable."""
    known: bool = False
    """Whether that is the expected key."""
    anchor: Anchor | None = None
    signed_approvals: int = 0
    unshown: list[str] = field(default_factory=list)

    def wrong(self, rule: str, message: str, seq: int = 0) -> None:
        """Add a problem."""
        self.problems.append(ChainProblem(self.run, seq, rule, message))

    def document(self) -> Doc:
        """Return the verdict in the form of `verify --json`."""
        return {
            "valid": not self.problems,
            "run": self.run,
            "entries": self.entries,
            "violations": [each._asdict() for each in self.problems],
            "signed_by": self.signed_by or None,
            "signed_approvals": self.signed_approvals,
            "anchored": None
            if self.anchor is None
            else {"commit": self.anchor.number, "at": self.anchor.at},
            "cannot_be_shown": self.unshown,
        }


def verify_bundle(
    data: bytes, key: PublicKey | None = None, approvers: Mapping[str, str] | None = None
) -> BundleVerdict:
    """Return the verdict on a bundle.

    `key` is the key that must have signed it; `approvers` are the known approvers with their keys.
    """
    verdict = BundleVerdict()
    try:
        files = _unpacked(data)
        manifest = _check_manifest(verdict, data, files)
        _check_signature(verdict, files, key)
        parts = _parts(manifest, files)
        verdict.run, verdict.entries = parts.run, len(parts.entries)
        verdict.problems += check_log(parts.run, parts.entries)
        _check_approvals(verdict, parts, approvers)
        _check_commits(verdict, parts)
        _check_anchor(verdict, parts, key)
        _check_artifacts(verdict, parts)
        _check_derived(verdict, manifest, parts, files)
    except Exception as error:  # noqa: BLE001 - what was changed may be anything
        verdict.problems.append(unreadable(verdict.run, error))
    return verdict


def _unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _check_manifest(verdict: BundleVerdict, data: bytes, files: Mapping[str, bytes]) -> Doc:
    if pack(files) != data:
        verdict.wrong("bytes", "the file is not as it was written, though its parts can be read")
    if MANIFEST not in files:
        raise ValueError(f"it has no {MANIFEST}, so it is no bundle, or no longer one")
    manifest: Doc = msgspec.json.decode(files[MANIFEST], type=dict[str, Any])
    verdict.run = str(manifest["run"])
    if manifest["format"] != FORMAT:
        raise ValueError(f"it is of format {manifest['format']}, and this one knows {FORMAT}")
    listed = manifest["files"]
    for name in sorted({*listed, *files} - {MANIFEST, SIGNATURE}):
        if name not in files:
            verdict.wrong("file", f"{name} is missing")
        elif name not in listed:
            verdict.wrong("file", f"{name} does not belong to it")
        elif sha256(files[name]).hexdigest() != listed[name]["sha256"]:
            verdict.wrong("file", f"{name} is not what the manifest says")
    return manifest


def _check_signature(
    verdict: BundleVerdict, files: Mapping[str, bytes], key: PublicKey | None
) -> None:
    if SIGNATURE not in files:
        if key is not None:
            verdict.wrong("signature", f"it is not signed, and should be by {key.name}")
        verdict.unshown.append("who made it: it is not signed, and could have been made up whole")
        return
    doc = msgspec.json.decode(files[SIGNATURE], type=dict[str, str])
    if key is not None:
        checker = key
    else:
        from leadhand.audit.keys import PublicKey  # needs `leadhand[sign]`, as any signature does

        checker = PublicKey.of(b64decode(doc["public"], validate=True))
        verdict.unshown.append(
            f"that {checker.name} is whose you think: give its public key with --key"
        )
    good = checker.check(PURPOSE + files[MANIFEST], b64decode(doc["signature"], validate=True))
    same = (doc["key"], b64decode(doc["public"], validate=True)) == (checker.name, checker.raw)
    if not good or not same or doc["algorithm"] != "Ed25519":
        verdict.wrong("signature", f"it is not signed by {checker.name}")
        return
    verdict.signed_by, verdict.known = checker.name, key is not None


def _parts(manifest: Doc, files: Mapping[str, bytes]) -> Parts:
    run = manifest["run"]
    rows = [msgspec.json.decode(line) for line in files["log/entries.jsonl"].splitlines()]
    entries = [
        Entry(
            run,
            row["seq"],
            row["at"],
            row["version"],
            row["body"].encode(),
            bytes.fromhex(row["hash"]),
        )
        for row in rows
    ]
    artifacts = {
        f"sha256:{name.partition('/')[2]}": data
        for name, data in files.items()
        if name.startswith("artifacts/")
    }
    return Parts(
        run,
        manifest["database"],
        entries,
        [row["position"] for row in rows],
        [
            _read_commit(msgspec.json.decode(line))
            for line in files["log/commits.jsonl"].splitlines()
        ],
        files.get("log/anchors.jsonl", b"").removesuffix(b"\n"),
        artifacts,
        manifest["missing"],
    )


def _check_approvals(
    verdict: BundleVerdict, parts: Parts, approvers: Mapping[str, str] | None
) -> None:
    signatures = Signatures(approvers)
    log = (decode(entry.version, entry.body) for entry in parts.entries)
    verdict.problems += signatures.check(parts.run, log)
    verdict.signed_approvals = signatures.good
    verdict.unshown += signatures.unshown()


def _read_commit(row: Doc) -> BundledCommit:
    hashes = tuple(map(bytes.fromhex, row["entries"]))
    prev, digest = bytes.fromhex(row["prev"]), bytes.fromhex(row["hash"])
    return BundledCommit(row["number"], row["first"], row["last"], prev, digest, hashes)


def _check_commits(verdict: BundleVerdict, parts: Parts) -> None:
    """Check that each entry has its position, and that the commits chain."""
    hashes: dict[int, bytes] = {}
    before: BundledCommit | None = None
    for commit in parts.commits:
        if commit.last - commit.first + 1 != len(commit.hashes):
            verdict.wrong("batch", "does not hold as many entries as it says", commit.number)
        if link_batch(commit.prev, commit.first, commit.last, commit.hashes) != commit.hash:
            verdict.wrong("batch", "does not match its hash", commit.number)
        follows = before is None or (
            (commit.number, commit.first, commit.prev)
            == (before.number + 1, before.last + 1, before.hash)
        )
        if not follows:
            verdict.wrong("batch", "does not follow the commit before it", commit.number)
        hashes.update(zip(range(commit.first, commit.last + 1), commit.hashes, strict=False))
        before = commit
    for position, entry in zip(parts.positions, parts.entries, strict=True):
        if hashes.get(position) != entry.hash:
            verdict.wrong("batch", "is not where its commit has it", entry.seq)
    if list(parts.positions) != sorted(set(parts.positions)):
        verdict.wrong("order", "its entries are not in the order they were committed")


def _check_anchor(verdict: BundleVerdict, parts: Parts, key: PublicKey | None) -> None:
    if not parts.anchor:
        verdict.unshown.append("that its log was not cut or rewritten: no anchor covers it")
        return
    anchor = read_line(parts.anchor)
    if anchor is None or not parts.commits:
        verdict.wrong("anchor", "its anchor is not as it was written")
        return
    last = parts.commits[-1]
    held = (last.number, last.last, last.hash.hex(), parts.database)
    if (anchor.number, anchor.position, anchor.hash, anchor.database) != held:
        verdict.wrong("anchor", "its anchor is of another log", anchor.number)
        return
    if key is not None and anchor.signature and not is_signed(anchor, key.check):
        verdict.wrong("anchor", f"its anchor is not signed by {key.name}", anchor.number)
        return
    verdict.anchor = anchor


def _check_artifacts(verdict: BundleVerdict, parts: Parts) -> None:
    named = artifacts_of(decode(entry.version, entry.body) for entry in parts.entries)
    for name, seq in named.items():
        data = parts.artifacts.get(name)
        if data is None and name not in parts.missing:
            verdict.wrong("artifact", f"{name} is missing", seq)
        elif data is not None and f"sha256:{sha256(data).hexdigest()}" != name:
            verdict.wrong("artifact", f"{name} is not what its name says", seq)
    for name in _strangers(parts.artifacts, named):
        verdict.wrong("artifact", f"{name} belongs to no event")
    if parts.missing:
        several = ", ".join(parts.missing)
        verdict.unshown.append(f"what was in {several}: no longer there when it was exported")


def _strangers(held: Iterable[str], named: Iterable[str]) -> list[str]:
    return sorted(set(held) - set(named))


def _check_derived(
    verdict: BundleVerdict, manifest: Doc, parts: Parts, files: Mapping[str, bytes]
) -> None:
    """Check that the page, the plan and the ledgers follow from the log."""
    if verdict.problems:
        return
    if manifest["made_by"] != MADE_BY:
        verdict.unshown.append(
            f"that the page and the lists follow from the log: {manifest['made_by']} made them"
        )
        return
    made = members(parts)
    for name in sorted({*made, *files} - {MANIFEST, SIGNATURE}):
        if made.get(name) != files.get(name):
            verdict.wrong("file", f"{name} does not follow from the log")
    last = parts.entries[-1]
    if (manifest["entries"], manifest["head"]) != (len(parts.entries), last.hash.hex()):
        verdict.wrong("file", "the manifest does not follow from the log")


FORMAT = 1
PURPOSE = b"leadhand bundle\n"
"""Signed with each manifest: a signature for another purpose is not valid here."""
MADE_BY = "leadhand 0.1.0"
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
_WHEN = (1980, 1, 1, 0, 0, 0)


class BundledCommit(NamedTuple):
    """One link of the batch chain, with the hashes it covers."""

    number: int
    first: int
    last: int
    prev: bytes
    hash: bytes
    hashes: tuple[bytes, ...]


class Parts(NamedTuple):
    """The content a bundle is made from."""

    run: str
    database: str
    entries: Sequence[Entry]
    positions: Sequence[int]
    commits: Sequence[BundledCommit]
    anchor: bytes
    """The line of the anchor that covers the run, or empty."""
    artifacts: Mapping[str, bytes]
    missing: Sequence[str] = ()
    """Artifacts that no longer exist."""


class KeyedSigner(NamedTuple):
    """A signer and its public key, as included in the bundle."""

    signer: Signer
    public: bytes


def build(parts: Parts, key: KeyedSigner | None = None) -> bytes:
    """Return the bytes of the bundle."""
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
    """Return files as a zip file whose bytes depend only on them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _WHEN)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, files[name])
    return out.getvalue()


def manifest_of(parts: Parts, files: Mapping[str, bytes]) -> bytes:
    """Return the signed manifest: every other file with its hash, and the run."""
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
    """Return every file but the manifest and its signature."""
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
    """Return whether people, or the policy, allow or forbid something with this event."""
    return isinstance(event, REVIEW_EVENTS)


def _approvals(log: list[tuple[Entry, Event]]) -> Doc:
    """Return each approval, and every decision of people and the policy about the run.

    Times are ISO 8601 in UTC; `log/entries.jsonl` has the exact numbers.
    """
    given = approvals_in_log((entry.at, event) for entry, event in log)
    said = [_event(entry) for entry, event in log if _allows(event)]
    return {"approvals": msgspec.to_builtins(given), "events": said}


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


def _commit(commit: BundledCommit) -> Doc:
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

Without signature.json this file is not signed: its parts fit together, but a writer of the file
could have made all of it up. Then ask the sender for a signed export ([audit] key in leadhand.toml,
made by `leadhand audit-key`; get the public half by another way than this file), or for the anchor
file that is kept apart from the database, or compare the head of the log on index.html with the one
that `leadhand verify` prints beside the database.

Times are ISO 8601 in UTC, in approvals.json and ledger/ too; "at" in log/entries.jsonl is in
microseconds since 1970, as the hashes cover it.

log/entries.jsonl holds each entry of the run's log with its exact bytes. Each hash is SHA-256
over the hash before it (32 zero bytes before the first), the length of the run's name (4 bytes),
seq (8), at (8), version (4), the name, and the body; numbers are big-endian.
"""
