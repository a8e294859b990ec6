"""Steps of an agent that drives a run, over HTTP."""

from tests.support.serving import ended, plan_of

MINE = {"id": "mine", "worker": "caller", "success_criteria": "data.n > 2"}
NEXT = {"id": "next", "worker": "say", "depends_on": ["mine"]}


def test_an_agent_carries_out_a_step(server):
    """Handed out to one agent, reported once; the rest of the plan goes on here."""
    with server.client("operator") as client:
        run = client.post("/runs", json={"plan": plan_of(MINE, NEXT)}).json()["run"]
        assert ended(client, run)["status"] == "waiting"
        row = client.get("/runs").json()["items"][0]
        assert (row["run"], row["awaiting"]) == (run, "caller")
        told = client.post(f"/runs/{run}/next-step", json={"caller": "bot", "lease": "5m"}).json()
        step = told["step"]
        assert (step["id"], step["attempt"], step["caller"]) == ("mine", 1, "agent:bot of operator")
        again = client.post(f"/runs/{run}/next-step", json={"caller": "bot"}).json()["step"]
        assert (again["attempt"], again["again"]) == (1, True)
        other = client.post(f"/runs/{run}/next-step", json={"caller": "other"}).json()
        assert (other.get("step"), other["reason"]) == (None, "agent:bot of operator has step mine")
        said = {"caller": "bot", "attempt": 1, "status": "succeeded", "data": {"n": 3}}
        foreign = client.post(f"/runs/{run}/steps/mine/report", json={**said, "caller": "other"})
        assert (foreign.status_code, "not to agent:other" in foreign.text) == (409, True)
        more = {"caller": "bot", "attempt": 1, "lease": "10m", "message": "half", "fraction": 0.5}
        lease = client.post(f"/runs/{run}/steps/mine/extend", json=more).json()
        assert lease["deadline"] > step["deadline"]
        receipt = client.post(f"/runs/{run}/steps/mine/report", json=said).json()
        assert (receipt["met"], receipt["repeated"]) == (True, False)
        assert client.post(f"/runs/{run}/steps/mine/report", json=said).json()["repeated"] is True
        assert ended(client, run)["status"] == "succeeded"
        assert client.post(f"/runs/{run}/next-step", json={"caller": "bot"}).json()["status"] == (
            "succeeded"
        )
        assert "handed out to agent:bot of operator" in client.get(f"/runs/{run}/ledger").text


def test_the_agent_of_one_token_never_acts_as_the_agent_of_another(server):
    """Whatever it calls itself: it gets, extends and reports no step of another account's agent."""
    with server.client("operator") as client, server.client("approver") as other:
        run = client.post("/runs", json={"plan": plan_of(MINE)}).json()["run"]
        ended(client, run)
        mine = client.post(f"/runs/{run}/next-step", json={"caller": "bot"}).json()["step"]
        said = {"attempt": 1, "status": "succeeded", "data": {"n": 3}}
        report, extend = (f"/runs/{run}/steps/mine/{verb}" for verb in ("report", "extend"))
        for name in ("bot", "agent:bot", mine["caller"], mine["caller"].removeprefix("agent:")):
            told = other.post(f"/runs/{run}/next-step", json={"caller": name}).json()
            assert told.get("step") is None, name
            lease = other.post(extend, json={"caller": name, "attempt": 1, "lease": "10m"})
            assert (lease.status_code, "was handed out to" in lease.text) == (409, True), name
            assert other.post(report, json={"caller": name, **said}).status_code == 409, name
        assert client.get(f"/runs/{run}").json()["status"] == "waiting"
        done = client.post(report, json={"caller": mine["caller"], **said})
        assert (done.status_code, done.json()["met"]) == (200, True), "the name as it was told"


def test_who_and_what_is_refused(server):
    """A viewer hands out nothing; a form is complete, and an agent has a name."""
    with server.client("operator") as client, server.client("viewer") as viewer:
        run = client.post("/runs", json={"plan": plan_of(MINE)}).json()["run"]
        ended(client, run)
        path = f"/runs/{run}/next-step"
        assert viewer.post(path, json={"caller": "bot"}).status_code == 403
        for bad in ({}, {"caller": ""}, {"caller": "a,b"}, {"caller": "bot", "lease": "soon"}):
            assert client.post(path, json=bad).status_code == 422, bad
        assert client.post("/runs/none/next-step", json={"caller": "bot"}).status_code == 404
        client.post(path, json={"caller": "bot"})
        said = {"caller": "bot", "attempt": 1, "status": "failed"}
        report = f"/runs/{run}/steps/mine/report"
        assert "needs its reason" in client.post(report, json=said).text
        assert client.post(report, json={**said, "status": "done"}).status_code == 422
        odd = {**said, "error": "no", "failure_class": "bored"}
        assert "is not a failure class" in client.post(report, json=odd).text
        assert client.post(f"/runs/{run}/cancel", json={}).status_code == 200
        stop = client.post(f"/runs/{run}/steps/mine/extend", json={"caller": "bot", "attempt": 1})
        assert stop.json()["cancelled"] is True
        told = client.post(report, json={**said, "error": "stopped", "effect": "none"}).json()
        assert (told["met"], told["status"]) == (False, "cancelled")
