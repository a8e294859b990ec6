"""What reviewers and approvers are shown, and what every surface shows afterwards: the same."""

import asyncio
import io
import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from leadhand import Goal, Lead, Propose, Report, worker
from leadhand.app.documents import Driver, shown_document
from leadhand.app.export import export_run
from leadhand.app.reader import reading
from leadhand.audit.anchors import Anchoring
from leadhand.cli.group import execute
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from leadhand.core.plan.references import Artifact, Secret, resolve_known
from leadhand.core.review.approval import approvals_in_log, digests
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.run import run_outcome
from leadhand.errors import Conflict, UsageError


@worker(name="ship", effects=["cluster"], gives="shipped")
async def ship(version: str = "", token: str = "", image: Any = None) -> str:
    """Ship it."""
    return f"{version} is live"


@worker(name="build")
async def build() -> Report:
    """Build it."""
    return Report(data={"image": "shop:1"}, recommendations=("delete old images",))


def plan(**parameters: Any) -> dict[str, Any]:
    return {
        "params": {"version": {"type": "string"}},
        "steps": [
            {"id": "build", "worker": "build"},
            {"id": "ship", "worker": "ship", "parameters": parameters},
        ],
    }


def lead_in(folder: Path, **more: Any) -> Lead:
    return Lead([ship, build], store=str(folder / "s.db"), **more)


# --- reviewers -----------------------------------------------------------------------------


def test_a_reviewer_sees_values_and_not_templates(tmp_path: Path) -> None:
    """The "no v13" rule that once let v13 through."""
    seen: list[Any] = []

    def no_v13(revision: dict[str, Any]) -> str | None:
        seen.append(revision)
        return "no v13" if revision["steps"][1]["parameters"]["version"] == "v13" else None

    lead = lead_in(tmp_path, reviewers=[no_v13])
    doc = plan(version="${{ params.version }}", image="${{ steps.build.data.image }}")
    outcome = lead.run_sync(doc, params={"version": "v13"})
    assert outcome.status == "waiting"
    assert "no v13" in outcome.waiting_for[0].text
    (given,) = seen
    assert given["steps"][1]["parameters"]["image"] == "${{ steps.build.data.image }}"
    assert given["unresolved"] == {"ship": ["parameters.image"]}
    assert given["templates"] == doc["steps"]
    assert given["params"] == {"version": "v13"}
    assert lead.run_sync(doc, params={"version": "v12"}).status == "succeeded"


def test_a_reviewer_sees_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is marked, in the steps and in the parameters."""
    monkeypatch.setenv("SHIP_TOKEN", "sesame-open-up")
    seen: list[Any] = []
    lead = lead_in(tmp_path, reviewers={"look": seen.append})
    doc = plan(token="key ${{ params.token }}")
    doc["params"] = {"token": {"type": "secret", "env": "SHIP_TOKEN"}}
    lead.run_sync(doc)
    assert seen[0]["steps"][1]["parameters"] == {"token": "key [secret:token]"}
    assert seen[0]["params"] == {"token": "[secret:token]"}
    assert "sesame" not in json.dumps(seen)


def test_what_is_known_is_put_in_and_the_rest_is_marked() -> None:
    """Whole references keep their type; a large result and what fails stay as written."""
    known = {"n": 3, "list": [1], "s": Secret("s", "env:S"), "big": Artifact("sha256:x")}

    def lookup(ref: Any) -> Any:
        return known[ref.name]

    value = {
        "whole": "${{ params.n }}",
        "text": "n is ${{ params.n }} of ${{ params.gone }}",
        "list": ["${{ params.list[0] }}", "${{ params.list[9] }}"],
        "secret": "${{ params.s }}",
        "big": "${{ params.big }}",
        "literal": "$${{ params.n }}",
        "plain": 7,
    }
    found = resolve_known(value, lookup, "parameters")
    assert found.value == {
        "whole": 3,
        "text": "n is 3 of ${{ params.gone }}",
        "list": [1, "${{ params.list[9] }}"],
        "secret": "[secret:s]",
        "big": "${{ params.big }}",
        "literal": "${{ params.n }}",
        "plain": 7,
    }
    assert found.later == ["parameters.text", "parameters.list[1]", "parameters.big"]
    assert found.resolved["parameters.whole"] == 3
    assert "parameters.big" not in found.resolved


def test_people_see_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In the document, and on the terminal, of a run and of a plan that does not run yet."""
    lead = lead_in(tmp_path, reviewers={"all": lambda _revision: "look at it"})
    doc = plan(version="${{ params.version }}", image="${{ steps.build.data.image }}")
    run = lead.run_sync(doc, params={"version": "1.10"}).run
    shown = asyncio.run(lead.review(run))
    assert shown.resolved == {"ship": {"parameters.version": "1.10"}}
    assert shown.unresolved == {"ship": ["parameters.image"]}
    assert execute(["review", run, "--store", str(tmp_path / "s.db")]) == 0
    text = capfd.readouterr().out
    assert '  = parameters.version: "1.10"\n' in text
    assert "  ? parameters.image: known only when the step starts\n" in text


# --- request_changes -----------------------------------------------------------------------


def _waiting(lead: Lead, what: Any) -> tuple[str, list[str]]:
    outcome = lead.run_sync(what)
    assert outcome.status == "waiting", outcome
    return outcome.run, outcome.waiting_for[0].answers


def test_changes_are_asked_for_only_where_a_planner_reads_words(tmp_path: Path) -> None:
    """Not of a document, nor of the goal planner, which would propose the same again."""
    found = {"all": lambda _revision: "look at it"}
    goal = Goal(text="Ship", want=["shipped"])
    given = lead_in(tmp_path, reviewers=found)
    for what in ({**plan(version="v1"), "params": {}}, goal):
        run, choices = _waiting(given, what)
        assert choices == ["approve", "reject"]
        assert [each.answer for each in asyncio.run(given.review(run)).choices] == choices
        with pytest.raises(UsageError, match="request_changes"):
            asyncio.run(given.answer(run, "review-1", "request_changes", text="smaller"))

    def words(_view: Any) -> Propose:
        return Propose(({"id": "a", "worker": "build"},), final=True)

    scripted = lead_in(tmp_path, planner=words, reviewers=found)
    run, choices = _waiting(scripted, Goal(text="Ship"))
    assert choices == ["approve", "reject", "request_changes"]


def test_the_log_checker_refuses_words_to_a_planner_that_reads_none(tmp_path: Path) -> None:
    """The independent rule over the log."""
    lead = lead_in(tmp_path, reviewers={"all": lambda _revision: "look at it"})
    run, _choices = _waiting(lead, Goal(text="Ship", want=["shipped"]))
    with reading(tmp_path / "s.db") as reader:
        log = [(entry.at, event) for entry, event in reader.events(run)]
    proposed = next(event for _, event in log if isinstance(event, ev.RevisionProposed))
    bad = ev.ChangesRequested(proposed.number, proposed.hash, "ann", "smaller")
    assert not check(log)
    assert any("reads no words" in str(each) for each in check([*log, (log[-1][0], bad)]))


def test_what_was_typed_is_told_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An answer that is refused does not swallow its text."""
    lead = lead_in(tmp_path, reviewers={"all": lambda _revision: "look at it"})
    run, _choices = _waiting(lead, {**plan(version="v1"), "params": {}})
    at = ("--store", str(tmp_path / "s.db"))
    assert execute(["review", run, "request_changes", "--text", "less of it", *at]) == 2
    said = capfd.readouterr().err
    assert "you wrote: less of it" in said
    assert "amend it" in said


# --- one digest ----------------------------------------------------------------------------


def _approved(folder: Path, **more: Any) -> tuple[Lead, str, str]:
    """A run that a person allowed, and the digest that they were shown."""
    lead = lead_in(folder, reviewers={"all": lambda _revision: "look at it"}, actor="ann")
    run = lead.run_sync({**plan(version="v1"), "params": {}, **more}).run
    shown = asyncio.run(lead.review(run)).digest
    said = {"shown": shown, "expires": "8 hours", "text": "tested"}
    asyncio.run(lead.answer(run, "review-1", "approve", **said))
    assert lead.resume_sync(run).status == "succeeded"
    return lead, run, shown


def test_one_digest_on_every_surface(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the approver saw: in rows, show, log and export; with who, when, why, until when."""
    _lead, run, shown = _approved(tmp_path)
    store = tmp_path / "s.db"
    with reading(store) as reader:
        log = [(entry.at, event) for entry, event in reader.events(run)]
    (row,) = (each for each in approvals_in_log(log) if each.by == "ann")
    assert (row.digest, row.by, row.why, row.signed) == (shown, "ann", "tested", False)
    at, until = (datetime.fromisoformat(each or "") for each in (row.at, row.until))
    assert at.tzinfo is not None
    assert 7.9 * 3600 < (until - at).total_seconds() < 8.1 * 3600
    recorded = next(event for _, event in log if isinstance(event, ev.ApprovalGiven))
    assert recorded.digest == shown != recorded.binding, "the binding also covers its end"
    assert set(digests(log).values()) == {shown}
    assert execute(["show", run, "--store", str(store)]) == 0
    assert shown in capfd.readouterr().out
    assert execute(["logs", run, "--store", str(store)]) == 0
    line = next(each for each in capfd.readouterr().out.splitlines() if "by ann → revision" in each)
    assert shown in line
    assert "not signed" in line
    assert execute(["show", run, "--json", "--store", str(store)]) == 0
    assert json.loads(capfd.readouterr().out)["approvals"] == [to_builtins(row)]
    files = zipfile.ZipFile(io.BytesIO(export_run(store, run, Anchoring())))
    approvals = json.loads(files.read("approvals.json"))
    assert approvals["approvals"] == [to_builtins(row)]
    assert all(datetime.fromisoformat(each["at"]).tzinfo for each in approvals["events"])
    assert json.loads(files.read("plan/revision-1.json"))["digest"] == shown
    page = files.read("index.html").decode()
    assert page.count(f'title="{shown}"') >= 3
    assert execute(["verify", run, "--store", str(store)]) == 0


def test_a_plan_approved_before_the_run_keeps_its_digest(tmp_path: Path) -> None:
    """The digest of `review PLAN`, and not one of the run that nobody was shown."""
    lead = lead_in(tmp_path, actor="ann")
    doc = {**plan(version="v1"), "params": {}}
    endless = lead.approve(doc)
    approval = lead.approve(doc, expires="8 hours")
    outcome = lead.run_sync(doc, approval=approval)
    assert outcome.status == "succeeded"
    with reading(tmp_path / "s.db") as reader:
        log = [(entry.at, event) for entry, event in reader.events(outcome.run)]
    (row,) = approvals_in_log(log)
    assert row.digest == endless.binding, "what is shown has no end yet"
    assert execute(["verify", outcome.run, "--store", str(tmp_path / "s.db")]) == 0


def test_a_digest_that_was_not_shown_is_found(tmp_path: Path) -> None:
    """The checker computes it again from the log."""
    _lead, run, _shown = _approved(tmp_path)
    with reading(tmp_path / "s.db") as reader:
        log = [(entry.at, event) for entry, event in reader.events(run)]
    assert not check(log)
    forged = [
        (at, replace(event, digest="0" * 64) if isinstance(event, ev.ApprovalGiven) else event)
        for at, event in log
    ]
    assert any("was shown something else" in str(each) for each in check(forged))


# --- what the export says ------------------------------------------------------------------


def _page(folder: Path, run: str) -> tuple[str, Any]:
    files = zipfile.ZipFile(io.BytesIO(export_run(folder / "s.db", run, Anchoring())))
    return files.read("index.html").decode(), files


def test_the_export_says_what_was_checked(tmp_path: Path) -> None:
    """And no more than that."""
    lead = lead_in(tmp_path)
    doc = {**plan(version="v1"), "params": {}}
    doc["steps"][0]["success_criteria"] = "data.image == 'shop:1'"
    run = lead.run_sync(doc).run
    page, files = _page(tmp_path, run)
    assert "Every result was checked" not in page
    assert "1 of 2 steps that succeeded had success criteria, which were checked" in page
    assert "The goal has no acceptance criteria" in page
    assert "Recommendation" in page
    assert "delete old images" in page
    readme = files.read("README.txt").decode()
    assert "Python package" in readme
    assert "Without signature.json" in readme
    checked = {**doc, "goal": {"text": "g", "acceptance": ["steps.build.status == 'succeeded'"]}}
    page, _files = _page(tmp_path, lead.run_sync(checked).run)
    assert "acceptance criteria were checked" in page


def test_recommendations_of_successes_are_seen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In show, its document, and the ledger."""
    lead = lead_in(tmp_path)
    run = lead.run_sync({**plan(version="v1"), "params": {}}).run
    at = ("--store", str(tmp_path / "s.db"))
    assert execute(["show", run, *at]) == 0
    assert "build recommends: delete old images" in capfd.readouterr().out
    assert execute(["logs", run, *at]) == 0
    assert "it recommends: delete old images" in capfd.readouterr().out
    assert execute(["show", run, "--json", *at]) == 0
    rows = json.loads(capfd.readouterr().out)["steps"]
    assert rows[0]["recommendations"] == ["delete old images"]


def test_waiting_is_no_overrun(tmp_path: Path) -> None:
    """A run that waited for an approval worked for as long as its workers did."""
    lead = lead_in(tmp_path, reviewers={"all": lambda _revision: "look at it"})
    run = lead.run_sync({**plan(version="v1"), "params": {}, "estimated_duration": "1s"}).run
    hour = 3_600_000_000
    state, after = State(), 0
    asyncio.run(lead.answer(run, "review-1", "approve"))
    lead.resume_sync(run)
    with reading(tmp_path / "s.db") as reader:
        log = [(entry.at, event) for entry, event in reader.events(run)]
    for at, event in log:
        after += hour if isinstance(event, ev.ApprovalGiven) else 0
        evolve(state, event, at + after)
    doc = run_outcome(state)
    assert doc.duration > 3600
    assert doc.worked < 3600
    assert doc.waited >= 3600
    assert doc.worked + doc.waited == pytest.approx(doc.duration, abs=0.01)


def test_times_on_documents_are_iso(tmp_path: Path) -> None:
    """`since` in Python is what it is in the API and in `--json`."""
    lead = lead_in(tmp_path, reviewers={"all": lambda _revision: "look at it"})
    outcome = lead.run_sync({**plan(version="v1"), "params": {}})
    since = outcome.waiting_for[0].since
    assert datetime.fromisoformat(since).tzinfo is not None
    with reading(tmp_path / "s.db") as reader:
        told = shown_document(reader, reader.state(outcome.run), Driver())
    assert told.waiting_for
    assert told.waiting_for[0].since == since
    with pytest.raises(Conflict, match=r"nothing|not the one that was shown"):
        asyncio.run(lead.answer(outcome.run, "review-1", "approve", shown="0" * 64))
