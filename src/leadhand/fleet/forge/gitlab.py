"""GitLab, by its REST API.

A pull request is a merge request; issues and merge requests have numbers and notes of their own. A
check is a job of a pipeline or a status of another system. A review is what one account said of a
merge request: its approval or request for changes, and its open threads, which ask for a change
until they are resolved. An approval is for the commit that was there when it was given. Of merge
methods only squashing can be chosen; the rest is a setting of the project.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec

from leadhand.fleet.forge.errors import (
    ConflictReason,
    ForgeConflict,
    ForgeInvalid,
    ForgeNotFound,
    ForgeRefused,
)
from leadhand.fleet.forge.http import (
    ForgeClient,
    KeyedComments,
    current_pull,
    git_access_for,
    one_line,
    pull_of_key,
    web_origin,
    worst_by_name,
)
from leadhand.fleet.forge.port import (
    UNKNOWN_TIME,
    AccessLevel,
    Act,
    Capability,
    Check,
    CheckStatus,
    GitAccess,
    Issue,
    IssueComment,
    MergeMethod,
    Place,
    PullRequest,
    PullState,
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
    from pathlib import Path

    from leadhand.fleet.forge.http import Answer, Credential, Pace

API = "https://gitlab.com/api/v4"
OFFERS: frozenset[Capability] = frozenset(
    ("issues", "pulls", "checks", "reviews", "merge", "queue")
)
READ, WRITE = "scope read_api or api", "scope api and the role Developer"
LOOKS_MAX = 5
ROLES: tuple[tuple[int, AccessLevel], ...] = (
    (50, "admin"),
    (40, "maintain"),
    (30, "write"),
    (20, "triage"),
    (10, "read"),
)
"""The least number of each role: owner, maintainer, developer, reporter, guest."""
STATUS: dict[str, CheckStatus] = {
    "success": "passed",
    "failed": "failed",
    "canceled": "cancelled",
    "canceling": "cancelled",
    "skipped": "skipped",
    "manual": "skipped",
    "running": "running",
}
"""The others wait: created, pending, preparing, scheduled, waiting_for_resource."""
COMPUTING = (
    "",
    "unchecked",
    "checking",
    "preparing",
    "approvals_syncing",
    "cannot_be_merged_recheck",
)
MERGE_STATES: dict[str, tuple[ConflictReason, str]] = {
    "conflict": ("conflicts", "it conflicts with its target"),
    "broken_status": ("conflicts", "it conflicts with its target"),
    "need_rebase": ("behind", "its branch must be rebased onto its target first"),
    "draft_status": ("draft", "it is a draft"),
    "not_open": ("closed", "it is closed"),
}
"""By `detailed_merge_status`; every other word but `mergeable` is something that is missing."""
VERDICTS: dict[str, Verdict] = {
    "requested_changes": "changes_requested",
    "reviewed": "commented",
}
"""By the state of a reviewer; approvals are read elsewhere, with their time."""
EDITED = ("changed the description", "changed title from", "marked the checklist item")
"""How the system's notes about changes of an issue's title and text begin."""
APPROVED = "approved this merge request"
"""The system's note about an approval, for servers whose approvals have no time."""


class _User(msgspec.Struct):
    username: str = "ghost"
    id: int = 0


class _Issue(msgspec.Struct):
    iid: int
    title: str | None = ""
    description: str | None = ""
    author: _User | None = None
    labels: list[str] = []
    assignees: list[_User] | None = None
    state: str = "opened"
    web_url: str | None = ""
    created_at: str | None = ""
    updated_at: str | None = ""


class _Position(msgspec.Struct):
    new_path: str | None = ""
    old_path: str | None = ""
    new_line: int | None = None
    old_line: int | None = None


class _Note(msgspec.Struct):
    id: int
    type: str | None = None
    body: str | None = ""
    author: _User | None = None
    system: bool = False
    created_at: str | None = ""
    updated_at: str | None = ""
    resolvable: bool | None = False
    resolved: bool | None = False
    position: _Position | None = None


class _Discussion(msgspec.Struct):
    id: str
    notes: list[_Note] = []


class _MergeRequest(msgspec.Struct):
    iid: int
    source_branch: str
    target_branch: str
    source_project_id: int | None = None
    target_project_id: int | None = None
    sha: str | None = ""
    state: str = "opened"
    title: str | None = ""
    description: str | None = ""
    author: _User | None = None
    web_url: str | None = ""
    merge_commit_sha: str | None = None
    squash_commit_sha: str | None = None
    detailed_merge_status: str | None = ""
    draft: bool | None = False


class _Status(msgspec.Struct):
    id: int
    name: str
    status: str
    description: str | None = ""
    target_url: str | None = ""
    allow_failure: bool | None = False
    author: _User | None = None


class _Member(msgspec.Struct):
    access_level: int = 0
    state: str | None = "active"
    membership_state: str | None = "active"


class _Reviewer(msgspec.Struct):
    user: _User
    state: str = ""


class _Approval(msgspec.Struct):
    user: _User
    approved_at: str | None = None


class _Approvals(msgspec.Struct):
    approved_by: list[_Approval] | None = None


class _Version(msgspec.Struct):
    head_commit_sha: str | None = ""
    created_at: str | None = ""


class _LabelEvent(msgspec.Struct):
    user: _User | None = None
    created_at: str | None = ""
    label: dict[str, Any] | None = None
    action: str = ""


class GitLab(KeyedComments):
    """One project on gitlab.com or a server of its own."""

    offers = OFFERS
    _change_verb, _comment_right = "PUT", WRITE

    def __init__(
        self,
        repository: str,
        credential: Credential,
        *,
        api: str = API,
        remote: str = "",
        pace: Pace | None = None,
        certificates: Path | None = None,
        log_hosts: tuple[str, ...] = (),
    ) -> None:
        """Create a client.

        - `repository`: the path of the project with its groups, as in `acme/tools/shop`.
        - `remote`: the address for git, if it is not the host's own.
        """
        self._web, host = web_origin(api)
        self.name, self._path, self._remote = f"{host}/{repository}", repository, remote
        self._project = f"/projects/{quote(repository, safe='')}"
        self._credential = credential
        self._http = ForgeClient(
            self.name,
            api,
            credential,
            pace=pace,
            certificates=certificates,
            log_hosts=log_hosts,
        )
        self._own: _User | None = None

    @property
    def limit(self) -> RateLimit:
        """What GitLab said last of its limit."""
        return self._http.limit

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    # --- accounts ---

    async def account(self) -> str:
        """Return the name of our own account."""
        return (await self._us()).username

    async def _us(self) -> _User:
        if self._own is None:
            what = "read our own account"
            data = await self._http.read("/user", what, needs=READ)
            found = self._http.convert(data, _User, what)
            if not found.id:
                raise ForgeInvalid(self.name, what, "it has no number")
            self._own = found
        return self._own

    async def permission(self, user: str) -> AccessLevel:
        """Return what an account may do with the project."""
        what = "read the permission of an account"
        data = await self._http.read("/users", what, {"username": user}, needs=READ)
        rows = data if isinstance(data, list) else []
        found = [self._http.convert(row, _User, what) for row in rows]
        named = [each for each in found if each.username.lower() == user.lower()]
        if len(named) != 1:
            return "none"
        path = f"{self._project}/members/all/{named[0].id}"
        answer = await self._http.get(path, what, needs=READ, expect=(404,))
        if answer.status == 404:
            return "none"
        member = self._http.convert(self._http.data(answer, what), _Member, what)
        if member.state != "active" or (member.membership_state or "active") != "active":
            return "none"
        return next((role for least, role in ROLES if member.access_level >= least), "none")

    async def git_access(self) -> GitAccess:
        """Return the address for git, and how a process of git signs in."""
        token = (await self._credential.headers())["private-token"]
        return git_access_for(self._remote, self._web, self._path, f"oauth2:{token}")

    # --- issues ---

    async def issues(
        self, *, label: str = "", assignee: str = "", since: str = ""
    ) -> tuple[Issue, ...]:
        """Return open issues; with `since`, also closed ones that changed."""
        what = "read issues"
        params: dict[str, str | int] = {"order_by": "updated_at", "sort": "asc", "scope": "all"}
        params |= {"updated_after": since} if since else {"state": "opened"}
        given = {"labels": label, "assignee_username": assignee}
        params |= {name: value for name, value in given.items() if value}
        rows, _ = await self._http.pages(f"{self._project}/issues", what, params, needs=READ)
        return tuple(_issue(self._http.convert(row, _Issue, what)) for row in rows)

    async def issue(self, number: int) -> Issue:
        """Return one issue."""
        what = f"read issue {number}"
        data = await self._http.read(f"{self._project}/issues/{number}", what, needs=READ)
        return _issue(self._http.convert(data, _Issue, what))

    async def given(self, number: int, *, label: str = "", assignee: str = "") -> Act:
        """Return which account gave the issue its label or its assignee last, and when."""
        what, found = f"read the events of issue {number}", Act()
        path = f"{self._project}/issues/{number}"
        if label:
            rows, cut = await self._http.pages(f"{path}/resource_label_events", what, needs=READ)
            for event in (self._http.convert(row, _LabelEvent, what) for row in rows):
                if event.action == "add" and (event.label or {}).get("name") == label:
                    found = Act(by=_name(event.user), at=utc_time(event.created_at))
            return Act() if cut else found
        notes, cut = await self._notes("issue", number)
        for note in notes:  # people cannot write system notes
            if note.system and f"assigned to @{assignee} " in f"{note.body} ":
                found = Act(by=_name(note.author), at=utc_time(note.created_at))
        return Act() if cut else found

    async def edits(self, number: int) -> tuple[Act, ...]:
        """Return the changes of an issue's title and text, by the notes that GitLab writes."""
        notes, cut = await self._notes("issue", number)
        found = [
            Act(by=_name(note.author), at=utc_time(note.created_at))
            for note in notes
            if note.system and (note.body or "").startswith(EDITED)
        ]
        # Without the last notes, the text may have been changed at any time.
        return (*found, Act(at=UNKNOWN_TIME)) if cut else tuple(found)

    def _place(self, on: Place, number: int) -> str:
        kind = "issues" if on == "issue" else "merge_requests"
        return f"{self._project}/{kind}/{number}"

    async def _notes(self, on: Place, number: int) -> tuple[list[_Note], bool]:
        what = f"read the comments of {on} {number}"
        params: dict[str, str | int] = {"sort": "asc", "order_by": "created_at"}
        path = f"{self._place(on, number)}/notes"
        rows, cut = await self._http.pages(path, what, params, needs=READ)
        return [self._http.convert(row, _Note, what) for row in rows], cut

    async def _read_comments(self, number: int, on: Place) -> tuple[list[IssueComment], bool]:
        notes, cut = await self._notes(on, number)
        us = await self._us()
        return [_comment(us, each) for each in notes if _is_comment(each)], cut

    async def _as_comment(self, answer: Answer, what: str) -> IssueComment:
        return _comment(await self._us(), self._read(answer, _Note, what))

    def _comments_path(self, number: int, on: Place) -> str:
        return f"{self._place(on, number)}/notes"

    def _comment_path(self, number: int, on: Place, ident: int) -> str:
        return f"{self._place(on, number)}/notes/{ident}"

    async def _close(self, number: int, what: str) -> Issue:
        path, asked = f"{self._project}/issues/{number}", {"state_event": "close"}
        answer = await self._http.send_again("PUT", path, what, asked, needs=WRITE)
        return _issue(self._read(answer, _Issue, what))

    # --- merge requests ---

    async def pull(self, number: int) -> PullRequest:
        """Return one merge request."""
        return _pull(await self._us(), await self._raw_pull(number))

    async def _raw_pull(self, number: int) -> _MergeRequest:
        what = f"read merge request {number}"
        data = await self._http.read(self._place("pull", number), what, needs=READ)
        return self._http.convert(data, _MergeRequest, what)

    async def _pulls_of(self, branch: str) -> list[PullRequest]:
        """Return all merge requests of a branch of this project, the newest first.

        A fork may have a branch of the same name: what comes from there is another branch.
        """
        what, us = f"read the merge requests of {branch}", await self._us()
        params: dict[str, str | int] = {
            "source_branch": branch,
            "state": "all",
            "order_by": "created_at",
            "sort": "desc",
            "scope": "all",
        }
        path = f"{self._project}/merge_requests"
        rows, _ = await self._http.pages(path, what, params, needs=READ)
        found = [self._http.convert(row, _MergeRequest, what) for row in rows]
        own = [each for each in found if each.source_project_id == each.target_project_id]
        return [_pull(us, each) for each in own]

    async def pull_of(self, branch: str) -> PullRequest | None:
        """Return the open merge request of a branch, else its newest one."""
        return current_pull(await self._pulls_of(branch))

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, key: str
    ) -> PullRequest:
        """Open a merge request, or bring the one with this key up to date."""
        what, path = f"open a merge request for {branch}", f"{self._project}/merge_requests"
        text, name, us = with_marker(body, key), one_line(title), await self._us()

        async def look() -> PullRequest | None:
            return pull_of_key(await self._pulls_of(branch), key, base)

        async def make() -> PullRequest:
            asked = {
                "source_branch": branch,
                "target_branch": base,
                "title": name,
                "description": text,
            }
            answer = await self._http.send("POST", path, what, asked, needs=WRITE, expect=(409,))
            if answer.status != 409:
                return _pull(us, self._read(answer, _MergeRequest, what))
            if (found := await look()) is not None:
                return found
            raise ForgeConflict(self.name, what, "another one exists for this branch", "other")

        found = await self._http.write_once(what, look, make)
        same = found.title == name and same_text(found.body, text)
        if found.key != key or found.state != "open" or same:
            return found
        asked, place = {"title": name, "description": text}, f"{path}/{found.number}"
        answer = await self._http.send_again("PUT", place, what, asked, needs=WRITE)
        return _pull(us, self._read(answer, _MergeRequest, what))

    async def merge(
        self, number: int, head: str, method: MergeMethod, key: str, *, message: str = ""
    ) -> PullRequest:
        """Merge a merge request whose head is `head`."""
        what, us = f"merge merge request {number}", await self._us()
        trailer = f"Leadhand-Key: {check_key(key)}"
        asked: dict[str, Any] = {"sha": head, "squash": method == "squash"}

        async def look() -> PullRequest | None:
            raw = await self._computed(number)
            found = _pull(us, raw)
            if found.state == "merged" and found.head == head:
                return found
            if found.state == "closed":
                raise ForgeConflict(self.name, what, "it is closed", "closed")
            if found.head != head:
                text = f"its head is {found.head[:12]}, not {head[:12]}"
                raise ForgeConflict(self.name, what, text, "head_moved")
            word = raw.detailed_merge_status or ""
            if word in COMPUTING or raw.state == "locked":
                raise self._http.transient(what, "GitLab is still computing it")
            if word != "mergeable":
                reason, text = MERGE_STATES.get(word, ("blocked", f"it is blocked: {word}"))
                raise ForgeConflict(self.name, what, clean_text(text, 200), reason)
            title = clean_text(raw.title, 1000)
            said = "\n\n".join(filter(None, (title, clean_text(message), trailer)))
            asked["squash_commit_message" if method == "squash" else "merge_commit_message"] = said
            return None

        async def make() -> PullRequest:
            path = f"{self._place('pull', number)}/merge"
            answer = await self._http.send(
                "PUT", path, what, asked, needs=WRITE, expect=(401, 405, 409, 422)
            )
            if answer.status < 300:
                return _pull(us, self._read(answer, _MergeRequest, what))
            if answer.status == 401:  # GitLab's word for a role that may not merge
                raise ForgeRefused(
                    self.name, what, f"this account may not merge. Fix: give it {WRITE}"
                )
            if (found := await look()) is not None:
                return found
            raise self._http.transient(what, "GitLab refused it although it can be merged")

        return await self._http.write_once(what, look, make)

    async def _computed(self, number: int) -> _MergeRequest:
        """Return a merge request when GitLab knows whether it can be merged."""
        for tries in range(LOOKS_MAX):
            found = await self._raw_pull(number)
            computing = (found.detailed_merge_status or "") in COMPUTING or found.state == "locked"
            if found.state in ("merged", "closed") or not computing:
                break
            await self._http.pace.sleep(self._http.pace.backoff(tries))
        return found

    # --- the merge queue ---

    async def enqueue(self, number: int, head: str) -> QueueEntry:
        """Put a merge request into the merge queue, unless it is there."""
        what = f"put merge request {number} into the merge queue"

        async def look() -> QueueEntry | None:
            if (await self._raw_pull(number)).sha != head:
                raise ForgeConflict(self.name, what, f"its head is not {head[:12]}", "head_moved")
            return await self.queued(number)

        async def make() -> QueueEntry:
            path = f"{self._project}/merge_trains/merge_requests/{number}"
            asked = {"sha": head}
            await self._http.send("POST", path, what, asked, needs=WRITE)
            return await self.queued(number) or QueueEntry(state="waiting")

        return await self._http.write_once(what, look, make)

    async def queued(self, number: int) -> QueueEntry | None:
        """Return the state of a merge request in the merge queue, None if it is not there."""
        what = f"read the merge queue for {number}"
        path = f"{self._project}/merge_trains/merge_requests/{number}"
        answer = await self._http.get(path, what, needs=READ, expect=(404,))
        if answer.status == 404:
            return None
        data = self._http.data(answer, what)
        state = data.get("status") if isinstance(data, dict) else ""
        over = state in ("merged", "skip_merged", "stale", "")
        return None if over else QueueEntry(state=clean_text(str(state), 100))

    # --- checks ---

    async def checks(self, commit: str, *, app: str = "") -> tuple[Check, ...]:
        """Return jobs of pipelines and statuses of other systems; with `app`, of this account."""
        what = f"read the checks of {commit[:12]}"
        path = f"{self._project}/repository/commits/{quote(commit, safe='')}/statuses"
        rows = await self._http.every(path, what, needs=READ)
        made = [self._http.convert(row, _Status, what) for row in rows]
        return worst_by_name(_check(each) for each in made if not app or app == _name(each.author))

    async def check_log(self, check: Check) -> str:
        """Return the end of a job's log; of other systems what they said."""
        what = f"read the log of {clean_text(check.name, 100)}"
        _, _, ident = check.id.partition(":")
        if not ident.isdecimal():
            return check.summary
        found = await self._http.log(f"{self._project}/jobs/{ident}/trace", what, needs=READ)
        return found or check.summary

    # --- reviews ---

    async def reviews(self, number: int) -> tuple[Review, ...]:
        """Return one review for each account that said something, with its open remarks."""
        what, us, place = (
            f"read the reviews of {number}",
            await self._us(),
            self._place("pull", number),
        )
        rows = await self._http.every(f"{place}/reviewers", what, needs=READ)
        given = [self._http.convert(row, _Reviewer, what) for row in rows]
        verdicts = {
            each.user.username: VERDICTS[each.state] for each in given if each.state in VERDICTS
        }
        approved = await self._approved(number)
        head = (await self._raw_pull(number)).sha or ""
        remarks: dict[str, list[ReviewComment]] = {}
        newest: dict[str, _Note] = {}
        for each in await self._discussions(number):
            first = each.notes[0] if each.notes else None
            if first is None or first.system or first.resolved:
                continue
            if first.position is None and not first.resolvable:
                continue
            author = _name(first.author)
            newest[author] = first
            remarks.setdefault(author, []).append(_remark(number, each.id, first))
        for author in {*remarks, *approved}:
            # An open thread asks for a change until it is resolved, or its author approves.
            asks = author in remarks or verdicts.get(author) == "changes_requested"
            agrees = author in approved and (approved[author] == head or not asks)
            verdicts[author] = "approved" if agrees else "changes_requested"
        return tuple(
            Review(
                # A new remark or another verdict makes another review.
                id=f"{author}:{verdicts[author]}:{newest[author].id if author in newest else 0}",
                author=author,
                verdict=verdicts[author],
                commit=approved.get(author, ""),
                submitted_at=utc_time(newest[author].created_at) if author in newest else "",
                comments=tuple(remarks.get(author, ())),
            )
            for author in sorted(verdicts.keys() - {us.username})
        )

    async def _approved(self, number: int) -> dict[str, str]:
        """Return for each account that approves the commit that it approved; "" if unknown.

        GitLab keeps approvals when commits are pushed, and does not say what was approved. It is
        the last version that was there before the approval.
        """
        what, place = f"read the approvals of {number}", self._place("pull", number)
        data = await self._http.read(f"{place}/approvals", what, needs=READ)
        given = self._http.convert(data, _Approvals, what).approved_by or []
        if not given:
            return {}
        notes, cut = await self._notes("pull", number)
        # An approval that was taken back and given again has several notes: the last is its own.
        said = {
            _name(note.author): note.created_at
            for note in notes
            if note.system and (note.body or "").strip() == APPROVED and not cut
        }
        rows = await self._http.every(f"{place}/versions", what, needs=READ)
        versions = [self._http.convert(row, _Version, what) for row in rows]
        return {
            each.user.username: _version_at(
                versions, each.approved_at or said.get(each.user.username)
            )
            for each in given
        }

    async def _discussions(self, number: int) -> list[_Discussion]:
        what = f"read the remarks on {number}"
        path = f"{self._place('pull', number)}/discussions"
        rows = await self._http.every(path, what, needs=READ)
        return [self._http.convert(row, _Discussion, what) for row in rows]

    async def reply(self, comment: ReviewComment, body: str, key: str) -> None:
        """Answer a remark of a review, once for each key."""
        what, us = f"answer a remark on {comment.pull}", await self._us()
        thread = quote(comment.id.partition(":")[0], safe="")
        path = f"{self._place('pull', comment.pull)}/discussions/{thread}"
        text = with_marker(body, key)

        async def look() -> Literal[True] | None:
            answer = await self._http.get(path, what, needs=READ, expect=(404,))
            if answer.status == 404:
                raise ForgeNotFound(self.name, what, "the remark was deleted")
            found = self._http.convert(self._http.data(answer, what), _Discussion, what)
            ours = [each.id for each in found.notes if _key(us, each) == key]
            for extra in ours[1:]:  # of a request that ended after it was given up
                await self._http.send_again(
                    "DELETE", f"{path}/notes/{extra}", what, needs=WRITE, expect=(404,)
                )
            return True if ours else None

        async def make() -> Literal[True]:
            await self._http.send("POST", f"{path}/notes", what, {"body": text}, needs=WRITE)
            return True

        await self._http.write_once(what, look, make)

    def _read(self, answer: Answer, kind: type[Any], what: str) -> Any:
        return self._http.convert(self._http.data(answer, what), kind, what)


def _name(user: _User | None) -> str:
    return clean_text(user.username, 200) if user is not None else "ghost"


def _version_at(versions: list[_Version], at: str | None) -> str:
    """Return the head of the last version before a time; "" if it is not sure."""
    until = _moment(at)
    times = [(_moment(each.created_at), each.head_commit_sha or "") for each in versions]
    if until is None or any(time is None for time, _ in times):
        return ""
    before = [(time, sha) for time, sha in times if time is not None and time < until]
    return max(before)[1] if before else ""


def _moment(text: str | None) -> datetime | None:
    """Return a time with its fraction of a second; None if it is none."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _key(us: _User, note: _Note) -> str:
    """Return the key of a note; only one of our own account has one."""
    ours = note.author is not None and note.author.id == us.id and not note.system
    return key_of(note.body or "") if ours else ""


def _is_comment(note: _Note) -> bool:
    return not note.system and note.position is None


def _comment(us: _User, note: _Note) -> IssueComment:
    return IssueComment(
        id=note.id,
        author=_name(note.author),
        body=clean_text(note.body),
        created_at=utc_time(note.created_at),
        updated_at=utc_time(note.updated_at),
        key=_key(us, note),
    )


def _issue(each: _Issue) -> Issue:
    return Issue(
        number=each.iid,
        title=clean_text(each.title, 1000),
        body=clean_text(each.description),
        author=_name(each.author),
        labels=tuple(clean_text(label, 200) for label in each.labels),
        assignees=tuple(_name(user) for user in each.assignees or ()),
        state="open" if each.state == "opened" else "closed",
        url=each.web_url or "",
        created_at=utc_time(each.created_at),
        updated_at=utc_time(each.updated_at),
    )


def _pull(us: _User, each: _MergeRequest) -> PullRequest:
    states: dict[str, PullState] = {"merged": "merged", "closed": "closed"}
    state = states.get(each.state, "open")
    word = each.detailed_merge_status or ""
    ours = each.author is not None and each.author.id == us.id
    made = each.squash_commit_sha or each.merge_commit_sha or each.sha or ""
    return PullRequest(
        number=each.iid,
        branch=each.source_branch,
        base=each.target_branch,
        head=each.sha or "",
        url=each.web_url or "",
        state=state,
        merge_commit=(each.merge_commit_sha or made) if state == "merged" else "",
        title=clean_text(each.title, 1000),
        body=clean_text(each.description),
        author=_name(each.author),
        draft=bool(each.draft),
        mergeable=None if word in COMPUTING else word not in ("conflict", "broken_status"),
        key=key_of(each.description or "") if ours else "",
    )


def _check(each: _Status) -> Check:
    status = STATUS.get(each.status, "queued")
    if each.allow_failure and status == "failed":
        status = "neutral"
    return Check(
        name=clean_text(each.name, 500),
        status=status,
        id=f"job:{each.id}",
        url=each.target_url or "",
        summary=clean_text(each.description, 2000),
        broken=status == "cancelled",
    )


def _remark(number: int, thread: str, note: _Note) -> ReviewComment:
    place = note.position or _Position()
    return ReviewComment(
        id=f"{thread}:{note.id}",
        pull=number,
        path=clean_text(place.new_path or place.old_path, 1000),
        line=place.new_line or place.old_line or 0,
        body=clean_text(note.body),
        author=_name(note.author),
    )
