"""The gate: every route, every method, everybody who should not come in; nobody does."""

import asyncio
import re
from itertools import product

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from leadhand.server.accounts import Accounts, Tries, digest_of
from leadhand.server.app import build
from leadhand.server.gate import PERSON, RequestGate, RequestLimits
from leadhand.server.rules import API, OPERATOR, PUBLIC, RULES, RouteRules, may
from leadhand.server.settings import Member
from tests.support.serving import TOKENS

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "ODD")
BODY = b"{}"
FIELDS = b"choice=approve"
TABLE = RouteRules()
HOST = "127.0.0.1:8787"
OWNERS = "o" * 40


class Spy:
    """An application that only notes who came through."""

    def __init__(self):
        self.passed = []

    async def __call__(self, scope, receive, send):
        self.passed.append((scope["method"], scope["path"], scope.get(PERSON)))
        await receive()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def people():
    given = {role: Member(role=role, token=digest_of(token)) for role, token in TOKENS.items()}
    return Accounts("owner", OWNERS, lambda: given)


@pytest.fixture
def spy():
    return Spy()


@pytest.fixture
def gate(spy):
    return RequestGate(spy, people())


def sample(path):
    return re.sub(r"\{[a-z]+:path\}", "a.js", re.sub(r"\{[a-z]+\}", "x", path))


def ask(gate, method, path, headers=None, body=None, query=b"", raw=None, kind="http"):
    """Send one request through; the status, the headers and the body of the answer."""
    rule = TABLE.find(path).get(method)
    form = rule is not None and rule.form
    if body is None:
        body = (FIELDS if form else BODY) if method in ("POST", "PUT") else b""
    media = "application/x-www-form-urlencoded" if form else "application/json"
    given = {"host": HOST, **({"content-type": media} if body else {})}
    given |= {"origin": f"http://{HOST}"} if rule is not None and rule.links else {}
    given |= {"content-length": str(len(body))} if body else {}
    given |= headers or {}
    pairs = [
        (name.encode(), value.encode("latin-1"))
        for name, each in given.items()
        if each is not None
        for value in (each if isinstance(each, list) else [each])
    ]
    scope = {"type": kind, "method": method, "path": path, "raw_path": raw or path.encode()}
    scope |= {"query_string": query, "headers": pairs, "client": ("127.0.0.1", 5)}
    sent = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(gate(scope, receive, send))
    if kind != "http":
        return sent[0]["type"], {}, b""
    start = sent[0]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], found, b"".join(each.get("body", b"") for each in sent[1:])


def bearer(role):
    return {"authorization": f"Bearer {OWNERS if role == 'owner' else TOKENS[role]}"}


PATHS = sorted({rule.path for rule in RULES})
BY_PATH = {path: {rule.method: rule for rule in RULES if rule.path == path} for path in PATHS}


def rule_of(method, path):
    rule = BY_PATH[path].get("GET" if method == "HEAD" else method)
    return None if rule is None or (method == "HEAD" and rule.stream) else rule


STRANGERS = {
    "no token": {},
    "wrong token": {"authorization": "Bearer lh_wrong"},
    "empty token": {"authorization": "Bearer "},
    "basic": {"authorization": "Basic dmlld2VyOng="},
    "made up cookie": {"cookie": f"leadhand_session={'0' * 20}.9999999999.{'0' * 16}.{'0' * 64}"},
    "token in a cookie": {"cookie": f"leadhand_session={TOKENS['approver']}"},
}
BAD_SITES = {
    "foreign origin": {"origin": "https://evil.example"},
    "null origin": {"origin": "null"},
    "other port": {"origin": "http://127.0.0.1:3000"},
    "other scheme": {"origin": f"https://{HOST}"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site"},
    "rebinding": {"host": "evil.example:8787"},
    "rebinding, own origin": {"host": "evil.example", "origin": "http://evil.example"},
    "no host": {"host": None},
    "two hosts": {"host": [HOST, "evil.example"]},
    "host with a path": {"host": "127.0.0.1/evil"},
}


@pytest.mark.parametrize("path", PATHS)
def test_nobody_comes_in_without_a_token(path, gate, spy):
    """Strangers reach what is public, with the method it is public for, and nothing else."""
    for method, (name, headers) in product(METHODS, STRANGERS.items()):
        rule = rule_of(method, path)
        before = len(spy.passed)
        status, _, _ = ask(gate, method, sample(path), headers)
        if rule is not None and rule.people == PUBLIC:
            assert len(spy.passed) == before + 1
            continue
        assert len(spy.passed) == before, (method, path, name)
        assert status in ((401, 429) if rule else (405,)), (method, path, name, status)


@pytest.mark.parametrize("path", PATHS)
def test_a_role_is_enough_or_it_is_not(path, gate, spy):
    """Every route, every method, every role: exactly what the table says."""
    for method, role in product(METHODS, TOKENS):
        rule = rule_of(method, path)
        before = len(spy.passed)
        status, _, _ = ask(gate, method, sample(path), bearer(role))
        allowed = rule is not None and may(role, rule.people)
        assert (len(spy.passed) > before) == allowed, (method, path, role, status)
        if not allowed:
            assert status == (403 if rule else 405)


@pytest.mark.parametrize("path", PATHS)
def test_no_other_site_comes_in_whoever_is_signed_in(path, gate, spy):
    """Foreign origins, other sites and other names are refused, with the best token there is."""
    for method, (name, headers) in product(METHODS, BAD_SITES.items()):
        status, _, _ = ask(gate, method, sample(path), bearer("owner") | headers)
        assert 400 <= status < 500, (method, path, name)
    assert spy.passed == []


@pytest.mark.parametrize("path", PATHS)
def test_bodies_are_json_or_nothing(path, gate, spy):
    """Forms, plain text, compressed, doubled keys, too deep: none is handed on."""
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")
    for method in ("POST", "PUT"):
        if method not in BY_PATH[path] or BY_PATH[path][method].form:
            continue
        for kind in kinds:
            status, _, _ = ask(gate, method, sample(path), bearer("owner") | {"content-type": kind})
            assert status == 415
        packed = bearer("owner") | {"content-encoding": "gzip"}
        assert ask(gate, method, sample(path), packed)[0] == 415
        deep = b"[" * 1000 + b"]" * 1000
        for body in (b"{", b'{"a":1,"a":2}', deep, b'"\\ud800"', b"\xff", b"NaN", b'{"a":1e999}'):
            assert ask(gate, method, sample(path), bearer("owner"), body)[0] == 400, body
    for method in ("GET", "DELETE"):
        if method in BY_PATH[path]:
            assert ask(gate, method, sample(path), bearer("owner"), BODY)[0] == 400
    assert spy.passed == []


@pytest.mark.parametrize("path", [rule.path for rule in RULES if rule.form])
def test_forms_are_few_fields_of_bounded_size(path, gate, spy):
    for kind in ("text/plain", "application/json", "multipart/form-data", ""):
        assert ask(gate, "POST", sample(path), {"content-type": kind})[0] == 415
    assert ask(gate, "POST", sample(path), {"content-encoding": "gzip"})[0] == 415
    many = b"&".join(b"f%d=1" % number for number in range(30))
    for body in (b"a=1&a=2", b"a", b"&&", b"a=%ff", b"\xff=1", many):
        assert ask(gate, "POST", sample(path), body=body)[0] == 400, body
    assert ask(gate, "POST", sample(path), body=b"a=" + b"x" * 70_000)[0] == 413
    assert spy.passed == []


def test_websockets_are_refused(gate, spy):
    """Whatever they ask for, with a token or without (CVE-2026-39987)."""
    for path in (*map(sample, PATHS), "/terminal/ws"):
        kind, _, _ = ask(gate, "GET", path, bearer("approver"), kind="websocket")
        assert kind == "websocket.close"
    assert spy.passed == []


def test_a_public_ending_is_not_public(gate, spy):
    """Only the exact path is exempt (CVE-2026-3514, CVE-2026-7722)."""
    for path in (
        "/api/v1/runs/livez",
        "/api/v1/livez",
        "/api/v1/readyz",
        "/x/livez",
        "/livez/",
        "//livez",
        "/livez/x",
    ):
        status, _, _ = ask(gate, "GET", path)
        assert status in (401, 404), path
    assert spy.passed == []


def test_encoded_slashes_lead_nowhere(gate, spy):
    """A path is what it looks like."""
    for raw in (b"/assets/1/..%2f..%2fsecret.js", b"/assets/1/%5c..%5cx.js", b"/livez%00"):
        assert ask(gate, "GET", "/livez", raw=raw)[0] == 404
    assert spy.passed == []


def test_a_token_in_the_address_is_refused(gate, spy):
    """It would be written down by whoever keeps addresses."""
    for query in (b"token=x", b"access_token=x", b"a=1&TOKEN=", b"api_key=1"):
        assert ask(gate, "GET", "/api/v1/runs", bearer("viewer"), query=query)[0] == 400
    assert spy.passed == []


def test_limits_on_headers_and_bodies(spy):
    """Many, long, doubled: refused before anything is looked at."""
    gate = RequestGate(spy, people(), limits=RequestLimits(body_bytes=100))
    many = {f"x-{number}": "1" for number in range(100)}
    assert ask(gate, "GET", "/api/v1/runs", bearer("viewer") | many)[0] == 431
    assert ask(gate, "GET", "/api/v1/runs", bearer("viewer") | {"x": "y" * 20_000})[0] == 431
    assert ask(gate, "GET", "/api/v1/runs", bearer("viewer"), query=b"q=" + b"x" * 5000)[0] == 414
    assert ask(gate, "GET", f"/api/v1/runs/{'x' * 2000}", bearer("viewer"))[0] == 404
    long = b'"' + b"x" * 200 + b'"'
    assert ask(gate, "POST", "/api/v1/runs", bearer("operator"), long)[0] == 413
    lying = bearer("operator") | {"content-length": "5"}
    assert ask(gate, "POST", "/api/v1/runs", lying, long)[0] == 413
    twice = {"authorization": [f"Bearer {TOKENS['viewer']}", f"Bearer {TOKENS['approver']}"]}
    assert ask(gate, "GET", "/api/v1/runs", twice)[0] == 400
    assert spy.passed == []


def test_a_session_is_for_browsers(gate, spy):
    """A cookie alone may look; to act it takes a browser that says where the request is from."""
    cookie, _ = gate._people.sign_in(gate._people.by_token(TOKENS["approver"]))
    sent = {"cookie": f"a=b; leadhand_session={cookie}"}
    assert ask(gate, "GET", "/api/v1/runs", sent)[0] == 204
    assert ask(gate, "POST", "/api/v1/stop-all", sent)[0] == 403
    own = sent | {"origin": f"http://{HOST}"}
    assert ask(gate, "POST", "/api/v1/stop-all", own)[0] == 204
    assert (
        ask(gate, "DELETE", "/api/v1/stop-all", sent | {"sec-fetch-site": "same-origin"})[0] == 204
    )
    assert ask(gate, "DELETE", "/api/v1/stop-all", sent | {"sec-fetch-site": "none"})[0] == 403
    words, _, mac = cookie.rpartition(".")
    short, ends, nonce = words.split(".")
    for forged in (
        f"{words}.{'0' * 64}",
        f"{short}.{int(ends) + 1}.{nonce}.{mac}",
        f"{digest_of(TOKENS['operator'])[7:27]}.{ends}.{nonce}.{mac}",
    ):
        sent_too = {"cookie": f"leadhand_session={forged}"}
        assert ask(gate, "GET", "/api/v1/runs", sent_too)[0] == 401
    double = {"cookie": f"leadhand_session={cookie}; leadhand_session={cookie}"}
    assert ask(gate, "GET", "/api/v1/runs", double)[0] == 401
    assert [person.name for _, _, person in spy.passed] == ["approver"] * 3


def test_a_link_from_elsewhere_opens_the_page_and_nothing_else(gate, spy):
    """Following a link is no attack; a frame, an image or a script from elsewhere may be."""
    follows = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert ask(gate, "GET", "/", follows)[0] == 204
    assert ask(gate, "GET", "/api/v1/runs", bearer("viewer") | follows)[0] == 403
    assert ask(gate, "GET", "/assets/1/main.js", {"sec-fetch-site": "cross-site"})[0] == 403
    assert len(spy.passed) == 1


def test_every_answer_has_the_headers(gate):
    """Refused or not; and no answer invites another origin."""
    for path, headers in (("/", {}), ("/nothing", {}), ("/api/v1/runs", bearer("viewer"))):
        _, found, _ = ask(gate, "GET", path, headers)
        assert "default-src 'none'" in found["content-security-policy"]
        assert "unsafe" not in found["content-security-policy"]
        assert found["x-content-type-options"] == "nosniff"
        assert found["x-frame-options"] == "DENY"
        assert found["referrer-policy"] == "no-referrer"
        assert found["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in found)


def test_wrong_tokens_are_counted_and_a_right_one_is_always_let_in(gate, spy):
    """From the same address, as behind a proxy, and though the token was never used before."""
    asked = [
        ask(gate, "GET", "/api/v1/runs", {"authorization": f"Bearer lh_{n}"}) for n in range(12)
    ]
    assert [status for status, _, _ in asked] == [401] * 10 + [429] * 2
    assert 0 < int(asked[-1][1]["retry-after"]) <= 61
    for role in TOKENS:
        assert ask(gate, "GET", "/api/v1/runs", bearer(role))[0] == 204
    assert ask(gate, "GET", "/api/v1/runs", {"authorization": "Bearer lh_13"})[0] == 429


def test_one_wrong_token_is_limited_from_all_addresses_together():
    tries = Tries(now=lambda: 7.0)
    waits = [tries.wrong(f"10.0.0.{n}", "lh_leaked") for n in range(12)]
    assert waits == [0] * 10 + [61] * 2
    assert tries.wrong("10.0.0.1", "lh_other") == 0


def test_a_token_that_was_added_just_now_is_known(spy):
    given = {}
    gate = RequestGate(spy, Accounts("owner", "o" * 40, lambda: dict(given)))
    headers = {"authorization": f"Bearer {TOKENS['viewer']}"}
    assert ask(gate, "GET", "/api/v1/runs", headers)[0] == 401
    given["vera"] = Member(role="viewer", token=digest_of(TOKENS["viewer"]))
    assert ask(gate, "GET", "/api/v1/runs", headers)[0] == 204


def test_too_many_at_once_are_sent_away_before_anything_is_accepted(spy):
    """With when to come again."""
    gate = RequestGate(
        spy, people(), limits=RequestLimits(requests=0, streams=0), room=lambda: False
    )
    for path in ("/api/v1/runs", "/api/v1/events"):
        status, headers, body = ask(gate, "GET", path, bearer("viewer"))
        assert (status, headers["content-type"]) == (503, "application/problem+json")
        assert int(headers["retry-after"]) > 0
        assert b'"status":503' in body
    full = RequestGate(spy, people(), room=lambda: False)
    assert ask(full, "POST", "/api/v1/runs", bearer("operator"))[0] == 503
    assert spy.passed == []
    assert ask(full, "POST", "/api/v1/runs/x/pause", bearer("operator"))[0] == 204


# The table and the application speak of the same routes.


def routes(app):
    found = set()
    for route in iter_route_contexts(app.routes):
        for method in getattr(route, "methods", None) or ("?",):
            if method != "HEAD":
                found.add((method, route.path))
    return found


APPROVING = {
    "POST /runs/{run}/review/approve",
    "POST /runs/{run}/review/reject",
    "POST /runs/{run}/review/request_changes",
    "POST /runs/{run}/review/amend",
    "POST /runs/{run}/review/preview",
    "POST /runs/{run}/steps/{step}/reassign",
    "POST /runs/{run}/steps/{step}/release",
    "POST /stop-all",
    "DELETE /stop-all",
}
OWNING = {"POST /people", "PUT /people/{name}", "DELETE /people/{name}"}
"""For approvers, and for the owner, alone. Written once more: a rule that was widened shows."""


def test_who_may_what_is_as_written_down(server, gate, spy):
    """Every operation of the OpenAPI document, with every role and without one."""
    with server.client("viewer") as client:
        paths = client.get("/openapi.json").json()["paths"]
    operations = {
        (method.upper(), path)
        for path, item in paths.items()
        for method in item
        if path.startswith("/api/v1")
    }
    assert len(operations) > 40
    found, owning = set(), set()
    for method, path in sorted(operations):
        name = f"{method} {path.removeprefix('/api/v1')}"
        public = name == "POST /session"
        assert (ask(gate, method, sample(path))[0] == 204) == public, name
        allowed = {
            role for role in TOKENS if ask(gate, method, sample(path), bearer(role))[0] == 204
        }
        if not allowed:
            assert ask(gate, method, sample(path), bearer("owner"))[0] == 204, name
            owning.add(name)
            continue
        assert "approver" in allowed, name
        assert ("viewer" in allowed) == (method == "GET" or name.endswith(" /session")), name
        if "operator" not in allowed:
            found.add(name)
    assert found == APPROVING
    assert owning == OWNING


def test_every_route_has_its_rule(server):
    """A new route without one is refused, and named here."""
    assert routes(build(server.up.app_state)) == {(rule.method, rule.path) for rule in RULES}


def test_a_route_without_a_rule_is_not_served():
    """Whatever the application behind the gate would do."""
    app = FastAPI(openapi_url=None)

    @app.get("/api/v1/hidden")
    async def hidden():
        return {"secret": 1}

    assert ask(RequestGate(app, people()), "GET", "/api/v1/hidden", bearer("approver"))[0] == 404


def test_only_what_is_meant_to_be_is_public():
    """A list that is read when it grows."""
    assert {(rule.method, rule.path) for rule in RULES if rule.people == PUBLIC} == {
        ("GET", "/"),
        ("GET", "/assets/{version}/{file:path}"),
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("POST", "/api/v1/session"),
        ("GET", "/answer/{link}"),
        ("POST", "/answer/{link}"),
        ("POST", "/api/v1/slack"),
    }
    assert all(RouteRules().find(sample(path)) for path in PATHS)


OPERATORS = {
    "DELETE /library/{name}",
    "POST /fleet/drain",
    "POST /fleet/epics",
    "POST /fleet/pause",
    "POST /fleet/resume",
    "POST /fleet/{run}/{task}/message",
    "POST /fleet/{run}/{task}/stop",
    "POST /runs/{run}/next-step",  # hands out what was approved, and nothing else
    "POST /runs/{run}/steps/{step}/extend",
    "POST /runs/{run}/steps/{step}/report",
    "POST /inbox/{run}/{question}/answer",  # not a release, a review, or a protected change
    "POST /plans/draft",
    "POST /plans/lint",
    "POST /runs",
    "POST /runs/{run}/cancel",
    "POST /runs/{run}/export",
    "POST /runs/{run}/pause",
    "POST /runs/{run}/rerun",  # its effects need approval again
    "POST /runs/{run}/resume",
    "POST /runs/{run}/rollback",
    "POST /runs/{run}/verify",
    "POST /runs/{run}/steps/{step}/hold",
    "POST /runs/{run}/steps/{step}/redo",
    "PUT /library/{name}",
}
"""What changes something and is an operator's: none of it lets a held step go."""


def test_what_operators_may_change_is_a_closed_list():
    """A route that lets held steps go, or allows something, is an approver's."""
    changing = [rule for rule in RULES if rule.method != "GET" and rule.people == OPERATOR]
    assert {f"{rule.method} {rule.path.removeprefix(API)}" for rule in changing} == OPERATORS
