"""Agents at the command line: declared in leadhand.toml, against an endpoint of its own."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.support.cli import Folder

pytest.importorskip("pydantic_ai")


@contextmanager
def endpoint(folder, *script):
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    log = folder / "asked.jsonl"
    command = [sys.executable, "-m", "leadhand.testing.endpoint", str(path), "--while-read"]
    pipe = subprocess.PIPE
    child = subprocess.Popen([*command, "--log", str(log)], stdin=pipe, stdout=pipe, text=True)
    try:
        yield child.stdout.readline().strip()
    finally:
        child.stdin.close()
        child.wait(10)
        child.stdout.close()


WORKERS = """
from leadhand import worker

@worker(effects=())
def weather(city: str) -> str:
    "What the weather is like in a city."
    return f"rain in {city}"
"""


def project(tmp_path, url, more=""):
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write(
        "leadhand.toml",
        f"[project]\nworkers = ['workers.py']\n[tiers]\nhand = 'chat:scripted@{url}'\n{more}",
    )
    return folder


AGENT = "[agents.clerk]\ntools = ['weather']\ninstructions = 'Be brief.'\n"


def test_a_goal_in_words_goes_to_the_only_agent_and_its_transcript_is_kept(tmp_path):
    script = [{"use": "weather", "arguments": {"city": "Oslo"}}, {"say": "It rains in Oslo."}]
    with endpoint(tmp_path, *script) as url:
        folder = project(tmp_path, url, AGENT)
        done = folder.run("run", "what is the weather in Oslo?", "--json")
        assert done.code == 0, str(done)
        assert done.doc["result"] == "It rains in Oslo."
        shown = folder.run("logs", done.doc["run"], "clerk")
    assert "weather" in shown.out, str(shown)
    assert "rain in Oslo" in shown.out
    assert "tokens in" in shown.out
    verified = folder.run("verify", done.doc["run"])
    assert verified.code == 0, str(verified)


def test_direct_mode_makes_an_agent_of_the_functions(tmp_path):
    script = [{"use": "weather", "arguments": {"city": "Oslo"}}, {"say": "Rain."}]
    with endpoint(tmp_path, *script) as url:
        folder = project(tmp_path, url)
        refused = folder.run("run", "what is the weather?")
        assert refused.code == 2, str(refused)
        done = folder.run("run", "what is the weather?", "--mode", "direct", "--json")
    assert done.code == 0, str(done)
    assert done.doc["result"] == "Rain."


def test_doctor_says_which_tiers_there_are_and_whether_their_keys_are_set(tmp_path):
    more = "strong = 'anthropic:claude-opus-4-5'\n"
    folder = project(tmp_path, "http://127.0.0.1:9", more + AGENT)
    told = folder.run("doctor", ANTHROPIC_API_KEY="")
    assert "hand: chat:scripted@http://127.0.0.1:9" in told.out, str(told)
    assert "ANTHROPIC_API_KEY is not set" in told.out
    assert "clerk" in told.out
    fine = folder.run("doctor", ANTHROPIC_API_KEY="some-key")
    assert "is not set" not in fine.out
    assert "some-key" not in fine.out
    assert fine.code == 0, str(fine)
