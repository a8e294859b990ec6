"""Secrets in a running engine: handed to workers, kept out of all that is kept."""

import asyncio
import json
import sqlite3

import pytest

from leadhand import Lead, Propose, worker
from leadhand.engine import secrets
from leadhand.errors import UsageError
from leadhand.stores.body_form import expand
from tests.audit.canaries import carry

TOKEN = "hunter2-of-the-tests"


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("API_TOKEN", TOKEN)


def plan(*steps, **params):
    return {
        "goal": "g",
        "params": {"token": {"type": "secret", "env": "API_TOKEN"}, **params},
        "steps": [{"id": f"s{number}", **step} for number, step in enumerate(steps)],
    }


def given(kind="tell", value="${{ params.token }}"):
    return {"worker": kind, "parameters": {"t": value}}


def lead_of(tmp_path, **more):
    heard = []

    @worker
    async def tell(t: str) -> str:
        heard.append(t)
        return f"<{t}>"

    return Lead([tell], store=tmp_path / "a.db", **more), heard


def test_the_worker_gets_it_and_nobody_else(tmp_path):
    lead, heard = lead_of(tmp_path)
    steps = (given(), given(value="Bearer ${{ params.token }}"))
    uses = {"worker": "tell", "parameters": {"t": "${{ steps.s0.data }}"}}
    outcome = lead.run_sync(plan(*steps, uses))
    assert outcome.ok
    assert sorted(heard[:2]) == [f"Bearer {TOKEN}", TOKEN]
    assert heard[2] == "<[secret:token]>"
    assert TOKEN not in repr(outcome)
    for file in tmp_path.iterdir():
        assert TOKEN.encode() not in file.read_bytes()


def test_hashes_do_not_depend_on_the_value(tmp_path, monkeypatch):
    """Whoever has the log cannot try values against it."""
    found = []
    for number, value in enumerate(("first-value", "other-value")):
        monkeypatch.setenv("API_TOKEN", value)
        lead, _ = lead_of(tmp_path / str(number))
        lead.run_sync(plan(given()))
        connection = sqlite3.connect(tmp_path / str(number) / "a.db")
        rows = connection.execute("SELECT body FROM events")
        bodies = [json.loads(expand(body)) for (body,) in rows]
        found.append([body["exec"] for body in bodies if body["type"] == "AttemptStarted"])
        connection.close()
    assert found[0] == found[1]
    assert len(found[0][0]) == 64


@pytest.mark.parametrize("value", [None, "", "abc"])
def test_a_secret_that_is_not_there_or_too_short_stops_the_start(tmp_path, monkeypatch, value):
    monkeypatch.delenv("API_TOKEN")
    if value is not None:
        monkeypatch.setenv("API_TOKEN", value)
    lead, heard = lead_of(tmp_path)
    with pytest.raises(UsageError, match="token"):
        lead.run_sync(plan(given()))
    assert not heard


def test_a_plan_that_holds_the_value_is_refused(tmp_path):
    lead, _ = lead_of(tmp_path)
    for doc in (
        plan(given(), given(value=f"x {TOKEN}")),
        {**plan(given()), "goal": TOKEN},
        plan(given(), other=TOKEN),
    ):
        with pytest.raises(UsageError, match=r"\[secret:token\]") as caught:
            lead.run_sync(doc)
        assert TOKEN not in str(caught.value)
    assert TOKEN.encode() not in (tmp_path / "a.db").read_bytes()


def test_a_variable_gone_at_resume_fails_the_step(tmp_path, monkeypatch):
    lead, heard = lead_of(tmp_path)
    doc = plan({**given(), "failure_action": "abort"})
    outcome = lead.run_sync({**doc, "risk_level": "high"})
    assert outcome.status == "waiting"
    monkeypatch.delenv("API_TOKEN")
    outcome = lead.resume_sync(outcome.run, approve=True)
    assert outcome.status == "failed"
    assert "env:API_TOKEN is not there" in outcome.steps["s0"].error.message
    assert not heard


def test_what_a_planner_says_is_cleaned(tmp_path, monkeypatch):
    """A worker's own variable, in a plan that a planner writes."""
    monkeypatch.setenv("OF_WORKER", TOKEN + "-2")

    @worker(secrets="OF_WORKER")
    async def tell(t: str) -> str:
        return t

    def next_step(view):
        from leadhand import Finish

        if view.completed:
            return Finish(result=f"{TOKEN}-2")
        step = {"id": "a", "worker": "tell", "parameters": {"t": f"{TOKEN}-2"}}
        return Propose(steps=(step,), because=f"{TOKEN}-2")

    lead = Lead([tell], next_step, tmp_path / "a.db")
    from leadhand import Goal

    outcome = lead.run_sync(Goal(text="g"))
    assert outcome.result == "[secret:OF_WORKER]"
    assert TOKEN.encode() not in (tmp_path / "a.db").read_bytes()


def test_runs_without_secrets_pay_nothing(tmp_path):
    lead, _ = lead_of(tmp_path)

    async def begin():
        async with lead.hosting() as host:
            run = await lead.begin(host, {"goal": "g", "steps": [{"id": "a", **given(value="x")}]})
            assert run.secrets is None
            await run.wait_idle()

    import asyncio

    asyncio.run(begin())


def test_a_keyring_is_asked_only_when_named(monkeypatch):
    import sys
    import types

    ring = types.SimpleNamespace(get_password=lambda service, user: f"{service}-{user}-value")
    monkeypatch.setitem(sys.modules, "keyring", ring)
    assert secrets.read_source("keyring:shop/me") == "shop-me-value"
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(UsageError, match="pip install keyring"):
        secrets.read_source("keyring:shop/me")


@pytest.mark.real
def test_no_canary_is_found_anywhere():
    """A slice of `make audit`."""
    leaked, files, _ = carry(40, seed=7)
    assert leaked == []
    assert files >= 10


@pytest.mark.real
def test_the_search_for_canaries_has_teeth(monkeypatch):
    class Blind(secrets.Redactor):
        def __init__(self, values):
            super().__init__({})

    monkeypatch.setattr(secrets, "Redactor", Blind)
    monkeypatch.setattr("tests.audit.canaries.export", lambda *_: None)
    leaked, _, _ = carry(20)
    assert len({value for _, value in leaked}) >= 20


def test_what_people_say_of_a_run_without_a_host_is_cleaned(tmp_path, monkeypatch):
    """Also of the secrets that its workers declare, which only the workers know."""
    monkeypatch.setenv("HEADER_TOKEN", "a-header-of-some-length")

    @worker(risk="high", effects=[], secrets=["HEADER_TOKEN"])
    def call() -> None:
        """Reads the variable itself."""

    lead = Lead([call], store=tmp_path / "runs.db", actor="ann")
    lead.run_sync({"steps": [{"id": "a", "worker": "call"}]}, run_id="r")
    asyncio.run(lead.pause("r", "it is a-header-of-some-length"))
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"[secret:HEADER_TOKEN]" in data for data in files)
    assert not any(b"a-header-of-some-length" in data for data in files)
