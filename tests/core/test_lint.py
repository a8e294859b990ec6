"""Lint and proposals: every rule, everything at once, bounded cost."""

import copy
import functools
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.lint import findings
from leadhand.core.lint.findings import Finding
from leadhand.core.lint.plan import lint as full_lint
from leadhand.core.lint.proposal import proposal
from leadhand.core.lint.rules import RULES
from leadhand.core.plan.model import Plan
from tests.support import plans

step = functools.partial(plans.step, worker="any")


def lint(doc, catalog, **more):
    """Without advice, which has its own tests."""
    return full_lint(doc, catalog, advice=False, **more)


SEED = json.loads((Path(__file__).parents[1] / "support/seed_plan.json").read_text())

PARAMETERS = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "s": {"type": "string", "enum": ["a", "b"]},
        "rows": {"type": "array"},
    },
    "required": ["n"],
    "additionalProperties": False,
}
RETURNS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"$ref": "#/$defs/count"},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"k": {}}}},
    },
    "additionalProperties": False,
    "$defs": {"count": {"type": "integer"}},
}
CATALOG = Catalog(
    [
        WorkerSpec(
            name="builder",
            offers={
                "build": Offer(parameters=PARAMETERS, returns=RETURNS, checks=("all_fine",)),
                "clean": Offer(),
            },
        ),
        WorkerSpec(name="other", offers={"build": Offer(checks=("all_fine",)), "clean": Offer()}),
        WorkerSpec(name="any", offers={"": Offer()}),
        WorkerSpec(name="empty"),
        WorkerSpec(
            name="chooser",
            offers={"go": Offer(returns={"anyOf": [{}], "additionalProperties": False})},
        ),
    ]
)


def build(id_="a", **parameters):
    return {"id": id_, "worker": "builder", "action": "build", "parameters": {"n": 1} | parameters}


def plan(*steps, **fields):
    return {"steps": list(steps), **fields}


def told(findings):
    return [(each.rule, each.place) for each in findings]


CASES = [
    # form
    (plan(5), "field-wrong", "steps[0]", "a step is an object"),
    (plan({"id": "a"}), "field-missing", "steps[0]", 'no "worker"'),
    (plan(step(wroker="x")), "field-unknown", "steps[0].wroker", "not a known name"),
    (
        plan(step(success_critera="x")),
        "field-unknown",
        "steps[0].success_critera",
        "success_criteria",
    ),
    (plan(step(), stepps=[]), "field-unknown", "stepps", '"stepps"'),
    (plan(step(), mode="sideways"), "field-wrong", "mode", "one of"),
    (plan(), "plan-empty", "steps", "no steps"),
    ({}, "field-missing", "", 'no "steps"'),
    ([], "field-wrong", "", "a plan is an object"),
    (plan(step(retry=0)), "field-wrong", "steps[0].retry", "at least 1"),
    (
        plan(step(retry={"attempts": 2, "pause": 1})),
        "field-unknown",
        "steps[0].retry.pause",
        "pause",
    ),
    (plan(step("-x")), "field-wrong", "steps[0].id", "letters"),
    (plan(step("a\n")), "field-wrong", "steps[0].id", "letters"),
    (plan(step(risk_level="hihg")), "risk-unknown", "steps[0].risk_level", '"high"'),
    (plan(step(), risk_level="none"), "risk-unknown", "risk_level", "one of"),
    # ids and graph
    (plan(step(), step()), "id-duplicate", "steps[1].id", "taken by steps[0]"),
    (plan(step("a.data.b")), "id-unclear", "steps[0].id", "could not tell"),
    (
        plan(step("one"), step("b", depends_on=["onee"])),
        "dependency-missing",
        "steps[1].depends_on[0]",
        '"one"',
    ),
    (plan(step(depends_on=["a"])), "dependency-self", "steps[0].depends_on[0]", "itself"),
    (
        plan(step(depends_on=["b"]), step("b", depends_on=["a"])),
        "cycle",
        "steps[0].depends_on",
        "a → b → a",
    ),
    (
        plan(step(parameters={"x": "${{ steps.b.data }}"}), step("b", depends_on=["a"])),
        "cycle",
        "steps[0].depends_on",
        "a → b → a",
    ),
    # workers
    (plan(step(worker="bulider")), "worker-unknown", "steps[0].worker", 'Did you mean "builder"'),
    (plan(step(worker="builder", action="biuld")), "action-unknown", "steps[0].action", '"build"'),
    (plan(step(worker="builder")), "action-unknown", "steps[0].action", "It offers: build, clean"),
    (plan(step(worker="empty", action="x")), "action-unknown", "steps[0].action", "offers nothing"),
    (plan(build(n="x")), "parameter-wrong", "steps[0].parameters.n", "whole number"),
    (plan(build(n=0)), "parameter-wrong", "steps[0].parameters.n", "at least 1"),
    (plan(build(m=1)), "parameter-unknown", "steps[0].parameters.m", '"m"'),
    (
        plan(step(worker="builder", action="build")),
        "parameter-missing",
        "steps[0].parameters",
        'no "n" (for builder.build)',
    ),
    (plan(step(alternatives=["bulider"])), "worker-unknown", "steps[0].alternatives[0]", "builder"),
    (
        plan(build() | {"alternatives": ["empty"]}),
        "alternative-unfit",
        "steps[0].alternatives[0]",
        "offer",
    ),
    (
        plan(build() | {"alternatives": ["any"], "success_criteria": "all_fine"}),
        "alternative-unfit",
        "steps[0].alternatives[0]",
        "no check",
    ),
    # references
    (
        plan(step(parameters={"x": "${{ foo }}"})),
        "reference-wrong",
        "steps[0].parameters.x",
        "write",
    ),
    (plan(step(parameters={"x": ["${{"]})), "reference-wrong", "steps[0].parameters.x[0]", "}}"),
    (
        plan(step(parameters={"${{ params.x }}": 1})),
        "reference-wrong",
        "steps[0].parameters",
        "key",
    ),
    (
        plan(step(parameters={"x": "${{ steps.b.data }}"})),
        "reference-unresolved",
        "steps[0].parameters.x",
        'no step "b"',
    ),
    (
        plan(step(parameters={"x": "${{ steps.a.data }}"})),
        "reference-unresolved",
        "steps[0].parameters.x",
        "its own result",
    ),
    (
        plan(step(parameters={"x": "${{ params.verison }}"}), params={"version": "1"}),
        "reference-unresolved",
        "steps[0].parameters.x",
        'Did you mean "version"',
    ),
    (
        plan(build(), step("b", parameters={"x": "${{ steps.a.data.txt }}"})),
        "reference-unresolved",
        "steps[1].parameters.x",
        "it has keys: text, count, rows",
    ),
    (
        plan(build(), step("b", parameters={"x": "${{ steps.a.data.text.y }}"})),
        "reference-unresolved",
        "steps[1].parameters.x",
        "steps.a.data.text is a string",
    ),
    (
        plan(build(), build("b", n="${{ steps.a.data.text }}")),
        "result-unfit",
        "steps[1].parameters.n",
        "gives a string",
    ),
    (
        plan(build(), step("b", parameters={"x": "v ${{ steps.a.data.rows }}"})),
        "reference-wrong",
        "steps[1].parameters.x",
        "cannot stand in a text",
    ),
    (
        plan(build(rows="${{ steps.a.data.zz }}")),
        "reference-unresolved",
        "steps[0].parameters.rows",
        "its own result",
    ),
    (plan(step(context=["zz"])), "reference-unresolved", "steps[0].context", 'no step "zz"'),
    (
        plan(
            step(),
            step(
                "b",
                depends_on=[{"step": "a", "if": "finished"}],
                parameters={"x": "${{ steps.a.data }}"},
            ),
        ),
        "reference-uncertain",
        "steps[1].parameters.x",
        "starts even if",
    ),
    (
        plan(step(worker="${{ params.w }}"), params={"w": "x"}),
        "reference-misplaced",
        "steps[0].worker",
        "literal",
    ),
    (
        plan(step(action="${{ params.w }}"), params={"w": "x"}),
        "reference-misplaced",
        "steps[0].action",
        "literal",
    ),
    (
        plan(step(depends_on=["${{ params.w }}"])),
        "reference-misplaced",
        "steps[0].depends_on[0]",
        "literal",
    ),
    (plan(step(expect="${{ params.w }}")), "reference-misplaced", "steps[0].expect", "literal"),
    (plan(step(), goal="do ${{ params.w }}"), "reference-misplaced", "goal", "literal"),
    (
        plan(step(undo={"worker": "any", "action": "${{ x }}"})),
        "reference-misplaced",
        "steps[0].undo.action",
        "${{",
    ),
    # times
    (plan(step(timeout="soon")), "duration-wrong", "steps[0].timeout", "not a duration"),
    (plan(step(timeout=0)), "duration-wrong", "steps[0].timeout", "more than 0"),
    (plan(step(est="5")), "duration-wrong", "steps[0].est", "no unit"),
    (
        plan(step(retry={"backoff": "x"})),
        "duration-wrong",
        "steps[0].retry.backoff",
        "not a duration",
    ),
    (
        plan(step(), estimated_duration="a while"),
        "duration-wrong",
        "estimated_duration",
        "not a duration",
    ),
    (plan(step(not_before="later")), "time-wrong", "steps[0].not_before", "not a time"),
    (plan(step(window="at night")), "time-wrong", "steps[0].window", "not a window"),
    (plan(step(not_before="2AM EST")), "zone-fixed", "steps[0].not_before", "America/New_York"),
    (plan(step(window="22:00-02:00 CET")), "zone-fixed", "steps[0].window", "Europe/Berlin"),
    (plan(step(), deadline="tomorrow"), "time-wrong", "deadline", "tomorrow"),
    (plan(step(), goal={"deadline": "02:00"}), "time-wrong", "goal.deadline", "no zone"),
    # criteria and failure
    (
        plan(build() | {"success_criteria": "all_fin"}),
        "check-unknown",
        "steps[0].success_criteria",
        "all_fine",
    ),
    (
        plan(step(success_criteria="fine")),
        "check-unknown",
        "steps[0].success_criteria",
        "It has none",
    ),
    (
        plan(step(success_criteria=["data.x =="])),
        "expression-wrong",
        "steps[0].success_criteria[0]",
        "syntax",
    ),
    (
        plan(step(expect="dta.x == 1")),
        "expression-wrong",
        "steps[0].expect",
        '"dta" is not a known name',
    ),
    (plan(step(), goal={"acceptance": ["x > 1"]}), "expression-wrong", "goal.acceptance[0]", '"x"'),
    (
        plan(step(failure_action="rolback")),
        "failure-action-unknown",
        "steps[0].failure_action",
        "rollback",
    ),
    (
        plan(step(failure_action="rollback")),
        "rollback-absent",
        "steps[0].failure_action",
        "rollback_plan",
    ),
    # resources, undo, supersedes, params
    (plan(step(uses="gpu")), "resource-unknown", "steps[0].uses", '"gpu"'),
    (plan(step(uses={"gpu": 3}), resources={"gpu": 2}), "resource-exceeded", "steps[0].uses", "3"),
    (plan(step(undo={"worker": "nobody"})), "worker-unknown", "steps[0].undo.worker", "nobody"),
    (plan(step(undo={"action": "x"})), "field-missing", "steps[0].undo", 'no "worker"'),
    (plan(step(supersedes="b")), "supersedes-unknown", "steps[0].supersedes", "nothing is running"),
    (plan(step(), params={"v": {"type": "strng"}}), "param-wrong", "params.v", "not a type"),
    (
        plan(step(), params={"v": {"type": "integer", "default": "x"}}),
        "param-wrong",
        "params.v.default",
        "v",
    ),
    (
        plan(step(), limits={"workers": {"nobody": 1}}),
        "worker-unknown",
        "limits.workers.nobody",
        "nobody",
    ),
    # inside a rollback plan
    (
        plan(step(), rollback_plan=plan(step(worker="x"))),
        "worker-unknown",
        "rollback_plan.steps[0].worker",
        "x",
    ),
    (plan(step(), rollback_plan={}), "field-missing", "rollback_plan", "steps"),
    (
        plan(build(), rollback_plan=plan(step(parameters={"x": "${{ run.steps.b.data }}"}))),
        "reference-unresolved",
        "rollback_plan.steps[0].parameters.x",
        'no step "b" in the plan that is taken back',
    ),
    (
        plan(build(), rollback_plan=plan(step(parameters={"x": "${{ run.steps.a.data.txt }}"}))),
        "reference-unresolved",
        "rollback_plan.steps[0].parameters.x",
        'run.steps.a.data has no key "txt"',
    ),
    (
        plan(build(), rollback_plan=plan(step(parameters={"x": "${{ run.steps.a.data.rows }}!"}))),
        "reference-wrong",
        "rollback_plan.steps[0].parameters.x",
        "gives a list",
    ),
    (
        plan(build(), rollback_plan=plan(build("b", n="${{ run.steps.a.data.text }}"))),
        "result-unfit",
        "rollback_plan.steps[0].parameters.n",
        "run.steps.a.data.text",
    ),
    (
        plan(build(), step("b", parameters={"x": "${{ run.steps.a.data.text }}"})),
        "reference-rollback",
        "steps[1].parameters.x",
        "only in a rollback plan",
    ),
    (
        plan(step(parameters={"x": "${{ run.params.v }}"})),
        "reference-wrong",
        "steps[0].parameters.x",
        "run.steps.backup.data.file",
    ),
    # who may revise it
    (plan(step(), planner="goal", goal="Be rich"), "planner-unfit", "planner", "names none"),
    (plan(step(), planner=7), "field-wrong", "planner", "must be a string"),
    (plan(step(), planner=""), "field-wrong", "planner", "planner"),
]


@pytest.mark.parametrize(("doc", "rule", "place", "said"), CASES, ids=lambda value: str(value)[:40])
def test_each_mistake_gives_exactly_its_finding(doc, rule, place, said):
    """One mistake is one finding: the right rule, the right place, words that help."""
    before = copy.deepcopy(doc)
    findings = lint(doc, CATALOG)
    assert told(findings) == [(rule, place)]
    assert said in str(findings[0])
    assert doc == before


def test_a_schema_that_judges_nothing_is_found():
    """Of parameters and of a result, for a plain step and for one with references."""
    nowhere = {"$ref": "#/$defs/x"}
    for offer in (Offer(parameters=nowhere), Offer(returns=nowhere)):
        catalog = Catalog([WorkerSpec(name="w", offers={"": offer})])
        for parameters in ({}, {"a": "${{ params.p }}"}):
            doc = {
                "steps": [{"id": "a", "worker": "w", "parameters": parameters}],
                "params": {"p": 1},
            }
            (found,) = lint(doc, catalog)
            assert (found.rule, found.code) == ("schema-unusable", "LH145")
            assert "leads nowhere" in found.message


def test_every_rule_is_shown_by_a_test():
    """RULES names exactly what can be found, so that the documentation can list it."""
    elsewhere = {"steps-too-many", "findings-cut", "id-taken", "dependency-failed"}
    elsewhere |= {
        "param-missing",
        "param-unknown",
        "field-later",
        "program-missing",
        "worker-unavailable",
    }
    elsewhere |= {"secret-misplaced", "secret-exposed", "planner-unknown", "schema-unusable"}
    elsewhere |= {"step-orphan"} | {name for name, rule in RULES.items() if rule.code >= "LH200"}
    assert set(RULES) == {rule for _, rule, _, _ in CASES} | elsewhere


def test_the_seed_plan_is_valid_as_it_stands():
    """No finding without a catalogue, none with its three workers, and it comes back unchanged."""
    workers = [
        WorkerSpec(name="test-runner", offers={"run_tests": Offer(checks=("all_tests_pass",))}),
        WorkerSpec(name="db-manager", offers={"": Offer()}),
        WorkerSpec(name="k8s-deployer", offers={"": Offer()}),
    ]
    assert lint(SEED, None) == []
    assert lint(SEED, Catalog(workers)) == []
    advised = [each for each in full_lint(SEED, Catalog(workers)) if each.level != "note"]
    assert {each.rule for each in advised} <= {"criteria-missing"}
    assert not [each for each in full_lint(SEED, None) if each.level != "note"]
    assert Plan.from_doc(SEED).to_doc() == SEED


GOOD = [
    plan(build(), build("b", n="${{ steps.a.data.count }}", rows="${{ steps.a.data.rows }}")),
    plan(build(s="${{ params.s }}"), params={"s": {"type": "string"}}),
    plan(
        build(),
        step("b", parameters={"x": "v ${{ steps.a.data.text }} ${{ steps.a.data.rows[0].k }}"}),
    ),
    plan(build() | {"success_criteria": ["all_fine", "data.count > 0", "len(data.rows) == 2"]}),
    plan(step(failure_action="abort_deployment", action="whatever", parameters={"free": [1]})),
    plan(step(failure_action="rollback"), rollback_plan="undo-it"),
    plan(
        step(
            failure_action="rollback",
            undo={"worker": "any", "parameters": {"id": "${{ steps.a.data.id }}"}},
        )
    ),
    plan(step(uses=["gpu", "disk"]), step("b", uses={"gpu": 2}), resources={"gpu": 2, "disk": 1}),
    plan(step(), step("b", depends_on=[{"step": "a", "if": "finished"}], context="a")),
    plan(step(parameters={"x": "$${{ not a reference }}"}), deadline="2 hours"),
    plan(
        step(not_before="02:00 Europe/Berlin", window={"from": "9AM", "to": "5PM", "zone": "UTC"})
    ),
    plan(step(), goal={"text": "x", "acceptance": ["result.n > 1", "steps.a.n == 1"]}),
    plan(
        step(
            retry={"attempts": 3, "backoff": "1s", "factor": 2, "max_backoff": "1m"},
            est=5,
            timeout=1.5,
        )
    ),
    plan(step(), **{"$schema": "leadhand:plan:1"}, outlook=["later", {"id": "z"}], final=False),
    plan(step(), rollback_plan=plan(step(parameters={"x": "${{ params.v }}"}), params={"v": 1})),
    plan(build(), rollback_plan=plan(build("b", n="${{ run.steps.a.data.count }}"))),
    plan(step(), planner="goal", goal={"text": "Be rich", "want": ["x"], "have": {"x": 1}}),
    plan(step(), planner="anthropic:claude-haiku-4-5", goal="Be rich"),
]


GOOD += [
    # Another worker may give another result, and a choice of forms may allow more.
    plan(
        build() | {"alternatives": ["other"]},
        step("b", parameters={"x": "${{ steps.a.data.txt }}"}),
    ),
    plan(
        step("a", worker="chooser", action="go"),
        step("b", parameters={"x": "${{ steps.a.data.txt }}"}),
    ),
]


@pytest.mark.parametrize("doc", GOOD, ids=lambda value: str(value)[:40])
def test_good_plans_have_no_findings(doc):
    """What the design allows is not complained about."""
    assert lint(doc, CATALOG) == []


def test_rollback_plans_cannot_nest_without_end():
    """A plan to roll back with may have one of its own, but not for ever."""
    doc = plan(step())
    for _ in range(5):
        doc = plan(step(), rollback_plan=doc)
    place = ".".join(["rollback_plan"] * 4)
    assert told(lint(doc, None)) == [("field-wrong", place)]


def test_ten_mistakes_are_ten_findings():
    """Everything is reported at once."""
    doc = plan(
        step("a", depends_on=["nowhere"], timeout="soon"),
        step("a", failure_action="explode"),
        step("b", worker="nobody", not_before="later"),
        build("c", n="x", q=1),
        step("d", depends_on=["e"]),
        step("e", depends_on=["d"], parameters={"x": "${{ params.y }}"}),
        estimated_duration="5",
    )
    rules = sorted(each.rule for each in lint(doc, CATALOG))
    assert rules == [
        "cycle",
        "dependency-missing",
        "duration-wrong",
        "duration-wrong",
        "failure-action-unknown",
        "id-duplicate",
        "parameter-unknown",
        "parameter-wrong",
        "reference-unresolved",
        "time-wrong",
        "worker-unknown",
    ]


def test_without_a_catalogue_nothing_is_said_of_workers():
    """A plan can be checked where its workers are not."""
    assert lint(plan(step(worker="nobody", success_criteria="what")), None) == []


def test_a_wrong_field_does_not_hide_the_others():
    """Good dependencies beside a malformed one are still checked, and an odd id is still an id."""
    doc = plan(step("-x"), step("b", depends_on=["-x", 5, "zz"]))
    assert told(lint(doc, None)) == [
        ("field-wrong", "steps[0].id"),
        ("field-wrong", "steps[1].depends_on[1]"),
        ("dependency-missing", "steps[1].depends_on[1]"),
    ]


def test_given_parameters_are_checked_and_used():
    """With values, a missing, a wrong and an unknown one are told, and types are exact."""
    doc = plan(
        build(n="${{ params.n }}"),
        params={"n": {"type": ["integer", "string"]}, "s": {"type": "string"}},
    )
    assert lint(doc, CATALOG) == []
    assert told(lint(doc, CATALOG, params={"n": 3, "s": "x"})) == []
    assert told(lint(doc, CATALOG, params={"n": 3})) == [("param-missing", "params.s")]
    assert told(lint(doc, CATALOG, params={"n": "x", "s": 1})) == [
        ("param-wrong", "params.s"),
        ("parameter-wrong", "steps[0].parameters.n"),
    ]
    unknown = lint(doc, CATALOG, params={"n": 1, "s": "", "sss": 1})
    assert told(unknown) == [("param-unknown", "params.sss")]


def test_a_place_inside_a_given_parameter_is_looked_up():
    """A path that the given value does not have is found before the run."""
    doc = plan(
        step(parameters={"x": "${{ params.o.a }}", "y": "v${{ params.o }}"}), params={"o": {"a": 1}}
    )
    assert told(lint(doc, None, params={"o": {"b": 1}})) == [
        ("reference-unresolved", "steps[0].parameters.x"),
        ("reference-wrong", "steps[0].parameters.y"),
    ]


def test_resources_of_the_host_count_too():
    """A step may use what the host declares."""
    assert lint(plan(step(uses="gpu")), None, resources={"gpu": 1}) == []


def test_findings_read_well():
    """The text has level, rule, place, message and fix."""
    finding = Finding("cycle", "error", "steps[0]", "a waits for itself", "Stop it.")
    assert str(finding) == "error[LH101 cycle] at steps[0]: a waits for itself. Stop it."


# --- proposals ------------------------------------------------------------------------------

KNOWN = {
    "done": "succeeded",
    "bad": "failed",
    "gone": "cancelled",
    "open": {"status": "waiting", "doc": step("open", depends_on=["bad2"])},
    "bad2": {"status": "failed", "doc": step("bad2")},
    "past": {"status": "succeeded", "doc": step("past", depends_on=["bad2"])},
}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("n", depends_on=["done"], parameters={"x": "${{ steps.done.data.k }}"})], []),
        ([step("n", depends_on=["open"])], []),
        ([step("n", depends_on=[{"step": "bad", "if": "finished"}])], []),
        ([step("n"), step("m", depends_on=["n"])], []),
        ([step("n", supersedes="bad", depends_on=["done"])], []),
        ([step("n", supersedes="bad"), step("m", depends_on=["bad"])], []),
        ([step("done")], [("id-taken", "steps[0].id")]),
        ([step("n"), step("n")], [("id-duplicate", "steps[1].id")]),
        ([step("n", depends_on=["bad"])], [("dependency-failed", "steps[0].depends_on[0]")]),
        ([step("n", depends_on=["gone"])], [("dependency-failed", "steps[0].depends_on[0]")]),
        ([step("n", depends_on=["doen"])], [("dependency-missing", "steps[0].depends_on[0]")]),
        (
            [step("n", parameters={"x": "${{ steps.bad.data }}"})],
            [("reference-unresolved", "steps[0].parameters.x")],
        ),
        (
            [step("n", parameters={"x": "${{ params.zz }}"})],
            [("reference-unresolved", "steps[0].parameters.x")],
        ),
        ([step("n", supersedes="zz")], [("supersedes-unknown", "steps[0].supersedes")]),
        ([step("n", supersedes="n")], [("supersedes-unknown", "steps[0].supersedes")]),
        (
            [step("n", depends_on=["m"]), step("m", depends_on=["n"])],
            [("cycle", "steps[0].depends_on")],
        ),
        # `open` waits for `bad2`, whose place is taken by a step that waits for `open`.
        ([step("n", supersedes="bad2", depends_on=["open"])], [("cycle", "steps[0].depends_on")]),
        ([step("n", supersedes="bad2", depends_on=["past"])], []),
        ([5], [("field-wrong", "steps[0]")]),
        ([step("n", worker="nobody")], [("worker-unknown", "steps[0].worker")]),
    ],
)
@pytest.mark.parametrize("as_callable", [False, True])
def test_proposals(steps, expected, as_callable):
    """New steps are checked against the run as it stands, given as a mapping or a function."""
    known = KNOWN.get if as_callable else KNOWN
    assert told(proposal(steps, known, CATALOG, {"v": 1})) == expected


def test_a_proposal_does_not_look_at_the_rest_of_the_run():
    """Only ids that the new steps name are asked for."""
    asked = []

    def known(name):
        asked.append(name)
        return "succeeded" if name.startswith("s") else None

    assert proposal([step("n", depends_on=["s1"])], known, CATALOG) == []
    assert set(asked) == {"n", "s1"}


def test_resources_of_a_proposal():
    """They are checked where the run's are given."""
    new = [step("n", uses="gpu")]
    assert proposal(new, {}, None) == []
    assert told(proposal(new, {}, None, resources={})) == [("resource-unknown", "steps[0].uses")]


# --- size -----------------------------------------------------------------------------------


def test_too_many_steps_is_one_finding():
    """A plan over the limit is refused at once."""
    doc = {"steps": [step()] * 100_001}
    assert told(lint(doc, None)) == [("steps-too-many", "steps")]


def test_findings_are_bounded():
    """A plan that is wrong everywhere gets a thousand findings and a note."""
    doc = {"steps": [step(f"s{i}", depends_on=[f"t{i}"], zzz=1) for i in range(3000)]}
    findings = lint(doc, CATALOG)
    assert len(findings) == 1001
    assert findings[-1].rule == "findings-cut"


def chain(count):
    return plan(
        *(
            build(f"s{i}", n=f"${{{{ steps.s{i - 1}.data.count }}}}" if i else 1)
            | {"depends_on": [f"s{i - 1}"] if i else []}
            for i in range(count)
        )
    )


def seconds_for(doc):
    start = time.process_time()
    assert lint(doc, CATALOG) == []
    return time.process_time() - start


def test_lint_is_linear():
    """Sixteen times the steps cost about sixteen times as much."""
    small = min(seconds_for(chain(1000)) for _ in range(3))
    assert seconds_for(chain(16_000)) < 16 * small * 3


def test_one_step_that_names_everything_is_not_quadratic():
    """Many dependencies and many references in one step are looked up, not searched."""
    names = [f"s{i}" for i in range(20_000)]
    last = step("z", depends_on=[{"step": name, "if": "finished"} for name in names])
    last["parameters"] = {"x": [f"${{{{ steps.{name}.data }}}}" for name in names[:500]]}
    start = time.process_time()
    findings = lint(plan(*map(step, names), last), None)
    assert {each.rule for each in findings} == {"reference-uncertain"}
    assert time.process_time() - start < 10


FIELDS = """
    id worker action parameters depends_on retry uses undo window not_before timeout
    success_criteria alternatives context failure_action supersedes est expect
    needs gives reads writes effects description
"""
fields = st.sampled_from(FIELDS.split())
texts = st.text(max_size=8) | st.sampled_from(["a", "${{ steps.a.data }}", "builder", "5m", "${{"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
documents = st.fixed_dictionaries(
    {"steps": st.lists(st.dictionaries(fields, values, max_size=6) | values, max_size=4)},
    optional={
        "params": values,
        "goal": values,
        "limits": values,
        "rollback_plan": values,
        "deadline": values,
        "budget": values,
        "resources": values,
    },
)


@given(documents)
def test_any_document_gets_findings_never_an_exception(doc):
    """Lint and proposal answer every JSON value, and only with rules that are documented."""
    findings = [
        *full_lint(doc, CATALOG),
        *lint(doc, CATALOG, params={}),
        *proposal(doc["steps"], KNOWN, CATALOG),
    ]
    for finding in findings:
        assert finding.rule in RULES
        assert len(str(finding)) < 2000


@given(documents)
def test_a_plan_without_errors_can_be_read(doc):
    """What lint lets through, `Plan.from_doc` takes."""
    if not any(each.level == "error" for each in lint(doc, None)):
        Plan.from_doc(doc)


def test_no_crowd_of_warnings_hides_an_error():
    """A plan with thousands of warnings is still refused for its one error."""
    doc = {
        "goal": "g",
        "steps": [
            *({"id": f"s{i}", "worker": "w", "not_before": "2AM EST"} for i in range(1500)),
            {"id": "last", "worker": "w", "depends_on": ["nobody"]},
        ],
    }
    found = lint(doc, None)
    assert [each.rule for each in found if each.level == "error"] == ["dependency-missing"]


def test_a_planner_is_unknown_for_the_reason_that_is_given():
    """Whoever runs the plan says which planners there are; without that, nothing is said."""
    doc = plan(step(), planner="nobody:knows")

    def known(name):
        return (f"{name} is not allowed", "Give --planner.") if name == "nobody:knows" else None

    (found,) = lint(doc, CATALOG, planners=known)
    assert (found.rule, found.place, found.fix) == ("planner-unknown", "planner", "Give --planner.")
    assert lint(doc, CATALOG) == []
    assert lint(plan(step(), planner="anthropic:x"), CATALOG, planners=known) == []


def test_a_library_plan_to_roll_back_with_is_checked_against_the_plan_that_names_it():
    """Its references to the run; alone it is valid to be kept, and cannot be run."""
    kept = plan(step(parameters={"x": "${{ run.steps.a.data.text }}"}))
    assert [each.level for each in lint(kept, CATALOG, run_refs="warning")] == ["warning"]
    assert told(lint(kept, CATALOG)) == [("reference-rollback", "steps[0].parameters.x")]
    library = {"back": kept}
    assert lint(plan(build(), rollback_plan="back"), CATALOG, library=library) == []
    wrong = lint(plan(build("b"), rollback_plan="back"), CATALOG, library=library)
    assert told(wrong) == [("reference-unresolved", "rollback_plan")]


def test_every_field_of_a_large_step_is_looked_at():
    """Of a very large value the first problem is told; the other fields are still checked."""
    many = [1] * 20_000
    doc = {"id": "a", "worker": {"x": 1}, "uses": {"y": 0}, "timeout": [], "undo": {"worker": many}}
    places = {each.place for each in lint({"steps": [doc]}, CATALOG)}
    for field in ("worker", "uses.y", "timeout", "undo.worker"):
        assert f"steps[0].{field}" in places


@pytest.mark.parametrize("inside", [False, True])
def test_many_unknown_names_take_no_more_looks_than_few(monkeypatch, inside):
    """Each look tells one problem of a large value; a look for each name took their square."""
    looks = []
    problems = findings.problems

    def counted(*args, **more):
        looks.append(1)
        return problems(*args, **more)

    monkeypatch.setattr(findings, "problems", counted)
    odd = {f"k{n}": n for n in range(12_000)}
    doc = {"goal": "x", "steps": [{"id": "a", "worker": "w"}]}
    doc = {**doc, "steps": [{**doc["steps"][0], **odd}]} if inside else {**doc, **odd}
    found = full_lint(doc, None)
    assert sum("not a known name" in each.message for each in found) >= 990
    assert len(looks) < 60
