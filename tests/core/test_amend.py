"""Amending a plan: edits by path, and the delta a running run needs."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.codec.edits import apply_edits, split_assignment, typed_value
from leadhand.core import events as ev
from leadhand.core.catalog import ANY_ACTION, Catalog, Offer, WorkerSpec
from leadhand.core.decide.planner_answer import findings, revision_hash
from leadhand.core.logcheck.checker import check
from leadhand.core.plan.amend import MISSING, amendment, changes, edit, parts_of, value_at
from leadhand.core.plan.canonical import follow
from leadhand.core.plan.diff import diff, differences
from leadhand.core.plan.graph import order
from leadhand.core.plan.revisions import plan_of, revisions, standalone
from leadhand.errors import UsageError
from tests.core.driver import Drive, failure, finished, step

PLAN = {
    "goal": {"text": "Release"},
    "budget": 3,
    "steps": [
        step("a", parameters={"version": "v1", "n": 1, "odd key": [1, {"x": 2}]}),
        {"id": "step-3", "worker": "w", "depends_on": ["a"], "retry": 3},
        {"id": "a.b", "worker": "w"},
    ],
}  # fmt: skip


# --- edits by path -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("budget=5", "budget", 5),
        ("goal.text=Ship it", "goal.text", "Ship it"),
        ('steps.step-3.not_before="02:00 America/New_York"', "steps.step-3.not_before",
         "02:00 America/New_York"),
        ("steps.step-3.not_before=02:00 America/New_York", "steps.step-3.not_before",
         "02:00 America/New_York"),
        ("steps.a.parameters.version=1.10", "steps.a.parameters.version", "1.10"),
        ('steps.a.parameters.version="1.10"', "steps.a.parameters.version", "1.10"),
        ("steps.a.parameters.n=2", "steps.a.parameters.n", 2),
        ("steps.a.parameters.fresh=2", "steps.a.parameters.fresh", 2),
        ('steps.a.parameters["odd key"][1].x=[1, 2]', 'steps.a.parameters["odd key"][1].x', [1, 2]),
        ("steps.a.b.timeout=5s", "steps.a.b.timeout", "5s"),
        ("steps.step-3.window.from=22:00", "steps.step-3.window.from", "22:00"),
        ("steps.a.parameters['k=v']=x=y", "steps.a.parameters['k=v']", "x=y"),
        ("steps[1].worker=v", "steps.step-3.worker", "v"),
    ],
)  # fmt: skip
def test_a_value_is_put_in_at_a_path(text, path, value):
    """JSON where it is JSON, else a text; where a text stands a number stays one."""
    made = apply_edits(PLAN, [text])
    assert value_at(made, path) == value
    assert len(diff(PLAN, made)) == 1
    assert value_at(PLAN, path) != value


def test_a_step_is_put_in_whole_replaced_or_taken_out():
    """The id stands in the path."""
    made = apply_edits(
        PLAN, ['steps.new={"worker": "w"}', 'steps.step-3={"worker": "v"}'], ["steps.a.b"]
    )
    assert made["steps"][1:] == [{"id": "step-3", "worker": "v"}, {"id": "new", "worker": "w"}]


def test_what_is_there_can_be_taken_out():
    """By name; an empty value is an empty text."""
    assert "budget" not in apply_edits(PLAN, [], ["budget"])
    assert "retry" not in apply_edits(PLAN, [], ["steps.step-3.retry"])["steps"][1]
    made = apply_edits(PLAN, [], ['steps.a.parameters["odd key"][0]'])
    assert made["steps"][0]["parameters"]["odd key"] == [{"x": 2}]
    assert (
        value_at(apply_edits(PLAN, ["steps.a.parameters.version="]), "steps.a.parameters.version")
        == ""
    )


TAKES = {
    "type": "object",
    "properties": {
        "version": {"type": "string"},
        "count": {"type": "integer"},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "$defs": {"tag": {"type": "string"}},
}
TYPED = [
    # the parameter as the worker declares it, whatever stands there
    ("parameters.version", "1.10", "1.10"),
    ("parameters.version", "007", "007"),
    ("parameters.version", "true", "true"),
    ("parameters.version", "null", "null"),
    ("parameters.version", '"1.10"', "1.10"),
    ("parameters.count", "3", 3),
    ("parameters.count", "3.0", 3.0),
    ("parameters.count", "three", "three"),
    ("parameters.either", "1.10", "1.10"),
    ("parameters.tags[0]", "1.10", "1.10"),
    ("parameters.tags", '["1.10"]', ["1.10"]),
    # nothing is declared: what stands there, else what loses nothing
    ("parameters.free", "1.10", "1.10"),
    ("parameters.free", "1e3", "1e3"),
    ("parameters.free", "3", 3),
    ("parameters.free", "true", True),
    ("parameters.number", "1.10", 1.1),
    ("parameters.text", "3", "3"),
    ("parameters.later", "1.10", "1.10"),
    # the plan's own fields
    ("description", "5", "5"),
    ("timeout", "5", 5),
    ("timeout", "5s", "5s"),
    ("idempotent", "true", True),
    ("not_before", "2027", "2027"),
]


@pytest.mark.parametrize(("path", "text", "value"), TYPED, ids=repr)
def test_typed_values_are_read_by_what_is_declared(path, text, value):
    """A text stays a text where a text is meant: version 1.10 is not 1.1."""
    later = "${{ steps.b.data }}"
    given = {"version": later, "count": later, "number": 2, "text": "x", "later": later}
    plan = {"steps": [step("a", parameters={**given, "tags": ["x"]}), step("b")]}
    catalog = Catalog([WorkerSpec(name="w", offers={ANY_ACTION: Offer(parameters=TAKES)})])
    made = typed_value(plan, f"steps.a.{path}", text, None, catalog)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps.step3.worker=v",
         r'steps.step3.worker: there is no step "step3". Did you mean "step-3"'),
        ("steps.step-3.retry.attempts=5", r"attempts: steps.step-3.retry is a number \(3\)"),
        ('steps.a.parameters["odd key"][7]=1', r"there is no item \[7\]; the list has 2"),
        ("steps[9].worker=1", r"steps\[9\] is not there. The list has 3"),
        ("steps.a.parameters[0]=1", r"steps.a.parameters has keys: version, n, odd key"),
        ("budget", "write it as PATH=VALUE"),
        ("..=1", "is not a path"),
        ("steps.a.parameters.n=100000000000000000000", "too large a number"),
    ],
)  # fmt: skip
def test_errors_name_the_path_and_what_is_there(text, said):
    """So that the next try is right."""
    with pytest.raises(UsageError, match=said):
        apply_edits(PLAN, [text])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("steps.step-3.window", r"steps.step-3.window: is not there. There are: id, worker"),
        ("nothing.at.all", r"nothing.at.all: nothing is not there. There are: goal, budget"),
    ],
)
def test_only_what_is_there_is_taken_out(path, said):
    """And the message says what there is."""
    with pytest.raises(UsageError, match=said):
        apply_edits(PLAN, [], [path])


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "The plan has no steps."),
        (["a", "two\nlines"], r"The plan has: a, two\nlines."),
    ],
)
def test_an_unknown_step_is_refused_on_one_line(ids, said):
    """The steps of the plan are named, with a line break in an id as an escape."""
    with pytest.raises(UsageError) as found:
        apply_edits({"steps": [step(each) for each in ids]}, ["steps.nope.timeout=5s"])
    whole = f'steps.nope.timeout: there is no step "nope". {said} To add a step, set the whole '
    assert str(found.value) == whole + "step, with its worker."


def test_an_older_name_leads_to_the_heir():
    """People go on saying step-3."""
    plan = {"steps": [step("step-3.2", supersedes="step-3"), step("x", "step-3")]}
    assert apply_edits(plan, ["steps.step-3.timeout=5s"])["steps"][0]["timeout"] == "5s"
    again = {"steps": [step("step-3.3", supersedes="step-3.2")]}
    heirs = {"step-3": "step-3.2", "step-3.2": "step-3.3"}
    assert value_at(again, "steps.step-3.worker", heirs) == "w"
    assert value_at(again, "steps.step-3.worker") is MISSING


def test_paths_and_assignments():
    """Their parts."""
    assert parts_of('steps.a-1.parameters["k \\"x"][0].y') == [
        "steps", "a-1", "parameters", 'k "x', 0, "y",
    ]  # fmt: skip
    assert split_assignment("a=b=c") == ("a", "b=c")
    assert edit(PLAN) == PLAN
    assert edit(PLAN) is not PLAN


# --- the delta of a run --------------------------------------------------------------------


def amend(run, after, final=True):
    """Take an edited plan as the next revision, as any other."""
    state = run.state
    delta = amendment(state, after)
    assert findings(state, delta.add, delta.cancel, final=final) == []
    hash_ = revision_hash(state.head, delta.add, delta.cancel, final=final)
    revision = ev.RevisionProposed(
        number=state.revision + 1, author="ann", base=state.head, hash=hash_,
        add=delta.add, cancel=delta.cancel, final=final,
    )  # fmt: skip
    run.tell(revision)
    run.tell(ev.RevisionApproved(revision.number, hash_, "policy"))
    run.go()
    return delta


def plan_now(run):
    return plan_of(run.state)[0]


def test_a_step_that_waits_is_changed_and_its_dependents_follow():
    """The heir runs in its place, and whoever waited for it goes on after it."""
    run = Drive(step("a"), step("b", "a"), step("c", "b", parameters={"x": "${{ steps.b.data }}"}))
    delta = amend(run, apply_edits(plan_now(run), ["steps.b.worker=other"]))
    assert delta.renamed == {"b": "b.2"}
    assert [each["id"] for each in delta.add] == ["b.2"]
    run.done("a").done("b.2")
    assert run.state.steps["c"].status == "running"
    run.done("c")
    assert run.state.ended.status == "succeeded"
    assert check(run.log) == []


def test_again_and_under_the_first_name():
    """The second change of a step is of its heir; the plan shows one step."""
    run = Drive(step("a"), step("b", "a"), step("c", "b"))
    amend(run, apply_edits(plan_now(run), ["steps.b.timeout=5s"]))
    doc, heirs = plan_of(run.state)
    assert [each["id"] for each in doc["steps"]] == ["a", "b.2", "c"]
    delta = amend(run, apply_edits(doc, ["steps.b.timeout=9s"], heirs=heirs))
    assert delta.renamed == {"b.2": "b.3"}
    doc, heirs = plan_of(run.state)
    # A plan kept from before still says b, and means what stands for it now.
    doc["steps"][1] = {**doc["steps"][1], "id": "b", "timeout": "1s"}
    del doc["steps"][1]["supersedes"]
    assert amendment(run.state, doc).renamed == {"b.3": "b.4"}


def test_steps_are_added_and_taken_out():
    """What waits may go; what is new comes as it is written."""
    run = Drive(step("a"), step("b", "a"), step("c", "a"))
    after = plan_now(run)
    after["steps"] = [*after["steps"][:2], step("d", "b")]
    delta = amend(run, after)
    assert (delta.cancel, [each["id"] for each in delta.add]) == (["c"], ["d"])
    assert run.state.steps["c"].status == "cancelled"


def test_what_is_only_written_otherwise_is_no_change():
    """Order and spelling are nothing to review."""
    run = Drive(step("a"), step("b", "a"))
    after = plan_now(run)
    after["steps"] = [{**each, "depends_on": each.get("depends_on", [])} for each in after["steps"]]
    after["steps"].reverse()
    assert amendment(run.state, after).empty


def test_a_step_that_started_cannot_change():
    """Every one is named, with what was changed."""
    run = Drive(step("a"), step("b"), step("c", "a"))
    run.done("a")
    with pytest.raises(
        UsageError, match=r'a is succeeded and cannot change any more \(~? ?a.worker: "w" → "v"\)'
    ):
        amendment(run.state, apply_edits(plan_now(run), ["steps.a.worker=v"]))
    with pytest.raises(UsageError, match=r"step b is running and cannot change.*step c is running"):
        amendment(run.state, apply_edits(plan_now(run), ["steps.b.timeout=3"], ["steps.c"]))


def test_a_failed_step_may_be_replaced_or_taken_out():
    """As a revision of a planner may; taken out, it is given up by name."""
    run = Drive(step("a", failure_action="continue"), step("b"))
    run.fail("a", failure("permanent"))
    delta = amend(run, apply_edits(plan_now(run), ["steps.a.worker=other"]))
    assert delta.renamed == {"a": "a.2"}
    run.done("a.2").done("b")
    assert run.state.ended.status == "succeeded"
    run = Drive(step("a", failure_action="continue"), step("b"))
    run.fail("a", failure("permanent"))
    delta = amendment(run.state, apply_edits(plan_now(run), [], ["steps.a"]))
    assert (delta.cancel, delta.drop, delta.empty) == ([], ["a"], False)


def test_what_would_be_left_hanging_is_named():
    """A step that waits for one that was taken out would never start."""
    run = Drive(step("a"), step("b", "a"), step("c", "b"), step("d", finished("b")))
    with pytest.raises(UsageError, match="step c waits for b, which was taken out"):
        amendment(run.state, apply_edits(plan_now(run), [], ["steps.b"]))
    with pytest.raises(UsageError, match="each with an id of its own"):
        amendment(run.state, {"steps": [step("a"), step("a")]})


def test_an_id_is_used_once():
    """Also one that was taken out."""
    run = Drive(step("a"), step("b", "a"))
    after = plan_now(run)
    amend(run, {**after, "steps": after["steps"][:1]})
    with pytest.raises(UsageError, match="the run had a step b before: take another id"):
        amendment(run.state, after)


def test_an_undo_that_speaks_of_its_own_step_follows_it():
    """Otherwise the heir would wait for what it replaces."""
    undo = {"worker": "w", "parameters": {"x": "${{ steps.b.data.id }}"}}
    run = Drive(step("a"), step("b", "a", undo=undo))
    delta = amend(run, apply_edits(plan_now(run), ["steps.b.timeout=5s"]))
    assert delta.add[0]["undo"]["parameters"] == {"x": "${{ steps.b.2.data.id }}"}


def test_a_revision_that_waits_is_replaced_as_a_whole():
    """Nothing of it has started, so its steps keep their ids."""
    run = Drive(step("a", worker="risky"), step("b", "a"))
    assert run.state.pending
    after = apply_edits(plan_now(run), ["steps.a.not_before=02:00 America/New_York"])
    delta = amendment(run.state, after)
    assert [each["id"] for each in delta.add] == ["a", "b"]
    assert delta.add[0]["not_before"] == "02:00 America/New_York"
    assert (delta.cancel, delta.renamed) == ([], {})


def test_fields_beside_the_steps_are_told_apart():
    """A revision holds steps; what becomes of the rest is for whoever asked."""
    before = {"goal": "g", "budget": 3, "steps": [step("a")]}
    after = {"goal": "g", "deadline": "1h", "steps": [step("a")], "final": False}
    delta = changes(before, after, {"a"})
    assert delta.head == {"budget": None, "deadline": "1h"}
    assert delta.final is False
    assert not delta.add


# --- properties ----------------------------------------------------------------------------

IDS = ["a", "b", "c", "d", "e"]


@st.composite
def stories(draw):
    """A plan, how far it ran, and edits."""
    steps = []
    for i, ident in enumerate(IDS):
        after = draw(st.lists(st.sampled_from(IDS[:i]), unique=True, max_size=2)) if i else []
        steps.append(step(ident, *after))
    rounds = draw(st.lists(st.tuples(
        st.integers(0, 2),
        st.dictionaries(st.integers(0, 6), st.sampled_from(["5s", "9s", "gone"]), max_size=3),
        st.booleans(),
    ), max_size=3))  # fmt: skip
    return steps, rounds


@given(stories())
def test_whatever_is_amended_fits_and_the_run_ends_well(story):
    """Each delta is one the core takes; the run's plan is then the edited one; it succeeds."""
    steps, rounds = story
    run = Drive(*steps)
    for number, (turns, edits, more) in enumerate(rounds):
        for _ in range(turns):
            if run.state.in_flight:
                run.done(next(iter(run.state.in_flight)))
        if run.state.ended:
            break
        doc, heirs = plan_of(run.state)
        for place, what in edits.items():
            if place >= len(doc["steps"]):
                continue
            ident = doc["steps"][place]["id"]
            if run.state.steps[ident].status not in ("waiting", "ready"):
                continue
            waits = [name for each in doc["steps"] for name in each.get("depends_on", ())]
            used = ident in [follow(name, heirs) for name in waits]
            if what != "gone":
                doc = apply_edits(doc, [f"steps.{ident}.timeout={what}"], heirs=heirs)
            elif not used:
                doc = apply_edits(doc, [], [f"steps.{ident}"], heirs=heirs)
        if more:
            doc["steps"].append(step(f"new{number}", doc["steps"][0]["id"]))
        delta = amend(run, doc)
        now, now_heirs = plan_of(run.state)
        renames = {f"steps.{new}" for new in delta.renamed.values()}
        for change in diff(doc, now, now_heirs):
            assert change.kind == "renamed" or change.place.rpartition(".")[0] in renames
    while run.state.in_flight:
        run.done(next(iter(run.state.in_flight)))
    assert run.state.ended.status == "succeeded"
    assert check(run.log) == []
    log = [event for _, event in run.log]
    last = revisions(log)[-1]
    alone = standalone(last.doc, last.heirs, {})
    assert not [each for each in alone["steps"] if "supersedes" in each or ".2" in each["id"]]
    assert len(order({s["id"]: s.get("depends_on", ()) for s in alone["steps"]})) == len(
        alone["steps"]
    )
    assert msgspec.json.encode(alone)


@pytest.mark.parametrize("value", [5, [5], [{"a": 1}], [{"step": []}], {"a": 1}])
def test_malformed_dependencies_are_a_difference_and_no_accident(value):
    """The linter says what is wrong with them."""
    plan = {"steps": [{"id": "a", "worker": "w"}, {"id": "b", "worker": "w", "depends_on": ["a"]}]}
    after = edit(plan, [("steps.b.depends_on", value)])
    assert differences(plan, after)
    assert [step["id"] for step in changes(plan, after, {"b": "waiting"}).add]


def test_a_value_may_be_read_by_what_was_edited_before():
    plan = {"steps": [{"id": "a", "worker": "w"}]}
    found = edit(plan, [("budget", 3), ("steps.a.cost", lambda doc: doc["budget"] + 1)])
    assert found["steps"][0]["cost"] == 4
    assert plan == {"steps": [{"id": "a", "worker": "w"}]}
