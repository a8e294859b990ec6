"""The host's CI as the gate: what lands was green there, on a commit of exactly its tree."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.fleet.forge.port import Check
from leadhand.fleet.forge.webhooks import WebhookListener, WebhookReceiver
from leadhand.fleet.gate.ci_gate import CiRules, CombinedGate, judge
from leadhand.fleet.gate.gate import GateTrouble, GateVerdict
from leadhand.fleet.merge.conductor import Conductor, Ejected, Landed
from leadhand.fleet.merge.train import Rules
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.slots import Slots
from tests.fleet.forge.ci_world import LOG, NAMESPACE, CiWorld, Judged, change, ci_gate
from tests.fleet.forge.standin.server import Faults, VirtualTime

LIMIT_S = 180.0


@pytest.fixture
def world(tmp_path):
    made = CiWorld(tmp_path)
    with made.host.serving():
        yield made


async def until(condition, what="the condition"):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {LIMIT_S} s"
        await asyncio.sleep(0.02)


async def commit_with(hub, name, text="x\n"):
    """A commit on main with one more file."""
    return (await change(Slots(hub, hub.path.parent / "work", 1), name, {name: text})).head


async def gone(world):
    """Wait until no candidate branch is left."""
    await until(lambda: not world.candidates(), "candidate branches are deleted")


# --- what the checks of a commit say ---

STATUSES = ("queued", "running", "passed", "failed", "cancelled", "skipped", "neutral")


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(STATUSES), st.booleans()),
        unique_by=lambda row: row[0],
    ),
    st.floats(0, 100),
    st.lists(st.sampled_from(("neutral", "skipped"))),
)
def test_green_is_success_of_every_required_check(rows, age_s, accept):
    """Whatever is reported and however late: a check that is missing is never success."""
    rules = CiRules(checks=("a", "b"), time_s=50, start_s=20, accept=tuple(accept))
    checks = [Check(name=name, status=status, broken=broken) for name, status, broken in rows]
    said = judge(rules, checks, age_s)
    found = {each.name: each.status for each in checks}
    passed = all(found.get(name) in ("passed", *accept) for name in rules.checks)
    assert (said is not None and said.kind == "green") is passed
    if said is None:
        assert age_s <= rules.time_s
    if any(found.get(name) == "failed" for name in rules.checks) and not any(
        each.broken for each in checks
    ):
        assert said.kind == "red"


# --- through the merge queue ---


async def test_what_is_green_in_ci_lands_and_the_bound_holds(tmp_path, world):
    """Six changes and a bad one, two candidates: never three branches, no tree tested twice."""
    world.held = True
    async with ci_gate(tmp_path, world.host.url, candidates=2) as (hub, gate):
        slots, judged = Slots(hub, tmp_path / "slots", 1), Judged(gate)
        wanted = [await change(slots, f"t{n}", {f"f{n}": f"{n}\n"}) for n in range(6)]
        wanted.insert(2, await change(slots, "bad", {"bad": "x\n"}))
        # More tests at once than CI may have: the bound is the gate's own.
        async with Conductor(hub, judged, Rules(slots=4, batch_max=2)) as conductor:
            landing = [asyncio.create_task(conductor.land(each)) for each in wanted]
            await until(lambda: len(world.candidates()) == 2, "both candidates are used")
            while not all(each.done() for each in landing):
                world.finish()
                await asyncio.sleep(0.05)
            told = [each.result() for each in landing]
        await gone(world)
        tips = await hub.tips()
    assert [isinstance(each, Landed) for each in told].count(True) == 6
    assert told[2].kind == "red"
    assert LOG.strip() in told[2].log
    assert told[2].details["failed"] == "CI: ci (failed)"
    assert world.most == 2
    assert all(judged.verdicts[tip] for tip in tips[1:])
    assert len(world.ended) == len({*world.ended}), "a tree was tested twice"


async def test_red_goes_back_with_its_log_and_the_next_attempt_lands(tmp_path, world):
    async with ci_gate(tmp_path, world.host.url) as (hub, gate):
        slots = Slots(hub, tmp_path / "slots", 1)
        async with Conductor(hub, Judged(gate), Rules(slots=2)) as conductor:
            told = await conductor.land(await change(slots, "t", {"bad": "x\n"}))
            assert isinstance(told, Ejected)
            assert "AssertionError: a file is bad" in told.log
            again = await conductor.land(await change(slots, "t", {"good": "x\n"}, attempt=2))
    assert isinstance(again, Landed)
    assert len(world.tested) == 2, "the second test of the red change was answered by its tree"


@pytest.mark.parametrize(
    "conclusion", ["cancelled", "timed_out", "startup_failure", "stale", "action_required", "error"]
)
async def test_a_check_that_was_not_carried_out_is_no_verdict(tmp_path, world, conclusion):
    """Another candidate of the same tree is tested; no change is sent back."""
    world.script = lambda _names, times: "success" if times else conclusion
    async with ci_gate(tmp_path, world.host.url, tries=2) as (hub, gate):
        verdict = await gate.check(await commit_with(hub, "f"))
        await gone(world)
    assert verdict.ok
    assert len(world.tested) == 2
    assert len({*world.trees}) == 1


async def test_a_check_that_never_reports_is_never_success(tmp_path, world):
    """The tries are used up, then there is trouble; CI is left alone for a while."""
    world.script = lambda _names, _times: None
    world.host.set_check("f" * 40, "ci", "success")  # on another commit
    async with ci_gate(tmp_path, world.host.url, tries=2, start_s=0.2) as (hub, gate):
        sha = await commit_with(hub, "f")
        for _ in range(2):
            with pytest.raises(GateTrouble, match=r"no required check \(ci\) began"):
                await gate.check(sha)
        assert len(world.tested) == 2
        await gone(world)
    async with ci_gate(tmp_path, world.host.url, tries=1, start_s=0.2, on_trouble="fail") as (
        hub,
        gate,
    ):
        verdict = await gate.check(await commit_with(hub, "g"))
    assert not verdict.ok
    assert "CI gave no verdict after 1 candidate" in verdict.log


async def test_only_the_app_that_is_named_counts(tmp_path, world):
    """Another app, and a commit status, say success under the same name."""

    def forged(commit):
        world.host.set_check(commit, "ci", "success", app="somebody")
        world.host.set_status(commit, "ci", "success")
        world.tested.append(commit)

    world.begin = forged
    async with ci_gate(tmp_path, world.host.url, app="github-actions") as (hub, gate):
        waiting = asyncio.create_task(gate.check(await commit_with(hub, "f")))
        await until(lambda: world.tested, "a candidate is pushed")
        seen = len(world.host.log)
        await until(lambda: len(world.host.log) > seen + 6, "the host is looked at again")
        assert not waiting.done()
        world.host.set_check(world.tested[0], "ci", "failure", LOG, app="github-actions")
        verdict = await waiting
    assert not verdict.ok


@pytest.mark.parametrize("word", ["skipped", "neutral"])
async def test_a_skipped_check_has_not_passed_unless_it_is_accepted(tmp_path, world, word):
    world.script = lambda _names, _times: word
    async with ci_gate(tmp_path, world.host.url) as (hub, gate):
        verdict = await gate.check(sha := await commit_with(hub, "f"))
        assert not verdict.ok
        assert f"ci ({word})" in verdict.failed
    async with ci_gate(tmp_path, world.host.url, accept=(word,)) as (_hub, gate):
        assert (await gate.check(sha)).ok, "another rule, so another verdict"


async def test_a_verdict_that_is_there_is_reused(tmp_path, world):
    """By the next process, from the host's branch, and from a pull request of the same tree."""
    async with ci_gate(tmp_path, world.host.url) as (hub, gate):
        sha = await commit_with(hub, "f")
        assert (await gate.check(sha)).ok
    world.host.set_check(world.git.head("main"), "ci", "success")
    async with ci_gate(tmp_path, world.host.url) as (hub, gate):
        tree, parent = await hub.tree(sha), hub.main()
        other = await hub.commit(tree, (parent,), "The same content")
        assert (await gate.check(other)).reused
        assert (await gate.check(hub.main())).ok, "CI has tested the host's branch"
        assert len(world.tested) == 1
        head = await commit_with(hub, "g")
        world.host.set_check(head, "ci", "success")
        merged = await hub.commit(await hub.tree(head), (parent, head), "A pull request")
        assert (await gate.check(merged)).ok
        assert len(world.tested) == 1
        head = await commit_with(hub, "bad-one")
        world.host.set_check(head, "ci", "neutral")
        merged = await hub.commit(await hub.tree(head), (parent, head), "Another")
        assert not (await gate.check(merged)).ok
        assert len(world.tested) == 2


async def test_a_red_job_that_people_run_again_is_seen(tmp_path, world):
    world.script = lambda _names, _times: "failure"
    async with ci_gate(tmp_path, world.host.url) as (hub, gate):
        sha = await commit_with(hub, "f")
        assert not (await gate.check(sha)).ok
        world.host.set_check(world.tested[0], "ci", "success")
        verdict = await gate.check(sha)
    assert (verdict.ok, verdict.flaky, verdict.reused) == (True, ("ci",), True)
    assert len(world.tested) == 1


async def test_a_check_that_is_known_to_be_flaky_runs_once_more(tmp_path, world):
    world.script = lambda _names, times: "success" if times else "failure"
    async with ci_gate(tmp_path, world.host.url, flaky=("ci",)) as (hub, gate):
        verdict = await gate.check(await commit_with(hub, "f"))
        world.script = lambda _names, _times: "failure"
        assert not (await gate.check(await commit_with(hub, "g"))).ok
    assert (verdict.ok, verdict.flaky) == (True, ("ci",))
    assert len(world.tested) == 4


async def test_a_cancelled_test_leaves_no_branch(tmp_path, world):
    world.held = True
    async with ci_gate(tmp_path, world.host.url, candidates=1) as (hub, gate):
        first = asyncio.create_task(gate.check(await commit_with(hub, "f")))
        await until(lambda: world.tested, "a candidate is pushed")
        second = asyncio.create_task(gate.check(await commit_with(hub, "g")))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await until(lambda: len(world.tested) == 2, "its place is used by the next")
        world.finish()
        assert (await second).ok
        await gone(world)
    assert world.most == 1


class Local:
    """A quick local gate."""

    def __init__(self, verdict):
        self.verdict = verdict

    async def check(self, _sha, _acceptance=(), _waived=()):
        return self.verdict


async def test_ci_is_asked_only_about_what_passed_the_local_gate(tmp_path, world):
    async with ci_gate(tmp_path, world.host.url) as (hub, gate):
        sha = await commit_with(hub, "bad")
        for quick in (
            GateVerdict(ok=False, log="no", seconds=1.0, failed="make quick"),
            GateVerdict(ok=True, log="", seconds=1.0, altered=("test_a",)),
        ):
            assert await CombinedGate(Local(quick), gate).check(sha) == quick
        assert world.tested == []
        passed = GateVerdict(ok=True, log="quick\n", seconds=1.0, tests="7 tests")
        verdict = await CombinedGate(Local(passed), gate).check(sha)
        assert not verdict.ok
        assert verdict.log.startswith("quick\ncheck ci failed")
        verdict = await CombinedGate(Local(passed), gate).check(await commit_with(hub, "good"))
    assert (verdict.ok, verdict.tests) == (True, "7 tests, CI: ci")


# --- trouble ---


async def test_a_host_in_trouble_is_waited_out(tmp_path, world):
    """5xx, limits and lost answers at 20 %, git included: each tree once, nothing left."""
    clock = VirtualTime()
    world.host.now = clock.now
    async with ci_gate(tmp_path, world.host.url, clock=clock, candidates=2) as (hub, gate):
        slots, judged = Slots(hub, tmp_path / "slots", 1), Judged(gate)
        wanted = [await change(slots, f"t{n}", {f"f{n}": f"{n}\n"}) for n in range(4)]
        world.host.faults = Faults(rate=0.2, seed=5)
        async with Conductor(hub, judged, Rules(slots=2, strict=True), pause_s=0.05) as conductor:
            told = await asyncio.gather(*map(conductor.land, wanted))
        await gone(world)
    assert all(isinstance(each, Landed) for each in told)
    assert world.host.faults.drawn
    assert world.most <= 2
    assert len(world.ended) == len({*world.ended})


async def test_a_webhook_ends_the_wait(tmp_path, world):
    """Nothing is polled for an hour: the webhook of the check makes us look."""
    secret = "a secret of the webhooks"
    world.held = True
    async with ci_gate(tmp_path, world.host.url, look_s=3600.0) as (hub, gate):
        listener = WebhookListener(WebhookReceiver("github", lambda: secret, gate.bell.ring))
        port = await listener.start("127.0.0.1", 0)
        world.host.hooks.append((f"http://127.0.0.1:{port}/webhook", secret))
        try:
            waiting = asyncio.create_task(gate.check(await commit_with(hub, "f")))
            await until(lambda: world.tested, "a candidate is pushed")
            looks = f"/commits/{world.tested[0]}/status"
            await until(lambda: any(looks in each[1] for each in world.host.log), "a first look")
            world.finish()
            async with asyncio.timeout(LIMIT_S):
                assert (await waiting).ok
        finally:
            await listener.stop()


class Killer:
    """Kills the process at the nth push to the host, or at the nth look at checks."""

    def __init__(self, world, kind, count):
        self.world, self.kind, self.count, self.process = world, kind, count, None
        self.killed = False
        world.host.on_handled = self

    def __call__(self, request, response):
        self.world.handled(request, response)
        if request.method + request.path[-len(self.kind) :] == f"POST{self.kind}" or (
            request.path.endswith(self.kind) and request.method == "GET"
        ):
            self.count -= 1
        if self.count <= 0 and not self.killed and self.process is not None:
            self.killed = True
            self.process.send_signal(signal.SIGKILL)


POINTS = [
    ("git-receive-pack", 1),  # a candidate is pushed, and its process does not know
    ("git-receive-pack", 4),  # a later one, or the deletion of an earlier one
    ("check-runs", 1),  # the verdict was sent, and not read
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), POINTS)
async def test_a_killed_fleet_tests_no_tree_again_and_leaves_no_branch(tmp_path, kind, count):
    world = CiWorld(tmp_path)
    killer = Killer(world, kind, count)
    with world.host.serving():
        words = [sys.executable, "-m", "tests.fleet.forge.ci_world", str(tmp_path), world.host.url]
        codes = []
        for _ in range(2):
            with (tmp_path / "log").open("ab") as log:
                process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
            killer.process = process
            try:
                codes.append(await asyncio.to_thread(process.wait, LIMIT_S))
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
    assert codes == [-signal.SIGKILL, 0], (tmp_path / "log").read_text()[-3000:]
    assert world.candidates() == {}
    assert world.most <= 2
    assert len(world.ended) == len({*world.ended}), "a tree was tested twice"
    hub = await Hub.open(tmp_path / "fleet" / "hub", tmp_path / "user")
    try:
        tips = [await hub.tree(tip) for tip in (await hub.tips())[1:]]
        assert {*tips} <= {*world.trees}, "every tip of main was green in CI"
        landed = [each.trailers.get("Leadhand-Task") for each in await hub.commits()]
        assert sorted(landed) == ["t0", "t1", "t2"]
    finally:
        hub.close()


async def test_leftovers_are_removed_and_a_smaller_bound_holds(tmp_path, world):
    """Branches of an earlier process, with a larger bound, and one with no number."""
    main = world.git.head("main")
    for name in ("1", "7", "odd"):
        world.git.git("update-ref", f"refs/heads/{NAMESPACE}{name}", main)
    async with ci_gate(tmp_path, world.host.url, candidates=1) as (hub, gate):
        assert (await gate.check(await commit_with(hub, "f"))).ok
        await gone(world)
