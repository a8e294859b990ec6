"""The page of `leadhand fleet report`, and the lines of `leadhand fleet status`."""

from collections import Counter

import msgspec

from leadhand.fleet.commands.status import lines
from leadhand.fleet.planning.record import FinishedTask, PlannedEpic, planning_record
from leadhand.fleet.status.delivery import delivery
from leadhand.fleet.status.figures import Sources
from leadhand.fleet.status.report_page import page
from tests.codec.test_html import HOSTILE, Parsed

AT = "2026-01-02T03:04:05Z"


def past(*texts):
    """An epic with a task in the folder of each text."""
    tasks = [FinishedTask(1, 1, landed=True, writes=(f"{each}/",)) for each in texts]
    return PlannedEpic(tasks, Counter(split=1), 2, 1)


def figures(*texts):
    """The document of `fleet status`, with these texts wherever agents and people write."""
    rate = {"tasks": 1, "recovered": 2, "people": 0, "times": 2, "won": 1, "rate": 0.5}
    return {
        "since": AT,
        "at": AT,
        "agents": {"peak": 3, "runs": 3, "now": 0},
        "landed": {
            "in_window": 1, "best_hour": 1, "per_hour": 0.5, "last_week": 2,
            "by_hour": [[0, 1], [1, 2]],
        },
        "recovery": {
            "rate": 0.5, "recovered": 1, "first_pass": None,
            "by_class": [{"class": each, **rate} for each in texts],
            "by_strategy": [{"class": each, "strategy": each, **rate} for each in texts],
        },
        "spend": {"per_landed": 0.01, "in_window": 5.5},
        "train": {
            "conflicts": 1, "tests": 2, "reused": 0, "red": 1, "bisections": 0, "batch_mean": 1.5,
            "batch_max": 3, "counted": 0, "gate_s": {"p50": None},
            "ejected": dict.fromkeys(texts, 1),
        },
        "queue": {"wait_s": {"p50": 1, "p95": 2}},
        "flow": {"planned": 1, "dead": 0},
        "ladder": {"try_again": 1},
        "disagreements": list(texts),
        "flaky": [{"name": each, "last": AT, "times": 1} for each in texts],
        "epics": [
            {
                "title": each, "run": "r", "status": each, "pull_request": each, "landed": 1,
                "tasks": 2, "cost": 0.05,
            }
            for each in texts
        ],
        "dead_letters": [
            {"run": each, "task": each, "class": each, "attempts": 2, "why": each} for each in texts
        ],
        "delivery": msgspec.to_builtins(delivery(Sources([], [], [], 0), None)),
        "planning": msgspec.to_builtins(planning_record([past(*texts)])),
        "commits": [{"sha": "a" * 40, "task": each, "by": each, "subject": each} for each in texts],
    }  # fmt: skip


def test_what_agents_write_stays_text_and_the_page_loads_nothing():
    """As many elements as with plain texts, and no other attributes."""
    found, plain = Parsed(page(figures(*HOSTILE))), Parsed(page(figures(*"abcdefg")))
    assert found.tags == plain.tags
    assert {name for name, _ in found.attributes} == {name for name, _ in plain.attributes}
    assert not {"script", "img", "link", "iframe", "object", "form", "a"} & set(found.tags)
    for text in HOSTILE:
        assert found.text.count(text) >= 10


def test_figures_stand_below_each_other():
    """A column of nothing but figures; what is unknown is a dash."""
    made = page(figures("a"))
    assert '<th>Stage</th><th class="n">Tasks</th>' in made
    assert '<td class="n">50%</td>' in made
    assert '<td>Gate duration, p50 in seconds</td><td class="n">–</td>' in made
    assert "most in one hour: 2, of the last 2 hours" in made
    assert "<p>No failures.</p>" in page(figures())
    assert "<p>They agree: every finished task" in page(figures())


def test_the_status_lines_name_the_figures():
    """Running agents with the peak, merges, bisections, attempts by kind; singular for one."""
    doc = figures() | {"live": None, "limits": [], "tasks": {"merged": 2}, "questions": 1}
    doc["landed"] |= {"total": 15, "last_hour": 3}
    doc["queue"] |= {"waiting": 1, "oldest_s": 4.2}
    doc["recovery"] |= {"people": 0, "open": 1}
    doc["spend"] |= {"total": 5.5, "today": 1}
    doc["train"] |= {"tests": 1, "bisections": 1}
    doc["ladder"] = {"first": 16, "same_conversation": 4, "stronger": 1, "asked": 1, "split": 0}
    assert list(lines(doc)) == [
        "fleet      not running; `leadhand fleet start` resumes the open tasks",
        "agents     0 running (peak 3, 3 started)",
        "tasks      2 merged",
        "merged     15 (3 in the last hour, 2 in the last week)",
        "queue      1 in merge queue, oldest 4 s",
        "tests      1 batch tested, 1 failed, 1 bisection, 1.5 changes per merge, 1 conflict",
        "recovery   1 of 1 failed task recovered, 50%, 1 still open; first pass –",
        "attempts   16 first, 4 resumed, 1 stronger model, 1 to a person",
        "spend      $5.50, $1.00 today, $0.0100 per commit",
        "questions  1 waiting for an answer: `leadhand inbox`",
    ]
