"""The suite of examples/eval: its tapes still answer, and its figures are those of the page.

All 288 trials take minutes; a part of them is played here and compared with the results that the
page of evidence is made of, row by row, but for the seconds.
"""

import csv
import json
import shutil

import pytest

from leadhand.evals.suite import read_suite
from scripts import plan_figures
from tests.support.cli import Folder

pytestmark = pytest.mark.real
ARMS = ("flat/off/shaky", "flat/on/shaky", "fine/on/shaky", "coarse/off/steady")
GOALS = ("one-a", "chain-g", "moved-i", "bill-k")
TIMED = "seconds"


def rows(file):
    """The rows of a file of trials by what they are of, without what is timed."""
    with file.open(newline="") as opened:
        found = list(csv.DictReader(opened))
    return {
        (row["goal"], row["arm"], row["trial"]): {k: v for k, v in row.items() if k != TIMED}
        for row in found
    }


def test_a_part_of_the_suite_is_played_again_as_it_was_recorded(tmp_path):
    folder = Folder(tmp_path)
    left_out = shutil.ignore_patterns("eval-results", "__pycache__")
    shutil.copytree(plan_figures.MEASURED.parent, tmp_path / "suite", ignore=left_out)
    words = [word for arm in ARMS for word in ("--arm", arm)]
    words += [word for goal in GOALS for word in ("--goal", goal)]
    done = folder.run("eval", "suite", "--trust", "--repeat", "1", *words, timeout_s=600)
    assert done.code == 0, done
    played = rows(tmp_path / "suite" / "eval-results" / "trials.csv")
    measured = rows(plan_figures.MEASURED / "trials.csv")
    assert len(played) == len(ARMS) * len(GOALS)
    assert played == {key: measured[key] for key in played}


def test_the_page_says_what_was_measured():
    found = json.loads((plan_figures.MEASURED / "comparison.json").read_text())
    text = plan_figures.PAGE.read_text()
    assert plan_figures.page(text, found) == text, "run python scripts/plan_figures.py"
    assert (found["trials"], found["errors"]) == (288, [])
    assert found["digest"] == read_suite(plan_figures.MEASURED.parent).digest
    other = json.loads(json.dumps(found))
    other["arms"][0]["success"]["value"] += 0.5
    assert plan_figures.page(text, other) != text


def test_what_the_page_concludes_is_what_was_measured():
    found = json.loads((plan_figures.MEASURED / "comparison.json").read_text())
    shares = {each["figure"]: each["shares"] for each in found["variance"]}

    def explained(figure, name):
        return shares[figure][name]["share"]

    others = [explained("success", name) for name in ("checks", "model", "goal")]
    assert explained("success", "planning") < min(others)
    assert explained("success", "goal") > 2 * explained("success", "planning")
    assert explained("cost", "planning") > explained("success", "planning")
    for kind in plan_figures.KINDS:
        flat = plan_figures.costs(kind, "flat")
        assert min(plan_figures.costs(kind, planner) for planner in ("fine", "coarse")) > flat

    def success(kind, level, rest=""):
        values = [
            share
            for goal, arms in found["by_goal"].items()
            for arm, share in arms.items()
            if goal.startswith(kind) and arm.startswith(level) and arm.endswith(rest)
        ]
        return sum(values) / len(values)

    assert abs(success("one", "flat") - success("one", "fine")) < 0.1
    assert abs(success("one", "flat") - success("one", "coarse")) < 0.1
    assert success("moved", "flat") == success("moved", "fine") == success("moved", "coarse")
    assert success("bill", "flat") + 0.2 < min(success("bill", x) for x in ("fine", "coarse"))
    assert success("list", "flat") < success("list", "coarse") < success("list", "fine")
    levels = {(each["factor"], each["level"]): each for each in found["levels"]}
    false = {level: levels["checks", level]["false_success"]["value"] for level in ("off", "on")}
    assert false["on"] < false["off"] / 2
    arms = {each["arm"]: each for each in found["arms"]}
    for model in ("steady", "shaky"):
        first = [
            arms[f"{size}/on/{model}"]["first_pass"]["value"] for size in ("flat", "coarse", "fine")
        ]
        assert first == sorted(first)
        assert first[0] < first[2] - 0.1
    gain = {
        planning: arms[f"{planning}/on/shaky"]["success"]["value"]
        - arms[f"{planning}/off/shaky"]["success"]["value"]
        for planning in ("flat", "fine")
    }
    assert gain["flat"] == 0 < gain["fine"]
    asked = [arms[f"{planning}/on/shaky"]["questions"]["value"] for planning in ("flat", "fine")]
    assert asked[0] > asked[1]
