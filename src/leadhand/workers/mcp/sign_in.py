"""The sign-in of a person to an MCP server: `leadhand mcp login`.

The person opens an address in a browser, signs in at the authorization server, and the browser
returns to a port of this machine (`LoopbackReturn`), or the person pastes the address it was sent
to (`PastedReturn`). Nothing here opens a browser.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from leadhand.errors import UsageError
from leadhand.workers.mcp.authorization import PersonProvider, SignIn
from leadhand.workers.mcp.oauth import AuthorizationFailed
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.workers.mcp.server import Listing, McpServer

HOST, PATH = "127.0.0.1", "/callback"
REQUEST_BYTES_MAX = 16 << 10
READ_S = 10.0


class Return(Protocol):
    """How the answer of the authorization server gets here; for one sign-in."""

    port: int
    """The port of the address that the browser is sent to."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *how: object) -> None: ...

    async def result(self, state: str) -> AuthorizationCodeResult:
        """Wait for the answer that carries `state`. Raise `AuthorizationFailed`."""


class LoopbackReturn:
    """Waits for the browser on a port of this machine. Answers without the right state are refused.

    `port`: the port to listen on; `firm`: fail if it is taken, in place of taking another.
    """

    def __init__(self, port: int = 0, *, firm: bool = False) -> None:
        self.port = port
        self._firm = firm
        self._state = ""
        self._found: asyncio.Future[AuthorizationCodeResult]
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._found = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._serve, HOST, self.port)
        except OSError as error:
            if self._firm:
                raise UsageError(
                    f"port {self.port} of this machine cannot be used: {error.strerror}. "
                    "Fix: free it, or sign in with --paste"
                ) from None
            self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *how: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def result(self, state: str) -> AuthorizationCodeResult:
        """Wait for the browser."""
        self._state = state
        return await self._found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, text = "400 Bad Request", "This is not the answer to the sign-in."
        try:
            async with asyncio.timeout(READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            if method == "GET" and urlsplit(target).path == PATH and not self._found.done():
                status, text = self._take(target)
        except (ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        body = text.encode()
        more = "content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        more += f"cache-control: no-store\r\ncontent-length: {len(body)}\r\n\r\n"
        try:
            writer.write(f"HTTP/1.1 {status}\r\n{more}".encode() + body)
            await writer.drain()
        except OSError:
            pass  # the browser did not wait
        finally:
            writer.close()

    def _take(self, target: str) -> tuple[str, str]:
        """Take the answer in a request; return the status and the text for the browser."""
        try:
            self._found.set_result(result_of(target, self._state))
        except AuthorizationFailed as error:
            self._found.set_exception(error)
            return "200 OK", f"Not signed in: {error}"
        return "200 OK", "Signed in. Close this page and go back to the terminal."


class PastedReturn:
    """Reads the address that the browser was sent to, which the person pastes.

    `read`: returns the pasted line; called in a thread.
    """

    def __init__(self, port: int, read: Callable[[], str]) -> None:
        self.port = port or 8765  # nothing listens there
        self._read = read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *how: object) -> None:
        pass

    async def result(self, state: str) -> AuthorizationCodeResult:
        """Ask for the address."""
        line = await asyncio.to_thread(self._read)
        try:
            return result_of(line.strip(), state)
        except ValueError as problem:
            raise AuthorizationFailed(f"this is not the address of the answer: {problem}") from None


def result_of(address: str, state: str) -> AuthorizationCodeResult:
    """Return the answer of the authorization server in an address.

    Raise `ValueError` if it is not the answer to the request with `state`, `AuthorizationFailed` if
    the server refused.
    """
    found = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
    if not state or not secrets.compare_digest(found.get("state", "").encode(), state.encode()):
        raise ValueError("it does not carry the state of this sign-in")
    if refused := found.get("error"):
        why = (
            f"{refused}: {found['error_description']}" if "error_description" in found else refused
        )
        raise AuthorizationFailed(f"the authorization server refused: {bounded_text(why, 300)}")
    if not found.get("code"):
        raise ValueError("it carries no code")
    return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found.get("iss"))


async def sign_in(
    server: McpServer,
    way: Return,
    show: Callable[[str], Awaitable[None]],
    within_s: float,
) -> Listing:
    """Let a person sign in to a server, keep the tokens, and return the server's tools.

    - `way`: how the answer gets here.
    - `show`: shows the address to open to the person.
    - `within_s`: the longest that all of it may take.

    Raise a `WorkerFailure` if it fails, `UsageError` if no person signs in to this server.
    """
    auth, file = server.auth, server.token_file
    if auth is None or file is None or auth.grant != "authorization_code":
        why = "signs in by its own credentials" if auth is not None else "has no `auth` table"
        raise UsageError(f"mcp {server.name}: {why}: no person signs in to it")
    opened = ""

    async def show_address(url: str) -> None:
        nonlocal opened
        opened = url
        await show(url)

    async def answer() -> AuthorizationCodeResult:
        return await way.result(parse_qs(urlsplit(opened).query)["state"][0])

    async with way:
        place = f"http://{HOST}:{way.port}{PATH}"
        provider = PersonProvider(server.url, auth, file, place, show_address, answer)
        return await server.read(SignIn(provider, file.read().challenge), within_s)
