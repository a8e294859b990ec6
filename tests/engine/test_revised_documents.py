"""A plan document that names its planner is revised by it, and by nobody else."""

import pytest

from leadhand import Goal, Lead, Permanent, Plan, Policy, Propose, ScriptPlanner, worker
from leadhand.app.reader import reading
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from leadhand.errors import PlanInvalid, UsageError
from leadhand.testing import ScriptedModel, simulate

CALLS = []


@worker(needs="topic", gives="raw", effects=["net"], idempotent=True)
async def fetch(topic: str) -> str:
    raise Permanent(f"page not found: {topic}")


@worker(needs="topic", gives="raw", effects=["net"], idempotent=True, cost=2)
async def archive(topic: str) -> str:
    return f"old {topic}"


@worker(needs="raw", gives="summary", effects=[], idempotent=True)
async def summarise(raw: str) -> str:
    return f"sum of {raw}"


@worker(gives="raw", effects=["mail"], idempotent=True, cost=9, writes=["outbox/*"])
async def write_letter(topic: str) -> str:
    return f"answer about {topic}"


WORKERS = (fetch, archive, summarise, write_letter)
STEPS = [
    {"id": "fetch", "worker": "fetch", "parameters": {"topic": "${{ params.topic }}"}},
    {"id": "sum", "worker": "summarise", "parameters": {"raw": "${{ steps.fetch.data }}"}},
]
PLAN = {
    "goal": {"text": "Sum it up", "want": ["summary"], "have": {"topic": "prices"}},
    "params": {"topic": "prices"},
    "planner": "goal",
    "envelope": {"workers": ["archive"]},
    "steps": STEPS,
}


def without(*names):
    return {key: value for key, value in PLAN.items() if key not in names}


def revised(view):
    """Take the archive in the place of the page that is not there."""
    CALLS.append(view)
    step = {
        "id": "again",
        "worker": "archive",
        "parameters": {"topic": "${{ params.topic }}"},
        "supersedes": "fetch",
    }
    return Propose([step], final=True, because="the page is gone")


async def lettered(view):
    """Leave what was allowed."""
    step = {"id": "letter", "worker": "write_letter", "supersedes": "fetch"}
    step["parameters"] = {"topic": "${{ params.topic }}"}
    return Propose([step], final=True, because="the page is gone")


NAMED = f"{__name__}:lettered"


def events(done, kind):
    return [event for _, event in done.events if isinstance(event, kind)]


def asked(done):
    return [event.kind for event in events(done, ev.QuestionAsked)]


@pytest.mark.parametrize("values", [{}, {"topic": "wages"}])
def test_the_goal_planner_revises_a_document_that_names_it(values):
    """With the partial results, and with the values that the parameters were given."""
    done = simulate(PLAN, WORKERS, params=values)
    assert done.outcome.ok, done.lines()
    assert done.outcome.result == f"sum of old {values.get('topic', 'prices')}"
    assert not done.violations
    assert not asked(done)


def test_a_document_without_a_planner_is_never_revised():
    """Not even where a step asks for a replan: a person is asked."""
    steps = [{**STEPS[0], "failure_action": "replan"}, STEPS[1]]
    done = simulate({**without("planner"), "steps": steps}, WORKERS)
    assert done.outcome.status == "waiting"
    assert asked(done) == ["failure"]
    assert len(events(done, ev.RevisionProposed)) == 1
    assert not done.violations


def test_what_the_goal_has_need_not_be_a_parameter():
    """The goal planner writes the value where no parameter holds it."""
    steps = [{**STEPS[0], "parameters": {"topic": "prices"}}, STEPS[1]]
    done = simulate({**without("params"), "steps": steps}, WORKERS)
    assert done.outcome.result == "sum of old prices", done.lines()


def test_a_failure_action_comes_before_the_planner():
    """Whoever wrote `abort` meant it."""
    steps = [{**STEPS[0], "failure_action": "abort"}, STEPS[1]]
    done = simulate({**PLAN, "steps": steps}, WORKERS)
    assert done.outcome.status == "failed"
    assert len(events(done, ev.RevisionProposed)) == 1


@pytest.mark.parametrize("at", range(2, 22))
def test_after_a_crash_the_planner_is_found_again(at):
    """Wherever the host dies."""
    done = simulate(PLAN, WORKERS, crash_after=[at])
    assert done.outcome.result == "sum of old prices", done.lines()
    assert not done.violations


def test_a_function_revises_a_document_that_names_it():
    """By module and name; the planner sees what is done, what failed, and why."""
    CALLS.clear()

    async def plan(view):
        return revised(view)

    name = f"{__name__}:{plan.__qualname__}"
    done = simulate({**PLAN, "planner": name}, WORKERS, plan)
    assert done.outcome.result == "sum of old prices", done.lines()
    (view,) = CALLS
    assert view.call == 2
    assert view.steps["fetch"].error.message == "page not found: prices"
    assert view.why.startswith("surprise")
    assert [event.author for event in events(done, ev.RevisionProposed)] == ["plan", "plan"]


def test_a_surprise_is_brought_to_the_planner():
    """A success that is not as the document expects it."""
    seen = []

    async def plan(view):
        seen.append(view.why)
        return Propose((), final=True)

    steps = [{"id": "a", "worker": "archive", "parameters": {"topic": "x"}, "expect": "data == 1"}]
    name = f"{__name__}:{plan.__qualname__}"
    done = simulate({"steps": steps, "planner": name, "goal": "g"}, WORKERS, plan)
    assert done.outcome.ok, done.lines()
    assert len(seen) == 1
    assert "surprise: step a" in seen[0]


def test_a_document_that_is_not_final_is_gone_on_with():
    """`final: false`: the planner is asked when the steps are done."""
    doc = {**PLAN, "steps": [{**STEPS[0], "worker": "archive"}], "final": False}
    done = simulate(doc, WORKERS)
    assert done.outcome.result == "sum of old prices", done.lines()
    assert not done.violations


REVIEW = Policy(review=True)


def test_inside_the_envelope_nobody_is_asked_again():
    """The plan asks for the archive beforehand, and the person allows it with the plan."""
    reviews = []

    def people(question):
        reviews.append(question.id)
        return "approve"

    done = simulate(PLAN, WORKERS, policy=REVIEW, answers=people)
    assert done.outcome.ok, done.lines()
    assert reviews == ["review-1"]
    second = events(done, ev.RevisionApproved)[1]
    assert (second.actor, second.reason) == ("policy", "within the approval by person")


@pytest.mark.parametrize("policy", [REVIEW, Policy()])
def test_outside_the_envelope_the_difference_is_reviewed(policy):
    """Even where the policy would let such a plan run: a person has allowed something else."""
    reviews = []

    def people(question):
        reviews.append((question.id, question.text))
        return "approve"

    risky = {**without("envelope"), "planner": NAMED, "risk_level": "high"}
    doc = risky if not policy.review else {**risky, "risk_level": "low"}
    rules = {"auto_risk": "medium"} | ({"review": True} if policy.review else {})
    done = simulate(doc, WORKERS, lettered, policy=Policy(**rules), answers=people)
    assert done.outcome.ok, done.lines()
    assert [each[0] for each in reviews] == ["review-1", "review-2"]
    assert "worker write_letter" in reviews[1][1]
    assert not done.violations


def test_what_a_rule_lets_through_still_waits_outside_the_envelope():
    """`allow` is for plans that nobody has looked at; this one was allowed as it stood."""
    from leadhand import Rule

    rules = (Rule(workers=("fetch",), then="one"), Rule(workers=("write_letter",), then="allow"))
    doc = {**without("envelope"), "planner": NAMED}
    policy = Policy(rules=rules)
    waits = simulate(doc, WORKERS, lettered, policy=policy, answers=_first_only)
    assert waits.outcome.status == "waiting", waits.lines()
    (question,) = waits.outcome.waiting_for
    assert question.id.endswith("review-2")
    assert "it exceeds the approval by person" in question.text
    assert not waits.violations


def _first_only(question):
    return "approve" if question.id == "review-1" else None


def test_the_checker_knows_that_only_people_revise_what_names_no_planner():
    """And that a planner does not leave what a person allowed of its document."""
    doc = {**without("envelope"), "planner": NAMED}
    done = simulate(doc, WORKERS, lettered, policy=REVIEW, answers=lambda _: "approve")
    log = list(done.events)
    assert check(log) == []
    unasked = [
        (at, _as_policy(event))
        for at, event in log
        if not (isinstance(event, (ev.ReviewRequested, ev.ApprovalGiven)) and event.number == 2)
    ]
    messages = [each.message for each in check(unasked)]
    assert any("requires the approval of a person" in each for each in messages), messages

    def document(event):
        match event:
            case ev.RunStarted():
                return _with(event, planner="document", plan=without("planner", "steps"))
            case ev.RevisionProposed():
                return _with(event, author="document")
        return event

    found = check([(at, document(event)) for at, event in log])
    assert any("never revised" in each.message for each in found)


def _with(event, **more):
    import msgspec

    return msgspec.structs.replace(event, **more)


def _as_policy(event):
    if isinstance(event, ev.RevisionApproved) and event.number == 2:
        return _with(event, actor="policy", envelope={}, expires=0)
    return event


REVISION = {
    "kind": "propose",
    "because": "the page is gone",
    "final": True,
    "steps": [
        {
            "id": "again",
            "worker": "archive",
            "parameters": {"topic": "${{ params.topic }}"},
            "supersedes": "fetch",
        }
    ],
}


@pytest.mark.parametrize(("goal", "name"), [(PLAN["goal"], "hybrid"), ("Sum it up", "model")])
def test_a_model_revises_a_document_that_names_it(goal, name, tmp_path):
    """By its tier; it reads what failed, its limits are finite, and after a review it is found."""
    model = ScriptedModel([REVISION])
    place = tmp_path / "runs.db"
    lead = Lead(WORKERS, store=str(place), tiers={"lead": model}, policy=REVIEW)
    plan = {**PLAN, "goal": goal, "planner": "lead"}
    assert lead.run_sync(plan, run_id="r").status == "waiting"
    done = lead.resume_sync("r", approve=True)
    assert done.result in ("sum of old prices", {"summary": "sum of old prices"}), done
    (request,) = model.requests
    assert "page not found: prices" in str(request.turns)
    with reading(place) as reader:
        started = reader.state("r").started
    assert (started.planner, started.planner_source) == (name, "lead")
    assert started.policy.budget == 10
    assert started.policy.planner_calls_max == 200


def test_a_document_is_not_sent_back_to_a_planner_that_reads_no_words(tmp_path):
    """The goal planner plans from facts: amend the plan, or reject it."""
    lead = Lead(WORKERS, store=str(tmp_path / "runs.db"), policy=REVIEW)
    waits = lead.run_sync(PLAN, run_id="r")
    answers = waits.waiting_for[0].answers
    assert answers == ["approve", "reject"]


# --- which planner may be named ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["os:system", "planner.py:plan", "gaol", "chat:m@http://x.example"]
)
def test_a_document_chooses_neither_code_nor_an_address(name, tmp_path):
    """What was not given to the Lead is refused before anything runs."""
    lead = Lead(WORKERS, store=str(tmp_path / "runs.db"))
    with pytest.raises(PlanInvalid) as refused:
        lead.run_sync({**PLAN, "planner": name})
    assert "planner-unknown" in str(refused.value.findings[0])
    assert "planner=" in str(refused.value.findings[0])


def test_a_planner_may_be_given_under_the_name_that_documents_use(tmp_path):
    """As the command line does it."""
    store = str(tmp_path / "runs.db")
    lead = Lead(WORKERS, store=store, planners={"ours": ScriptPlanner(revised)})
    assert lead.run_sync({**PLAN, "planner": "ours"}).result == "sum of old prices"
    with pytest.raises(PlanInvalid):
        Lead(WORKERS, store=store).run_sync({**PLAN, "planner": "ours"})


def test_the_goal_planner_needs_wanted_facts(tmp_path):
    """A goal in words tells it nothing."""
    lead = Lead(WORKERS, store=str(tmp_path / "runs.db"))
    with pytest.raises(PlanInvalid, match="names none"):
        lead.run_sync({**PLAN, "goal": "Sum it up"})


@pytest.mark.parametrize(
    ("planner", "name"),
    [(None, "goal"), ("goal", "goal"), (revised, f"{__name__}:revised")],
)
def test_a_plan_keeps_the_planner_that_wrote_it(planner, name, tmp_path):
    """And recovers as the goal would, through a file, too."""

    def first(view):
        return Propose(STEPS, final=True) if view.call == 1 else revised(view)

    store = str(tmp_path / "runs.db")
    given = first if planner is revised else planner
    lead = Lead(WORKERS, given, store)
    goal = Goal(text="Sum it up", want="summary", have={"topic": "prices"})
    plan = lead.plan_sync(goal)
    label = f"{__name__}:{first.__qualname__}" if planner is revised else name
    assert plan.planner == label
    assert Plan.from_doc(plan.to_doc()) == plan
    assert lead.run_sync(plan).result == "sum of old prices"
    assert lead.run_sync(plan, params={"topic": "wages"}).result == "sum of old wages"


async def test_a_run_is_taken_up_only_with_the_planner_of_its_plan(tmp_path):
    """One that is missing is named, and no other stands in for it."""
    store = str(tmp_path / "runs.db")
    policy = Policy(review=True)
    named = {**PLAN, "planner": "ours"}
    lead = Lead(WORKERS, store=store, planners={"ours": revised}, policy=policy)
    waits = await lead.run(named, run_id="r")
    assert waits.status == "waiting"
    await lead.answer("r", "review-1", "approve")
    with pytest.raises(UsageError, match="ours"):
        await Lead(WORKERS, store=store).resume("r")
    again = Lead(WORKERS, store=store, planners={"ours": revised})
    assert (await again.resume("r")).result == "sum of old prices"
