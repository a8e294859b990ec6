"""A task from its epic to main: a real process edits, real git lands, and nobody is believed."""

import asyncio
import sys
import textwrap
from types import SimpleNamespace

import msgspec
import pytest

from leadhand import Lead, Policy
from leadhand.fleet import worker as enduring
from leadhand.fleet import worker as worker_module
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits, FleetContext
from leadhand.fleet.epics import parse_epic, plan_of
from leadhand.fleet.gate.gate import Gate, GateRules, GateTrouble
from leadhand.fleet.governor import Governor
from leadhand.fleet.merge.conductor import Conductor
from leadhand.fleet.repository.git import GitFailed
from leadhand.fleet.take_over import TakenTasks
from leadhand.fleet.tasks import PlannedTask, wrong_with
from leadhand.fleet.worker import CoderWorker
from leadhand.fleet.workspace.capture import CapturedWork
from leadhand.fleet.workspace.capture import CaptureLimits as TakingLimits
from leadhand.fleet.workspace.slots import SetupFailed, Slots
from leadhand.stores.memory import MemoryStore
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.places import commit_all, run_git, write

AGENT = textwrap.dedent(
    """
    import json, pathlib, sys
    task, attempt, brief = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]).read_text()
    tricks = json.loads(pathlib.Path(sys.argv[4]).read_text()).get(task, [])
    trick = tricks[attempt - 1] if attempt <= len(tricks) else "good"
    print(json.dumps({"type": "usage", "cost": 0.25}))
    if trick == "nothing":
        print("Done! Everything works.")
    elif trick == "crash":
        sys.exit(3)
    elif trick == "refuses":
        print(json.dumps({"type": "error", "failure": "policy", "text": "I will not"}))
        sys.exit(1)
    elif trick == "cleans":
        import signal, time
        half = pathlib.Path(f"{task}.py")
        signal.signal(signal.SIGTERM, lambda *_: (half.unlink(), sys.exit(1)))
        half.write_text("# the first half\\n")
        print("at work", flush=True)
        time.sleep(60)
    elif trick == "many":
        pathlib.Path(f"any/{task}").mkdir(parents=True)
        for number in range(40):
            pathlib.Path(f"any/{task}/{number}.txt").write_text("x")
    elif trick == "outside":
        pathlib.Path("other.py").write_text("x = 1\\n")
        pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
    elif trick == "red":
        pathlib.Path(f"{task}.py").write_text("raise SystemExit(1)\\n")
    elif trick == "half":
        pathlib.Path(f"{task}.py").write_text("# the first half\\n")
        sys.exit(3)
    elif trick == "rest":
        import re, subprocess
        show = re.search("`(git diff .*?)`", brief)[1].split()
        assert b"+# the first half" in subprocess.check_output(show)
        pathlib.Path(f"{task}.py").write_text("name = 'whole'\\n")
    elif trick == "odd":
        open(b"\\xff\\x1b.py", "w").close()
    elif trick == "wipe":
        import shutil
        for each in pathlib.Path(".").iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    else:
        pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
    if trick == "bytes":
        pathlib.Path(f"any/{task}").mkdir(parents=True)
        open(f"any/{task}/".encode() + b"\\xff.txt", "w").close()
    """
)
GATE = "import pathlib, runpy; [runpy.run_path(str(p)) for p in pathlib.Path('.').glob('*.py')]"


def epic(*names):
    tasks = "\n".join(
        f"  - {{id: {n}, goal: write the module {n}, writes: [{n}.py, any/{n}],"
        f" acceptance: [[{sys.executable}, {n}.py]]}}"
        for n in names
    )
    return parse_epic(f"# Some modules\n```yaml\ntasks:\n{tasks}\n```\n", "e", "e.md")


@pytest.fixture
async def processes():
    async with Processes("test-worker") as started:
        yield started


@pytest.fixture
async def shop(tmp_path, hub, slots, processes):
    sandbox = choose("none")
    gate = Gate(
        hub,
        Slots(hub, tmp_path / "gates", 2, prefix="gate"),
        GateRules(commands=((sys.executable, "-c", GATE),)),
        processes=processes,
        sandbox=sandbox,
    )
    async with Conductor(hub, gate) as conductor:
        yield FleetContext(hub, slots, gate, conductor, Governor(4, stagger_s=0.0), sandbox)


@pytest.fixture
def hasty(monkeypatch):
    """Trouble is tried again at once."""
    monkeypatch.setattr(enduring, "PAUSE_S", 0.01)
    monkeypatch.setattr(enduring, "PAUSE_S_MAX", 0.01)


def crew(shop, processes, tmp_path, tricks, **more):
    agent, plan = tmp_path / "agent.py", tmp_path / "tricks.json"
    agent.write_text(AGENT)
    plan.write_bytes(msgspec.json.encode(tricks))
    command = [sys.executable, str(agent), "{task}", "{attempt}", "{brief_file}", str(plan)]
    coder = TemplateCoder("scripted", command, processes=processes, homes=tmp_path / "homes")
    return CoderWorker(shop, coder, limits=AttemptLimits(time_s=30, silence_s=20), **more)


async def run(shop, processes, tmp_path, tricks, *names):
    store = MemoryStore()
    policy = Policy(backoff_s=0.01, jitter=0.0)
    lead = Lead([crew(shop, processes, tmp_path, tricks)], store=store, policy=policy)
    return await lead.run(plan_of(epic(*names))), store


async def test_tasks_land_with_their_names_on_them(shop, processes, tmp_path, user):
    before = run_git(user, "rev-parse", "HEAD")
    outcome, _ = await run(shop, processes, tmp_path, {}, "a", "b", "c")
    assert outcome.status == "succeeded", outcome
    commits = await shop.hub.commits()
    assert sorted(each.trailers["Leadhand-Task"] for each in commits) == ["a", "b", "c"]
    assert {each.trailers["Leadhand-Run"] for each in commits} == {outcome.run}
    assert all("scripted" in each.trailers["Assisted-by"] for each in commits)
    landed = {step.id: step.data["commit"] for step in outcome.steps}
    assert set(landed.values()) == {each.sha for each in commits}
    assert run_git(user, "rev-parse", "HEAD") == before, "the user's checkout is as it was"


@pytest.mark.parametrize("trick", ["nothing", "crash", "outside", "red", "wipe", "odd"])
async def test_who_goes_wrong_first_lands_in_the_end(shop, processes, tmp_path, trick):
    outcome, store = await run(shop, processes, tmp_path, {"a": [trick]}, "a", "b")
    assert outcome.status == "succeeded", outcome
    first = next(step for step in outcome.steps if step.id == "a")
    assert first.attempts == 2
    names = (await shop.hub.git("ls-tree", "-r", "--name-only", shop.hub.main())).text.split()
    assert "other.py" not in names
    bodies = [msgspec.json.decode(entry.body) for entry in store.read(outcome.run)]
    failed = [b["failure"] for b in bodies if b["type"] == "AttemptReported" and not b["met"]]
    assert len(failed) == 1
    assert failed[0].get("effect", "none") == "none"
    if trick in ("outside", "red"):
        saved = await shop.hub.kept("refs/leadhand/wip/")
        assert any("/a/1" in ref for ref in saved), "what was left is kept"


async def test_who_never_gets_it_right_is_a_question_and_others_land(shop, processes, tmp_path):
    outcome, _ = await run(shop, processes, tmp_path, {"a": ["nothing"] * 9}, "a", "b")
    assert outcome.status == "waiting"
    assert "changed nothing" in outcome.waiting_for[0].text
    assert shop.hub.landed(outcome.run, "a") is None
    assert shop.hub.landed(outcome.run, "b") is not None


def test_who_leaves_only_what_cannot_be_taken_is_told_that():
    """And not that nothing was changed, which is no help to whoever tries next."""
    taken = CapturedWork(
        "", "tree", {}, {"a.bin": "30000000 bytes are too many for one file"}, (), {}
    )
    given = PlannedTask(goal="g", writes=["a.bin"])
    assert wrong_with(taken, given).startswith("a.bin cannot be taken: 30000000 bytes")


async def test_who_comes_next_is_told_where_the_work_of_the_last_is(shop, processes, tmp_path):
    """Its own git can show it, though the files are those of main."""
    outcome, _ = await run(shop, processes, tmp_path, {"a": ["half", "rest"]}, "a")
    assert (outcome.status, outcome.steps[0].attempts) == ("succeeded", 2), outcome
    text = (await shop.hub.git("cat-file", "-p", f"{shop.hub.main()}:a.py")).text
    assert text == "name = 'whole'"


async def test_a_name_that_is_no_text_lands_and_its_task_is_done(shop, processes, tmp_path):
    outcome, _ = await run(shop, processes, tmp_path, {"a": ["bytes"]}, "a")
    assert outcome.status == "succeeded", outcome
    assert outcome.steps[0].data["files"] == ["a.py", r"any/a/\xff.txt"]


async def test_what_is_on_main_is_adopted_not_done_again(shop, processes, tmp_path):
    outcome, _ = await run(shop, processes, tmp_path, {}, "a")
    worker = crew(shop, processes, tmp_path, {"a": ["crash"] * 9})
    from leadhand.ports import Task

    task = Task(outcome.run, "a", 2, 9, "", {"goal": "write a", "writes": ["a.py"]}, 0)
    report = await worker.probe(task, None)
    assert report.data["commit"] == shop.hub.landed(outcome.run, "a")
    again = await worker.perform(task, None)
    assert again.data == report.data
    other = task._replace(step="never")
    assert await worker.probe(other, None) is None


# --- trouble of the machine ---


def events(store, run, kind):
    bodies = [msgspec.json.decode(entry.body) for entry in store.read(run)]
    return [body for body in bodies if body["type"] == kind]


def failing(work, *troubles):
    """Something that fails with each of these once, then works."""
    left = list(troubles)

    async def tried(*given, **more):
        if left:
            raise left.pop(0)
        return await work(*given, **more)

    return tried


async def test_trouble_of_the_machine_is_waited_for_and_uses_no_try(
    shop, processes, tmp_path, hasty, monkeypatch
):
    """Before an agent began, at the gate, and on the train: one attempt, one agent."""
    full = GitFailed(["write-tree"], 128, "No space left on device")
    down = SetupFailed("a slot cannot be prepared: pip ended with 1")
    begun, paused = [], []
    monkeypatch.setattr(shop.slots, "_setup", failing(nothing, down, down, full))
    monkeypatch.setattr(shop.gate, "check", failing(shop.gate.check, GateTrouble("no room"), full))
    monkeypatch.setattr(shop.conductor, "land", failing(shop.conductor.land, GateTrouble("full")))
    monkeypatch.setattr(shop.governor, "pause", lambda why, _s: paused.append(why))
    shop.note = lambda what, **_more: begun.append(what)
    outcome, store = await run(shop, processes, tmp_path, {}, "a")
    assert outcome.status == "succeeded", outcome
    assert len(events(store, outcome.run, "AttemptStarted")) == 1
    assert begun.count("agent") == 1, "what was finished is not done again"
    assert len(paused) == 6
    assert any("pip ended with 1" in why for why in paused)


async def nothing(_slot):
    return None


async def test_what_is_done_and_cannot_land_is_landed_by_the_next_attempt(
    shop, processes, tmp_path, monkeypatch
):
    """Trouble that does not pass is reported with what was paid; nobody is paid again."""
    monkeypatch.setattr(enduring, "PATIENCE_S", 0.0)
    begun = []
    shop.note = lambda what, **_more: begun.append(what)
    check = shop.gate.check
    monkeypatch.setattr(shop.gate, "check", failing(check, GateTrouble("no room"), KeyError("x")))
    workers = [
        crew(shop, processes, tmp_path, {}, name=name, stronger=behind)
        for name, behind in (("coder", "coder@fresh"), ("coder@fresh", "coder@b"), ("coder@b", ""))
    ]
    store, policy = MemoryStore(), Policy(backoff_s=0.01, jitter=0.0)
    outcome = await Lead(workers, store=store, policy=policy).run(plan_of(epic("a")))
    assert outcome.status == "succeeded", outcome
    assert begun.count("agent") == 1
    failed = [e for e in events(store, outcome.run, "AttemptReported") if not e["met"]]
    assert [each["failure"]["class"] for each in failed] == ["unavailable"] * 2
    assert all("finished" in each["failure"]["details"] for each in failed)
    assert failed[0]["cost"] == 0.25


async def test_a_model_that_refuses_is_followed_by_another(shop, processes, tmp_path):
    workers = [
        crew(shop, processes, tmp_path, {"a": ["refuses"]}, stronger="coder@b"),
        crew(shop, processes, tmp_path, {"a": ["refuses"]}, name="coder@b"),
    ]
    store = MemoryStore()
    outcome = await Lead(workers, store=store).run(plan_of(epic("a")))
    assert outcome.status == "succeeded", outcome
    (failed,) = [e for e in events(store, outcome.run, "AttemptReported") if not e["met"]]
    assert failed["failure"]["class"] == "denied"


async def test_who_leaves_too_many_files_is_told_so(shop, processes, tmp_path):
    shop.slots.limits = TakingLimits(files=20)
    outcome, store = await run(shop, processes, tmp_path, {"a": ["many"]}, "a")
    assert (outcome.status, outcome.steps[0].attempts) == ("succeeded", 2), outcome
    (failed,) = [e for e in events(store, outcome.run, "AttemptReported") if not e["met"]]
    assert failed["failure"]["class"] == "criteria_unmet"
    assert "files differ, and at most 20 are taken" in failed["failure"]["message"]


async def test_work_is_kept_though_its_agent_cleans_up_when_it_is_told_to_end(
    shop, processes, tmp_path
):
    stopping = asyncio.create_task(stopped_at_work(shop))
    outcome, _ = await run(shop, processes, tmp_path, {"a": ["cleans", "rest"]}, "a")
    await stopping
    assert (outcome.status, outcome.steps[0].attempts) == ("succeeded", 2), outcome


async def stopped_at_work(shop):
    """Once it is heard that an agent works, it is stopped, as by `leadhand fleet stop`."""
    while not any(each.words for each in shop.at_work.values()):
        await asyncio.sleep(0.01)
    (agent,) = shop.at_work.values()
    assert agent.coder.stop(agent.assignment)


# --- waiting ---


async def test_waiting_in_line_takes_nothing_of_an_agents_time(shop, processes, tmp_path):
    """A task's timeout is its agent's; a place that comes late costs no try."""
    worker = crew(shop, processes, tmp_path, {})
    assert worker.spec.offers[""].timeout_s > 30 * 86_400
    wanted = epic("a")
    task = msgspec.structs.replace(wanted.tasks[0], timeout="90 seconds")
    plan = plan_of(msgspec.structs.replace(wanted, tasks=(task,)))
    assert "timeout" not in plan["steps"][0]
    given = []
    work = worker.coder.work

    async def seen(assignment, *rest, **more):
        given.append(assignment.time_s)
        return await work(assignment, *rest, **more)

    worker.coder.work = seen
    shop.governor.stop()
    store = MemoryStore()
    running = asyncio.create_task(Lead([worker], store=store).run(plan))
    async with asyncio.timeout(30):
        while not shop.governor.waiting:
            await asyncio.sleep(0.01)
    assert not given
    shop.governor.go_on()
    outcome = await running
    assert (outcome.status, outcome.steps[0].attempts) == ("succeeded", 1), outcome
    assert given == [90.0]


async def test_an_agent_whose_own_clocks_fail_is_ended_all_the_same(
    shop, processes, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker_module, "NET_S", -59.9)  # of twice the 30 s that it has
    worker = crew(shop, processes, tmp_path, {})
    work = worker.coder.work

    async def hangs(assignment, *given, **more):
        if assignment.attempt == 1:
            monkeypatch.setattr(worker_module, "NET_S", 600.0)
            await asyncio.Event().wait()
        return await work(assignment, *given, **more)

    worker.coder.work = hangs
    store, policy = MemoryStore(), Policy(backoff_s=0.01, jitter=0.0)
    outcome = await Lead([worker], store=store, policy=policy).run(plan_of(epic("a")))
    (failed,) = [e for e in events(store, outcome.run, "AttemptReported") if not e["met"]]
    assert failed["failure"]["class"] == "timeout"
    assert outcome.status == "succeeded", outcome


async def test_only_the_commits_that_were_given_are_taken(tmp_path, user, hub):
    """Somebody else's `fleet give` is refused, after it has written its own bundle."""
    tasks = TakenTasks(tmp_path)
    tasks.take("run", "task", "ann", ready=True, base=hub.main())
    run_git(user, "checkout", "-q", "-b", "mine")
    write(user, {"mine": "m\n"})
    head = commit_all(user, "By hand")
    taken = tasks.change("run", "task", given="main", head=head, author="Ann <ann@localhost>")
    run_git(user, "bundle", "create", "-q", str(tasks.bundle_of(taken)), "HEAD", "--not", "main")
    worker = CoderWorker.__new__(CoderWorker)
    worker.shop = SimpleNamespace(hub=hub, taken=tasks)
    attempt = SimpleNamespace(run="run", step="task", attempt=1)
    assert (await worker._import(attempt, taken)).base == hub.main()
    other = tasks.change("run", "task", head="0" * 40)
    assert "no longer those that were given" in await worker._import(attempt, other)
