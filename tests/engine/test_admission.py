"""Approvals are checked before anything starts: in a log that another program has written.

The forger has the database and a program of their own. What they write has fitting hashes, of both
chains; before this was looked at where work is admitted, `resume` carried it out, and only `verify`
objected afterwards.
"""

import asyncio
import shutil
import sqlite3

import msgspec
import pytest

from leadhand import Context, Failure, Lead, Policy, Report, worker
from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.audit.chain import GENESIS, link, link_batch
from leadhand.audit.keys import PrivateKey
from leadhand.codec.events import decode, encode
from leadhand.core import events as ev
from leadhand.core.hashing import canonical, digest
from leadhand.core.policy import Rule
from leadhand.engine.approvals import invalid_entries
from leadhand.errors import LeadhandError, StoreCorrupt
from leadhand.stores.body_form import expand

pytest.importorskip("cryptography")

ANN, BOB, EVE = PrivateKey.new(), PrivateKey.new(), PrivateKey.new()
KEYS = {"ann": f"ed25519:{ANN.public.text}", "bob": f"ed25519:{BOB.public.text}"}
DONE = []


@worker(risk="high", effects=["pay"])
async def ship(version: str) -> str:
    DONE.append(version)
    return version


@worker(idempotent=True)
async def scale(context: Context) -> object:
    """Make a protected change, and land it once people have approved it."""
    said = context.answers[-1] if context.answers else {}
    if said.get("choice") == "approve" and said.get("commit"):
        DONE.append(said["commit"])
        return {"landed": said["commit"]}
    change = {
        "commit": COMMIT,
        "base": "b" * 40,
        "digest": "d" * 64,
        "paths": ["deploy/prod.yaml"],
        "diff": "-replicas: 3\n+replicas: 0\n",
    }
    return Report("failed", error=Failure("policy", "It passes.", change=change))


COMMIT = "c0ffee" + "0" * 34
CHANGES = {"goal": "Scale", "steps": [{"id": "scale", "worker": "scale"}]}
PLAN = {
    "goal": "Ship",
    "steps": [
        {"id": "ship", "worker": "ship", "parameters": {"version": "v1"}},
    ],
}


@pytest.fixture(autouse=True)
def fresh():
    DONE.clear()


@pytest.fixture
def store(tmp_path):
    return tmp_path / "runs.db"


def lead_of(store, actor="ann", key=ANN, approvers=KEYS, rules=(), **more):
    policy = Policy(approvers=approvers, rules=rules, **more)
    return Lead([ship, scale], store=store, actor=actor, key=key, policy=policy)


async def waiting(store, **more):
    """A run that waits for its approval."""
    return (await lead_of(store, **more).run(PLAN)).run


async def approved(store, **more):
    """A run that was approved and signed, and that nobody has taken up since."""
    run = await waiting(store, **more)
    await lead_of(store, **more).answer(run, "review-1", "approve")
    assert DONE == []
    return run


def log_of(store, run):
    reader = Reader(store)
    try:
        return [event for _, event in reader.events(run)]
    finally:
        reader.store.close_reader()


def write(store, run, change, *, batches=True):
    """Change the events of a run, and compute both chains anew, as whoever has the file can."""
    base = sqlite3.connect(store)
    for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        base.execute(f"DROP TRIGGER {name}")
    ident = base.execute("SELECT id FROM runs WHERE run = ?", (run,)).fetchone()[0]
    rows = base.execute(
        "SELECT position, seq, at, version, body FROM events WHERE run_id = ? ORDER BY seq",
        (ident,),
    ).fetchall()
    head = GENESIS
    for position, seq, at, version, body in rows:
        event = change(decode(version, expand(body)))
        new = encode(event)
        head = link(head, run, seq, at, version, new)
        base.execute(
            "UPDATE events SET body = ?, hash = ? WHERE position = ?", (new, head, position)
        )
    base.execute("UPDATE runs SET hash = ? WHERE id = ?", (head, ident))
    prev = GENESIS
    found = base.execute("SELECT number, first, last FROM batches ORDER BY number").fetchall()
    for number, first, last in found if batches else ():
        own = "SELECT hash FROM events WHERE position BETWEEN ? AND ? ORDER BY position"
        hashes = [each for (each,) in base.execute(own, (first, last))]
        prev = link_batch(prev, first, last, hashes)
        base.execute("UPDATE batches SET hash = ? WHERE number = ?", (prev, number))
    base.commit()
    base.close()


async def test_what_was_signed_goes_on(store):
    """The same run, untouched."""
    run = await approved(store)
    assert (await lead_of(store).resume(run)).ok
    assert DONE == ["v1"]


@pytest.fixture
def forge(monkeypatch):
    """An engine that asks for no signature, as long as it is used."""

    async def answer(lead, *said, **more):
        with monkeypatch.context() as patch:
            patch.setattr("leadhand.engine.run.refuse_unsigned", lambda *_: None)
            await lead.answer(*said, **more)

    return answer


async def held(store, run, *, says, **more):
    """Taking the run up starts nothing, and says which approval does not hold, and why."""
    outcome = await lead_of(store, **more).resume(run)
    assert (DONE, outcome.status) == ([], "waiting")
    [question] = outcome.waiting_for
    assert says in question.text, question.text
    assert question.text.count("Held: ship") == 1
    again = await lead_of(store, **more).resume(run)
    assert (DONE, [each.id for each in again.waiting_for]) == ([], [question.id])
    return question.id


async def test_an_approval_without_a_signature_starts_nothing(store, forge):
    """Whoever wrote it had no key; one who has it lets the run go on."""
    run = await waiting(store)
    await forge(lead_of(store, key=None), run, "review-1", "approve")
    question = await held(store, run, says="ann's approval")
    with pytest.raises(LeadhandError, match="not signed"):
        await lead_of(store, key=None).answer(run, question, "release")
    await lead_of(store).answer(run, question, "release")
    assert (await lead_of(store).resume(run)).ok
    assert DONE == ["v1"]


async def test_a_signature_by_another_key_starts_nothing(store, forge):
    """It says ann, and is eve's."""
    run = await waiting(store)
    await forge(lead_of(store, key=EVE), run, "review-1", "approve")
    await held(store, run, says="is not signed by the key of ann")


async def test_an_approval_copied_from_another_run_starts_nothing(store, monkeypatch):
    """The same plan, the same person, the same key: it is of that run, and of no other."""
    first = await approved(store)
    [given] = [each for each in log_of(store, first) if isinstance(each, ev.ApprovalGiven)]
    run = await waiting(store)
    with monkeypatch.context() as patch:
        patch.setattr("leadhand.engine.run.refuse_unsigned", lambda *_: None)
        words = {"key": given.key, "signature": given.signature}
        patch.setattr("leadhand.app.approvals.words_with", lambda *_args, **_more: words)
        await lead_of(store).answer(run, "review-1", "approve")
    await held(store, run, says="is not signed by the key of ann")


async def test_one_of_two_starts_nothing(store):
    """The log says that the revision goes on, and one person has allowed it."""
    rules = (Rule(risk="high", then="two"),)
    run = await waiting(store, rules=rules)
    await lead_of(store, rules=rules).answer(run, "review-1", "approve")
    await lead_of(store, "bob", BOB, rules=rules).answer(run, "review-1", "approve")
    anchors = store.with_name(f"{store.name}.anchors")
    anchors.unlink()

    def forged(event):
        if isinstance(event, ev.ApprovalGiven) and event.actor == "bob":
            return ev.RunPaused("bob")
        if isinstance(event, ev.RevisionApproved):
            return msgspec.structs.replace(event, actor="ann")
        return event

    write(store, run, forged)
    await lead_of(store, rules=rules).send_command(run, "resume")
    await held(store, run, says="allowed by 1 of 2 people", rules=rules)


async def asked_anew(store, run, *, says, **more):
    """Nothing landed; once the step is released, the change itself is asked about again."""
    lead = lead_of(store, **more)
    outcome = await lead.resume(run)
    assert (DONE, outcome.status) == ([], "waiting")
    [hold] = [each for each in outcome.waiting_for if each.kind == "hold"]
    assert says in hold.text, hold.text
    await lead.answer(run, hold.id, "release")
    outcome = await lead.resume(run)
    [question] = outcome.waiting_for
    assert (DONE, question.kind, question.approved_by) == ([], "protected_change", [])
    return question.id


@pytest.mark.parametrize("key", [None, EVE])
async def test_a_forged_approval_of_a_change_lands_nothing(store, forge, key):
    """One without a signature, and one with another person's."""
    run = (await lead_of(store).run(CHANGES)).run
    await forge(lead_of(store, key=key), run, "q1", "approve", shown=COMMIT)
    says = "is not signed by the key of ann" if key else "is not signed"
    question = await asked_anew(store, run, says=f"ann's approval of change {COMMIT[:12]} {says}")
    await lead_of(store).answer(run, question, "approve", shown=COMMIT)
    assert (await lead_of(store).resume(run)).ok
    assert DONE == [COMMIT]
    first = [type(each) for each in log_of(store, run)].index(ev.ChangeApproved) + 1
    assert {each.seq for each in problems_of(store)} == {first}  # The forged one, and no other.


@pytest.mark.parametrize("approvers", [KEYS, {}])
async def test_a_change_whose_second_approval_was_taken_out_lands_nothing(store, approvers):
    """The log says that it goes on, and one person has approved it; with approvers or none."""
    more = {"rules": (Rule(effects=("protected_change",), then="two"),), "approvers": approvers}
    run = (await lead_of(store, **more).run(CHANGES)).run
    await lead_of(store, **more).answer(run, "q1", "approve", shown=COMMIT)
    await lead_of(store, "bob", BOB, **more).answer(run, "q1", "approve", shown=COMMIT)
    store.with_name(f"{store.name}.anchors").unlink()
    by_bob = lambda each: isinstance(each, ev.ChangeApproved) and each.actor == "bob"  # noqa: E731
    write(store, run, lambda each: ev.RunPaused("bob") if by_bob(each) else each)
    await lead_of(store, **more).send_command(run, "resume")
    await asked_anew(store, run, says="1 of 2 people approved the change", **more)


async def test_a_forged_first_approval_of_a_change_does_not_count(store, forge):
    """Bob's is forged and ann's is missing: both are asked for."""
    rules = (Rule(effects=("protected_change",), then="two"),)
    run = (await lead_of(store, rules=rules).run(CHANGES)).run
    await forge(lead_of(store, "bob", None, rules=rules), run, "q1", "approve", shown=COMMIT)
    question = await asked_anew(store, run, says="bob's approval", rules=rules)
    await lead_of(store, rules=rules).answer(run, question, "approve", shown=COMMIT)
    assert (await lead_of(store, rules=rules).resume(run)).status == "waiting"
    await lead_of(store, "bob", BOB, rules=rules).answer(run, question, "approve", shown=COMMIT)
    assert (await lead_of(store, rules=rules).resume(run)).ok
    assert DONE == [COMMIT]


async def test_an_approval_that_is_none_hides_no_other(store, forge):
    """Signatures are checked, or said not to be, also where a document cannot be read."""
    run = (await lead_of(store).run(CHANGES)).run
    await lead_of(store).pause(run)
    await forge(lead_of(store, key=EVE), run, "q1", "approve", shown=COMMIT)
    none = ev.ApprovalGiven(number=1, hash="h", actor="bob", binding="b", approval="x")

    def forged(event):
        if isinstance(event, ev.RunStarted):
            return msgspec.structs.replace(event, approvals=[{"id": "x"}])
        return none if isinstance(event, ev.RunPaused) else event

    write(store, run, forged)
    reader = Reader(store)
    found = invalid_entries(run, reader.store.read(run), KEYS, {}, set())
    reader.store.close_reader()
    assert any("ann's signature cannot be checked" in each.reason for each in found), found


def problems_of(store):
    reader = Reader(store)
    try:
        return verify_database(reader, store, Anchoring(), approvers=KEYS).problems
    finally:
        reader.store.close_reader()


def rewritten(event):
    """The plan with another version, and everything that is computed from it."""
    if isinstance(event, ev.RevisionProposed):
        add = [{**event.add[0], "parameters": {"version": "v9"}}]
        said = [add, event.cancel, event.final, *([event.drop] if event.drop else [])]
        rewritten.hash = digest(event.base, canonical(said))
        return msgspec.structs.replace(event, add=add, hash=rewritten.hash)
    if isinstance(event, ev.RunStarted):
        steps = [{**PLAN["steps"][0], "parameters": {"version": "v9"}}]
        return msgspec.structs.replace(event, linted=digest(canonical(steps)))
    if isinstance(event, ev.ReviewRequested | ev.ApprovalGiven | ev.RevisionApproved):
        return msgspec.structs.replace(event, hash=rewritten.hash)
    return event


@pytest.mark.parametrize("batches", [True, False])
async def test_a_log_that_was_written_anew_starts_nothing(store, batches):
    """The anchor outside the database says what was there; and so do the commits."""
    run = await approved(store)
    write(store, run, rewritten, batches=batches)
    with pytest.raises(StoreCorrupt, match="is not what was written") as told:
        await lead_of(store).resume(run)
    assert (DONE, str(told.value).count("\n")) == ([], 0)


async def test_a_plan_that_was_written_anew_starts_nothing_without_an_anchor_either(store):
    """Ann signed v1. The binding is computed again from the plan in the log."""
    run = await approved(store)
    store.with_name(f"{store.name}.anchors").unlink()
    write(store, run, rewritten)
    await held(store, run, says="ann allowed something else than revision 1")


async def test_a_later_anchor_does_not_hide_an_earlier_one(store):
    """Whoever changes the log and then has a command write an anchor is found all the same."""
    run = await approved(store)
    write(store, run, rewritten)
    await lead_of(store).pause(run)
    with pytest.raises(StoreCorrupt, match="anchors says"):
        await lead_of(store).resume(run)
    assert DONE == []


async def test_keys_that_were_put_into_the_log_are_not_those_of_the_settings(store):
    """All of it was written anew, with a key of eve's under ann's name."""
    eves = {"ann": f"ed25519:{EVE.public.text}"}
    run = await approved(store, key=EVE, approvers=eves)
    await held(store, run, says="another key than [approvers] has for ann")


async def test_a_run_from_before_there_were_approvers_needs_them_now(store):
    """It was allowed by a name; now names are signed."""
    run = await approved(store, approvers={}, key=None)
    question = await held(store, run, says="is not signed")
    await lead_of(store).answer(run, question, "release")
    assert (await lead_of(store).resume(run)).ok


async def test_a_forged_release_starts_nothing(store, forge):
    """The approval has ended, and eve writes that ann let it go."""
    run = await waiting(store)
    await lead_of(store).answer(run, "review-1", "approve", expires=0.01)
    first = await lead_of(store).resume(run)
    [question] = first.waiting_for
    await forge(lead_of(store, key=EVE), run, question.id, "release")
    await held(store, run, says="ann's release of q1 is not signed by the key of ann")


async def test_a_waiting_revision_counts_no_forged_approval(store, forge):
    """The first of two is forged, the second is real: both are asked anew."""
    rules = (Rule(risk="high", then="two"),)
    run = await waiting(store, rules=rules)
    await forge(lead_of(store, key=EVE, rules=rules), run, "review-1", "approve")
    outcome = await lead_of(store, rules=rules).resume(run)
    assert "is not signed by the key of ann" in outcome.waiting_for[0].text
    await lead_of(store, rules=rules).answer(run, "review-1", "approve")
    assert (await lead_of(store, rules=rules).resume(run)).status == "waiting"
    await lead_of(store, "bob", BOB, rules=rules).answer(run, "review-1", "approve")
    assert (await lead_of(store, rules=rules).resume(run)).ok


async def test_an_envelope_that_nobody_signed_covers_nothing(store, forge):
    """What it would let through later is asked about."""
    run = await waiting(store)
    await forge(lead_of(store, key=None), run, "review-1", "approve")
    await held(store, run, says="is not signed")
    lead = lead_of(store)
    async with lead.hosting() as host:
        assert host.load(run, lead.registry).state.permits.envelope == {}


async def test_a_restored_database_starts_nothing_again(store, tmp_path):
    """An older copy in the place of the newer one; its anchor knows better."""
    run = await approved(store)
    copy = tmp_path / "copy.db"
    shutil.copy(store, copy)
    assert (await lead_of(store).resume(run)).ok
    for name in (f"{store.name}-wal", f"{store.name}-shm"):
        store.with_name(name).unlink(missing_ok=True)
    shutil.copy(copy, store)
    with pytest.raises(LeadhandError, match="older copy"):
        await lead_of(store).resume(run)
    assert DONE == ["v1"]


def test_the_forgers_way_is_open_without_the_check(store, monkeypatch):
    """The tests above find something: without the check, the forged approval is carried out."""

    async def forged():
        run = await waiting(store)
        with monkeypatch.context() as patch:
            patch.setattr("leadhand.engine.run.refuse_unsigned", lambda *_: None)
            await lead_of(store, key=None).answer(run, "review-1", "approve")
        monkeypatch.setattr("leadhand.engine.run.invalid_entries", lambda *_: [])
        return await lead_of(store).resume(run)

    outcome = asyncio.run(forged())
    assert (outcome.ok, DONE) == (True, ["v1"])
    assert {each.rule for each in problems_of(store)} & {"I26", "signature"}
