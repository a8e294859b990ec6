"""Questions of a tool during its call: a person answers them, and nobody else."""

import json

import pytest

from leadhand import Lead, McpServer
from leadhand.stores.memory import MemoryStore
from tests.support.attempts import FakeContext, task
from tests.support.mcp_trial import noted, served

pytestmark = pytest.mark.real
STEP = {"id": "order", "worker": "trial.order", "parameters": {}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for all tests here: its address, and the log it keeps."""
    log = tmp_path_factory.mktemp("asking") / "log"
    with served("--log", str(log)) as (_, port):
        yield f"http://127.0.0.1:{port}/mcp", log


@pytest.fixture
async def asking(shared):
    """The server, and its log of this test."""
    url, log = shared
    made = McpServer(name="trial", url=url)
    await made.load()
    log.write_text("")
    yield made, log
    await made.close()


def asked_of(outcome):
    """The one question that a run waits with."""
    assert outcome.status == "waiting", outcome.reason
    (row,) = outcome.waiting_for
    return row


async def test_a_person_answers_each_question_once(asking):
    """Two questions, each answered once, in words and as data; the state goes back as it came."""
    server, log = asking
    lead = Lead([server.tool("order")], store=MemoryStore())
    async with lead.hosting():
        outcome = await lead.run({"goal": "order", "steps": [STEP]})
        row = asked_of(outcome)
        assert "trial: the tool order wants: Which size? Give size (integer)." in row.text
        await lead.answer(outcome.run, row.id, "retry", text="3")
        outcome = await lead.resume(outcome.run)
        row = asked_of(outcome)
        assert "Which gift? Give gift (boolean: Wrap it?)." in row.text
        await lead.answer(outcome.run, row.id, "retry", data={"gift": False})
        outcome = await lead.resume(outcome.run)
    assert (outcome.status, outcome.result) == ("succeeded", "ordered size 3, gift: False")
    last = [(each["state"], each["given"]) for each in noted(log) if each.get("tool")][-4:]
    assert last == [
        (None, {}),
        ('{"put off": true}', {}),
        ('{"asked": "size"}', {"q": {"size": 3}}),
        (json.dumps({"asked": "gift", "size": 3}), {"q": {"gift": False}}),
    ]


async def test_an_answer_that_does_not_fit_is_asked_for_again(asking):
    server, log = asking
    lead = Lead([server.tool("order")], store=MemoryStore())
    async with lead.hosting():
        outcome = await lead.run({"goal": "order", "steps": [STEP]})
        row = asked_of(outcome)
        for text in ("many", "12", '{"colour": 1}'):
            await lead.answer(outcome.run, row.id, "retry", text=text)
            outcome = await lead.resume(outcome.run)
            row = asked_of(outcome)
            assert "The last answer does not fit: " in row.text
        await lead.answer(outcome.run, row.id, "retry", data={"size": 2})
        outcome = await lead.resume(outcome.run)
        assert "Which gift?" in asked_of(outcome).text
    assert [each["given"] for each in noted(log) if each.get("given")] == [{"q": {"size": 2}}]


async def test_an_answer_to_another_question_is_not_sent(asking):
    """Nor is a comment, nor what a person said before another tool asked."""
    server, log = asking
    others = [
        {"question": "Step order failed: x. Choose how to continue.", "choice": "retry"},
        {"question": "s asks: trial: the tool pay wants: Which size? Give size (integer). A"},
    ]
    said = FakeContext(answers=tuple({"choice": "retry", "text": "3", **each} for each in others))
    report = await server.tool("order").perform(task(), said)
    assert (report.error.failure_class, report.error.effect) == ("needs_info", "none")
    assert all(not each["given"] for each in noted(log) if each.get("tool"))


async def test_what_is_no_question_to_a_person_is_refused(asking):
    server, _ = asking
    report = await server.tool("sample").perform(task(), FakeContext())
    assert report.error.failure_class == "unavailable"
    assert "asks for roots/list, which is not offered" in report.error.message
