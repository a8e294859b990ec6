"""The verdict: the engine's own judgement of a report. A claim is not a fact.

1. A failure the worker reported is a failure.
2. A success is judged by everything declared beforehand: the schema that the worker declares for
   its result, the facts that worker and step promise, the worker's own result check, and the step's
   success criteria (named checks of the worker and safe expressions over the report). A plan adds
   to the requirements of its worker, and removes none.
3. A command that exited with a code without a declared meaning is judged by its criteria, if it has
   any; it succeeds only if one of them reads the exit code, and all hold.
4. Only True counts. A check that raises, an expression that cannot be evaluated, an unknown name:
   unmet. Unsure is unmet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from leadhand.codec.expressions import ExpressionError, evaluate
from leadhand.codec.values import plain
from leadhand.core import promises
from leadhand.core.facts import broken_promises
from leadhand.core.jsonschema import problems
from leadhand.ports import is_external_cancellation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.core.catalog import Offer
    from leadhand.core.events import AttemptReported, ProbeReported
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import Failure, Report
    from leadhand.ports import Worker

MESSAGE_CHARS_MAX = 4000
CHANGE_BYTES_MAX = 1 << 20
FINDINGS_MAX = 20
RESULT_SCHEMA = "the result matches its schema"
OWN_CHECK = "the worker's own check"
NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class CriterionRow(msgspec.Struct, kw_only=True):
    """One thing that a result is judged by, and how the last report was judged."""

    criterion: str
    """The criterion as declared."""
    judged_by: str
    """What decides it: an expression, a check or a declaration of a worker."""
    outcome: Literal["met", "unmet", "not judged", "not recorded"]
    """`not judged`: there was no report of success to judge. `not recorded`: the log does not
    tell which criteria failed."""
    finding: str
    """Why it is unmet, if it is."""


class StepVerdict(NamedTuple):
    """Whether a report is accepted as success, and the findings."""

    met: bool
    failure: Doc | None
    findings: list[str]
    surprise: str = ""


def as_list(criteria: Json) -> list[str]:
    """Return criteria, a text or a list of texts, as a list."""
    if criteria is None:
        return []
    return [criteria] if isinstance(criteria, str) else list(criteria)


def failure_doc(failure: Failure) -> Doc:
    """Return a failure in the form that is logged."""
    doc: Doc = {
        "class": failure.failure_class,
        "message": failure.message[:MESSAGE_CHARS_MAX],
        "effect": failure.effect,
    }
    if failure.retry_after_s is not None:
        doc["retry_after"] = failure.retry_after_s
    if failure.details is not None:
        doc["details"] = _bounded(failure.details)
    if failure.change is not None:
        change = _change(failure.change)
        if change is None:
            doc["message"] = f"a change that cannot be shown whole: {doc['message']}"
        else:
            doc["change"] = change
    return doc


def _change(change: Doc) -> Doc | None:
    """Return a change that needs approval, complete or not at all, so that no part is hidden.

    Return None if it is no document, names no commit, or is too large to be read.
    """
    try:
        raw = msgspec.json.encode(plain(change, "change"))
        doc: Doc = msgspec.json.decode(raw)
    except (ValueError, TypeError):
        return None
    named = isinstance(doc, dict) and doc.get("commit") and doc.get("digest")
    return doc if named and len(raw) <= CHANGE_BYTES_MAX else None


def _bounded(details: Json) -> Json:
    """Return short details unchanged; else the end of their text."""
    try:
        raw = msgspec.json.encode(plain(details, "details"))
    except (ValueError, TypeError):
        return str(details)[-MESSAGE_CHARS_MAX:]
    if len(raw) <= MESSAGE_CHARS_MAX:
        return msgspec.json.decode(raw)
    return raw.decode()[-MESSAGE_CHARS_MAX:]


def judge(step: Doc, offer: Offer, worker: Worker, report: Report, data: Json) -> StepVerdict:
    """Judge one report; `data` is its data as it will be logged."""
    if report.status != "succeeded" or report.error is not None:
        failure = report.error
        if failure is None:
            message = "the worker reported a failure without saying why"
            return StepVerdict(
                False, {"class": "unavailable", "message": message, "effect": "none"}, []
            )
        if not _undecided(step, offer, worker, failure):
            return StepVerdict(False, failure_doc(failure), [])
    findings = _form(offer, data) or _kept(step, offer, data)
    kind = "invalid_output" if findings else "criteria_unmet"
    if not findings:
        findings = _unmet(step, offer, worker, report, data)
    if report.error is not None and (findings or not _reads_exit(step, offer, report.error)):
        findings = [*findings, report.error.message]
    if findings:
        message = "; ".join(findings)[:MESSAGE_CHARS_MAX]
        effect = "none" if _harmless(step, offer, worker) else "done"
        failure_ = {"class": kind, "message": message, "effect": effect}
        return StepVerdict(False, failure_, findings[:FINDINGS_MAX])
    if "expect" not in step and not report.recommendations:
        return StepVerdict(True, None, [])
    return StepVerdict(True, None, [], _surprise(step, worker, report, data, offer))


def _unmet(step: Doc, offer: Offer, worker: Worker, report: Report, data: Json) -> list[str]:
    """Return a finding for each check of the worker and criterion of the step that fails."""
    if not offer.result_check and step.get("success_criteria") is None:
        return []
    action, names = step.get("action", ""), _names(report, data)
    own = [_named(worker, action, "", data)] if offer.result_check else []
    criteria = as_list(step.get("success_criteria"))
    checked = (_criterion(worker, action, each, names, offer) for each in criteria)
    return [finding for finding in (*own, *checked) if finding]


def _undecided(step: Doc, offer: Offer, worker: Worker, failure: Failure) -> bool:
    """Return whether criteria judge a failure: an exit code of a command without a meaning."""
    if failure.exit_read_by is None or worker.spec.kind != "command":
        return False
    return bool(step.get("success_criteria")) or offer.result_check


def _reads_exit(step: Doc, offer: Offer, failure: Failure) -> bool:
    """Return whether a criterion reads the exit code, and so may accept another code than 0."""
    reading = failure.exit_read_by or ()
    if offer.result_check and "" in reading:
        return True
    criteria = as_list(step.get("success_criteria"))
    return any(each in reading or "exit_code" in each for each in criteria)


def _harmless(step: Doc, offer: Offer, worker: Worker) -> bool:
    """Return whether a failed attempt certainly changed nothing outside.

    It declares no effects, or is a function that declares nothing. For a command or a call, no
    declaration means unknown.
    """
    if step.get("idempotent") is False:
        return False
    declared = promises.effects(step, offer)
    return not declared if declared is not None else worker.spec.kind == "function"


def _form(offer: Offer, data: Json) -> list[str]:
    if offer.returns is None or (data is None and offer.returns.get("type") == "null"):
        return []
    return [f"{p.path or 'data'}: {p.message}" for p in problems(data, offer.returns, "data")]


def _kept(step: Doc, offer: Offer, data: Json) -> list[str]:
    """Return the broken promises: the step's, and the worker's for facts the step does not name.

    A claim beyond the worker makes nothing true, and is still checked.
    """
    if "gives" not in step and not offer.gives:
        return []
    own = promises.as_names(step.get("gives"))
    found = broken_promises(own, data) if own else []
    if "gives" not in step or not set(own) <= set(offer.gives):
        found += [each for each in broken_promises(offer.gives, data) if each not in found]
    return found


def _names(report: Report, data: Json) -> dict[str, Any]:
    return {
        "data": data,
        "status": "succeeded",
        "error": None,
        "cost": report.cost,
        "artifacts": list(report.artifacts),
        "recommendations": list(report.recommendations),
    }


def _criterion(
    worker: Worker, action: str, criterion: str, names: dict[str, Any], offer: Offer
) -> str:
    if NAMED.fullmatch(criterion) and (criterion in offer.checks or criterion not in names):
        return _named(worker, action, criterion, names["data"])
    try:
        held = evaluate(criterion, names)
    except ExpressionError as error:
        return f"{criterion}: {error}"
    return "" if held is True else f"{criterion} does not hold"


def _named(worker: Worker, action: str, name: str, data: Json) -> str:
    label = name or OWN_CHECK
    try:
        held = worker.check(name, action, data)
    except BaseException as error:
        if is_external_cancellation(error):
            raise  # else a check that raises does not hold
        return f"{label} could not be checked: {type(error).__name__}: {error}"
    return "" if held is True else f"{label} does not hold"


def _surprise(step: Doc, worker: Worker, report: Report, data: Json, offer: Offer) -> str:
    names, action = _names(report, data), step.get("action", "")
    for expectation in as_list(step.get("expect")):
        finding = _criterion(worker, action, expectation, names, offer)
        if finding:
            return f"expected {expectation}: {finding}"
    for word in report.recommendations:
        if word.lower().startswith("replan"):
            return f"its report recommends: {word}"
    return ""


def judged_criteria(
    step: Doc, offer: Offer | None, worker: str, report: AttemptReported | ProbeReported | None
) -> list[CriterionRow]:
    """Return everything that the result of a step is judged by, and how `report` was judged.

    `report` is the last report of the step; None: there is none.
    """
    rows = _declared(step, offer, worker)
    if report is None or not (report.met or report.findings):
        return [*_own_verdict(worker, report), *rows]
    shape = [row for row in rows if row.judged_by.startswith("declared")]
    criteria = [row for row in rows if row not in shape]
    if report.met:
        return _as_met(rows)
    kind = (getattr(report, "failure", None) or {}).get("class")
    if kind == "invalid_output":  # the criteria of a result in the wrong form are not judged
        _mark_unmet(shape, report.findings)
        return rows
    if kind == "criteria_unmet":
        _as_met(shape)
    known = _mark_unmet(criteria, report.findings)
    complete = kind is not None and known == len(report.findings) < FINDINGS_MAX
    for row in rows:
        if row.outcome == "not judged":
            row.outcome = "met" if complete else "not recorded"
    return rows


def _own_verdict(worker: str, report: AttemptReported | ProbeReported | None) -> list[CriterionRow]:
    """Return what a worker itself found unmet: then no result was there to judge."""
    failure = getattr(report, "failure", None) or {}
    said = str(failure.get("message", "")).strip().partition("\n")[0]
    if failure.get("class") != "criteria_unmet" or not said:
        return []
    by = f"worker {worker} itself"
    return [CriterionRow(criterion=said, judged_by=by, outcome="unmet", finding="")]


def _as_met(rows: list[CriterionRow]) -> list[CriterionRow]:
    for row in rows:
        row.outcome = "met"
    return rows


def _declared(step: Doc, offer: Offer | None, worker: str) -> list[CriterionRow]:
    """Return the criteria of a step, in the order in which they are judged."""
    found: list[tuple[str, str]] = []
    if offer is not None and offer.returns is not None:
        found.append((RESULT_SCHEMA, f"declared by worker {worker}"))
    gives = dict.fromkeys([*promises.as_names(step.get("gives")), *(offer.gives if offer else ())])
    found += [(f"gives {name}", "declared by the plan or the worker") for name in gives]
    if offer is not None and offer.result_check:
        found.append((OWN_CHECK, f"check of worker {worker}"))
    for each in as_list(step.get("success_criteria")):
        named = NAMED.fullmatch(each) and offer is not None and each in offer.checks
        found.append((each, f"check of worker {worker}" if named else "expression"))
    return [
        CriterionRow(criterion=text, judged_by=source, outcome="not judged", finding="")
        for text, source in found
    ]


def _mark_unmet(rows: list[CriterionRow], findings: Sequence[str]) -> int:
    """Mark the criteria that findings are about; return the number of findings that fit one.

    The findings are as `_criterion`, `_named`, `_kept` and `_form` write them.
    """
    fitting = 0
    for row in rows:
        name = row.criterion.removeprefix("gives ")
        starts: tuple[str, ...] = (f"it promised {name}, and", f"it says that {name} is")
        if row.criterion == RESULT_SCHEMA:
            starts = ("data: ", "data.", "data[")
        elif not row.judged_by.startswith("declared"):
            starts = tuple(f"{name}{end}" for end in (" does not hold", ": ", " could not be "))
        if found := [each for each in findings if each.startswith(starts)]:
            row.outcome, row.finding = "unmet", "; ".join(found)
            fitting += len(found)
    return fitting


def goal_findings(acceptance: tuple[str, ...], result: Json, steps: Doc) -> list[str]:
    """Return the goal's acceptance criteria that do not hold."""
    findings = []
    for criterion in acceptance:
        try:
            held = evaluate(criterion, {"result": result, "data": result, "steps": steps})
        except ExpressionError as error:
            findings.append(f"{criterion}: {error}")
            continue
        if held is not True:
            findings.append(f"{criterion} does not hold")
    return findings
