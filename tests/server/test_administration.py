"""Workers, settings and people: what an administrator looks at and changes over HTTP."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from leadhand.app import verification
from leadhand.app.reader import Reader
from leadhand.core.host_events import HOST_STREAM, PersonChanged
from leadhand.core.views.ledger import describe
from leadhand.errors import Conflict, NotAllowed, Unreachable
from leadhand.server.accounts import token_file
from leadhand.server.member_file import FileEdit, change_role, remove_member
from leadhand.server.settings import server_of
from tests.support.cli import Folder
from tests.support.serving import SECOND, TOKENS, ended, plan_of, project, served, settings_in

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
        assert shown["runs"] == 2
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


@pytest.fixture
def owned(tmp_path):
    """A server of its own: its people change."""
    project(tmp_path)
    with served(tmp_path) as up:
        yield up


def owner_of(server):
    return server.client(token=token_file(server.store).read_text().strip())


def recorded(server):
    reader = Reader(server.store)
    try:
        found = [event for _, event in reader.events(HOST_STREAM)]
    finally:
        reader.store.close_reader()
    return [event for event in found if isinstance(event, PersonChanged)]


def test_the_owner_adds_changes_and_removes_a_person(owned, tmp_path):
    """The token is shown once, works at once, has the new role at once, and ends at once."""
    with owner_of(owned) as owner:
        assert owner.get("/session").json()["owner"] is True
        made = owner.post("/people", json={"name": "ann", "role": "viewer"})
        assert made.status_code == 201
        token = made.json()["token"]
        with owned.client(token=token) as ann:
            assert ann.get("/session").json() | {"person": "ann", "owner": False} == (
                ann.get("/session").json()
            )
            assert ann.post("/stop-all", json={}).status_code == 403
            assert owner.put("/people/ann", json={"role": "approver"}).json()["role"] == "approver"
            assert ann.get("/session").json()["role"] == "approver"
            rows = {row["name"]: row for row in ann.get("/people").json()["items"]}
            assert rows["owner"]["owner"] is True
            assert rows["ann"]["role"] == "approver"
            shown = ann.get("/settings").json()["settings"]["server.people"]["value"]
            assert shown["ann"] == "approver"
            assert token not in ann.get("/people").text + ann.get("/settings").text
            with owned.client("") as browser:
                signed = browser.post("/session", json={"token": token})
                (cookie,) = signed.cookies.values()
                kept = {"Cookie": f"leadhand_session={cookie}"}
                assert browser.get("/session", headers=kept).status_code == 200
                assert owner.delete("/people/ann").json()["role"] is None
                assert browser.get("/session", headers=kept).status_code == 401
            assert ann.get("/session").status_code == 401
    assert recorded(owned) == [
        PersonChanged("ann", "owner", "viewer"),
        PersonChanged("ann", "owner", "approver"),
        PersonChanged("ann", "owner"),
    ]
    text = (tmp_path / "leadhand.toml").read_text()
    assert "ann" not in text
    assert "[server.people.second]" in text


@pytest.mark.parametrize("token", [*TOKENS.values(), SECOND])
def test_nobody_but_the_owner_manages_people(server, token):
    """An approver who could make approvers would be the second of two people as well."""
    with server.client(token=token) as client:
        for ask in (
            client.post("/people", json={"name": "eve", "role": "approver"}),
            client.put("/people/second", json={"role": "viewer"}),
            client.delete("/people/second"),
        ):
            assert ask.status_code == 403
            assert "for the owner" in ask.json()["detail"]
    assert recorded(server) == []


def test_a_change_that_cannot_be_made_is_not_recorded(owned, tmp_path):
    """Taken, odd and lookalike names; unknown people and roles; the owner."""
    before = (tmp_path / "leadhand.toml").read_text()
    with owner_of(owned) as owner:
        for name, role, status in (
            ("second", "viewer", 409),
            ("owner", "viewer", 409),
            ("sec\u043end", "viewer", 409),
            ("a/b", "viewer", 422),
            (" ann", "viewer", 422),
            ("ann", "admin", 422),
            ("", "viewer", 422),
        ):
            asked = owner.post("/people", json={"name": name, "role": role})
            assert asked.status_code == status, (name, asked.text)
        assert owner.put("/people/nobody", json={"role": "viewer"}).status_code == 404
        assert owner.delete("/people/owner").status_code == 409
    assert recorded(owned) == []
    assert (tmp_path / "leadhand.toml").read_text() == before


def test_who_hears_of_a_change_reads_it(owned, monkeypatch):
    """Its event is durable before the file is written: who asks meanwhile waits for the file."""
    written, asked = threading.Event(), threading.Event()
    write = FileEdit.write

    def slow(edit):
        asked.set()
        assert written.wait(60)
        return write(edit)

    with owner_of(owned) as owner, ThreadPoolExecutor() as pool:
        token = owner.post("/people", json={"name": "ann", "role": "viewer"}).json()["token"]
        with owned.client("") as ann, owned.client("viewer") as other:
            assert ann.post("/session", json={"token": token}).status_code == 200
            monkeypatch.setattr(FileEdit, "write", slow)
            change = pool.submit(owner.put, "/people/ann", json={"role": "approver"})
            assert asked.wait(60)
            assert recorded(owned)[-1].role == "approver"
            session, people = pool.submit(ann.get, "/session"), pool.submit(other.get, "/people")
            assert not wait([session, people], timeout=0.3).done
            written.set()
            assert change.result(60).status_code == 200
            assert session.result(60).json()["role"] == "approver"
            roles = {each["name"]: each["role"] for each in people.result(60).json()["items"]}
            assert roles["ann"] == "approver"


def test_the_terminal_changes_a_role(owned, tmp_path):
    """As the server does: the token stays."""
    folder = Folder(tmp_path)
    assert folder.run("serve", "token", "role", "viewer", "operator").code == 0
    end = time.monotonic() + 60
    with owned.client("viewer") as client:
        while client.get("/session").json()["role"] != "operator":  # the file is read each second
            assert time.monotonic() < end
            time.sleep(0.05)
    assert server_of(settings_in(tmp_path)).people["viewer"].role == "operator"
    assert folder.run("serve", "token", "role", "nobody", "viewer").code != 0


PARAMS = {
    "to": {"type": "string", "description": "a host"},
    "count": 3,
    "kind": {"enum": ["a", "b"]},
    "key": {"type": "secret"},
    "odd": {"type": "string", "pattern": "("},
}


def test_a_library_plan_has_fields_versions_and_what_its_runs_cost(owned):
    """Parameters as fields; the difference of versions; outcomes of ended runs."""
    one = plan_of({"id": "a", "worker": "frail", "failure_action": "abort"})
    two = {**one, "params": {name: PARAMS[name] for name in ("to", "count", "kind")}}
    with owned.client("operator") as client:
        for plan in (one, two):
            assert client.put("/library/deploy", json={"plan": plan}).status_code == 200
        run = client.post("/runs", json={"library": "deploy@1"}).json()["run"]
        ended(client, run)
        shown = client.get("/library/deploy").json()
        assert [(row["uses"], row["success_rate"]) for row in shown["history"]] == [
            (1, 0),
            (0, None),
        ]
        assert shown["history"][0]["mean_cost"] == 5
        fields = {row.pop("name"): row for row in shown["parameters"]}
        assert (fields["to"]["type"], fields["to"]["required"]) == ("string", True)
        assert fields["to"]["description"] == "a host"
        assert (fields["count"]["default"], fields["count"]["has_default"]) == (3, True)
        assert fields["kind"]["choices"] == ["a", "b"]
        listed = client.get("/library").json()["items"][0]
        assert (listed["uses"], listed["mean_cost"], listed["success_rate"]) == (1, 5, 0)
        changed = client.get("/library/deploy/diff", params={"from": 1, "to": 2}).json()
        assert changed["equal"] is False
        assert (changed["old"], changed["new"]) == ("deploy@1", "deploy@2")
        assert client.get("/library/deploy/diff", params={"from": 1, "to": 9}).status_code == 404
        whole = client.get("/library/deploy/diff", params={"from": 0}).json()
        assert [row["kind"] for row in whole["changes"]] == ["added"]


def test_lint_lists_parameters_and_no_message_names_an_option(server):
    """A declaration that makes no sense is a finding and no field; fixes name fields."""
    with server.client("operator") as client:
        doc = plan_of(SAY, params=PARAMS)
        found = client.post("/plans/lint", json={"plan": doc}).json()
        types = {row["name"]: row["type"] for row in found["parameters"]}
        assert types == {"to": "string", "count": "integer", "kind": "string", "key": "secret"}
        less = plan_of(SAY, params={"to": PARAMS["to"], "key": PARAMS["key"]})
        refused = client.post("/runs", json={"plan": less})
        fixes = [row["fix"] for row in refused.json()["findings"]]
        assert fixes == [
            "Give it with `params` to=VALUE, or add a default.",
            "Say where it is: `params` key=env:VARIABLE.",
        ]


@pytest.mark.parametrize("name", ["policy", "Nobody", "Owner", "\u043ewner", "a\\b", ".", ".."])
def test_names_that_mean_someone_else_or_have_no_address_are_refused(owned, name):
    with owner_of(owned) as client:
        found = client.post("/people", json={"name": name, "role": "approver"})
        assert found.status_code in (409, 422), found.text


def test_an_edit_keeps_what_others_wrote(tmp_path):
    """Comments of the next table, ends of lines, a link, and a change in between."""
    text = (
        '# head\r\n[server.people.cat]\r\nrole = "viewer"\r\ntoken = "sha256:' + "1" * 64 + '"\r\n'
        "\r\n# about fetch\r\n[workers.fetch]\r\ncommand = ['echo']\r\n"
    )
    real, link = tmp_path / "real.toml", tmp_path / "leadhand.toml"
    real.write_bytes(text.encode())
    link.symlink_to(real)
    edit = remove_member(settings_in(tmp_path), "cat")
    late = change_role(settings_in(tmp_path), "cat", "operator")
    edit.write()
    assert link.is_symlink()
    assert (
        real.read_bytes() == b"# head\r\n# about fetch\r\n[workers.fetch]\r\ncommand = ['echo']\r\n"
    )
    with pytest.raises(Conflict, match="changed by someone else"):
        late.write()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["leadhand.toml", "real.toml"]


@pytest.mark.parametrize(
    "head", ["[server.people.bob] # b", "[ server . people.'bob' ]#b", "[server.people.bob]"]
)
def test_a_table_is_found_however_its_head_is_written(tmp_path, head):
    """Spaces, quotes and a comment; the comment beside a role stays."""
    file = tmp_path / "leadhand.toml"
    token = f'token = "sha256:{"1" * 64}"'
    file.write_text(f"# head\n{head}\nrole = 'viewer' # for now\n{token}\n\n[review]\n")
    change_role(settings_in(tmp_path), "bob", "operator").write()
    assert f'{head}\nrole = "operator" # for now\n' in file.read_text()
    remove_member(settings_in(tmp_path), "bob").write()
    assert file.read_text() == "# head\n[review]\n"


def test_a_change_that_was_not_written_is_not_believed(tmp_path, monkeypatch):
    """The log says so at once; after a crash between log and file, from the next start on."""
    project(tmp_path)
    with served(tmp_path) as up:
        with owner_of(up) as owner:
            assert owner.post("/people", json={"name": "ann", "role": "viewer"}).status_code == 201

            def full(_edit):
                raise NotAllowed("leadhand.toml: cannot be written: No space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(FileEdit, "write", full)
                asked = owner.put("/people/ann", json={"role": "approver"})
                assert asked.status_code == 403, asked.text
            with monkeypatch.context() as patch:  # as if the process ended between both
                patch.setattr(FileEdit, "write", None)
                assert owner.delete("/people/ann").status_code == 500
        roles = [(event.role, event.reason[:8]) for event in recorded(up)]
        assert roles == [("viewer", ""), ("approver", ""), ("viewer", "the chan"), ("", "")]
    with served(tmp_path) as up:
        last = recorded(up)[-1]
        assert (last.person, last.actor, last.role) == ("ann", "leadhand.toml", "viewer")
        assert "the server ended before it could write a change" in describe(last)
    with served(tmp_path) as up:
        assert len(recorded(up)) == 5


def test_verify_compares_with_the_service_that_hosts_runs(server, monkeypatch):
    """What differs is a violation; a service that does not answer is said, not passed over."""

    class Service:
        name = "Temporal"

        def __init__(self, found):
            self.found = found

        def status(self, _reader):
            return self

        async def forks(self, run):
            if not self.found:
                raise Unreachable("no answer")
            return {run: "the log holds what its workflow did not write"}

    with server.client("operator") as client:
        run = started(client, SAY)
        service = Service(found=True)
        monkeypatch.setattr(verification, "hosting_service", lambda _settings: service)
        told = client.post(f"/runs/{run}/verify", json={}).json()
        assert [(each["run"], each["rule"]) for each in told["violations"]] == [(run, "fork")]
        service.found = False
        told = client.post(f"/runs/{run}/verify", json={}).json()
        assert told["valid"] is True
        said = "that the log agrees with Temporal's histories: no answer"
        assert said in told["cannot_be_shown"]
