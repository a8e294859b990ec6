"""The overview over HTTP: what runs, what failed and why, and sums that match the runs."""

from leadhand.app import overview
from leadhand.core.calendar import from_iso
from leadhand.core.views.totals import DAY_US
from tests.support.serving import ended, plan_of

SAY = {"id": "a", "worker": "say"}
SHAKY = {"id": "b", "worker": "shaky", "failure_action": "abort"}


def test_runs_are_counted_and_failures_say_why(server):
    """One that succeeded, one that failed, one that waits: each where it belongs."""
    with server.client("operator") as client:
        runs = [
            client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
            for steps in ([SAY], [SAY, SHAKY], [{"id": "c", "worker": "danger"}])
        ]
        for run in runs:
            ended(client, run)
    with server.client("viewer") as client:
        doc = client.get("/overview", params={"range": "24h"}).json()
        (failed,) = [row for row in doc["failed"] if row["run"] == runs[1]]
        by_day = {name: client.get(f"/overview?range={name}").json() for name in ("7d", "90d")}
        waiting = client.get("/inbox").json()["total"]
        listed = client.get("/runs", params={"limit": 500}).json()["items"]
    assert failed["step"] == "b"
    assert failed["error"] == {"class": "permanent", "message": "the disk is full"}
    assert "the disk is full" in failed["reason"]
    assert (failed["goal"], failed["started_by"]) == ("a test", "operator")
    assert doc["waiting"] == waiting
    assert doc["running"] == []
    total, rows = doc["total"], doc["rows"]
    assert (doc["any_runs"], doc["interval"], len(rows)) == (True, "hour", 24)
    for key in ("runs", "open", "succeeded", "failed", "failed_steps"):
        assert sum(row[key] for row in rows) == total[key]
    assert (total["runs"], total["failed"]) == (
        len(listed),
        sum(row["status"] == "failed" for row in listed),
    )
    for name, days in (("7d", 7), ("90d", 90)):  # by day it is the same as by hour
        other = by_day[name]
        assert (other["total"], len(other["rows"])) == (total, days)
        assert from_iso(other["rows"][-1]["name"]) // DAY_US == from_iso(rows[-1]["name"]) // DAY_US


def test_an_unknown_range_is_refused(server):
    """And who is not signed in sees nothing."""
    with server.client("viewer") as client:
        assert client.get("/overview", params={"range": "1y"}).status_code == 422
        first = client.get("/overview")
        again = client.get("/overview", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    with server.client("") as client:
        assert client.get("/overview").status_code == 401


def test_many_runs_are_counted_by_day(server, monkeypatch):
    """Hours are counted run by run, so there is a bound; rows that are left out are told of."""
    with server.client("operator") as client:
        for _ in range(2):
            run = client.post("/runs", json={"plan": plan_of(SAY, SHAKY)}).json()["run"]
            ended(client, run)
        monkeypatch.setattr(overview, "HOURLY_MAX", 1)
        monkeypatch.setattr(overview, "ROWS_MAX", 1)
        doc = client.get("/overview", params={"range": "24h"}).json()
    assert (doc["interval"], len(doc["rows"])) == ("day", 2)
    assert [row["run"] for row in doc["failed"]] == [run]
    assert doc["failed_more"] is True
