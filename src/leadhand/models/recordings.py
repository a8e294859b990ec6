"""Recordings of model traffic: recorded once with a provider, played back in tests.

    with playing("tests/tapes/competitors.json"): ...      # no model is asked
    LEADHAND_TAPE=tapes/x.json leadhand run ...            # the same for the command line
    LEADHAND_TAPE=record:tapes/x.json leadhand run ...     # ask, and keep what was said

A recording is JSON that a person can read and edit: each request with its answer or its failure. If
its name ends with .gz it is packed. A request is identified by a digest of its content (system
text, turns, tools, form), not by the model or its limits. Repeated, it gets the next answer
recorded for it, the last one for ever. A request that is not recorded fails, and names the nearest
recorded one. Keys and headers are never in it; what looks like a secret is left out.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.errors import UsageError
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import Listener, Model, ModelAnswer, ModelRequest, Usage
from leadhand.models.secret_patterns import scrubbed

if TYPE_CHECKING:
    from collections.abc import Iterator


VARIABLE = "LEADHAND_TAPE"
FORMAT = "leadhand-tape/1"
TAPE_BYTES_MAX = 256 << 20
Mode = Literal["play", "record"]


class Failed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure on tape."""

    failure: str
    message: str
    retry_after_s: float | None = None
    usage: Usage = Usage()
    text: str = ""
    """The model's answer, if it could not be used as it was."""


class RecordedCall(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One recorded request with its answer or failure."""

    key: str
    model: str
    request: ModelRequest
    answer: ModelAnswer | None = None
    failed: Failed | None = None


class _Document(msgspec.Struct, kw_only=True):
    format: str = FORMAT
    exchanges: list[RecordedCall] = []


class Tape:
    """A file of exchanges."""

    def __init__(self, path: str | Path, mode: Mode = "play") -> None:
        self.path, self.mode = Path(path), mode
        self.exchanges: list[RecordedCall] = [] if mode == "record" else _read(self.path)
        self._played: dict[str, int] = {}
        self.unanswered: list[str] = []
        """Why questions had no answer here, while playing."""

    async def through(
        self, model: Model, request: ModelRequest, heard: Listener | None
    ) -> ModelAnswer:
        """Return the recorded answer; with `record` ask the model and record its answer.

        Raise `ModelFailure` if the recording does not hold the request.
        """
        if self.mode == "play":
            return self._play(request, heard)
        try:
            answer = await model.ask(request, heard)
        except ModelFailure as failure:
            wait, said = failure.retry_after_s, failure.text
            kept = Failed(failure.failure_class, str(failure), wait, failure.usage, said)
            self._keep(model, request, failed=kept)
            raise
        self._keep(model, request, answer=answer)
        return answer

    def _play(self, request: ModelRequest, heard: Listener | None) -> ModelAnswer:
        key = key_of(request)
        found = [each for each in self.exchanges if each.key == key]
        if not found:
            self.unanswered.append(self._unknown(request))
            raise ModelFailure("permanent", f"{self.path.name}: {self.unanswered[-1]}")
        turn = self._played.get(key, 0)
        self._played[key] = turn + 1
        exchange = found[min(turn, len(found) - 1)]
        if exchange.failed is not None:
            kept = exchange.failed
            raise ModelFailure(
                kept.failure,
                kept.message,
                retry_after_s=kept.retry_after_s,
                usage=kept.usage,
                text=kept.text,
            )
        assert exchange.answer is not None, "a tape is checked when it is read"
        if heard is not None and exchange.answer.text:
            heard(exchange.answer.text)
        return exchange.answer

    def _unknown(self, request: ModelRequest) -> str:
        """Return how a request differs from the most similar one on the recording."""
        asked = _asked(request)
        differences = [
            (len(names), names)
            for each in self.exchanges
            if (names := [k for k, v in _asked(each.request).items() if asked[k] != v])
        ]
        nearest = min(differences, default=(0, []))[1]
        hint = f"; the nearest one differs in {', '.join(nearest)}" if nearest else ""
        return (
            f"the tape holds no answer to this question{hint}. "
            f"Fix: record it again with {VARIABLE}=record:{self.path}"
        )

    def _keep(
        self,
        model: Model,
        request: ModelRequest,
        answer: ModelAnswer | None = None,
        failed: Failed | None = None,
    ) -> None:
        raw = msgspec.to_builtins(
            RecordedCall(key="", model=model.name, request=request, answer=answer, failed=failed)
        )
        kept = msgspec.convert(scrubbed(raw), RecordedCall)
        self.exchanges.append(replace(kept, key=key_of(request)))
        self.write()

    def write(self) -> None:
        """Write the file; it appears whole or not at all."""
        text = msgspec.json.format(msgspec.json.encode(_Document(exchanges=self.exchanges)))
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(_packed(self.path, text + b"\n"))
        fresh.replace(self.path)


class Taped:
    """A model whose traffic goes through the recording of this task, if there is one."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.known = getattr(model, "known", None)
        self._model = model

    async def ask(self, request: ModelRequest, heard: Listener | None = None) -> ModelAnswer:
        """Answer from the recording, or from the model if there is no recording."""
        tape = current()
        if tape is None:
            return await self._model.ask(request, heard)
        return await tape.through(self._model, request, heard)


_current: ContextVar[Tape | None] = ContextVar("tape", default=None)
_of_environment: dict[str, Tape] = {}


def current() -> Tape | None:
    """Return the recording of this task, else the one that the environment names, else None."""
    tape = _current.get()
    named = os.environ.get(VARIABLE, "")
    if tape is not None or not named:
        return tape
    if named not in _of_environment:
        mode, _, path = named.partition(":") if named.startswith("record:") else ("play", "", named)
        _of_environment[named] = Tape(path, "record" if mode == "record" else "play")
    return _of_environment[named]


@contextmanager
def playing(path: str | Path) -> Iterator[Tape]:
    """Answer every request with the recorded session in `path`."""
    yield from _within(Tape(path))


@contextmanager
def recording(path: str | Path) -> Iterator[Tape]:
    """Record every request and answer to `path` while the block runs."""
    yield from _within(Tape(path, "record"))


def _within(tape: Tape) -> Iterator[Tape]:
    token = _current.set(tape)
    try:
        yield tape
    finally:
        _current.reset(token)


def key_of(request: ModelRequest) -> str:
    """Return the digest by which a request is found on a recording."""
    return digest(canonical(scrubbed(_asked(request))))


def _asked(request: ModelRequest) -> dict[str, Any]:
    whole = msgspec.to_builtins(request)
    for turn in whole["turns"]:
        turn.pop("stable", None)  # the end of a cache does not change the request
    return {name: whole.get(name) for name in ("system", "turns", "tools", "schema")}


def _packed(path: Path, text: bytes) -> bytes:
    """Return what is written to `path`: gzip, the same bytes each time, if its name says so."""
    import gzip

    return gzip.compress(text, mtime=0) if path.suffix == ".gz" else text


def _unpacked(path: Path) -> bytes:
    """Return the text of a tape. Raise `OSError` if it cannot be read."""
    if path.suffix != ".gz":
        return path.read_bytes()
    import gzip
    import zlib

    try:
        with gzip.open(path) as opened:
            text = opened.read(TAPE_BYTES_MAX + 1)
    except (EOFError, zlib.error) as error:
        raise OSError(str(error)) from None
    if len(text) > TAPE_BYTES_MAX:
        raise UsageError(f"{path}: unpacks to more than {TAPE_BYTES_MAX >> 20} MB")
    return text


def _read(path: Path) -> list[RecordedCall]:
    try:
        document = msgspec.json.decode(_unpacked(path), type=_Document)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{path}: the tape cannot be read ({why})") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}: is no tape ({error})") from None
    if document.format != FORMAT:
        raise UsageError(f"{path}: is a tape of another kind ({document.format})")
    for number, each in enumerate(document.exchanges):
        if (each.answer is None) == (each.failed is None):
            raise UsageError(f"{path}: exchanges[{number}] needs an answer or a failure")
        if each.failed is not None and each.failed.failure not in FAILURE_CLASSES:
            raise UsageError(f"{path}: exchanges[{number}]: no failure is {each.failed.failure!r}")
    return document.exchanges
