"""Real Claude Code and real Codex, in a sandbox, against a scripted endpoint behind the proxy."""

import asyncio
import json
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest

from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.claude import ClaudeCoder
from leadhand.fleet.agents.codex import CodexCoder
from leadhand.fleet.agents.provider_answers import ProviderAnswers
from leadhand.fleet.configuration import coder_of, doors_of
from leadhand.fleet.settings import fleet_of
from leadhand.settings import load_settings
from leadhand.testing.endpoint import Endpoint, Fail, Hang, Loop, Refuse, Say, Use
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.proxy import Proxy, Route, open_doors
from leadhand.workers.sandbox.sandbox import Sandbox, trial

pytestmark = pytest.mark.real
MODELS = {"claude": "claude-sonnet-4-5", "codex": "gpt-5.2-codex"}
KEYS = {"x-api-key": "the-real-key", "authorization": "Bearer the-real-key"}


@pytest.fixture(params=list(MODELS))
def who(request):
    """Each of them."""
    return request.param


@pytest.fixture
def best(bwrap):
    """The kind that a fleet would choose."""
    return "bubblewrap" if not trial("bubblewrap", bwrap, network=True) else "landlock"


@pytest.fixture
def fleet(coders, bwrap, tmp_path):
    """Opens an endpoint, a proxy before it, and a coder inside a sandbox that leads there."""

    @asynccontextmanager
    async def opened(who, kind, script, **more):
        path = "/v1" if who == "codex" else ""
        async with (
            Endpoint(script) as endpoint,
            Proxy(routes={"llm": Route(endpoint.url + path, KEYS)}) as proxy,
            Processes("test-coders") as processes,
        ):
            make = {"claude": ClaudeCoder, "codex": CodexCoder}[who]
            coder = make(
                program=getattr(coders, who),
                route="llm",
                processes=processes,
                homes=tmp_path / "homes",
                **more,
            )
            coder.answers = ProviderAnswers()
            proxy.answered = coder.answers.heard
            sandbox = Sandbox(kind=kind, bwrap=bwrap, proxy=proxy.socket)
            yield SimpleNamespace(coder=coder, sandbox=sandbox, endpoint=endpoint)

    return opened


def slot(tmp_path, name="slot"):
    """A clone, as agents get them."""
    command = ["git", "init", "-q", "-b", "main", tmp_path / name]
    subprocess.run(command, check=True, timeout=120)
    (tmp_path / name / "greeting.txt").write_text("hello\n")
    return SimpleNamespace(path=tmp_path / name)


def assignment(who, **more):
    given = {"run": "r", "task": "t", "brief": "Write world to greeting.txt.", "time_s": 60}
    return Assignment(**{**given, "silence_s": 30, "model": MODELS[who], **more})


def shell(who, command):
    """The model calls a shell."""
    if who == "claude":
        return Use("Bash", {"command": command, "description": "as told"})
    return Use("exec_command", {"cmd": command})


async def test_it_takes_a_task_edits_and_ends(fleet, who, kind, tmp_path):
    """With credentials that it never holds, as root or not, its home below /tmp or not."""
    place, heard = slot(tmp_path), []
    script = [shell(who, "echo world > greeting.txt; env; echo x > /etc/x"), Say("Done.")]
    async with fleet(who, kind, script) as it:
        done = await it.coder.work(assignment(who), place, it.sandbox, heard.append)
        first, last = it.endpoint.requests
    assert (done.ended, done.failure, done.said, done.exit_code) == ("result", "", "Done.", 0)
    assert (place.path / "greeting.txt").read_text() == "world\n"
    assert done.changed
    assert done.session
    assert done.turns == 2
    assert done.tokens_in > 100
    assert done.tokens_out > 0
    assert done.cost > 0 or who == "codex"
    assert any("Write world to greeting.txt." in message.text for message in first.messages)
    assert "the-real-key" in str([*first.headers.values()])
    assert "HOME=" in last.results[0].text
    assert "the-real-key" not in last.results[0].text
    assert {"session", "tool", "text", "result"} <= {event.kind for event in heard}
    assert "greeting.txt" in next(event.text for event in heard if event.kind == "tool")


async def test_done_that_changed_nothing_is_seen_as_such(fleet, who, best, tmp_path):
    """It says so, ends with 0, and the slot is as it was."""
    script = [Say("Done. The greeting is changed, all tests pass.")]
    async with fleet(who, best, script) as it:
        done = await it.coder.work(assignment(who), slot(tmp_path), it.sandbox, lambda _: None)
    assert (done.ended, done.exit_code, done.changed) == ("result", 0, False)


async def test_a_limit_is_known_by_what_the_door_saw(fleet, who, best, tmp_path):
    """With the time that the provider tells, whatever the program makes of it."""
    async with fleet(who, best, [Fail(429, retry_after_s=7200)] * 9) as it:
        done = await it.coder.work(assignment(who), slot(tmp_path), it.sandbox, lambda _: None)
    assert (done.ended, done.failure, done.provider) == ("rate_limited", "rate_limited", "refused")
    assert done.retry_after_s == pytest.approx(7200, abs=90)


async def test_codex_with_its_own_sandbox_is_judged_by_the_slot(coders, tmp_path):
    """Its home below a temporary folder: it may write nothing and say "Done" all the same."""
    place, who = slot(tmp_path), "codex"
    script = [shell(who, "echo world > greeting.txt"), Say("Done.")]
    async with Endpoint(script) as endpoint, Processes("test-coders") as processes:
        provider = {"name": '"x"', "base_url": f'"{endpoint.url}/v1"', "wire_api": '"responses"'}
        settings = {f"model_providers.x.{name}": value for name, value in provider.items()}
        coder = CodexCoder(
            program=coders.codex,
            settings={"model_provider": '"x"', **settings},
            processes=processes,
            homes=tmp_path / "homes",
        )
        sandbox = Sandbox(kind="none")
        done = await coder.work(assignment(who), place, sandbox, lambda _: None)
    assert (done.ended, done.said) == ("result", "Done.")
    assert done.changed == ((place.path / "greeting.txt").read_text() == "world\n")


@pytest.mark.parametrize(
    ("reply", "ended", "failure"),
    [
        (Fail(529), "failed", "transient"),
        (Fail(401), "failed", "denied"),
        (Fail.too_long(), "failed", "context_overflow"),
        (Fail.no_credit(), "limit", "budget"),
        (Refuse(), "refused", "policy"),
    ],
    ids=["overloaded", "denied", "too long", "no credit", "refused"],
)
async def test_what_its_provider_says_has_its_class(
    fleet, who, best, tmp_path, reply, ended, failure
):
    """In few requests: it does not storm a provider that is in trouble."""
    if who == "codex" and failure == "policy":
        # It keeps a refusal to itself; what is left is an answer without a word.
        ended, failure = "failed", "invalid_output"
    async with fleet(who, best, [Loop(reply)]) as it:
        done = await it.coder.work(assignment(who), slot(tmp_path), it.sandbox, lambda _: None)
        asked = len(it.endpoint.requests)
    assert (done.ended, done.failure) == (ended, failure), done
    assert not done.changed
    assert asked <= 9


async def test_a_rate_limit_is_left_to_the_ladder(fleet, best, tmp_path):
    """Claude Code would wait for it in a slot that others could use."""
    async with fleet("claude", best, [Loop(Fail(429, retry_after_s=45))]) as it:
        task = assignment("claude")
        done = await it.coder.work(task, slot(tmp_path), it.sandbox, lambda _: None)
    assert (done.ended, done.failure) == ("rate_limited", "rate_limited")
    assert done.retry_after_s == pytest.approx(45, rel=0.2)
    assert done.seconds < 30


async def test_a_rate_limit_of_codex(fleet, best, tmp_path):
    """It tries again by itself, a little; then it is told apart from a crash."""
    async with fleet("codex", best, [Loop(Fail(429, retry_after_s=0))]) as it:
        task = assignment("codex", silence_s=4)
        done = await it.coder.work(task, slot(tmp_path), it.sandbox, lambda _: None)
    assert (done.ended, done.failure) == ("rate_limited", "rate_limited")


async def test_a_hang_is_ended_by_the_silence_clock(fleet, who, best, tmp_path):
    """A provider that never answers; the agent is gone when `work` returns."""
    saved = []

    async def ending(why):
        saved.append(why)

    async with fleet(who, best, [Loop(Hang())], term_s=1.0) as it:
        task = assignment(who, silence_s=4)
        place = slot(tmp_path)
        done = await it.coder.work(task, place, it.sandbox, lambda _: None, ending=ending)
    assert (done.ended, done.failure) == ("silent", "timeout")
    assert len(saved) == 1


async def test_a_crash_is_no_result(fleet, who, best, tmp_path):
    """The agent dies in the middle of its work."""
    script = [shell(who, "echo half > greeting.txt; kill -9 $PPID"), Loop(Say("Done."))]
    async with fleet(who, best, script) as it:
        done = await it.coder.work(assignment(who), slot(tmp_path), it.sandbox, lambda _: None)
    assert (done.ended, done.failure) == ("crashed", "lost")
    assert done.changed
    assert done.session


async def test_it_goes_on_with_the_same_conversation_in_another_slot(fleet, who, best, tmp_path):
    """It remembers what was said; one that begins anew is told by a handoff."""
    async with fleet(who, best, [Say("The word is heron."), Say("heron"), Say("what?")]) as it:
        first = await it.coder.work(
            assignment(who), slot(tmp_path, "one"), it.sandbox, lambda _: None
        )
        again = assignment(
            who, attempt=2, session=first.session, brief="And the word?", handoff="unheard"
        )
        second = await it.coder.work(again, slot(tmp_path, "two"), it.sandbox, lambda _: None)
        anew = assignment(who, attempt=3, handoff="Before you: it failed at line 3.")
        third = await it.coder.work(anew, slot(tmp_path, "three"), it.sandbox, lambda _: None)
        told = [" ".join(m.text for m in request.messages) for request in it.endpoint.requests]
    assert (first.ended, second.ended, third.ended) == ("result", "result", "result")
    assert "heron" in told[1]
    assert "And the word?" in told[1]
    assert "unheard" not in told[1]
    assert "heron" not in told[2]
    assert "it failed at line 3" in told[2]
    assert third.session not in (first.session, second.session)


async def test_it_is_told_something_while_it_works(fleet, who, best, tmp_path):
    """The same conversation goes on with the message."""
    waiting = asyncio.Event()

    def answer(request):
        if any("Stop, and say why" in message.text for message in request.messages):
            return Say("Because you said so.")
        waiting.set()
        return Hang()

    async with fleet(who, best, answer, term_s=1.0) as it:
        task = assignment(who)
        working = asyncio.create_task(
            it.coder.work(task, slot(tmp_path), it.sandbox, lambda _: None)
        )
        await asyncio.wait_for(waiting.wait(), 30)
        assert it.coder.message(task, "Stop, and say why.")
        done = await asyncio.wait_for(working, 60)
    assert (done.ended, done.said) == ("result", "Because you said so.")


async def test_turns_are_a_limit(fleet, who, best, tmp_path):
    """A model that would go on for ever."""
    script = [Loop(shell(who, "true"))]
    async with fleet(who, best, script) as it:
        task = assignment(who, turns=3)
        done = await it.coder.work(task, slot(tmp_path), it.sandbox, lambda _: None)
    assert done.failure == "too_complex"
    assert done.turns <= 5


async def test_claude_code_runs_on_a_login_whose_token_it_never_holds(
    coders, bwrap, best, tmp_path
):
    """The provider demands the login's token; it is in the form of a login, and only there."""
    place, secret = slot(tmp_path), "token-of-a-login"
    (place.path / "CLAUDE.md").write_text("The colour of the shop is heliotrope.\n")
    hook = {"hooks": [{"type": "command", "command": "touch hooked"}]}
    (place.path / ".claude").mkdir()
    hooks = {"hooks": {"SessionStart": [hook], "PreToolUse": [hook]}}
    (place.path / ".claude" / "settings.json").write_text(json.dumps(hooks))

    def provider(request):
        if request.headers.get("authorization") != f"Bearer {secret}":
            return Fail(401)
        called = any(message.results for message in request.messages)
        return Say("Done.") if called else shell("claude", "env; true")

    async with Endpoint(provider) as endpoint:
        coder = f'kind = "claude"\nprogram = "{coders.claude}"\nurl = "{endpoint.url}"\n'
        text = f'[fleet]\nsandbox = "{best}"\n[coders.ann]\n{coder}token = "ANNS_TOKEN"\n'
        (tmp_path / "leadhand.toml").write_text(text)
        settings = load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)
        env = {"ANNS_TOKEN": secret}
        (table,) = fleet_of(settings).coders.values()
        async with AsyncExitStack() as stack:
            doors = await open_doors(stack, doors_of(settings, env))
            processes = await stack.enter_async_context(Processes("test-login"))
            sandbox = Sandbox(kind=best, bwrap=bwrap, doors=doors)
            agent = coder_of(settings, table, env, processes, tmp_path / "homes")
            given = assignment("claude")
            done = await agent.work(given, place, sandbox, lambda _event: None)
    assert (done.ended, done.failure, done.said) == ("result", "", "Done.")
    assert agent.login == "ANNS_TOKEN"
    assert all("oauth" in each.headers["anthropic-beta"] for each in endpoint.requests)
    assert not any("x-api-key" in each.headers for each in endpoint.requests)
    seen = str([message for each in endpoint.requests for message in each.messages])
    assert "HOME=" in seen
    assert secret not in seen
    assert "heliotrope" not in seen, "what CLAUDE.md says stands in the brief, if at all"
    assert not (place.path / "hooked").exists(), "settings of the repository stay out"
