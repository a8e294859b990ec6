"""A valid document never makes its log unreadable, whoever wrote it.

Documents are made from the published schema (`leadhand schema`), so that a new field is covered by
being described there; what lint then finds is taken out, and everything that is left must run, and
be folded, shown, exported, verified and resumed.
"""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from leadhand import Ask, Finish, GiveUp, Goal, Lead, Propose, Report, Wait, worker
from leadhand.app.documents import Driver, shown_document
from leadhand.app.reader import Reader, reading
from leadhand.app.step_graph import graph_document
from leadhand.cli.group import execute
from leadhand.codec.events import decode, encode, refuse_unreadable, unreadable
from leadhand.core import events as ev
from leadhand.core.catalog import ANY_ACTION, Offer, WorkerSpec
from leadhand.core.lint.plan import lint
from leadhand.core.plan.schema import PLAN_SCHEMA
from leadhand.core.policy import Policy
from leadhand.core.report import Failure
from leadhand.errors import UsageError

QUICK = Policy(backoff_s=0.0, backoff_max_s=0.0)
STEP = {"id": "a", "worker": "echo"}
REPAIRS_MAX = 12
EXAMPLES = int(os.environ.get("LEADHAND_ODD_PLANS", "15"))
"""Plans in the suite; LEADHAND_ODD_PLANS=1000 is a campaign."""
CODES = {0, 1, 3, 5, 6, 8, 9}
"""How a run may stand; not 2, 4, 7 (nobody could look) nor 70."""


@worker(name="echo")
async def echo(x: object = None) -> object:
    """Give back what it is given."""
    return x


@worker(name="effect", effects=["outside"])
async def effect() -> str:
    """A worker that changes something."""
    return "done"


WORKERS = [echo, effect]

# Odd and legal values.

TEXTS = st.sampled_from(
    ["", " ", "x", "é", "日本", "\u202e", "😀", "a.b", "${{ params.p }}", "${{", "0", "1e3", "\x7f"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.sampled_from([0, 1, 2.0, -0.0, 1e-9, 1e300, 2**63 - 1, -(2**63), 0.1]) | st.integers(
    -(2**63), 2**63 - 1
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS


def nested(value: Any, depth: int) -> Any:
    """A value inside so many lists."""
    for _ in range(depth):
        value = [value]
    return value


JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
) | st.builds(nested, LEAVES, st.integers(1, 50))
MEANT: dict[str, Any] = {
    "id": st.sampled_from(["a", "b", "c", "_", "A.b-c", "0"]),
    "worker": st.sampled_from(["echo", "effect"]),
    "depends_on": st.lists(
        st.sampled_from(["a", "b", {"step": "a", "if": "finished"}]), max_size=2
    ),
    "parameters": st.fixed_dictionaries({}, optional={"x": JSON}),
    "action": st.just(""),
    "not_before": st.sampled_from(["2020-01-01T00:00:00Z", "2020-01-01T00:00:00+02:00"]),
    "window": st.sampled_from(["00:00-23:59 UTC", {"from": "00:00", "to": "23:59"}]),
    "timeout": st.sampled_from(["90s", 5, 60.0, "PT15M"]),
    "success_criteria": st.sampled_from(["status == 'succeeded'", ["cost >= 0"], []]),
    "expect": st.sampled_from(["status == 'succeeded'", "cost > 5"]),
    "retry": st.sampled_from([{"attempts": 1}, {"attempts": 2.0}, {}, 1]),
    "failure_action": st.sampled_from(["abort", "continue", "escalate", "abort_all"]),
    "acceptance": st.sampled_from([["result == result"], []]),
    "budget": st.sampled_from([1, 1e300, 2**62, {"cost": 5}]),
    "deadline": st.sampled_from(["90s", "1h", 3600, 1e6]),
    "estimated_duration": st.sampled_from(["15 minutes", 900.0, 1e9]),
    "est": st.sampled_from(["15 minutes", 900.0, 0.001]),
    "limits": st.sampled_from([{"concurrency": 2.0}, {"workers": {"echo": 1.0}}, {}]),
    "resources": st.sampled_from([{}, {"r": 2.0}, {"": 1}, {"é": 1000000}]),
    "uses": st.sampled_from(["r", ["r"], {"r": 1.0}]),
    "outlook": st.lists(
        TEXTS | st.dictionaries(TEXTS | st.just("id"), JSON, max_size=3), max_size=3
    )
    | st.just([{"id": 5, "depends_on": 3, "context": 4, "worker": None}]),
    "rollback_plan": st.just("none-such") | st.just({"steps": [STEP]}),
    "planner": st.nothing(),
    "mode": st.sampled_from(["auto", "whole"]),
    "risk_level": st.just("low"),
    "supersedes": st.nothing(),
    "alternatives": st.sampled_from([[], ["effect"]]),
}
"""Fields whose values mean something: from all that their schema allows, little would pass lint."""


def made(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Documents that a part of the plan schema allows."""
    if "$ref" in schema:
        return made(PLAN_SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([made(each) for each in schema["anyOf"]])
    kinds = schema.get("type", "string")
    return st.one_of(
        [_typed(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    )


def _typed(kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "array":
        return st.lists(made(schema.get("items", {})), max_size=2)
    if kind == "object":
        return _object(schema)
    if kind == "boolean":
        return st.booleans()
    if kind in ("integer", "number"):
        return st.sampled_from([1, 2.0, 3, 1000])
    return TEXTS.filter(lambda text: len(text) >= schema.get("minLength", 0))


def _object(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    known = schema.get("properties")
    if known is None:
        return st.dictionaries(TEXTS, JSON, max_size=2)
    parts = {
        key: MEANT[key] if key in MEANT else st.deferred(lambda v=value: made(v))
        for key, value in known.items()
    }
    need = schema.get("required", [])
    return st.fixed_dictionaries(
        {key: parts.pop(key) for key in need},
        optional={k: v for k, v in parts.items() if not v.is_empty},
    )


PLANS = made(PLAN_SCHEMA["$defs"]["plan"])


def accepted(doc: dict[str, Any], lead: Lead) -> bool:
    """Take out of a document what lint objects to; whether something is left that it accepts."""
    for i, step in enumerate(doc["steps"]):
        step["id"] = "abc"[i] if i < 3 else f"s{i}"
    for _ in range(REPAIRS_MAX):
        found = [
            each for each in lint(doc, lead.registry.catalog(), params={}) if each.level == "error"
        ]
        if not found:
            return bool(doc["steps"])
        for each in found:
            _take_out(doc, each.place)
        if not doc.get("steps"):
            return False
    return False


def _take_out(doc: dict[str, Any], path: str) -> None:
    field, _, rest = path.partition(".")
    if not field.startswith("steps["):
        doc.pop(field.partition("[")[0], None)
        return
    number = int(field[6:].rstrip("]"))
    if number < len(doc["steps"]):
        step, name = doc["steps"][number], rest.partition(".")[0].partition("[")[0]
        if name in ("id", "worker", "") or name not in step:
            doc["steps"].pop(number)
        else:
            del step[name]


def says(*args: str) -> int:
    """The exit code of the command line, in this process."""
    return execute([*args])


def seen_by_all(store: Path, run: str, lead: Lead) -> None:
    """Fold, show, log, export, verify and resume a run; each must be able to."""
    reader = Reader(store)
    state = reader.state(run)
    json.dumps(to_builtins(shown_document(reader, state, Driver())), allow_nan=False)
    json.dumps(to_builtins(graph_document(state)), allow_nan=False)
    reader.store.close_reader()
    at = ("--store", str(store))
    for name in ("show", "show --graph", "show --timeline", "show --json", "logs"):
        verb, *options = name.split()
        assert says(verb, run, *options, *at) in CODES, name
    bundle = str(store.with_name("run.zip"))
    assert says("export", run, "-o", bundle, *at) == 0
    assert says("verify", bundle) == 0
    assert says("verify", run, *at) == 0
    if state.ended is None:
        lead.resume_sync(run)


@settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(doc=PLANS)
def test_what_lint_accepts_runs_and_can_be_read(doc: dict[str, Any]) -> None:
    """Everything that lint accepts is folded, shown, exported, verified and resumed."""
    with TemporaryDirectory() as folder:
        store = Path(folder) / "odd.db"
        lead = Lead(WORKERS, store=str(store), policy=QUICK)
        if not accepted(doc, lead):
            return
        outcome = lead.run_sync(doc)
        seen_by_all(store, outcome.run, lead)


def test_a_text_in_the_outlook_is_shown_and_read(tmp_path: Path) -> None:
    """The document that once ended in StoreCorrupt: it runs, and stays readable."""
    store = tmp_path / "o.db"
    lead = Lead(WORKERS, store=str(store), policy=QUICK)
    doc = {"steps": [STEP], "outlook": ["then tidy up", {"id": "later", "worker": "echo"}]}
    outcome = lead.run_sync(doc)
    assert outcome.status == "succeeded"
    with reading(store) as reader:
        state = reader.state(outcome.run)
    assert state.outlook == doc["outlook"]
    assert [node.id for node in graph_document(state).nodes] == ["a", "later"]
    seen_by_all(store, outcome.run, lead)


WHOLE = {"resources": {"r": 2.0}, "limits": {"concurrency": 3.0, "workers": {"echo": 1.0}}}


def test_whole_numbers_written_as_fractions_are_read(tmp_path: Path) -> None:
    """JSON Schema takes 2.0 for an integer; the log holds one."""
    store = tmp_path / "w.db"
    lead = Lead(WORKERS, store=str(store), policy=QUICK)
    outcome = lead.run_sync({"steps": [{**STEP, "uses": {"r": 1.0}}], **WHOLE})
    assert outcome.status == "succeeded"
    with reading(store) as reader:
        assert reader.state(outcome.run).policy.resources == {"r": 2}


ODD_DECISIONS = [
    Propose([STEP], outlook=["text"]),
    Propose([STEP], outlook=[1]),
    Propose([STEP], outlook=[None]),
    Propose([STEP], cancel=[["x"]]),
    Propose([STEP], cancel=[1]),
    Propose([STEP], drop={"a": 3}),
    Propose([STEP], drop={"a": None}),
    Propose([STEP], because={"x": 1}),
    Propose([STEP], final="yes"),
    Propose([STEP], notes=float("nan")),
    Propose(["a"]),
    Propose([{"id": 1, "worker": "echo"}]),
    Propose([{"id": "a", "worker": "echo", "parameters": {"x": {1: 2}}}]),
    Finish(float("nan")),
    Finish(2**70),
    Finish(1, drop={"a": None}),
    Finish(1, drop=[1]),
    Ask("q", choices=[1, None]),
    Ask({"x": 1}, within_s=0.0),
    Ask("q", facts=[1]),
    GiveUp(None),
    Wait(because=1),
]


@pytest.mark.parametrize("odd", ODD_DECISIONS, ids=repr)
def test_whatever_a_planner_answers_the_log_can_be_read(odd: Any, tmp_path: Path) -> None:
    """A decision of the wrong form is refused with its place; the planner is asked again."""
    calls: list[Any] = []

    def planner(view: Any) -> Any:
        calls.append(view)
        if len(calls) == 1:
            return odd
        return Finish("done") if view.results else Propose([STEP])

    store = tmp_path / "p.db"
    lead = Lead(WORKERS, planner, store=str(store), policy=QUICK)
    outcome = lead.run_sync(Goal(text="goal"))
    assert outcome.status in ("succeeded", "waiting", "failed")
    with reading(store) as reader:
        graph_document(reader.state(outcome.run))


def test_a_refused_decision_names_its_place(tmp_path: Path) -> None:
    """The planner, and the log, learn what was wrong and where."""
    seen: list[Any] = []

    def planner(view: Any) -> Any:
        seen.append(view.findings)
        return Propose([STEP], outlook=["fine", 7]) if len(seen) == 1 else Finish(1)

    store = tmp_path / "n.db"
    outcome = Lead(WORKERS, planner, store=str(store), policy=QUICK).run_sync(Goal(text="goal"))
    with reading(store) as reader:
        failed = [e for _, e in reader.events(outcome.run) if isinstance(e, ev.PlannerFailed)]
    assert "outlook[1]" in failed[0].reason


class OddWorker:
    """A worker of one's own, whose reports nobody has looked at before the engine."""

    def __init__(self, report: Any) -> None:
        self.spec = WorkerSpec(name="echo", offers={ANY_ACTION: Offer()})
        self._report = report

    async def perform(self, _task: Any, _context: Any) -> Any:
        """Report."""
        return self._report

    async def probe(self, _task: Any, _context: Any) -> Any:
        """Report."""
        return self._report

    def check(self, _name: str, _action: str, _data: Any) -> bool:
        """Say that it holds."""
        return True


ODD_REPORTS = [
    Report(artifacts=(1,)),  # type: ignore[arg-type]
    Report(recommendations=(1, None)),  # type: ignore[arg-type]
    Report(cost="x"),  # type: ignore[arg-type]
    Report(cost=float("nan")),
    Report(output=5),  # type: ignore[arg-type]
    Report("odd"),  # type: ignore[arg-type]
    Report("failed", error=Failure("transient", None)),  # type: ignore[arg-type]
    Report("failed", error=Failure(3, "x")),  # type: ignore[arg-type]
    Report("failed", error=Failure("permanent", "x", retry_after_s=float("nan"))),
    Report("failed", error=Failure("permanent", "x", details={1: {2}})),
    Report(data=2**80),
    Report(data={1: 2}),
    {"status": "succeeded"},
    None,
]


@pytest.mark.parametrize("odd", ODD_REPORTS, ids=repr)
def test_whatever_a_worker_reports_the_log_can_be_read(odd: Any, tmp_path: Path) -> None:
    """A report of the wrong form is invalid output: neither the log nor the host suffers."""
    store = tmp_path / "r.db"
    lead = Lead([OddWorker(odd)], store=str(store), policy=QUICK)
    outcome = lead.run_sync({"steps": [STEP]})
    assert outcome.status in ("succeeded", "waiting", "failed")
    with reading(store) as reader:
        graph_document(reader.state(outcome.run))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**70, {1: 2}, {"s": {1}}], ids=repr)
def test_what_json_cannot_hold_is_refused_at_every_door(value: Any, tmp_path: Path) -> None:
    """Goals, parameters, plans and answers are refused with the place, and nothing is recorded."""
    store = tmp_path / "d.db"
    lead = Lead(WORKERS, store=str(store), policy=QUICK)
    plan = {"steps": [STEP], "params": {"p": {}}}
    with pytest.raises(UsageError, match=r"goal\.have\.x"):
        lead.run_sync(Goal(text="g", want=["y"], have={"x": value}))
    with pytest.raises(UsageError, match=r"params\.p"):
        lead.run_sync(plan, params={"p": value})
    with pytest.raises(UsageError, match=r"plan\.steps\[0\]"):
        lead.run_sync({"steps": [{**STEP, "parameters": {"x": value}}]})
    with reading(store) as reader:
        assert not reader.runs()


def test_events_of_the_wrong_form_are_refused_with_the_place(tmp_path: Path) -> None:
    """The last net, before an append: what would be stored is decoded as readers decode it."""
    good = ev.PlannerWaits(1, ["a"])
    assert not unreadable(good)
    assert decode(ev.EVENT_VERSION, encode(good)) == good
    for bad in (ev.PlannerWaits(1, [2]), ev.PlannerWaits(1, [{"x": object()}])):  # type: ignore[list-item]
        with pytest.raises(UsageError, match="PlannerWaits"):
            refuse_unreadable([good, bad])
    with pytest.raises(UsageError, match=r"\$\.policy\.backoff_s"):
        Lead(WORKERS, store=str(tmp_path / "e.db"), policy=Policy(backoff_s=float("nan"))).run_sync(
            {"steps": [STEP]}
        )


def test_lint_of_a_cycle_under_a_deadline_names_the_cycle() -> None:
    """Found by the plans above: the estimate of the whole stumbled over steps behind a cycle."""
    steps = [
        {"id": "a", "worker": "echo"},
        {"id": "b", "worker": "echo", "depends_on": ["a", "c"]},
        {"id": "c", "worker": "echo", "depends_on": ["b"]},
    ]
    found = lint({"steps": steps, "deadline": "1h"}, None)
    assert [each.rule for each in found if each.level == "error"] == ["cycle"]
