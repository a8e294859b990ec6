"""Suites as they are written: what is made of them, and what is wrong with others."""

import pytest

from leadhand.errors import UsageError
from leadhand.evals.suite import chosen, read_suite

GOOD = """
[suite]
repeat = 4
[[goal]]
name = "report"
want = ["report"]
check = ["true"]
[factors.planner]
goal = { planner = "goal" }
flat = { mode = "direct", tape = "tapes/{goal}.json" }
[factors.policy]
plain = {}
careful = { settings = { "policy.review" = true } }
"""


def written(folder, text):
    (folder / "suite.toml").write_text(text)
    return folder


def test_every_combination_is_an_arm(tmp_path):
    found = read_suite(written(tmp_path, GOOD))
    names = ["goal/plain", "goal/careful", "flat/plain", "flat/careful"]
    assert [arm.name for arm in found.arms] == names
    assert found.arms[3].levels == {"planner": "flat", "policy": "careful"}
    assert (found.arms[3].mode, found.arms[3].settings) == ("direct", {"policy.review": True})
    assert (found.repeat, found.name) == (4, tmp_path.name)


def test_names_of_tapes_are_filled(tmp_path):
    """By goal, repetition and the levels of the arm; a level's tape comes before the suite's."""
    text = GOOD.replace("repeat = 4", 'repeat = 4\ntape = "t/{planner}-{policy}-{goal}-{trial}.gz"')
    plain, _, flat, _ = read_suite(written(tmp_path, text)).arms
    assert plain.fill(plain.tape, "report", 3) == "t/goal-plain-report-3.gz"
    assert flat.fill(flat.tape, "report", 3) == "tapes/report.json"


def test_a_suite_without_factors_has_one_arm(tmp_path):
    found = read_suite(written(tmp_path, GOOD.partition("[factors")[0]))
    assert [(arm.name, arm.levels) for arm in found.arms] == [("only", {})]


def test_a_part_of_a_suite(tmp_path):
    suite = read_suite(written(tmp_path, GOOD))
    part = chosen(suite, repeat=1, arms=["flat/plain"], goals=[])
    assert (part.repeat, part.factors) == (1, {"planner": ["flat"], "policy": ["plain"]})
    with pytest.raises(UsageError, match=r"has no arm 'x'. There are: goal/plain"):
        chosen(suite, repeat=None, arms=["x"], goals=[])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("repeat = 4", "repeat = 0", r"suite\.repeat: from 1 to 1000"),
        ("repeat = 4", "repeat = 'x'", r"suite\.repeat: Expected `int`"),
        ("repeat = 4", "reapeat = 4", r"unknown field `reapeat`"),
        ("repeat = 4", "root = 'sub'", r"suite\.root: sub does not hold"),
        ('check = ["true"]', "check = []", r"goal\[0\]\.check: is empty"),
        ('check = ["true"]', "", r"missing required field `check`"),
        ('name = "report"', 'name = "a/b"', r"goal\[0\]\.name: letters"),
        ('want = ["report"]', "", r"goal\[0\]: needs text, want or plan"),
        ('mode = "direct"', 'mode = "fast"', r"factors\.planner\.flat\.mode: 'fast' is none of"),
        ("plain = {}", "plain = { mode = 'whole' }", r"planner, policy all set mode"),
        ("plain = {}", "plain = { polcy = 1 }", r"unknown field `polcy`"),
        ("plain = {}", 'plain = { tape = "{gaol}" }', r"plain\.tape: \{gaol\} stands for nothing"),
        ("repeat = 4", 'tape = "{x}"', r"suite\.tape: \{x\} stands for nothing. There are: goal"),
        ("plain = {}", "plain = { env = { A = 1 } }", r"Expected `str`, got `int`"),
        (
            'mode = "direct"',
            'mode = "direct", settings = { "policy.review" = false }',
            r"planner, policy all set policy\.review",
        ),
        ("[factors.policy]", "[factors.goal]", r"factors\.goal: is the name of something else"),
        ("[suite]", "[suite", r"Expected ']'"),
        ("repeat = 4", "repeat = 1000\ntimeout_s = 0", r"timeout_s: more than 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, told):
    assert old in GOOD
    with pytest.raises(UsageError, match=told) as caught:
        read_suite(written(tmp_path, GOOD.replace(old, new)))
    assert str(tmp_path / "suite.toml") in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        UsageError, match=r"no\.toml: no such file or directory\. Fix: give a suite"
    ):
        read_suite(tmp_path / "no.toml")
