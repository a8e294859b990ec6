"""A protected change on a terminal: its diff, and an approval that names the commit."""

import asyncio

import pytest

from leadhand import Context, Failure, Lead, Report, worker
from tests.acceptance.test_cli_terminal import plain, typed
from tests.support.cli import WORKERS
from tests.support.protected import COMMIT, STEP, WORKER

pytestmark = pytest.mark.real


FILES = {
    "workers.py": WORKERS + WORKER,
    "leadhand.toml": "[project]\nworkers = ['workers.py']\nactor = 'ann'\n",
}


@pytest.fixture
def folder(folder):
    folder.plan(STEP)
    return folder


def waiting(folder):
    begun = folder.run("run", "plan.json")
    (row,) = folder.run("inbox", "--json").doc
    return begun, row


def test_inbox_show_and_answer_show_the_diff_and_want_the_commit(folder):
    begun, row = waiting(folder)
    shown = folder.run("show", row["run"])
    for seen in (begun, folder.run("inbox"), shown):
        text = seen.out + seen.err
        assert "+replicas: 0" in text
        assert f"approve --commit {COMMIT[:12]}" in text
        assert " retry" not in text
    assert (row["kind"], row["commit"]) == ("protected_change", COMMIT)
    blind = folder.run("answer", row["id"], "approve")
    assert (blind.code, "--commit" in blind.err) == (2, True)
    assert folder.run("answer", row["id"], "retry").code == 2
    assert folder.run("answer", row["id"], "send_back").code == 2
    wrong = folder.run("answer", row["id"], "approve", "--commit", "e" * 40)
    assert wrong.code not in (0, 2), wrong.err
    done = folder.run("answer", row["id"], "approve", "--commit", COMMIT)
    assert done.code == 0, done.err
    assert folder.run("resume", row["run"]).code == 0
    ledger = folder.run("logs", row["run"])
    assert f"change {COMMIT[:12]} approved by ann" in ledger.out + ledger.err
    assert folder.run("verify", "--all").code == 0


def test_a_terminal_shows_it_whole_and_asks_once_more(folder):
    _begun, row = waiting(folder)
    said = typed(folder, "answer", row["id"], keys="approve\ny\n")
    text = plain(said.out)
    assert "+replicas: 0" in text
    assert f"Approve exactly commit {COMMIT[:12]}?" in text
    assert "answered" in text
    assert folder.run("resume", row["run"]).code == 0


def test_the_same_in_python(tmp_path):
    @worker(name="scale", idempotent=True)
    async def scale(context: Context) -> object:
        if context.answers:
            return context.answers[-1]["commit"]
        change = {"commit": COMMIT, "base": "b", "digest": "d", "paths": ["x"], "diff": "+x"}
        return Report("failed", error=Failure("policy", "It passes.", change=change))

    async def main():
        lead = Lead(workers=[scale], store=tmp_path / "x.db", actor="ann")
        first = await lead.run({"goal": "g", "steps": [STEP]})
        (row,) = first.waiting_for
        assert (row.kind, row.diff) == ("protected_change", "+x")
        await lead.answer(first.run, row.id, "approve", shown=row.commit)
        return await lead.resume(first.run)

    assert asyncio.run(main()).result == COMMIT
