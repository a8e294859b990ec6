"""One MCP server: how to reach it, what it offered, and calls to its tools.

    files = McpServer(command=["files-server", "/data"], name="files")
    lead = Lead(workers=[files.tool("read_file", effects=()), *others])

Laws
    1. Nothing is started or connected to before somebody needs it. Which tools there are is known
       from a file of pins (`leadhand mcp tools --pin`), else from the server itself, which is asked
       once, when the first of its tools has to be described.
    2. One connection is shared by all tools of a server and kept for the host's life. After a
       failure the next call connects again; the call that met the failure reports it.
    3. What was approved is what is called. The version of a tool is a digest of its definition and
       of how its server is reached. On every connection, and when the server says that its list has
       changed, the definition is compared; a tool that differs is unavailable, and says in what.
    4. A call is bounded in time and its result in size. A call that is cancelled or out of time is
       cancelled on the server too.
    5. Everything a server says is data. Its results are untrusted, its hints can only raise risk
       and effects. It cannot ask us for anything: sampling and roots are refused, and a question
       (elicitation) is for a person to answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.audit.redaction import SECRET_NAME, Redactor, is_kept_out
from leadhand.codec.tables import read_table
from leadhand.core.durations import seconds
from leadhand.errors import LeadhandError, Transient, Unavailable, UsageError, WorkerFailure
from leadhand.workers.commands.worker import given_values
from leadhand.workers.coverage import INHERITED
from leadhand.workers.functions.decorator import NAME
from leadhand.workers.http.request import MAX_BYTES, TIMEOUT_S, Header, Missing, Url
from leadhand.workers.mcp.connection import Connection, sdk
from leadhand.workers.mcp.definition import Definition
from leadhand.workers.mcp.elicitation import PersonAnswers
from leadhand.workers.mcp.failures import Overdue, ends_session, failure_of
from leadhand.workers.mcp.oauth import OAuth, TokenFile, auth_place
from leadhand.workers.mcp.pins import Pins, reached
from leadhand.workers.mcp.stdio import Last, ServerProgram, stdio
from leadhand.workers.mcp.tool import McpTool
from leadhand.workers.processes.runner import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leadhand.workers.mcp.authorization import Authorization, MemoryStorage

CONNECT_S = 30.0


class Listing(NamedTuple):
    """The tools that a server offered."""

    name: str
    """What it calls itself."""
    tools: dict[str, Definition]
    unusable: dict[str, str]
    """Tools it lists that cannot be used, with the reason."""


class McpServer:
    """An MCP server and its tools: a program (`command`) or behind an address (`url`).

    - `name`: the first part of the names of its tools.
    - `command`: the program and its arguments.
    - `url`, `headers`: the address, and headers as texts or `{"env": NAME, "prefix": …}`.
    - `auth`: for a server behind OAuth: the keys of `[mcp.NAME.auth]`; `{}` for a person's sign-in.
    - `tokens`: the folder in which a person's sign-in is kept; without it there is none.
    - `cwd`, `env`, `secrets`, `set_env`, `public`: the working folder and variables of the program,
      as for command workers: names to pass on, names of secrets, variables with values, and names
      whose values may be shown.
    - `timeout`, `connect_timeout`: the time limits of a call and of the start.
    - `max_bytes`: the size limit of one answer.
    - `pins`: a file with the pinned definitions of its tools.
    """

    def __init__(  # noqa: PLR0913 - everything that can be configured, by name
        self,
        *,
        name: str,
        command: Sequence[str] = (),
        url: str = "",
        headers: Mapping[str, Any] | None = None,
        cwd: str | Path = ".",
        env: Iterable[str] = (),
        secrets: Iterable[str] = (),
        set_env: Mapping[str, str] | None = None,
        public: Iterable[str] = (),
        timeout: str | float = TIMEOUT_S,
        connect_timeout: str | float = CONNECT_S,
        max_bytes: int = MAX_BYTES,
        pins: str | Path | Pins | None = None,
        auth: Mapping[str, Any] | OAuth | None = None,
        tokens: str | Path | None = None,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.url = url
        self.env, self.secrets, self.public = tuple(env), tuple(secrets), tuple(public)
        self.timeout_s, self._connect_s = seconds(timeout), seconds(connect_timeout)
        self.cwd = Path(cwd).resolve()
        self._set_env = dict(set_env or {})
        self._max_bytes = max_bytes
        self._headers = _headers(name, headers or {})
        self._pins = pins if isinstance(pins, Pins) or pins is None else Pins.read(Path(pins))
        self._listed: Listing | None = None
        self._listing = threading.Lock()
        self._processes: Processes | None = None
        self._own: Processes | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self.auth = (
            auth
            if isinstance(auth, OAuth) or auth is None
            else read_table(f"mcp {name}: auth", auth, OAuth)
        )
        self.token_file = (
            None
            if self.auth is None or tokens is None or self.auth.grant != "authorization_code"
            else TokenFile(Path(tokens), name, url, self.cwd)
        )
        self._own_token: MemoryStorage | None = None
        self._refuse_nonsense(command)

    def _refuse_nonsense(self, command: object) -> None:
        if not NAME.match(self.name):
            raise UsageError(f"mcp {self.name!r}: is not a name; use letters, digits, _ . -")
        if bool(self.command) == bool(self.url):
            raise UsageError(f"mcp {self.name}: needs `command` or `url`, and not both")
        if isinstance(command, str) or not all(isinstance(each, str) for each in self.command):
            raise UsageError(f"mcp {self.name}: command must be a list: the program, its arguments")
        if self.auth is not None:
            taken = any(each.name.lower() == "authorization" for each in self._headers)
            if not self.url or taken:
                why = "needs `url`" if not self.url else "and headers.Authorization exclude another"
                raise UsageError(f"mcp {self.name}: auth {why}")
            if problem := self.auth.problem():
                raise UsageError(f"mcp {self.name}: auth: {problem}")
        if self.url:
            try:
                fixed = Url.of(self.url)
                if fixed.holes or fixed.host is None:
                    raise ValueError("must be fixed, without placeholders")
            except ValueError as problem:
                raise UsageError(f"mcp {self.name}: url {problem}") from None

    # Its tools.

    def tool(self, tool: str, **terms: Any) -> McpTool:
        """Return the tool called `tool` as a worker; `terms` are those of `McpTool`.

        Connects to nothing.
        """
        return McpTool(self, tool, **terms)

    def tools(self, **terms: Any) -> list[McpTool]:
        """Return every tool of the server, all with `terms` as for `tool`.

        The server is asked unless its tools are pinned.
        """
        return [self.tool(name, **terms) for name in self.listing().tools]

    def toolset(self, tools: Iterable[str] | None = None, **terms: Any) -> list[McpTool]:
        """Return the tools for an agent: all, or those named in `tools`; `terms` as for `tool`."""
        return (
            self.tools(**terms) if tools is None else [self.tool(name, **terms) for name in tools]
        )

    @property
    def identity(self) -> str:
        """Return how it is reached: part of every version of its tools."""
        doc: dict[str, Any] = {
            "command": self.command,
            "url": self.url,
            "cwd": str(self.cwd) if self.command else "",
            "env": sorted((*self.env, *self.secrets, *self._set_env)),
            "headers": sorted(each.name.lower() for each in self._headers),
        }
        if self.auth is not None:
            doc["auth"] = auth_place(self.auth)
        return msgspec.json.encode(doc, order="sorted").decode()

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the variables whose values must not get into the log."""
        headers = [each.env for each in self._headers if each.env]
        headers += () if self.auth is None else self.auth.variables
        named = (name for name in self.env if name not in self.public)
        passed = [name for name in named if SECRET_NAME.search(name)]
        return tuple(dict.fromkeys((*headers, *self.secrets, *passed)))

    @property
    def given_values(self) -> dict[str, str]:
        """Return every variable that its program is given, except public ones."""
        given = given_values(self.env, self._set_env, os.environ)
        return {name: value for name, value in given.items() if name not in self.public}

    def listing(self) -> Listing:
        """Return what it offers: as pinned, as known, or as it answers now."""
        with self._listing:
            if self._listed is None and self._pins is not None:
                self._listed = self._pinned(self._pins)
            if self._listed is None:
                self._listed = read_all([self])[0]
            return self._listed

    def _pinned(self, pins: Pins) -> Listing | None:
        found = pins.servers.get(self.name)
        if found is None:
            return None
        if found.reached != reached(self.identity):
            raise UsageError(
                f"mcp {self.name}: is reached in another way than when it was pinned in "
                f"{pins.path}. Fix: leadhand mcp tools {self.name} --pin"
            )
        return Listing(found.name, found.tools, {})

    async def load(self) -> None:
        """Learn which tools there are without blocking the loop."""
        await asyncio.to_thread(self.listing)

    async def read(
        self, authorization: Authorization | None = None, within_s: float | None = None
    ) -> Listing:
        """Ask the server over a connection of its own, and close that. Raise a `WorkerFailure`.

        `authorization`: where tokens come from, if not from the configured place; `within_s`: the
        time limit of the start, if not the configured one.
        """
        processes = Processes(f"mcp-{os.getpid()}")
        try:
            connection = self._made(processes, authorization)
            try:
                await connection.open(within_s or self._connect_s)
                return Listing(connection.name, connection.definitions, connection.unusable)
            finally:
                await connection.close()
        except WorkerFailure as error:
            raise type(error)(self.redactor.text(str(error))) from None
        finally:
            await processes.close()

    def known(self, listing: Listing) -> None:
        """Record the `listing` of its tools, unless one is known."""
        with self._listing:
            self._listed = self._listed or listing

    @property
    def pins(self) -> Pins | None:
        """Return the file in which its tools are pinned, or None."""
        return self._pins

    @property
    def is_known(self) -> bool:
        """Return whether its tools can be described without a connection."""
        pinned = self._pins is not None and self.name in self._pins.servers
        return self._listed is not None or pinned

    # Calls.

    def attach(self, processes: Processes) -> None:
        """Enable it to start its program with `processes`."""
        self._processes = processes

    async def call(
        self,
        definition: Definition,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        harmless: bool,
        on_progress: Callable[[float, float | None, str | None], None],
        answers: Iterable[Mapping[str, Any]] = (),
    ) -> Any:
        """Call a tool and return the SDK's result. Raise a `WorkerFailure`.

        `definition` names the tool, `arguments` are its parameters; after `timeout_s` seconds the
        call fails. `harmless`: the call has no effects, so it may be repeated. `on_progress` is
        called with progress, total and message. `answers` are those of people about the step, for
        what the tool asks.
        """
        from mcp import MCPError

        people = PersonAnswers(self.name, definition.name, answers, self.redactor.text)

        connection, sent = None, False
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connected()
                self._compare(definition, await connection.definition(definition.name))
                sent = True
                return await connection.call(
                    definition.name, arguments, on_progress, people.responses
                )
        except TimeoutError:
            message = f"{self.name}: no answer within {timeout_s:g} s"
            if not sent:
                raise Transient(message) from None
            raise Overdue(message, effect="none" if harmless else "unknown") from None
        except MCPError as error:
            failure = failure_of(error, harmless=harmless or not sent)
            if connection is not None and ends_session(error):
                failure = await self._ended(connection, failure)
            raise self._told(failure) from None
        except WorkerFailure as error:
            raise self._told(error) from None

    async def close(self) -> None:
        """Hang up; the next call connects again."""
        if self._loop is asyncio.get_running_loop():
            if self._opening is not None and not self._opening.done():
                self._opening.cancel()
                await asyncio.wait({self._opening})
            if self._connection is not None:
                await self._connection.close()
        self._connection = self._opening = None
        if self._own is not None:
            own, self._own = self._own, None
            await own.close()

    @property
    def redactor(self) -> Redactor:
        """Return a redactor for the secrets that this server is given."""
        given = self.given_values.items()
        hidden = {name: value for name, value in given if is_kept_out(name, value)}
        named = {name: os.environ.get(name, "") for name in self.secret_names}
        return Redactor({**hidden, **named, **self._tokens()})

    def _tokens(self) -> dict[str, str]:
        """Return the tokens that calls carry now, by what they are."""
        found: dict[str, str] = {}
        if self._own_token is not None and self._own_token.token is not None:
            found["token"] = self._own_token.token.access_token
        if self.token_file is not None:
            with contextlib.suppress(UsageError):
                kept = self.token_file.read()
                found |= {"token": kept.access_token, "refresh_token": kept.refresh_token}
        return {f"{self.name}.{name}": value for name, value in found.items() if value}

    def _told(self, failure: WorkerFailure) -> WorkerFailure:
        text = str(failure)
        said = text if text.startswith(f"{self.name}: ") else f"{self.name}: {text}"
        return type(failure)(
            self.redactor.text(said), effect=failure.effect, retry_after_s=failure.retry_after_s
        )

    async def _ended(self, connection: Connection, failure: WorkerFailure) -> WorkerFailure:
        """Leave a connection that is over, and say how the program ended if it is one."""
        connection.hang_up()
        if self.url:
            return failure
        await connection.close()
        return type(failure)(f"{failure}; {connection.last}", effect=failure.effect)

    def _compare(self, mine: Definition, now: Definition | None) -> None:
        changed = mine.changes(now)
        if changed:
            raise Unavailable(
                f"{self.name}: the tool {mine.name} is not what was approved: {changed}. "
                f"Fix: look at it with `leadhand mcp tools {self.name}`, then pin it or start "
                "again."
            )

    async def _connected(self) -> Connection:
        """Return the present connection, or a new one that all waiting calls share."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._connection, self._opening = loop, None, None
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._opening is None or self._opening.done():
            self._opening = loop.create_task(self._open())
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Connection:
        if self._connection is not None:
            await self._connection.close()
        if self._processes is None and self._own is None and self.command:
            self._own = Processes(f"mcp-{os.getpid()}")
        connection = self._made(self._processes or self._own)
        await connection.open(self._connect_s)
        self._connection = connection
        return connection

    def _authorization(self) -> Authorization | None:
        """Return where the tokens of a new connection come from; None if it needs none."""
        if self.auth is None:
            return None
        from leadhand.workers.mcp.authorization import (
            ClientCredentials,
            MemoryStorage,
            StoredSignIn,
        )

        if self.auth.grant == "client_credentials":
            self._own_token = self._own_token or MemoryStorage()
            return ClientCredentials(self.url, self.auth, self._own_token)
        if self.token_file is None:
            raise UsageError("a person's sign-in needs `tokens`, the folder to keep it in")
        return StoredSignIn(self.name, self.url, self.auth, self.token_file)

    def _made(
        self, processes: Processes | None, authorization: Authorization | None = None
    ) -> Connection:
        sdk()
        if self.url:
            from leadhand.workers.mcp.http import OneHostTransport, http

            try:
                for each in self._headers:
                    each.fill({}, os.environ)
                authorization = authorization or self._authorization()
            except (Missing, ValueError, UsageError) as problem:
                raise Unavailable(str(problem)) from None
            allow = () if self.auth is None else self.auth.allow
            edge = OneHostTransport(self.url, self._headers, self._max_bytes, authorization, allow)
            return Connection(lambda _: http(self.url, edge, self._max_bytes), "")
        assert processes is not None
        last = Last()
        program = ServerProgram(self.command, self.cwd, self._environment())
        return Connection(
            lambda hung_up: stdio(processes, program, self._max_bytes, last, hung_up), last
        )

    def _environment(self) -> dict[str, str]:
        names = (*INHERITED, *self.env, *self.secrets)
        return {name: os.environ[name] for name in names if name in os.environ} | self._set_env


def ask_all(servers: Sequence[McpServer]) -> list[Listing | str]:
    """Ask several servers at once, from any thread; return for each its tools or the error."""
    sdk()

    async def ask() -> list[Listing | BaseException]:
        return await asyncio.gather(*(each.read() for each in servers), return_exceptions=True)

    answers: list[Listing | BaseException] = []
    # A loop of its own, in a thread of its own: the caller may be inside one.
    thread = threading.Thread(target=lambda: answers.extend(asyncio.run(ask())))
    thread.start()
    thread.join()
    return [
        answer
        if isinstance(answer, Listing)
        else str(answer)
        if isinstance(answer, LeadhandError)
        else f"{type(answer).__name__}: {answer}"
        for answer in answers
    ]


def read_all(servers: Sequence[McpServer]) -> list[Listing]:
    """Ask several servers at once.

    Raise `UsageError`, which names every one that does not answer.
    """
    answers = ask_all(servers)
    problems = [
        f"mcp {server.name}: {answer}"
        if "Fix: " in answer
        else f"mcp {server.name}: {answer}. Fix: see that it runs; with `leadhand mcp tools --pin` "
        "once, its tools are known without it."
        for server, answer in zip(servers, answers, strict=True)
        if isinstance(answer, str)
    ]
    if problems:
        raise UsageError("\n".join(problems))
    return [answer for answer in answers if isinstance(answer, Listing)]


def _headers(name: str, given: Mapping[str, Any]) -> tuple[Header, ...]:
    found: list[Header] = []
    for key, value in given.items():
        try:
            header = Header.of(key, value)
            if header.env is None:
                raise ValueError('must be {env = "NAME", prefix = "Bearer "}: no secret in a file')
            found.append(header)
        except ValueError as problem:
            raise UsageError(f"mcp {name}: headers.{key} {problem}") from None
    return tuple(found)
