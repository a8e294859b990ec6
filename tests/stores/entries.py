"""Entries that chain, for tests of stores."""

from leadhand.audit.chain import GENESIS, link
from leadhand.codec.events import encode
from leadhand.core.events import RunResumed
from leadhand.ports import Entry

BODY = encode(RunResumed("somebody"))


def chained(
    run: str, count: int = 1, after: Entry | None = None, body: bytes = BODY
) -> list[Entry]:
    """The next `count` entries of a run."""
    seq, prev = (after.seq, after.hash) if after else (0, GENESIS)
    made = []
    for number in range(seq + 1, seq + count + 1):
        at = 1_790_000_000_000_000 + number
        prev = link(prev, run, number, at, 1, body)
        made.append(Entry(run, number, at, 1, body, prev))
    return made
