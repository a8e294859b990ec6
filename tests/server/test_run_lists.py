"""Lists of runs, and what they add up to: filters, order, pages, CSV, and use by day."""

import csv
import io
import time

import pytest

from tests.support.serving import ended, plan_of, project, served


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Five ended runs of two people, with labels, and one that waits for approval."""
    path = tmp_path_factory.mktemp("lists")
    project(path, 'name = "Shop"\nenvironment = "staging"\n')
    with served(path) as server, server.client("operator") as one, server.client() as two:
        for number in range(4):
            body = {
                "plan": plan_of(
                    {"id": "a", "worker": "say", "parameters": {"text": "=1+1"}},
                    plan_id=f"p{number % 2}",
                    goal=f"=Say {number}",
                ),
                "labels": ["nightly", f"team=t{number % 2}"],
            }
            run = (one if number < 3 else two).post("/runs", json=body).json()["run"]
            ended(two, run)
        step = {"id": "a", "worker": "frail", "failure_action": "abort"}
        run = one.post("/runs", json={"plan": plan_of(step, plan_id="broken")}).json()["run"]
        ended(two, run)
        waits = {"plan": plan_of({"id": "a", "worker": "say"}), "review": True}
        assert one.post("/runs", json=waits).status_code == 201
        yield two


def goals(client, **filters):
    """The goals of the runs that filters leave, in order."""
    told = client.get("/runs", params=filters)
    assert told.status_code == 200, told.text
    return [row["goal"] for row in told.json()["items"]]


def test_filters_leave_what_they_say(client):
    """Each filter alone, together, and none of them matches."""
    every = ["a test", "a test", *(f"=Say {n}" for n in (3, 2, 1, 0))]
    assert goals(client) == every
    assert goals(client, sort="created") == every[::-1]
    assert goals(client, q="SAY 2") == ["=Say 2"]
    assert goals(client, plan="p1") == ["=Say 3", "=Say 1"]
    assert goals(client, actor="operator", plan="p1") == ["=Say 1"]
    assert goals(client, label="team=t0") == ["=Say 2", "=Say 0"]
    assert goals(client, label="team") == goals(client, label="nightly") == every[2:]
    assert goals(client, label="night") == []
    assert goals(client, environment="staging") == every
    assert goals(client, environment="production") == []
    assert goals(client, status="succeeded") == every[2:]
    assert len(goals(client, status=["failed", "waiting"])) == 2
    assert goals(client, **{"from": "1d"}) == every
    assert goals(client, to="2026-01-01") == []
    for wrong in ({"from": "soon"}, {"sort": "goal"}, {"cursor": "x"}, {"to": "2026-13-01"}):
        assert client.get("/runs", params=wrong).status_code in (400, 422), wrong


def test_pages_go_on_in_every_order(client):
    """Each run once, whatever the list is sorted by."""
    for order in ("-created", "created", "-duration", "cost", "-ended", "ended"):
        found, cursor = [], None
        while True:
            query = {"limit": 2, "sort": order, **({"cursor": cursor} if cursor else {})}
            told = client.get("/runs", params=query).json()
            found += [row["run"] for row in told["items"]]
            cursor = told["next"]
            if cursor is None:
                break
        assert len(found) == len(set(found)) == 6, order


def test_rows_say_who_where_and_why(client):
    """The reason of a failure stands in the list."""
    (row,) = client.get("/runs", params={"status": "failed"}).json()["items"]
    assert row["actor"] == "operator"
    assert row["environment"] == "staging"
    assert "page not found" in row["reason"]
    assert row["origin"] == "execution"
    assert row["ended"] >= row["created"]
    shown = client.get(f"/runs/{row['run']}").json()
    assert (shown["actor"], shown["labels"], shown["environment"]) == ("operator", [], "staging")
    (row,) = client.get("/runs", params={"status": "waiting"}).json()["items"]
    assert row["ended"] is None
    session = client.get("/session").json()
    assert (session["project"], session["environment"]) == ("Shop", "staging")


def test_csv_has_every_run_and_computes_nothing(client):
    """All that match, without pages; a text that a spreadsheet would compute is quoted."""
    told = client.get("/runs", params={"format": "csv", "limit": 1})
    assert told.headers["content-type"].startswith("text/csv")
    assert "attachment" in told.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(told.text)))
    assert len(rows) == 6
    assert rows[2]["goal"] == "'=Say 3"
    assert rows[2]["labels"] == "nightly team=t1"


def test_usage_adds_up(client):
    """The total is the sum of days and of plans; open runs are included; workers have attempts."""
    found = client.get("/usage").json()
    assert len(found["rows"]) == 30
    total = found["total"]
    assert (total["runs"], total["open"], found["open_included"]) == (6, 1, 1)
    assert (total["succeeded"], total["failed"], total["success_rate"]) == (4, 1, 0.8)
    assert (total["unattended"], total["approvals"]) == (5, 0)
    assert sum(row["runs"] for row in found["rows"]) == 6
    plans = client.get("/usage", params={"by": "plan"}).json()
    assert plans["total"] == total
    assert {row["name"]: row["runs"] for row in plans["rows"]} == {
        "p0": 2, "p1": 2, "broken": 1, "": 1,
    }  # fmt: skip
    workers = client.get("/usage", params={"by": "worker"}).json()["rows"]
    assert {row["name"]: (row["attempts"], row["failed"]) for row in workers} == {
        "say": (4, 0), "frail": (1, 1),
    }  # fmt: skip
    assert client.get("/usage", params={"by": "model"}).json()["rows"] == []
    metrics = client.get("/metrics").json()
    assert metrics["runs"] == {"failed": 1, "succeeded": 4, "waiting": 1}
    assert (
        client.get("/usage", params={"from": "2026-01-02", "to": "2026-01-01"}).status_code == 422
    )
    assert client.get("/usage", params={"from": "yesterday"}).status_code == 422
    assert client.get("/usage", params={"by": "moon"}).status_code == 422


def test_labels_are_checked(client):
    """Refused before anything starts."""
    for wrong in ("", "a b", "=x", "x" * 101):
        body = {"plan": plan_of({"id": "a", "worker": "say"}), "labels": [wrong]}
        assert client.post("/runs", json=body).status_code in (400, 422), wrong
    body = {"plan": plan_of({"id": "a", "worker": "say"}), "labels": ["a=1", "a=2"]}
    assert client.post("/runs", json=body).status_code == 422


def test_the_inbox_shows_the_question_of_a_run_that_goes_on(client):
    """A summary is written when something begins to wait, not only when the status changes."""
    steps = (
        {"id": "a", "worker": "nap", "parameters": {"seconds": 600}},
        {"id": "b", "worker": "say", "parameters": {"text": "x"}},
        {"id": "c", "worker": "human", "action": "decide", "depends_on": ["b"]},
    )
    run = client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
    limit = time.monotonic() + 60
    while not any(row["run"] == run for row in client.get("/inbox").json()["items"]):
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert client.get(f"/runs/{run}").json()["status"] == "running"
    assert client.post(f"/runs/{run}/cancel", json={}).status_code == 200
    assert ended(client, run)["status"] == "cancelled"


@pytest.mark.parametrize("cursor", ["9" * 40 + ".1", "1." + "9" * 40, "--5.1", "٣.٣", "1", "."])
def test_a_cursor_that_was_not_given_out_is_refused(client, cursor):
    found = client.get("/runs", params={"cursor": cursor})
    assert found.status_code == 400
    assert "of no page that was given out" in found.json()["detail"]


def test_dates_at_the_ends_of_the_calendar_are_dates(client):
    """Both included; a list until 1969 is empty, and no figure is asked of the year 0."""
    assert goals(client, **{"from": "0001-01-01", "to": "9999-12-31"}) == goals(client)
    for day in ("1969-12-31", "0001-01-01"):
        assert goals(client, to=day) == []
        figures = client.get("/usage", params={"to": day, "by": "day"})
        assert figures.status_code == 200, figures.text
        assert figures.json()["total"]["runs"] == 0
