"""Delivery figures of a fleet: each from its source, and the same in every form."""

import asyncio
import csv
import io
import json
import random

import msgspec
import pytest

from leadhand.fleet.repository.git import Git
from leadhand.fleet.status.delivery import (
    BY_NAME,
    FIGURES,
    MINUTE,
    Delivery,
    as_csv,
    delivery,
    shown,
)
from leadhand.fleet.status.evidence import Evidence
from leadhand.fleet.status.figures import DAY, HOUR, WEEK, EpicFacts, Landing, Sources, TaskFacts
from leadhand.fleet.status.report_page import page
from leadhand.fleet.status.rework import WINDOW, MainChange, read_changes, reworked
from tests.fleet.places import run_git
from tests.fleet.standing import epic, standing
from tests.fleet.test_report_page import figures

NOW = 2000 * DAY


def lines(path, *texts):
    return tuple((path, text.encode()) for text in texts)


def sha(number):
    return f"{number:08x}" * 5


def change(number, at, message="add it", added=(), removed=(), **more):
    return MainChange(sha(number), at, message, tuple(added), tuple(removed), **more)


def fleet(draw):
    """Sources of a random fleet, and the changes of main."""
    began = NOW - draw.randrange(1, 60 * DAY)
    names = [f"t{number}" for number in range(draw.randrange(0, 25))]
    facts = EpicFacts(run="epic-a", started=began)
    landings, notes = [], []
    changes = [  # of people, before and beside the fleet
        change(1000 + number, draw.randrange(began - 90 * DAY, NOW))
        for number in range(draw.randrange(0, 30))
    ]
    for number, name in enumerate(names):
        at = draw.randrange(began, NOW)
        task = TaskFacts(run="epic-a", task=name, status="succeeded", attempts=1)
        task.person = draw.random() < 0.3
        if draw.random() < 0.4:
            task.failures = [(draw.randrange(began, at + 1), "criteria_unmet")]
        facts.tasks[name] = task
        own = lines("a.py", f"line of {name}")
        changes.append(change(number, at, f"write {name}", own, by_fleet=True))
        landings.append(Landing(sha(number), "epic-a", name, 1, at, "", f"write {name}"))
        if draw.random() < 0.4:
            undone = change(
                500 + number, min(NOW, at + draw.randrange(20) * DAY), "revert", (), own
            )
            changes.append(undone)
        if draw.random() < 0.7:
            about = {"run": "epic-a", "task": name, "attempt": 1}
            notes.append({"at": at, "what": "agent ended", "cost": draw.random(), **about})
    facts.acts = [(draw.randrange(began, NOW), draw.choice("ab"), 0) for _ in range(9)]
    changes.sort(key=lambda each: each.at)
    since = NOW - draw.choice((1, 7, 10, 28, 200)) * DAY
    notes.sort(key=lambda note: note["at"])
    return Sources([facts], notes, landings, NOW, since), changes


@pytest.mark.parametrize("seed", range(40))
def test_totals_are_the_sums_of_the_weeks_and_all_forms_agree(seed):
    """The page, the CSV file and the JSON document show the same values for random fleets."""
    found = delivery(*fleet(random.Random(seed)))
    assert found.weeks[0].since == found.period.since
    assert found.weeks[-1].until == found.period.until
    assert all(a.until == b.since for a, b in zip(found.weeks, found.weeks[1:], strict=False))
    for each in FIGURES:
        weeks = [week.figures[each.name] for week in found.weeks]
        whole = found.period.figures[each.name]
        assert sum(week.sample for week in weeks) == whole.sample, each.name
        if each.sums and whole.value is not None:
            assert sum(week.value for week in weeks) == pytest.approx(whole.value, abs=1e-4)
    doc = json.loads(json.dumps(msgspec.to_builtins(found)))
    assert msgspec.convert(doc, Delivery) == found
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    periods = [found.period, *([found.before] if found.before else []), *found.weeks]
    assert len(rows) == len(periods) * len(FIGURES)
    told = page({**figures(), "delivery": doc})
    for row in rows:
        period = next(p for p in periods if (p.name, p.since) == (row["period"], row["since"]))
        each = period.figures[row["figure"]]
        assert row["value"] == ("" if each.value is None else repr(each.value))
        assert (int(row["sample"]), row["definition"]) == (
            each.sample, BY_NAME[row["figure"]].definition,
        )  # fmt: skip
        if row["period"] == "period":
            title, text = BY_NAME[row["figure"]].title, shown(row["unit"], each.value)
            assert f'<td>{title}</td><td class="n">{text}</td>' in told


def test_a_change_is_reworked_once_and_within_fourteen_days():
    """Reverted by name and by content, and fixed: it counts once, as reverted."""
    own = lines("a.py", "total = price * count")
    changes = [
        change(1, 0, "add the total", own),
        change(2, DAY, "fix the total", lines("a.py", "total = 0"), own),
        change(3, 2 * DAY, f'Revert "add the total"\n\nThis reverts commit {sha(1)}.'),
        change(4, 3 * DAY, "again: Revert\n\nThis reverts commit " + sha(1)[:12]),
    ]
    assert reworked(changes) == {sha(1): "reverted"}
    late = change(5, WINDOW + 1, "fix the total", (), own)
    assert reworked([changes[0], late]) == {}
    soon = late._replace(at=WINDOW)
    assert reworked([changes[0], soon]) == {sha(1): "reverted"}, "exactly its reverse"


def test_only_a_fix_of_the_same_lines_is_rework():
    """Not a change of other lines or files, not one without a word of a fix, not of brackets."""
    first = change(1, 0, "add it", lines("a.py", "x = compute()", "}"))
    others = (
        change(2, 1, "fix it", lines("a.py", "z"), lines("b.py", "x = compute()")),
        change(2, 1, "fix it", lines("a.py", "z"), lines("a.py", "y = compute()")),
        change(2, 1, "rename it", lines("a.py", "z"), lines("a.py", "x = compute()")),
        change(2, 1, "a prefix of bugbear", lines("a.py", "z"), lines("a.py", "x = compute()")),
        change(2, 1, "fix it", lines("a.py", "z"), lines("a.py", "}")),
    )
    assert [reworked([first, other]) for other in others] == [{}] * 5
    fix = change(2, 1, "Fixes the crash", lines("a.py", "z"), lines("a.py", "x = compute()"))
    assert reworked([first, fix]) == {first.sha: "fixed"}
    owner = change(3, 1, "move it", lines("a.py", "x = compute()"), lines("a.py", "x = compute()"))
    assert reworked([first, owner, fix._replace(at=2)]) == {owner.sha: "fixed"}, "the last owner"


def test_changes_are_read_from_git(tmp_path):
    """With lines that look like headers, files without an end of line, and no merges."""
    run_git(tmp_path, "init", "-q", "-b", "main")

    def commit(text, message):
        (tmp_path / "a b.txt").write_text(text)
        run_git(tmp_path, "add", "-A")
        run_git(tmp_path, "commit", "-q", "-m", message)

    commit("one\n-- a/other\n++ b/other", "first\n\nLeadhand-Task: t")
    commit("one\ntwo\n", "fix two")
    run_git(tmp_path, "revert", "--no-edit", "HEAD~1", check=False)
    run_git(tmp_path, "revert", "--abort")
    run_git(tmp_path, "revert", "--no-edit", "HEAD")
    empty = tmp_path / "gitconfig"
    empty.write_text("")
    found = asyncio.run(read_changes(Git(tmp_path / ".git", empty), 0, "main"))
    assert [each.subject for each in found] == ["first", "fix two", 'Revert "fix two"']
    assert found[0].added == lines("a b.txt", "one", "-- a/other", "++ b/other")
    assert found[1].removed == lines("a b.txt", "-- a/other", "++ b/other")
    assert [each.by_fleet for each in found] == [True, False, False]
    assert reworked(found) == {found[0].sha: "fixed", found[1].sha: "reverted"}
    assert asyncio.run(read_changes(Git(tmp_path / ".git", empty), 0, "nothing")) is None


def test_what_has_no_data_is_not_measured():
    """No epic: nothing of the fleet; no cost, no failure, no history: none of these figures."""
    nothing = delivery(Sources([], [], [], NOW, NOW - WEEK), None)
    assert {each.value for each in nothing.period.figures.values()} == {None}
    assert nothing.before is None
    assert "not measured" in page({**figures(), "delivery": msgspec.to_builtins(nothing)})
    facts = EpicFacts(run="epic-a", started=NOW - 3 * HOUR)
    facts.tasks["a"] = TaskFacts(run="epic-a", task="a", status="succeeded", attempts=1)
    landing = Landing("f" * 40, "epic-a", "a", 1, NOW - HOUR, "", "write a")
    found = delivery(Sources([facts], [], [landing], NOW, NOW - WEEK), None).period.figures
    assert (found["merged"].value, found["lead_hours_median"].value) == (1, 2.0)
    facts.asked_at = NOW - 6 * HOUR  # its issue waited before the fleet took it
    asked = delivery(Sources([facts], [], [landing], NOW, NOW - WEEK), None).period.figures
    assert asked["lead_hours_median"].value == 5.0
    unknown = ("spend", "cost_per_merged", "merged_per_week", "recovery_rate", "rework_share")
    assert {found[name].value for name in (*unknown, "changes")} == {None}
    assert (found["human_minutes"].value, found["without_person_share"].value) == (0.0, 1.0)


def test_minutes_of_people_are_bounded_by_the_question_and_by_their_last_decision():
    """Ten minutes at most; less where the question or the decision before is nearer."""
    facts = EpicFacts(run="epic-a", started=NOW - DAY)
    at = NOW - HOUR
    facts.acts = [(at, "ana", at - HOUR), (at + 2 * MINUTE, "ana", at - HOUR)]
    facts.acts += [(at + 3 * MINUTE, "bo", at)]
    notes = [{"at": at + 4 * MINUTE, "what": "ordered", "actor": "bo"}]
    found = delivery(Sources([facts], notes, [], NOW, NOW - WEEK), []).period.figures
    assert (found["human_minutes"].value, found["decisions"].value) == (10 + 2 + 3 + 1, 4)


async def test_a_fleets_report_has_figures_of_its_log_its_journal_and_git(tmp_path, user):
    """Two tasks, one of them red at first; nothing is known of the time before but commits."""
    opened = standing(tmp_path, user, json.dumps({"b": ["red"], "cost": 0.25}))
    async with opened() as fleet:
        fleet.submit(epic(tmp_path, "one", "a", "b"))
        await fleet.idle()
    doc = await Evidence(tmp_path / "fleet").report(7 * 86_400.0)
    period, before = doc["delivery"]["period"]["figures"], doc["delivery"]["before"]["figures"]
    found = {name: each["value"] for name, each in period.items()}
    assert (found["merged"], found["changes"], found["reverted"], found["fixed"]) == (2, 2, 0, 0)
    assert (found["recovery_rate"], found["without_person_share"]) == (1.0, 1.0)
    assert found["spend"] == doc["spend"]["in_window"] == 0.75
    assert (found["cost_per_merged"], found["merged"]) == (0.375, doc["landed"]["in_window"])
    assert {name for name, each in before.items() if each["value"] is not None} <= {
        "changes", "changes_per_week", "changes_reworked", "changes_rework_share",
    }  # fmt: skip
    assert "Cost per merged change" in page(doc)
