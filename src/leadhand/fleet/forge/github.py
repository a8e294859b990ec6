"""GitHub, by its REST API; its merge queue by GraphQL, which alone has it.

Issues and pull requests share their numbers and their comments. A check is a check run or a commit
status; its log is the log of its workflow job, or what the check run says.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import quote

import msgspec

from leadhand.errors import UsageError
from leadhand.fleet.forge.errors import (
    ConflictReason,
    ForgeConflict,
    ForgeInvalid,
    ForgeNotFound,
    ForgeRateLimited,
    ForgeRefused,
)
from leadhand.fleet.forge.http import (
    AnswerLost,
    ForgeClient,
    KeyedComments,
    TokenCredential,
    current_pull,
    git_access_for,
    one_line,
    pull_of_key,
    web_origin,
    worst_by_name,
)
from leadhand.fleet.forge.port import (
    ACCESS,
    LOG_MAX,
    UNKNOWN_TIME,
    AccessLevel,
    Act,
    Capability,
    Check,
    CheckStatus,
    GitAccess,
    Issue,
    IssueComment,
    IssueState,
    MergeMethod,
    Place,
    PullRequest,
    QueueEntry,
    RateLimit,
    Review,
    ReviewComment,
    Verdict,
    check_key,
    clean_text,
    key_of,
    same_text,
    utc_time,
    with_marker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from leadhand.fleet.forge.http import Answer, Credential, Pace

API = "https://api.github.com"
HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
LOG_HOSTS = ("blob.core.windows.net", "githubusercontent.com")
"""Where GitHub keeps the logs of workflow jobs."""
OFFERS: frozenset[Capability] = frozenset(
    ("issues", "pulls", "checks", "reviews", "merge", "queue")
)
LOOKS_MAX = 5
RENEW_S = 300.0
"""How long before its end the token of an app is replaced."""
VERDICTS: dict[str, Verdict] = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "changes_requested",
    "COMMENTED": "commented",
    "DISMISSED": "dismissed",
}
RUN_STATUS: dict[str, CheckStatus] = {
    "success": "passed",
    "failure": "failed",
    "timed_out": "failed",
    "startup_failure": "failed",
    "action_required": "failed",
    "stale": "cancelled",
    "cancelled": "cancelled",
    "skipped": "skipped",
    "neutral": "neutral",
    "in_progress": "running",
}
STATUS: dict[str, CheckStatus] = {
    "success": "passed",
    "failure": "failed",
    "error": "failed",
    "pending": "running",
}
BROKEN = frozenset(("timed_out", "startup_failure", "action_required", "stale", "cancelled"))
"""Ends of a check run that say nothing about the commit."""
MERGE_STATES: dict[str, tuple[ConflictReason, str]] = {
    "dirty": ("conflicts", "it conflicts with its base"),
    "blocked": ("blocked", "a required review or check is missing"),
    "behind": ("behind", "its branch must be brought up to its base first"),
    "draft": ("draft", "it is a draft"),
}
EDIT_QUERY = """query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { issue(number: $number) {
    lastEditedAt editor { login } } } }"""
QUEUE_QUERY = """query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    id headRefOid mergeQueueEntry { position state } } } }"""
ENQUEUE = """mutation($id: ID!, $head: GitObjectID!) {
  enqueuePullRequest(input: {pullRequestId: $id, expectedHeadOid: $head}) {
    mergeQueueEntry { position state } } }"""


# What GitHub answers, as far as it is used. Missing parts have defaults, since Enterprise Server
# lags behind; the account of a deleted user is null.


class _User(msgspec.Struct):
    login: str = "ghost"
    id: int = 0


class _Label(msgspec.Struct):
    name: str | None = ""


class _Issue(msgspec.Struct):
    number: int
    title: str | None = ""
    body: str | None = ""
    user: _User | None = None
    author_association: str | None = ""
    labels: list[_Label | str] = []
    assignees: list[_User] | None = None
    state: IssueState = "open"
    html_url: str | None = ""
    created_at: str | None = ""
    updated_at: str | None = ""
    pull_request: Any = None


class _Comment(msgspec.Struct):
    id: int
    body: str | None = ""
    user: _User | None = None
    author_association: str | None = ""
    created_at: str | None = ""
    updated_at: str | None = ""
    html_url: str | None = ""


class _Ref(msgspec.Struct):
    ref: str = ""
    sha: str = ""


class _Pull(msgspec.Struct):
    number: int
    head: _Ref
    base: _Ref
    state: IssueState = "open"
    title: str | None = ""
    body: str | None = ""
    user: _User | None = None
    html_url: str | None = ""
    merged_at: str | None = None
    merge_commit_sha: str | None = None
    mergeable: bool | None = None
    mergeable_state: str | None = ""
    draft: bool | None = False


class _Output(msgspec.Struct):
    title: str | None = ""
    summary: str | None = ""
    text: str | None = ""


class _App(msgspec.Struct):
    slug: str | None = ""


class _CheckRun(msgspec.Struct):
    id: int
    name: str
    status: str | None = ""
    conclusion: str | None = None
    html_url: str | None = ""
    output: _Output | None = None
    app: _App | None = None


class _Status(msgspec.Struct):
    context: str
    state: str
    description: str | None = ""
    target_url: str | None = ""


class _Review(msgspec.Struct):
    id: int
    user: _User | None = None
    state: str = ""
    body: str | None = ""
    commit_id: str | None = ""
    submitted_at: str | None = ""
    author_association: str | None = ""


class _ReviewComment(msgspec.Struct):
    id: int
    user: _User | None = None
    body: str | None = ""
    path: str = ""
    line: int | None = None
    original_line: int | None = None
    in_reply_to_id: int | None = None
    pull_request_review_id: int | None = None
    html_url: str | None = ""


class _Event(msgspec.Struct):
    event: str = ""
    actor: _User | None = None
    assigner: _User | None = None
    assignee: _User | None = None
    label: _Label | None = None
    created_at: str | None = ""


class _Annotation(msgspec.Struct):
    path: str = ""
    start_line: int | None = None
    annotation_level: str | None = ""
    message: str | None = ""


class _Installation(msgspec.Struct):
    id: int


class _InstallationToken(msgspec.Struct):
    token: str
    expires_at: str


class AppCredential:
    """A GitHub App: signs with its private key, and works with a token of its installation."""

    def __init__(
        self,
        app_id: str,
        key: Callable[[], str],
        repository: str,
        api: str = API,
        installation: int = 0,
        *,
        name: str = "github.com",
        pace: Pace | None = None,
        certificates: Path | None = None,
    ) -> None:
        """Create a credential.

        - `key`: returns the private key, as PEM.
        - `installation`: its number; 0 asks GitHub for the one of the repository.
        """
        self._app_id, self._key, self._repository = app_id, key, repository
        self._installation = installation
        signed = TokenCredential(self._signed, "authorization", "Bearer {}")
        # A client of its own: the other one waits for this token while it holds its lock.
        self.client = ForgeClient(
            name, api, signed, headers=HEADERS, pace=pace, certificates=certificates
        )
        self._token, self._until = "", 0.0

    async def headers(self) -> Mapping[str, str]:
        """Return the header with a token that is valid for some minutes more."""
        if self.client.pace.now() > self._until - RENEW_S:
            await self._renew()
        return {"authorization": f"Bearer {self._token}"}

    def secrets(self) -> tuple[str, ...]:
        """Return the token."""
        return (self._token,) if self._token else ()

    def refused(self) -> bool:
        """Forget the token; a new one can be had."""
        had, self._token, self._until = bool(self._token), "", 0.0
        return had

    async def slug(self) -> str:
        """Return the name of the app."""
        what = "read the app"
        found = self.client.convert(await self.client.read("/app", what), _App, what)
        return found.slug or ""

    async def _renew(self) -> None:
        what = "sign in as an app"
        if not self._installation:
            path = f"/repos/{self._repository}/installation"
            data = await self.client.read(path, what, needs="an installation of the app")
            self._installation = self.client.convert(data, _Installation, what).id
        path = f"/app/installations/{self._installation}/access_tokens"
        answer = await self.client.send_again("POST", path, what)
        made = self.client.convert(self.client.data(answer, what), _InstallationToken, what)
        try:
            until = datetime.fromisoformat(made.expires_at).timestamp()
        except ValueError:
            until = self.client.pace.now() + 2 * RENEW_S
        self._token, self._until = made.token, until

    def _signed(self) -> str:
        """Return a JSON Web Token that is valid for nine minutes; GitHub takes at most ten."""
        now = int(self.client.pace.now())
        claims = {"iat": now - 60, "exp": now + 540, "iss": self._app_id}
        parts = ({"alg": "RS256", "typ": "JWT"}, claims)
        text = b".".join(_base64url(msgspec.json.encode(part)) for part in parts)
        return (text + b"." + _base64url(_rsa_signature(self._key(), text))).decode("ascii")


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _rsa_signature(pem: str, data: bytes) -> bytes:
    """Return the signature of RS256. Raise `UsageError`, without the key."""
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError:
        raise UsageError(
            "[fleet.forge] app: a GitHub App needs cryptography. Fix: pip install 'leadhand[sign]'"
        ) from None
    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise UsageError(
            "[fleet.forge] app_key: it holds no private RSA key. "
            "Fix: name the .pem file that GitHub gave for the app"
        )
    return key.sign(data, padding.PKCS1v15(), hashes.SHA256())


class GitHub(KeyedComments):
    """One repository on GitHub or GitHub Enterprise Server."""

    offers = OFFERS
    _change_verb, _comment_right = "PATCH", "issues: write"

    def __init__(
        self,
        repository: str,
        credential: Credential,
        *,
        api: str = API,
        account: str = "",
        remote: str = "",
        pace: Pace | None = None,
        certificates: Path | None = None,
        log_hosts: tuple[str, ...] = LOG_HOSTS,
    ) -> None:
        """Create a client.

        - `repository`: as in `acme/shop`.
        - `account`: our own account, for tokens that cannot ask for it (those of workflows).
        - `remote`: the address for git, if it is not the host's own.
        """
        self._web, host = web_origin(api)
        self._remote = remote
        self.name = f"{host}/{repository}"
        self._owner, _, self._short = repository.partition("/")
        self._credential, self._account_setting = credential, account
        self._repo = f"/repos/{quote(self._owner)}/{quote(self._short)}"
        self._http = ForgeClient(
            self.name,
            api,
            credential,
            headers=HEADERS,
            pace=pace,
            certificates=certificates,
            log_hosts=log_hosts,
        )
        self._own: _User | None = None

    @property
    def limit(self) -> RateLimit:
        """What GitHub said last of its limit."""
        return self._http.limit

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()
        if isinstance(self._credential, AppCredential):
            await self._credential.client.aclose()

    # --- accounts ---

    async def account(self) -> str:
        """Return the name of our own account."""
        return (await self._us()).login

    async def _us(self) -> _User:
        if self._own is None:
            what, login = "read our own account", self._account_setting
            if not login and isinstance(self._credential, AppCredential):
                login = f"{await self._credential.slug()}[bot]"
            path = f"/users/{quote(login, safe='')}" if login else "/user"
            try:
                found = self._http.convert(await self._http.read(path, what), _User, what)
            except ForgeRefused as error:
                raise ForgeRefused(
                    self.name,
                    what,
                    f"this token cannot ask for it ({error}). "
                    'Fix: name it, as in [fleet.forge] account = "github-actions[bot]"',
                ) from None
            if not found.id:
                raise ForgeInvalid(self.name, what, "it has no number")
            self._own = found
        return self._own

    def _key(self, us: _User, user: _User | None, body: str | None) -> str:
        """Return the key of a text; only a text of our own account has one."""
        return key_of(body or "") if user is not None and user.id == us.id else ""

    async def permission(self, user: str) -> AccessLevel:
        """Return what an account may do with the repository."""
        what = "read the permission of an account"
        path = f"{self._repo}/collaborators/{quote(user, safe='')}/permission"
        answer = await self._http.get(path, what, needs="metadata: read", expect=(404,))
        if answer.status == 404:
            return "none"
        data = self._http.data(answer, what)
        for key in ("role_name", "permission"):
            given = data.get(key) if isinstance(data, dict) else None
            if given in ACCESS:
                return ACCESS[ACCESS.index(given)]
        return "none"

    async def git_access(self) -> GitAccess:
        """Return the address for git, and how a process of git signs in."""
        signed = (await self._credential.headers())["authorization"].partition(" ")[2]
        repository, word = f"{self._owner}/{self._short}", f"x-access-token:{signed}"
        return git_access_for(self._remote, self._web, repository, word)

    # --- issues ---

    async def issues(
        self, *, label: str = "", assignee: str = "", since: str = ""
    ) -> tuple[Issue, ...]:
        """Return open issues; with `since`, also closed ones that changed."""
        what = "read issues"
        params: dict[str, str | int] = {
            "state": "all" if since else "open",
            "sort": "updated",
            "direction": "asc",
        }
        given = {"labels": label, "assignee": assignee, "since": since}
        params |= {name: value for name, value in given.items() if value}
        rows, _ = await self._http.pages(f"{self._repo}/issues", what, params, needs="issues: read")
        found = [self._http.convert(row, _Issue, what) for row in rows]
        return tuple(_issue(each) for each in found if each.pull_request is None)

    async def issue(self, number: int) -> Issue:
        """Return one issue."""
        what = f"read issue {number}"
        data = await self._http.read(f"{self._repo}/issues/{number}", what, needs="issues: read")
        return _issue(self._http.convert(data, _Issue, what))

    async def _events(self, number: int) -> tuple[list[_Event], bool]:
        what = f"read the events of issue {number}"
        path = f"{self._repo}/issues/{number}/events"
        rows, cut = await self._http.pages(path, what, needs="issues: read")
        return [self._http.convert(row, _Event, what) for row in rows], cut

    async def given(self, number: int, *, label: str = "", assignee: str = "") -> Act:
        """Return which account gave the issue its label or its assignee last, and when."""
        events, cut = await self._events(number)
        found = Act()
        for event in events:
            named = (event.label.name or "") if event.label else ""
            who = event.assignee.login if event.assignee else ""
            # GitHub's names of labels and accounts are the same in any case.
            if event.event == "labeled" and label and named.lower() == label.lower():
                found = _act(event.actor, event.created_at)
            elif event.event == "assigned" and assignee and who.lower() == assignee.lower():
                found = _act(event.assigner or event.actor, event.created_at)
        return Act() if cut else found

    async def edits(self, number: int) -> tuple[Act, ...]:
        """Return the changes of the title, and the last one of the text (by GraphQL)."""
        what = f"read the changes of issue {number}"
        events, cut = await self._events(number)
        found = [_act(each.actor, each.created_at) for each in events if each.event == "renamed"]
        given = {"owner": self._owner, "name": self._short, "number": number}
        data = await self._query(EDIT_QUERY, given, what)
        issue = (data.get("repository") or {}).get("issue")
        if not isinstance(issue, dict):
            raise ForgeNotFound(self.name, what, "there is no such issue")
        if at := issue.get("lastEditedAt"):
            login = (issue.get("editor") or {}).get("login") or ""
            found.append(Act(by=clean_text(str(login), 200), at=utc_time(str(at))))
        if cut:  # a change of the title may be among the rest
            found.append(Act(at=UNKNOWN_TIME))
        return tuple(sorted(found, key=lambda each: each.at))

    async def _read_comments(self, number: int, on: Place) -> tuple[list[IssueComment], bool]:
        what, us = f"read the comments of {number}", await self._us()
        path = self._comments_path(number, on)
        rows, cut = await self._http.pages(path, what, needs="issues: read")
        return [self._comment(us, self._http.convert(row, _Comment, what)) for row in rows], cut

    async def _as_comment(self, answer: Answer, what: str) -> IssueComment:
        return self._comment(await self._us(), self._read(answer, _Comment, what))

    def _comments_path(self, number: int, on: Place) -> str:
        return f"{self._repo}/issues/{number}/comments"  # pull requests are issues there

    def _comment_path(self, number: int, on: Place, ident: int) -> str:
        return f"{self._repo}/issues/comments/{ident}"

    async def _close(self, number: int, what: str) -> Issue:
        asked = {"state": "closed", "state_reason": "completed"}
        path = f"{self._repo}/issues/{number}"
        answer = await self._http.send_again("PATCH", path, what, asked, needs="issues: write")
        return _issue(self._read(answer, _Issue, what))

    # --- pull requests ---

    async def pull(self, number: int) -> PullRequest:
        """Return one pull request."""
        return self._pull(await self._us(), await self._raw_pull(number))

    async def _raw_pull(self, number: int) -> _Pull:
        what = f"read pull request {number}"
        path = f"{self._repo}/pulls/{number}"
        data = await self._http.read(path, what, needs="pull requests: read")
        return self._http.convert(data, _Pull, what)

    async def _pulls_of(self, branch: str) -> list[PullRequest]:
        """Return all pull requests of a branch of this repository, the newest first."""
        what, us = f"read the pull requests of {branch}", await self._us()
        params: dict[str, str | int] = {
            "state": "all",
            "head": f"{self._owner}:{branch}",
            "sort": "created",
            "direction": "desc",
        }
        rows, _ = await self._http.pages(
            f"{self._repo}/pulls", what, params, needs="pull requests: read"
        )
        found = [self._pull(us, self._http.convert(row, _Pull, what)) for row in rows]
        return [each for each in found if each.branch == branch]

    async def pull_of(self, branch: str) -> PullRequest | None:
        """Return the open pull request of a branch, else its newest one."""
        return current_pull(await self._pulls_of(branch))

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, key: str
    ) -> PullRequest:
        """Open a pull request, or bring the one with this key up to date."""
        what, needs = f"open a pull request for {branch}", "pull requests: write"
        text, name, us = with_marker(body, key), one_line(title), await self._us()

        async def look() -> PullRequest | None:
            return pull_of_key(await self._pulls_of(branch), key, base)

        async def make() -> PullRequest:
            asked = {"title": name, "head": branch, "base": base, "body": text}
            path = f"{self._repo}/pulls"
            answer = await self._http.send("POST", path, what, asked, needs=needs, expect=(422,))
            if answer.status != 422:
                return self._pull(us, self._read(answer, _Pull, what))
            if b"already exists" in answer.data and (found := await look()) is not None:
                return found
            raise self._not_opened(answer.data, what, branch, base)

        found = await self._http.write_once(what, look, make)
        same = found.title == name and same_text(found.body, text)
        if found.key != key or found.state != "open" or same:
            return found
        path, asked = f"{self._repo}/pulls/{found.number}", {"title": name, "body": text}
        answer = await self._http.send_again("PATCH", path, what, asked, needs=needs)
        return self._pull(us, self._read(answer, _Pull, what))

    def _not_opened(self, data: bytes, what: str, branch: str, base: str) -> ForgeInvalid:
        said = self._http.hide(clean_text(data.decode("utf-8", "replace"), 500))
        if "No commits between" in said:
            return ForgeInvalid(self.name, what, f"{branch} has no commit that {base} lacks")
        if '"head"' in said and "invalid" in said:
            return ForgeInvalid(self.name, what, f"there is no branch {branch}. Fix: push it")
        if '"base"' in said and "invalid" in said:
            return ForgeInvalid(self.name, what, f"there is no branch {base} to merge into")
        return ForgeInvalid(self.name, what, said)

    async def merge(
        self, number: int, head: str, method: MergeMethod, key: str, *, message: str = ""
    ) -> PullRequest:
        """Merge a pull request whose head is `head`."""
        what, us = f"merge pull request {number}", await self._us()
        asked: dict[str, str] = {"sha": head, "merge_method": method}
        if method != "rebase":
            trailer = f"Leadhand-Key: {check_key(key)}"
            asked["commit_message"] = "\n\n".join(filter(None, (clean_text(message), trailer)))

        async def look() -> PullRequest | None:
            found = self._pull(us, await self._computed(number))
            if found.state == "open" and found.head == head:
                return None
            if found.state == "merged" and found.head == head:
                return found
            if found.state == "closed":
                raise ForgeConflict(self.name, what, "it is closed", "closed")
            raise ForgeConflict(
                self.name, what, f"its head is {found.head[:12]}, not {head[:12]}", "head_moved"
            )

        async def make() -> PullRequest:
            path, needs = f"{self._repo}/pulls/{number}/merge", "contents: write"
            answer = await self._http.send(
                "PUT", path, what, asked, needs=needs, expect=(405, 409, 422)
            )
            if answer.status >= 300:
                if (found := await look()) is None:  # else it was merged meanwhile
                    await self._not_merged(number, what, answer.data)
                return found
            return self._pull(us, await self._raw_pull(number))

        return await self._http.write_once(what, look, make)

    async def _computed(self, number: int) -> _Pull:
        """Return a pull request when GitHub knows whether it can be merged, or after some looks."""
        for tries in range(LOOKS_MAX):
            found = await self._raw_pull(number)
            if found.mergeable is not None or found.state != "open":
                break
            await self._http.pace.sleep(self._http.pace.backoff(tries))
        return found

    async def _not_merged(self, number: int, what: str, data: bytes) -> NoReturn:
        """Raise the reason for which a merge was refused."""
        now = await self._raw_pull(number)
        said = self._http.hide(clean_text(data.decode("utf-8", "replace"), 300))
        passing = ("Base branch was modified", "already in progress", "try the merge again")
        if now.mergeable is None or any(each in said for each in passing):
            raise self._http.transient(what, "GitHub is still computing it")
        if "merge queue" in said:
            raise ForgeConflict(
                self.name, what, "its base takes changes from the merge queue only", "blocked"
            )
        reason, text = MERGE_STATES.get(now.mergeable_state or "", ("other", said))
        if now.mergeable is False and reason == "other":
            reason, text = MERGE_STATES["dirty"]
        raise ForgeConflict(self.name, what, text, reason)

    # --- the merge queue ---

    async def enqueue(self, number: int, head: str) -> QueueEntry:
        """Put a pull request into the merge queue, unless it is there."""
        what = f"put pull request {number} into the merge queue"

        async def look() -> QueueEntry | None:
            pull = await self._queue_state(number, what)
            if pull.get("headRefOid") != head:
                raise ForgeConflict(self.name, what, f"its head is not {head[:12]}", "head_moved")
            return _entry(pull.get("mergeQueueEntry"))

        async def make() -> QueueEntry:
            pull = await self._queue_state(number, what)
            data = await self._graphql(ENQUEUE, {"id": pull.get("id"), "head": head}, what)
            made = data.get("enqueuePullRequest")
            return _entry((made or {}).get("mergeQueueEntry")) or QueueEntry()

        return await self._http.write_once(what, look, make)

    async def queued(self, number: int) -> QueueEntry | None:
        """Return the place of a pull request in the merge queue, None if it is not there."""
        what = f"read the merge queue for {number}"
        return _entry((await self._queue_state(number, what)).get("mergeQueueEntry"))

    async def _queue_state(self, number: int, what: str) -> dict[str, Any]:
        given = {"owner": self._owner, "name": self._short, "number": number}
        data = await self._query(QUEUE_QUERY, given, what)
        pull = (data.get("repository") or {}).get("pullRequest")
        if not isinstance(pull, dict):
            raise ForgeNotFound(self.name, what, "there is no such pull request")
        return pull

    async def _query(self, query: str, given: Mapping[str, Any], what: str) -> dict[str, Any]:
        try:
            return await self._graphql(query, given, what)
        except AnswerLost:  # a query writes nothing
            raise self._http.transient(what, "it did not answer") from None

    async def _graphql(self, query: str, given: Mapping[str, Any], what: str) -> dict[str, Any]:
        path = self._http.api.removesuffix("/v3") + "/graphql"
        body = {"query": query, "variables": given}
        answer = await self._http.send("POST", path, what, body, needs="contents: write")
        data = self._http.data(answer, what)
        if not isinstance(data, dict):
            raise ForgeInvalid(self.name, what, "its answer cannot be read")
        errors: Any = data.get("errors")
        if errors:
            first = errors[0] if isinstance(errors, list) and isinstance(errors[0], dict) else {}
            kind = first.get("type")
            said = self._http.hide(clean_text(str(first.get("message", "")), 300))
            if kind == "RATE_LIMITED":
                at = max(self.limit.reset_at, self._http.pace.now() + 1)
                raise ForgeRateLimited(self.name, what, "its limit is reached", at)
            if kind == "NOT_FOUND":
                raise ForgeNotFound(self.name, what, said)
            if kind in ("FORBIDDEN", "INSUFFICIENT_SCOPES"):
                raise ForgeRefused(self.name, what, f"{said}. Fix: contents: write")
            raise ForgeConflict(self.name, what, said, "other")
        found = data.get("data")
        return found if isinstance(found, dict) else {}

    # --- checks ---

    async def checks(self, commit: str, *, app: str = "") -> tuple[Check, ...]:
        """Return check runs and commit statuses; of those with one name, the worst.

        A commit status names no app: with `app` only check runs are returned.
        """
        what, at = f"read the checks of {commit[:12]}", quote(commit, safe="")
        place = f"{self._repo}/commits/{at}"
        runs = await self._http.every(
            f"{place}/check-runs?filter=latest", what, needs="checks: read", inside="check_runs"
        )
        made = [self._http.convert(row, _CheckRun, what) for row in runs]
        if app:
            return worst_by_name(_run_check(each) for each in made if _slug(each) == app)
        said = await self._http.every(
            f"{place}/status", what, needs="commit statuses: read", inside="statuses"
        )
        found = [_run_check(each) for each in made]
        found += [_status_check(self._http.convert(row, _Status, what)) for row in said]
        return worst_by_name(found)

    async def check_log(self, check: Check) -> str:
        """Return annotations and the end of the log of a check."""
        what = f"read the log of {clean_text(check.name, 100)}"
        kind, _, ident = check.id.partition(":")
        if kind not in ("job", "run") or not ident.isdecimal():
            return check.summary
        path = f"{self._repo}/check-runs/{ident}"
        rows, _ = await self._http.pages(f"{path}/annotations", what, needs="checks: read")
        notes = [self._http.convert(row, _Annotation, what) for row in rows[:100]]
        parts = [_annotation(note) for note in notes]
        if kind == "job":
            job = f"{self._repo}/actions/jobs/{ident}/logs"
            parts.append(await self._http.log(job, what, needs="actions: read"))
        if not any(parts[len(notes) :]):
            data = await self._http.read(path, what, needs="checks: read")
            output = self._http.convert(data, _CheckRun, what).output or _Output()
            texts = (output.title, output.summary, output.text)
            parts += [clean_text(text) for text in texts if text]
        return "\n".join(filter(None, parts))[-LOG_MAX:]

    # --- reviews ---

    async def reviews(self, number: int) -> tuple[Review, ...]:
        """Return the submitted reviews of others, with their remarks."""
        what, us = f"read the reviews of {number}", await self._us()
        rows = await self._http.every(
            f"{self._repo}/pulls/{number}/reviews", what, needs="pull requests: read"
        )
        found = [self._http.convert(row, _Review, what) for row in rows]
        remarks: dict[int, list[ReviewComment]] = {}
        for each in await self._remarks(number):
            made = ReviewComment(
                id=str(each.id),
                pull=number,
                path=clean_text(each.path, 1000),
                line=each.line or each.original_line or 0,
                body=clean_text(each.body),
                author=_login(each.user),
                url=each.html_url or "",
            )
            remarks.setdefault(each.pull_request_review_id or 0, []).append(made)
        return tuple(
            Review(
                id=str(each.id),
                author=_login(each.user),
                author_role=(each.author_association or "").lower(),
                verdict=VERDICTS[each.state],
                body=clean_text(each.body),
                commit=each.commit_id or "",
                submitted_at=utc_time(each.submitted_at),
                comments=tuple(remarks.get(each.id, ())),
            )
            for each in found
            if each.state in VERDICTS and (each.user is None or each.user.id != us.id)
        )

    async def _remarks(self, number: int) -> list[_ReviewComment]:
        what = f"read the remarks on {number}"
        rows = await self._http.every(
            f"{self._repo}/pulls/{number}/comments", what, needs="pull requests: read"
        )
        return [self._http.convert(row, _ReviewComment, what) for row in rows]

    async def reply(self, comment: ReviewComment, body: str, key: str) -> None:
        """Answer a remark of a review, once for each key."""
        what, us, number = f"answer a remark on {comment.pull}", await self._us(), comment.pull
        text, needs = with_marker(body, key), "pull requests: write"
        threads: dict[str, int] = {}

        async def look() -> Literal[True] | None:
            remarks = await self._remarks(number)
            threads.update((str(each.id), each.in_reply_to_id or each.id) for each in remarks)
            root = threads.get(comment.id)
            ours = [
                each.id
                for each in remarks
                if each.in_reply_to_id == root and self._key(us, each.user, each.body) == key
            ]
            for extra in ours[1:]:  # of a request that ended after it was given up
                path = f"{self._repo}/pulls/comments/{extra}"
                await self._http.send_again("DELETE", path, what, needs=needs, expect=(404,))
            return True if ours else None

        async def make() -> Literal[True]:
            if (root := threads.get(comment.id)) is None:
                raise ForgeNotFound(self.name, what, "the remark was deleted")
            path = f"{self._repo}/pulls/{number}/comments/{root}/replies"
            await self._http.send("POST", path, what, {"body": text}, needs=needs)
            return True

        await self._http.write_once(what, look, make)

    # --- inside ---

    def _read(self, answer: Any, kind: type[Any], what: str) -> Any:
        return self._http.convert(self._http.data(answer, what), kind, what)

    def _comment(self, us: _User, each: _Comment) -> IssueComment:
        return IssueComment(
            id=each.id,
            author=_login(each.user),
            author_role=(each.author_association or "").lower(),
            body=clean_text(each.body),
            created_at=utc_time(each.created_at),
            updated_at=utc_time(each.updated_at),
            url=each.html_url or "",
            key=self._key(us, each.user, each.body),
        )

    def _pull(self, us: _User, each: _Pull) -> PullRequest:
        merged = each.merged_at is not None
        return PullRequest(
            number=each.number,
            branch=each.head.ref,
            base=each.base.ref,
            head=each.head.sha,
            url=each.html_url or "",
            state="merged" if merged else each.state,
            # Of an open one it is a merge that was only tried.
            merge_commit=(each.merge_commit_sha or "") if merged else "",
            title=clean_text(each.title, 1000),
            body=clean_text(each.body),
            author=_login(each.user),
            draft=bool(each.draft),
            mergeable=each.mergeable,
            key=self._key(us, each.user, each.body),
        )


def _login(user: _User | None) -> str:
    return clean_text(user.login, 200) if user is not None else "ghost"


def _act(user: _User | None, at: str | None) -> Act:
    return Act(by=clean_text(user.login, 200) if user is not None else "", at=utc_time(at))


def _issue(each: _Issue) -> Issue:
    labels = (label if isinstance(label, str) else label.name or "" for label in each.labels)
    return Issue(
        number=each.number,
        title=clean_text(each.title, 1000),
        body=clean_text(each.body),
        author=_login(each.user),
        author_role=(each.author_association or "").lower(),
        labels=tuple(clean_text(label, 200) for label in labels),
        assignees=tuple(_login(user) for user in each.assignees or ()),
        state=each.state,
        url=each.html_url or "",
        created_at=utc_time(each.created_at),
        updated_at=utc_time(each.updated_at),
    )


def _slug(run: _CheckRun) -> str:
    return (run.app.slug or "") if run.app is not None else ""


def _run_check(run: _CheckRun) -> Check:
    over = run.status == "completed"
    word = (run.conclusion if over else run.status) or ""
    status = RUN_STATUS.get(word, "failed" if over else "queued")
    output = run.output or _Output()
    is_job = _slug(run) == "github-actions"
    return Check(
        name=clean_text(run.name, 500),
        status=status,
        id=f"{'job' if is_job else 'run'}:{run.id}",
        url=run.html_url or "",
        summary=clean_text(output.title or output.summary, 2000),
        broken=over and word in BROKEN,
    )


def _status_check(status: _Status) -> Check:
    return Check(
        name=clean_text(status.context, 500),
        status=STATUS.get(status.state, "queued"),
        id="status",
        url=status.target_url or "",
        summary=clean_text(status.description, 2000),
        broken=status.state == "error",
    )


def _annotation(note: _Annotation) -> str:
    place = f"{clean_text(note.path, 500)}:{note.start_line or 0}"
    return f"{place}: {note.annotation_level}: {clean_text(note.message, 2000)}"


def _entry(data: Any) -> QueueEntry | None:
    if not isinstance(data, dict):
        return None
    at, state = data.get("position"), str(data.get("state", "")).lower()
    return QueueEntry(position=at if isinstance(at, int) else 0, state=state)
