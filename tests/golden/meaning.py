"""What a folded history amounts to, in words that outlive the classes it is made of.

The digest of this is stored beside each golden history. So it names facts, not attributes: a
field that is renamed or kept elsewhere changes this file, never a digest.
"""

import msgspec

from leadhand.core.hashing import canonical, digest
from leadhand.core.views import run

SUMMARY = ("status", "goal", "plan", "steps", "settled", "waiting", "cost")


def meaning(state):
    """Everything that a reader of the log may rely on."""
    told = run.summary(state)
    summary = {key: getattr(told, key) for key in SUMMARY}
    return {
        "outcome": outcome_meaning(state),
        "summary": summary,
        "exit_code": run.exit_code(state),
        "run": {
            "events": state.seq,
            "owner": state.owner,
            "started": state.started_at,
            "last": state.last_at,
            "revision": state.revision,
            "head": state.head,
            "final": state.final,
            "outlook": state.outlook,
            "epoch": state.epoch,
            "paused": state.paused,
            "spent": round(state.spent, 9),
            "planner_calls": state.planner.calls,
            "planner_notes": state.planner.notes,
            "answers": state.answers,
            "recommendations": state.recommendations,
            "in_flight": state.in_flight,
        },
        "steps": {ident: step_meaning(step) for ident, step in state.steps.items()},
    }


def outcome_meaning(state):
    found = msgspec.to_builtins(run.run_outcome(state))
    for name in ("money", "worked", "waited"):
        found.pop(name)
    if "waiting_for" in found:
        found["waiting_for"] = [question_meaning(state, each) for each in state.questions.values()]
    return found


def question_meaning(state, question):
    return {
        "id": f"{state.run}/{question.id}",
        "kind": question.kind,
        "run": state.run,
        "step": question.step or None,
        "text": question.text,
        "choices": question.choices,
        "since": question.at,
    }


def step_meaning(step):
    return {
        "doc": step.doc,
        "status": step.status,
        "worker": step.worker,
        "attempts": step.attempts,
        "data": step.data,
        "data_ref": step.data_ref,
        "failures": list(step.failures),
        "reason": step.reason,
        "tolerated": step.tolerated,
        "superseded_by": step.superseded_by,
        "not_before": step.not_before,
        "started": step.started,
        "ended": step.ended,
        "cost": round(step.cost, 9),
    }


def digest_of(state):
    """The digest of all that."""
    return digest(canonical(msgspec.to_builtins(meaning(state))))
