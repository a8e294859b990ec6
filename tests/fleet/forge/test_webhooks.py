"""Webhooks: only signed ones nudge, each once; they come from the stand-in over HTTP."""

import asyncio
import hashlib
import hmac
import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.errors import UsageError
from leadhand.fleet.forge.settings import ForgeTable, listen_for_webhooks
from leadhand.fleet.forge.webhooks import (
    BODY_MAX,
    KEPT,
    PATH,
    WebhookListener,
    WebhookReceiver,
    WebhookRefused,
    checked_delivery,
)
from tests.fleet.forge.flow_world import LABEL, Team, flow_fleet, until
from tests.fleet.forge.standin.github import GitHubStandIn

SECRET = "a-secret-of-some-length"


def signed(body, secret=SECRET, ident="d-1", event="issues"):
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "X-Hub-Signature-256": f"sha256={digest}",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": ident,
    }


def test_a_known_signature_is_accepted():
    """The example of GitHub's documentation."""
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    said = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {**signed(body, secret), "X-Hub-Signature-256": said}
    assert checked_delivery("github", headers, body, secret) == ("issues", "d-1")


@given(st.binary(max_size=200), st.text(max_size=80))
def test_nothing_else_is_accepted(body, said):
    """Any other signature, another body, no signature."""
    for headers in (
        {**signed(body), "X-Hub-Signature-256": said},
        signed(body + b" "),
        signed(body, secret="another-secret-of-length"),
        {"X-GitHub-Event": "issues", "X-GitHub-Delivery": "d"},
    ):
        with pytest.raises(WebhookRefused):
            checked_delivery("github", headers, body, SECRET)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-gitlab-token": SECRET, "x-gitlab-event": "Issue Hook", "idempotency-key": "1"}, 202),
        ({"x-gitlab-token": SECRET + "x", "x-gitlab-event": "E", "idempotency-key": "2"}, 401),
        ({"x-gitlab-event": "Issue Hook", "idempotency-key": "3"}, 401),
        ({"x-gitlab-token": SECRET, "x-gitlab-event": "Issue Hook"}, 400),
        ({"x-gitlab-token": "ä", "x-gitlab-event": "E", "idempotency-key": "4"}, 401),
    ],
)
def test_the_token_of_gitlab(headers, status):
    """GitLab sends the secret itself."""
    nudges = []
    receiver = WebhookReceiver("gitlab", lambda: SECRET, lambda: nudges.append(1))
    assert receiver.receive(headers, b"{}") == status
    assert len(nudges) == (status == 202)


def test_a_replay_does_not_nudge_again():
    """Neither the same delivery, nor its body under another id; memory is bounded."""
    nudges = []
    receiver = WebhookReceiver("github", lambda: SECRET, lambda: nudges.append(1))
    for ident in ("d-1", "d-1", "d-2"):
        assert receiver.receive(signed(b"{}", ident=ident), b"{}") == 202
    assert len(nudges) == 1
    assert receiver.receive(signed(b"[]", ident="d-1"), b"[]") == 202
    assert len(nudges) == 2
    for at in range(KEPT + 5):
        receiver.receive(signed(body := str(at).encode()), body)
    assert len(receiver._seen) == KEPT


def test_what_cannot_be_checked_is_refused():
    """A short secret, none, a body without end, a secret that cannot be read."""

    def unreadable():
        raise UsageError("the environment variable X is not set")

    def status(secret, body=b"{}"):
        return WebhookReceiver("github", secret, pytest.fail).receive(signed(body), body)

    assert status(lambda: "") == 503
    assert status(lambda: "short") == 503
    assert status(unreadable) == 503
    assert status(lambda: SECRET, b" " * (BODY_MAX + 1)) == 413


@pytest.fixture
async def listening():
    """Yield the port of a listener and the list of its nudges."""
    nudges = asyncio.Queue()
    receiver = WebhookReceiver("github", lambda: SECRET, lambda: nudges.put_nowait(1))
    listener = WebhookListener(receiver)
    port = await listener.start("127.0.0.1", 0)
    yield port, nudges
    await listener.stop()


async def said(port, data, *, close=True):
    """Return the status that a listener answers to some bytes, "" for none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if close:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer.decode().partition("\r\n")[0].partition(" ")[2][:3]


async def test_webhooks_of_a_host_arrive(listening):
    """The stand-in signs and sends them; another secret does not nudge."""
    port, nudges = listening
    host = GitHubStandIn()
    for secret in ("another-secret-of-length", SECRET):
        host.hooks[:] = [(f"http://127.0.0.1:{port}{PATH}", secret)]
        host.add_issue("T")
    assert await asyncio.wait_for(nudges.get(), 60) == 1
    assert nudges.empty()


async def test_the_listener_answers_webhooks_only(listening):
    """Other paths, methods and lengths are refused; broken requests end the connection."""
    port, nudges = listening
    body = b"{}"
    head = "".join(f"{name}: {value}\r\n" for name, value in signed(body).items())
    good = f"POST {PATH} HTTP/1.1\r\n{head}content-length: 2\r\n\r\n".encode()
    asked = {
        f"GET {PATH} HTTP/1.1\r\n\r\n": "405",
        "POST / HTTP/1.1\r\n\r\n": "404",
        f"POST {PATH} HTTP/1.1\r\n\r\n": "411",
        f"POST {PATH} HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n": "413",
        f"POST {PATH} HTTP/1.1\r\ncontent-length: 0\r\n\r\n": "401",
        "x" * 100_000: "",
        "\r\n\r\n": "404",
        f"POST {PATH} HTTP/1.1\r\ncontent-length: 10\r\n\r\nshort": "",
    }
    for data, status in asked.items():
        assert await said(port, data.encode()) == status
    assert nudges.empty()
    assert await said(port, good + body, close=False) == "202"
    assert nudges.qsize() == 1


async def test_an_address_that_is_taken_is_said(listening):
    """One message with the setting."""
    port, _ = listening
    other = WebhookListener(WebhookReceiver("github", lambda: SECRET, pytest.fail))
    with pytest.raises(UsageError, match=r"\[fleet.forge\] listen: cannot listen on 127.0.0.1"):
        await other.start("127.0.0.1", port)


async def test_a_webhook_begins_an_epic_before_the_next_look(tmp_path):
    """A fleet that polls once an hour takes a labelled issue as soon as the host says so."""
    team, ports = Team(tmp_path), []

    async def listen(nudge):
        listener = WebhookListener(WebhookReceiver("github", lambda: SECRET, nudge))
        ports.append(await listener.start("127.0.0.1", 0))
        return listener

    with team.host.serving():
        fleet = flow_fleet(tmp_path, team.host.url, rules={"look_s": 3600.0})
        fleet.config = replace(fleet.config, forge=replace(fleet.config.forge, listen=listen))
        issues = ("GET", "/repos/acme/shop/issues", 200)
        async with fleet:
            await until(lambda: issues in team.host.log, fleet)
            number = team.host.add_issue("Add a colour", "The shop needs a colour.", "ann")
            team.host.hooks.append((f"http://127.0.0.1:{ports[0]}{PATH}", SECRET))
            team.host.label_issue(number, LABEL, "ann")
            await until(lambda: fleet.open_epics == 1, fleet)


async def test_the_settings_say_where_webhooks_come(monkeypatch):
    """On the address that is set; a secret that is missing is said at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    table = ForgeTable(
        repository="a/b",
        token="env:T",
        listen=f"127.0.0.1:{port}",
        webhook_secret="env:LEADHAND_TEST_WEBHOOK_SECRET",
    )
    with pytest.raises(UsageError, match="LEADHAND_TEST_WEBHOOK_SECRET is not set"):
        await listen_for_webhooks(table, pytest.fail)
    monkeypatch.setenv("LEADHAND_TEST_WEBHOOK_SECRET", SECRET)
    nudges = []
    listener = await listen_for_webhooks(table, lambda: nudges.append(1))
    head = "".join(f"{name}: {value}\r\n" for name, value in signed(b"{}").items())
    good = f"POST {PATH} HTTP/1.1\r\n{head}content-length: 2\r\n\r\n{{}}".encode()
    assert await said(port, good) == "202"
    assert nudges == [1]
    await listener.stop()
