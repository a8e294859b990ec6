"""Recorded models in an evaluation: recorded once, played by anybody, and honest where they end."""

import gzip
import json
import subprocess
import sys

import pytest

from tests.support.cli import Folder

pytestmark = pytest.mark.real
WORKERS = '''
from leadhand import worker

@worker(gives="raw", effects=())
async def fetch(city: str) -> str:
    """Fetch."""
    return city
'''
PLAN = {
    "kind": "propose",
    "because": "",
    "final": True,
    "steps": [{"id": "a", "worker": "fetch", "parameters": {"city": "${{ params.city }}"}}],
}
SETTINGS = """
[project]
workers = ["workers.py"]
[models.small]
provider = "chat"
model = "small"
url = "URL/v1"
price_in = 1
price_out = 1
"""
SUITE = """
[suite]
repeat = 2
about = "Recorded from a script."
tape = "tapes/{planning}-{goal}-{trial}.json.gz"
[[goal]]
name = "raw"
text = "Look"
want = ["raw"]
have = { city = "Oslo" }
check = ["python", "-c", "import json, sys; sys.exit(json.load(sys.stdin)['result'] != 'Oslo')"]
[factors.planning]
goal = { planner = "goal" }
model = { planner = "small", settings = { "planner.style" = "whole" } }
"""


@pytest.fixture
def endpoint(tmp_path):
    """The address of a model that proposes the plan, whatever it is asked."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"loop": {"data": PLAN}}]))
    command = [sys.executable, "-m", "leadhand.testing.endpoint", str(script), "--while-read"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as up:
        yield up.stdout.readline().strip()
        up.stdin.close()
        up.wait()


def test_recorded_once_and_played_without_the_model(tmp_path, endpoint):
    folder = Folder(tmp_path / "suite")
    folder.path.mkdir()
    folder.write("workers.py", WORKERS)
    folder.write("leadhand.toml", SETTINGS.replace("URL", endpoint))
    folder.write("suite.toml", SUITE)
    missing = folder.run("eval", ".", "--trust")
    assert missing.code == 2
    assert "there is no such tape, and 3 more" in missing.err
    made = folder.run("eval", ".", "--trust", "--record", "--json", timeout_s=600)
    assert made.code == 0, made
    assert [arm["success"]["value"] for arm in made.doc["arms"]] == [1.0, 1.0]
    tapes = sorted((folder.path / "tapes").iterdir())
    assert [tape.name for tape in tapes] == [
        f"{planner}-raw-{trial}.json.gz" for planner in ("goal", "model") for trial in (1, 2)
    ]
    held = [len(json.loads(gzip.decompress(tape.read_bytes()))["exchanges"]) for tape in tapes]
    assert held == [0, 0, 1, 1], "a run that asks no model has a tape too"
    folder.write("leadhand.toml", SETTINGS.replace("URL", "http://127.0.0.1:9"))
    played = folder.run("eval", ".", "--trust", "--output", "played", "--json", timeout_s=600)
    assert played.code == 0, played
    assert played.doc["about"] == "Recorded from a script."
    costs = [[arm["cost"] for arm in each.doc["arms"]] for each in (made, played)]
    assert costs[0] == costs[1]
    assert costs[0][1]["value"] > 0


def test_a_question_that_no_tape_holds_is_an_error_and_recorded_again(tmp_path, endpoint):
    """What a run does without its model says nothing of the model: it is no verdict."""
    folder = Folder(tmp_path / "suite")
    folder.path.mkdir()
    folder.write("workers.py", WORKERS)
    folder.write("leadhand.toml", SETTINGS.replace("URL", endpoint))
    folder.write("suite.toml", SUITE)
    only = ("--arm", "model", "--json")
    assert folder.run("eval", ".", "--trust", "--record", *only, timeout_s=600).code == 0
    tape = folder.path / "tapes" / "model-raw-2.json.gz"
    whole = json.loads(gzip.decompress(tape.read_bytes()))
    tape.write_bytes(gzip.compress(json.dumps({**whole, "exchanges": []}).encode()))
    again = ("eval", ".", "--trust", "--output", "again", *only)
    done = folder.run(*again, timeout_s=600)
    assert done.code == 1
    assert "raw, model, trial 2" in done.err
    assert "holds no answer to a question of this trial" in done.doc["errors"][0]
    first = tape.with_name("model-raw-1.json.gz").read_bytes()
    done = folder.run(*again, "--record", timeout_s=600)
    assert (done.code, done.doc["errors"]) == (0, [])
    assert json.loads(gzip.decompress(tape.read_bytes()))["exchanges"] == whole["exchanges"]
    assert tape.with_name("model-raw-1.json.gz").read_bytes() == first, "only the error is repeated"
    good = tape.read_bytes()
    folder.write("leadhand.toml", SETTINGS.replace("URL", "http://127.0.0.1:9"))
    done = folder.run("eval", ".", "--trust", "--record", "--output", "down", *only, timeout_s=600)
    assert done.code == 1
    assert "no model answered" in done.doc["errors"][0]
    assert tape.read_bytes() == good, "a tape is replaced by a whole one only"
    tape.write_bytes(good[:40])
    done = folder.run("eval", ".", "--trust", "--output", "cut", *only, timeout_s=600)
    assert done.code == 1
    assert "the tape cannot be read" in done.doc["errors"][0]
