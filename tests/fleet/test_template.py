"""Coders by a command line: their clocks, their limits, their end; no agent is needed for that."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadhand.errors import UsageError
from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.repository.git import GitFailed
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import NoSandbox, Sandbox

pytestmark = pytest.mark.real
PYTHON = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
OPEN = Sandbox(kind="none")


@pytest.fixture
async def processes():
    async with Processes("test-fleet") as started:
        yield started


@pytest.fixture
def slot(tmp_path):
    (tmp_path / "slot").mkdir()
    return SimpleNamespace(path=tmp_path / "slot")


@pytest.fixture
def coder(processes, tmp_path):
    def made(*command, **more):
        more = {"grace_s": 0.3, "term_s": 0.3, **more}
        return TemplateCoder("test", command, processes=processes, homes=tmp_path / "homes", **more)

    return made


def shell(script):
    return "/bin/sh", "-c", script.replace("{", "{{").replace("}", "}}")


def assignment(**more):
    return Assignment(**{"run": "r", "task": "t", "brief": "Add a file.", **more})


async def work(coder, slot, *, sandbox=OPEN, ending=None, **more):
    heard = []
    done = await coder.work(assignment(**more), slot, sandbox, heard.append, ending=ending)
    return done, heard


# --- what it is told, and what it claims ---------------------------------------------------


async def test_places_are_filled_and_the_brief_is_a_file(coder, slot):
    """Each place is part of one argument, spaces and quotes included."""
    script = "import sys; print(open(sys.argv[1]).read()); print(sys.argv[2:])"
    command = [PYTHON, "-c", script, "{brief_file}", "-m={model}", "{slot}", "{task}.{attempt}"]
    model = "a 'b' $(touch x) {c}"
    done, _ = await work(coder(*command), slot, model=model, handoff="Known: it is blue.")
    assert "Add a file." in done.tail
    assert "Known: it is blue." in done.tail
    assert repr([f"-m={model}", str(slot.path), "t.1"]) in done.tail
    assert (done.ended, done.failure, done.exit_code, done.changed) == ("result", "", 0, False)


def test_a_place_that_nothing_fills_is_said_at_once(coder):
    """Not when the first task has been leased a slot."""
    for command in (["agent", "{breif}"], ["agent", "{0}"], ["agent", "{"], []):
        with pytest.raises(UsageError):
            coder(*command)


async def test_an_attempt_that_goes_on_has_the_same_session_and_home_and_no_handoff(coder, slot):
    """What it learned is there; what others must be told, it knows."""
    script = 'cat "$1"; echo "$2" >> "$HOME/seen"; cat "$HOME/seen" >&2'
    agent = coder("/bin/sh", "-c", script, "sh", "{brief_file}", "{session}")
    first, _ = await work(agent, slot, handoff="the story so far")
    again, _ = await work(agent, slot, attempt=2, session=first.session, handoff="the story so far")
    assert first.session
    assert again.session == first.session
    assert "the story so far" in first.tail
    assert "the story so far" not in again.tail
    assert again.tail.count(first.session) == 2
    agent.forget(assignment())
    fresh, _ = await work(agent, slot, attempt=3)
    assert fresh.tail.count(first.session) == 0


async def test_its_git_reads_no_configuration_of_the_machine(coder, slot):
    """In a sandbox it may not, and ends at once where it tries."""
    done, _ = await work(coder(*shell('echo "system: $GIT_CONFIG_NOSYSTEM"')), slot)
    assert "system: 1" in done.tail


async def test_events_in_our_own_form_are_heard_and_added_up(coder, slot):
    """And what it prints besides is text."""
    documents = [
        {"type": "usage", "turn": True, "tokens_in": 5, "tokens_out": 2, "cost": 0.25},
        {"type": "file", "path": "a.py"},
        {"type": "from_the_future", "x": 1},
        {"type": "usage", "turn": True, "tokens_in": 6, "tokens_out": 1, "cost": 0.75},
        {"type": "usage", "tokens_in": "many"},
        {"type": "result", "text": "it is done"},
    ]
    lines = "\n".join(map(json.dumps, documents))
    done, heard = await work(coder(*shell(f"echo hello; cat <<'E'\n{lines}\nE\n")), slot)
    assert (done.said, done.cost, done.turns) == ("it is done", 0.75, 2)
    assert (done.tokens_in, done.tokens_out) == (11, 3)
    kinds = ["text", "usage", "file", "other", "usage", "other", "result"]
    assert [event.kind for event in heard] == kinds


@pytest.mark.parametrize("cost", ["NaN", "1e999", "-1000", "1e308"])
async def test_what_is_no_sum_of_money_is_not_counted(coder, slot, cost):
    """It would be in every figure, lift the day's limit, or keep the log from being read."""
    said = f'{{"type": "usage", "cost": {cost}, "tokens_in": 1e999}}'
    once = f'{{"type": "usage", "cost": {cost}, "retry_after_s": {cost}}}'
    half = '{"type": "text", "text": "half \\ud800"}'
    lines = f'{{"type": "usage", "cost": 0.5}}\n{said}\n{once}\n{half}'
    done, heard = await work(coder(*shell(f"cat <<'E'\n{lines}\nE\n")), slot)
    assert done.cost == 0.5
    assert [event.cost for event in heard] == [0.5, None, None, None]
    assert done.said.encode() == b"half \\ud800"


async def test_of_a_flood_of_lines_the_last_are_heard(coder, slot):
    """And what is no flood is heard whole."""
    done, heard = await work(coder(*shell("yes | head -n 300000; echo; echo needs: a pause")), slot)
    assert done.said == "needs: a pause"
    assert len(heard) < 30_000
    _, heard = await work(coder(*shell("seq 200")), slot)
    assert [event.text for event in heard] == [str(number + 1) for number in range(200)]


async def test_a_claim_is_not_a_change(coder, slot):
    """It says that it is done, ends with 0, and left nothing."""
    done, _ = await work(coder(*shell("echo Done. All tests pass.")), slot)
    assert (done.ended, done.said, done.changed) == ("result", "Done. All tests pass.", False)
    done, _ = await work(coder(*shell("echo x > x")), slot)
    assert done.changed


async def test_a_line_of_twenty_megabytes_is_passed_over(coder, slot):
    """And what comes after it is heard."""
    script = "import sys; print('{{' + 'x' * (20 << 20)); print('after')"
    done, heard = await work(coder(PYTHON, "-c", script), slot)
    assert [event.text for event in heard] == ["after"]
    assert done.ended == "result"


async def test_a_listener_that_fails_does_not_deafen_the_clocks(coder, slot):
    """The view is ours, the agent goes on."""
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    agent = coder(*shell("echo one; echo two"))
    done = await agent.work(assignment(), slot, OPEN, lambda event: 1 / 0)
    assert (done.ended, done.said) == ("result", "two")
    assert len(failures) == 2


# --- how it ends ---------------------------------------------------------------------------


async def test_a_crash_is_lost_and_a_missing_program_unavailable(coder, slot):
    """Neither is a result, whatever was said before."""
    done, _ = await work(coder(*shell("echo Done.; exit 3")), slot)
    assert (done.ended, done.failure, done.exit_code) == ("crashed", "lost", 3)
    assert done.why == "it ended without a result (exit code 3): Done."
    done, _ = await work(coder(*shell("kill -SEGV $$")), slot)
    assert (done.ended, done.failure, done.exit_code) == ("crashed", "lost", None)
    done, _ = await work(coder("no-such-agent"), slot)
    assert (done.ended, done.failure) == ("failed", "unavailable")


@pytest.mark.parametrize(
    ("said", "ended", "failure"),
    [
        ('{"type": "error", "failure": "rate_limited", "retry_after_s": 9}', "rate_limited", ""),
        ('{"type": "error", "text": "Invalid API key"}', "failed", "denied"),
        ('{"type": "error", "text": "prompt is too long"}', "failed", "context_overflow"),
        ('{"type": "error", "failure": "policy"}', "refused", ""),
        ('{"type": "error", "failure": "no such class"}', "failed", "permanent"),
    ],
)
async def test_a_failure_it_tells_of_has_its_class(coder, slot, said, ended, failure):
    """And how long to wait, where that is said."""
    done, _ = await work(coder(*shell(f"echo '{said}'; exit 1")), slot)
    assert (done.ended, done.failure) == (ended, failure or json.loads(said)["failure"])
    assert done.retry_after_s == (9 if ended == "rate_limited" else None)


async def test_silence_is_ended_and_work_in_progress_saved_before(coder, slot):
    """The saving happens while the agent is still there."""
    saved = []

    async def ending(why):
        saved.append((why, alive_in(slot.path)))

    done, _ = await work(coder(*shell("sleep 100")), slot, silence_s=0.5, ending=ending)
    assert (done.ended, done.failure) == ("silent", "timeout")
    assert done.seconds < 5
    ((why, living),) = saved
    assert "neither a word nor a change" in why
    assert living
    assert not alive_in(slot.path)


async def test_work_is_saved_before_an_agent_is_ended_by_a_cancellation(coder, slot):
    """One that cleans up when it is told to end takes nothing with it."""
    saved, heard, up = [], [], asyncio.Event()

    async def ending(why):
        saved.append(sorted(path.name for path in slot.path.iterdir()))

    def hear(_event):
        heard.append(_event)
        if len(heard) > 2:  # the first words may come before it is known to have begun
            up.set()

    script = "trap 'rm half; exit' TERM; touch half; while :; do echo up; sleep 0.1; done"
    work = coder(*shell(script)).work
    working = asyncio.create_task(work(assignment(), slot, OPEN, hear, ending=ending))
    await up.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert saved == [["half"]]
    assert not alive_in(slot.path)


@pytest.mark.parametrize("error", [OSError("no space"), GitFailed(["commit-tree"], 128, "full")])
async def test_saving_that_fails_keeps_no_agent_alive(coder, slot, error):
    """It is the fleet's concern, and ends in its own way."""

    async def ending(why):
        raise error

    done, _ = await work(coder(*shell("sleep 100")), slot, silence_s=0.3, ending=ending)
    assert done.ended == "silent"
    assert not alive_in(slot.path)


async def test_who_changes_files_is_not_silent(coder, slot):
    """A build that prints nothing is at work."""
    script = "for i in 1 2 3 4 5 6 7 8; do echo $i > out; sleep 0.2; done"
    done, _ = await work(coder(*shell(script)), slot, silence_s=0.8)
    assert done.ended == "result"


async def test_who_talks_and_changes_nothing_is_stalled(coder, slot):
    """A thousand words are no work."""
    script = "while :; do echo thinking; sleep 0.05; done"
    done, _ = await work(coder(*shell(script)), slot, silence_s=30, stall_s=0.8)
    assert (done.ended, done.failure) == ("stalled", "too_complex")


async def test_time_turns_and_cost_are_limits(coder, slot):
    """Each with its own class: more time may help, more money is not ours to give."""
    talk = "while :; do echo '{}'; sleep 0.02; done"
    done, _ = await work(coder(*shell(talk.format("busy"))), slot, time_s=0.5)
    assert (done.ended, done.failure) == ("timeout", "timeout")
    turn = json.dumps({"type": "usage", "turn": True, "cost": 0.5})
    done, _ = await work(coder(*shell(talk.replace("{}", turn))), slot, turns=3)
    assert (done.ended, done.failure, done.turns >= 4) == ("limit", "too_complex", True)
    turn = json.dumps({"type": "usage", "turn": True, "cost": 2.5})
    done, _ = await work(coder(*shell(talk.replace("{}", turn))), slot, cost=2.0)
    assert (done.ended, done.failure, done.cost) == ("limit", "budget", 2.5)


async def test_a_result_stays_one_though_it_cost_more_than_allowed(coder, slot):
    """What was spent is spent; the work is there to be judged."""
    said = json.dumps({"type": "result", "text": "ok", "cost": 9.0})
    done, _ = await work(coder(*shell(f"echo '{said}'")), slot, cost=5.0)
    assert (done.ended, done.failure, done.cost) == ("result", "", 9.0)


async def test_tries_in_vain_are_no_sign_of_life_and_are_counted(coder, slot):
    """An agent that waits for its provider holds a slot for nothing."""
    retry = json.dumps({"type": "retry", "failure": "rate_limited", "retry_after_s": 20})
    script = f"for i in 1 2; do echo '{retry}'; sleep 0.3; done; sleep 100"
    done, _ = await work(coder(*shell(script)), slot, silence_s=1.0)
    assert (done.ended, done.failure, done.retry_after_s) == ("rate_limited", "rate_limited", 20)
    storm = f"while :; do echo '{retry}'; sleep 0.05; done"
    done, _ = await work(coder(*shell(storm)), slot, silence_s=30)
    assert (done.ended, done.seconds < 5) == ("rate_limited", True)
    long = retry.replace("20", "3600")
    done, _ = await work(coder(*shell(f"echo '{long}'; sleep 100")), slot)
    assert (done.ended, done.retry_after_s) == ("rate_limited", 3600)


async def test_after_its_result_it_may_stay_for_a_grace_and_no_longer(coder, slot):
    """It stays a result; what it started goes with it, sessions of their own included."""
    script = """trap '' TERM; echo '{"type": "result", "text": "ok"}'
    setsid sleep 101 & sleep 102 & while :; do sleep 0.1; done"""
    done, _ = await work(coder(*shell(script)), slot)
    assert (done.ended, done.said) == ("result", "ok")
    assert done.seconds < 8
    assert not alive_in(slot.path)


async def test_it_is_stopped_and_gone(coder, slot):
    """By request; and by the cancellation of whoever awaits it."""
    agent = coder(*shell("trap '' TERM; echo up; while :; do sleep 0.1; done"))
    assert not agent.stop(assignment())
    up = asyncio.Event()
    working = asyncio.create_task(agent.work(assignment(), slot, OPEN, lambda _: up.set()))
    await up.wait()
    assert agent.stop(assignment())
    assert (await working).ended == "stopped"
    assert not alive_in(slot.path)
    up.clear()
    working = asyncio.create_task(agent.work(assignment(), slot, OPEN, lambda _: up.set()))
    await up.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert not alive_in(slot.path)
    assert not agent.stop(assignment())


async def test_a_message_goes_on_with_the_same_conversation(coder, slot):
    """Told while it works; one that has no conversations cannot be told."""
    script = 'cat "$1"; echo; echo "session $2"; grep -q stop "$1" || sleep 100'
    agent = coder("/bin/sh", "-c", script, "sh", "{brief_file}", "{session}")
    heard, up = [], asyncio.Event()

    def hear(event):
        heard.append(event.text)
        if event.text.startswith(("session", "up")):
            up.set()

    working = asyncio.create_task(agent.work(assignment(), slot, OPEN, hear))
    await up.wait()
    assert agent.message(assignment(), "please stop now")
    done = await asyncio.wait_for(working, 20)
    assert (done.ended, done.failure) == ("result", "")
    assert heard == ["Add a file.", f"session {done.session}", "please stop now", heard[1]]
    mute = coder(*shell("echo up; sleep 100"))
    up.clear()
    working = asyncio.create_task(mute.work(assignment(), slot, OPEN, hear))
    await up.wait()
    assert not mute.message(assignment(), "hello")
    mute.stop(assignment())
    await working


async def test_links_that_an_agent_leaves_at_home_lead_us_nowhere(
    coder, slot, tmp_path, kind, bwrap
):
    """We write for the next attempt, and are not bound by the sandbox."""
    (tmp_path / "precious").write_text("precious")
    links = "for i in brief.md tmp .codex .claude given; do rm -rf $HOME/$i; "
    links += f"ln -s {tmp_path}/precious $HOME/$i; done"
    sandbox = Sandbox(kind=kind, bwrap=bwrap)
    agent = coder("/bin/sh", "-c", links + "; cat {brief_file}; echo x > {brief_file} || true")
    for attempt in (1, 2):
        done, _ = await work(agent, slot, sandbox=sandbox, attempt=attempt)
        assert (done.ended, done.said) == ("result", "Add a file.")
    assert (tmp_path / "precious").read_text() == "precious"


async def test_a_slot_that_is_a_link_is_not_worked_in(coder, slot, tmp_path):
    """It would lead the sandbox to wherever the last agent pointed it."""
    (tmp_path / "link").symlink_to(tmp_path)
    done, _ = await work(coder(*shell("true")), SimpleNamespace(path=tmp_path / "link"))
    assert (done.ended, done.failure) == ("failed", "unavailable")
    with pytest.raises(NoSandbox):
        OPEN.wrap(["true"], tmp_path / "none", home=tmp_path / "home")


# --- the host dies -------------------------------------------------------------------------

HOST = """
    import asyncio, sys
    from pathlib import Path
    from types import SimpleNamespace
    from leadhand.fleet.agents.base import Assignment
    from leadhand.fleet.agents.template import TemplateCoder
    from leadhand.workers.sandbox.sandbox import Sandbox
    from leadhand.workers.processes.runner import Processes

    async def main(kind, bwrap, folder):
        slot = SimpleNamespace(path=folder / "slot")
        script = "setsid sleep 300 & echo up; sleep 300"
        async with Processes("test-host") as processes:
            coder = TemplateCoder(
                "test", ["/bin/sh", "-c", script], processes=processes, homes=folder / "homes"
            )
            task = Assignment(run="r", task="t", brief="")
            sandbox = Sandbox(kind=kind, bwrap=bwrap)
            await coder.work(task, slot, sandbox, lambda event: print(event.text, flush=True))

    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
"""


def test_no_agent_outlives_a_host_that_is_killed(kind, bwrap, slot, tmp_path):
    """kill -9, with a daemon of the agent's own; nothing of it is left."""
    command = [sys.executable, "-c", textwrap.dedent(HOST), kind, bwrap, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout.readline() == "up\n"
        assert len(alive_in(slot.path)) >= 2
        os.kill(host.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while alive_in(slot.path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive_in(slot.path)


def alive_in(folder):
    """Processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                here = (entry / "cwd").readlink()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if here == folder and state != "Z":
                found.append(int(entry.name))
    return found
