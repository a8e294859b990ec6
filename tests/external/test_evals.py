"""Planning and scheduling on data from outside: a part, drawn by a seed. `make evals` plays all."""

from __future__ import annotations

import pytest

from tests.external import data, dialogues, evals
from tests.support.need import need


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("name", list(evals.SUITES))
def test_every_figure_is_reached(name):
    """Each line of the table that has a goal meets it."""
    folder = data.folder(evals.SUITES[name].folder)
    need(evals.there(name), f"{folder}; LEADHAND_TEST_DATA names another folder")
    lines = evals.play(name, evals.SUITES[name].part)
    print(evals.table(lines))
    assert [line for line in lines if line.wanted and not line.met] == []
    assert any(line.n for line in lines if line.wanted)


def test_a_missed_figure_is_said():
    """The table shows what is short, and what was not played is not met."""
    lines = [
        evals.share("good", 99, 100, 0.98),
        evals.share("short", 97, 100, 0.98),
        evals.share("nobody", 0, 0, 0.98),
        evals.none_of("clean", [], 3),
        evals.none_of("dirty", ["it broke"], 3),
    ]
    assert [line.met for line in lines] == [True, False, False, True, False]
    shown = evals.table(lines).splitlines()
    assert shown[2].split() == ["short", "100", "97.0%", ">=", "98.0%", "MISSED"]
    assert "1: it broke" in shown[5]


def test_parts_are_drawn_by_the_seed(monkeypatch):
    """The same part each time, and of all cases."""
    seen: list[list[int]] = []

    def lines(played):
        seen.append(played)
        return []

    suite = evals.Suite("", lambda: list(range(1000)), lambda case: case, lines)
    monkeypatch.setitem(evals.SUITES, "test", suite)
    evals.play("test", 5)
    evals.play("test", 5)
    evals.play("test")
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 5
    assert max(seen[0]) > 100
    assert seen[2] == list(range(1000))


def test_a_plan_on_one_line_is_judged_as_on_many():
    """17 calls on one line got feedback that named no need: the figure that other data missed."""
    need(evals.there("dialogues"), str(data.folder("planbench")))
    rows = [row for row in dialogues.cases() if any(not each["valid"] for each in row["rounds"])]
    for row in rows[:3]:
        rounds = [
            {**each, "plan": [" ".join(f"({call})" for call in dialogues.calls_of(each["plan"]))]}
            for each in row["rounds"]
            if each["plan"]
        ]
        lines = evals.dialogues_lines([dialogues.play({**row, "rounds": rounds})])
        assert [line for line in lines if not line.met] == []
