"""The lines of a run, from states made by hand: no processes, no terminal."""

import time
from types import SimpleNamespace

from leadhand.cli.foreground import HostedJob, _Session
from leadhand.cli.rendering.live import PlainView
from leadhand.cli.rendering.run_rows import header, row, rows
from leadhand.cli.rendering.text import clean, clean_lines, gist, hanging_lines, moment, table
from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.policy import Policy
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.fleet.commands.fleet import _figure
from leadhand.temporal.cluster import Cluster
from tests.support.cli import Folder

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
SPEC = WorkerSpec(name="w", offers={"": Offer(est_s=10.0)})


def a_run(steps, **plan):
    """A run whose plan was let through."""
    state = State()
    head = {"plan_id": "p", **plan}
    began = ev.RunStarted(
        run="r", goal="a goal", policy=Policy(), planner="document", catalog=[SPEC], plan=head
    )
    proposed = ev.RevisionProposed(number=1, author="document", base="", hash="h", add=steps)
    approved = ev.RevisionApproved(1, "h", "policy")
    asked = ev.PlannerAsked(1, 1, BEGIN + 60 * SECOND, "start")
    answered = ev.PlannerAnswered(1, 1, {"kind": "propose", "revision": 1, "final": True})
    for event in (began, ev.RunHosted(1), asked, answered, proposed, approved):
        evolve(state, event, BEGIN)
    return state


def start(state, step, at=BEGIN, attempt=1, epoch=None):
    epoch = epoch or state.epoch + 1
    evolve(state, ev.AttemptStarted(step, attempt, epoch, "w", at + 3600 * SECOND, "s", "e"), at)
    return epoch


class Lines:
    """A console that remembers."""

    def __init__(self):
        self.said = []

    def say(self, text=""):
        self.said.append(text)


def test_the_header_counts(tmp_path):
    state = a_run([{"id": f"s{n}", "worker": "w"} for n in range(10)], estimated_duration="15m")
    for step in ("s0", "s1", "s2"):
        epoch = start(state, step)
        evolve(state, ev.AttemptReported(step, 1, epoch, True), BEGIN + SECOND)
    start(state, "s3")
    start(state, "s4")
    said = header(state, BEGIN + 40 * SECOND)
    assert said == "3/10 done · 2 running · est 15m, 40s so far, about 14m 20s left"
    assert "5m over" in header(state, BEGIN + 20 * 60 * SECOND)
    assert "emergency stop by Ada" in header(state, BEGIN, stopped="Ada")


def test_only_what_succeeded_is_done_and_what_ended_took_its_time():
    state = a_run([{"id": "a", "worker": "w"}, {"id": "b", "worker": "w"}])
    epoch = start(state, "a")
    evolve(state, ev.AttemptReported("a", 1, epoch, True), BEGIN + SECOND)
    evolve(state, ev.StepSkipped("b", "a person said so"), BEGIN + SECOND)
    said = header(state, BEGIN + 2 * SECOND)
    assert said == "1/2 done · 1 failed or skipped · 2s so far (1s running, 1s waiting)"
    evolve(state, ev.RunEnded("failed"), BEGIN + 3 * SECOND)
    assert header(state, BEGIN + 9 * SECOND).endswith("took 3s (1s running, 2s waiting)")


def test_without_a_host_nothing_runs():
    state = a_run([{"id": "a", "worker": "w"}])
    start(state, "a")
    cut = row(state, state.steps["a"], BEGIN + 4 * SECOND, {}, hosted=False)
    assert (cut.word, cut.detail) == ("unknown", "in flight when the host ended")
    assert "1 in flight when the host ended" in header(state, BEGIN, hosted=False)


def test_a_row_says_how_long_and_who_waits():
    state = a_run([{"id": "a", "worker": "w"}, {"id": "b", "worker": "w", "depends_on": ["a"]}])
    start(state, "a")
    running = row(state, state.steps["a"], BEGIN + 4 * SECOND, {"a": ("half of it", 0.5)})
    assert running.detail == "4.0s of 10s, 6.0s left, 50%, half of it"
    late = row(state, state.steps["a"], BEGIN + 14 * SECOND, {})
    assert late.overdue
    assert late.detail == "14s of 10s, OVERDUE by 4.0s"
    assert row(state, state.steps["b"], BEGIN, {}).detail == "waits for a"


def test_a_row_says_when_a_step_may_start():
    """BEGIN is 22:13:20 UTC: a step outside its window, or before its moment, is not ready."""
    state = a_run(
        [
            {"id": "shut", "worker": "w", "window": "02:00-04:00 UTC"},
            {"id": "open", "worker": "w", "window": "22:00-04:00 UTC"},
            {"id": "late", "worker": "w", "not_before": "2023-11-15T00:00:00Z"},
        ]
    )
    midnight = 1_700_006_400 * SECOND
    state.steps["late"].not_before = midnight
    shut, fine, late = rows(state, BEGIN, {}, 10)[0]
    assert (shut.word, shut.icon) == ("scheduled", "◷")
    opens = BEGIN + (3 * 3600 + 46 * 60 + 40) * SECOND
    assert shut.detail == f"outside its window until {moment(opens, zone=True)}"
    assert (fine.word, fine.detail) == ("ready", "ready")
    assert (late.word, late.detail) == ("scheduled", f"not before {moment(midnight, zone=True)}")
    assert row(state, state.steps["shut"], opens, {}).word == "ready"
    assert row(state, state.steps["late"], midnight, {}).word == "ready"


def test_a_picture_of_a_huge_plan_is_cheap():
    """It does not walk through 100,000 steps five times a second."""
    state = a_run([{"id": f"s{n}", "worker": "w"} for n in range(100_000)])
    for number in range(50):
        start(state, f"s{number}")
    begin = time.process_time()
    for _ in range(20):
        found, rest = rows(state, BEGIN + SECOND, {}, 20)
        header(state, BEGIN + SECOND)
    assert (time.process_time() - begin) / 20 < 0.02
    assert len(found) == 19
    assert rest == "… and 99981 steps: 0 settled, 99981 to come"


def test_plain_lines_show_life_every_half_minute():
    console = Lines()
    view = PlainView(console)
    state = a_run([{"id": "a", "worker": "w"}])
    start(state, "a")
    view.tick(state, BEGIN, {}, [], "")
    view.tick(state, BEGIN + 29 * SECOND, {}, [], "")
    assert len(console.said) == 1
    view.tick(state, BEGIN + 31 * SECOND, {}, [], "")
    view.tick(state, BEGIN + 40 * SECOND, {}, [], "")
    assert len(console.said) == 2
    assert "0/1 done · 1 running" in console.said[1]


def test_no_sign_of_life_while_only_a_person_is_awaited():
    console = Lines()
    view = PlainView(console)
    state = a_run([])
    asked = ev.QuestionAsked(id="q1", kind="planner", text="Which?", choices=[], step="", attempt=0)
    evolve(state, asked, BEGIN)
    for seconds in (0, 31, 62, 93):
        view.tick(state, BEGIN + seconds * SECOND, {}, [], "")
    assert len(console.said) == 1


def test_text_of_others_is_shown_never_sent():
    assert clean("a\x1b[2Jb\rc\nd\u202e") == "a\\x1b[2Jb\\rc\\nd\\u202e"
    assert clean("x" * 100, 10) == "x" * 9 + "…"
    assert clean_lines("a\r\nb\x07") == "a\nb\\x07"
    assert table(("A", "B"), [("1", "long"), ("22", "")]) == ["A   B", "1   long", "22"]


def test_a_text_of_several_lines_is_told_by_its_ends_or_behind_a_bar():
    """The output of a test is no one-liner, and what a worker says is never a line of ours."""
    text = "make check is red:\nE\x1b[31m\n\nexit 1\n"
    assert gist(text) == "make check is red: … exit 1"
    assert gist(text + "; attempt 2 of 2") == "make check is red: …; attempt 2 of 2"
    assert gist("one\x1b") == clean("one\x1b")
    assert hanging_lines(text).splitlines()[1] == "      | E\\x1b[31m"
    assert hanging_lines(text).endswith("      | exit 1")
    assert hanging_lines("a\\nb") == "a\\nb"
    assert len(hanging_lines(text, 10)) == 10


async def test_a_run_that_no_engine_serves_says_so():
    """At Temporal it would wait without a word."""
    said = []
    settings = SimpleNamespace(sections={"temporal": Cluster("there:7233")}, files=())
    job = HostedJob(settings=settings, lead=None, begin=None)
    session = _Session(SimpleNamespace(say=said.append), job)

    found = ["one"]

    async def engines():
        return found

    await session._say_lonely(SimpleNamespace(engines=engines))
    assert not said
    found.clear()
    await session._say_lonely(SimpleNamespace(engines=engines))
    assert "no process serves runs at there:7233" in said[0]
    here = HostedJob(settings=SimpleNamespace(sections={}, files=()), lead=None, begin=None)
    await _Session(SimpleNamespace(say=said.append), here)._say_lonely(SimpleNamespace())
    assert len(said) == 1, "a run that is hosted here has its engine"


def test_the_figures_of_a_trial_are_written_for_people():
    half, whole = (
        {"times": 2, "recovered": 1, "rate": 0.5},
        {"times": 1, "recovered": 1, "rate": 1.0},
    )
    rates = {"criteria_unmet": half, "lost": whole}
    assert _figure(rates) == "criteria unmet 1 of 2, lost 1 of 1"
    assert [_figure(each) for each in (None, [], {}, 1.5, ["a"])] == [
        "–",
        "none",
        "none",
        "1.5",
        "a",
    ]


def test_what_workers_recommend_is_shown(tmp_path):
    """Of successes, too: it was in the log and nowhere else."""
    folder = Folder(tmp_path)
    folder.write(
        "wise.py",
        "from leadhand import Report, worker\n\n\n@worker(name='wise')\nasync def wise():\n"
        "    return Report(data=1, recommendations=('water it weekly',))\n",
    )
    plan = folder.plan({"id": "w", "worker": "wise"})
    run = folder.run("run", plan, "--workers", "wise.py", "--json").doc["run"]
    assert "w recommends: water it weekly" in folder.run("show", run).out
    found = folder.run("show", run, "--json").doc
    assert found["steps"][0]["recommendations"] == ["water it weekly"]
