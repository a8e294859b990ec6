"""The bug zoo: each known way to be wrong is planted, and must be caught.

A suite that lets one of these through is not evidence. A bug is a small patch of the core, the
engine or a store; it is hunted with the same seeds that `test_seeds` finds clean, so whatever
is caught is the bug. `CAUGHT_BY` in each says what sort of violation is meant to speak: a bug
that is caught by accident only is not caught.
"""

import random
import re

import msgspec
import pytest

from leadhand.core import commands, facts, promises
from leadhand.core import events as ev
from leadhand.core.decide import decide, planner_answer, recovery
from leadhand.core.decide.effects import Move
from leadhand.core.decide.recovery import Recovery
from leadhand.core.report import Propose
from leadhand.core.review import approval, decisions, holds
from leadhand.core.review.ruling import Ruling
from leadhand.core.state import evolve, model
from leadhand.core.state import evolve as evolve_plan
from leadhand.core.state import evolve as evolve_steps
from leadhand.engine import host, perform, run
from leadhand.engine import host as breakers
from leadhand.engine.verdict import StepVerdict
from leadhand.errors import Conflict
from leadhand.planners.document import DocumentPlanner
from leadhand.stores import memory
from tests.simulation.simulator import simulate_seed

SEEDS_MAX = 2000
RARE = (260, 570, 950, 1574, 2842, 2746, 10612)
"""Seeds that showed what few show; they are looked at first, only to be quick."""
SHOWN_BY = {
    "a_failed_step_is_forgotten_by_the_next_revision": 208,
    "a_wait_is_not_honoured": 107,
    "an_answer_is_forgotten": 159,
    "an_open_question_is_forgotten": 502,
    "criteria_replace_the_workers_check": 770,
    "failures_are_forgiven": 862,
    "nothing_new_is_told_at_once": 201,
    "outages_have_no_end": 1891,
    "parts_are_split_for_ever": 1808,
    "the_end_is_told_before_the_commit": 3,
    "the_store_writes_half_a_batch": 28,
}
"""The seed that showed a bug which is long to hunt, looked at before all others."""

pytestmark = pytest.mark.sim

ZOO = []


def bug(caught_by):
    """A planted bug, and a pattern for the violations that are meant to catch it."""

    def keep(plant):
        ZOO.append(pytest.param(plant, caught_by, id=plant.__name__))
        return plant

    return keep


def handle(monkeypatch, event, handler):
    """Put another handler of an event in place; it gets the real one first."""
    real = evolve.HANDLERS[event]
    monkeypatch.setitem(evolve.HANDLERS, event, lambda *args: handler(real, *args))


# Fencing.


@bug("IllegalEvent|I12")
def a_late_report_is_accepted(patch):
    """The fence at the door is gone."""
    patch.setattr(commands, "report", lambda _state, reported: Move([reported], []))


@bug("I12|I10|I17|IllegalEvent")
def no_fence_at_all(patch):
    """Neither the door nor the fold looks at epochs."""

    def current(of, ident, _epoch, _status):
        return of.steps[ident]

    patch.setattr(commands, "report", lambda _state, reported: Move([reported], []))
    patch.setattr(evolve_steps, "_current", current)


@bug("I11")
def epochs_do_not_grow(patch):
    """Every attempt gets the epoch of the one before."""

    def started(real, of, event, at):
        real(of, event, at)
        of.epoch -= 1

    handle(patch, ev.AttemptStarted, started)


@bug("goes on trying|stopped|did not end")
def a_replaced_host_goes_on(patch):
    """Being fenced is taken for a conflict, which is tried again."""
    real = run.Run._undo
    patch.setattr(
        run.Run,
        "_undo",
        lambda self, batch, error: real(self, batch, Conflict("?") if error else error),
    )


@bug("I12|I11|I3|I5|stopped|could not host")
def the_store_has_no_owner(patch):
    """Appends are not checked against the owner's epoch."""
    real = memory.MemoryStore._check

    def check(self, request):
        self._epoch = self._disk.epoch
        return real(self, request)

    patch.setattr(memory.MemoryStore, "_check", check)


# Durability.


@bug("L2")
def effects_come_before_the_commit(patch):
    """Workers are called as soon as it is decided."""
    real = run.Run._flush

    def flush(self, batch, entries):
        effects = list(batch.effects)
        batch.effects.clear()
        real(self, batch, entries)
        for effect in effects:
            self.host.perform(self, effect)

    patch.setattr(run.Run, "_flush", flush)


@bug("I1")
def people_are_told_before_the_commit(patch):
    """A word is acknowledged as soon as it is heard."""
    real = run.Run._flush

    def flush(self, batch, entries):
        self._finish_waiters(batch)
        real(self, batch, entries)

    patch.setattr(run.Run, "_flush", flush)


@bug("I1")
def nothing_new_is_told_at_once(patch):
    """A word that changes nothing is acknowledged though what it rests on is not durable."""
    real = run.Run._flush

    def flush(self, batch, entries):
        if entries:
            real(self, batch, entries)
        else:
            self._finish_waiters(batch)

    patch.setattr(run.Run, "_flush", flush)


@bug("I1")
def the_end_is_told_before_the_commit(patch):
    """Whoever waits for a run hears of its end when memory says so."""

    async def settled(self):
        while self.state.ended is None:
            await run.asyncio.sleep(0.01)
        return self.state.ended.status

    patch.setattr(run.Run, "wait_idle", settled)


@bug("nobody answered|did not end|nothing is left|could not host")
def a_failed_commit_drops_its_inputs(patch):
    """What was said in a batch that did not become durable is forgotten."""
    real = run.Run._undo

    def undo(self, batch, error):
        batch.inputs.clear()
        real(self, batch, error)

    patch.setattr(run.Run, "_undo", undo)


@bug("I4|IllegalEvent|stopped")
def a_failed_commit_is_not_undone(patch):
    """Memory keeps what the disk refused."""

    def load_from(self, entries):
        if not self._folding:
            real(self, entries)
        self._seq = len(entries)
        self._head = entries[-1].hash if entries else run.GENESIS

    real = run.Run.load_from
    patch.setattr(run.Run, "load_from", load_from)


@bug("I4|I3|stopped|could not host")
def the_store_writes_half_a_batch(patch):
    """Now and then the last entry of an append is not written, and nobody hears of it."""
    real = memory.MemoryStore._write

    def write(self, request):
        kept = request.entries[:-1] if len(request.entries) == 2 else request.entries
        real(self, request._replace(entries=kept))

    patch.setattr(memory.MemoryStore, "_write", write)


@bug("I4")
def jitter_is_drawn_by_the_fold(patch):
    """Folding the same log twice gives two states."""

    def decided(real, of, event, at):
        real(of, event, at)
        of.steps[event.step].until += random.randrange(1000)

    handle(patch, ev.RecoveryDecided, decided)


# Documents, and taking back.


@bug("I24.*never revised")
def a_document_is_revised(patch):
    """A plan that names no planner is changed by something that is not a person."""

    async def decide(_self, view):
        return Propose([{**next(iter(view.steps.values())).planned, "id": f"again{view.call}"}])

    patch.setattr(DocumentPlanner, "replans", True)
    patch.setattr(DocumentPlanner, "decide", decide)


@bug("I21.*not to be taken back")
def a_rollback_that_was_asked_for_is_forgotten(patch):
    """The answer ends the run, and nothing is taken back."""
    real = commands.answer_events

    def answered(*args, **more):
        return [
            msgspec.structs.replace(event, rollback=False)
            if isinstance(event, ev.StopDecided)
            else event
            for event in real(*args, **more)
        ]

    patch.setattr(commands, "answer_events", answered)


# Time.


@bug("did not end|nothing is left")
def timers_are_lost(patch):
    """Nothing wakes a run but what it is told."""
    patch.setattr(run.Run, "_set_timer", lambda _self, _now: None)


@bug("I40|I19")
def deadlines_follow_the_calendar(patch):
    """A jump of the calendar makes everything overdue."""
    real = decide.overdue
    patch.setattr(
        decide, "overdue", lambda of, now: real(of, now._replace(at=max(now.at, now.wall)))
    )


@bug("was called before")
def not_before_is_forgotten(patch):
    """The calendar times of a revision are not taken over."""

    def approved(real, of, event, at):
        real(of, msgspec.structs.replace(event, instants={}), at)

    handle(patch, ev.RevisionApproved, approved)


# Failures.


@bug("I19")
def retry_after_is_ignored(patch):
    """Whoever is asked to wait does not."""

    def retry(of, step, message):
        found = recovery._retry(of, step, message)
        return None if found is None else found._replace(wait_s=0.0)

    patch.setitem(recovery._RUNGS, "retry", retry)


@bug("I17")
def what_nobody_saw_is_repeated(patch):
    """An unknown effect is tried again without asking."""
    patch.setattr(
        recovery,
        "_unseen",
        lambda _state, step, message, _offer: Recovery("retry", message, 0.0, step.worker),
    )


@bug("I17")
def another_worker_repeats_what_may_have_happened(patch):
    """Only the last failure is looked at."""
    patch.setattr(recovery, "may_have_happened", lambda _step: False)


@bug("I19")
def one_attempt_too_many(patch):
    """The maximum is off by one."""
    real = recovery.retry_policy

    def policy(step, constants):
        found = real(step, constants)
        return found._replace(attempts=found.attempts + 1)

    patch.setattr(recovery, "retry_policy", policy)


@bug("I20")
def the_hopeless_is_tried_again(patch):
    """A permanent failure is retried."""
    patch.setitem(recovery.LADDER, "permanent", ("retry",))


@bug("I21")
def failures_are_decided_twice(patch):
    """The first decision does not take the step off the list."""

    def decided(real, of, event, at):
        real(of, event, at)
        again = (event.step, event.attempt, "again")
        if again not in of.recommendations:
            of.recommendations.append(again)
            of.undecided.append(event.step)

    handle(patch, ev.RecoveryDecided, decided)


@bug("L2|L6")
def the_next_attempt_does_not_wait(patch):
    """A worker that does not stop is not waited for."""

    async def over(context, _before):
        context.begun = True

    patch.setattr(perform, "_over", over)


@bug("I11|I12|I17")
def adopted_runs_start_everything_again(patch):
    """What an earlier host had in flight is simply started once more."""

    def hosted(real, of, event, at):
        for ident in list(of.in_flight):
            step = of.steps[ident]
            if step.status == "running":
                evolve_steps._release(of, step, at)
                evolve_steps.make_ready(of, step)
        real(of, event, at)

    handle(patch, ev.RunHosted, hosted)


# Outages, splits and people.


@bug("circuit: .* left alone")
def the_circuit_is_ignored(patch):
    """Workers that are to be left alone are called all the same."""
    patch.setattr(breakers.Breakers, "__contains__", lambda _self, _worker: False)


@bug("circuit: .* is trying")
def everybody_tries_at_once(patch):
    """When a circuit's time is up, all are let through."""
    patch.setattr(breakers.Breakers, "_trying", lambda _self, _worker: False)


@bug("did not end|nothing is left")
def nobody_looks_when_a_circuit_closes(patch):
    """Steps that wait for a worker are never told that it is well."""
    patch.setattr(breakers.Breakers, "_look_again", lambda _self: None)


@bug("I21")
def a_parked_step_burns_tries(patch):
    """An outage that was waited out counts as a try."""

    def decided(real, of, event, at):
        before = of.steps[event.step].tries
        real(of, event, at)
        if event.strategy == "park":
            of.steps[event.step].tries = before

    handle(patch, ev.RecoveryDecided, decided)


@bug("I19")
def outages_have_no_end(patch):
    """How long a step was parked already is forgotten."""

    def decided(real, of, event, at):
        real(of, event, at)
        of.steps[event.step].parked_s = 0.0

    handle(patch, ev.RecoveryDecided, decided)


@bug("I31")
def parts_are_split_for_ever(patch):
    """How often something was split is forgotten."""

    def simplify(of, step, message):
        step.depth = 0
        return recovery._simplify(of, step, message)

    patch.setitem(recovery._RUNGS, "simplify", simplify)


@bug("I40")
def a_default_answer_comes_early(patch):
    """Half a second before the time is up, nobody is waited for any longer."""

    def asked(real, of, event, at):
        until = max(event.until - 500_000, 0)
        real(of, msgspec.structs.replace(event, until=until), at)

    handle(patch, ev.QuestionAsked, asked)


@bug("L5")
def a_persons_word_is_not_judged(patch):
    """Whatever a person calls done is done."""
    real = perform.judge

    def judge(step, offer, worker, report, data):
        if worker.spec.kind == "human":
            return StepVerdict(met=True, failure=None, findings=[])
        return real(step, offer, worker, report, data)

    patch.setattr(perform, "judge", judge)


@bug("L5")
def a_person_is_not_asked(patch):
    """A step that a person does is started like any other."""

    def approved(real, of, event, at):
        real(of, event, at)
        for step in of.steps.values():
            step.answered = True

    handle(patch, ev.RevisionApproved, approved)


# The plan.


@bug("I14")
def dependencies_are_not_waited_for(patch):
    """Every step is ready at once."""
    real = evolve_plan._wire

    def wire(of, step, names):
        real(of, step, names)
        if step.status == "waiting" and not step.lost_dependency:
            evolve_steps.make_ready(of, step)

    patch.setattr(evolve_plan, "_wire", wire)


@bug("got stuck|did not end|nothing is left")
def dependents_are_not_skipped(patch):
    """Nobody tells a step that what it waits for has failed."""
    patch.setattr(evolve_steps, "mark_to_skip", lambda _state, _step, _dependency: None)


@bug("L5")
def every_claim_is_believed(patch):
    """A report counts as success whatever it says."""
    patch.setattr(perform, "judge", lambda *_args: StepVerdict(met=True, failure=None, findings=[]))


@bug("L5")
def failures_are_forgiven(patch):
    """A step that failed does not keep the run from succeeding."""
    patch.setattr(model.State, "is_blocking", lambda _self, _step: False)


@bug("L5")
def the_goal_is_not_checked(patch):
    """The acceptance criteria are passed over."""
    patch.setattr(decide, "acceptance", lambda _state: ())


@bug("L5.*nothing has given")
def a_step_gives_what_it_says(patch):
    """Widened promise: a step's word on what it gives is believed, whatever its worker says."""
    patch.setattr(
        facts,
        "facts_given",
        lambda step, offer, **_: promises.facts_given(step, offer, widened=True),
    )


@bug("I17")
def a_step_may_call_itself_idempotent(patch):
    """Widened promise: what its worker does not promise is repeated blindly."""
    real = promises.is_idempotent
    patch.setattr(
        recovery, "is_idempotent", lambda step, offer, **_: real(step, offer, widened=True)
    )


@bug("L13")
def planners_widen_what_people_approve(patch):
    """Widened promise: a person who approves a planner's revision makes its claims count."""
    patch.setattr(approval, "may_widen", lambda _started, _revision: True)


@bug("L13: .* nobody saw")
def nobody_need_be_shown_what_is_widened(patch):
    """Widened promise: an approval counts as seen without anything having been shown."""
    patch.setattr(decisions, "was_shown", lambda _state, _revision, _shown: True)


@bug("L13|IllegalEvent")
def the_policy_widens(patch):
    """Widened promise: what runs without approval counts for what it claims."""
    real = decisions.apply_ruling

    def ruled(of, revision, *args):
        events, effects = real(of, revision, *args)
        claimed = list(promises.widenings(revision.add, of.catalog))
        return [
            msgspec.structs.replace(event, widens=claimed)
            if isinstance(event, ev.RevisionApproved) and event.actor == "policy"
            else event
            for event in events
        ], effects

    patch.setattr(decisions, "apply_ruling", ruled)
    patch.setattr(planner_answer, "apply_ruling", ruled)


@bug("L5.*after lie")
def criteria_replace_the_workers_check(patch):
    """A plan's criteria take the place of what its worker is held to."""
    real = perform.judge

    def judge(step, offer, worker, report, data):
        if step.get("success_criteria"):
            offer = msgspec.structs.replace(offer, result_check=False)
        return real(step, offer, worker, report, data)

    patch.setattr(perform, "judge", judge)


@bug("L14")
def a_finish_is_believed(patch):
    """Early finish: the planner says that it is done, and nothing is looked at."""
    patch.setattr(
        planner_answer, "_finished", lambda of, _answer: ([ev.FinishAccepted(of.planner.calls)], [])
    )


@bug("L14")
def a_failed_step_is_forgotten_by_the_next_revision(patch):
    """Early finish: a planner that goes on counts as having dealt with what failed."""

    def approved(real, of, event, at):
        real(of, event, at)
        for ident in list(of.awaiting_planner):
            of.blocking -= of.is_blocking(of.steps[ident])
            of.steps[ident].tolerated = True

    handle(patch, ev.RevisionApproved, approved)


@bug("I52")
def a_wait_is_not_honoured(patch):
    """The planner is asked again at once, though nothing has changed."""

    def waits(real, of, event, at):
        real(of, event, at)
        of.planner.due = of.planner.due or "again"

    handle(patch, ev.PlannerWaits, waits)


@bug("L15.*was given")
def an_answer_is_forgotten(patch):
    """What a person gave, as asked, does not count as given."""

    def answered(real, of, event, at):
        real(of, event, at)
        of.answers[-1]["facts"] = []

    handle(patch, ev.QuestionAnswered, answered)


@bug("L15.*is open")
def an_open_question_is_forgotten(patch):
    """A planner that gives up ends the run, though a person was asked."""
    real = planner_answer.answer_moves

    def moves(of, now):
        answer = of.planner.answer or {}
        if answer.get("kind") == "give_up":
            return [ev.StopDecided("failed", "the planner gave up", origin="planning")], []
        return real(of, now)

    patch.setattr(decide, "answer_moves", moves)


@bug("L5: .*wanted|L5.*nothing has given")
def a_wanted_fact_is_not_looked_for(patch):
    """Steps that succeeded are taken for what they should have given."""
    patch.setattr(decide, "missing_facts", lambda _state, _goal: [])


@bug("I24")
def nobody_reviews(patch):
    """The policy lets everything through."""
    real = planner_answer.apply_ruling

    def ruled(of, revision, wanted, findings, now):
        events, effects = real(of, revision, wanted, findings, now)
        if isinstance(events[-1], ev.ReviewRequested):
            events = [ev.RevisionApproved(revision.number, revision.hash, "policy", "why not")]
        return events, effects

    patch.setattr(planner_answer, "apply_ruling", ruled)


@bug("I28")
def one_person_releases_whatever_is_held(patch):
    """A release needs one person, whatever the rule says."""
    patch.setattr(holds, "people_for", lambda _state, _question: Ruling(1, ""))


@bug("I27")
def an_ended_approval_is_used(patch):
    """Nothing looks at approvals when a step starts."""
    patch.setattr(decide, "no_longer_allowed", lambda _state, _step, _now: None)


@bug("I27")
def a_clock_that_is_set_back_revives_approvals(patch):
    """Ends are compared with the calendar alone."""
    patch.setattr(model.Now, "latest", property(lambda now: now.wall))


# Control and limits.


@bug("I18")
def pausing_does_nothing(patch):
    """The pause is recorded, and not heeded."""
    handle(patch, ev.RunPaused, lambda _real, _state, _event, _at: None)


@bug("I18|I1|L5")
def a_cancelled_run_goes_on(patch):
    """The cancellation is recorded, and not heeded."""
    handle(patch, ev.CancelRequested, lambda _real, _state, _event, _at: None)


@bug("I29")
def stop_all_is_not_heeded(patch):
    """The governor grants starts all the same."""
    real = host.EmbeddedHost.room

    def room(self):
        return max(real(self), 1) if self.shared.stopped else real(self)

    patch.setattr(host.EmbeddedHost, "room", room)


@bug("I30")
def reservations_are_not_counted(patch):
    """Only what is spent counts, not what is in flight."""
    patch.setattr(
        decide, "_over_budget", lambda of, step, budget: of.spent + of.price(step) > budget
    )


@bug("I16")
def one_more_of_each_resource(patch):
    """The limit of a resource is off by one."""
    real = model.State.reached_limit

    def full(self, group):
        limit = real(self, group)
        if not limit.startswith("resource"):
            return limit
        name = limit.removeprefix("resource ")
        most = self.policy.resources[name]
        return "" if self.busy_resources.get(name, 0) <= most else limit

    patch.setattr(model.State, "reached_limit", full)


@bug("I16")
def workers_have_no_limit(patch):
    """How many attempts a worker may have at once is not looked at."""
    patch.setattr(model.State, "worker_limit", lambda _self, _worker: None)


@bug("did not end|nothing is left")
def starved_runs_are_not_woken(patch):
    """A run that found no room is not told when there is some."""
    patch.setattr(host.EmbeddedHost, "wake_waiting", lambda _self: None)


# Who failed.


@bug("I50")
def planning_is_blamed_for_failed_steps(patch):
    """Whatever fails, the planner did it."""
    patch.setattr(decide, "origin_of", lambda _step: "planning")


@bug("I50")
def nothing_is_blamed(patch):
    """Ends do not say where their cause lies."""
    real = decide._ending
    patch.setattr(decide, "_ending", lambda ended: real(msgspec.structs.replace(ended, origin="")))


@pytest.mark.parametrize(("plant", "caught_by"), ZOO)
def test_a_planted_bug_is_caught(plant, caught_by, monkeypatch):
    """Within a bounded number of seeds, by the violation that is meant, and not without it."""
    with monkeypatch.context() as patch:
        plant(patch)
        found = hunt(caught_by, SHOWN_BY.get(plant.__name__))
    assert found is not None, f"{SEEDS_MAX} seeds did not show it"
    seed, violations = found
    print(f"{plant.__name__}: seed {seed}: {violations[0]}")
    assert simulate_seed(seed).ok, "the seed is not clean without the bug either"


def hunt(caught_by, likely=None):
    """The first seed that shows the bug as it should, and what it shows."""
    first = () if likely is None else (likely,)
    for seed in (*first, *RARE, *range(SEEDS_MAX)):
        verdict = simulate_seed(seed)
        if any(re.search(caught_by, violation) for violation in verdict.violations):
            return seed, verdict.violations
    return None


def test_the_zoo_is_large_enough():
    """At least a dozen, each with another way to be wrong."""
    assert len({param.id for param in ZOO}) >= 12
