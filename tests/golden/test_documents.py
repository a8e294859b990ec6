"""The documents of recorded histories: the same bytes for `--json`, the HTTP API and Python.

Documents are public. If one of these fails, a field was renamed or moved, or changed its value.
Where that is meant, `python -m tests.golden.test_documents` writes the digests anew, and
CHANGELOG.md says so.
"""

import hashlib
import json
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from leadhand.app.comparison import compare_revisions
from leadhand.app.documents import Driver, inbox_page, run_rows, shown_document, timeline_document
from leadhand.app.metrics import figures
from leadhand.app.reader import Reader
from leadhand.app.step_graph import graph_document, step_document
from leadhand.core.review.view import review_document
from leadhand.core.state.model import Now
from leadhand.core.views.rows import rows_document
from leadhand.core.views.run import summary
from leadhand.engine.fold import fold
from leadhand.ports import Entry, RunHeader, RunQuery
from leadhand.stores.run_list import choose, summed
from tests.golden.test_replay import NAMES, events, read

DIGESTS = Path(__file__).with_name("documents.json")


class History(Reader):
    """A reader of one recorded history, up to an event."""

    def __init__(self, name, end):
        self.run = events(name)[0][2].run
        self.log = [
            Entry(self.run, n.seq, n.at, n.version, bytes(n.body), bytes.fromhex(n.hash))
            for n in read(name)[:end]
        ]
        self.store = self
        self._heads = {}
        self.told = msgspec.json.encode(summary(fold(self.log)))

    def header(self, run):
        if run != self.run:
            return None
        last = self.log[-1]
        return RunHeader(run, self.log[0].at, last.at, last.seq, last.hash, self.told)

    def find_runs(self, query):
        return choose(self.runs(), query)

    def totals(self, first, last, *, plans=False):
        return summed(self.runs(), first, last, plans=plans)

    def snapshot(self):
        return nullcontext()

    def runs(self):
        return [self.header(self.run)]

    def read(self, run, after=0):
        return self.log[after:] if run == self.run else []

    def archive_number(self, _run):
        return 0

    def get_artifact(self, _ref):
        return b"[1,2]"


def documents(reader):
    """Every document of a run as it stands."""
    run, nobody = reader.run, Driver()
    state = reader.state(run)
    yield "show", shown_document(reader, state, nobody)
    yield "graph", graph_document(state)
    yield "steps", [step_document(reader, state, step) for step in state.steps.values()]
    yield "rows", rows_document((entry.at, event) for entry, event in reader.events(run))
    yield "timeline", timeline_document(reader, state)
    yield "review", review_document(state, Now(state.last_at, state.last_at))
    yield "runs", run_rows(reader, nobody, RunQuery(sort="created"))[0]
    yield "inbox", inbox_page(reader, None, 100)
    yield "metrics", figures(reader).document()
    if state.revision:
        yield "diff", compare_revisions(reader, run, 0, None).document()


def digests(name):
    """One digest for each kind of document, over every commit of a history."""
    found = {}
    lines = read(name)
    for place, line in enumerate(lines, 1):
        if place == len(lines) or lines[place].batch != line.batch:
            for kind, doc in documents(History(name, place)):
                sha = found.setdefault(kind, hashlib.sha256())
                sha.update(msgspec.json.encode(doc))
    return {kind: sha.hexdigest()[:16] for kind, sha in found.items()}


@pytest.mark.parametrize("name", NAMES)
def test_documents_are_what_they_were(name):
    """Byte for byte: fields, their order, and values."""
    assert digests(name) == json.loads(DIGESTS.read_text())[name]


if __name__ == "__main__":
    told = {name: digests(name) for name in NAMES}
    DIGESTS.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
