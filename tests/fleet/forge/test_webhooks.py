"""Webhooks: only signed ones nudge, each once; they come from the stand-in over HTTP."""

import hashlib
import hmac
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.errors import UsageError
from leadhand.fleet.forge.webhooks import (
    BODY_MAX,
    KEPT,
    WebhookReceiver,
    WebhookRefused,
    checked_delivery,
)
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


def test_webhooks_of_a_host_arrive():
    """The stand-in signs and sends; a wrong secret is refused."""
    nudged, statuses = threading.Semaphore(0), []
    receiver = WebhookReceiver("github", lambda: SECRET, nudged.release)
    answered = threading.Semaphore(0)

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            statuses.append(receiver.receive(dict(self.headers.items()), body))
            self.send_response(statuses[-1])
            self.end_headers()
            answered.release()

        def log_message(self, *_args):
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as endpoint:
        threading.Thread(target=endpoint.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://127.0.0.1:{endpoint.server_address[1]}/hook"
        host = GitHubStandIn()
        host.hooks.append((address, SECRET))
        host.add_issue("T")
        assert nudged.acquire(timeout=60)
        assert answered.acquire(timeout=60)
        host.hooks[:] = [(address, "another-secret-of-length")]
        host.add_issue("T")
        assert answered.acquire(timeout=60)
        endpoint.shutdown()
    assert statuses == [202, 401]
    assert not nudged.acquire(blocking=False)
