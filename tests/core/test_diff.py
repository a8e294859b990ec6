"""The difference of two plans, by meaning."""

import json
import random
from copy import deepcopy

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import to_builtins

from leadhand.codec.documents import read_document, write_json, write_yaml
from leadhand.core.hashing import canonical
from leadhand.core.plan.canonical import canonical_plan, sorted_unique
from leadhand.core.plan.diff import Change, diff, differences, lines, path_text
from tests.core.driver import step


def plan(*steps, **more):
    return {"goal": "Release", "steps": list(steps), **more}


def told(old, new, **more):
    """Each difference in a line."""
    return [f"{line.mark} {line.text}" for line in lines(diff(old, new, **more))]


def apply(doc, changes):
    """A plan in its normal form with changes made: what shows that a difference is complete."""
    renames = {change.old: change.new for change in changes if change.kind == "renamed"}
    found = deepcopy(canonical_plan(doc, renames))
    for change in changes:
        if change.kind not in ("order", "hold"):
            _put(found, deepcopy(change))
    return found


def _put(holder, change):
    *parts, last = change.path
    for part in parts:
        holder = holder[part]
    match change.kind:
        case "removed":
            del holder[last]
        case "renamed":
            holder[change.new] = {**holder.pop(last), "id": change.new, "supersedes": last}
        case "entries":
            went = {canonical(each) for each in change.old}
            kept = [each for each in holder[last] if canonical(each) not in went]
            holder[last] = sorted_unique([*kept, *change.new])
        case _:
            holder[last] = change.new


def document(normalized):
    """A plan in its normal form as a document that can be read again: steps in a list."""
    found = dict(normalized)
    if isinstance(found.get("steps"), dict):
        found["steps"] = [
            {key: value for key, value in each.items() if key != "depends_on" or value}
            for each in found["steps"].values()
        ]
    if isinstance(found.get("rollback_plan"), dict):
        found["rollback_plan"] = document(found["rollback_plan"])
    return found


BASE = plan(
    step("test", parameters={"suite": "full"}),
    step("deploy", "test", parameters={"version": "v1", "hosts": ["a", "b"]}, effects=["x", "y"]),
    budget=5,
)


def edited(**fields):
    """The base plan with fields of `deploy` put in; None takes one out."""
    test, deploy = BASE["steps"]
    deploy = {**deploy, **fields}
    return {
        **BASE,
        "steps": [test, {key: value for key, value in deploy.items() if value is not None}],
    }


NO_DIFFERENCE = [
    {**BASE, "steps": BASE["steps"][::-1]},
    dict(reversed(BASE.items())),
    {**BASE, "$schema": "leadhand:plan:1", "final": True, "description": "", "params": {}},
    edited(effects=["y", "x", "x"]),
    edited(depends_on=[{"step": "test"}]),
    edited(depends_on=[{"step": "test", "if": "succeeded"}, "test"]),
    edited(action="", alternatives=[], because=""),
    {**BASE, "goal": {"text": "Release"}},
    {**BASE, "goal": {"text": "Release", "want": []}},
]


@pytest.mark.parametrize("other", NO_DIFFERENCE)
def test_what_means_the_same_is_no_difference(other):
    """Order, defaults and spelling are not what a plan means."""
    assert diff(BASE, other) == []
    assert diff(other, BASE) == []


def test_white_space_and_yaml_for_json_are_no_difference(tmp_path):
    """A plan read from either is the same plan."""
    for text in (write_json(BASE), write_yaml(BASE), json.dumps(BASE, indent=7, sort_keys=True)):
        assert diff(BASE, read_document(text.encode())) == []


DIFFERENCES = [
    (edited(parameters={"version": "v2", "hosts": ["a", "b"]}),
     ['~ steps.deploy.parameters.version: "v1" → "v2"']),
    (edited(parameters={"version": "v1 ", "hosts": ["a", "b"]}),
     ['~ steps.deploy.parameters.version: "v1" → "v1 "']),
    (edited(parameters={"version": "v1", "hosts": ["b", "a"]}),
     ['~ steps.deploy.parameters.hosts[0]: "a" → "b"',
      '~ steps.deploy.parameters.hosts[1]: "b" → "a"']),
    (edited(parameters={"version": "v1", "hosts": ["a"]}),
     ['~ steps.deploy.parameters.hosts: ["a", "b"] → ["a"]']),
    (edited(parameters={"hosts": ["a", "b"], "versi\u043en": "v1"}),
     ['- steps.deploy.parameters.version: "v1"',
      '+ steps.deploy.parameters["versi\\u043en"]: "v1"']),
    (edited(not_before="02:00 UTC"), ['+ steps.deploy.not_before: "02:00 UTC"']),
    (edited(effects=["x"]), ['~ steps.deploy.effects: - "y"']),
    (edited(effects=None), ['- steps.deploy.effects: ["x", "y"]']),
    (edited(depends_on=None), ['~ steps.deploy.depends_on: - "test"']),
    (edited(depends_on=[{"step": "test", "if": "finished"}]),
     ['~ steps.deploy.depends_on: + {"step": "test", "if": "finished"}, - "test"']),
    (edited(idempotent=True), ["+ steps.deploy.idempotent: true"]),
    ({**BASE, "budget": 5.0}, ["~ budget: 5 → 5.0"]),
    ({**BASE, "final": False}, ["+ final: false"]),
    ({**BASE, "goal": "R\u0435lease"}, ['~ goal: "Release" → "R\\u0435lease"']),
    ({**BASE, "goal": {"text": "Release", "want": ["live"]}},
     ['~ goal: "Release" → {"text": "Release", "want": ["live"]}']),
    (plan(*BASE["steps"], step("smoke", "deploy", parameters={"suite": "s"}), budget=5),
     ["+ steps.smoke", '+   worker: "w"', '+   parameters.suite: "s"',
      '+   depends_on: ["deploy"]']),
    (plan(BASE["steps"][0], budget=5),
     ["- steps.deploy", '-   worker: "w"', '-   parameters.version: "v1"',
      '-   parameters.hosts: ["a", "b"]', '-   effects: ["x", "y"]', '-   depends_on: ["test"]']),
]  # fmt: skip


@pytest.mark.parametrize(("other", "expected"), DIFFERENCES)
def test_what_differs_is_shown(other, expected):
    """Each with its place, what was there and what is there; nothing else."""
    assert told(BASE, other) == expected
    back = apply(BASE, diff(BASE, other))
    assert canonical(back) == canonical(canonical_plan(other))


def test_a_step_that_supersedes_another_is_that_step_under_a_new_name():
    """Its changed fields are shown, and who waits for the old name means the new one."""
    old = plan(step("a"), step("b", "a"), step("c", "a"))
    new = plan(
        step("a.2", supersedes="a", timeout="5s"), step("b", "a"), step("c", "a.2", context="a")
    )
    assert told(old, new) == [
        "> steps.a is now steps.a.2",
        '+ steps.a.2.timeout: "5s"',
        '+ steps.c.context: ["a.2"]',
    ]
    assert canonical(apply(old, diff(old, new))) == canonical(canonical_plan(new))


def test_renames_that_the_plans_do_not_show_can_be_told():
    """Between two revisions a step may have been replaced twice."""
    old = plan(step("a"), step("b", "a"))
    new = plan(step("a.3", supersedes="a.2"), step("b", "a"))
    heirs = {"a": "a.2", "a.2": "a.3"}
    assert [change.kind for change in diff(old, new, heirs)] == ["renamed", "changed"]
    assert told(old, new)[-3:] == ['+   supersedes: "a.2"', "- steps.a", '-   worker: "w"']


def test_an_inline_rollback_plan_and_an_undo_are_compared_by_meaning_too():
    """They hold steps and tasks of their own."""
    inner = plan(step("x", effects=["p", "q"]), step("y", "x"))
    old = plan(step("a", undo={"worker": "w", "effects": ["p", "q"]}), rollback_plan=inner)
    same = plan(
        step("a", undo={"worker": "w", "effects": ["q", "p"]}),
        rollback_plan={**inner, "steps": inner["steps"][::-1]},
    )
    assert diff(old, same) == []
    other = plan(
        step("a", undo={"worker": "v", "effects": ["p", "q"]}),
        rollback_plan=plan(step("x", effects=["p", "q"]), step("y")),
    )
    assert told(old, other) == [
        '~ steps.a.undo.worker: "w" → "v"',
        '~ rollback_plan.steps.y.depends_on: - "x"',
    ]


def test_what_is_not_well_formed_is_compared_as_it_stands():
    """A duplicate id or steps that are no list hide nothing."""
    twice = plan(step("a"), step("a", timeout=3))
    assert diff(twice, twice) == []
    assert diff(twice, plan(step("a"), step("a", timeout=4)))
    assert diff({"steps": 3}, {"steps": [1]})
    assert diff(plan(step("a", depends_on=7)), plan(step("a", depends_on=8)))


def test_changes_as_documents():
    """What `--json` prints."""
    changes = diff(BASE, edited(effects=["x"], timeout=3))
    assert [to_builtins(change.document()) for change in changes] == [
        {"kind": "entries", "path": "steps.deploy.effects", "removed": ["y"], "added": []},
        {"kind": "added", "path": "steps.deploy.timeout", "new": 3},
    ]
    assert to_builtins(Change("removed", ("budget",), old=1).document()) == {
        "kind": "removed", "path": "budget", "old": 1,
    }  # fmt: skip
    assert path_text(("steps", "a.b", "parameters", "a b", 0)) == 'steps.a.b.parameters["a b"][0]'


# --- properties ----------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d", "e.1"])
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, "", "x", "é"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
depends = names | st.fixed_dictionaries(
    {"step": names}, optional={"if": st.sampled_from(["succeeded", "finished"])}
)
texts = st.lists(st.sampled_from(["p", "q", "r"]), max_size=3)
steps = st.fixed_dictionaries(
    {"id": names, "worker": st.sampled_from(["w", "v"])},
    optional={
        "parameters": st.dictionaries(names, values, max_size=3),
        "depends_on": st.lists(depends, max_size=3),
        "effects": texts,
        "context": names | st.lists(names, max_size=2),
        "success_criteria": st.just("ok") | texts,
        "supersedes": names,
        "uses": names | st.lists(names, max_size=2) | st.dictionaries(names, st.just(1)),
        "undo": st.fixed_dictionaries({"worker": names}, optional={"effects": texts}),
        "description": st.sampled_from(["", "text"]),
    },
)
heads = {
    "goal": st.just("g") | st.fixed_dictionaries({}, optional={"text": names, "want": texts}),
    "final": st.booleans(),
    "params": st.dictionaries(names, values, max_size=2),
    "budget": st.integers(0, 2) | st.floats(0, 2),
    "$schema": st.just("x"),
}
listed = st.lists(steps, max_size=4, unique_by=lambda each: each["id"]) | st.lists(
    steps, max_size=3
)
inner = st.fixed_dictionaries({"steps": listed}, optional=heads)
plans = st.fixed_dictionaries(
    {"steps": listed}, optional={**heads, "rollback_plan": st.just("name") | inner}
)


@given(plans)
def test_a_plan_does_not_differ_from_itself(doc):
    """Nor from the same plan in another order, nor from its normal form as a document."""
    assert diff(doc, doc) == []
    shuffled = json.loads(json.dumps(doc, sort_keys=True))
    if len({each["id"] for each in doc["steps"]}) == len(doc["steps"]):
        random.Random(1).shuffle(shuffled["steps"])
    assert diff(doc, shuffled) == []
    assert diff(doc, document(canonical_plan(doc))) == []


def named_once(doc):
    """Whether no two steps of a plan, or of the one inside it, share an id."""
    inside = doc.get("rollback_plan")
    names = [each["id"] for each in doc["steps"]]
    return len(set(names)) == len(names) and (
        inside is None or isinstance(inside, str) or named_once(inside)
    )


def heirs_wait_for_others(doc):
    """Whether no step waits for the very step whose place it takes, or takes one of the plan's."""
    names = {each["id"] for each in doc["steps"]}
    heirs = [each["supersedes"] for each in doc["steps"] if "supersedes" in each]
    waits = [str(each.get("depends_on")) for each in doc["steps"]]
    return not heirs or not (names & set(heirs) or any(h in w for h in heirs for w in waits))


WAITS = {"steps": [{"id": "a", "worker": "w", "depends_on": ["c"], "context": "c"}]}
STANDS = {"steps": [{"id": "a", "worker": "w", "supersedes": "c"}]}


@example(WAITS, STANDS)  # the step that waited for another stands for it now
@given(plans, plans)
def test_applying_the_difference_gives_the_other(old, new):
    """And there is none left. (Two steps with one id are no plan: lint says so.)"""
    assume(all(map(named_once, (old, new))))
    assume(all(map(heirs_wait_for_others, (old, new))))
    changes = diff(old, new)
    made = apply(old, changes)
    assert canonical(made) == canonical(canonical_plan(new))
    assert diff(document(made), new) == []
    assert list(lines(changes)) or not changes


# --- what a difference leads to ------------------------------------------------------------

USES = {"text": "${{ steps.b.data }}"}


def led_to(old, new, **more):
    """What the differences lead to, a line each."""
    found = differences(old, new, **more)
    return [change.new for change in found if change.kind in ("order", "hold")]


def test_a_text_that_drops_an_order_says_so():
    """Replacing a reference lets a step start without the one it waited for."""
    old = plan(step("b"), step("c", parameters=USES), step("d", parameters=USES))
    new = plan(step("b"), step("c", parameters={"text": "x"}), step("d", parameters=USES))
    assert led_to(old, new) == ["c no longer waits for b"]
    assert led_to(new, old) == ["c now waits for b"]
    held = led_to(old, new, held={"b": "ann"})
    assert held == ["c no longer waits for b, which is held"]
    assert "! c no longer waits for b" in [
        f"{line.mark} {line.text}" for line in lines(differences(old, new))
    ]
    made = apply(old, differences(old, new))
    assert made == apply(old, diff(old, new)), "what it leads to is not applied again"
    assert to_builtins(differences(old, new)[-1].document()) == {
        "kind": "order",
        "path": "steps.c",
        "text": "c no longer waits for b",
    }


def test_an_order_that_stands_by_another_way_is_no_difference():
    """c waits for b through a."""
    old = plan(step("b"), step("a", "b"), step("c", "a", "b"))
    new = plan(step("b"), step("a", "b"), step("c", "a"))
    assert diff(old, new)
    assert led_to(old, new) == []


def test_an_order_is_told_by_the_names_of_today():
    """A step that took the place of another waits, or does not, under its new name."""
    old = plan(step("b"), step("c", parameters=USES))
    new = plan(step("b"), step("c.2", parameters={"text": "x"}, supersedes="c"))
    assert led_to(old, new) == ["c.2 no longer waits for b"]
    kept = plan(step("b.2", supersedes="b", timeout="5s"), step("c", parameters=USES))
    assert led_to(old, kept) == []


def test_a_hold_that_ends_is_told():
    """Because its step is taken out, or because the policy's hold ends with the approval."""
    old = plan(step("a"), step("b"))
    assert led_to(old, plan(step("a")), held={"b": "ann"}) == [
        "b is no longer held: it is taken out"
    ]
    heir = plan(step("a"), step("b.2", supersedes="b", timeout="5s"))
    assert led_to(old, heir, held={"b": "policy"}) == [
        "b.2 is no longer held once this is approved"
    ]
    assert led_to(old, heir, held={"b": "ann"}) == []
    assert led_to(old, old, held={"b": "ann"}) == []
