"""The form in which bodies of events are stored: shorter, and read back to the exact bytes.

Nearly all of a body are names of fields, digests and times. Compact JSON holds no byte below 32, so
such a byte can stand for something longer:

    00              the rest is stored as it is (a body that itself holds bytes below 32)
    01 n            the text number n of `LONGER`
    02 32 bytes     64 hexadecimal digits
    03 16 bytes     32 hexadecimal digits
    04 7 bytes      a number of 16 decimal digits
    05 to 1e        a text of `SHORTER`
    1f              (at the beginning) the rest is a zlib stream: a body of more than 4,096 bytes

A body without such bytes is its own stored form. The hash chain covers the body, never this form: a
changed byte of it gives another body, or the same one.

The tables are part of the file format. A text may be added at the end of `LONGER`; none is ever
changed, moved or taken out.
"""

from __future__ import annotations

import re
import zlib
from binascii import hexlify, unhexlify
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONG = 4096
"""Bodies of more bytes are compressed as a whole: looking for each text in them takes long."""
LEVEL = 1
LENGTH_MAX = 1 << 30
"""No body is longer; a forged stream that is gives nothing."""

SHORTER: tuple[bytes, ...] = (
    b'{"type":"AttemptStarted","step":"',
    b'","attempt":1,"epoch":',
    b',"worker":"',
    b'","deadline":',
    b',"spec":"',
    b'{"type":"AttemptReported","step":"',
    b',"met":true,"data":',
    b',"cost":0.0}',
    b'","attempt":',
    b',"epoch":',
    b',"hash":"',
    b'","depends_on":["',
    b'"]},{"id":"',
    b'","worker":"',
    b'","reason":"',
    b'","actor":"',
    b'":{"type":"string"',
    b'":{"type":"integer"',
    b'","description":"',
    b'","version":"',
    b',"deadline":',
    b'},{"id":"',
    b'"}',
    b'","data":',
    b'":"',
    b'","',
)
"""Texts of one byte, from 5 on."""

LONGER: tuple[bytes, ...] = (
    b'{"type":"RunStarted","run":"',
    b'","goal":"',
    b'","policy":{},"planner":"document","catalog":[{"name":"',
    b'","offers":{"":{"parameters":{"type":"object","properties":{',
    b'},"required":[],"additionalProperties":false},"returns":{"type":"',
    (
        b'{"name":"human","kind":"human","version":"1","description":"A person: '
        b'the step stands in the inbox until it is answered.","offers":{"":{"risk":"low",'
        b'"idempotent":true,"cost":0.0}}},{"name":"caller","kind":"caller","version":"1",'
        b'"description":"The agent that drives the run: it asks for its steps and reports them.",'
        b'"offers":{"":{"timeout_s":86400.0}},"max_concurrency":1,"trusted":false}],'
        b'"plan":{"'
    ),
    b'"},"cost":0.0}}},',
    b'"cost":0.0}}},',
    b'plan_id":"',
    b'"},"actor":"',
    b'","linted":"',
    b'{"type":"RunHosted","owner":',
    b'{"type":"PlannerAsked","call":1,"epoch":1',
    b',"why":"start"}',
    b'{"type":"PlannerAnswered","call":1,"epoch":1,"decision":{"kind":"propose","revision":1}}',
    b'{"type":"RevisionProposed","number":1,"author":"document","base":""',
    b'","add":[{"id":"',
    b'"]}],"because":"plan ',
    b'","undeclared":true}',
    b'{"type":"RevisionApproved","number":1',
    (
        b'","reason":"its risk is not declared, which the policy counts as low, and runs without '
        b'approval"}'
    ),
    b'{"type":"RunEnded","status":"succeeded"}',
    b'{"type":"PlannerAsked","call":',
    b'{"type":"PlannerAnswered","call":',
    b'{"type":"PlannerFailed","call":',
    b'{"type":"DraftRefused","call":',
    b'{"type":"PlannerWaits","call":',
    b'{"type":"FinishAccepted","call":',
    b'{"type":"ProposalRefused","call":',
    b'{"type":"RevisionProposed","number":',
    b'{"type":"ReviewRequested","number":',
    b'{"type":"RevisionExamined","number":',
    b'{"type":"ApprovalGiven","number":',
    b'{"type":"RevisionApproved","number":',
    b'{"type":"RevisionRejected","number":',
    b'{"type":"ChangesRequested","number":',
    b'{"type":"QuestionAsked","id":"',
    b'{"type":"ChangeApproved","question":"',
    b'{"type":"QuestionAnswered","id":"',
    b'{"type":"LinkUsed","id":"',
    b'{"type":"StepsHeld","steps":[',
    b'{"type":"ReleaseGiven","question":"',
    b'{"type":"StepsReleased","steps":[',
    b'{"type":"ApprovalVoided","entry":',
    b'{"type":"WorkersChanged","specs":[',
    b'{"type":"RedoRequested","step":"',
    b'{"type":"RunReopened","step":"',
    b'{"type":"RunPaused","actor":"',
    b'{"type":"RunResumed","actor":"',
    b'{"type":"CancelRequested","actor":"',
    b'{"type":"RecoveryDecided","step":"',
    b'{"type":"StepSkipped","step":"',
    b'{"type":"StepCancelled","step":"',
    b'{"type":"StopDecided","status":"',
    b'{"type":"RunEnded","status":"',
    b'{"type":"ModelCalled","model":"',
    b'{"type":"AttemptSpawned","step":"',
    b'{"type":"LeaseExtended","step":"',
    b'{"type":"ReportIgnored","step":"',
    b'{"type":"AttemptLost","step":"',
    b'{"type":"ProbeStarted","step":"',
    b'{"type":"ProbeReported","step":"',
    b'{"type":"StepRefused","step":"',
    b'{"type":"GoalCheckStarted"}',
    b'{"type":"GoalChecked","met":',
    b'{"type":"HostOpened","owner":',
    b'{"type":"RunJoined","run":"',
    b'{"type":"StopAllRequested","actor":"',
    b'{"type":"StopAllLifted","actor":"',
    b'{"type":"CircuitOpened","worker":"',
    b'{"type":"CircuitClosed","worker":"',
    b'{"type":"ApprovalUsed","id":"',
    b'{"type":"PersonChanged","person":"',
    b'{"type":"TemporalOpened","address":"',
    b'{"type":"TemporalLeft","actor":"',
    b'{"type":"PlanSaved","name":"',
    b'{"type":"PlanRemoved","name":"',
    b'"offers":{"',
    b'","kind":"',
    b'","text":"',
    b'","choices":["',
    b'","choice":"',
    b'","question":"',
    b'","digest":"',
    b'","binding":"',
    b'","message":"',
    b'","effect":"',
    b'","strategy":"',
    b'","revision":',
    b'","author":"',
    b'","base":"',
    b'","policy":{',
    b'","planner":"',
    b'","catalog":[{"name":"',
    b'"],"step":"',
    b'"],"reason":"',
    b'"],"actor":"',
    b'","until":',
    b'","expires":',
    b'","origin":"',
    b'","status":"',
    b'","failure_action":"',
    b'","output":"',
    b'","output_ref":"sha256:',
    b'","data_ref":"sha256:',
    b'","model":"',
    b'","tier":"',
    b'","prompt":"',
    b'","asked":"',
    b'","answer":"',
    b'","exec":"',
    b'","caller":"',
    b'","people":',
    b'","envelope":{"',
    b'","process":{"',
    b',"failure":{"class":"',
    b',"failure_class":"',
    b',"findings":["',
    b',"recommendations":["',
    b',"artifacts":["',
    b',"undeclared":true',
    b',"decision":{"kind":"',
    b',"because":"',
    b',"author":"',
    b',"risk":"',
    b',"met":true',
    b',"met":false',
    b',"data":',
    b',"cost":',
    b',"input":',
    b',"output":',
    b',"cached":',
    b',"written":',
    b',"seconds":',
    b',"failure":"',
    b',"limit":',
    b',"start_time":',
    b',"boot_id":"',
    b',"pid":',
    b',"revision":',
    b',"attempt":',
    b',"reason":"',
    b',"actor":"',
    b',"why":"',
    b',"final":',
    b',"drop":',
    b',"until":',
    b',"labels":["',
    b',"environment":"',
    b',"params":{',
    b',"max_concurrency":',
    b',"replans":',
    b',"splits":',
    b',"idempotent":true',
    b',"effects":["',
    b',"required":["',
    b',"additionalProperties":false',
    b',"properties":{',
    b'"type":"object"',
    b'"type":"string"',
    b'"type":"integer"',
    b'"type":"number"',
    b'"type":"boolean"',
    b'"type":"array","items":',
    b',"default":',
    b'"parameters":{',
    b'"returns":{',
    b'"worker":"',
    b'"action":"',
    b'"context":["',
    b'"depends_on":["',
    b'"description":"',
    b'"command":',
    b'"path":"',
    b'"files":',
    b'"name":"',
    b'"stdout":"',
    b'"stderr":"',
    b'"exit_code":',
    b'"summary":"',
    b'"title":"',
    b'"url":"',
)
"""Texts of two bytes."""


# Nothing below is part of the format but `_text` and `_token_of_digits`: which texts are looked for
# in which event may change, as long as what is stored reads back to the same bytes.

_DIGITS = re.compile(rb"[0-9a-f]{64}|[0-9a-f]{32}|[0-9]{16}")
_TOKEN = re.compile(rb"\x01.|\x02.{32}|\x03.{16}|\x04.{7}|[\x05-\x1e]", re.DOTALL)
_BELOW_32 = bytes(range(32))
_TOKENS = {text: bytes([number]) for number, text in enumerate(SHORTER, 5)}
_TOKENS |= {text: bytes([1, number]) for number, text in enumerate(LONGER)}
_TEXTS = {token: text for text, token in _TOKENS.items()}
_HEAD = b'{"type":"'
_NAMES = {text[len(_HEAD) :].partition(b'"')[0] for text in _TOKENS if text.startswith(_HEAD)}


def _pairs(texts: Sequence[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((text, _TOKENS[text]) for text in texts)


_FREQUENT = {
    b"AttemptStarted": _pairs([*SHORTER[:5], b'"}']),
    b"AttemptReporte": _pairs([SHORTER[5], SHORTER[1], SHORTER[6], SHORTER[7]]),
}
"""The texts of the events that a step always has, in their usual form, by the first letters of
their names; others look for all."""


def shorten(body: bytes) -> bytes:
    """Return the form in which `body` is stored."""
    length = len(body)
    if length > LONG:
        return b"\x1f" + zlib.compress(body, LEVEL)
    if len(body.translate(None, _BELOW_32)) != length:
        return b"\0" + body
    frequent = _FREQUENT.get(body[9:23])
    if frequent is not None:
        for text, token in frequent:
            body = body.replace(text, token)
    else:
        name = body[9 : body.find(b'"', 9)]
        for text, token in _texts_of(name if name in _NAMES else b""):
            if text in body:
                body = body.replace(text, token)
    return _DIGITS.sub(_token_of_digits, body)


def expand(stored: bytes) -> bytes:
    """Return the body behind a stored form.

    What is no stored form, in a damaged database, gives bytes that do not match the entry's hash,
    or, if it is no bytes at all, itself.
    """
    if type(stored) is not bytes:
        return stored
    if stored[:1] in (b"\0", b"\x1f"):
        return stored[1:] if stored[:1] == b"\0" else _inflated(stored)
    return _TOKEN.sub(_text, stored)


def _inflated(stored: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(stored[1:], LENGTH_MAX)
    except zlib.error:
        return stored
    return body if stream.eof and not stream.unused_data else stored


@cache
def _texts_of(name: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return all texts that an event of a type may hold, the longest first."""
    own = _HEAD + name + b'"'
    texts = [text for text in _TOKENS if not text.startswith(_HEAD) or text.startswith(own)]
    return _pairs(sorted(texts, key=len, reverse=True))


def _token_of_digits(found: re.Match[bytes]) -> bytes:
    digits = found[0]
    if len(digits) == 16:
        return b"\x04" + int(digits).to_bytes(7, "big")
    return (b"\x02" if len(digits) == 64 else b"\x03") + unhexlify(digits)


def _text(found: re.Match[bytes]) -> bytes:
    token = found[0]
    text = _TEXTS.get(token)
    if text is not None:
        return text
    if token[0] == 4:
        return b"%016d" % int.from_bytes(token[1:], "big")
    return hexlify(token[1:]) if token[0] in (2, 3) else token
