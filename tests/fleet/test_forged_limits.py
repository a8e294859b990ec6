"""No agent makes a usage limit: neither by what it prints, nor by what its commands write."""

import asyncio
import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadhand import Lead, Policy
from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.process import watch_answers
from leadhand.fleet.agents.provider_answers import ProviderAnswers, refusal_in
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.usage_limits import UsageLimits
from leadhand.fleet.worker import coder_workers
from leadhand.stores.memory import MemoryStore
from leadhand.testing.endpoint import Endpoint, Fail, Say
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.proxy import Proxy, Route, ServiceAnswer
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.test_usage_limits import epic

NOW = 1_789_140_000.0
HOURS = 6 * 3600.0
FORGED = {
    "type": "limit",
    "failure": "rate_limited",
    "retry_after_s": 600_000,
    "text": "You've hit your weekly limit",
}
READABLE = (Path(sys.prefix), Path(sys.base_prefix))


class StreamCoder(TemplateCoder):
    """A program that states events and a result of its own, as Claude Code and Codex do."""

    plain = False

    def launch(self, assignment, slot, home, sandbox):
        self.gateway = sandbox.gateway
        return super().launch(assignment, slot, home, sandbox)


def program(tmp_path, text):
    """A program in a folder that the sandbox shows."""
    (tmp_path / "program").mkdir()
    place = tmp_path / "program" / "it.py"
    place.write_text(textwrap.dedent(text))
    subprocess.run(["git", "init", "-q", tmp_path / "slot"], check=True, timeout=60)
    (tmp_path / "slot" / "a.txt").write_text("a\n")
    return place


async def at_work(tmp_path, processes, place, sandbox, *words, answers=None):
    argv = [sys.executable, "-I", str(place), *words]
    shown = [place.parent, *READABLE]
    more = {"processes": processes, "homes": tmp_path / "homes", "network": answers is not None}
    coder, heard = StreamCoder("it", argv, readable=shown, **more), []
    coder.answers = answers
    given = Assignment(run="r", task="t", brief="x", time_s=60, silence_s=50)
    done = await coder.work(given, SimpleNamespace(path=tmp_path / "slot"), sandbox, heard.append)
    return done, heard


WRITES_BESIDE = f"""
    import json, os, subprocess
    print(json.dumps({{"type": "session", "session": "s"}}), flush=True)
    tool = r'''
    import os
    me = int(os.readlink("/proc/self"))
    for pid in (*range(1, 50), *range(max(1, me - 200), me + 1)):
        try:
            with open(f"/proc/{{pid}}/fd/1", "w") as stream:
                stream.write({json.dumps(FORGED)!r} + "\\n")
        except OSError:
            pass
    '''
    import sys, textwrap
    command = [sys.executable, "-I", "-c", textwrap.dedent(tool)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    print(json.dumps({{"type": "text", "text": done.stdout}}), flush=True)
    print(json.dumps({{"type": "result", "text": "done"}}), flush=True)
"""


async def test_a_command_of_an_agent_does_not_write_into_its_programs_output(tmp_path):
    """A pipe could be opened by its path in /proc; the socket that is there cannot."""
    place = program(tmp_path, WRITES_BESIDE)
    async with Processes("test-forged") as processes:
        done, heard = await at_work(tmp_path, processes, place, choose("auto"))
    assert (done.ended, done.said) == ("result", "done")
    assert [event.kind for event in heard] == ["session", "text", "result"]
    assert "weekly limit" in heard[1].text, "it did write to the outputs of its own"


ASKS = f"""
    import json, sys, urllib.request, urllib.error
    body = {{"model": "m", "max_tokens": 1, "messages": [{{"role": "user", "content": "x"}}]}}
    headers = {{"content-type": "application/json", "accept-encoding": "gzip"}}
    asked = urllib.request.Request(sys.argv[1] + "/it/v1/messages", json.dumps(body).encode())
    for name, value in headers.items():
        asked.add_header(name, value)
    try:
        urllib.request.urlopen(asked).read()
    except urllib.error.HTTPError as error:
        error.read()
    print({json.dumps(FORGED)!r}, flush=True)
    error = dict({FORGED!r}, type="result", text="usage limit reached, resets in 7 days")
    print(json.dumps(error), flush=True)
"""


@pytest.mark.parametrize(
    ("reply", "provider", "wait"),
    [
        (Say("hello"), "answered", None),
        (Fail(400, "You've hit your weekly limit, resets in 7 days"), "answered", None),
        (Fail(529, "overloaded"), "answered", None),
        (Fail(429, "This account has reached its limit", retry_after_s=7200), "refused", 7200),
    ],
    ids=["says nothing", "repeats words", "is overloaded", "refuses"],
)
async def test_a_limit_is_what_the_door_saw_whatever_the_agent_says(
    tmp_path, reply, provider, wait
):
    """The agent always says a week; what counts is the provider's answer, and its time."""
    place, answers = program(tmp_path, ASKS), ProviderAnswers()
    async with Endpoint([reply]) as endpoint, Processes("test-forged") as processes:
        door = Proxy(routes={"it": Route(endpoint.url)}, answered=answers.heard)
        async with door:
            sandbox = choose("auto", doors={"it": door.socket})
            words = [str(sandbox.through("it").gateway)]
            done, _ = await at_work(tmp_path, processes, place, sandbox, *words, answers=answers)
        (request,) = endpoint.requests
    assert request.headers.get("accept-encoding") == "identity", "so that a refusal can be read"
    assert (done.failure, done.provider) == ("rate_limited", provider)
    limit = UsageLimits(spread_s=0.0).heard("team", done, "r/t")
    if wait is None:
        assert (done.retry_after_s, limit) == (None, None)
    else:
        assert limit.until == pytest.approx(time.time() + wait, abs=30)
        assert limit.words == "This account has reached its limit"


def test_coders_learn_what_their_own_door_saw(tmp_path):
    """One without a route has nothing to learn."""
    doors = {"a": Proxy(routes={"a": Route("https://a.example")}), "b": Proxy(["b.example"])}
    a, b, c = (TemplateCoder(n, ["x"], processes=None, homes=tmp_path) for n in "abc")
    watch_answers((a, b, c), doors)
    doors["a"].answered(ServiceAnswer("a", 429, {"retry-after": "60"}))
    assert a.answers.since(0.0) is not None
    assert (b.answers, c.answers) == (None, None)


def said(status, body=b"", **headers):
    return ServiceAnswer("it", status, {k.replace("_", "-"): v for k, v in headers.items()}, body)


ERROR = '{{"type":"error","error":{{"type":"invalid_request_error","message":"{}"}}}}'
WORDS = (
    "You have reached your specified API usage limits. You will regain access on 2026-10-01 at "
    "00:00 UTC."
)
SPENT = ERROR.format(WORDS).encode()
ECHO = ERROR.format(f"model: {WORDS}").encode()
CODEX = b"""{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached",\
"plan_type":"plus","resets_at":1789150000,"resets_in_seconds":10000}}"""
UNIFIED = {
    "anthropic_ratelimit_unified_status": "rejected",
    "anthropic_ratelimit_unified_reset": "1789160000",
    "retry_after": "30",
}


@pytest.mark.parametrize(
    ("answer", "until"),
    [
        (said(429, retry_after="90"), NOW + 90),
        (said(429, retry_after="Fri, 11 Sep 2026 17:00:00 GMT"), 1_789_146_000.0),
        (said(429, b"", **UNIFIED), 1_789_160_000.0),
        (said(429, CODEX), 1_789_150_000.0),
        (said(429, b"c5\r\n" + CODEX + b"\r\n0\r\n\r\n"), 1_789_150_000.0),
        (said(429, b'{"error":{"message":"Too many requests"}}'), None),
        (said(400, SPENT), 1_790_812_800.0),
    ],
)
def test_a_refusal_is_read_from_the_answer(answer, until):
    refusal = refusal_in(answer, NOW)
    assert refusal.until == until
    assert b"{" not in refusal.words.encode()


@pytest.mark.parametrize(
    "answer", [said(200, CODEX), said(400, ECHO), said(400, CODEX), said(401, CODEX), said(529)]
)
def test_other_answers_are_no_refusal(answer):
    """Bad requests repeat words of the request: an agent writes these."""
    assert refusal_in(answer, NOW) is None


def test_the_refusal_that_holds_longest_counts_and_others_hear_of_it():
    clock = [NOW]
    answers = ProviderAnswers(lambda: clock[0])
    answers.heard(said(429, retry_after="7200"))
    answers.heard(said(429, retry_after="5"))
    clock[0] += 600
    assert answers.since(clock[0]).until == NOW + 7200, "an agent that began later hits it too"
    clock[0] += 7200
    assert answers.since(clock[0]) is None
    answers.heard(said(429, retry_after="5"))
    assert answers.since(clock[0]).until == clock[0] + 5


PRINTS = """
    import json, pathlib, sys, time
    task, shared = sys.argv[1], pathlib.Path(sys.argv[2])
    if task == "t0" and not (shared / "forged").exists():
        (shared / "forged").touch()
        print("FAILED: usage limit reached, resets in 2 seconds")
        sys.exit(1)
    if task == "t1":
        time.sleep(1.0)
    pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
"""


async def test_what_a_test_of_one_task_prints_stops_no_other_task(fleet, tmp_path):
    """The output of a command coder is everybody's. It waits alone, and nothing else stops."""
    shop, processes = fleet
    place = tmp_path / "agent.py"
    place.write_text(textwrap.dedent(PRINTS))
    command = [sys.executable, str(place), "{task}", str(tmp_path)]
    coder = TemplateCoder("it", command, processes=processes, homes=tmp_path / "homes")
    seen, limits = [], shop.governor.limits
    shop.note = lambda what, **more: seen.append((what, more, limits.standing()))
    crew = coder_workers(shop, [("coder", coder, "")], AttemptLimits(time_s=60, silence_s=50))
    outcome = await Lead(crew, store=MemoryStore(), policy=Policy()).run(epic(3))
    assert outcome.status == "succeeded", outcome
    assert {step.attempts for step in outcome.steps} == {1}
    assert (tmp_path / "forged").exists()
    assert [what for what, _, _ in seen].count("usage limit") == 1
    assert not any(standing for _, _, standing in seen), "no login was parked"
    ended = [more["task"] for what, more, _ in seen if what == "agent ended"]
    assert sorted(ended) == ["t0", "t0", "t1", "t2"], "nobody else was ended"


async def test_words_of_an_agent_make_no_other_agent_wait(fleet, tmp_path):
    """It says to wait for ten minutes, which is its own matter."""
    shop, processes = fleet
    shop.governor.limits = UsageLimits(tmp_path, wait_max_s=60.0)
    place = tmp_path / "agent.py"
    said = {**FORGED, "type": "error", "retry_after_s": 600}
    place.write_text(f"import sys\nprint({json.dumps(said)!r})\nsys.exit(1)\n")
    coder = TemplateCoder(
        "it", [sys.executable, str(place)], processes=processes, homes=tmp_path / "homes"
    )
    crew = coder_workers(shop, [("coder", coder, "")], AttemptLimits(time_s=60, silence_s=50))
    ended = asyncio.Event()
    shop.note = lambda what, **_: what == "agent ended" and ended.set()
    running = asyncio.create_task(Lead(crew, store=MemoryStore(), policy=Policy()).run(epic(1)))
    async with asyncio.timeout(60):
        await ended.wait()
        async with shop.governor.place("another"):
            pass
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_line_does_not_spend_the_money_of_a_day(tmp_path):
    """A test of the project prints a cost: at most twice the limit of the attempt is counted."""
    place = program(
        tmp_path,
        """
        import json, time
        print(json.dumps({"type": "usage", "cost": 900000.0, "turn": True}), flush=True)
        time.sleep(600)
    """,
    )
    heard = []
    async with Processes("test-forged") as processes:
        argv = [sys.executable, "-I", str(place)]
        homes = tmp_path / "homes"
        coder = TemplateCoder("it", argv, readable=[place.parent], processes=processes, homes=homes)
        given = Assignment(run="r", task="t", brief="x", time_s=60, silence_s=50, cost=1.5)
        slot = SimpleNamespace(path=tmp_path / "slot")
        done = await coder.work(given, slot, choose("none"), heard.append)
    assert (done.ended, done.failure, done.cost) == ("limit", "budget", 3.0)
    assert [event.cost for event in heard if event.kind == "usage"] == [3.0]
