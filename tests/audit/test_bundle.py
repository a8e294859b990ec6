"""Bundles: the same bytes for the same run, checked alone; and the page in them."""

import re
import zipfile
from html.parser import HTMLParser

import pytest

from leadhand import Lead, Permanent, Transient, worker
from leadhand.app.export import export_run
from leadhand.audit.anchors import Anchoring
from leadhand.audit.bundle import _unpacked, verify_bundle
from leadhand.audit.keys import PrivateKey
from leadhand.errors import NotAllowed, UsageError

NASTY = "<script>alert(1)</script><img src=x onerror=y> \u202e\x07\"'&"


@worker
async def say(text: str = "hello") -> str:
    return text


@worker(idempotent=True)
async def flaky(text: str = "") -> str:
    raise Transient(f"not now {NASTY}")


@worker
async def big() -> list:
    return ["x" * 100] * 1000


@worker
async def broken() -> None:
    raise Permanent(f"no way {NASTY}")


PLAN = {
    "goal": f"Say it {NASTY}",
    "plan_id": "p",
    "steps": [
        {"id": "a", "worker": "say", "description": NASTY},
        {"id": "large", "worker": "big"},
        {
            "id": "f",
            "worker": "flaky",
            "alternatives": ["say"],
            "retry": {"attempts": 1},
            "depends_on": ["a"],
        },
        {"id": "b", "worker": "broken", "failure_action": "continue"},
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    store = folder / "runs.db"
    outcome = Lead([say, flaky, big, broken], store=store).run_sync(PLAN)
    assert outcome.ok
    return store, outcome.run


def files(made, **more):
    store, run = made
    return _unpacked(export_run(store, run, Anchoring(**more)))


def test_the_same_run_gives_the_same_bytes(made):
    store, run = made
    assert export_run(store, run, Anchoring()) == export_run(store, run[:6], Anchoring())


def test_it_holds_what_it_promises(made):
    held = files(made)
    for name in ("index.html", "README.txt", "approvals.json", "manifest.json"):
        assert held[name]
    assert {"plan/revision-1.json", "log/entries.jsonl", "log/anchors.jsonl"} <= set(held)
    assert sum(name.startswith("artifacts/") for name in held) == 1
    assert b"RevisionApproved" in held["approvals.json"]
    assert b'"type":"RecoveryDecided"' in held["ledger/intent.jsonl"]
    assert b'"type":"AttemptReported"' in held["ledger/execution.jsonl"]


def test_it_is_checked_alone(made):
    store, run = made
    found = verify_bundle(export_run(store, run, Anchoring()))
    assert found.problems == []
    assert found.anchor is not None
    assert "who made it" in found.unshown[0]
    found = verify_bundle(export_run(store, run, Anchoring(store.parent / "no-anchors")))
    assert found.problems == []
    assert "no anchor covers it" in found.unshown[1]


def test_a_signature_is_checked_with_the_key_that_is_given(made, tmp_path):
    store, run = made
    key, other = PrivateKey.new(), PrivateKey.new()
    file = tmp_path / "key"
    file.write_bytes(key.pem())
    file.chmod(0o600)
    data = export_run(store, run, Anchoring(key=file))
    found = verify_bundle(data, key.public)
    assert (found.problems, found.signed_by, found.known) == ([], key.name, True)
    found = verify_bundle(data)
    assert (found.problems, found.signed_by, found.known) == ([], key.name, False)
    assert "give its public key with --key" in found.unshown[0]
    assert verify_bundle(data, other.public).problems
    assert verify_bundle(export_run(store, run, Anchoring()), key.public).problems


class Look(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_loads_nothing_and_runs_nothing(made):
    page = files(made)["index.html"].decode()
    look = Look()
    look.feed(page)
    assert not {"script", "img", "link", "iframe", "object", "form", "a"} & set(look.tags)
    names = {name for name, _ in look.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href")}
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import|https?://", page)
    assert "\u202e" not in page
    assert "\x07" not in page
    text = "".join(look.text)
    assert "<script>alert(1)</script>" in text
    assert "\\u202e" in text


def test_the_page_tells_the_story(made):
    page = files(made)["index.html"].decode()
    for words in (
        "Say it",
        "Approvals and decisions",
        "reroute",
        "Attempt 2 by say",
        "Goal reached",
    ):
        assert words in page
    assert "4 events" not in page


def test_a_failure_is_laid_to_planning_or_to_execution(tmp_path):
    lead = Lead([broken], store=tmp_path / "a.db")
    steps = [{"id": "b", "worker": "broken", "failure_action": "abort"}]
    run = lead.run_sync({"goal": "g", "steps": steps}).run
    page = files((tmp_path / "a.db", run))["index.html"].decode()
    assert "Execution failed" in page
    assert "step b (broken) failed" in page  # the sentence of `show` and of the page


def test_a_run_that_is_not_over_can_be_exported(tmp_path):
    lead = Lead([say], store=tmp_path / "a.db")
    plan = {"goal": "g", "risk_level": "high", "steps": [{"id": "a", "worker": "say"}]}
    run = lead.run_sync(plan).run
    data = export_run(tmp_path / "a.db", run, Anchoring())
    assert verify_bundle(data).problems == []
    assert b"Not finished: waiting for approval" in _unpacked(data)["index.html"]


def test_what_is_no_bundle_is_said(tmp_path):
    empty = tmp_path / "a.zip"
    with zipfile.ZipFile(empty, "w"):
        pass
    for data in (b"", b"text", empty.read_bytes(), b"PK\x03\x04"):
        assert verify_bundle(data).problems


def test_a_log_that_holds_a_secret_is_not_exported(tmp_path, monkeypatch):
    """One that became known as a secret only later."""
    monkeypatch.setenv("LATER", "first-value-of-it")
    lead = Lead([say], store=tmp_path / "a.db")
    plan = {
        "goal": "g",
        "params": {"t": {"type": "secret", "env": "LATER"}},
        "steps": [{"id": "a", "worker": "say", "parameters": {"text": "not-known-as-secret"}}],
    }
    run = lead.run_sync(plan).run
    export_run(tmp_path / "a.db", run, Anchoring())
    monkeypatch.setenv("LATER", "not-known-as-secret")
    with pytest.raises(NotAllowed, match=r"\[secret:t\]") as caught:
        export_run(tmp_path / "a.db", run, Anchoring())
    assert "not-known" not in str(caught.value)


def test_there_must_be_such_a_run(made):
    with pytest.raises(UsageError):
        export_run(made[0], "nobody", Anchoring())
