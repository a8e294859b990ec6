"""HTTP workers against a real server on the loopback address."""

import asyncio
import datetime as dt
import email.utils
import gzip
import json
import logging
import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager

import httpx2
import msgspec
import pytest

from leadhand.codec.expressions import ExpressionError
from leadhand.errors import UsageError
from leadhand.workers.declared import declared_workers
from leadhand.workers.http.netguard import AddressRefused
from leadhand.workers.http.request import Header, HttpAction, HttpRequest, Url
from leadhand.workers.http.worker import Exchange, HttpWorker, Network, retry_after_s
from tests.support.attempts import FakeContext, task
from tests.support.need import need


class Server:
    """Answers each path with what the test put there, and remembers what it was asked."""

    def __init__(self):
        self.answers = {}
        self.requests = []
        self.port = 0
        self.tls = None

    @property
    def base(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def answer(self, path, status=200, body=b"", headers=None, raw=None):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers = {"content-type": "application/json", **(headers or {})}
        lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}"]
        lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
        self.answers[path] = raw or ("\r\n".join(lines) + "\r\n\r\n").encode() + body

    async def handle(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            method, target, _ = first.split()
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append((method, target, headers, body))
            said = self.answers.get(target.partition("?")[0], b"HTTP/1.1 404 None\r\n\r\n")
            if callable(said):
                await said(reader, writer)
            else:
                writer.write(said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(tls=None):
    server = Server()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=tls)
    server.port, server.tls = listener.sockets[0].getsockname()[1], tls
    try:
        yield server
    finally:
        listener.close()


@pytest.fixture
async def server():
    async with serving() as running:
        yield running


def made(server, path="/x", **table):
    """A worker for one path of the server."""
    table = {"url": server.base + path, "allow": [f"127.0.0.1:{server.port}"], **table}
    (worker,) = declared_workers({"it": table})
    return worker


async def perform(worker, **parameters):
    return await worker.perform(task(**parameters), FakeContext())


# --- what is sent ---------------------------------------------------------------------------


async def test_a_get_gives_status_headers_and_json(server):
    server.answer("/x", body={"price": 3}, headers={"etag": '"1"', "set-cookie": "a=b"})
    report = await perform(made(server))
    assert report.data == {
        "status": 200,
        "headers": {"content-type": "application/json", "etag": '"1"'},
        "json": {"price": 3},
    }
    method, target, headers, _ = server.requests[0]
    assert (method, target) == ("GET", "/x")
    assert headers["host"] == f"127.0.0.1:{server.port}"
    assert "idempotency-key" not in headers


async def test_values_stay_in_their_place(server):
    path = "/a%2Fb%3Fc%23d%20e%C3%A9%25/end"
    server.answer(path)
    worker = made(server, "/{name}/end?q={q}&fixed=1")
    report = await perform(worker, name="a/b?c#d eé%", q="1&admin=true=#")
    assert report.status == "succeeded", report
    assert server.requests[0][1] == path + "?q=1%26admin%3Dtrue%3D%23&fixed=1"


@pytest.mark.parametrize("value", ["..", ".", "", "%2e%2e"])
async def test_a_path_value_cannot_change_the_path(server, value):
    server.answer("/users/%252e%252e")
    report = await perform(made(server, "/users/{id}", method="DELETE"), id=value)
    if value == "%2e%2e":
        assert server.requests[0][1] == "/users/%252e%252e"
    else:
        assert report.error.failure_class == "permanent"
        assert "parameter id" in report.error.message
        assert server.requests == []


async def test_a_json_body_takes_values_as_they_are(server):
    server.answer("/x", 201)
    body = {"items": "{items}", "note": "for {who}", "n": 1, "literal": "{{x}}"}
    worker = made(server, method="POST", json=body)
    report = await perform(worker, items=[1, {"a": None}], who="me")
    assert report.data["status"] == 201
    method, _, headers, sent = server.requests[0]
    assert method == "POST"
    assert json.loads(sent) == {
        "items": [1, {"a": None}],
        "note": "for me",
        "n": 1,
        "literal": "{x}",
    }
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"] == "key-1"
    assert worker.spec.offers[""].parameters["properties"]["items"] == {}


async def test_secrets_come_from_the_environment_and_are_shown_nowhere(server, caplog, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "s3cr3t-canary")
    caplog.set_level(logging.DEBUG)
    server.answer("/x", 500, b"no")
    headers = {"Authorization": {"env": "API_TOKEN", "prefix": "Bearer "}, "X-For": "{who}"}
    worker = made(server, headers=headers)
    report = await perform(worker, who="me")
    sent = server.requests[0][2]
    assert (sent["authorization"], sent["x-for"]) == ("Bearer s3cr3t-canary", "me")
    assert "canary" not in repr(report) + caplog.text + repr(worker.spec) + worker.spec.version


async def test_a_missing_secret_is_named_and_nothing_is_sent(server):
    worker = made(server, headers={"Authorization": {"env": "NOT_SET_ANYWHERE"}})
    report = await perform(worker)
    assert (report.error.failure_class, report.error.effect) == ("unavailable", "none")
    assert "NOT_SET_ANYWHERE" in report.error.message
    assert server.requests == []


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "é"])
async def test_a_header_value_cannot_add_a_line(server, value):
    report = await perform(made(server, headers={"X-For": "{who}"}), who=value)
    assert report.error.failure_class == "permanent"
    assert server.requests == []


async def test_unknown_and_missing_parameters_are_named(server):
    worker = made(server, "/{id}")
    assert "parameter id" in (await perform(worker)).error.message
    assert "parameter extra" in (await perform(worker, id=1, extra=2)).error.message
    assert server.requests == []


# --- what comes back ------------------------------------------------------------------------

STATUSES = [
    # status, class, effect after GET, effect after POST
    (400, "permanent", "none", "none"),
    (401, "denied", "none", "none"),
    (403, "denied", "none", "none"),
    (404, "unavailable", "none", "none"),
    (408, "transient", "none", "none"),
    (409, "permanent", "none", "none"),
    (410, "unavailable", "none", "none"),
    (413, "too_complex", "none", "none"),
    (418, "permanent", "none", "none"),
    (422, "permanent", "none", "none"),
    (425, "transient", "none", "none"),
    (429, "rate_limited", "none", "none"),
    (500, "transient", "none", "unknown"),
    (501, "unavailable", "none", "none"),
    (502, "transient", "none", "unknown"),
    (503, "transient", "none", "none"),
    (504, "transient", "none", "unknown"),
    (529, "transient", "none", "none"),
    (304, "permanent", "none", "none"),
]


@pytest.mark.parametrize(("status", "failure_class", "after_get", "after_post"), STATUSES)
async def test_what_a_status_means(server, status, failure_class, after_get, after_post):
    server.answer("/x", status, b"because")
    for method, effect in (("GET", after_get), ("POST", after_post)):
        error = (await perform(made(server, method=method))).error
        assert (error.failure_class, error.effect) == (failure_class, effect)
        assert error.details == {"status": status}
        assert f"{method} {server.base}/x: answered {status}" in error.message
        assert status == 304 or "because" in error.message


async def test_retry_after_is_read_in_both_forms(server):
    server.answer("/x", 429, headers={"retry-after": "7"})
    assert (await perform(made(server))).error.retry_after_s == 7.0
    then = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60)
    server.answer(
        "/x", 503, headers={"retry-after": email.utils.format_datetime(then, usegmt=True)}
    )
    assert 55 < (await perform(made(server))).error.retry_after_s <= 60


@pytest.mark.parametrize("text", [None, "", "soon", "-1", "1.5", "Wed, 99 Foo 2020", "٣"])
def test_a_retry_after_nobody_understands_is_ignored(text):
    assert retry_after_s(text, 0.0) is None


def test_a_retry_after_in_the_past_means_now():
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT", 2e9) == 0.0


async def test_expected_statuses(server):
    server.answer("/x", 404, b"gone")
    report = await perform(made(server, expect_status=[200, 404]))
    assert report.data["status"] == 404
    server.answer("/x", 202)
    report = await perform(made(server, method="POST", expect_status=[200]))
    assert (report.error.failure_class, report.error.effect) == ("invalid_output", "done")


BAD_BODIES = [b"{", b'{"a": NaN}', b"[" * 5000, b'"\xff"', b'{"a": 1e999}', b'"\\ud800"']


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_json_that_is_none_is_invalid_output(server, body):
    server.answer("/x", body=body, headers={"content-type": "application/json; charset=utf-8"})
    report = await perform(made(server))
    assert report.error.failure_class == "invalid_output"


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain", b"caf\xc3\xa9 \xff \0", "café \\xff \\x00"),
        ("text/plain; charset=latin-1", b"caf\xe9", "café"),
        ("text/plain; charset=nonsense", b"ok", "ok"),
        ("text/plain; charset=zlib", b"ok", "ok"),
        ("application/json", b"", ""),
    ],
)
async def test_text_is_kept_whatever_its_bytes(server, kind, body, text):
    server.answer("/x", body=body, headers={"content-type": kind})
    report = await perform(made(server))
    assert report.data["text"] == text
    msgspec.json.encode(report.data)


@pytest.mark.parametrize("packed", [False, True])
async def test_a_large_answer_is_cut_off_while_it_streams(server, packed):
    body = gzip.compress(b"\0" * 50_000_000) if packed else b"x" * 300_000
    server.answer("/x", body=body, headers={"content-encoding": "gzip"} if packed else {})
    report = await perform(made(server, max_bytes=100_000, method="POST"))
    assert (report.error.failure_class, report.error.effect) == ("too_complex", "done")
    assert "100,000 bytes" in report.error.message


async def test_an_endless_answer_ends(server):
    async def endless(_reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    server.answers["/x"] = endless
    assert (await perform(made(server, max_bytes=1_000_000))).error.failure_class == "too_complex"


async def test_bytes_that_do_not_decompress(server):
    server.answer("/x", body=b"not gzip", headers={"content-encoding": "gzip"})
    assert (await perform(made(server))).error.failure_class == "invalid_output"


# --- what goes wrong on the way -------------------------------------------------------------


async def test_a_refused_connection_is_transient_and_has_no_effect(server):
    worker = made(server, method="POST")
    async with serving() as other:
        gone = other.port
    worker = declared_workers(
        {
            "it": {
                "url": f"http://127.0.0.1:{gone}/",
                "allow": [f"127.0.0.1:{gone}"],
                "method": "POST",
            }
        }
    )[0]
    error = (await perform(worker)).error
    assert (error.failure_class, error.effect) == ("transient", "none")


@pytest.mark.parametrize(
    ("method", "failure_class", "effect"),
    [("GET", "transient", "none"), ("POST", "lost", "unknown"), ("DELETE", "lost", "unknown")],
)
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"])
async def test_a_connection_lost_after_sending(server, method, failure_class, effect, said):
    server.answers["/x"] = said or b""

    async def hang_up(_reader, writer):
        writer.write(said)

    server.answers["/x"] = hang_up
    error = (await perform(made(server, method=method))).error
    assert (error.failure_class, error.effect) == (failure_class, effect)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_silence_is_a_time_out_with_unknown_effect(server, method):
    async def silent(reader, _writer):
        await reader.read()

    server.answers["/x"] = silent
    error = (await perform(made(server, method=method, timeout=0.2))).error
    assert (error.failure_class, error.effect) == ("timeout", "unknown")


async def test_a_drip_is_a_time_out_too(server):
    async def drip(_reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(1000):
            writer.write(b".")
            await asyncio.sleep(0.02)

    server.answers["/x"] = drip
    assert (await perform(made(server, timeout=0.3))).error.failure_class == "timeout"


async def test_cancelling_hangs_up(server):
    gone = asyncio.Event()

    async def silent(reader, _writer):
        await reader.read()
        gone.set()

    server.answers["/x"] = silent
    running = asyncio.create_task(perform(made(server)))
    while not server.requests:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(gone.wait(), 60)


async def test_names_that_do_not_resolve():
    (worker,) = declared_workers({"it": {"url": "http://no-such-host.invalid/"}})
    error = (await perform(worker)).error
    assert error.failure_class in ("unavailable", "transient")
    assert "no-such-host.invalid cannot be resolved" in error.message


# --- where it may go ------------------------------------------------------------------------


def with_resolver(worker, answers):
    """The same worker with a resolver of the test's making; counts how often it is asked."""

    async def resolve(host, _port):
        answers.setdefault("asked", []).append(host)
        return answers[host]

    return HttpWorker(worker.spec, worker._calls, resolve=resolve)


async def test_the_loopback_is_refused_unless_listed(server):
    server.answer("/x")
    with pytest.raises(UsageError, match=r"a loopback address; to allow it, add '127\.0\.0\.1:"):
        declared_workers({"it": {"url": f"http://127.0.0.1:{server.port}/x"}})


async def test_the_checked_address_is_the_one_connected_to_and_the_name_is_kept(server):
    server.answer("/x", body={"ok": True})
    name = f"svc.example:{server.port}"
    (worker,) = declared_workers({"it": {"url": f"http://{name}/x", "allow": [name]}})
    answers = {"svc.example": ["127.0.0.1"]}
    report = await perform(with_resolver(worker, answers))
    assert report.data["json"] == {"ok": True}
    assert server.requests[0][2]["host"] == name
    assert answers["asked"] == ["svc.example"]


async def test_the_next_address_is_tried_when_one_does_not_answer(server):
    server.answer("/x")
    name = f"svc.example:{server.port}"
    (worker,) = declared_workers({"it": {"url": f"http://{name}/x", "allow": [name]}})
    answers = {"svc.example": ["127.0.0.9", "127.0.0.1"]}
    assert (await perform(with_resolver(worker, answers))).status == "succeeded"


async def test_a_host_from_a_parameter_must_be_listed(server):
    server.answer("/x")
    allow = [f"127.0.0.1:{server.port}", f"svc.example:{server.port}"]
    url = f"http://{{host}}:{server.port}/x"
    with pytest.raises(UsageError, match="needs an `allow` list"):
        declared_workers({"it": {"url": url}})
    (worker,) = declared_workers({"it": {"url": url, "allow": allow}})
    assert (await perform(worker, host="127.0.0.1")).status == "succeeded"
    for host in ("localhost", "127.0.0.2", "example.com", "169.254.169.254"):
        error = (await perform(worker, host=host)).error
        assert (error.failure_class, error.effect) == ("denied", "none"), host
    for host in ("a@127.0.0.1", "127.0.0.1/", "127.0.0.1:1", "a\\b", "", "[::1]", "a b"):
        assert (await perform(worker, host=host)).error.failure_class == "permanent", host


# --- redirects ------------------------------------------------------------------------------


async def test_redirects_are_followed(server):
    server.answer("/x", 302, headers={"location": "/y?a=1"})
    server.answer("/y", body={"there": True})
    report = await perform(made(server))
    assert report.data["json"] == {"there": True}
    assert [request[1] for request in server.requests] == ["/x", "/y?a=1"]


async def test_redirects_end(server):
    server.answer("/x", 302, headers={"location": "/x"})
    error = (await perform(made(server))).error
    assert (error.failure_class, len(server.requests)) == ("permanent", 6)


TARGETS = [
    "http://127.0.0.1:1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://2852039166/",
    "http://0x7f.1:{port}/",
    "http://[::1]:{port}/",
    "http://localhost:{port}/y",
    "http://user:pw@127.0.0.1:{port}/y",
    "//127.0.0.2:{port}/y",
    "http://10.0.0.1/",
    "http://example.com:22/",
    "http://evil.example/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://127.0.0.1/",
    "http://127.0.0.1:{port}\\@evil.example/",
    "http://①②⑦.0.0.1/",
    "http://127.0.0.1%00.example/",
    "http://[::1%25lo]/",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_redirects_to_bad_places_are_refused(server, target):
    server.answer(
        "/x", 302, headers={"location": target.format(port=server.port).encode().decode("latin-1")}
    )
    server.answer("/y", body={"stolen": True})
    report = await perform(made(server))
    if "0x7f" in target:
        # 127.0.0.1 with the listed port, in disguise: the very place that was allowed.
        assert report.error.failure_class == "unavailable"
        return
    assert report.error is not None, target
    assert report.error.failure_class in ("denied", "permanent")
    assert len(server.requests) == 1


async def test_another_origin_gets_no_secrets(server, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "s3cr3t")
    async with serving() as other:
        server.answer("/x", 302, headers={"location": f"{other.base}/y"})
        other.answer("/y", body={"ok": True})
        headers = {
            "Authorization": {"env": "API_TOKEN"},
            "X-Api-Key": {"env": "API_TOKEN"},
            "Cookie": "a=b",
            "Accept": "text/x-special",
        }
        allow = [f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"]
        report = await perform(made(server, headers=headers, allow=allow))
        assert report.data["json"] == {"ok": True}
        got = other.requests[0][2]
        assert not {"authorization", "x-api-key", "cookie"} & set(got)
        assert got["accept"] == "text/x-special"
        assert got["host"] == f"127.0.0.1:{other.port}"


async def test_see_other_after_a_post_is_a_get(server):
    server.answer("/x", 303, headers={"location": "/y"})
    server.answer("/y", body={"done": 1})
    report = await perform(made(server, method="POST", json={"a": 1}))
    assert report.data["json"] == {"done": 1}
    method, _, headers, body = server.requests[1]
    assert (method, body) == ("GET", b"")
    assert "content-type" not in headers


async def test_a_temporary_redirect_keeps_the_body_on_the_same_origin(server):
    server.answer("/x", 307, headers={"location": "/y"})
    server.answer("/y")
    await perform(made(server, method="POST", json={"a": 1}))
    assert server.requests[1][0] == "POST"
    assert json.loads(server.requests[1][3]) == {"a": 1}


async def test_after_a_post_a_refused_redirect_leaves_the_effect_unknown(server):
    server.answer("/x", 303, headers={"location": "http://169.254.169.254/"})
    error = (await perform(made(server, method="POST"))).error
    assert (error.failure_class, error.effect) == ("denied", "unknown")


@pytest.mark.parametrize(
    ("status", "target", "fine"),
    [
        (307, "https://b.example/y", False),
        (308, "https://a.example:8443/y", True),
        (302, "https://b.example/y", True),
        (302, "http://a.example/y", False),
    ],
)
def test_a_body_does_not_follow_to_another_host_and_https_stays_https(status, target, fine):
    call = HttpAction(url=Url.of("https://a.example/"), method="POST")
    request = HttpRequest("POST", "https://a.example/", {"Authorization": "x"}, b"{}")
    exchange = Exchange(Network(), call, request, "")
    if fine:
        exchange._redirected(httpx2.URL("https://a.example/"), target, status)
        assert "authorization" not in exchange.headers
    else:
        with pytest.raises(AddressRefused):
            exchange._redirected(httpx2.URL("https://a.example/"), target, status)


async def test_proxies_of_the_environment_are_ignored(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.answer("/x")
    assert (await perform(made(server))).status == "succeeded"


# --- TLS ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    need(shutil.which("openssl"), "openssl makes the certificate for the TLS test")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=svc.example", "-addext", "subjectAltName=DNS:svc.example",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


async def test_tls_is_checked_against_the_name_not_the_address(certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    names = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    trust = ssl.create_default_context(cafile=certificate / "cert.pem")
    async with serving(tls) as server:
        server.answer("/x", body={"ok": True})
        answers = {"svc.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}

        async def resolve(host, _port):
            return answers[host]

        for host, fine in (("svc.example", True), ("other.example", False)):
            name = f"{host}:{server.port}"
            (made_,) = declared_workers({"it": {"url": f"https://{name}/x", "allow": [name]}})
            worker = HttpWorker(made_.spec, made_._calls, resolve=resolve, tls=trust)
            report = await perform(worker)
            assert (report.status == "succeeded") == fine
        assert names == ["svc.example", "other.example"]
        assert (report.error.failure_class, report.error.effect) == ("unavailable", "none")
        assert "certificate" in report.error.message


# --- probes, checks, description ------------------------------------------------------------


async def test_a_probe_says_happened_or_not_or_cannot_tell(server):
    worker = made(
        server, "/orders", method="POST", json={"id": "{id}"}, probe=server.base + "/orders/{id}"
    )
    server.answer("/orders/7", body={"id": 7})
    assert (await worker.probe(task(id=7), FakeContext())).data["json"] == {"id": 7}
    assert await worker.probe(task(id=8), FakeContext()) is None
    server.answer("/orders/9", 500)
    with pytest.raises(LookupError, match="cannot tell"):
        await worker.probe(task(id=9), FakeContext())
    with pytest.raises(LookupError):
        await made(server).probe(task(), FakeContext())


async def test_a_probe_ignores_the_parameters_it_does_not_use(server):
    worker = made(
        server,
        "/orders",
        method="POST",
        json={"id": "{id}", "shop": "{shop}", "items": "{items}"},
        parameters={"id": "integer", "shop": {"type": "string", "default": "eu"}, "items": "array"},
        probe=server.base + "/{shop}/orders/{id}",
    )
    server.answer("/eu/orders/7", body={"id": 7})
    assert (await worker.probe(task(id=7, items=[1]), FakeContext())).data["json"] == {"id": 7}
    assert await worker.probe(task(id=7, items=[1], shop="us"), FakeContext()) is None


def test_checks_are_expressions(server):
    worker = made(server, checks={"found": "data.json.n > 0"}, check="data.status == 200")
    assert worker.check("found", "", {"json": {"n": 1}})
    assert not worker.check("found", "", {"json": {"n": 0}})
    with pytest.raises(ExpressionError, match="there is no 'n'"):
        worker.check("found", "", {"json": {}})
    with pytest.raises(LookupError, match="there is no check 'other'"):
        worker.check("other", "", {"json": {"n": 1}})
    assert worker.check("", "", {"status": 200})


@pytest.mark.parametrize(
    ("method", "idempotent"),
    [
        ("GET", True),
        ("HEAD", True),
        ("PUT", True),
        ("DELETE", True),
        ("POST", False),
        ("PATCH", False),
    ],
)
def test_what_is_idempotent_by_itself(server, method, idempotent):
    spec = made(server, method=method).spec
    assert (spec.kind, spec.trusted, spec.default_risk()) == ("http", False, "medium")
    assert spec.offers[""].idempotent is idempotent


@pytest.mark.parametrize(
    "url",
    ["ftp://a/", "http://u:p@a/", "http://a/#f", "http://a b/", "//a/", "http:///x", "{s}://a/",
     "http://a\\b/", "http://a%2e/", "http://a/{", "http://a/{x...}", "http://a:x/"],
)  # fmt: skip
def test_urls_that_cannot_be_declared(url):
    with pytest.raises(ValueError):
        _ = Url.of(url).host


@pytest.mark.parametrize(
    ("name", "value"),
    [("Host", "x"), ("Content-Length", "1"), ("A b", "x"), ("A:", "x"), ("X", {"env": ""}),
     ("X", {"file": "x"}), ("X", 1), ("Transfer-Encoding", "chunked"), ("X", {"env": 1})],
)  # fmt: skip
def test_headers_that_cannot_be_declared(name, value):
    with pytest.raises(ValueError):
        Header.of(name, value)


def test_headers_that_stand_in_the_settings_are_kept_out_of_the_log():
    """Those that say what is sent, and in which form, are no secrets."""
    headers = {"X-Api": "abc-123456", "Accept": "application/vnd.x.v3+json", "X-Id": "{id}"}
    table = {"url": "https://example.com/{id}", "headers": headers}
    (worker,) = declared_workers({"tickets": table})
    assert worker.given_values == {"X-Api": "abc-123456"}
