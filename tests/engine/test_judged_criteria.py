"""What a screen says about each criterion: met, unmet, or that it is not known."""

from leadhand.core import events as ev
from leadhand.core.catalog import Offer
from leadhand.engine.verdict import FINDINGS_MAX, RESULT_SCHEMA, judged_criteria

STEP = {"id": "s", "gives": ["report"], "success_criteria": ["fits", "data.x > 1", "data.x > 12"]}
OFFER = Offer(returns={"type": "object"}, checks=("fits",), result_check=True)


def judged(report, step=STEP):
    rows = judged_criteria(step, OFFER, "w", report)
    return {row.criterion: row.outcome for row in rows}


def reported(*findings, kind="criteria_unmet"):
    return ev.AttemptReported("s", 1, 1, False, failure={"class": kind}, findings=findings)


def test_without_a_report_of_success_there_is_no_judgement():
    assert set(judged(None).values()) == {"not judged"}
    assert set(judged(reported(kind="denied")).values()) == {"not judged"}


def test_what_a_worker_itself_finds_unmet_is_named_first():
    failure = {"class": "criteria_unmet", "message": "nothing has changed\nmore"}
    (own, *rest) = judged_criteria(
        STEP, OFFER, "w", ev.AttemptReported("s", 1, 1, False, failure=failure)
    )
    assert (own.criterion, own.outcome) == ("nothing has changed", "unmet")
    assert (own.judged_by, {row.outcome for row in rest}) == ("worker w itself", {"not judged"})


def test_a_verified_report_met_all():
    met = ev.AttemptReported("s", 1, 1, True)
    assert set(judged(met).values()) == {"met"}


def test_findings_name_what_is_unmet():
    found = judged(reported("data.x > 12 does not hold", "fits could not be checked: E: x"))
    assert found == {
        RESULT_SCHEMA: "met",
        "gives report": "met",
        "the worker's own check": "met",
        "fits": "unmet",
        "data.x > 1": "met",
        "data.x > 12": "unmet",
    }


def test_a_result_of_the_wrong_form_is_judged_no_further():
    found = judged(reported("data.x: is a string, not a number", kind="invalid_output"))
    assert (found[RESULT_SCHEMA], found["data.x > 1"]) == ("unmet", "not judged")
    found = judged(reported("it promised report, and gave none", kind="invalid_output"))
    assert (found["gives report"], found["fits"]) == ("unmet", "not judged")


def test_what_the_log_does_not_tell_is_said_to_be_unknown():
    """A finding that fits no criterion, a list that was cut, a probe without a class."""
    found = judged(reported("fits does not hold", "the key is [secret:key]"))
    assert (found["fits"], found["data.x > 1"]) == ("unmet", "not recorded")
    many = [f"data.x > {n} does not hold" for n in range(FINDINGS_MAX)]
    criteria = [f"data.x > {n}" for n in range(FINDINGS_MAX + 1)]
    found = judged(reported(*many), {"id": "s", "success_criteria": criteria})
    assert found[criteria[-1]] == "not recorded"
    probe = ev.ProbeReported("s", 1, 1, "done", findings=("data.x: is no number",))
    assert set(judged(probe).values()) == {"not recorded"}
