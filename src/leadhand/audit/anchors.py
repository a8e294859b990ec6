"""Anchors: the head of the log, recorded outside the reach of those who can change the log.

A hash chain shows that something inside it was changed. It cannot show that its end was cut off, or
that all of it was computed again; only a copy of its head that is kept elsewhere can. So now and
then the head of the batch chain (`chain.py`) becomes a line in a file:

    {"anchor":1,"database":…,"number":…,"position":…,"hash":…,"at":…,"prev":…}

`number` is the number of the commit, `position` that of its last entry; `prev` is the SHA-256 of
the line before, so lines cannot be removed, inserted or changed in the middle either. With a key, a
line also holds `key` and, last, `signature`: Ed25519 over everything before it. With the public key
a reader then needs to trust neither the database nor the file; a signature cannot show that later
lines are missing.

Everything here is pure.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from leadhand.audit.chain import Batch, ChainProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

VERSION = 1
FIRST = "0" * 64
"""`prev` of the first line."""
PURPOSE = b"leadhand anchor\n"
"""Signed with each line: a signature for another purpose is not valid here."""


class Anchoring(NamedTuple):
    """The settings of anchoring: file, interval and key."""

    file: Path | None = None
    """None: beside the database, with the suffix `.anchors`."""
    every_s: float = 600.0
    key: Path | None = None


class Anchor(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the file."""

    version: int = msgspec.field(name="anchor")
    database: str
    number: int
    position: int
    hash: str
    at: int
    prev: str
    key: str = ""
    signature: str = ""


class Signer(Protocol):
    """A signing key: see `keys.py`."""

    @property
    def name(self) -> str:
        """The name of its public key."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""


def file_of(store: Path, anchoring: Anchoring) -> Path:
    """Return the anchor file of a database."""
    return anchoring.file or Path(f"{store}.anchors")


def line_of(head: Batch, database: str, at: int, before: bytes, signer: Signer | None) -> bytes:
    """Return the line for a head, without its end; `before` is the last line, or empty."""
    prev = sha256(before).hexdigest() if before else FIRST
    anchor = Anchor(VERSION, database, head.number, head.last, head.hash.hex(), at, prev)
    if signer is not None:
        anchor = msgspec.structs.replace(anchor, key=signer.name)
        signature = b64encode(signer.sign(signed_part(anchor))).decode()
        anchor = msgspec.structs.replace(anchor, signature=signature)
    return msgspec.json.encode(anchor)


def signed_part(anchor: Anchor) -> bytes:
    """Return the bytes that the signature of a line covers."""
    return PURPOSE + msgspec.json.encode(msgspec.structs.replace(anchor, signature=""))


def read_line(line: bytes) -> Anchor | None:
    """Return the anchor in a line; None if it is not exactly as `line_of` writes it."""
    try:
        anchor = msgspec.json.decode(line, type=Anchor)
        bytes.fromhex(anchor.hash)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
    return anchor if anchor.version == VERSION and msgspec.json.encode(anchor) == line else None


def lines_in(data: bytes) -> list[bytes]:
    """Return the complete lines of a file; a last line torn by a power cut does not count."""
    return data.split(b"\n")[:-1]


class AnchorFindings(NamedTuple):
    """The result of checking the anchors of a database."""

    problems: list[ChainProblem]
    held: Anchor | None
    """The last anchor that agrees with the log."""
    signed: int = 0
    """The number of anchors signed by the known key."""


def verify_anchors(
    lines: Sequence[bytes],
    batches: Mapping[int, Batch],
    database: str,
    check: Callable[[bytes, bytes], bool] | None = None,
    archived: int = 0,
) -> AnchorFindings:
    """Compare the lines of an anchor file with a log.

    `check` returns whether a signature is valid. Commits up to number `archived` are in archives:
    of these, only what is in `batches` is compared.
    """
    problems: list[ChainProblem] = []
    anchors: list[Anchor] = []
    before, signed = b"", 0
    for place, line in enumerate(lines, 1):
        anchor = read_line(line)
        if anchor is None:
            problems.append(_wrong(0, f"line {place} of the anchors is not as it was written"))
            before = line
            continue
        if anchor.prev != (sha256(before).hexdigest() if before else FIRST):
            message = f"line {place} of the anchors does not follow the line before it"
            problems.append(_wrong(anchor.number, message))
        if anchors and anchor.number <= anchors[-1].number:
            problems.append(_wrong(anchor.number, f"line {place} of the anchors goes back"))
        if check is not None:
            if is_signed(anchor, check):
                signed += 1
            elif signed or anchor.signature:
                message = f"line {place} of the anchors is not signed by this key"
                problems.append(_wrong(anchor.number, message))
        anchors.append(anchor)
        before = line
    if check is not None and not signed:
        problems.append(_wrong(0, "no anchor is signed by this key"))
    compared, held = _compare(anchors, batches, database, archived)
    return AnchorFindings(problems + compared, held, signed)


def is_signed(anchor: Anchor, check: Callable[[bytes, bytes], bool]) -> bool:
    """Return whether a line's signature is valid."""
    try:
        signature = b64decode(anchor.signature, validate=True)
    except (NotBase64, ValueError):
        return False
    return bool(signature) and check(signed_part(anchor), signature)


def _compare(
    anchors: Sequence[Anchor], batches: Mapping[int, Batch], database: str, archived: int
) -> tuple[list[ChainProblem], Anchor | None]:
    """Return the first anchor that the log contradicts, and the last that agrees.

    One contradiction is enough: later anchors rest on it.
    """
    held: Anchor | None = None
    for anchor in anchors:
        if anchor.database != database:
            return [_wrong(anchor.number, "the anchors are of another database")], held
        batch = batches.get(anchor.number)
        if batch is None and anchor.number <= archived:
            continue
        if batch is not None and (batch.last, batch.hash) == (
            anchor.position,
            bytes.fromhex(anchor.hash),
        ):
            held = anchor
            continue
        return [_contradicted(anchor, held, batches)], held
    return [], held


def _contradicted(
    anchor: Anchor, held: Anchor | None, batches: Mapping[int, Batch]
) -> ChainProblem:
    number, position = (held.number, held.position) if held else (0, 0)
    head = max(batches, default=0)
    if anchor.number > head:
        gone = f"{head + 1} to {anchor.number}" if head + 1 < anchor.number else f"{anchor.number}"
        last = batches[head].last if head else 0
        return _wrong(
            anchor.number,
            f"commit {gone} is gone: the log ended at entry {anchor.position} when it was "
            f"anchored, and ends at {last} now",
        )
    return _wrong(
        anchor.number,
        f"the log was written anew: something from entry {position + 1} to {anchor.position} "
        f"(commits {number + 1} to {anchor.number}) is not what was there when it was anchored",
    )


def _wrong(number: int, message: str) -> ChainProblem:
    return ChainProblem("", number, "anchor", message)
