"""Signed links: one decision, for one person, once; everything else changes nothing."""

import asyncio
import json
import os
import random
import re
import string
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from html import unescape

import httpx2
import pytest

from leadhand.core import events as ev
from leadhand.core.review.answer_link import item_digest
from leadhand.server.link_answers import LinkAnswer, give_answer
from leadhand.server.links import Links, key_file, replace_key
from tests.server.test_api import SAY, begin, log_of
from tests.support.protected import COMMIT, STEP, WORKER
from tests.support.serving import TOKENS, ended, plan_of, project, served

DANGER = {"id": "b", "worker": "danger"}
BROKEN = {"id": "x", "worker": "broken"}
SETTINGS = """
[server]
address = "http://localhost:1"

[[review.rules]]
risk = "high"
then = "two"
"""
PEOPLE = ("viewer", "operator", "approver", "second")


def link_project(folder, more=SETTINGS):
    project(folder, more)
    text = (folder / "leadhand.toml").read_text()
    for name in PEOPLE:
        own = f'[server.people.{name}]\nemail = "{name}@example.com"\n'
        text = text.replace(f"[server.people.{name}]\n", own)
    (folder / "leadhand.toml").write_text(text)
    with (folder / "workers.py").open("a") as file:
        file.write(WORKER)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    link_project(folder)
    with served(folder) as up:
        yield up


OPEN = []


@pytest.fixture(autouse=True)
def browsers():
    """Closes what people opened."""
    yield
    while OPEN:
        OPEN.pop().close()


class Person:
    """Somebody who has links, and a browser."""

    def __init__(self, server, name="approver"):
        self.server = server
        self.name = name
        self.http = httpx2.Client(base_url=server.url, timeout=60)
        OPEN.append(self.http)

    def link(self, run, /, **other):
        """A link to what waits first, by e-mail; `other` replaces what it says."""
        app_state = self.server.up.app_state
        (person,) = [each for each in app_state.people.everyone() if each.name == self.name]

        def look(desk):
            state = desk.state(run)
            ident = next(iter(state.questions))
            return ident, item_digest(state, state.questions[ident])

        ident, item = self.server.call(app_state.cached_readers.read(look))
        to = person.addresses["email"]
        made = app_state.links.made_for(run, ident, item, person, "email", to)
        return app_state.links.token(made._replace(**other))

    def open(self, token):
        return self.http.get(f"/answer/{token}")

    def post(self, token, choice="approve", seal=None, headers=None, **more):
        """Send the form of a link's page, as a browser does."""
        if seal is None:
            found = re.search(r'name="seal" value="([^"]+)"', self.open(token).text)
            seal = found[1] if found else self.server.up.app_state.links.seal(token)
        own = {"Origin": self.server.url, "Sec-Fetch-Site": "same-origin"}
        fields = {"choice": choice, "seal": seal, **more}
        return self.http.post(
            f"/answer/{token}", data=fields, headers=own if headers is None else headers
        )


def waits(server, *steps):
    """Start a run; return it once it waits for a person."""
    with server.client("operator") as client:
        run = begin(client, *steps)
        assert ended(client, run)["status"].startswith(("waiting", "needs"))
        return run


def said(server, run):
    """What people said in a run, by its log."""
    kinds = (ev.LinkUsed, ev.ApprovalGiven, ev.RevisionRejected, ev.QuestionAnswered)
    return [type(e).__name__ for e in log_of(server, run) if isinstance(e, kinds)]


def test_a_link_shows_one_decision_and_its_form_records_it_as_that_persons(server):
    run = waits(server, SAY, DANGER)
    ann, bob = Person(server), Person(server, "second")
    token = ann.link(run)
    shown = ann.open(token)
    text = unescape(re.sub(r"<[^>]+>", " ", shown.text))
    assert shown.status_code == 200
    for words in ("a test", "high", "danger", "Approve", "counts as one approval; 1 more must"):
        assert words in text
    assert "What runs: after the second approval: " in text  # as on the dashboard
    assert "If rejected: none of these steps runs" in text
    with server.client() as client:
        digest = client.get(f"/runs/{run}/review").json()["digest"]
    assert digest in text
    done = ann.post(token, text="looks right")
    assert (done.status_code, "Recorded in the log" in done.text) == (200, True)
    assert said(server, run) == ["LinkUsed", "ApprovalGiven"]
    with server.client() as client:
        assert client.get(f"/runs/{run}").json()["status"] != "succeeded"  # two must approve
    assert bob.post(bob.link(run)).status_code == 200
    with server.client() as client:
        assert ended(client, run)["status"] == "succeeded"
    log = log_of(server, run)
    given = [each for each in log if isinstance(each, ev.ApprovalGiven)]
    used = [each for each in log if isinstance(each, ev.LinkUsed)]
    assert [(each.actor, each.reason) for each in given] == [
        ("approver", "looks right"),
        ("second", ""),
    ]
    assert [each.digest for each in given] == [digest, digest]
    assert [(each.actor, each.channel, each.question) for each in used] == [
        ("approver", "email", "review-1"),
        ("second", "email", "review-1"),
    ]


def test_the_page_has_no_script_and_a_strict_policy(server):
    run = waits(server, DANGER)
    ann = Person(server)
    shown = ann.open(ann.link(run))
    policy = shown.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self';")
    assert ("script-src" in policy, "form-action 'self'" in policy) == (False, True)
    assert ("<script" in shown.text, "http://" in shown.text) == (False, False)
    assert shown.headers["referrer-policy"] == "same-origin"
    assert shown.headers.get_list("cache-control") == ["no-store"]
    assert shown.headers["x-frame-options"] == "DENY"


def test_programs_that_open_every_link_change_nothing(server):
    """As mail scanners, link previews and prefetching browsers do."""
    run = waits(server, DANGER)
    ann = Person(server)
    token = ann.link(run)
    before = len(log_of(server, run))
    for _ in range(5):
        for headers in (
            {},
            {"User-Agent": "Mozilla/5.0 SafeLinks", "Sec-Purpose": "prefetch"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        ):
            for method in ("GET", "HEAD"):
                answer = ann.http.request(method, f"/answer/{token}", headers=headers)
                assert answer.status_code in (200, 403)
                assert bool(answer.content) == (method == "GET")
    for query in ("?choice=approve", "?choice=approve&seal=x", "?text=yes"):
        assert ann.http.get(f"/answer/{token}{query}").status_code == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):  # without the form
        assert ann.http.request(method, f"/answer/{token}").status_code >= 400
    blind = ann.http.post(f"/answer/{token}", data={"choice": "approve"})
    assert blind.status_code == 403
    assert len(log_of(server, run)) == before
    assert ann.post(token).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused(server, headers):
    run = waits(server, DANGER)
    ann = Person(server)
    token = ann.link(run)
    assert ann.post(token, headers=headers).status_code == 403
    assert not said(server, run)


def altered(dice, token):
    """A token with one thing changed, in the payload, in the MAC, or in its form."""
    letters = string.ascii_letters + string.digits + "-_"
    payload, mac = token.split(".")
    match dice.randrange(6):
        case 0 | 1 | 2:
            at = dice.choice([i for i, char in enumerate(token) if char != "."])
            new = dice.choice([char for char in letters if char != token[at]])
            return token[:at] + new + token[at + 1 :]
        case 3:
            return token[: dice.randrange(1, len(token))]
        case 4:
            return token + dice.choice((*letters, "=", ".", "%20"))
        case _:
            body = urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
            other = body.replace(b'"approver"', b'"second"').replace(b"email", b"slack")
            return f"{urlsafe_b64encode(other).rstrip(b'=').decode()}.{mac}"


def forged(dice, tmp_path, ann, run):
    """A token by another key, or with a MAC that is a guess."""
    if dice.random() < 0.5:
        payload = ann.link(run).partition(".")[0]
        return f"{payload}.{urlsafe_b64encode(dice.randbytes(32)).rstrip(b'=').decode()}"
    app_state = ann.server.up.app_state
    other = Links(tmp_path / "other.db", app_state.people, address="http://localhost:1")
    link, _ = app_state.links.open(ann.link(run))
    return other.token(link)


def test_of_1000_bad_links_none_is_accepted(server, tmp_path):
    """Forged, altered, expired, foreign and replayed ones: no answer, no event; then a good one."""
    dice = random.Random(4)
    run, other = waits(server, SAY, DANGER), waits(server, DANGER)
    ann, bob, viewer = Person(server), Person(server, "second"), Person(server, "viewer")
    good, used = ann.link(run), bob.link(run)
    assert bob.post(used).status_code == 200
    bobs = server.up.app_state.links.open(used)[0]
    strange = [
        ann.link(run, item=server.up.app_state.links.open(ann.link(other))[0].item),
        ann.link(run, run=other),
        ann.link(run, run="no-such-run"),
        ann.link(run, run="$host"),
        ann.link(run, question="review-2"),
        ann.link(run, person="second"),
        ann.link(run, person="owner"),
        ann.link(run, account=bobs.account),
        ann.link(run, account="0" * 20),
        ann.link(run, channel="slack"),
        ann.link(run, channel="carrier pigeon"),
        ann.link(run, to="0" * 16),
        viewer.link(run),
    ]
    kinds = {
        "altered": lambda: altered(dice, good),
        "forged": lambda: forged(dice, tmp_path, ann, run),
        "expired": lambda: ann.link(run, expires=int(time.time()) - dice.randrange(10_000)),
        "foreign": lambda: dice.choice(strange),
        "replayed": lambda: used,
    }
    assert (ann.open(strange[0]).status_code, ann.open(good).status_code) == (410, 200)
    before, tried = len(log_of(server, run)), Counter()
    links = server.up.app_state.links
    for number in range(1000):
        kind = list(kinds)[number % len(kinds)]
        token = kinds[kind]()
        choice = dice.choice(("approve", "approve", "reject", ""))
        sealed = links.seal(token) if dice.random() < 0.7 else links.seal(good)
        answer = ann.post(token, choice, seal=sealed, sure=choice)
        tried[kind, answer.status_code >= 400] += 1
    assert {accepted for _, accepted in tried} == {True}, tried
    assert {kind for kind, _ in tried} == set(kinds)
    assert len(log_of(server, run)) == before
    assert ann.post(good, seal="x" * 43).status_code == 404
    assert ann.post(good).status_code == 200
    with server.client() as client:
        assert ended(client, run)["status"] == "succeeded"


def test_an_answer_that_ends_a_run_is_asked_once_more(server):
    run = waits(server, DANGER)
    ann = Person(server)
    token = ann.link(run)
    asked = ann.post(token, "reject", text="not today")
    assert (asked.status_code, "Nothing is recorded yet" in asked.text) == (200, True)
    assert ("not today" in asked.text, said(server, run)) == (True, [])
    assert ann.post(token, "reject", sure="approve").status_code == 200
    assert not said(server, run)
    assert ann.post(token, "reject", sure="reject", text="not today").status_code == 200
    assert said(server, run) == ["LinkUsed", "RevisionRejected"]
    with server.client() as client:
        assert ended(client, run)["status"] == "rejected"


def test_a_question_is_answered_by_an_operator_and_a_refused_answer_keeps_the_link(server):
    run = waits(server, BROKEN)
    ops = Person(server, "operator")
    token = ops.link(run)
    wrong = ops.post(token, "dance")
    assert (wrong.status_code, "not one of" in wrong.text) == (422, True)
    assert ops.post(token, "skip", text="<b>&'\"").status_code == 200
    answered = [each for each in log_of(server, run) if isinstance(each, ev.QuestionAnswered)]
    assert [(each.actor, each.choice, each.text) for each in answered] == [
        ("operator", "skip", "<b>&'\"")
    ]
    assert ops.post(token, "retry").status_code == 410
    assert "decided already" in ops.open(token).text or "was used" in ops.open(token).text


def test_an_operator_does_not_approve_through_a_link(server):
    run = waits(server, DANGER)
    ops = Person(server, "operator")
    assert ops.open(ops.link(run)).status_code == 403
    assert ops.post(ops.link(run)).status_code == 403
    assert not said(server, run)


def test_a_protected_change_is_approved_as_it_was_shown(server):
    run = waits(server, STEP)
    ann = Person(server)
    token = ann.link(run)
    shown = ann.open(token).text
    assert (COMMIT in shown, "+replicas: 0" in shown) == (True, True)
    bare = ann.post(token, "send_back")
    assert (bare.status_code, "needs a text" in bare.text) == (422, True)
    assert ann.post(token, "approve").status_code == 200
    given = [each for each in log_of(server, run) if isinstance(each, ev.ChangeApproved)]
    assert [(each.actor, each.commit) for each in given] == [("approver", COMMIT)]


def test_a_changed_plan_voids_its_links(server):
    run = waits(server, SAY, DANGER)
    ann = Person(server)
    token = ann.link(run)
    with server.client() as client:
        digest = client.get(f"/runs/{run}/review").json()["digest"]
        edit = {"path": "steps.a.parameters.text", "value": "bye"}
        form = {"digest": digest, "set": [edit], "reason": "politer"}
        assert client.post(f"/runs/{run}/review/amend", json=form).status_code == 200
    for answer in (ann.open(token), ann.post(token)):
        assert answer.status_code == 410
        assert "decided already" in answer.text or "not what this link was made for" in answer.text
    assert "ApprovalGiven" not in said(server, run)
    assert ann.post(ann.link(run)).status_code == 200


def test_texts_of_a_plan_are_text_on_the_page(server):
    bad = "<script>alert(1)</script>"
    run = waits(
        server, {**SAY, "description": bad, "parameters": {"text": f'"><img {bad}'}}, DANGER
    )
    ann = Person(server)
    shown = ann.open(ann.link(run)).text
    assert ("<script" in shown, "<img" in shown, "&lt;script&gt;" in shown) == (False, False, True)


def test_the_values_of_parameters_are_shown(server):
    """A step only refers to them; an approval is of the values too."""
    plan = plan_of({**SAY, "parameters": {"text": "${{ params.where }}"}}, DANGER)
    plan["params"] = {"where": {"type": "string"}}
    with server.client("operator") as client:
        made = client.post("/runs", json={"plan": plan, "params": {"where": "pro<b>duction"}})
        run = made.json()["run"]
        assert ended(client, run)["status"] == "waiting"
    ann = Person(server)
    shown = ann.open(ann.link(run)).text
    assert "&#34;where&#34;: &#34;pro&lt;b&gt;duction&#34;" in shown


def test_of_two_first_keys_one_is_taken(tmp_path):
    """Two servers that sign their first link at the same moment stand by the same links."""
    place = tmp_path / "x.db"
    first = replace_key(place, first=True).read_bytes()
    assert replace_key(place, first=True).read_bytes() == first
    assert replace_key(place).read_bytes() != first
    assert [each.name for each in tmp_path.iterdir()] == ["x.db.link-key"]


def test_links_end_with_the_key_the_token_and_the_address_of_a_person(tmp_path):
    """And a used one stays used when the server starts again."""
    link_project(tmp_path)
    with served(tmp_path) as server:
        run = waits(server, DANGER)
        ann, bob = Person(server), Person(server, "second")
        used, kept = ann.link(run), bob.link(run)
        assert ann.post(used).status_code == 200
        assert key_file(server.store).stat().st_mode & 0o777 == 0o600
    with served(tmp_path) as server:
        ann, bob = Person(server), Person(server, "second")
        again = ann.post(used)
        assert (again.status_code, "was used" in again.text) == (410, True)
        assert bob.open(kept).status_code == 200
        file = tmp_path / "leadhand.toml"
        text = file.read_text()
        file.write_text(text.replace("second@example.com", "other@example.com"))
        assert bob.open(kept).status_code == 404
        file.write_text(text)
        assert bob.open(kept).status_code == 200
        os.chmod(key_file(server.store), 0o644)  # noqa: PTH101 - the same
        assert bob.open(kept).status_code >= 400
        replace_key(server.store)
        assert bob.open(kept).status_code == 404
        assert bob.post(bob.link(run)).status_code == 200
        with server.client() as client:
            assert ended(client, run)["status"] == "succeeded"


def test_without_an_address_no_link_is_made_and_none_is_opened(tmp_path):
    link_project(tmp_path, "")
    with served(tmp_path) as server:
        assert Person(server).open("abc.def").status_code == 404
        assert not key_file(server.store).exists()


def test_a_used_link_stays_used_on_postgresql(tmp_path, postgres):
    """The use is in the log of the run, whatever the log is kept in."""
    link_project(tmp_path)
    file = tmp_path / "leadhand.toml"
    store = f"store = {json.dumps(postgres.new(tmp_path).secret)}\n"
    file.write_text(file.read_text().replace("[project]\n", f"[project]\n{store}", 1))
    with served(tmp_path) as server:
        run = waits(server, DANGER)
        ann = Person(server)
        used = ann.link(run)
        assert ann.post(used).status_code == 200
        assert ann.post(used).status_code == 410
    with served(tmp_path) as server:
        ann, bob = Person(server), Person(server, "second")
        again = ann.post(used)
        assert (again.status_code, "was used" in again.text) == (410, True)
        assert bob.post(bob.link(run)).status_code == 200
        with server.client() as client:
            assert ended(client, run)["status"] == "succeeded"


def test_of_two_at_the_same_time_one_is_accepted(server):
    """Both passed every check of the page; the run decides."""
    run = waits(server, DANGER)
    ann = Person(server)
    token = ann.link(run)
    app_state = server.up.app_state

    async def both():
        link, person = app_state.links.open(token)
        given = [give_answer(app_state, link, person, LinkAnswer("approve")) for _ in range(5)]
        return await asyncio.gather(*given, return_exceptions=True)

    found = server.call(both())
    assert sum(isinstance(each, str) for each in found) == 1, found
    assert said(server, run) == ["LinkUsed", "ApprovalGiven"]


def test_the_cookie_is_secure_at_the_public_address_behind_a_proxy(tmp_path):
    """A proxy speaks TLS for the server; at the loopback address there is none."""
    link_project(tmp_path, '\n[server]\naddress = "https://leadhand.example"\n')
    text = (tmp_path / "leadhand.toml").read_text()
    text = text.replace("[server]\n", '[server]\nhosts = ["leadhand.example"]\n', 1)
    (tmp_path / "leadhand.toml").write_text(text)
    with served(tmp_path) as up:
        for host, secure in (("leadhand.example", True), (up.url.split("//")[1], False)):
            signed = httpx2.post(
                f"{up.url}/api/v1/session",
                json={"token": TOKENS["operator"]},
                headers={"host": host, "origin": f"http://{host}"},
            )
            assert signed.status_code == 200, signed.text
            assert ("secure" in signed.headers["set-cookie"].lower()) == secure
