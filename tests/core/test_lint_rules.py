"""Rules about the whole plan: each fires on its case, and not on the good case beside it."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest
from msgspec import to_builtins

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.lint.plan import lint
from leadhand.core.lint.rules import RULES
from leadhand.core.wording import shown
from tests.support import plans

TEXT = {"type": "string"}

step = functools.partial(plans.step, worker="any")


def worker(name: str, **offer: Any) -> WorkerSpec:
    kind = offer.pop("kind", "function")
    limit = offer.pop("max_concurrency", None)
    offered = {"": Offer(**{"returns": TEXT, **offer})}
    return WorkerSpec(name=name, kind=kind, offers=offered, max_concurrency=limit)


CATALOG = Catalog(
    [
        worker("any"),
        worker("mute", returns=None),
        worker("command", returns=None, kind="command"),
        worker("checked", returns=None, result_check=True),
        worker("raw", gives=("raw",)),
        worker("clean", needs=("raw",), gives=("table",)),
        worker("burn", drops=("raw", "table")),
        worker("renew", drops=("table",), gives=("table",)),
        worker("claim", gives=("raw",), returns=None),
        worker("report", gives=("pdf", "log")),
        worker("typist", needs=("text",), parameters={"properties": {"text": TEXT}}),
        worker("logger", writes=("app.log",)),
        worker("filer", writes=("reports/",)),
        worker("single", writes=("app.log",), max_concurrency=1),
        worker("deployer", effects=("cluster",)),
        worker("bounded", effects=("cluster",), writes=("cluster",), timeout_s=60.0),
        worker("slow", est_s=7200.0, timeout_s=60.0),
        worker("dear", cost=3.0),
        worker("pure", effects=(), reads=("in.csv",), writes=("out.csv",)),
        worker("apart", effects=(), reads=("other.csv",)),
        worker("reader", effects=(), reads=("out.csv",)),
    ]
)


def plan(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"steps": list(steps), **fields}


def goal(*want: str, **more: Any) -> dict[str, Any]:
    return {"want": list(want), **more}


ALWAYS = {"promise-widened"}
"""Warnings that are told before every run: what does not count is not left out in silence."""

A, B, C = step("a"), step("b", "a"), step("c", "b")
EST = {"est": "1 minute"}

CASES = [
    # structure
    (
        "step-orphan",
        "steps[3]",
        plan(A, B, C, step("d")),
        plan(A, B, C, step("d", "a")),
    ),
    ("step-orphan", "steps[3]", plan(A, B, C, step("d")), plan(A, step("b"), step("c"))),
    ("step-orphan", "steps[3]", plan(A, B, C, step("d")), plan(A, B, step("c"), step("d"))),
    (
        "step-orphan",
        "steps[3]",
        plan(A, B, C, step("d", worker="raw"), goal=goal("pdf"), final=False),
        plan(A, B, C, step("d", worker="raw"), goal=goal("raw")),
    ),
    (
        "plan-empty",
        "goal.want",
        plan(step("a", worker="raw"), goal=goal("table")),
        plan(step("a", worker="raw"), goal=goal("raw")),
    ),
    (
        "plan-empty",
        "goal.want",
        plan(step("a", worker="raw"), goal=goal("table")),
        plan(step("a", worker="raw"), goal=goal("table", have={"table": 1})),
    ),
    (
        "plan-empty",
        "goal.want",
        plan(step("a", worker="raw"), goal=goal("table")),
        plan(step("a", worker="raw"), goal=goal("table"), final=False),
    ),
    # semantics
    (
        "need-unmet",
        "steps[0]",
        plan(step("a", worker="clean"), goal=goal("table")),
        plan(step("r", worker="raw"), step("a", "r", worker="clean"), goal=goal("table")),
    ),
    (
        "need-unmet",
        "steps[1]",
        plan(step("r", worker="raw"), step("a", worker="clean"), goal=goal("table")),
        plan(step("a", worker="clean"), goal=goal("table", have={"raw": 1})),
    ),
    (
        "need-unmet",
        "steps[0].needs",
        plan(step("a", needs="mood")),
        plan(step("a", needs="mood"), params={"mood": "good"}),
    ),
    (
        "need-unmet",
        "steps[0]",
        plan(step("a", worker="typist"), goal=goal("raw", have={"raw": 1})),
        plan(
            step("a", worker="typist", parameters={"text": "x"}), goal=goal("raw", have={"raw": 1})
        ),
    ),
    (
        "goal-undone",
        "steps[2]",
        plan(
            step("r", worker="raw"),
            step("c", "r", worker="clean"),
            step("x", "c", worker="burn"),
            goal=goal("table"),
        ),
        plan(
            step("r", worker="raw"),
            step("c", "r", worker="clean"),
            step("x", "c", worker="renew"),
            goal=goal("table"),
        ),
    ),
    (
        "fact-dropped",
        "steps[1]",
        plan(
            step("r", worker="raw"),
            step("x", "r", worker="burn"),
            step("c", "r", worker="clean"),
            goal=goal("raw"),
        ),
        plan(
            step("r", worker="raw"),
            step("c", "r", worker="clean"),
            step("x", "c", worker="burn"),
            goal=goal("raw"),
        ),
    ),
    (
        "fact-dropped",
        "steps[1]",
        plan(
            step("r", worker="raw"),
            step("x", "r", worker="burn"),
            step("c", "x", worker="clean"),
            goal=goal("table"),
        ),
        plan(
            step("r", worker="raw"),
            step("x", "r", worker="burn"),
            step("s", "x", worker="raw"),
            step("c", "s", worker="clean"),
            goal=goal("table"),
        ),
    ),
    (
        "gives-useless",
        "steps[1]",
        plan(step("r", worker="raw"), step("x", worker="report"), goal=goal("raw")),
        plan(step("r", worker="raw"), step("x", worker="report"), goal=goal("raw", "pdf")),
    ),
    (
        "rollback-partial",
        "steps[0]",
        plan(
            step("a", worker="deployer"),
            step("b", "a", undo={"worker": "any"}, failure_action="rollback"),
        ),
        plan(
            step("a", worker="deployer", undo={"worker": "any"}),
            step("b", "a", failure_action="rollback"),
        ),
    ),
    (
        "rollback-partial",
        "steps[0]",
        plan(
            step("a", worker="deployer"),
            step("b", "a", undo={"worker": "any"}, failure_action="rollback"),
        ),
        plan(
            step("a", worker="deployer"),
            step("b", "a", undo={"worker": "any"}, failure_action="rollback"),
            rollback_plan="the-old-one",
        ),
    ),
    (
        "need-unmet",
        "steps[1]",
        plan(step("a", gives="luck"), step("b", "a", worker="clean")),
        plan(step("a", gives="raw"), step("b", "a", worker="clean")),
    ),
    (
        "promise-widened",
        "steps[0].gives",
        plan(step("a", gives="raw"), step("b", "a", worker="clean")),
        plan(step("a", worker="raw", gives="raw"), step("b", "a", worker="clean")),
    ),
    (
        "promise-widened",
        "steps[0].idempotent",
        plan(step("a", idempotent=True)),
        plan(step("a", idempotent=False)),
    ),
    (
        "promise-widened",
        "steps[1].needs",
        plan(step("r", worker="raw"), step("a", "r", worker="clean", needs=[])),
        plan(step("r", worker="raw"), step("a", "r", worker="clean", needs=["raw", "mood"])),
    ),
    (
        "promise-widened",
        "steps[0].writes",
        plan(step("a", worker="filer", parameters={"n": 1}, writes=["elsewhere"])),
        plan(step("a", parameters={"n": 1}, writes=["elsewhere"])),
    ),
    (
        "fact-unchecked",
        "steps[0]",
        plan(step("r", worker="claim"), step("c", "r", worker="clean"), goal=goal("table")),
        plan(step("r", worker="raw"), step("c", "r", worker="clean"), goal=goal("table")),
    ),
    # contract
    (
        "criteria-missing",
        "steps[0]",
        plan(step("a", worker="mute")),
        plan(step("a", worker="checked")),
    ),
    (
        "criteria-missing",
        "steps[0]",
        plan(step("a", worker="mute")),
        plan(step("a", worker="command")),
    ),
    (
        "criteria-missing",
        "steps[0]",
        plan(step("a", worker="mute")),
        plan(step("a", worker="mute", success_criteria="data.n > 1")),
    ),
    (
        "criteria-idle",
        "steps[0].success_criteria",
        plan(step("a", success_criteria="1 == 1")),
        plan(step("a", success_criteria="data.n == 1")),
    ),
    (
        "result-undeclared",
        "steps[0]",
        plan(step("a", worker="mute"), step("b", parameters={"x": "${{ steps.a.data }}"})),
        plan(A, step("b", parameters={"x": "${{ steps.a.data }}"})),
    ),
    (
        "boundary-undeclared",
        "steps[0]",
        plan(step("a", worker="deployer")),
        plan(step("a", worker="bounded")),
    ),
    (
        "dependency-outside",
        "steps[0].description",
        plan(step(description="Read https://a.example/x.")),
        plan(
            step(description="Read https://a.example/x.", parameters={"url": "https://a.example/x"})
        ),
    ),
    (
        "step-repeated",
        "steps[1]",
        plan(step("a", parameters={"n": 1}), step("b", parameters={"n": 1})),
        plan(step("a", parameters={"n": 1}), step("b", parameters={"n": 2})),
    ),
    ("step-repeated", "steps[1]", plan(step("a"), step("b")), plan(A, B)),
    (
        "step-repeated",
        "steps[1]",
        plan(step("a", description="Ring the bell"), step("b", description="ring the bell!")),
        plan(step("a", description="Ring the bell"), step("b", description="Mow the lawn")),
    ),
    (
        "step-repeated",
        "steps[1]",
        plan(step("a"), step("b")),
        plan(step("a"), step("b", worker="checked")),
    ),
    # granularity
    ("step-fine", "steps[0].est", plan(step(est=0.001)), plan(step(est=1))),
    (
        "step-dominant",
        "steps[0].est",
        plan(step("a", est=100), step("b", est=10), step("c", est=10)),
        plan(step("a", est=10), step("b", est=10), step("c", est=10)),
    ),
    ("estimate-missing", "steps[1]", plan(step("a", **EST), B), plan(A, B)),
    (
        "estimate-over-timeout",
        "steps[0]",
        plan(step("a", worker="slow")),
        plan(step("a", worker="slow", est=5)),
    ),
    (
        "estimate-over-timeout",
        "steps[0].est",
        plan(step(est=9, timeout=8)),
        plan(step(est=8, timeout=9)),
    ),
    # coupling
    (
        "write-conflict",
        "steps[1].writes",
        plan(step("a", writes=["x/y"]), step("b", writes=["x/*"])),
        plan(step("a", writes=["x/y"]), step("b", writes=["x/z"])),
    ),
    (
        "write-conflict",
        "steps[1].writes",
        plan(step("a", writes=["x"]), step("b", writes=["x/deep/file"])),
        plan(step("a", writes=["x"]), step("b", "a", writes=["x/deep/file"])),
    ),
    (
        "write-conflict",
        "steps[1]",
        plan(step("a", worker="logger"), step("b", worker="logger")),
        plan(step("a", worker="single"), step("b", worker="single")),
    ),
    (
        "write-conflict",
        "steps[1].writes",
        plan(step("a", writes=["x"]), step("b", writes=["x"])),
        plan(
            step("a", writes=["x"], uses="x"), step("b", writes=["x"], uses="x"), resources={"x": 1}
        ),
    ),
    (
        "write-conflict",
        "steps[1].writes",
        plan(step("a", writes=["x"]), step("b", writes=["x"])),
        plan(step("a", writes=["x"]), step("b", writes=["x"]), limits={"concurrency": 1}),
    ),
    (
        "write-conflict",
        "steps[1].writes",
        plan(
            step("a", writes=["x"], uses="x"), step("b", writes=["x"], uses="x"), resources={"x": 2}
        ),
        plan(
            step("a", writes=["x"], uses="x"), step("b", writes=["x"], uses="x"), resources={"x": 1}
        ),
    ),
    (
        "write-conflict",
        "steps[1]",
        plan(step("a", worker="logger"), step("b", worker="logger")),
        plan(
            step("a", worker="logger"),
            step("b", worker="logger"),
            limits={"workers": {"logger": 1}},
        ),
    ),
    (
        "write-conflict",
        "steps[1]",
        plan(step("a", worker="single", alternatives=["any"]), step("b", worker="single")),
        plan(step("a", worker="single"), step("b", worker="single")),
    ),
    (
        "read-conflict",
        "steps[1]",
        plan(step("a", worker="pure"), step("b", worker="reader")),
        plan(step("a", worker="pure"), step("b", "a", worker="reader")),
    ),
    (
        "wait-needless",
        "steps[1].depends_on[0]",
        plan(step("a", worker="pure"), step("b", "a", worker="apart")),
        plan(step("a", worker="pure"), step("b", "a", worker="reader")),
    ),
    (
        "wait-needless",
        "steps[1].depends_on[0]",
        plan(step("a", worker="pure"), step("b", "a", worker="apart")),
        plan(
            step("a", worker="pure", success_criteria="data.n > 1"), step("b", "a", worker="apart")
        ),
    ),
    (
        "wait-needless",
        "steps[1].depends_on[0]",
        plan(step("a", worker="pure"), step("b", "a", worker="apart")),
        plan(step("a", worker="pure"), step("b", "a", worker="apart", effects=["a call"])),
    ),
    (
        "wait-needless",
        "steps[1].depends_on[0]",
        plan(
            step("a", effects=[], writes=["x"]),
            step("b", "a", effects=[], writes=["y"]),
        ),
        plan(step("a", worker="pure"), step("b", "a")),
    ),
    (
        "wait-needless",
        "steps[1].depends_on[0]",
        plan(step("a", worker="pure"), step("b", "a", worker="apart")),
        plan(
            step("a", worker="pure"),
            step("b", "a", worker="apart", parameters={"x": "${{ steps.a.data }}"}),
        ),
    ),
    (
        "parallel-none",
        "steps",
        plan(A, B, C, step("d", "c"), step("e", "d")),
        plan(A, B, C, step("d", "c"), step("e", "a")),
    ),
    (
        "write-hot",
        "steps[0].writes",
        plan(*(A | {"writes": ["x"]}, B | {"writes": ["x"]}, C | {"writes": ["x"]})),
        plan(A | {"writes": ["x"]}, B | {"writes": ["x"]}, C | {"writes": ["y"]}),
    ),
    # resilience and budget
    (
        "provider-single",
        "goal.want",
        plan(step("a", worker="report"), goal=goal("pdf")),
        plan(step("a", worker="raw"), goal=goal("raw")),
    ),
    (
        "timeout-missing",
        "steps[0]",
        plan(step("a", worker="deployer")),
        plan(step("a", worker="bounded")),
    ),
    (
        "timeout-missing",
        "steps[0]",
        plan(step(effects=["x"])),
        plan(step(effects=[])),
    ),
    (
        "timeout-missing",
        "steps[0]",
        plan(step("a", worker="deployer", effects=[])),
        plan(step("a", worker="bounded", effects=[])),
    ),
    (
        "budget-short",
        "budget",
        plan(step("a", worker="dear"), budget=2),
        plan(step("a", worker="dear"), budget=3),
    ),
    (
        "budget-short",
        "goal.budget",
        plan(step("a", worker="dear"), goal={"budget": {"cost": 2}}),
        plan(step("a", worker="dear"), goal={"budget": {"cost": 3}}),
    ),
    (
        "budget-short",
        "goal.deadline",
        plan(A, goal={"deadline": "90s"}, estimated_duration="2 minutes"),
        plan(A, goal={"deadline": "90s"}, estimated_duration="1 minute"),
    ),
    (
        "budget-short",
        "deadline",
        plan(A | EST, B | EST, deadline="90s"),
        plan(step("a", **EST), step("b", **EST), deadline="90s"),
    ),
    (
        "budget-short",
        "deadline",
        plan(step("a", **EST), step("b", **EST), deadline="90s", limits={"concurrency": 1}),
        plan(step("a", **EST), step("b", **EST), deadline="2m", limits={"concurrency": 1}),
    ),
    (
        "replan-absent",
        "steps[0].failure_action",
        plan(step(failure_action="replan")),
        plan(step(failure_action="replan"), planner="anthropic:claude-haiku-4-5"),
    ),
    (
        "goal-unchecked",
        "goal",
        plan(A, goal="Be happy"),
        plan(step("a", worker="checked"), goal="Be"),
    ),
    (
        "goal-unchecked",
        "goal",
        plan(A, goal="Be happy"),
        plan(A, goal={"text": "Be happy", "acceptance": ["data.happy"]}),
    ),
]


def fired(doc: dict[str, Any], rule: str, **more: Any) -> list[str]:
    return [each.place for each in lint(doc, CATALOG, **more) if each.rule == rule]


@pytest.mark.parametrize(
    ("rule", "place", "bad", "good"), CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)]
)
def test_a_rule_fires_on_its_case_and_not_on_the_next(rule, place, bad, good):
    """The right place; a fix; and for errors, both with and without advice."""
    assert fired(bad, rule) == [place]
    assert not fired(good, rule)
    assert all(each.fix for each in lint(bad, CATALOG) if each.rule == rule)
    blocks = RULES[rule].level == "error" or rule in ALWAYS
    assert bool(fired(bad, rule, advice=False)) == blocks
    told = [each for each in lint(bad, CATALOG, advice=False) if each.level != "error"]
    assert {each.rule for each in told} <= ALWAYS


def test_rules_of_the_whole_are_all_shown_here():
    """Those about single steps stand in test_lint.py, of the library in test_library.py."""
    elsewhere = {"rollback-absent", "rollback-unknown"}
    later = {name for name, rule in RULES.items() if rule.code >= "LH200"} - elsewhere
    assert later <= {case[0] for case in CASES}


def test_every_number_is_given_once_and_stays_in_its_hundred():
    codes = [rule.code for rule in RULES.values()]
    assert len(codes) == len(set(codes))
    assert all(code[:2] == "LH" and code[2] in "123456" and len(code) == 5 for code in codes)


def test_numbers_are_never_given_to_another_rule():
    """A few of them, by heart: whoever changes one breaks somebody's script."""
    known = {"LH101": "cycle", "LH106": "worker-unknown", "LH108": "reference-unresolved"}
    known |= {"LH109": "result-unfit", "LH201": "need-unmet", "LH501": "write-conflict"}
    by_code = {rule.code: name for name, rule in RULES.items()}
    assert {code: by_code[code] for code in known} == known


def test_wording_never_blocks():
    """Nor does anything else about how a step is described."""
    wording = [rule for rule in RULES.values() if "LH300" < rule.code < "LH500"]
    assert all(rule.level != "error" for rule in wording)


def test_without_a_catalogue_facts_are_not_judged():
    """Workers might give what no step says it gives."""
    assert not [each for each in lint(plan(step(needs=["x"])), None) if each.level == "error"]


def test_a_plan_that_does_not_speak_of_facts_is_not_judged_by_them():
    """A worker's needs matter only where the plan is about facts."""
    assert not fired(plan(step("a", worker="clean")), "need-unmet")


def test_what_a_worker_writes_in_general_is_not_certain():
    """A worker that writes into a folder may take another file each time: a warning."""
    doc = plan(
        step("a", worker="filer", parameters={"n": 1}),
        step("b", worker="filer", parameters={"n": 2}),
    )
    found = [each for each in lint(doc, CATALOG) if each.rule == "write-conflict"]
    assert [each.level for each in found] == ["warning"]
    assert not lint(doc, CATALOG, advice=False)
    doc["steps"][0]["writes"], doc["steps"][1]["writes"] = ["reports/1"], ["reports/2"]
    assert not fired(doc, "write-conflict")


def test_a_need_says_who_could_meet_it():
    """The step that gives it, else the worker, else that nobody does."""
    by = {"x": plan(step("r", worker="raw"), step("a", needs="raw"))}
    by["y"] = plan(step("a", needs="raw"))
    by["z"] = plan(step("a", needs="peace"))
    fixes = [each.fix for doc in by.values() for each in lint(doc, CATALOG, advice=False)]
    assert fixes == [
        'Step "r" gives it: add "r" to "depends_on".',
        "Worker raw, claim gives it: add a step before.",
        "No registered worker gives it.",
    ]


def test_of_many_givers_the_nearest_count():
    """A fact that is given and taken back again and again is followed all the same."""
    who = ("raw", "burn")
    chain = [step(f"s{i}", *([f"s{i - 1}"] if i else []), worker=who[i % 2]) for i in range(99)]
    good = plan(*chain, step("end", "s98", worker="clean"), goal=goal("table"))
    assert not lint(good, CATALOG, advice=False)
    bad = plan(*chain[:98], step("end", "s97", worker="clean"), goal=goal("table"))
    assert [each.rule for each in lint(bad, CATALOG, advice=False)] == ["fact-dropped"]


def test_findings_name_their_step():
    """In the text and in the document."""
    (found,) = lint(plan(step("deploy", worker="nobody")), CATALOG, advice=False)
    assert found.step == "deploy"
    assert f"at steps[0].worker, step {shown('deploy')}: no worker" in str(found)
    assert to_builtins(found.document()) | {"message": "", "fix": ""} == {
        "id": "LH106",
        "rule": "worker-unknown",
        "level": "error",
        "place": "steps[0].worker",
        "step": "deploy",
        "message": "",
        "fix": "",
    }
    inner = plan(A, rollback_plan=plan(step("back", worker="nobody")))
    assert [each.step for each in lint(inner, CATALOG, advice=False)] == ["back"]


# --- size -----------------------------------------------------------------------------------


def seconds_for(doc: dict[str, Any]) -> float:
    start = time.process_time()
    lint(doc, CATALOG)
    return time.process_time() - start


def lanes(count: int) -> dict[str, Any]:
    """Steps in ten lanes that write, read and need; each lane its own things and one in common."""
    steps = []
    for i in range(count):
        after = [f"s{i - 10}"] if i >= 10 else []
        own = [f"out/{i % 10}/{i}.csv", f"log/{i % 10}"]
        steps.append(step(f"s{i}", *after, writes=own, reads=["out/**"], gives=[f"f{i}"]))
        steps[-1]["needs"] = [f"f{i - 10}"] if i >= 10 else []
    return plan(*steps)


def shared(count: int) -> dict[str, Any]:
    """Steps side by side that all write the same thing."""
    return plan(*(step(f"s{i}", writes=["x", f"y{i}/**"]) for i in range(count)))


def chained(count: int) -> dict[str, Any]:
    """A chain that writes one thing again and again."""
    chain = (step(f"s{i}", *([f"s{i - 1}"] if i else []), writes=["x"]) for i in range(count))
    return plan(*chain)


@pytest.mark.parametrize("shape", [lanes, shared, chained])
def test_coupling_and_facts_are_linear(shape):
    """Eight times the steps cost about eight times as much, whatever they write."""
    small = min(seconds_for(shape(500)) for _ in range(3))
    assert seconds_for(shape(4000)) < 8 * small * 4 + 0.5
