"""The station: an epic is submitted as text, tasks are seen in detail, a fleet paused stays so."""

import asyncio

import pytest

from leadhand.errors import UsageError
from leadhand.fleet.epics import parse_epic
from leadhand.fleet.pause import pause_of
from leadhand.fleet.station import Station
from leadhand.fleet.status.task_detail import change_of, commit_of, failing_tests
from tests.fleet.planned import say
from tests.fleet.standing import epic, noted, settled, standing


async def until(check):
    async with asyncio.timeout(60):
        while not await check():
            await asyncio.sleep(0.05)


async def test_an_epic_is_submitted_paused_resumed_and_seen_in_detail(tmp_path, user):
    """One fleet, from a paused start over a restart to the difference that it made."""
    opened = standing(tmp_path, user, '{"b": ["good", "red"]}')
    text = epic(tmp_path, "first", "a", "b").read_text()
    async with opened() as fleet, Station(fleet) as station:
        assert station.order("pause", actor="ada") == {"paused": True, "agents": 0}
        given = station.submit(text, "Add modules.md", 3, "ada")
        run = given["run"]
        assert (given["title"], given["tasks"], given["priority"]) == ("first", 2, 3)
        assert given["known"] is None

        async def waits():
            cards = (await station.figures(0.0))["board"]["cards"]
            wanted = "Waiting for a slot: paused by ada."
            return [each.get("reason") for each in cards] == [wanted, wanted]

        await until(waits)
    assert pause_of(tmp_path / "fleet").by == "ada"
    async with opened() as fleet, Station(fleet) as station:
        assert (await station.figures(0.0))["live"]["paused"]["by"] == "ada"
        assert noted(tmp_path, "agent") == []
        assert station.order("resume", actor="ada")["paused"] is False
        await settled(fleet)
        assert station.submit(text, "add-modules.md", None, "ada")["known"] == "succeeded"
        with pytest.raises(UsageError, match="names no tasks, and this fleet has no planner"):
            station.submit("# Search\n\nFind words.", "", None, "ada")
        await seen(station, run)
        orders = [(note["verb"], note["actor"]) for note in noted(tmp_path, "ordered")]
        assert orders == [("pause", "ada"), ("submit", "ada"), ("resume", "ada"), ("submit", "ada")]


async def seen(station, run):
    """The task that failed once, with both attempts and the commit."""
    found = await station.task(run, "b")
    waited, first, second = found["attempts"]
    assert waited["outcome"] == "not started"
    assert (first["outcome"], first["class"]) == ("failed", "criteria_unmet")
    assert "does not pass" in first["message"]
    assert first["recovery"]["strategy"]
    assert second["outcome"] == "merged"
    (file,) = found["change"]["files"]
    assert (file["path"], file["added"], file["removed"]) == ("b.py", 1, 0)
    assert "+name = 'b'" in file["patch"]
    assert found["change"]["of"] == "commit"
    assert found["commit"]["sha"] == found["card"]["commit"] == found["change"]["commit"]
    assert found["planned"]["writes"] == ["b.py", "guarded/b.py"]
    with pytest.raises(UsageError, match="no task"):
        await station.task(run, "c")
    assert station.transcript(run, "b", 2)["attempt"] == 2
    assert station.transcript(run, "b")["attempt"] == 3
    board = (await station.figures(0.0))["board"]
    assert board["columns"]["merged"] == 2


async def test_a_result_that_names_no_commit_is_never_given_to_git(hub, tmp_path):
    """A person may report a task as done, with any text for its commit."""
    option = f"--output={tmp_path / 'made'}"
    assert await change_of(hub.git, "r", "t", option, 1) is None
    assert await commit_of(hub.git, option) is None
    assert list(tmp_path.glob("made*")) == []


@pytest.mark.parametrize(
    ("log", "names"),
    [
        ("FAILED test_a.py::test_b - assert 1 == 2", ["test_a.py::test_b"]),
        ("...\nFAILED tests/test_a.py::test_b\n", ["tests/test_a.py::test_b"]),
        ("FAIL: test_b (tests.test_a.Case)\nFAILED (failures=1)", ["test_b (tests.test_a.Case)"]),
        ("--- FAIL: TestB\nFAIL", ["TestB"]),
        ("not ok 3 - adds\nok 4 - takes", ["adds"]),
        ("test words::adds ... FAILED", ["words::adds"]),
        ("  ● adds two numbers\n", ["adds two numbers"]),
        ("make: *** [check] Error 1", []),
    ],
)
def test_the_failing_tests_of_common_runners_are_named(log, names):
    assert failing_tests(log) == names


async def test_who_stopped_an_agent_and_why_is_kept_and_is_no_failure(tmp_path, user):
    opened = standing(tmp_path, user, '{"slow": {"a": 3}}')
    text = epic(tmp_path, "first", "a").read_text()
    async with opened() as fleet, Station(fleet) as station:
        run = station.submit(text, "", None, "ada")["run"]

        async def works():
            return any(each.words for each in fleet.shop.at_work.values())

        await until(works)
        station.order("stop", f"{run}/a", "wrong\nbranch", "ann")
        await settled(fleet)
        first, second = (await station.task(run, "a"))["attempts"]
        assert (first["outcome"], first["class"]) == ("stopped", "")
        assert first["message"] == "stopped by ann: wrong branch"
        assert second["outcome"] == "merged"
        assert station.transcript(run, "a", 1)["lines"][-1]["text"] == first["message"]
        assert (await station.figures(0.0))["recovery"]["failed"] == 0
        assert [note["text"] for note in noted(tmp_path, "ordered")[1:]] == ["wrong\nbranch"]


async def test_an_agent_that_is_stopped_for_good_leaves_the_task_to_a_decision(tmp_path, user):
    opened = standing(tmp_path, user, '{"slow": {"a": 3}}')
    text = epic(tmp_path, "first", "a").read_text()
    async with opened() as fleet, Station(fleet) as station:
        run = station.submit(text, "", None, "ada")["run"]

        async def works():
            return any(each.words for each in fleet.shop.at_work.values())

        async def asked():
            return (await station.task(run, "a"))["card"]["column"] == "blocked"

        await until(works)
        station.order("end", f"{run}/a", "not needed", "ann")
        await until(asked)
        found = await station.task(run, "a")
        assert [each["outcome"] for each in found["attempts"]] == ["stopped"]
        asked_of = fleet._runs[run].state.questions[found["card"]["question"]]
        await say(fleet._runs[run], asked_of, "skip")
        await settled(fleet)
        assert (await station.task(run, "a"))["card"]["column"] == "ended"


def test_a_task_that_is_no_mapping_is_refused_in_plain_words():
    text = "# Sort\n\nSort.\n\n```yaml\ntasks:\n  - sort the words\n```\n"
    with pytest.raises(UsageError, match=r"tasks\[0\] must be a mapping with id, goal and writes"):
        parse_epic(text, "epic", "the epic")
