"""Usage limits of logins: all tasks of a login wait, none loses a try, and the work goes on."""

import asyncio
import json
import sys
import textwrap
import time
from types import SimpleNamespace

import msgspec
import pytest

from leadhand import Lead, Policy
from leadhand.app.reader import Reader
from leadhand.core.report import Failure, Report
from leadhand.errors import Conflict
from leadhand.fleet.agents.base import CoderResult
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.commands.status import lines
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.epics import parse_epic, plan_of
from leadhand.fleet.governor import Governor
from leadhand.fleet.station import Station
from leadhand.fleet.status import journal
from leadhand.fleet.status.evidence import Evidence
from leadhand.fleet.status.task_detail import attempts_of
from leadhand.fleet.usage_limits import NAME, UNTOLD_S, UsageLimit, UsageLimits
from leadhand.fleet.worker import CoderWorker, coder_workers
from leadhand.stores.memory import MemoryStore
from tests.fleet.standing import epic as modules
from tests.fleet.standing import standing


def limited(wait, why="You've hit your limit", provider="refused"):
    told = {"failure": "rate_limited", "why": why, "retry_after_s": wait, "provider": provider}
    return CoderResult(ended="rate_limited", **told)


@pytest.fixture
def clock():
    return [1_000_000.0]


@pytest.fixture
def limits(tmp_path, clock):
    return UsageLimits(tmp_path, wait_max_s=86_400, spread_s=0.0, clock=lambda: clock[0])


# --- what is kept


def test_a_limit_holds_until_its_time_and_after_a_restart(limits, tmp_path, clock):
    limit = limits.heard("team", limited(3600))
    assert limit.until == clock[0] + 3600
    assert "team" in limit.why
    assert "UTC" in limit.why
    again = UsageLimits(tmp_path, clock=lambda: clock[0])
    assert again.limit_of("team") == limit
    assert again.limit_of("other") is None
    clock[0] += 3600
    assert limits.limit_of("team") is None
    assert again.standing() == []


def test_only_a_limit_worth_waiting_for_is_waited_out(limits):
    assert limits.heard("team", limited(5)) is None, "left to the retries"
    assert limits.heard("team", limited(2 * 86_400)) is None, "longer than the settings allow"
    assert limits.heard("team", CoderResult(ended="failed", failure="transient")) is None
    assert limits.heard("team", limited(None, "429 Too Many Requests")) is None
    assert limits.standing() == []


def test_a_limit_without_a_time_is_tried_again_later(limits, clock):
    limit = limits.heard("team", limited(None, "Weekly limit reached"))
    assert limit.until == clock[0] + UNTOLD_S
    assert "not told" in limit.why


def test_a_later_limit_replaces_an_earlier_one_and_not_the_other_way_round(limits, clock):
    limits.heard("team", limited(3600))
    assert limits.heard("team", limited(60)).until == clock[0] + 3600
    assert limits.heard("team", limited(7200)).until == clock[0] + 7200


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"login": "a"}]', "null", "[" * 5000])
def test_an_unreadable_file_is_no_limit(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    assert UsageLimits(tmp_path).standing() == []


# --- who may say that a limit is reached


def test_a_limit_that_the_provider_was_not_seen_to_tell_is_none(limits):
    """The door saw its answers, and no refusal: the agent made it up."""
    assert limits.heard("team", limited(3600, provider="answered"), "a") is None
    assert limits.standing() == []


def test_what_a_program_prints_makes_its_own_task_wait_and_no_other(limits, clock):
    """Agents of two tasks must be told before the login waits, and not for days in either case."""
    claim = limits.heard("team", limited(7200, provider="unseen"), "run/a")
    assert (claim.until, claim.sure, claim.told) == (clock[0] + UNTOLD_S, False, False)
    assert "as its program says" in claim.why
    assert limits.limit_of("team") is None
    assert limits.standing() == []
    assert limits.limit_of("team", "run/a") == claim
    assert limits.limit_of("team", "run/b") is None
    again = limits.heard("team", limited(7200, provider="unseen"), "run/a")
    assert limits.limit_of("team") is None, "the same task twice is one task"
    both = limits.heard("team", limited(60, provider="unseen"), "run/b")
    assert limits.limit_of("team") == both
    clock[0] = again.until
    assert limits.limit_of("team") is None
    limits.heard("team", limited(7200, provider="unseen"), "run/b")
    assert limits.limit_of("team") is None, "the claim of the other has ended"


def test_a_task_holds_itself_up_no_longer_than_a_limit_may_last(limits, clock):
    heard = 0
    while limits.heard("team", limited(None, "usage limit", "unseen"), "run/a"):
        heard += 1
        clock[0] += UNTOLD_S
    assert heard == 86_400 / UNTOLD_S


def test_a_lifted_login_forgets_what_programs_printed(limits):
    limits.heard("team", limited(600, provider="unseen"), "run/a")
    limits.lift("team")
    assert limits.limit_of("team", "run/a") is None


# --- places


async def test_agents_of_other_logins_pass_those_that_wait():
    governor, order = Governor(1, stagger_s=0.0, room=None), []
    until = time.time() + 2.0
    governor.limits.reached(UsageLimit("one", until, "limit"))

    async def agent(name, login):
        async with governor.place("coder", login=login):
            order.append((name, time.time()))

    first = asyncio.create_task(agent("first", "one"))
    await asyncio.sleep(0)
    await agent("second", "two")
    assert [name for name, _ in order] == ["second"]
    assert not first.done()
    await asyncio.sleep(0.01)  # the first looks again
    assert "the usage limit of one is reached" in governor.held_back
    await first
    assert order[-1][0] == "first"
    assert order[-1][1] >= until


# --- a fleet

AGENT = textwrap.dedent(
    """
    import fcntl, json, pathlib, sys, time
    task, session, shared, seconds = sys.argv[1:5]
    shared = pathlib.Path(shared)
    with open(shared / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starts = shared / "starts.jsonl"
        with open(starts, "a") as file:
            file.write(json.dumps([time.time(), task, session]) + "\\n")
        number = len(starts.read_text().splitlines())
        wall = shared / "walls.json"
        walls = json.loads(wall.read_text()) if wall.exists() else []
        if number == 7 or len(walls) == 1 and time.time() > walls[0][1]:
            walls.append([time.time(), time.time() + float(seconds)])
            fresh = shared / "walls.new"
            fresh.write_text(json.dumps(walls))
            fresh.rename(wall)
    print(json.dumps({"type": "session", "session": f"talk-{task}"}), flush=True)
    def refused():
        now = time.time()
        for begin, end in json.loads(wall.read_text()) if wall.exists() else []:
            if begin <= now < end:
                return end - now
        return 0
    for _ in range(4):
        if left := refused():
            print(json.dumps({"type": "error", "failure": "rate_limited", "retry_after_s": left,
                              "text": "You've hit your session limit"}), flush=True)
            sys.exit(1)
        time.sleep(0.1)
    pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
    print(json.dumps({"type": "result", "text": "done"}), flush=True)
    """
)
SHORT = textwrap.dedent(
    """
    import json, pathlib, sys
    task, refused = sys.argv[1], pathlib.Path(sys.argv[2])
    if not refused.exists():
        refused.touch()
        print(json.dumps({"type": "error", "failure": "rate_limited", "retry_after_s": 0.001,
                          "text": "You've hit your session limit"}), flush=True)
        sys.exit(1)
    pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
    print(json.dumps({"type": "result", "text": "done"}), flush=True)
    """
)
SECONDS = 2.5


def coder(name, processes, tmp_path, login):
    agent, shared = tmp_path / "agent.py", tmp_path / f"shared-{login}"
    shared.mkdir(exist_ok=True)
    agent.write_text(AGENT)
    command = [sys.executable, str(agent), "{task}", "{session}", str(shared), str(SECONDS)]
    return TemplateCoder(name, command, processes=processes, homes=tmp_path / "homes", login=login)


def epic(count):
    tasks = "\n".join(
        f"  - {{id: t{n}, goal: write the module t{n}, writes: [t{n}.py],"
        f" acceptance: [[{sys.executable}, t{n}.py]]}}"
        for n in range(count)
    )
    return plan_of(parse_epic(f"# Modules\n```yaml\ntasks:\n{tasks}\n```\n", "e", "e.md"))


def starts_and_walls(tmp_path, login):
    shared = tmp_path / f"shared-{login}"
    starts = [json.loads(line) for line in (shared / "starts.jsonl").read_text().splitlines()]
    walls = json.loads((shared / "walls.json").read_text())
    return starts, walls


async def test_a_fleet_on_one_login_waits_out_two_limits_without_losing_a_try(fleet, tmp_path):
    """Twenty agents, two walls: every task lands at its first attempt, nothing counts as failed."""
    shop, processes = fleet
    team = coder("scripted", processes, tmp_path, "team")
    limits, store = AttemptLimits(time_s=60, silence_s=50), MemoryStore()
    crew = coder_workers(shop, [("coder", team, "")], limits)
    outcome = await Lead(crew, store=store, policy=Policy(backoff_s=0.01)).run(epic(20))
    assert outcome.status == "succeeded", outcome
    bodies = [msgspec.json.decode(entry.body) for entry in store.read(outcome.run)]
    odd = [body for body in bodies if body["type"] == "AttemptReported" and not body["met"]]
    assert {step.attempts for step in outcome.steps} == {1}, odd
    assert all(body["met"] for body in bodies if body["type"] == "AttemptReported")
    assert not [body for body in bodies if body["type"] == "RecoveryDecided"]
    starts, walls = starts_and_walls(tmp_path, "team")
    assert len(walls) == 2
    for begin, end in walls:
        # Agents that were being started when the limit became known are the only ones within. On
        # a busy machine a process takes seconds to start: half of the wall is theirs.
        late = [at for at, *_ in starts if (begin + end) / 2 < at < end]
        assert not late, (begin, end, late)
    seen = set()
    for _, task, session in starts:
        goes_on = session == f"talk-{task}"
        assert goes_on == (task in seen), "a conversation that was interrupted goes on"
        seen.add(task)


async def test_a_limit_that_has_ended_before_the_agent_is_gone_uses_up_no_try(fleet, tmp_path):
    """The provider refuses for a moment that is over when the work in progress is saved."""
    shop, processes = fleet
    shop.governor.limits = UsageLimits(tmp_path, wait_min_s=0.0, spread_s=0.0)
    agent = tmp_path / "short.py"
    agent.write_text(SHORT)
    command = [sys.executable, str(agent), "{task}", str(tmp_path / "refused")]
    short = TemplateCoder("short", command, processes=processes, homes=tmp_path / "homes")
    crew = coder_workers(shop, [("coder", short, "")], AttemptLimits(time_s=60, silence_s=50))
    outcome = await Lead(crew, store=MemoryStore(), policy=Policy()).run(epic(1))
    assert (outcome.status, outcome.steps[0].attempts) == ("succeeded", 1), outcome
    assert (tmp_path / "refused").exists()


async def test_another_login_takes_over_where_the_settings_say_so(fleet, tmp_path):
    shop, processes = fleet
    shop.governor.limits.reached(UsageLimit("team", time.time() + 3600, "limit"))
    made = [
        ("coder", coder("first", processes, tmp_path, "team"), ""),
        ("coder@second", coder("second", processes, tmp_path, "spare"), "big"),
    ]
    limits = AttemptLimits(time_s=60, silence_s=50)
    crew = coder_workers(shop, made, limits, take_over=True)
    store = MemoryStore()
    outcome = await Lead(crew, store=store, policy=Policy()).run(epic(2))
    assert outcome.status == "succeeded", outcome
    by = {commit.trailers["Assisted-by"] for commit in await shop.hub.commits()}
    assert by == {"second:big"}
    assert not (tmp_path / "shared-team" / "starts.jsonl").exists()
    told = {"worker": "coder@second", "coder": "second", "model": "big"}
    told |= {"login": "spare", "for_login": "team"}
    assert [step.data["stand_in"] for step in outcome.steps] == [told, told]
    log = [(entry.at, event) for entry, event in Reader(tmp_path, store).events(outcome.run)]
    (row,) = attempts_of(log, "t0")
    assert (row["worker"], row["stand_in_for"]) == ("coder@second", "team")


def test_a_failure_says_who_took_the_task_over():
    first, second = (SimpleNamespace(login=name) for name in ("team", "spare"))
    second.spec, second.coder = SimpleNamespace(name="coder@second"), SimpleNamespace(name="b")
    second.model = "big"
    failed = Report("failed", error=Failure("transient", "no", details={"by": "coder@second"}))
    found = CoderWorker.instead_of(second, first, failed).error.details
    assert (found["by"], found["stand_in"]["for_login"]) == ("coder@second", "team")


# --- people


def test_a_person_lifts_a_limit_for_good(limits, tmp_path, clock):
    limits.heard("team", limited(3600))
    limits.heard("spare", limited(3600))
    assert limits.lift("nobody") is None
    assert limits.lift("team").login == "team"
    assert limits.limit_of("team") is None
    again = UsageLimits(tmp_path, clock=lambda: clock[0])
    assert [limit.login for limit in again.standing()] == ["spare"], "after a restart too"


async def test_a_lifted_limit_lets_the_waiting_tasks_start_and_is_recorded(tmp_path, user):
    """The status says which login waits, until when, and how many tasks; then all of them land."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    UsageLimits(folder).reached(UsageLimit("scripted", time.time() + 3600, "limit"))
    opened = standing(tmp_path, user)
    async with opened() as fleet, Station(fleet) as station:
        fleet.submit(modules(tmp_path, "one", "a", "b"))
        async with asyncio.timeout(60):
            while (await station.figures(0.0))["limits"][0]["tasks"] != 2:
                await asyncio.sleep(0.05)
        station._counted.clear()
        doc = await station.figures(0.0)
        (limit,) = doc["limits"]
        assert (limit["login"], limit["told"]) == ("scripted", True)
        shown = next(line for line in lines(doc) if line.startswith("limit "))
        assert shown.startswith(f"limit      scripted until {limit['until'][:10]}")
        assert "2 tasks waiting" in shown
        with pytest.raises(Conflict, match=r"no usage limit of 'other' holds; .*scripted"):
            station.order("lift", "other", actor="ana")
        assert station.order("lift", "scripted", actor="ana")["tasks"] == 2
        await fleet.idle()
        assert (await station.figures(1.0))["limits"] == []
    found = [note for note in journal.read(folder) if note["what"] == "ordered"]
    assert [(n["verb"], n["name"], n["actor"]) for n in found] == [("lift", "scripted", "ana")]
    assert (await Evidence(folder).document())["landed"]["total"] == 2


async def test_without_that_setting_no_other_login_is_used(fleet, tmp_path):
    shop, processes = fleet
    shop.governor.limits.reached(UsageLimit("team", time.time() + 1.0, "limit"))
    made = [
        ("coder", coder("first", processes, tmp_path, "team"), ""),
        ("coder@second", coder("second", processes, tmp_path, "spare"), "big"),
    ]
    crew = coder_workers(shop, made, AttemptLimits(time_s=60, silence_s=50))
    outcome = await Lead(crew, store=MemoryStore(), policy=Policy()).run(epic(1))
    assert outcome.status == "succeeded", outcome
    assert not (tmp_path / "shared-spare" / "starts.jsonl").exists()
