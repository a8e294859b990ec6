"""MCP servers behind OAuth: who signs in, where tokens are, and where they never go."""

import asyncio
import stat
import time

import pytest

from leadhand import McpServer
from leadhand.errors import Denied, UsageError
from leadhand.workers.mcp.oauth import AuthorizationFailed
from leadhand.workers.mcp.sign_in import LoopbackReturn, PastedReturn, result_of
from tests.support.attempts import FakeContext, task
from tests.support.oauth_trial import browse, guarded, sign_in


@pytest.fixture
def trial():
    with guarded() as made:
        yield made


def server_of(trial, folder, **auth):
    """The server behind OAuth, as a user configures it."""
    given = {"allow": ["127.0.0.1:*"], **auth}
    return McpServer(name="guarded", url=trial.server, auth=given, tokens=folder)


async def called(server):
    """The report of one call of its tool; the definition is known, as after a pin."""
    try:
        return await server.tool("whoami").perform(task(), FakeContext())
    finally:
        await server.close()


@pytest.fixture
async def signed_in(trial, tmp_path):
    server = server_of(trial, tmp_path)
    server.known(await sign_in(server))
    trial.asked.clear()
    return server


async def test_a_person_signs_in_once(trial, tmp_path):
    """With PKCE and a client that registers itself; runs then use the sign-in."""
    server = server_of(trial, tmp_path)
    listing = await sign_in(server)
    assert list(listing.tools) == ["whoami"]
    assert trial.asked.count("REGISTER") == 1
    assert trial.grants() == ["authorization_code"]
    server.known(listing)
    report = await called(server)
    (token,) = trial.valid
    assert report.data == "called with [secret:guarded.token]"
    path = server.token_file.path
    assert token in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await sign_in(server)
    assert trial.asked.count("REGISTER") == 1  # the same client again


async def test_a_run_never_signs_in(trial, tmp_path):
    """The step fails, and says what a person has to do; nobody is asked and nothing registered."""
    server = server_of(trial, tmp_path)
    with pytest.raises(UsageError, match=r"mcp guarded: .* Fix: leadhand mcp login guarded$"):
        await asyncio.to_thread(server.listing)
    with guarded() as other:
        known = await sign_in(server_of(other, tmp_path / "other"))
    server.known(known)
    report = await called(server)
    assert (report.error.failure_class, report.error.effect) == ("denied", "none")
    assert report.error.message.endswith("Fix: leadhand mcp login guarded")
    assert trial.asked == []


async def test_an_expired_token_is_refreshed_once_by_all(trial, signed_in, tmp_path):
    """A refresh token counts once: those who come at once share one refresh."""
    signed_in.token_file.update(expires_at=time.time() - 1)
    others = [server_of(trial, tmp_path) for _ in range(4)]
    for each in others:
        each.known(signed_in.listing())
    reports = await asyncio.gather(*map(called, others))
    assert {each.status for each in reports} == {"succeeded"}
    assert trial.grants() == ["refresh_token"]


async def test_a_refused_token_is_refreshed(trial, signed_in):
    trial.valid.clear()
    assert (await called(signed_in)).status == "succeeded"
    assert trial.grants() == ["refresh_token"]


async def test_a_sign_in_that_ended_is_said(trial, signed_in):
    trial.valid.clear()
    trial.refresh.clear()
    for _ in range(2):
        report = await called(signed_in)
        assert report.error.failure_class == "denied"
        assert report.error.message.endswith("Fix: leadhand mcp login guarded")
    assert trial.grants() == ["refresh_token"]
    assert (await sign_in(signed_in)).tools
    assert (await called(signed_in)).status == "succeeded"


async def test_an_authorization_server_that_is_down_is_waited_for(trial, signed_in):
    """The sign-in is kept."""
    trial.valid.clear()
    trial.token_status = 503
    assert (await called(signed_in)).error.failure_class == "transient"
    trial.token_status = 200
    assert (await called(signed_in)).status == "succeeded"


@pytest.mark.parametrize(
    ("allow", "named", "why"),
    [
        ([], "http://127.0.0.1:{port}", "is a loopback address; to allow it"),
        ([], "http://169.254.169.254", "is a cloud metadata address"),
        (["127.0.0.1:*"], "https://10.0.0.1", "is a private address"),
        (["127.0.0.1:*"], "https://login.example.com", "is not in the allow list"),
        ([], "http://93.184.216.34", "is public, and a sign-in to it needs https"),
    ],
)
async def test_where_a_server_sends_us_is_judged(trial, tmp_path, allow, named, why):
    """The server names the authorization server, so it could name any address of our network."""
    trial.issuers = [named.format(port=trial.issuer.rpartition(":")[2])]
    server = server_of(trial, tmp_path, allow=allow)
    with pytest.raises(Denied, match=f"the sign-in is refused: .*{why}"):
        await sign_in(server)
    assert not [each for each in trial.asked if "authorization-server" in each]
    assert trial.grants() == []


async def test_the_address_of_the_metadata_is_judged(trial, tmp_path):
    trial.metadata = "http://169.254.169.254/latest/meta-data"
    with pytest.raises(Denied, match="is a cloud metadata address"):
        await sign_in(server_of(trial, tmp_path))


async def test_a_program_signs_in_by_itself(trial, tmp_path, monkeypatch):
    monkeypatch.setenv("TRIAL_SECRET", "a secret of the client")
    auth = {"grant": "client_credentials", "client_id": "us", "client_secret": "TRIAL_SECRET"}
    server = server_of(trial, tmp_path, **auth, issuer=trial.issuer)
    await server.load()
    report = await called(server)
    assert report.data == "called with [secret:guarded.token]"
    assert trial.grants() == ["client_credentials"]
    (form,) = trial.forms
    assert form["client_secret"] == "a secret of the client"  # as its metadata wants it
    assert form["resource"] == trial.server
    assert list(tmp_path.iterdir()) == []
    trial.valid.clear()
    assert (await called(server)).status == "succeeded"
    assert trial.grants() == ["client_credentials"] * 2
    assert "TRIAL_SECRET" in server.secret_names


@pytest.mark.parametrize("grant", ["client_credentials", "authorization_code"])
async def test_a_secret_goes_to_its_issuer_only(trial, tmp_path, monkeypatch, grant):
    """A server that names another authorization server gets no secret sent there."""
    monkeypatch.setenv("TRIAL_SECRET", "a secret of the client")
    auth = {"grant": grant, "client_id": "us", "client_secret": "TRIAL_SECRET"}
    server = server_of(trial, tmp_path, **auth, issuer="https://login.example.com")
    with pytest.raises(Denied, match="issuer"):
        await (sign_in(server) if server.token_file else server.read())
    assert trial.grants() == []


async def test_a_secret_waits_for_the_metadata_of_its_issuer(trial, tmp_path, monkeypatch):
    """Where they cannot be read, the MCP server is not taken for the authorization server."""
    monkeypatch.setenv("TRIAL_SECRET", "a secret of the client")
    tenant = f"{trial.issuer}/tenant"
    trial.issuers = [tenant]
    auth = {"client_id": "us", "client_secret": "TRIAL_SECRET", "issuer": tenant}
    with pytest.raises(Denied, match=r"the metadata of the issuer .*/tenant cannot be read"):
        await sign_in(server_of(trial, tmp_path, **auth))
    assert trial.grants() == []
    assert not [each for each in trial.asked if each.startswith("GET /authorize")]


async def test_a_secret_does_not_go_to_an_earlier_issuer(trial, tmp_path, monkeypatch):
    monkeypatch.setenv("TRIAL_SECRET", "a secret of the client")
    auth = {"client_id": "us", "client_secret": "TRIAL_SECRET"}
    before = server_of(trial, tmp_path, **auth, issuer=trial.issuer)
    listing = await sign_in(before)
    trial.valid.clear()
    trial.forms.clear()
    server = server_of(trial, tmp_path, **auth, issuer="https://login.example.com")
    server.known(listing)
    report = await called(server)
    assert report.error.message.endswith("Fix: leadhand mcp login guarded")
    assert trial.forms == []


async def test_what_a_token_endpoint_echoes_is_in_no_log(trial, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TRIAL_SECRET", "a-secret-of-the-client")
    monkeypatch.setattr(trial, "token", lambda form: (400, {"error": "no", "asked": form}))
    auth = {"grant": "client_credentials", "client_id": "us", "client_secret": "TRIAL_SECRET"}
    server = server_of(trial, tmp_path, **auth, issuer=trial.issuer)
    with pytest.raises(Denied) as failed:
        await server.read()
    assert "a-secret-of-the-client" not in caplog.text + str(failed.value)


async def test_a_file_that_others_may_read_is_not_used(trial, signed_in):
    signed_in.token_file.path.chmod(0o644)
    report = await called(signed_in)
    assert "others may read or write this sign-in. Fix: chmod 600" in report.error.message
    assert "CALL tools/call" not in trial.asked  # the sign-in before may still have listened


async def test_another_project_signs_in_by_itself(trial, signed_in, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    auth = {"allow": ["127.0.0.1:*"]}
    other = McpServer(name="guarded", url=trial.server, auth=auth, tokens=tmp_path, cwd=elsewhere)
    other.known(signed_in.listing())
    assert (await called(other)).error.failure_class == "denied"


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({"client_secret": "A"}, "needs client_id and issuer"),
        ({"grant": "client_credentials"}, "needs client_secret or private_key"),
        ({"client_secret": "s3cr3t-value!"}, "the name of the environment variable"),
        ({"issuer": "file:///etc/passwd"}, "must be an address"),
        ({"client_metadata_url": "http://a.example/b"}, "must begin with https"),
        ({"allow": ["a:b"]}, "is not a port"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_mistakes_of_the_table_are_named(auth, why):
    with pytest.raises(UsageError, match=why) as found:
        McpServer(name="guarded", url="https://a.example/mcp", auth=auth)
    assert "s3cr3t" not in str(found.value)


def test_auth_belongs_to_an_address_without_another_header():
    with pytest.raises(UsageError, match="auth needs `url`"):
        McpServer(name="guarded", command=["x"], auth={})
    headers = {"Authorization": {"env": "T"}}
    with pytest.raises(UsageError, match="exclude another"):
        McpServer(name="guarded", url="https://a.example/mcp", auth={}, headers=headers)


async def test_only_the_answer_with_our_state_counts():
    """A page in the person's browser can reach the port, and cannot end the sign-in."""
    async with LoopbackReturn() as way:
        place = f"http://127.0.0.1:{way.port}"
        waiting = asyncio.ensure_future(way.result("right"))
        for bad in (
            "/callback?code=x&state=wrong",
            "/callback?code=x",
            "/other?state=right&code=x",
        ):
            with pytest.raises(OSError, match="400"):
                await asyncio.to_thread(browse, place + bad)
            assert not waiting.done()
        said = await asyncio.to_thread(browse, f"{place}/callback?code=abc&state=right&iss=i")
        assert said.startswith("Signed in.")
        found = await waiting
    assert (found.code, found.state, found.iss) == ("abc", "right", "i")


async def test_the_address_can_be_pasted():
    good = PastedReturn(0, lambda: "http://127.0.0.1:8765/callback?code=abc&state=right\n")
    assert (await good.result("right")).code == "abc"
    bad = PastedReturn(0, lambda: "http://127.0.0.1:8765/callback?code=abc&state=wrong\n")
    with pytest.raises(AuthorizationFailed, match="not the address of the answer"):
        await bad.result("right")
    with pytest.raises(AuthorizationFailed, match="refused: access_denied: no"):
        result_of("/callback?error=access_denied&error_description=no&state=right", "right")
