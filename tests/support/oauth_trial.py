"""An MCP server behind OAuth and its authorization server, in this process; and a person's browser.

It is careless on purpose: its tool says which token it was called with.
"""

import asyncio
import base64
import hashlib
import json
import secrets
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

VERSION = "2026-07-28"
TOOLS = [{"name": "whoami", "inputSchema": {"type": "object"}}]


class OAuthTrial:
    """What both servers know, and what they were asked."""

    def __init__(self):
        self.asked = []
        """Method and path of every request; of a token request, with its grant."""
        self.forms = []
        """What the token endpoint was sent."""
        self.valid, self.refresh, self.codes = set(), set(), {}
        self.expires_in = 3600
        self.issuers = None
        """What the server names as its authorization servers, if not the true one."""
        self.metadata = None
        """Where the server says that its metadata is, if not where it is."""
        self.token_status = 200
        self.server = self.issuer = self.described = ""

    def tokens(self):
        """A new token, with one to refresh it."""
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.valid.add(access)
        self.refresh.add(refresh)
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "refresh_token": refresh,
        }

    def token(self, form):
        """The answer of the token endpoint."""
        grant = form["grant_type"]
        self.asked.append(f"TOKEN {grant}")
        self.forms.append(form)
        if self.token_status != 200:
            return self.token_status, {"error": "temporarily_unavailable"}
        if grant == "refresh_token" and form["refresh_token"] in self.refresh:
            self.refresh.discard(form["refresh_token"])  # it counts once
            return 200, self.tokens()
        if grant == "client_credentials":
            return 200, self.tokens()
        challenge = self.codes.pop(form.get("code"), None)
        seen = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if challenge and base64.urlsafe_b64encode(seen).decode().rstrip("=") == challenge:
            return 200, self.tokens()
        return 400, {"error": "invalid_grant"}

    def grants(self):
        """The grants of the token requests so far."""
        return [each.removeprefix("TOKEN ") for each in self.asked if each.startswith("TOKEN")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def trial(self) -> OAuthTrial:
        return self.server.trial

    def log_message(self, *_):
        pass

    def answer(self, status, doc, **headers):
        body = json.dumps(doc).encode()
        self.send_response(status)
        headers = {"content-type": "application/json", "content-length": str(len(body)), **headers}
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        trial, place = self.trial, urlsplit(self.path)
        trial.asked.append(f"GET {place.path}")
        if place.path == "/.well-known/oauth-protected-resource/mcp":
            named = trial.issuers or [trial.issuer]
            self.answer(200, {"resource": trial.server, "authorization_servers": named})
        elif place.path == "/.well-known/oauth-authorization-server":
            ends = ("authorization_endpoint", "token_endpoint", "registration_endpoint")
            found = {each: f"{trial.issuer}/{each.partition('_')[0]}" for each in ends}
            methods = {"token_endpoint_auth_methods_supported": ["client_secret_post", "none"]}
            self.answer(200, {"issuer": trial.issuer, **found, **methods})
        elif place.path == "/authorization":
            asked = {key: value[0] for key, value in parse_qs(place.query).items()}
            code = secrets.token_hex(8)
            trial.codes[code] = asked["code_challenge"]
            back = urlencode({"code": code, "state": asked["state"]})
            self.answer(302, {}, location=f"{asked['redirect_uri']}?{back}")
        else:
            self.answer(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        path = urlsplit(self.path).path
        if path == "/mcp":
            self.call(json.loads(body))
        elif path == "/registration":
            self.trial.asked.append("REGISTER")
            self.answer(201, {**json.loads(body), "client_id": "trial-client"})
        elif path == "/token":
            form = {key: value[0] for key, value in parse_qs(body.decode()).items()}
            self.answer(*self.trial.token(form))
        else:
            self.answer(404, {})

    def call(self, message):
        trial, method = self.trial, message["method"]
        trial.asked.append(f"CALL {method}")
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in trial.valid:
            where = trial.metadata or trial.described
            self.answer(401, {}, www_authenticate=f'Bearer resource_metadata="{where}"')
            return
        found = {
            "server/discover": {
                "supportedVersions": [VERSION],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
                "ttlMs": 0,
                "cacheScope": "private",
            },
            "tools/list": {"tools": TOOLS, "ttlMs": 0, "cacheScope": "private"},
            "tools/call": {"content": [{"type": "text", "text": f"called with {token}"}]},
        }.get(method)
        if found is None:
            error = {"code": -32601, "message": "no such method"}
            self.answer(404, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})
            return
        result = {"resultType": "complete", **found}
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


@contextmanager
def guarded():
    """Both servers; gives what they know."""
    trial = OAuthTrial()
    made = [ThreadingHTTPServer(("127.0.0.1", 0), _Handler) for _ in range(2)]
    for each in made:
        each.trial, each.daemon_threads = trial, True
        threading.Thread(target=each.serve_forever, args=(0.05,), daemon=True).start()
    trial.server = f"http://127.0.0.1:{made[0].server_port}/mcp"
    trial.issuer = f"http://127.0.0.1:{made[1].server_port}"
    place = "/.well-known/oauth-protected-resource/mcp"
    trial.described = trial.server.replace("/mcp", place)
    try:
        yield trial
    finally:
        for each in made:
            each.shutdown()
            each.server_close()


def browse(url):
    """Open an address as a browser does, and follow where it leads: to our own port."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


async def sign_in(server):
    """Sign in to a server as a person does, and return its tools."""
    from leadhand.workers.mcp.sign_in import LoopbackReturn
    from leadhand.workers.mcp.sign_in import sign_in as make_sign_in

    async def show(url):
        asyncio.get_running_loop().run_in_executor(None, browse, url)

    way = LoopbackReturn(server.token_file.read().redirect_port)
    return await make_sign_in(server, way, show, 120)
