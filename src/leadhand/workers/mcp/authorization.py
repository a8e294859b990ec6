"""The tokens that calls to an MCP server carry, by the SDK's OAuth client.

The transport (`http`) asks for a token, sends, and shows what was refused. There are three kinds of
`Authorization`: a sign-in that a person made earlier (`StoredSignIn`), the credentials of a program
(`ClientCredentials`), and a sign-in that a person makes now (`SignIn`, for `leadhand mcp login`).

The SDK's own flow holds a lock while a request is under way, keeps no expiry and no metadata over a
restart, and asks for a new sign-in where a refresh would do. So it is driven here only to get a
token, and everything around it is ours. Requests of a flow are sent by the transport, which judges
their addresses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from leadhand.workers.mcp.oauth import (
    AuthorizationFailed,
    Challenge,
    OAuth,
    SignedIn,
    TokenFile,
)
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.shared.auth import AuthorizationCodeResult

    Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]

CLIENT_NAME = "Leadhand"

# The SDK logs a failed sign-in with the whole answer, which may hold a token or the secret.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class Authorization(Protocol):
    """Where the token of a call comes from.

    - `send`: sends a request of the flow itself, to a judged address.
    - `response`: an answer to a call; `token`: the token that the call carried, or "".
    """

    @property
    def advice(self) -> str:
        """Return what a person can do if every token is refused, as the end of a message."""

    async def token(self, send: Send) -> str:
        """Return a token, or "" for none. Raise `AuthorizationFailed`."""

    def challenge(self, response: httpx2.Response) -> httpx2.Response | None:
        """Return the refusal that needs another token; None if the answer is none."""

    async def renew(self, response: httpx2.Response, token: str, send: Send) -> None:
        """Get another token after a refusal. Raise `AuthorizationFailed` if there is no way."""


def refused(response: httpx2.Response) -> httpx2.Response | None:
    """Return an answer that refuses the token or its scopes; None for any other."""
    if response.status_code == 401:
        return response
    lacks = extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return response if response.status_code == 403 and lacks else None


async def obtain(provider: OAuthClientProvider, challenge: httpx2.Response, send: Send) -> None:
    """Let the SDK's flow get a token after a refusal. Raise `AuthorizationFailed`."""
    probe = httpx2.Request("POST", provider.context.server_url, headers=challenge.request.headers)
    flow = provider.async_auth_flow(probe)
    shown = False
    try:
        outgoing = await anext(flow)
        while True:
            if outgoing is not probe:
                response = await send(outgoing)
            elif shown:
                return
            else:
                response, shown = challenge, True
            outgoing = await flow.asend(response)
    except StopAsyncIteration:
        return
    except OAuthFlowError as error:
        text = bounded_text(str(error), 500)
        # Why an answer is invalid would be said with a piece of it, which may be a token.
        text = text.partition(":")[0] if text.startswith("Invalid ") else text
        raise AuthorizationFailed(f"the sign-in failed: {text}") from None
    except ValueError:
        raise AuthorizationFailed("the sign-in failed: an answer is malformed") from None
    finally:
        await flow.aclose()


class _FileStorage:
    """The SDK's storage of tokens, in our file."""

    def __init__(self, file: TokenFile) -> None:
        self._file = file

    async def get_tokens(self) -> OAuthToken | None:
        kept = self._file.read().token
        return None if kept is None else OAuthToken.model_validate(kept)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        ends = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._file.update(token=_doc(tokens), expires_at=ends, challenge=None)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        kept = self._file.read().client
        return None if kept is None else OAuthClientInformationFull.model_validate(kept)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._file.update(client=_doc(client_info))


class MemoryStorage:
    """The SDK's storage of tokens, in memory: a program can sign in at any time."""

    def __init__(self) -> None:
        self.token: OAuthToken | None = None
        self.ends: float | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the token, if there is one."""
        return self.token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep a token."""
        self.token = tokens
        self.ends = None if tokens.expires_in is None else time.time() + tokens.expires_in

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return None: the client is configured."""
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Do nothing: the client is configured."""


def _doc(model: Any) -> dict[str, Any]:
    doc: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return doc


def _use_method(provider: OAuthClientProvider) -> None:
    """Choose how a client with a secret shows it, unless the server that registered it has said."""
    client, server = provider.context.client_info, provider.context.oauth_metadata
    if client is None or not client.client_secret or client.token_endpoint_auth_method:
        return
    known = server.token_endpoint_auth_methods_supported if server is not None else None
    usable = [
        each for each in ("client_secret_basic", "client_secret_post") if each in (known or ())
    ]
    client.token_endpoint_auth_method = usable[0] if usable else "client_secret_basic"


class PersonProvider(OAuthClientProvider):
    """The SDK's flow for a person, with what an earlier sign-in left in the file."""

    def __init__(
        self,
        url: str,
        auth: OAuth,
        file: TokenFile,
        redirect_uri: str,
        show: Callable[[str], Awaitable[None]] | None = None,
        wait: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> None:
        metadata = OAuthClientMetadata(
            client_name=CLIENT_NAME, redirect_uris=[AnyUrl(redirect_uri)]
        )
        own = auth.client_metadata_url or None
        super().__init__(url, metadata, _FileStorage(file), show, wait, own)
        self._auth, self._file = auth, file
        self._redirect_port = metadata.redirect_uris[0].port if metadata.redirect_uris else 0

    async def _initialize(self) -> None:
        await super()._initialize()
        kept, context = self._file.read(), self.context
        if kept.authorization_server is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(kept.authorization_server)
            if not self._is_of_issuer():
                context.oauth_metadata = None  # another issuer was configured since then
        if kept.resource is not None:
            found = ProtectedResourceMetadata.model_validate(kept.resource)
            context.protected_resource_metadata = found
        redirects = context.client_metadata.redirect_uris
        if self._auth.client_id:
            context.client_info = OAuthClientInformationFull(
                client_id=self._auth.client_id,
                client_secret=self._auth.secret() or None,
                token_endpoint_auth_method=None,
                redirect_uris=redirects,
            )
        elif context.redirect_handler is not None and context.client_info is not None:
            known = [str(each) for each in context.client_info.redirect_uris or ()]
            if [str(each) for each in redirects or ()] != known:
                context.client_info = None  # it was registered for another port

    def _select_authorization_server(self, advertised: list[str]) -> str:
        mine = [each for each in advertised if issuers_match(each, self._auth.issuer)]
        return mine[0] if mine else advertised[0]

    def _expected_issuer(self) -> str:
        issuer = super()._expected_issuer()
        if self._auth.issuer and not issuers_match(issuer, self._auth.issuer):
            raise OAuthFlowError(f"the server names {issuer}, which is not the configured issuer")
        return issuer

    def _is_of_issuer(self) -> bool:
        """Return whether the metadata is that of the configured issuer, if one is configured.

        Without metadata the SDK would sign in at the MCP server itself, with the client's secret.
        """
        wanted, found = self._auth.issuer, self.context.oauth_metadata
        return not wanted or (found is not None and issuers_match(str(found.issuer), wanted))

    async def _perform_authorization(self) -> httpx2.Request:
        if not self._is_of_issuer():
            raise OAuthFlowError(f"the metadata of the issuer {self._auth.issuer} cannot be read")
        scope = union_scopes(self.context.client_metadata.scope, " ".join(self._auth.scopes))
        self.context.client_metadata.scope = scope or None
        _use_method(self)
        return await super()._perform_authorization()

    async def refresh(self, send: Send) -> bool:
        """Get a new token by the refresh token; return False if the server refuses.

        Also if the token is of another issuer than the one that is configured now.
        Raise `AuthorizationFailed` if it cannot answer now.
        """
        await self._initialize()
        if not self._is_of_issuer():
            return False
        _use_method(self)
        response = await send(await self._refresh_token())
        if response.status_code >= 500 or response.status_code == 429:
            raise AuthorizationFailed(
                f"the authorization server answered {response.status_code}", "transient"
            )
        return await self._handle_refresh_response(response)

    def keep(self) -> None:
        """Keep what later processes need to refresh the token."""
        server, resource = self.context.oauth_metadata, self.context.protected_resource_metadata
        self._file.update(
            authorization_server=None if server is None else _doc(server),
            resource=None if resource is None else _doc(resource),
            redirect_port=self._redirect_port,
        )


class StoredSignIn:
    """The token of a person who signed in earlier."""

    def __init__(self, name: str, url: str, auth: OAuth, file: TokenFile) -> None:
        self._url, self._auth, self._file = url, auth, file
        self.advice = f". Fix: leadhand mcp login {name}"

    async def token(self, send: Send) -> str:
        """Return the kept token, refreshed if it has expired."""
        kept = self._file.read()
        if not kept.access_token:
            raise self._needs_person("a person must sign in to this server")
        if kept.is_over and kept.refresh_token:
            kept = await self._refreshed(kept, send)
        return kept.access_token

    def challenge(self, response: httpx2.Response) -> httpx2.Response | None:
        """Return the answer if it refuses the token."""
        return refused(response)

    async def renew(self, response: httpx2.Response, token: str, send: Send) -> None:
        """Refresh the token once; after that a person has to sign in."""
        kept = self._file.read()
        if response.status_code == 401:
            if kept.access_token and kept.access_token != token:
                return
            if kept.refresh_token:
                await self._refreshed(kept, send)
                return
        header = response.headers.get("www-authenticate", "")[:4096]
        self._file.update(challenge=Challenge(response.status_code, header))
        if response.status_code == 401:
            raise self._needs_person("the server no longer accepts the sign-in")
        scope = bounded_text(extract_scope_from_www_auth(response) or "", 200)
        wanted = f" (scope {scope})" if scope else ""
        raise self._needs_person(f"the sign-in does not allow this call{wanted}")

    def _needs_person(self, why: str) -> AuthorizationFailed:
        return AuthorizationFailed(f"{why}{self.advice}")

    async def _refreshed(self, old: SignedIn, send: Send) -> SignedIn:
        async with self._file.locked():
            kept = self._file.read()
            if kept.access_token != old.access_token:
                return kept  # by another process
            provider = PersonProvider(
                self._url, self._auth, self._file, "http://127.0.0.1/callback"
            )
            if await provider.refresh(send):
                return self._file.read()
            self._file.update(token=None, expires_at=None)
        raise self._needs_person("the sign-in has ended")


class SignIn:
    """A sign-in that a person makes now. The first call is refused in any case.

    `refusal` is what a run was refused with, which says what to ask for.
    """

    advice = ""

    def __init__(self, provider: PersonProvider, refusal: Challenge | None) -> None:
        self._provider, self._refusal = provider, refusal
        self._done = False

    async def token(self, send: Send) -> str:
        """Return the new token once there is one."""
        tokens = self._provider.context.current_tokens
        return tokens.access_token if self._done and tokens is not None else ""

    def challenge(self, response: httpx2.Response) -> httpx2.Response | None:
        """Return the first answer as a refusal, later ones if they are one."""
        found = refused(response)
        if self._done or (found is not None and self._refusal is None):
            return found
        earlier = self._refusal or Challenge(401, "")
        headers = {"www-authenticate": earlier.header} if earlier.header else {}
        return httpx2.Response(earlier.status, headers=headers, request=response.request)

    async def renew(self, response: httpx2.Response, token: str, send: Send) -> None:
        """Ask the person; once."""
        if self._done:
            raise AuthorizationFailed("the server refuses the new token")
        await obtain(self._provider, response, send)
        self._done = True
        self._provider.keep()


class _SecretProvider(ClientCredentialsOAuthProvider):
    async def _initialize(self) -> None:
        await super()._initialize()
        if self.context.client_info is not None:
            self.context.client_info.token_endpoint_auth_method = None  # chosen when it is needed

    async def _perform_authorization(self) -> httpx2.Request:
        _use_method(self)
        return await super()._perform_authorization()


class ClientCredentials:
    """The token of a program, got by its own credentials whenever one is needed."""

    advice = ""

    def __init__(self, url: str, auth: OAuth, kept: MemoryStorage) -> None:
        scope = " ".join(auth.scopes) or None
        self._kept = kept
        self._lock = asyncio.Lock()
        self._provider: OAuthClientProvider
        if auth.client_secret:
            self._provider = _SecretProvider(
                url, kept, auth.client_id, auth.secret(), scope=scope, issuer=auth.issuer
            )
            return
        signed = SignedJWTParameters(
            issuer=auth.client_id,
            subject=auth.client_id,
            signing_key=auth.secret(),
            signing_algorithm=auth.algorithm,
        )
        assertion = signed.create_assertion_provider()
        self._provider = PrivateKeyJWTOAuthProvider(
            url, kept, auth.client_id, assertion, scope=scope, issuer=auth.issuer
        )

    async def token(self, send: Send) -> str:
        """Return the present token, or "": the server then says where to get one."""
        kept = self._kept
        over = kept.ends is not None and kept.ends < time.time()
        return "" if kept.token is None or over else kept.token.access_token

    def challenge(self, response: httpx2.Response) -> httpx2.Response | None:
        """Return the answer if it refuses the token."""
        return refused(response)

    async def renew(self, response: httpx2.Response, token: str, send: Send) -> None:
        """Sign in again, unless another call has just done so."""
        async with self._lock:
            now = await self.token(send)
            if not now or now == token:
                await obtain(self._provider, response, send)
