"""The API: what it shows is what the command line shows, and what it does is durable."""

import json
import time
from functools import partial

import httpx2
import pytest

from leadhand.app.reader import Reader
from leadhand.core import events as ev
from leadhand.server.gate import RequestLimits
from tests.support.cli import Folder
from tests.support.serving import SECOND, ended, plan_of, project, served

SAY = {"id": "a", "worker": "say", "parameters": {"text": "hi"}}
DANGER = {"id": "b", "worker": "danger", "depends_on": ["a"]}


def begin(client, *steps, **more):
    found = client.post("/runs", json={"plan": plan_of(*steps), **more})
    assert found.status_code == 201, found.text
    return found.json()["run"]


def log_of(server, run):
    reader = Reader(server.store)
    try:
        return [event for _, event in reader.events(run)]
    finally:
        reader.store.close_reader()


def test_a_plan_runs_and_everything_of_it_can_be_seen(server):
    """Start, list, show, graph, step, output, ledger, revisions, difference."""
    with server.client("operator") as client:
        run = begin(client, SAY, {"id": "c", "worker": "say", "depends_on": ["a"]})
        assert ended(client, run)["status"] == "succeeded"
        assert client.get("/runs", params={"q": run}).json()["items"][0]["run"] == run
        graph = client.get(f"/runs/{run}/graph").json()
        assert [node["status"] for node in graph["nodes"]] == ["succeeded"] * 2
        assert graph["edges"] == [["a", "c"]]
        step = client.get(f"/runs/{run}/steps/a").json()
        assert (step["data"], step["dependents"]) == ("hi", ["c"])
        assert step["attempts_made"][0]["status"] == "verified"
        assert client.get(f"/runs/{run}/steps/a/output").status_code == 200
        lines = client.get(f"/runs/{run}/ledger", params={"kind": "intent"}).json()["items"]
        assert {line["ledger"] for line in lines} == {"intent"}
        whole = client.get(f"/runs/{run}/ledger/1").json()
        assert (whole["event"]["type"], whole["event"]["run"]) == ("RunStarted", run)
        assert {**lines[0], "hash": whole["hash"], "event": whole["event"]} == whole
        assert client.get(f"/runs/{run}/ledger/0").status_code == 404
        assert client.get(f"/runs/{run}/ledger/99999").status_code == 404
        assert client.get(f"/runs/{run}/revisions").json()["items"][0]["status"] == "approved"
        assert client.get(f"/runs/{run}/revisions/1").json()["plan"]["steps"][0]["id"] == "a"
        difference = client.get(f"/runs/{run}/diff", params={"from": 0}).json()
        assert difference["equal"] is False


def test_documents_are_those_of_the_command_line(server):
    """One shape for both."""
    folder = Folder(server.store.parent.parent)
    with server.client("operator") as client:
        run = begin(client, SAY)
        ended(client, run)
        ours, theirs = client.get(f"/runs/{run}").json(), folder.run("show", run, "--json").doc
        assert {key: ours[key] for key in theirs} == theirs
        listed = {row["run"]: row for row in folder.run("ls", "--json").doc}
        assert client.get("/runs", params={"q": run}).json()["items"] == [listed[run]]
        assert (
            client.get("/workers").json()["workers"]
            == folder.run("ls", "workers", "--json").doc["workers"]
        )
        assert client.get("/metrics").json()["runs"] == folder.run("metrics", "--json").doc["runs"]


def test_pages_go_on_where_the_last_ended(server):
    """Every run once, whatever the size of a page."""
    with server.client("operator") as client:
        mine = [begin(client, SAY) for _ in range(5)]
        found, cursor = [], None
        while True:
            more = {"limit": 2, **({"cursor": cursor} if cursor else {})}
            page = client.get("/runs", params=more).json()
            found += [row["run"] for row in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert len(found) == len(set(found))
        assert [run for run in found if run in mine] == mine[::-1]
        assert client.get("/runs", params={"cursor": "nothing"}).status_code == 400
        first = client.get(f"/runs/{mine[0]}/ledger", params={"limit": 3}).json()
        rest = client.get(f"/runs/{mine[0]}/ledger", params={"cursor": first["next"]}).json()
        assert [line["seq"] for line in first["items"] + rest["items"]][:5] == [1, 2, 3, 4, 5]


def test_etags_spare_what_is_known(server):
    """304 without a body while nothing happened; a new tag once something did."""
    with server.client("operator") as client:
        run = begin(client, DANGER | {"depends_on": []})
        for path in (f"/runs/{run}", f"/runs/{run}/graph", "/runs", "/inbox", "/library"):
            first = client.get(path)
            again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b""), path
        tag = client.get(f"/runs/{run}").headers["etag"]
        client.post(f"/runs/{run}/cancel", json={"reason": "enough"})
        changed = client.get(f"/runs/{run}", headers={"If-None-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag
        assert client.head(f"/runs/{run}").status_code == 200


def test_a_review_with_a_start_time_follows_the_clock(server):
    """Nothing happens in the run, and yet a time passes: such a review is made anew each time."""
    with server.client("operator") as client:
        for more, status in (({}, 304), ({"not_before": "2099-01-01T00:00:00Z"}, 200)):
            path = f"/runs/{begin(client, DANGER | {'depends_on': []} | more)}/review"
            tag = client.get(path).headers["etag"]
            assert client.get(path, headers={"If-None-Match": tag}).status_code == status


def test_an_approval_is_by_whoever_is_signed_in_and_of_what_was_shown(server):
    """The log names the person; another hash is refused; an operator may not."""
    with server.client("operator") as operator, server.client("approver") as approver:
        run = begin(operator, SAY, DANGER)
        shown = operator.get(f"/runs/{run}/review").json()
        assert shown["waiting"]
        body = {"digest": shown["binding"], "reason": "looks right"}
        assert operator.post(f"/runs/{run}/review/approve", json=body).status_code == 403
        assert (
            operator.post(f"/inbox/{run}/review-1/answer", json={"choice": "approve"}).status_code
            == 403
        )
        wrong = approver.post(f"/runs/{run}/review/approve", json={"digest": "0" * 64})
        assert wrong.status_code == 409
        assert approver.post(f"/runs/{run}/review/approve", json=body).status_code == 200
        assert ended(approver, run)["status"] == "succeeded"
        given = [each for each in log_of(server, run) if isinstance(each, ev.ApprovalGiven)]
        assert [(each.actor, each.reason) for each in given] == [("approver", "looks right")]


def test_a_rejected_plan_runs_nothing(server):
    """And says who rejected it."""
    with server.client("approver") as client:
        run = begin(client, DANGER | {"depends_on": []})
        shown = client.get(f"/runs/{run}/review").json()["binding"]
        said = client.post(f"/runs/{run}/review/reject", json={"digest": shown, "reason": "no"})
        assert said.status_code == 200
        doc = ended(client, run)
        assert (doc["status"], doc["steps"]) == ("rejected", [])
        assert "approver" in doc["reason"]


def test_a_plan_is_amended_before_it_is_approved(server):
    """By path, or whole as YAML; each makes a new hash."""
    with server.client("approver") as client:
        run = begin(client, SAY, DANGER)
        first = client.get(f"/runs/{run}/review").json()["binding"]
        body = {"digest": first, "set": [{"path": "steps.a.parameters.text", "value": "other"}]}
        said = client.post(f"/runs/{run}/review/amend", json=body)
        assert said.status_code == 200, said.text
        assert said.json()["changes"]
        assert client.post(f"/runs/{run}/review/approve", json={"digest": first}).status_code == 409
        again = client.get(f"/runs/{run}/review").json()
        assert again["binding"] != first
        stale = client.post(f"/runs/{run}/review/amend", json=body)
        assert stale.status_code == 409
        client.post(f"/runs/{run}/review/approve", json={"digest": again["binding"]})
        assert ended(client, run)["status"] == "succeeded"
        made = client.get(f"/runs/{run}/revisions").json()["items"]
        assert [each["status"] for each in made] == ["amended", "approved"]


def test_what_a_person_typed_is_read_as_on_the_command_line(server):
    """`text` is read by what the worker takes; `value` is JSON as it stands."""
    with server.client("approver") as client:
        run = begin(client, SAY, DANGER)
        shown = client.get(f"/runs/{run}/review").json()["binding"]
        change = {"path": "steps.a.parameters.text", "text": "1.10"}
        said = client.post(f"/runs/{run}/review/amend", json={"digest": shown, "set": [change]})
        assert said.status_code == 200, said.text
        doc = client.get(f"/runs/{run}/review").json()
        assert doc["steps"][0]["parameters"]["text"] == "1.10"


def test_an_amendment_is_previewed_without_a_change(server):
    """The difference, the findings, why it would be refused; of what was shown only."""
    with server.client("approver") as client:
        run = begin(client, SAY, DANGER)
        shown = client.get(f"/runs/{run}/review").json()["binding"]
        form = client.get(f"/runs/{run}/review/steps/a").json()
        (field,) = [each for each in form["fields"] if each["label"] == "text"]
        assert field["kind"] == "text"
        body = {"digest": shown, "set": [{"path": field["path"], "text": "other"}]}
        seen = client.post(f"/runs/{run}/review/preview", json=body).json()
        assert (len(seen["changes"]), seen["errors"]) == (1, [])
        assert "2 steps" in seen["summary"]
        assert seen["findings"]
        later = [{"path": "steps.a.not_before", "value": "2126-03-02T09:00:00Z"}]
        timed = client.post(f"/runs/{run}/review/preview", json={"digest": shown, "set": later})
        assert (
            "at 2126-03-02 09:00:00 UTC, or at once if that has passed: a" in timed.json()["starts"]
        )
        wrong = {"digest": shown, "set": [{"path": "steps.a.worker", "text": "nowhere"}]}
        refused = client.post(f"/runs/{run}/review/preview", json=wrong).json()
        assert "nowhere" in refused["errors"][0]
        assert client.get(f"/runs/{run}/review").json()["binding"] == shown
        stale = {**body, "digest": "0" * 64}
        assert client.post(f"/runs/{run}/review/preview", json=stale).status_code == 409
        assert client.get(f"/runs/{run}/review/steps/nowhere").status_code == 404
        empty = client.post(f"/runs/{run}/review/request_changes", json={"digest": shown})
        assert empty.status_code in (400, 422), empty.text


def test_two_people_are_two_people(tmp_path):
    """The same one twice is one; the owner's token counts as its owner."""
    project(tmp_path, '[review]\nrules = [{risk = "high", then = "two"}]\n')
    with served(tmp_path) as server, server.client("approver") as one:
        run = begin(one, DANGER | {"depends_on": []})
        body = {"digest": one.get(f"/runs/{run}/review").json()["binding"]}
        assert one.post(f"/runs/{run}/review/approve", json=body).json()["status"] == "waiting"
        assert one.post(f"/runs/{run}/review/approve", json=body).status_code == 409
        with server.client("approver", SECOND) as other:
            assert other.post(f"/runs/{run}/review/approve", json=body).status_code == 200
            assert ended(other, run)["status"] == "succeeded"
        given = [each for each in log_of(server, run) if isinstance(each, ev.ApprovalGiven)]
        assert [each.actor for each in given] == ["approver", "second"]


def test_an_approval_is_signed_with_the_persons_key(tmp_path):
    """Where there are approvers, a person whose key the server holds; others are refused."""
    from leadhand.audit.keys import PrivateKey

    key = PrivateKey.new()
    (tmp_path / "approver.key").write_bytes(key.pem())
    (tmp_path / "approver.key").chmod(0o600)
    others = PrivateKey.new().public.text
    names = f'[approvers]\napprover = "ed25519:{key.public.text}"\nsecond = "ed25519:{others}"\n'
    project(tmp_path, names)
    file = tmp_path / "leadhand.toml"
    mine = '[server.people.approver]\nrole = "approver"\n'
    file.write_text(file.read_text().replace(mine, f'{mine}key = "approver.key"\n'))
    with served(tmp_path) as server, server.client("approver", SECOND) as other:
        run = begin(other, DANGER | {"depends_on": []})
        body = {"digest": other.get(f"/runs/{run}/review").json()["binding"]}
        assert other.post(f"/runs/{run}/review/approve", json=body).status_code == 403
        with server.client("approver") as client:
            said = client.post(f"/runs/{run}/review/approve", json=body)
            assert said.status_code == 200, said.text
            assert ended(client, run)["status"] == "succeeded"
        (given,) = [each for each in log_of(server, run) if isinstance(each, ev.ApprovalGiven)]
        assert given.signature
    verified = Folder(tmp_path).run("verify", run, "--json").doc
    assert (verified["valid"], verified["signed_approvals"]) == (True, 1)


# Starting.


def test_a_goal_is_drafted_then_run(server):
    """The draft shows the plan, how far it reaches and who must allow it; nothing runs."""
    with server.client("operator") as client:
        before = len(client.get("/runs", params={"limit": 500}).json()["items"])
        body = {"goal": {"text": "sum up", "want": ["summary"], "have": {"topic": "prices"}}}
        drafted = client.post("/plans/draft", json=body).json()
        assert drafted["decision"] == "let through"
        assert drafted["reach"]["workers"] == ["summary"]
        assert len(client.get("/runs", params={"limit": 500}).json()["items"]) == before
        asked = client.post("/plans/draft", json=body | {"review": True}).json()
        assert asked["decision"] == "one person"
        run = client.post("/runs", json=body).json()["run"]
        assert ended(client, run)["result"] == "about prices"
        high = client.post("/plans/draft", json={"plan": plan_of(DANGER | {"depends_on": []})})
        assert high.json()["decision"] == "one person"


def test_a_plan_that_is_wrong_is_refused_with_all_findings(server):
    """As problem, as draft and as lint."""
    bad = {"plan": plan_of({"id": "a", "worker": "nobody"}, {"id": "a", "worker": "say"})}
    with server.client("operator") as client:
        refused = client.post("/runs", json=bad)
        assert refused.status_code == 422
        assert refused.headers["content-type"] == "application/problem+json"
        assert len(refused.json()["findings"]) >= 2
        assert client.post("/plans/draft", json=bad).json()["decision"] == "refused"
        assert client.post("/plans/lint", json=bad).json()["valid"] is False
        assert client.post("/plans/lint", json={"plan": plan_of(SAY)}).json()["valid"] is True


@pytest.mark.parametrize("planner", ["os:system", "workers.py:say", "builtins:eval", "x" * 150])
def test_code_is_never_named_by_a_request(server, planner):
    """A planner is one that the settings know (CVE-2025-3248)."""
    with server.client("approver") as client:
        body = {"goal": {"text": "x", "want": ["summary"]}, "planner": planner}
        for path in ("/runs", "/plans/draft"):
            refused = client.post(path, json=body)
            assert refused.status_code == 422
            assert "no planner of this server" in refused.json()["detail"]


def test_a_key_starts_one_run(tmp_path):
    """Sent again, at once and after a restart: the same run; with another body it is refused."""
    project(tmp_path)
    body = {"plan": plan_of(SAY)}
    key = {"Idempotency-Key": "order-7"}
    with served(tmp_path) as server, server.client("operator") as client:
        first = client.post("/runs", json=body, headers=key)
        again = client.post("/runs", json=body, headers=key)
        assert first.json()["run"] == again.json()["run"]
        assert again.headers["location"].endswith(first.json()["run"])
        other = client.post("/runs", json=body | {"review": True}, headers=key)
        assert other.status_code == 422
        with server.client("approver") as somebody:
            assert (
                somebody.post("/runs", json=body, headers=key).json()["run"]
                != (first.json()["run"])
            )
        assert client.post("/runs", json=body, headers={"Idempotency-Key": ""}).status_code == 400
    with served(tmp_path) as server, server.client("operator") as client:
        late = client.post("/runs", json=body, headers=key)
        assert (late.status_code, late.json()["run"]) == (201, first.json()["run"])
        other = client.post("/runs", json=body | {"review": True}, headers=key)
        assert other.status_code == 422
        assert len(client.get("/runs").json()["items"]) == 2


# Control.


def test_pause_resume_hold_release_redo_cancel(server):
    """Each is heard, durable, and by whoever said it."""
    with server.client("operator") as client:
        run = begin(
            client,
            {"id": "n", "worker": "nap", "parameters": {"seconds": 0.4}},
            SAY | {"depends_on": ["n"]},
        )
        assert client.post(f"/runs/{run}/steps/a/hold", json={}).status_code == 200
        assert (
            client.post(f"/runs/{run}/pause", json={"reason": "wait"}).json()["status"] == "paused"
        )
        assert client.post(f"/runs/{run}/resume", json={}).status_code == 200
        waits = ended(client, run)
        assert waits["status"] == "waiting"
        assert client.post(f"/runs/{run}/steps/a/release", json={}).status_code == 403
        (held,) = [row for row in client.get("/inbox").json()["items"] if row["run"] == run]
        way = f"/inbox/{held['id']}/answer"
        assert client.post(way, json={"choice": "release"}).status_code == 403
        with server.client("approver") as approver:
            assert approver.post(f"/runs/{run}/steps/a/release", json={}).status_code == 200
        assert ended(client, run)["status"] == "succeeded"
        said = [getattr(each, "actor", "") for each in log_of(server, run)]
        assert said.count("operator") >= 3

        failed = begin(client, {"id": "s", "worker": "shaky"})
        assert ended(client, failed)["status"] == "waiting"
        (asked,) = [row for row in client.get("/inbox").json()["items"] if row["run"] == failed]
        question = asked["id"].partition("/")[2]
        told = client.post(f"/inbox/{failed}/{question}/answer", json={"choice": "abort"})
        assert told.status_code == 200, told.text
        assert ended(client, failed)["status"] == "failed"
        again = client.post(f"/runs/{failed}/steps/s/redo", json={"reason": "the disk is new"})
        assert again.status_code == 200, again.text
        assert ended(client, failed)["status"] == "waiting"
        assert client.post(f"/runs/{failed}/cancel", json={}).status_code == 200
        assert ended(client, failed)["status"] == "cancelled"
        assert client.post(f"/runs/{failed}/cancel", json={}).status_code == 409


def test_what_is_not_there_is_not_found(server):
    """404 with a problem, for whatever is asked or said."""
    with server.client("approver") as client:
        run = begin(client, SAY)
        for path in (
            *("/runs/nothing", "/runs/nothing/graph", "/runs/nothing/review", "/runs/$host"),
            *(f"/runs/{run}/steps/none", f"/runs/{run}/revisions/9", "/library/none"),
            *("/artifacts/sha256:00", "/artifacts/..", f"/artifacts/sha256:{'0' * 64}", "/none"),
        ):
            found = client.get(path)
            assert found.status_code == 404, (path, found.text)
            assert found.headers["content-type"] == "application/problem+json"
            assert found.json()["status"] == 404
        for path in ("/runs/none/pause", "/runs/$host/pause", f"/runs/{run}/steps/none/redo"):
            assert client.post(path, json={"reason": "x"}).status_code == 404, path
        wrong = client.post(f"/runs/{run}/pause", json={"reson": "x"})
        assert wrong.status_code == 422
        assert wrong.headers["content-type"] == "application/problem+json"


def test_the_library_keeps_plans_and_runs_them(server):
    """Put, list, show, run, take out."""
    with server.client("operator") as client:
        plan = plan_of(
            {"id": "a", "worker": "say", "parameters": {"text": "${{ params.word }}"}},
            params={"word": {"type": "string"}},
        )
        assert client.put("/library/greet", json={"plan": plan}).json()["version"] == 1
        assert client.put("/library/greet", json={"plan": plan}).json()["new"] is False
        assert "greet" in [row["name"] for row in client.get("/library").json()["items"]]
        assert client.get("/library/greet@1").json()["document"]["steps"][0]["id"] == "a"
        run = client.post("/runs", json={"library": "greet", "params": {"word": "moin"}})
        assert ended(client, run.json()["run"])["result"] == "moin"
        missing = client.post("/runs", json={"library": "greet"})
        assert missing.status_code == 422
        assert client.delete("/library/greet").status_code == 200
        assert client.get("/library/greet").status_code == 404


def test_stop_all_stops_starts_until_it_is_lifted(tmp_path):
    """For approvers; said to whoever tries."""
    project(tmp_path)
    with served(tmp_path) as server, server.client("approver") as client:
        assert client.post("/stop-all", json={"reason": "incident"}).json()["stopped"] is True
        assert client.post("/runs", json={"plan": plan_of(SAY)}).status_code == 403
        assert client.get("/session").json()["stopped_by"] == "approver"
        assert client.delete("/stop-all").json()["stopped"] is False
        assert client.post("/runs", json={"plan": plan_of(SAY)}).status_code == 201


def test_overload_answers_before_anything_is_accepted(tmp_path):
    """With no room in the store, nothing starts; a moment later it does."""
    project(tmp_path)
    with served(tmp_path, RequestLimits(streams=2)) as server, server.client("operator") as client:
        store = server.up.app_state.host.store
        store._queue_bytes_max = 0
        refused = client.post("/runs", json={"plan": plan_of(SAY)})
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        store._queue_bytes_max = 1 << 26
        assert client.get("/runs").json()["items"] == []
        assert client.post("/runs", json={"plan": plan_of(SAY)}).status_code == 201
        with client.stream("GET", "/events"), client.stream("GET", "/events"):
            assert client.get("/events").status_code == 503


# Signing in.


def test_a_session_lives_as_long_as_its_token(tmp_path):
    """A cookie for scripts of nobody, good after a restart, over when signed out or taken away."""
    project(tmp_path)
    with served(tmp_path) as server, server.client("") as client:
        origin = {"Origin": server.url}
        assert client.get("/session").status_code == 401
        bad = client.post("/session", json={"token": "lh_wrong"}, headers=origin)
        assert bad.status_code == 401
        token = server.client("operator").headers["authorization"].removeprefix("Bearer ")
        done = client.post("/session", json={"token": token}, headers=origin)
        assert done.json()["person"] == "operator"
        cookie = done.headers["set-cookie"]
        for word in ("HttpOnly", "SameSite=strict", "Path=/"):
            assert word in cookie
        value = cookie.partition("=")[2].partition(";")[0]
        assert token not in cookie
        assert client.get("/session").json()["role"] == "operator"
    sent = {"Cookie": f"leadhand_session={value}"}
    with served(tmp_path) as server, server.client("", **sent) as client:
        assert client.get("/runs").status_code == 200
        assert client.post("/runs", json={"plan": plan_of(SAY)}).status_code == 403
        origin = {"Origin": server.url}
        begun = client.post("/runs", json={"plan": plan_of(SAY)}, headers=origin)
        assert begun.status_code == 201
        done = Folder(tmp_path).run("serve", "token", "remove", "operator")
        assert done.code == 0, done
        time.sleep(1.2)
        assert client.get("/runs").status_code == 401
        made = (
            Folder(tmp_path).run("serve", "token", "add", "eve", "--role", "viewer", "--json").doc
        )
        time.sleep(1.2)
        with server.client("viewer", made["token"]) as eve:
            assert eve.get("/session").json()["person"] == "eve"
            assert made["token"] not in (tmp_path / "leadhand.toml").read_text()
    with served(tmp_path) as server, server.client("") as client:
        origin = {"Origin": server.url}
        client.post("/session", json={"token": made["token"]}, headers=origin)
        assert client.get("/session").status_code == 200
        (value,) = client.cookies.values()
        assert client.delete("/session", headers=origin).status_code == 204
        assert (
            client.get("/session", headers={"Cookie": f"leadhand_session={value}"}).status_code
            == 401
        )


def test_two_servers_of_one_machine_have_a_session_each(tmp_path):
    """A browser sends a cookie to all ports of a machine, so each server has a name for its own."""
    jar = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        project(tmp_path / name)
    with served(tmp_path / "one") as one, served(tmp_path / "two") as two:
        for server in (one, two):
            with server.client("") as client:
                token = {"token": server.client("approver").headers["authorization"].split()[1]}
                signed = client.post("/session", json=token, headers={"Origin": server.url})
                assert signed.status_code == 200
                jar += client.cookies.items()
        assert len({name for name, _ in jar}) == 2
        sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in jar)}
        for server in (one, two):
            with server.client("", **sent) as client:
                assert client.get("/session").status_code == 200
                assert client.get("/runs").status_code == 200
        with one.client("", **sent) as client:
            assert client.delete("/session", headers={"Origin": one.url}).status_code == 204
            assert client.get("/session").status_code == 401
        with two.client("", **sent) as client:
            assert client.get("/session").status_code == 200


def test_settings_tell_no_secret(server):
    """Roles, and no hash of a token."""
    with server.client("viewer") as client:
        text = client.get("/settings").text
        assert json.loads(text)["settings"]["server.people"]["value"]["approver"] == "approver"
        assert "sha256:" not in text


def test_prometheus_counts_what_the_log_holds(server):
    """Runs, attempts, recoveries, commits, streams."""
    with server.client("operator") as client:
        run = begin(client, SAY)
        ended(client, run)
        text = client.get(f"{server.url}/metrics").text
        assert 'leadhand_runs{status="succeeded"}' in text
        assert 'leadhand_attempts_total{outcome="verified"}' in text
        assert "leadhand_commit_seconds_count" in text
        assert "leadhand_streams" in text
    with server.client("") as client:
        assert client.get(f"{server.url}/metrics").status_code == 401


def test_a_server_that_drains_is_alive_and_not_ready(tmp_path):
    """Nor one whose log cannot be written fast enough; a load balancer takes it out."""
    project(tmp_path)
    with served(tmp_path) as up:
        ask = partial(httpx2.get, f"{up.url}/readyz")
        host = up.up.app_state.host
        assert (ask().status_code, ask().text) == (200, "ready\n")
        room, host.store.room = host.store.room, lambda: False
        assert (ask().status_code, ask().text) == (503, "not ready\n")
        host.store.room = room
        assert ask().status_code == 200
        up.call(host.drain())
        assert ask().status_code == 503
        assert httpx2.get(f"{up.url}/livez").text == "ok\n"
