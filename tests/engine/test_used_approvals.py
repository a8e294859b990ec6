"""An approval of a plan is good for one run: in a second database and in an older copy too."""

import shutil
import time

import msgspec
import pytest

from leadhand import Lead, Policy, worker
from leadhand.app.used_approvals import UsedApprovals, used_file
from leadhand.core.review import approval as approvals
from leadhand.errors import Conflict, UsageError
from leadhand.settings import load_settings

DONE = []
PLAN = {"goal": "Ship", "steps": [{"id": "ship", "worker": "ship"}]}


@worker(risk="high")
async def ship() -> str:
    DONE.append("ship")
    return "shipped"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    DONE.clear()


def lead_of(store, actor="ann", **policy):
    return Lead([ship], store=store, actor=actor, policy=Policy(**policy))


def test_an_approval_is_good_for_one_database(tmp_path):
    """The second is told which run has used it."""
    given = lead_of(tmp_path / "one.db").approve(PLAN)
    first = lead_of(tmp_path / "one.db").run_sync(PLAN, approval=given)
    with pytest.raises(Conflict, match=f"used by run {first.run} of another database"):
        lead_of(tmp_path / "two.db").run_sync(PLAN, approval=given)
    assert (first.ok, DONE) == (True, ["ship"])
    assert used_file().stat().st_mode & 0o777 == 0o600


def test_a_restored_database_has_forgotten_and_the_account_has_not(tmp_path):
    """The copy is older than the use, and its anchors were moved away with it."""
    store = tmp_path / "one.db"
    lead_of(store).run_sync({"goal": "Warm up", "steps": [{"id": "a", "worker": "ship"}]})
    copy = tmp_path / "copies" / "one.db"
    copy.parent.mkdir()
    shutil.copy(store, copy)
    given = lead_of(store).approve(PLAN)
    lead_of(store).run_sync(PLAN, approval=given)
    with pytest.raises(Conflict, match="newer copy of this one"):
        lead_of(copy).run_sync(PLAN, approval=given)
    assert DONE == ["ship"]


def test_the_same_run_may_claim_it_again(tmp_path):
    """A start that was cut off is tried again under the same name; half a line is none."""
    given = lead_of(tmp_path / "one.db").approve(PLAN)
    uses = UsedApprovals("db", tmp_path / "used")
    uses.claim(given, "r1")
    with (tmp_path / "used").open("ab") as file:
        file.write(b'{"approval":"ha')
    uses.claim(given, "r1")
    with pytest.raises(Conflict, match="is good for one"):
        uses.claim(given, "r2")
    other = msgspec.structs.replace(given, id="another")
    uses.claim(other, "r2")
    with pytest.raises(Conflict, match="used by run r2"):
        uses.claim(other, "r3")


def test_an_ended_approval_stays_ended_when_the_clock_goes_back(tmp_path, monkeypatch):
    """The database holds later times than the clock shows."""
    store = tmp_path / "one.db"
    given = lead_of(store).approve(PLAN, expires="1h")
    real = approvals.refuse_void
    seen = []
    monkeypatch.setattr(
        "leadhand.engine.approvals.refuse_void",
        lambda approval, plan, started, now: seen.append(now) or real(approval, plan, started, now),
    )
    hour = 3600 * 10**9
    now = time.time_ns()
    monkeypatch.setattr("time.time_ns", lambda: now + 2 * hour)
    lead_of(store).run_sync({"goal": "Later", "steps": [{"id": "a", "worker": "ship"}]})
    monkeypatch.setattr("time.time_ns", lambda: now)
    with pytest.raises(Conflict, match="the approval by ann has expired"):
        lead_of(store).run_sync(PLAN, approval=given)
    assert (DONE, seen[-1] > (now + hour) // 1000) == ([], True)


@pytest.mark.parametrize("other", ["Ann", "\uff41\uff4e\uff4e", "\u0430nn"])
def test_two_approvals_by_one_person_are_one(tmp_path, other):
    """Whatever the spelling."""
    given = [lead_of(tmp_path / "a.db", name).approve(PLAN) for name in ("ann", other)]
    with pytest.raises(UsageError, match="one person's"):
        lead_of(tmp_path / "a.db").run_sync(PLAN, approval=given)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[approvers]\nann = "{k}"\nAnn = "{k}"', "could take for one another"),
        ('[approvers]\nann = "{k}"\n"\\u0430nn" = "{k}"', "could take for one another"),
        ('[approvers]\n" ann" = "{k}"', "begins or ends with a space"),
        ('[project]\nactor = "ann "', "begins or ends with a space"),
        ('[project]\nactor = "ann\\u200b"', "cannot be seen"),
    ],
)
def test_names_that_could_be_confused_are_refused_in_settings(tmp_path, text, says):
    """At the door, with the place."""
    key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    (tmp_path / "leadhand.toml").write_text(text.replace("{k}", key))
    with pytest.raises(UsageError, match=says):
        load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)
