"""The page of `leadhand fleet report`."""

from leadhand.fleet.status.report_page import page
from tests.codec.test_html import HOSTILE, Parsed

AT = "2026-01-02T03:04:05Z"


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
            "conflicts": 1, "tests": 2, "red": 1, "bisections": 0, "batch_mean": 1.5,
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
