"""What people do at a run beside its plan, the page's files, and what a restart must not undo."""

import datetime as dt
import gzip
import ipaddress
import ssl
import stat

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from leadhand.errors import StoreError
from leadhand.server.accounts import Accounts, SignedOut
from leadhand.server.routes import pages
from tests.support.cli import Folder
from tests.support.serving import TOKENS, ended, plan_of, process, project, served

TWINS = """

@worker(name="weak", action="write", idempotent=True)
async def weak(text: str = "") -> str:
    raise Permanent("too hard")


@worker(name="strong", action="write")
async def strong(text: str = "") -> str:
    return f"strong {text}"


@worker(name="other", action="read")
async def other() -> str:
    return "read"


@worker(name="shifty", idempotent=True)
async def shifty(context: Context) -> str:
    if context.attempt < 3:
        raise ConnectionError("not yet")
    return "at last"


@worker(name="wise")
async def wise() -> object:
    from leadhand import Report

    return Report(data=1, recommendations=("water it weekly",))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    project(folder)
    text = (folder / "workers.py").read_text()
    (folder / "workers.py").write_text(text + TWINS)
    with served(folder) as up:
        yield up


# Steps.


def test_a_step_that_failed_is_given_to_another_worker(server):
    """Only to one that offers the same action; it is a revision with an author and a reason."""
    weak = {"id": "a", "worker": "weak", "action": "write", "parameters": {"text": "x"}}
    with server.client() as client, server.client("operator") as operator:
        run = client.post("/runs", json={"plan": plan_of(weak)}).json()["run"]
        assert ended(client, run)["status"] == "waiting"
        assert client.get(f"/runs/{run}/steps/a").json()["others"] == ["strong"]
        path = f"/runs/{run}/steps/a/reassign"
        assert operator.post(path, json={"worker": "strong"}).status_code == 403
        assert client.post(path, json={"worker": "other"}).status_code == 422
        assert client.post(path, json={"worker": "weak"}).status_code == 422
        nowhere = client.post(f"/runs/{run}/steps/zz/reassign", json={"worker": "strong"})
        assert nowhere.status_code == 404
        done = client.post(path, json={"worker": "strong", "reason": "the weak one gave up"})
        assert (done.status_code, done.json()["step"]) == (200, "a.2")
        assert ended(client, run)["status"] == "succeeded"
        heir = client.get(f"/runs/{run}/steps/a.2").json()
        assert (heir["worker"], heir["data"]) == ("strong", "strong x")
        author = client.get(f"/runs/{run}/revisions").json()["items"][-1]["author"]
        assert author == "approver"
        ledger = client.get(f"/runs/{run}/ledger").text
        assert "the weak one gave up" in ledger
        assert client.post(path, json={"worker": "strong"}).status_code == 409


def test_a_reassignment_of_what_needs_a_review_is_reviewed(tmp_path):
    """Whoever may amend may not thereby allow."""
    more = "[policy]\nreview = true\n"
    project(tmp_path, more)
    text = (tmp_path / "workers.py").read_text()
    (tmp_path / "workers.py").write_text(text + TWINS)
    weak = {"id": "a", "worker": "weak", "action": "write"}
    with served(tmp_path) as server, server.client() as client:
        run = client.post("/runs", json={"plan": plan_of(weak)}).json()["run"]
        ended(client, run)
        shown = client.get(f"/runs/{run}/review").json()["binding"]
        assert client.post(f"/runs/{run}/review/approve", json={"digest": shown}).status_code == 200
        assert ended(client, run)["status"] == "waiting"
        client.post(f"/runs/{run}/steps/a/reassign", json={"worker": "strong"})
        assert ended(client, run)["status"] == "waiting"
        review = client.get(f"/runs/{run}/review").json()
        assert review["waiting"]
        assert review["binding"] != shown
        assert client.get(f"/runs/{run}/steps/a").json()["status"] != "superseded"


def test_each_attempt_has_its_time(server):
    """Of each step, and only of those that changed since an entry of the log."""
    shifty = {"id": "s", "worker": "shifty", "retry": {"attempts": 4, "backoff": 0.01}}
    steps = (shifty, {"id": "t", "worker": "say"})
    with server.client() as client:
        run = client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
        assert ended(client, run)["status"] == "succeeded"
        doc = client.get(f"/runs/{run}/rows").json()
        assert [row["id"] for row in doc["rows"]] == ["s", "t"]
        spans = [each for each in doc["rows"][0]["segments"] if each["kind"] == "attempt"]
        assert [each["outcome"] == "verified" for each in spans] == [False, False, True]
        assert all(each["from"] <= each["to"] for each in spans)
        assert client.get(f"/runs/{run}/rows?after={doc['seq']}").json()["rows"] == []
        assert client.get(f"/runs/{run}/rows?after=-1").status_code == 422
        assert client.get("/runs/none/rows").status_code == 404


def test_a_success_may_recommend_something(server):
    """The drawer of the step shows it; it was nowhere to be seen."""
    with server.client() as client:
        run = client.post("/runs", json={"plan": plan_of({"id": "w", "worker": "wise"})}).json()[
            "run"
        ]
        assert ended(client, run)["status"] == "succeeded"
        found = client.get(f"/runs/{run}/steps/w").json()
        assert found["recommendations"] == ["water it weekly"]
        assert found["attempts_made"][0]["recommendations"] == ["water it weekly"]


def test_a_draft_says_what_it_may_spend(server):
    with server.client() as client:
        plan = plan_of({"id": "w", "worker": "wise"})
        found = client.post("/plans/draft", json={"plan": plan, "budget": 3}).json()
        assert found["limits"] == {"budget": 3, "planner_calls": 1000}


def test_a_rollback_says_why(server):
    """In the ledger of the run that takes back."""
    step = {"id": "a", "worker": "say", "undo": {"worker": "say"}}
    with server.client() as client:
        run = client.post("/runs", json={"plan": plan_of(step)}).json()["run"]
        ended(client, run)
        done = client.post(f"/runs/{run}/rollback", json={"reason": "wrong customer"})
        assert done.status_code == 200, done.text
        back = done.json()["run"]
        assert ended(client, back)["status"] == "succeeded"
        told = client.get(f"/runs/{back}/ledger").text
        assert f"it rolls back run {run}: wrong customer" in told
        assert client.get(f"/runs/{back}").json()["goal"]


# Figures.


def test_figures_say_what_was_spent_and_read_no_log_twice(server, monkeypatch):
    """Runs that have ended are counted once."""
    with server.client() as client:
        run = client.post("/runs", json={"plan": plan_of({"id": "a", "worker": "say"})}).json()
        ended(client, run["run"])
        first = client.get("/metrics").json()
        assert first["cost"] == 0
        read = []
        desk = type(server.call(_desk(server)))
        events = desk.events
        monkeypatch.setattr(
            desk,
            "events",
            lambda self, run, after=0: (read.append(run), events(self, run, after))[1],
        )
        more = client.post("/runs", json={"plan": plan_of({"id": "b", "worker": "say"})}).json()
        ended(client, more["run"])
        second = client.get("/metrics").json()
        assert second["attempts"] == first["attempts"] + 1
        assert more["run"] in read
        assert run["run"] not in read


async def _desk(server):
    return await server.up.app_state.cached_readers.read(lambda desk: desk)


def test_an_artifact_is_a_download_whatever_it_holds(server):
    """Never shown as what it says it is, on our origin; and nothing but artifacts is found so."""
    evil = b"<html><script>alert(1)</script>"

    async def put():
        return server.up.app_state.host.store.put_artifact(evil)

    ref = server.call(put())
    with server.client("viewer") as client:
        found = client.get(f"/artifacts/{ref}")
        assert (found.status_code, found.content) == (200, evil)
        assert found.headers["content-type"] == "application/octet-stream"
        assert found.headers["content-disposition"].startswith("attachment")
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in found.headers["content-security-policy"]
        digest = ref.partition(":")[2]
        for other in (f"..%2f{digest}", f"sha256:..%2f{digest}", "sha256:%2e%2e", digest, "%00"):
            assert client.get(f"/artifacts/{other}").status_code == 404, other
        assert httpx2.get(f"{server.api}/artifacts/{ref}").status_code == 401


# The page's files.


@pytest.mark.parametrize("encoding", ["gzip", "gzip, br", "*", "br;q=1, gzip;q=0.5"])
def test_files_travel_packed(server, encoding):
    """To those who can unpack them, and the tag is of what is sent."""
    url = f"{server.url}/assets/1/js/main.js"
    with httpx2.Client() as client:
        plain = client.get(url, headers={"Accept-Encoding": "identity"})
        with client.stream("GET", url, headers={"Accept-Encoding": encoding}) as packed:
            raw = b"".join(packed.iter_raw())
        assert (plain.status_code, packed.status_code) == (200, 200)
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(raw) == plain.content
        assert len(raw) < 0.6 * len(plain.content)
        assert "content-encoding" not in plain.headers
        assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
        assert plain.headers["etag"] != packed.headers["etag"]
        same = {"Accept-Encoding": encoding, "If-None-Match": packed.headers["etag"]}
        known = client.get(url, headers=same)
        assert (known.status_code, known.content) == (304, b"")
        other = {"Accept-Encoding": encoding, "If-None-Match": plain.headers["etag"]}
        assert client.get(url, headers=other).status_code == 200


@pytest.mark.parametrize("encoding", ["", "identity", "gzip;q=0", "gzip;q=0.000, *", "br", "xgzip"])
def test_nobody_gets_what_they_cannot_unpack(encoding):
    """A weight of nothing is a no."""
    assert not pages.takes_gzip(encoding)


def test_the_page_is_known_by_its_text(server):
    """Also by a proxy's weak tag, and among others."""
    with httpx2.Client() as client:
        tag = client.get(f"{server.url}/").headers["etag"]
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            seen = client.get(f"{server.url}/", headers={"If-None-Match": known})
            assert seen.status_code == 304, known
        assert client.get(f"{server.url}/", headers={"If-None-Match": tag[1:-1]}).status_code == 200


# What a restart must not undo.


def test_a_session_that_was_signed_out_stays_out_after_a_restart(tmp_path):
    """A copy of its cookie is worth nothing, now and later."""
    project(tmp_path)
    cookies = []
    with served(tmp_path) as server:
        for _ in range(2):
            with server.client("") as browser:
                site = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
                browser.post("/session", json={"token": TOKENS["viewer"]}, headers=site)
                (cookie,) = browser.cookies.values()
                cookies.append(cookie)
        with server.client("") as browser:
            browser.cookies.set("leadhand_session", cookies[0])
            assert browser.delete("/session", headers=site).status_code == 204
        store = server.store
    kept = store.with_name(f"{store.name}.signed-out")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert cookies[0] not in kept.read_text()
    with served(tmp_path) as server, server.client("") as browser:
        for cookie, status in zip(cookies, (401, 200), strict=True):
            asked = {"Cookie": f"leadhand_session={cookie}"}
            assert browser.get("/session", headers=asked).status_code == status


def test_what_is_over_by_itself_is_forgotten(tmp_path):
    """The file does not grow for ever, and half a line is none."""
    path = tmp_path / "x"
    first = SignedOut(path, 0)
    first.add("a", 10, 0)
    first.add("b", 100, 0)
    with path.open("a") as file:
        file.write("half")
    later = SignedOut(path, 50)
    assert ("a" in later, "b" in later) == (False, True)
    assert len(path.read_text().splitlines()) == 1
    later.add("c", 200, 50)
    assert "c" in SignedOut(path, 60)


def test_a_sign_out_that_cannot_be_kept_is_told(tmp_path):
    """Rather than to last until the next start only."""
    people = Accounts("owner", "o" * 40, dict, signed_out=tmp_path / "gone" / "file")
    person = people.by_token("o" * 40)
    assert person is not None
    cookie, _ = people.sign_in(person)
    with pytest.raises(StoreError):
        people.sign_out(cookie)
    assert people.by_session(cookie)


# TLS.


def certificate(folder):
    """One for 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.real
def test_the_command_serves_over_tls(tmp_path):
    """And says so when what it was given is no certificate."""
    project(tmp_path)
    cert, key = certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(cert))
    server = process(tmp_path, "--port", "0", "--tls-cert", str(cert), "--tls-key", str(key))
    try:
        assert server.url.startswith("https://127.0.0.1:")
        assert httpx2.get(f"{server.url}/livez", verify=trusted).text == "ok\n"
    finally:
        server.stop()
    swapped = ("--tls-cert", str(key), "--tls-key", str(cert))
    refused = Folder(tmp_path).run("serve", "--port", "0", *swapped)
    assert refused.code == 2
    assert "the certificate cannot be used" in refused.err


def test_it_serves_over_tls(tmp_path):
    """Requests, a stream and a secure cookie; nothing in the clear, no page of the plain origin."""
    project(tmp_path)
    cert, key = certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(cert))
    with served(tmp_path, cert=cert, key=key) as server:
        assert server.url.startswith("https://127.0.0.1:")
        bearer = {"Authorization": f"Bearer {TOKENS['operator']}"}
        with httpx2.Client(base_url=server.api, verify=trusted, headers=bearer) as client:
            run = client.post("/runs", json={"plan": plan_of({"id": "a", "worker": "say"})})
            assert ended(client, run.json()["run"])["status"] == "succeeded"
            with client.stream("GET", "/events", params={"after": 0}) as stream:
                assert any("RunEnded" in line for line in stream.iter_lines())
            plain = server.url.replace("https", "http")
            foreign = client.post("/runs", json={}, headers={"Origin": plain})
            assert foreign.status_code == 403
            signed = client.post(
                "/session",
                json={"token": TOKENS["viewer"]},
                headers={"Origin": server.url, "Authorization": ""},
            )
            assert signed.status_code == 200, signed.text
            assert "secure" in signed.headers["set-cookie"].lower()
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"{plain}/livez")
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{server.url}/livez")


# --- plans that name their planner ---------------------------------------------------------------

FRAIL = {"id": "a", "worker": "frail"}
REVISABLE = {
    "goal": {"text": "Sum it up", "want": ["summary"], "have": {"topic": "prices"}},
    "steps": [FRAIL],
}


def test_a_plan_that_was_sent_is_revised_by_the_planner_it_names(server):
    """As at the command line; what the review says of it is in the document."""
    with server.client("operator") as client:
        body = {"plan": {**REVISABLE, "planner": "goal"}}
        run = client.post("/runs", json=body).json()["run"]
        found = ended(client, run)
        assert (found["status"], found["result"]) == ("succeeded", "about prices"), found
        waits = client.post("/runs", json={**body, "review": True}).json()["run"]
        shown = client.get(f"/runs/{waits}/review").json()
        assert shown["revisable"]["planner"] == "goal"
        assert shown["revisable"]["envelope"]["workers"] == ["frail"]


@pytest.mark.parametrize("name", ["os:system", "planning.py:plan", "anthropic:claude-haiku-4-5"])
def test_a_plan_that_was_sent_chooses_neither_code_nor_a_model(server, name):
    """Only what the settings name; before it runs the draft and the check say so, too."""
    plan = {**REVISABLE, "planner": name}
    with server.client("operator") as client:
        refused = client.post("/runs", json={"plan": plan})
        assert refused.status_code == 422, refused.text
        assert "[project] planner" in refused.text
        draft = client.post("/plans/draft", json={"plan": plan}).json()
        checked = client.post("/plans/lint", json={"plan": plan}).json()
    assert draft["decision"] == "refused"
    assert not checked["valid"]
    for found in (draft, checked):
        errors = [each["rule"] for each in found["findings"] if each["level"] == "error"]
        assert errors == ["planner-unknown"]


def test_a_draft_of_a_goal_says_who_planned_it_and_runs(server):
    """What the page shows before a start can be sent as it is."""
    goal = {"text": "Sum it up", "want": ["summary"], "have": {"topic": "wages"}}
    with server.client("operator") as client:
        plan = client.post("/plans/draft", json={"goal": goal}).json()["plan"]
        assert plan["planner"] == "goal"
        run = client.post("/runs", json={"plan": plan}).json()["run"]
        assert ended(client, run)["result"] == "about wages"


def test_rollback_is_an_answer_through_the_api(server):
    """And the server takes back what was done."""
    undo = {"worker": "say", "parameters": {"text": "undone"}}
    steps = [
        {"id": "a", "worker": "say", "undo": undo},
        {"id": "b", "worker": "shaky", "depends_on": ["a"]},
    ]
    with server.client("operator") as client:
        run = client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
        (row,) = ended(client, run)["waiting_for"]
        assert "rollback" in [each["answer"] for each in row["choices"]], row
        said = client.post(f"/inbox/{run}/q1/answer", json={"choice": "rollback"})
        assert said.status_code == 200, said.text
        assert ended(client, run)["status"] == "failed"
        assert ended(client, f"{run}-rollback")["status"] == "succeeded"
