"""Messages to people: to those who may answer, through their own channels, once, with a link."""

import email
import email.policy
import json
import re
import time

import pytest

from leadhand.core import events as ev
from leadhand.server.accounts import digest_of
from tests.server.test_api import SAY, log_of
from tests.server.test_links import BROKEN, DANGER, OPEN, SETTINGS, Person, link_project, waits
from tests.support.cli import Folder
from tests.support.services import http_server, mail_server
from tests.support.serving import ended, served


@pytest.fixture(autouse=True)
def browsers():
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def mail():
    with mail_server() as box:
        yield box


def settings(mail, more=""):
    return f"""{SETTINGS}
[notify.email]
server = "{mail.address}"
sender = "leadhand@example.com"
security = "none"
{more}"""


def mails(box, count, limit_s=60.0):
    """The mails once there are so many: address, subject, text."""
    until = time.monotonic() + limit_s
    while len(box.mails) < count and time.monotonic() < until:
        time.sleep(0.02)
    assert len(box.mails) == count, box.mails
    found = []
    for (to,), text, _ in box.mails:
        parsed = email.message_from_string(text, policy=email.policy.default)
        found.append((to, parsed["Subject"], parsed.get_content()))
    return sorted(found)


def link_in(text):
    (found,) = re.findall(
        r"^http://localhost:1/answer/(\S+)$", text.replace("\r", ""), re.MULTILINE
    )
    return found


def test_those_who_may_answer_get_a_link_of_their_own(tmp_path, mail):
    link_project(tmp_path, settings(mail))
    with served(tmp_path) as server:
        run = waits(server, SAY, DANGER)
        first, second = mails(mail, 2)
        assert [each[0] for each in (first, second)] == [
            "approver@example.com",
            "second@example.com",
        ]
        assert 'Approve plan "a test"' in first[1]
        for words in ("Goal: a test", "Risk: high", "Side effects:", "- approve: counts as one"):
            assert words in first[2]
        assert link_in(first[2]) != link_in(second[2])
        for name, text in (("approver", first[2]), ("second", second[2])):
            assert Person(server, name).post(link_in(text)).status_code == 200
        with server.client() as client:
            assert ended(client, run)["status"] == "succeeded"
        given = [each.actor for each in log_of(server, run) if isinstance(each, ev.ApprovalGiven)]
        assert given == ["approver", "second"]
        # A question is for operators too, and none of it is for viewers.
        waits(server, BROKEN)
        addresses = [each[0].partition("@")[0] for each in mails(mail, 5)]
        assert sorted(addresses) == ["approver", "approver", "operator", "second", "second"]
    kept = (tmp_path / ".leadhand" / "leadhand.db.outbox-people").read_text()
    assert "answer/" not in kept


def test_a_restart_sends_what_was_asked_and_did_not_arrive(tmp_path, mail):
    link_project(tmp_path, settings(mail))
    mail.busy = 1000
    with served(tmp_path) as server:
        run = waits(server, DANGER)
        other = waits(server, BROKEN)
    mail.busy = 0
    assert not mail.mails
    with served(tmp_path) as server:
        texts = [each for each in mails(mail, 5) if f"Run: {run}" in each[2]]
        assert len(texts) == 2
        with server.client("operator") as client:
            form = {"choice": "skip", "text": "so"}
            assert client.post(f"/inbox/{other}/q1/answer", json=form).status_code == 200
    with served(tmp_path) as server:  # nothing is repeated
        third = waits(server, DANGER)
        assert sum(f"Run: {third}" in each[2] for each in mails(mail, 7)) == 2


def test_a_plan_that_changed_is_a_new_message(tmp_path, mail):
    link_project(tmp_path, settings(mail))
    with served(tmp_path) as server, server.client() as client:
        run = waits(server, SAY, DANGER)
        old = link_in(mails(mail, 2)[0][2])
        digest = client.get(f"/runs/{run}/review").json()["digest"]
        edit = {"path": "steps.a.parameters.text", "value": "bye"}
        form = {"digest": digest, "set": [edit], "reason": "politer"}
        assert client.post(f"/runs/{run}/review/amend", json=form).status_code == 200
        new = {link_in(each[2]) for each in mails(mail, 4)} - {old}
        assert len(new) == 3
        assert Person(server).post(old).status_code == 410


def test_shared_addresses_get_no_link(tmp_path, mail):
    """A webhook, an address for all, and a topic for all: what waits, and where to sign in."""
    with http_server() as http:
        more = f'to = ["ops@example.com"]\n[notify.ntfy]\nserver = "{http.url}"\ntopic = "ops"\n'
        link_project(tmp_path, f'[notify]\nwebhook = "{http.url}/hook"\n{settings(mail, more)}')
        with served(tmp_path, notifies=True) as server:
            run = waits(server, DANGER)
            texts = {to: text for to, _, text in mails(mail, 3)}
            assert "/answer/" not in texts["ops@example.com"]
            assert f"http://localhost:1/#/runs/{run}" in texts["ops@example.com"]
            assert "/answer/" in texts["approver@example.com"]
            until = time.monotonic() + 60
            while len(http.got) < 2 and time.monotonic() < until:
                time.sleep(0.02)
        bodies = {path: json.loads(body) for path, _, body in http.got}
        assert bodies["/hook"]["data"]["items"][0]["id"] == f"{run}/review-1"
        assert bodies["/"]["topic"] == "ops"
        assert "/answer/" not in json.dumps(bodies)


def test_a_channel_that_is_down_holds_up_nothing(tmp_path):
    more = '[notify.email]\nserver = "127.0.0.1:1"\nsender = "x@example.com"\nsecurity = "none"\n'
    link_project(tmp_path, SETTINGS + more)
    with served(tmp_path) as server, server.client("operator") as client:
        waits(server, DANGER)
        run = client.post("/runs", json={"plan": {"goal": "g", "steps": [SAY]}}).json()["run"]
        assert ended(client, run)["status"] == "succeeded"


def test_every_channel_can_be_tried(tmp_path, mail):
    with http_server() as http:
        ntfy = f'[notify.ntfy]\nserver = "{http.url}"\ntopic = "ops"\n'
        link_project(tmp_path, settings(mail, ntfy))
        folder = Folder(tmp_path)
        folder.run("trust")
        done = folder.run("notify", "test", "--json")
        assert (done.code, len(done.doc)) == (0, 5)
        assert {each["problem"] for each in done.doc} == {""}
        assert "This is a test message" in mails(mail, 4)[0][2]
        only = folder.run("notify", "test", "--to", "approver")
        assert (only.code, only.out) == (0, "ok    email to approver\n")
        zoe = f'\n[server.people.zoe]\nrole = "viewer"\ntoken = "{digest_of("z" * 43)}"\n'
        file = tmp_path / "leadhand.toml"
        file.write_text(file.read_text() + zoe)
        silent = folder.run("notify", "test", "--channel", "email")
        assert "none  zoe gets no message of their own" in silent.out
        assert "set email or ntfy in [server.people.zoe]" in silent.out
        checks = [
            each
            for each in folder.run("doctor", "--json").doc["checks"]
            if each["what"] in ("notify", "people")
        ]
        assert not [each for each in checks if each["problem"]], checks
        http.answers += [(403, {})]
        failed = folder.run("notify", "test", "--channel", "ntfy")
        assert (failed.code, "FAIL  ntfy" in failed.out, "403" in failed.out) == (1, True, True)
    down = [each for each in folder.run("doctor", "--json").doc["checks"] if each["problem"]]
    assert any("ntfy" in each["value"] for each in down if each["what"] == "notify"), down
    none = folder.run("notify", "test", "--channel", "pigeon")
    assert (none.code, "set [notify]" in none.err) == (2, True), none.err
    before = (tmp_path / ".leadhand" / "leadhand.db.link-key").exists()
    assert (before, folder.run("notify", "revoke").code) == (False, 0)
    assert (tmp_path / ".leadhand" / "leadhand.db.link-key").stat().st_mode & 0o777 == 0o600
