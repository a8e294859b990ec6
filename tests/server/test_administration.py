"""Workers, settings and people: what an administrator looks at and changes over HTTP."""

from tests.support.serving import ended, plan_of

SAY = {"id": "a", "worker": "say", "parameters": {"text": "hi"}}
SHAKY = {"id": "b", "worker": "shaky", "failure_action": "abort", "retry": 1}


def started(client, *steps):
    found = client.post("/runs", json={"plan": plan_of(*steps)})
    assert found.status_code == 201, found.text
    return ended(client, found.json()["run"])["run"]


def test_workers_tell_how_they_were_used(server):
    """Attempts, failures, the last error with its place, the p50; an unused worker has no rate."""
    with server.client("operator") as client:
        started(client, SAY)
        failed = started(client, SHAKY)
    with server.client("viewer") as client:
        shown = client.get("/workers/use").json()
        rows = {row["worker"]: row for row in shown["items"]}
        assert (shown["runs"], shown["complete"]) == (2, True)
        assert rows["say"]["attempts"] == 1
        assert rows["say"]["failure_rate"] == 0
        assert rows["say"]["p50_s"] is not None
        assert rows["say"]["last_error"] is None
        shaky = rows["shaky"]
        assert (shaky["failed"], shaky["failure_rate"], shaky["p50_s"]) == (1, 1.0, None)
        error = shaky["last_error"]
        assert (error["run"], error["step"]) == (failed, "b")
        assert (error["failure_class"], error["message"]) == ("permanent", "the disk is full")
        assert rows["danger"] | {"failure_rate": None, "attempts": 0} == rows["danger"]
        assert {row["availability"] for row in shown["items"]} == {"available"}
