"""Channels against stand-ins that speak the real protocols: what arrives, and what fails how."""

import asyncio
import base64
import email
import email.policy
import hashlib
import hmac
import json
import time
from contextlib import suppress

import pytest

from leadhand.core.views.inbox import AnswerChoice, InboxRow
from leadhand.notify import channels
from leadhand.notify.channels import (
    EmailChannel,
    NotDelivered,
    NtfyChannel,
    SlackChannel,
    WebhookChannel,
    slack_blocks,
    webhook_headers,
)
from leadhand.notify.message import Message, MessageButton, row_lines
from leadhand.settings.notify import EmailTable, NtfyTable, SlackTable
from tests.server.test_run_commands import certificate
from tests.support.services import http_server, mail_server

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
ROW = InboxRow(
    id="r1/review-1",
    kind="review",
    title='Approve plan "release" (1 step, high risk)',
    reason="required by the policy",
    run="r1",
    started_by="eve",
    step=None,
    steps=1,
    goal="Ship <b>it</b>",
    plan="release",
    risk="high",
    effects=["cluster", "undeclared:say"],
    cost=2.0,
    asked_by="document",
    since="2026-01-01T00:00:00Z",
    text="Approve it",
    choices=[
        AnswerChoice(answer="approve", leads_to="1 step may start, exactly as shown", command=""),
        AnswerChoice(answer="reject", leads_to="no step starts", command=""),
    ],
    default=None,
    until=None,
)
LINK = "https://leadhand.example/answer/abc.def"
MESSAGE = Message(
    id="0123456789abcdef",
    kind="waiting",
    run="r1",
    title=ROW.title,
    lines=row_lines(ROW, "d" * 64),
    link=LINK,
    page="https://leadhand.example/#/runs/r1",
    text="Approve it",
    store="db",
    items=(ROW,),
)
SAID = (
    "Ship <b>it</b>",
    "Risk: high",
    "Side effects: cluster; say declares no effects",
    "exactly as shown",
)


@pytest.fixture
def secrets(monkeypatch):
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("PASSWORD", "sesame")
    monkeypatch.setenv("TOKEN", "tk_123")


async def failing(work):
    """The failure of a delivery; it never tells a secret or a link."""
    with pytest.raises(NotDelivered) as caught:
        await work
    for hidden in (SECRET, "sesame", "tk_123", LINK, "abc.def"):
        assert hidden not in str(caught.value)
    return caught.value


# Webhooks.


def test_the_signature_is_that_of_the_specification():
    """A published example of Standard Webhooks."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    headers = webhook_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_webhook_is_signed_and_holds_no_link(secrets):
    with http_server() as hook:
        await WebhookChannel(f"{hook.url}/x", "env:HOOK").send("", MESSAGE._replace(link=""))
    ((path, headers, body),) = hook.got
    assert (path, headers["webhook-id"]) == ("/x", f"msg_{MESSAGE.id}")
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    right = hmac.new(b"k" * 32, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(right).decode()}"
    doc = json.loads(body)
    assert doc["type"] == "run.waiting"
    (item,) = doc["data"]["items"]
    assert (item["goal"], item["risk"], item["choices"][0]["answer"]) == (
        ROW.goal,
        "high",
        "approve",
    )
    assert "abc.def" not in body.decode()


async def test_a_webhook_without_a_secret_is_not_signed():
    with http_server() as hook:
        await WebhookChannel(hook.url).send("", MESSAGE)
    assert "webhook-signature" not in hook.got[0][1]


async def test_failures_of_webhooks_say_whether_another_try_helps(secrets, monkeypatch):
    with http_server() as hook:
        channel = WebhookChannel(f"{hook.url}/secret-path", "env:HOOK")
        hook.answers += [
            (503, {}),
            (429, {"Retry-After": "7"}),
            (404, {}),
            (301, {"Location": "/"}),
        ]
        busy, limited, gone, moved = [await failing(channel.send("", MESSAGE)) for _ in range(4)]
        assert [each.final for each in (busy, limited, gone, moved)] == [False, False, True, True]
        assert limited.after_s == 7.0
        assert "secret-path" not in f"{busy}{gone}"
        for wrong in (
            "whsec_",
            "whsec_!!",
            "plain",
            "whsec_" + base64.b64encode(b"short").decode(),
        ):
            monkeypatch.setenv("HOOK", wrong)
            assert (await failing(channel.send("", MESSAGE))).final
        monkeypatch.delenv("HOOK")
        assert "HOOK is not set" in str(await failing(channel.check()))
    down = await failing(WebhookChannel("http://127.0.0.1:1/x").send("", MESSAGE))
    assert (down.final, "/x" in str(down)) == (False, False)


async def test_a_service_cannot_hold_a_message_or_fill_the_memory(monkeypatch):
    """One that answers without end, byte by byte or at once, is a failure; another try follows."""

    talks = []

    async def serve(piece, pause_s):
        async def talk(reader, writer):
            talks.append(asyncio.current_task())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause_s)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        return await asyncio.start_server(talk, "127.0.0.1", 0)

    slow, giant = await serve(b"x", 0.05), await serve(b"x" * (1 << 18), 0)
    addresses = [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}/" for each in (slow, giant)]
    large = await failing(WebhookChannel(addresses[1]).send("", MESSAGE))
    assert ("more than 1048576 bytes" in str(large), large.final) == (True, False)
    monkeypatch.setattr(channels, "LIMIT_S", 0.5)
    late = await failing(WebhookChannel(addresses[0]).send("", MESSAGE))
    assert ("took longer than 0.5s" in str(late), late.final) == (True, False)
    for each in (slow, giant):
        each.close()
    await asyncio.gather(*talks)


@pytest.mark.parametrize("token", ["tk_1\nsesame", "tk_1\0sesame", "tk_ö_sesame"])
async def test_a_token_that_no_header_can_have_is_not_told(monkeypatch, token):
    if "\0" in token:  # no variable can hold it, a file can
        monkeypatch.setattr(channels, "read_secret", lambda _reference: token)
    else:
        monkeypatch.setenv("TOKEN", token)
    with http_server() as ntfy:
        channel = NtfyChannel(NtfyTable(server=ntfy.url, token="env:TOKEN"))
        wrong = await failing(channel.send("topic", MESSAGE))
    assert ("sesame" in str(wrong), "token" in str(wrong), wrong.final) == (False, True, True)


# E-mail.


def email_table(server, **more):
    given = {"server": server, "sender": "leadhand@example.com", "security": "none"}
    return EmailTable(**(given | more))


async def test_a_mail_says_what_is_decided_and_holds_the_link(secrets, tmp_path, monkeypatch):
    """Over STARTTLS with a sign-in, as text only."""
    cert = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert[0]))
    with mail_server(cert, user="lead", password="sesame") as box:
        table = email_table(box.address, security="starttls", user="lead", password="env:PASSWORD")
        channel = EmailChannel(table)
        assert await channel.check() == box.address
        await channel.send(
            "ann@example.com", MESSAGE._replace(title="Approve\r\nBcc: eve@x.example")
        )
        ((to, text, encrypted),) = box.mails
        assert (to, encrypted) == (["ann@example.com"], True)
        mail = email.message_from_string(text, policy=email.policy.default)
        assert mail.get_content_type() == "text/plain"
        assert "Bcc" not in mail
        body = mail.get_content()
        assert all(words in body for words in (*SAID, LINK, "d" * 64))
        monkeypatch.setenv("PASSWORD", "wrong")
        refused = await failing(channel.send("ann@example.com", MESSAGE))
        assert (refused.final, "sign-in" in str(refused)) == (True, True), str(refused)
        monkeypatch.delenv("SSL_CERT_FILE")
        stranger = await failing(channel.send("ann@example.com", MESSAGE))
        assert (stranger.final, "CERTIFICATE_VERIFY_FAILED" in str(stranger)) == (True, True)
    assert len(box.mails) == 1


async def test_a_mail_server_that_talks_without_end_is_left(monkeypatch):
    ended = asyncio.Event()

    async def talk(_reader, writer):
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"220-welcome\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        ended.set()

    monkeypatch.setattr(channels, "MAIL_S", 0.5)
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    late = await failing(EmailChannel(email_table(f"127.0.0.1:{port}")).check())
    assert (late.final, "the mail server" in str(late)) == (False, True)
    await ended.wait()
    server.close()


async def test_mail_over_tls_from_the_beginning(tmp_path, monkeypatch):
    cert = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert[0]))
    with mail_server(cert, tls=True) as box:
        await EmailChannel(email_table(box.address, security="tls")).send("a@example.com", MESSAGE)
    assert len(box.mails) == 1


async def test_failures_of_mail_say_whether_another_try_helps():
    with mail_server() as box:
        channel = EmailChannel(email_table(box.address))
        box.busy = 1
        assert not (await failing(channel.send("ann@example.com", MESSAGE))).final
        assert (await failing(channel.send("nobody@example.com", MESSAGE))).final
        wants = EmailChannel(email_table(box.address, security="starttls"))
        plain = await failing(wants.send("ann@example.com", MESSAGE))
        assert (plain.final, box.mails) == (True, [])
        await channel.send("ann@example.com", MESSAGE)
    assert not (await failing(channel.send("ann@example.com", MESSAGE))).final
    far = EmailChannel(email_table("smtp.example.com:25"))
    assert "without encryption" in str(await failing(far.send("ann@example.com", MESSAGE)))


# ntfy.


async def test_a_notification_on_a_phone_opens_the_page_of_the_link(secrets):
    with http_server() as ntfy:
        channel = NtfyChannel(NtfyTable(server=ntfy.url, token="env:TOKEN"))
        assert await channel.check() == ntfy.url
        await channel.send("ann-topic", MESSAGE._replace(lines=(*MESSAGE.lines, "é" * 5000)))
    ((path, headers, body),) = ntfy.got
    doc = json.loads(body)
    assert (path, headers["authorization"], doc["topic"]) == ("/", "Bearer tk_123", "ann-topic")
    assert doc["click"] == LINK
    assert [(each["action"], each["url"]) for each in doc["actions"]] == [
        ("view", LINK),
        ("view", MESSAGE.page),
    ]
    assert all(words in doc["message"] for words in SAID)
    assert len(doc["message"].encode()) <= 4096


# Slack.


async def test_a_message_in_slack_is_plain_text_with_buttons(secrets):
    buttons = (
        MessageButton("approve", "Approve", "1 step may start", "tok.en"),
        MessageButton("reject", "Reject", "the run ends", "tok.en", ends=True),
    )
    with http_server() as slack:
        channel = SlackChannel(SlackTable(token="env:TOKEN", api=f"{slack.url}/api"))
        slack.routes["/api/auth.test"] = lambda _body: {"ok": True, "team": "T", "user": "bot"}
        assert await channel.check() == "T as bot"
        await channel.send("U012AB3CD", MESSAGE._replace(buttons=buttons, title="a <!channel> & b"))
        doc = json.loads(slack.got[-1][2])
        slack.routes["/api/chat.postMessage"] = lambda _body: {"ok": False, "error": "invalid_auth"}
        assert (await failing(channel.send("U012AB3CD", MESSAGE))).final
        slack.routes["/api/chat.postMessage"] = lambda _body: {"ok": False, "error": "fatal_error"}
        assert not (await failing(channel.send("U012AB3CD", MESSAGE))).final
    assert slack.got[1][:1] == ("/api/chat.postMessage",)
    assert slack.got[1][1]["authorization"] == "Bearer tk_123"
    assert (doc["channel"], doc["unfurl_links"], doc["unfurl_media"]) == ("U012AB3CD", False, False)
    assert doc["text"] == "a &lt;!channel&gt; &amp; b"
    texts = [block["text"] for block in doc["blocks"] if "text" in block]
    assert {each["type"] for each in texts} == {"plain_text"}
    shown = "\n".join(each["text"] for each in texts)
    assert all(words in shown for words in SAID)
    approve, reject, opens, page = doc["blocks"][-1]["elements"]
    assert (approve["action_id"], approve["value"], approve["style"]) == (
        "leadhand:approve",
        "tok.en",
        "primary",
    )
    assert (reject["style"], reject["confirm"]["text"]["text"]) == ("danger", "the run ends")
    assert (opens["url"], page["url"]) == (LINK, MESSAGE.page)


def test_blocks_stay_within_the_limits_of_slack():
    long = MESSAGE._replace(
        title="t" * 500,
        lines=tuple("l" * 5000 for _ in range(200)),
        buttons=tuple(MessageButton("b" * 300, "l" * 200, "x" * 900, "v" * 900) for _ in range(30)),
    )
    blocks = slack_blocks(long)
    assert len(blocks) <= 50
    assert len(blocks[0]["text"]["text"]) <= 150
    assert all(len(each["text"]["text"]) <= 3000 for each in blocks if each["type"] == "section")
    (actions,) = [each["elements"] for each in blocks if each["type"] == "actions"]
    assert len(actions) <= 25
    for each in actions:
        assert len(each["text"]["text"]) <= 75
        assert len(each["action_id"]) <= 255
        assert len(each.get("value", "")) <= 2000
        confirm = each.get("confirm", {})
        limits = {"title": 100, "text": 300, "confirm": 30, "deny": 30}
        assert all(len(confirm[name]["text"]) <= limit for name, limit in limits.items() if confirm)
