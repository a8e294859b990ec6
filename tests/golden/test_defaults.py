"""A log leaves out what is as usual, so what is usual stays: a default is part of every old log.

A field that is new gets the default that runs had before it. Another value for new runs belongs to
where runs are started: there it differs from these, and is recorded.
"""

import pytest
from msgspec import structs

from leadhand.core.policy import Policy, Rule

POLICY = {
    "max_concurrency": 100,
    "worker_concurrency": {},
    "resources": {},
    "attempts_max": 3,
    "backoff_s": 1.0,
    "backoff_factor": 2.0,
    "backoff_max_s": 60.0,
    "jitter": 0.2,
    "park_s": 60.0,
    "outage_s": 86400.0,
    "restarts_free": 0,
    "splits_max": 5,
    "timeout_s": 3600.0,
    "planner_timeout_s": 600.0,
    "probe_timeout_s": 60.0,
    "planner_calls_max": 1000,
    "planner_rounds_max": 3,
    "replans_idle_max": 3,
    "steps_max": 100000,
    "wall_s": None,
    "budget": None,
    "auto_risk": "medium",
    "agent_risk": "",
    "review": False,
    "rules": (),
    "reviewers": (),
    "approvers": {},
    "approval_s": None,
    "cancel_grace_s": 10.0,
    "no_input": False,
    "inline_bytes": 65536,
}
RULE = {
    "name": "",
    "risk": "",
    "workers": (),
    "effects": (),
    "cost_over": None,
    "untrusted": False,
    "findings": False,
    "then": "one",
}


@pytest.mark.parametrize(("kind", "usual"), [(Policy, POLICY), (Rule, RULE)])
def test_what_a_log_does_not_say_means_what_it_meant(kind, usual):
    given = kind()
    assert {each.name: getattr(given, each.name) for each in structs.fields(kind)} == usual
