"""What the page knows of a run after each event of its stream is what a reload would show."""

import json
import shutil
import subprocess

import msgspec
import pytest

from leadhand.app.step_graph import graph_document
from leadhand.codec.events import decode
from leadhand.core.calendar import iso
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.run import run_status, summary
from leadhand.ports import Entry
from leadhand.server.npm_assets import ready
from leadhand.server.stream import Board
from tests.golden.test_replay import NAMES, read
from tests.simulation.logs import simulated_logs
from tests.support.need import need
from tests.test_house import ROOT

SEEDS = range(40)


class OneLog:
    """Stands in for the reading threads: the log as far as it has been told."""

    def __init__(self, entries):
        self.entries = entries

    def verified(self, _run):
        return self.entries

    async def read(self, look):
        return look(self)


def documents(state):
    """What GET /runs, /runs/RUN and /runs/RUN/graph say, as far as they are compared."""
    head = {"status": run_status(state), "cost": round(state.spent, 6), "revision": state.revision}
    told = msgspec.structs.asdict(summary(state))
    row = {name: value for name, value in told.items() if value is not msgspec.UNSET}
    return msgspec.to_builtins({"graph": graph_document(state), "head": head, "row": row})


async def story(name, entries, joins):
    """A log told from an event on: what a reader gets, and the documents at each moment."""
    log = OneLog(list(entries[:joins]))
    board, state = Board(log), State()
    told, begin = [], None
    for entry in entries:
        event = decode(entry.version, entry.body)
        evolve(state, event, entry.at)
        if entry.seq <= joins:
            begin = documents(state)
            continue
        log.entries.append(entry)
        doc = {"run": entry.run, "seq": entry.seq, "at": iso(entry.at)}
        doc |= {
            "type": type(event).__name__,
            "patch": msgspec.to_builtins(await board.patch(entry, event)),
        }
        told.append({"event": doc, "after": documents(state)})
    return {"name": name, "run": entries[0].run, "begin": begin, "told": told}


def recorded(name):
    lines = read(name)
    run = json.loads(bytes(lines[0].body))["run"]
    return [Entry(run, x.seq, x.at, x.version, bytes(x.body), b"") for x in lines]


@pytest.fixture(scope="module")
def logs():
    """The recorded histories, and what happened in some simulated worlds full of faults."""
    return {name: recorded(name) for name in NAMES} | simulated_logs(SEEDS)


@pytest.mark.parametrize("joins", [1, 7])
async def test_streaming_ends_where_a_reload_does(logs, tmp_path, joins):
    """After every event, for readers from the start and for those who come in the middle."""
    node = shutil.which("node") or shutil.which("node", path=str(ROOT / ".venv-node" / "bin"))
    need(node and ready(), "node and the page's third-party files")
    stories = [await story(name, log, joins) for name, log in logs.items() if len(log) > joins]
    kinds = {each["event"]["type"] for one in stories for each in one["told"]}
    assert {"RunEnded", "QuestionAnswered", "StepsHeld", "RevisionApproved", "StepSkipped"} <= kinds
    path = tmp_path / "stories.json"
    path.write_text(json.dumps(stories))
    script = ROOT / "tests" / "web" / "live" / "replay.mjs"
    done = subprocess.run([node, script, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout.split()[0]) > 1000
