"""Stand-ins on loopback that speak the real protocols: SMTP, HTTP, Slack's Web API and socket."""

import asyncio
import json
import secrets
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


class Mailbox:
    """What a mail server received, and how it behaves."""

    def __init__(self):
        self.mails = []
        self.busy = 0
        """How many messages are refused for now before one is taken."""

    async def handle_DATA(self, _server, session, envelope):  # noqa: N802 - the name aiosmtpd calls
        if self.busy:
            self.busy -= 1
            return "451 try again later"
        self.mails.append((envelope.rcpt_tos, envelope.content.decode(), session.ssl is not None))
        return "250 OK"

    async def handle_RCPT(self, _server, _session, envelope, address, _options):  # noqa: N802
        if address.startswith("nobody@"):
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"


@contextmanager
def mail_server(cert=None, *, user="", password="", tls=False):
    """A real SMTP server; with a certificate it requires STARTTLS, or is TLS from its beginning."""
    box = Mailbox()
    context = None
    if cert is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*cert)

    def known(_server, _session, _envelope, _mechanism, data):
        right = isinstance(data, LoginPassword) and data.login.decode() == user
        right = right and data.password.decode() == password
        return AuthResult(success=right, handled=False)

    class _Server(Controller):
        def factory(self):
            return SMTP(
                self.handler,
                tls_context=None if tls else context,
                require_starttls=context is not None and not tls,
                authenticator=known if user else None,
                auth_required=bool(user),
                auth_require_tls=context is not None and not tls,
                loop=self.loop,
            )

    controller = _Server(
        box, hostname="127.0.0.1", port=free_port(), ssl_context=context if tls else None
    )
    controller.start()
    box.address = f"127.0.0.1:{controller.port}"
    try:
        yield box
    finally:
        controller.stop()


def free_port():
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Requests:
    """What an HTTP server was sent; `answers` are given in turn, then 200."""

    def __init__(self):
        self.got = []
        self.answers = []
        self.routes = {}
        """By path, a function of the body that returns a document."""
        self.now = threading.local()
        """`now.headers`: those of the request that a route is answering."""


@contextmanager
def http_server():
    """A plain HTTP server that keeps what it is sent."""
    kept = Requests()

    class _Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            kept.got.append((self.path, headers, body))
            status, more = kept.answers.pop(0) if kept.answers else (200, {})
            made = kept.routes.get(self.path)
            kept.now.headers = headers
            self._send(status, made(body) if made and status == 200 else {"ok": True}, more)

        def do_GET(self):
            self._send(200, {"healthy": True}, {})

        def _send(self, status, doc, headers):
            body = json.dumps(doc).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def until(condition, limit_s=60.0):
    """Wait for a condition in this loop."""
    async with asyncio.timeout(limit_s):
        while not (found := condition()):
            await asyncio.sleep(0.01)
    return found


LENGTHS = {"header": 150, "section": 3000, "button": 75}
"""How long the text of an element may be: docs.slack.dev/reference/block-kit."""
ATTRIBUTES = {"action_id": 255, "value": 2000, "url": 3000}
CONFIRM = {"title": 100, "text": 300, "confirm": 30, "deny": 30}


def blocks_are_valid(blocks):
    """Whether Slack would show these blocks, as far as we use them."""
    elements = [each for block in blocks for each in block.get("elements", ())]
    rows = [block for block in blocks if block["type"] == "actions"]
    named = [each["action_id"] for each in elements]
    texts = [each for each in (*blocks, *elements) if "text" in each]
    return (
        0 < len(blocks) <= 50
        and all(0 < len(row["elements"]) <= 25 for row in rows)
        and len(named) == len(set(named))
        and all(0 < len(each["text"]["text"]) <= LENGTHS[each["type"]] for each in texts)
        and all(
            len(each.get(key, "")) <= ATTRIBUTES[key] for each in elements for key in ATTRIBUTES
        )
        and all(
            0 < len(each["confirm"][key]["text"]) <= most
            for each in elements
            for key, most in CONFIRM.items()
            if "confirm" in each
        )
    )


class SlackStandIn:
    """Slack as an app sees it: the Web API over HTTP, socket mode over a WebSocket.

    Each method wants its own token, blocks that Slack would show are taken, and an address of the
    socket is good for one connection.
    """

    def __init__(self, http):
        self.http = http
        self.acknowledged = []
        self.connections = 0
        self._sockets = []
        self._tickets = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(30)
        self._address = f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/link"
        ours = {"team": "Ours", "team_id": "T1"}
        self._method("auth.test", "xoxb-", lambda _: {"ok": True, **ours})
        self._method("apps.connections.open", "xapp-", self._opened)
        self._method("chat.postMessage", "xoxb-", self._taken)

    def _method(self, name, kind, answer):
        def answered(body):
            headers = self.http.now.headers
            if not headers.get("authorization", "").startswith(f"Bearer {kind}"):
                return {"ok": False, "error": "not_allowed_token_type"}
            if not headers.get("content-type", "").startswith("application/json"):
                return {"ok": False, "error": "invalid_form_data"}
            return answer(json.loads(body))

        self.http.routes[f"/api/{name}"] = answered

    def _opened(self, _doc):
        ticket = secrets.token_hex(8)
        self._tickets.add(ticket)
        return {"ok": True, "url": f"{self._address}/?ticket={ticket}"}

    @staticmethod
    def _taken(doc):
        if not doc.get("channel"):
            return {"ok": False, "error": "channel_not_found"}
        if not doc.get("text") or not blocks_are_valid(doc["blocks"]):
            return {"ok": False, "error": "invalid_blocks"}
        return {"ok": True, "channel": doc["channel"], "ts": "1700000000.000100"}

    async def _serve(self):
        from websockets.asyncio.server import serve

        self._server = await serve(self._talk, "127.0.0.1", 0)

    async def _talk(self, socket):
        ticket = socket.request.path.partition("ticket=")[2]
        if ticket not in self._tickets:
            await socket.close(1008, "unknown ticket")
            return
        self._tickets.discard(ticket)
        self.connections += 1
        self._sockets.append(socket)
        await socket.send(json.dumps({"type": "hello", "num_connections": 1}))
        async for frame in socket:
            self.acknowledged.append(json.loads(frame)["envelope_id"])

    def send(self, **doc):
        """Send a frame through the newest connection."""
        frame = json.dumps(doc)
        asyncio.run_coroutine_threadsafe(self._sockets[-1].send(frame), self._loop).result(30)

    def posted(self, path="/api/chat.postMessage"):
        """The documents that were sent to a method or an address, and that Slack would take."""
        found = [json.loads(body) for where, _, body in self.http.got if where == path]
        return [each for each in found if "blocks" not in each or self._taken(each)["ok"]]

    def press(self, message, choice, user, team="T1"):
        """What Slack sends when a person presses a button of a message."""
        buttons = [each for block in message["blocks"] for each in block.get("elements", ())]
        (pressed,) = [each for each in buttons if each["action_id"] == f"leadhand:{choice}"]
        action = {key: pressed[key] for key in ("action_id", "value", "type")}
        return {
            "type": "block_actions",
            "user": {"id": user, "name": "somebody"},
            "team": {"id": team},
            "response_url": f"{self.http.url}/response",
            "actions": [{**action, "block_id": "b"}],
            "message": {"blocks": message["blocks"]},
        }

    def close(self):
        async def closed():
            self._server.close()
            await self._server.wait_closed()

        asyncio.run_coroutine_threadsafe(closed(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@contextmanager
def slack_service():
    """A stand-in of Slack."""
    with http_server() as http:
        found = SlackStandIn(http)
        try:
            yield found
        finally:
            found.close()
