"""Answers from Slack: through the socket and the signed endpoint, by the person and nobody else."""

import asyncio
import json
import time
from types import SimpleNamespace
from urllib.parse import urlencode

import httpx2
import pytest

from leadhand.core import events as ev
from leadhand.server.messages import plan_lines
from leadhand.server.slack import SlackAnswers, slack_signature
from leadhand.settings.notify import SlackTable
from tests.server.test_api import SAY, begin, log_of
from tests.server.test_links import BROKEN, DANGER, SETTINGS, link_project, waits
from tests.support.services import slack_service
from tests.support.serving import ended, served

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
USERS = {"approver": "U0APPROVER", "second": "U0SECOND", "operator": "U0OPERATOR"}


@pytest.fixture
def slack(monkeypatch):
    monkeypatch.setenv("BOT", "xoxb-1")
    monkeypatch.setenv("APP", "xapp-1")
    monkeypatch.setenv("SIGNING", SECRET)
    with slack_service() as found:
        yield found


def slack_project(folder, slack, way):
    table = f'[notify.slack]\ntoken = "env:BOT"\napi = "{slack.http.url}/api"\n{way}\n'
    link_project(folder, f"{SETTINGS}\n{table}")
    text = (folder / "leadhand.toml").read_text()
    for name, user in USERS.items():
        text = text.replace(f'email = "{name}@example.com"', f'slack = "{user}"')
    (folder / "leadhand.toml").write_text(text)


def wait(condition, limit_s=60.0):
    until = time.monotonic() + limit_s
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    assert found
    return found


def messages_of(slack, run, count):
    """The messages about a run once there are so many, by the person they went to."""

    def found():
        about = [each for each in slack.posted() if f"Run: {run}" in json.dumps(each)]
        return about if len(about) == count else None

    return {each["channel"]: each for each in wait(found)}


def replies(slack, count):
    return wait(lambda: len(slack.posted("/response")) == count and slack.posted("/response"))


def test_buttons_answer_through_the_socket(tmp_path, slack):
    slack_project(tmp_path, slack, 'app_token = "env:APP"')
    with served(tmp_path) as server:
        wait(lambda: slack.connections == 1)
        run = waits(server, SAY, DANGER)
        sent = messages_of(slack, run, 2)
        assert set(sent) == {"U0APPROVER", "U0SECOND"}
        mine = sent["U0APPROVER"]

        def press(number, choice, user, team="T1", message=mine):
            payload = slack.press(message, choice, user, team)
            slack.send(envelope_id=f"e{number}", type="interactive", payload=payload)
            assert f"e{number}" in wait(
                lambda: slack.acknowledged[number - 1 :] and slack.acknowledged
            )
            return replies(slack, number)[-1]

        other = press(1, "approve", "U0SECOND")
        assert ("for another person" in other["text"], other["replace_original"]) == (True, False)
        foreign = press(2, "approve", "U0APPROVER", "T2")
        assert "another workspace" in foreign["text"]
        altered = json.loads(json.dumps(mine).replace("leadhand:reject", "leadhand:delete"))
        assert "not one of" in press(3, "delete", "U0APPROVER", message=altered)["text"]
        assert not [each for each in log_of(server, run) if isinstance(each, ev.LinkUsed)]
        done = press(4, "approve", "U0APPROVER")
        assert (done["replace_original"], "for approver: Approve" in done["text"]) == (True, True)
        assert "was used" in press(5, "approve", "U0APPROVER")["text"]
        slack.send(type="disconnect", reason="refresh_requested")
        wait(lambda: slack.connections == 2)
        slack.send(envelope_id="e6", type="interactive", payload={"type": "view_submission"})
        slack.send(envelope_id="e7", type="events_api", payload={})
        slack.send(
            envelope_id="e8",
            type="interactive",
            payload=slack.press(sent["U0SECOND"], "approve", "U0SECOND"),
        )
        replies(slack, 6)
        with server.client() as client:
            assert ended(client, run)["status"] == "succeeded"
        used = [each for each in log_of(server, run) if isinstance(each, ev.LinkUsed)]
        assert [(each.actor, each.channel) for each in used] == [
            ("approver", "slack"),
            ("second", "slack"),
        ]
        assert wait(lambda: len(slack.acknowledged) == 8)


def test_buttons_answer_through_the_signed_endpoint(tmp_path, slack):
    slack_project(tmp_path, slack, 'signing_secret = "env:SIGNING"')
    with served(tmp_path) as server, httpx2.Client(base_url=server.url) as web:
        run = waits(server, BROKEN)
        message = messages_of(slack, run, 3)["U0OPERATOR"]
        labels = [each["text"]["text"] for each in message["blocks"][-1]["elements"]]
        assert {"Retry", "Skip", "Abort", "Read and decide"} <= set(labels)
        payload = slack.press(message, "skip", "U0OPERATOR")
        body = urlencode({"payload": json.dumps(payload)}).encode()

        def ask(*, at=0, secret=SECRET, content=body, signed=None, **more):
            stamp = str(int(time.time()) + at)
            headers = {
                "Content-Type": "application/x-www-form-urlencoded",
                "X-Slack-Request-Timestamp": stamp,
                "X-Slack-Signature": slack_signature(secret, stamp, signed or content),
            }
            return web.post("/api/v1/slack", content=content, headers=headers | more)

        forged = body.replace(b"skip", b"abort")
        for refused in (
            ask(secret="another secret"),
            ask(at=-301),
            ask(at=600),  # far ahead: a busy machine looks at it seconds later
            ask(**{"X-Slack-Signature": "v0=" + "0" * 64}),
            ask(**{"X-Slack-Signature": ""}),
            ask(**{"X-Slack-Request-Timestamp": "now"}),
            ask(content=forged, signed=body),
        ):
            assert refused.status_code == 401
        assert ask(content=b"payload=notjson").status_code == 400
        assert not [each for each in log_of(server, run) if isinstance(each, ev.LinkUsed)]
        assert ask().status_code == 200
        (told,) = replies(slack, 1)
        assert "for operator: Skip" in told["text"]
        assert ask().status_code == 200  # replayed within the window: the link was used
        again = replies(slack, 2)[-1]["text"]
        assert "was used" in again or "decided already" in again
        answered = [each for each in log_of(server, run) if isinstance(each, ev.QuestionAnswered)]
        assert [(each.actor, each.choice) for each in answered] == [("operator", "skip")]


def test_without_a_secret_there_is_no_endpoint_and_no_button(tmp_path, slack):
    slack_project(tmp_path, slack, "")
    with served(tmp_path) as server:
        form = {"payload": "{}"}
        assert httpx2.post(f"{server.url}/api/v1/slack", data=form).status_code == 404
        message = messages_of(slack, waits(server, DANGER), 2)["U0APPROVER"]
        labels = [each["text"]["text"] for each in message["blocks"][-1]["elements"]]
        assert labels == ["Read and decide", "Dashboard"]
        assert slack.connections == 0


def test_a_large_plan_is_approved_on_the_page(tmp_path, slack):
    slack_project(tmp_path, slack, 'signing_secret = "env:SIGNING"')
    steps = [{"id": f"s{n}", "worker": "danger"} for n in range(21)]
    with served(tmp_path) as server, server.client("operator") as client:
        run = begin(client, *steps)
        message = messages_of(slack, run, 2)["U0APPROVER"]
        labels = [each["text"]["text"] for each in message["blocks"][-1]["elements"]]
        assert labels == ["Read and decide", "Dashboard"]


def reviewed(*steps, **more):
    given = {"params": {}, "risks": {}, "cancel": [], "drop": {}}
    return SimpleNamespace(steps=list(steps), **(given | more))


def test_a_message_with_buttons_shows_the_whole_plan():
    """Parameters too: a harmless description does not hide them. What does not fit has none."""
    step = {"id": "a", "worker": "danger", "description": "harmless", "parameters": {"x": "prod"}}
    lines = plan_lines(reviewed(step, params={"where": "there"}, risks={"a": "high"}))
    assert lines == [
        'Parameters: {"where": "there"}',
        'Step a: harmless (risk high) {"worker": "danger", "parameters": {"x": "prod"}}',
    ]
    assert plan_lines(reviewed({**step, "parameters": {"x": "y" * 1000}})) == []
    assert plan_lines(reviewed(step, params={"where": "y" * 1000})) == []
    assert plan_lines(reviewed(*[step] * 21)) == []
    assert plan_lines(reviewed(step, drop={"b": "no longer needed"})) == []
    assert plan_lines(reviewed(step, cancel=["b"])) == []


async def test_a_socket_that_ends_at_once_is_opened_again_with_growing_pauses(monkeypatch):
    """Whether Slack ends it in order, or with a frame that nobody can read."""
    ends = [None, None, RecursionError("deep"), ValueError("no JSON"), None]
    pauses, told = [], []

    async def connected(_self, _table):
        if (error := ends.pop(0)) is not None:
            raise error

    async def slept(pause_s):
        pauses.append(pause_s)
        if not ends:
            raise asyncio.CancelledError

    monkeypatch.setattr(SlackAnswers, "_connected", connected)
    monkeypatch.setattr("leadhand.server.slack.asyncio.sleep", slept)
    table = SlackTable(token="env:BOT", app_token="env:APP")
    settings = SimpleNamespace(notify=SimpleNamespace(slack=table))
    answers = SlackAnswers(SimpleNamespace(settings=settings), told.append)
    with pytest.raises(asyncio.CancelledError):
        await answers._socket(table)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert [each.split(": ")[2] for each in told] == ["RecursionError", "ValueError"]
