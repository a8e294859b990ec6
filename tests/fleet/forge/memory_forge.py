"""A code host in memory, for tests of what stands on the port. Its first methods act for people.

`trouble` is called before and after each write with the name of the method: a test raises from it
to fail a request before it took effect, or to lose its answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from leadhand.fleet.forge.errors import ForgeConflict, ForgeNotFound
from leadhand.fleet.forge.port import (
    AccessLevel,
    Act,
    Capability,
    Check,
    GitAccess,
    Issue,
    IssueComment,
    MergeMethod,
    Place,
    PullRequest,
    QueueEntry,
    RateLimit,
    Review,
    ReviewComment,
    clean_text,
    key_of,
    with_marker,
)

US = "leadhand-bot"
ALL: frozenset[Capability] = frozenset(
    {"issues", "pulls", "checks", "reviews", "merge", "queue"}  # type: ignore[arg-type]
)
Moment = Literal["before", "after"]


class MemoryForge:
    """The whole port, on dicts."""

    name = "memory/shop"
    offers = ALL
    limit = RateLimit()

    def __init__(self, heads: Callable[[str], str] | None = None) -> None:
        """Create a host; `heads` returns the commit of a branch (default: what `push` said)."""
        self._numbers, self._ids, self._time = itertools.count(1), itertools.count(100), 0
        self.issue_of: dict[int, Issue] = {}
        self.comments_of: dict[tuple[str, int], list[IssueComment]] = {}
        self.pulls: dict[int, PullRequest] = {}
        self.checks_of: dict[str, dict[str, Check]] = {}
        self.logs: dict[str, str] = {}
        self.reviews_of: dict[int, list[Review]] = {}
        self.replies: dict[str, list[IssueComment]] = {}
        self.queue: list[int] = []
        self.access: dict[str, AccessLevel] = {US: "write"}
        self.actors: dict[tuple[int, str], Act] = {}
        self.edits_of: dict[int, list[Act]] = {}
        self.branches: dict[str, str] = {}
        self.trouble: Callable[[str, Moment], None] = lambda _method, _moment: None
        self.writes: list[str] = []
        """What was really made, in order: a test counts duplicates here."""
        self._heads = heads or (lambda branch: self.branches.get(branch, ""))

    # --- people ---

    def now(self) -> str:
        self._time += 1
        minutes, second = divmod(self._time, 60)
        return f"2026-01-01T{minutes // 60:02}:{minutes % 60:02}:{second:02}Z"

    def add_issue(self, title: str, body: str = "", author: str = "ann", **more: object) -> Issue:
        """Make an issue; `more` holds further fields."""
        number = next(self._numbers)
        made = Issue(number=number, title=title, body=body, author=author, updated_at=self.now())
        self.issue_of[number] = replace(made, **more)
        return self.issue_of[number]

    def label_issue(self, number: int, label: str, by: str = "ann") -> None:
        old = self.issue_of[number]
        self.actors[number, label] = Act(by=by, at=self.now())
        self._set_issue(replace(old, labels=(*old.labels, label)))

    def say(self, number: int, body: str, author: str = "ann", on: Place = "issue") -> IssueComment:
        """Write a comment as another account."""
        return self._add_comment(on, number, body, author)

    def push(self, branch: str, commit: str) -> None:
        """Move a branch, as git would."""
        self.branches[branch] = commit

    def set_check(self, commit: str, check: Check, log: str = "") -> None:
        self.checks_of.setdefault(commit, {})[check.name] = check
        self.logs[check.id or check.name] = log

    def add_review(self, number: int, review: Review) -> None:
        self.reviews_of.setdefault(number, []).append(review)

    def close_pull(self, number: int) -> None:
        self.pulls[number] = replace(self.pulls[number], state="closed")

    # --- the port ---

    async def account(self) -> str:
        return US

    async def permission(self, user: str) -> AccessLevel:
        return self.access.get(user, "none")

    async def git_access(self) -> GitAccess:
        return GitAccess(url="file:///nowhere")

    async def issues(
        self, *, label: str = "", assignee: str = "", since: str = ""
    ) -> tuple[Issue, ...]:
        found = [
            each
            for each in self.issue_of.values()
            if (not label or label in each.labels)
            and (not assignee or assignee in each.assignees)
            and (each.updated_at >= since if since else each.state == "open")
        ]
        return tuple(sorted(found, key=lambda each: each.updated_at))

    async def issue(self, number: int) -> Issue:
        if number not in self.issue_of:
            raise ForgeNotFound(self.name, "read an issue", f"there is no issue {number}")
        return self.issue_of[number]

    async def given(self, number: int, *, label: str = "", assignee: str = "") -> Act:
        return self.actors.get((number, label or assignee), Act())

    async def edits(self, number: int) -> tuple[Act, ...]:
        return tuple(self.edits_of.get(number, ()))

    async def comments(
        self, number: int, *, on: Place = "issue", since: str = ""
    ) -> tuple[IssueComment, ...]:
        found = self.comments_of.get((on, number), [])
        return tuple(each for each in found if each.updated_at >= since)

    async def comment(
        self, number: int, body: str, key: str, *, on: Place = "issue"
    ) -> IssueComment:
        text = with_marker(body, key)
        self.trouble("comment", "before")
        kept = self.comments_of.setdefault((on, number), [])
        for at, each in enumerate(kept):
            if each.key == key:
                kept[at] = replace(each, body=text)
                self.trouble("comment", "after")
                return kept[at]
        made = self._add_comment(on, number, text, US)
        self.writes.append(f"comment {on} {number} {key}")
        self.trouble("comment", "after")
        return made

    async def close_issue(self, number: int, body: str, key: str) -> Issue:
        old = await self.issue(number)
        said = any(each.key == key for each in await self.comments(number))
        if old.state == "open":
            if said:
                raise ForgeConflict(self.name, "close an issue", "it was reopened", "reopened")
            self.trouble("close_issue", "before")
            self._set_issue(replace(old, state="closed"))
            self.writes.append(f"close {number}")
            self.trouble("close_issue", "after")
        await self.comment(number, body, key)
        return self.issue_of[number]

    async def pull(self, number: int) -> PullRequest:
        if number not in self.pulls:
            raise ForgeNotFound(self.name, "read a pull request", f"there is no {number}")
        return self._now(self.pulls[number])

    async def pull_of(self, branch: str) -> PullRequest | None:
        found = [self._now(each) for each in self.pulls.values() if each.branch == branch]
        still = [each for each in found if each.state == "open"]
        return (still or found or [None])[-1]

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, key: str
    ) -> PullRequest:
        text = with_marker(body, key)
        self.trouble("open_pull", "before")
        for each in self.pulls.values():
            if each.key == key or (each.branch == branch and each.state == "open"):
                if each.key == key and each.state == "open":
                    self.pulls[each.number] = replace(each, title=title, body=text)
                self.trouble("open_pull", "after")
                return self._now(self.pulls[each.number])
        if not (head := self._heads(branch)):
            raise ForgeNotFound(self.name, "open a pull request", f"there is no branch {branch}")
        number = next(self._numbers)
        self.pulls[number] = PullRequest(
            number=number, branch=branch, base=base, head=head, title=title, body=text, author=US,
            key=key, mergeable=True, url=f"https://memory.test/shop/pull/{number}",
        )  # fmt: skip
        self.writes.append(f"pull {branch} {key}")
        self.trouble("open_pull", "after")
        return self.pulls[number]

    async def checks(self, commit: str, *, app: str = "") -> tuple[Check, ...]:
        return tuple(check for _, check in sorted(self.checks_of.get(commit, {}).items()))

    async def check_log(self, check: Check) -> str:
        return self.logs.get(check.id or check.name, "")

    async def reviews(self, number: int) -> tuple[Review, ...]:
        return tuple(self.reviews_of.get(number, ()))

    async def reply(self, comment: ReviewComment, body: str, key: str) -> None:
        self.trouble("reply", "before")
        kept = self.replies.setdefault(comment.id, [])
        if not any(each.key == key for each in kept):
            text = with_marker(body, key)
            kept.append(IssueComment(id=next(self._ids), author=US, body=text, key=key))
            self.writes.append(f"reply {comment.id} {key}")
        self.trouble("reply", "after")

    async def merge(
        self, number: int, head: str, method: MergeMethod, key: str, *, message: str = ""
    ) -> PullRequest:
        pull = await self.pull(number)
        if pull.state == "merged" and pull.head == head:
            return pull
        if pull.state != "open":
            raise ForgeConflict(self.name, "merge", f"it is {pull.state}", "closed")
        if pull.head != head:
            raise ForgeConflict(self.name, "merge", f"its head is {pull.head}", "head_moved")
        if pull.mergeable is False:
            raise ForgeConflict(self.name, "merge", "it has conflicts", "conflicts")
        self.trouble("merge", "before")
        commit = f"merge-of-{head}"
        self.pulls[number] = replace(pull, state="merged", merge_commit=commit)
        self.branches[pull.base] = commit
        self.writes.append(f"merge {number}")
        self.trouble("merge", "after")
        return self.pulls[number]

    async def enqueue(self, number: int, head: str) -> QueueEntry:
        pull = await self.pull(number)
        if pull.head != head:
            raise ForgeConflict(self.name, "enqueue", f"its head is {pull.head}", "head_moved")
        if number not in self.queue:
            self.queue.append(number)
            self.writes.append(f"enqueue {number}")
        return QueueEntry(position=self.queue.index(number) + 1, state="queued")

    async def queued(self, number: int) -> QueueEntry | None:
        if number not in self.queue:
            return None
        return QueueEntry(position=self.queue.index(number) + 1, state="queued")

    async def aclose(self) -> None:
        return None

    # --- inside ---

    def _set_issue(self, issue: Issue) -> None:
        self.issue_of[issue.number] = replace(issue, updated_at=self.now())

    def _add_comment(self, on: str, number: int, body: str, author: str) -> IssueComment:
        at = self.now()
        made = IssueComment(
            id=next(self._ids), author=author, body=clean_text(body), created_at=at, updated_at=at,
            key=key_of(body) if author == US else "",
        )  # fmt: skip
        self.comments_of.setdefault((on, number), []).append(made)
        if on == "issue" and number in self.issue_of:
            self._set_issue(self.issue_of[number])
        return made

    def _now(self, pull: PullRequest) -> PullRequest:
        """Return an open pull request with the head that its branch has now."""
        head = self._heads(pull.branch) if pull.state == "open" else ""
        return replace(pull, head=head or pull.head)
