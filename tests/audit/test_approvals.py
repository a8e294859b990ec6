"""Approvals are looked at again: whoever has the log but not the key cannot have approved.

The forger here has the database and a program of their own, which asks for no signature: all that
they write has fitting hashes and keeps every other rule.
"""

import asyncio

import msgspec
import pytest

from leadhand import Lead, Policy, worker
from leadhand.app.export import export_run
from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit import keys
from leadhand.audit.anchors import Anchoring
from leadhand.audit.bundle import verify_bundle
from leadhand.audit.keys import PrivateKey
from leadhand.audit.signatures import Signatures
from leadhand.core.events import ApprovalGiven
from leadhand.core.review.approval import plan_binding
from leadhand.engine import approvals
from leadhand.errors import Conflict, NotAllowed

pytest.importorskip("cryptography")

ANN, EVE = PrivateKey.new(), PrivateKey.new()
AT_HAND = {"ann": f"ed25519:{ANN.public.text}"}
PLAN = {"goal": "Ship it", "steps": [{"id": "ship", "worker": "ship", "parameters": {"what": "a"}}]}
OTHER = {
    "goal": "Ship it",
    "steps": [{"id": "ship", "worker": "ship", "parameters": {"what": "b"}}],
}


@worker(risk="high")
async def ship(what: str) -> str:
    return what


@pytest.fixture
def store(tmp_path):
    return tmp_path / "runs.db"


def lead_of(store, key=ANN, approvers=AT_HAND, **policy):
    policy = Policy(approvers=approvers, **policy)
    return Lead([ship], store=store, actor="ann", key=key, policy=policy)


def looked(store, outcome, approvers=AT_HAND):
    """What is wrong and what cannot be shown: of the database, then of the bundle."""
    assert outcome.ok
    reader = Reader(store)
    try:
        found = verify_database(reader, store, Anchoring(), approvers=approvers)
    finally:
        reader.store.close_reader()
    alone = verify_bundle(export_run(store, outcome.run, Anchoring()), None, approvers)
    return found, alone


def rules(verdict):
    return {(each.rule, each.run) for each in verdict.problems}


@pytest.fixture
def forger(monkeypatch):
    """An engine that lets everything through."""
    monkeypatch.setattr("leadhand.engine.run.refuse_unsigned", lambda *_: None)
    monkeypatch.setattr(approvals, "check_signature", lambda *_: None)


def test_a_signed_approval_is_checked_again(store):
    """With the approver's key at hand nothing is left open; without, whose key it is."""
    outcome = lead_of(store).run_sync(PLAN, approve=True)
    found, alone = looked(store, outcome)
    assert (found.problems, alone.problems) == ([], [])
    assert found.signatures.good == 1
    assert found.unshown() == []
    assert not any("approv" in text for text in alone.unshown)
    found, alone = looked(store, outcome, {})
    assert (found.problems, alone.problems, alone.signed_approvals) == ([], [], 1)
    for text in (found.unshown()[-1], alone.unshown[-1]):
        assert f"{ANN.name} is ann's" in text
    rotated = {"ann": f"ed25519:{EVE.public.text}"}
    assert f"{ANN.name} is ann's" in looked(store, outcome, rotated)[0].unshown()[-1]


def test_an_approval_before_the_run_is_checked_again(store):
    """The document's own signature, what it is of, and that no other run has used it."""
    lead = lead_of(store)
    outcome = lead.run_sync(PLAN, approval=lead.approve(PLAN, expires="1h"))
    found, alone = looked(store, outcome)
    assert (found.problems, found.unshown(), found.signatures.good) == ([], [], 1)
    assert alone.problems == []
    assert any("used for this run only" in text for text in alone.unshown)


@pytest.mark.parametrize("key", [None, EVE])
def test_a_forged_approval_is_found(store, forger, key):
    """In the database and in the bundle, as its one violation."""
    outcome = lead_of(store, key).run_sync(PLAN, approve=True)
    for verdict in looked(store, outcome):
        assert rules(verdict) == {("signature", outcome.run)}
    assert "not signed" in verdict.problems[0].message


@pytest.mark.parametrize("key", [None, EVE])
def test_a_forged_approval_before_the_run_is_found(store, forger, key):
    """Sealed anew, but not signed by ann."""
    lead = lead_of(store, key)
    outcome = lead.run_sync(PLAN, approval=lead.approve(PLAN))
    for verdict in looked(store, outcome):
        assert rules(verdict) == {("signature", outcome.run)}


def test_a_good_signature_of_another_plan_is_found(store, forger, monkeypatch):
    """Ann did sign: something else."""
    monkeypatch.setattr(approvals, "refuse_void", lambda *_: None)
    lead = lead_of(store)
    outcome = lead.run_sync(PLAN, approval=lead.approve(OTHER))
    for verdict in looked(store, outcome):
        assert rules(verdict) == {("signature", outcome.run)}
        assert "changed since: step ship" in verdict.problems[0].message


def test_a_good_signature_under_tighter_limits_is_found(store, forger, monkeypatch):
    """Ann signed for a budget of 5."""
    monkeypatch.setattr(approvals, "refuse_void", lambda *_: None)
    given = lead_of(store, budget=5.0).approve(PLAN)
    outcome = lead_of(store, budget=500.0).run_sync(PLAN, approval=given)
    for verdict in looked(store, outcome):
        assert "budget 500 instead of 5" in verdict.problems[0].message


def test_an_approval_that_two_runs_used_is_found(store, forger, monkeypatch):
    """By the database, where the host wrote down which run used it."""
    monkeypatch.setattr("leadhand.app.used_approvals.UsedApprovals.claim", lambda *_: None)
    monkeypatch.setattr(approvals, "refuse_used", lambda *_: None)
    lead = lead_of(store)
    given = lead.approve(PLAN)
    first, second = (lead.run_sync(PLAN, approval=given) for _ in range(2))
    found, _ = looked(store, second)
    assert rules(found) == {("signature", second.run)}
    assert f"was used by run {first.run}" in found.problems[0].message


def test_where_nobody_was_listed_a_signature_is_checked_if_there_is_a_key(store, monkeypatch):
    """Otherwise it is said that it was not; and so it is of approvals without one."""
    lead = lead_of(store, approvers={})
    outcome = lead.run_sync(PLAN, approve=True)
    assert looked(store, outcome)[0].signatures.good == 1
    for known in ({}, {"ann": f"ed25519:{EVE.public.text}"}):
        found, alone = looked(store, outcome, known)
        assert (found.problems, found.signatures.good) == ([], 0)
        assert f"whether {ANN.name} signed" in found.unshown()[-1]
        assert "signature not checked" in alone.unshown[-1]
    monkeypatch.setattr(keys, "_library", _missing)
    found, _ = looked(store, outcome)
    assert "needs the package `cryptography`" in found.unshown()[-1]


def _missing():
    raise keys.UsageError(keys.MISSING)


def test_an_unsigned_approval_says_so(store):
    """Nobody promised a signature: it is no violation."""
    outcome = lead_of(store, None, {}).run_sync(PLAN, approve=True)
    for verdict in looked(store, outcome):
        assert verdict.problems == []
    assert "not signed" in looked(store, outcome)[0].unshown()[-1]


def test_a_signature_with_a_false_name_of_its_key_is_found(store, forger):
    """The key at hand is the one that is named, and the signature is of something else."""
    lead = lead_of(store, EVE, {})
    given = lead.approve(PLAN)
    given = msgspec.structs.replace(given, key=ANN.name)
    given = msgspec.structs.replace(given, seal=given.sealed())
    outcome = lead.run_sync(PLAN, approval=given)
    assert rules(looked(store, outcome)[0]) == {("signature", outcome.run)}


@pytest.mark.parametrize("change", [{"expires": 0}, {"actor": "bob"}, {"approval": "none"}])
def test_an_event_that_says_more_than_its_document_is_found(store, change):
    """The signature is over the document: what the event adds to it nobody has signed."""
    lead = lead_of(store, approvers={})
    outcome = lead.run_sync(PLAN, approval=lead.approve(PLAN, expires="1h"))
    reader = Reader(store)
    log = [event for _, event in reader.events(outcome.run)]
    reader.store.close_reader()
    assert Signatures(AT_HAND).check("r", log) == []
    forged = [
        msgspec.structs.replace(each, **change) if isinstance(each, ApprovalGiven) else each
        for each in log
    ]
    assert {each.rule for each in Signatures(AT_HAND).check("r", forged)} == {"signature"}


def test_an_approval_of_an_earlier_version_verifies_and_starts_nothing(store, monkeypatch):
    """It does not say under which limits it was given; a log that holds one is as good as ever."""
    lead = lead_of(store)
    new = lead.approve(PLAN)
    bound = plan_binding(PLAN, {}, lead.registry.catalog(), 0)
    old = msgspec.structs.replace(new, limits={}, binding=bound)
    old = msgspec.structs.replace(old, seal=old.sealed())
    signed = approvals.signature_doc(ANN, old.to_sign())["signature"]
    old = msgspec.structs.replace(old, signature=signed)
    with pytest.raises(Conflict, match="names no limits"):
        lead.run_sync(PLAN, approval=old)
    monkeypatch.setattr(approvals, "refuse_void", lambda *_: None)
    outcome = lead.run_sync(PLAN, approval=old)
    assert [each.problems for each in looked(store, outcome)] == [[], []]


async def let_go(store, approver, answerer, *, by_name=False):
    """A run whose approval ends before it is taken up; somebody lets it go all the same."""
    lead = lead_of(store)
    waits = await lead.run(PLAN)
    await lead.answer(waits.run, "review-1", "approve", expires=0.3)
    await asyncio.sleep(0.4)
    held = await lead.resume(waits.run)
    [question] = held.waiting_for
    lead.key, lead.actor = approver, answerer
    if by_name:
        assert await lead.release(waits.run, "ship") == ["ship"]
    else:
        await lead.answer(waits.run, question.id.partition("/")[2], "release")
    return waits.run


def problems_of(store, run):
    reader = Reader(store)
    try:
        found = verify_database(reader, store, Anchoring(), approvers=AT_HAND).problems
    finally:
        reader.store.close_reader()
    alone = verify_bundle(export_run(store, run, Anchoring()), None, AT_HAND).problems
    return [[(each.rule, each.run) for each in problems] for problems in (found, alone)]


@pytest.mark.parametrize(
    ("key", "actor"), [(None, "ann"), (EVE, "ann"), (EVE, "eve"), (ANN, "eve")]
)
async def test_only_approvers_let_go_what_is_no_longer_allowed(store, key, actor):
    """The time of an approval is up: to go on all the same is to approve."""
    for number, by_name in enumerate((False, True)):
        with pytest.raises(NotAllowed):
            await let_go(store.with_name(f"{number}.db"), key, actor, by_name=by_name)


async def test_a_signed_release_is_checked_again(store):
    """As an approval is."""
    for by_name in (False, True):
        run = await let_go(store, ANN, "ann", by_name=by_name)
        assert problems_of(store, run) == [[], []]


@pytest.mark.parametrize(("key", "rule"), [(None, "I26"), (EVE, "signature")])
async def test_a_forged_release_is_found(store, forger, key, rule):
    """Whoever wrote it into the log had no key."""
    run = await let_go(store, key, "ann")
    assert [{(rule, run)} <= set(each) for each in problems_of(store, run)] == [True, True]
