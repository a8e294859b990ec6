"""The forge port: what the fleet needs of a code host.

The laws:

1. Every write is idempotent. A comment and a pull request carry a key in a hidden marker, the last
   line of their text; a write looks for the marker first, and again after an answer that was lost.
   So nothing is made twice, although a process is killed between a request and its answer.
2. A marker counts only from our own account. Another author may write anything; text that others
   wrote and that we quote loses its markers (`with_marker`).
3. All text of a host is untrusted. It is bounded, and has no control characters.
4. `author_role` is a hint for people. Who may do what is asked of the host: `permission`.
5. Polling is the base. A webhook says only that it is time to look; a lost one loses nothing.

Git itself (fetch, push) belongs to the hub; `git_access` says where the repository is and how a
process of git signs in. Errors: `leadhand.fleet.forge.errors`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = Literal["issue", "pull"]
"""What a conversation belongs to. On GitHub both share their numbers, on GitLab they do not."""
IssueState = Literal["open", "closed"]
PullState = Literal["open", "closed", "merged"]
CheckStatus = Literal["queued", "running", "passed", "failed", "cancelled", "skipped", "neutral"]
Verdict = Literal["approved", "changes_requested", "commented", "dismissed"]
MergeMethod = Literal["merge", "squash", "rebase"]
AccessLevel = Literal["none", "read", "triage", "write", "maintain", "admin"]
Capability = Literal["issues", "pulls", "checks", "reviews", "merge", "queue"]

ACCESS: tuple[AccessLevel, ...] = ("none", "read", "triage", "write", "maintain", "admin")
"""What an account may do with the repository, the least first."""
TEXT_MAX = 100_000
"""The longest text of a host that is kept, in characters."""
BODY_MAX = 60_000
"""The longest text that is written, in characters; GitHub takes 65,536."""
UNKNOWN_TIME = "9999-12-31T00:00:00Z"
"""The time of an act that a host did not show: it may have been after all others."""
LOG_MAX = 64 * 1024
"""The most of a check's log that is returned, in characters: its end."""

_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/:]|-(?!-)){0,119}")
_MARKER = re.compile(r"<!-- leadhand:([A-Za-z0-9][A-Za-z0-9._/:-]{0,119}) -->\s*\Z")
_ANY_MARKER = re.compile(r"<!(-+)\s*leadhand\s*:", re.IGNORECASE)
_COMMAND = re.compile(r"(?m)^([ \t>]*)/(?=[A-Za-z])")
_MENTION = re.compile(r"@(?=[A-Za-z0-9])")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
CUT = "\n\n(cut: the text was longer)"


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """An issue; times are UTC, as in `2026-01-31T12:00:00Z`."""

    number: int
    title: str
    body: str
    author: str
    author_role: str = ""
    labels: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    state: IssueState = "open"
    url: str = ""
    created_at: str = ""
    updated_at: str = ""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """That an account did something; `by` and `at` are empty if the host does not say."""

    by: str = ""
    at: str = ""


class IssueComment(msgspec.Struct, frozen=True, kw_only=True):
    """A comment in the conversation of an issue or of a pull request.

    `key` is the key that we wrote it with; empty for comments of others.
    """

    id: int
    author: str
    body: str
    author_role: str = ""
    created_at: str = ""
    updated_at: str = ""
    url: str = ""
    key: str = ""

    @property
    def is_edited(self) -> bool:
        """Whether it was changed after it was written; a host does not always say by whom."""
        return self.updated_at != self.created_at


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request (GitLab: a merge request).

    - `head`: the commit at the tip of `branch`.
    - `merge_commit`: the commit on `base` that holds it, once it is merged.
    - `mergeable`: None while the host has not computed it.
    - `key`: the key that we opened it with; empty if another account opened it.
    """

    number: int
    branch: str
    base: str
    head: str
    url: str = ""
    state: PullState = "open"
    merge_commit: str = ""
    title: str = ""
    body: str = ""
    author: str = ""
    draft: bool = False
    mergeable: bool | None = None
    key: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A result of CI on a commit. `id` names it to `check_log`.

    `broken`: the host did not carry it out (cancelled, timed out, not started, out of date), which
    says nothing about the commit.
    """

    name: str
    status: CheckStatus
    id: str = ""
    url: str = ""
    summary: str = ""
    broken: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the check has ended."""
        return self.status not in ("queued", "running")


class ReviewComment(msgspec.Struct, frozen=True, kw_only=True):
    """A remark on a line; `id` with `pull` names it to `reply`. `line` is 0 for a whole file."""

    id: str
    pull: int
    path: str
    body: str
    author: str = ""
    line: int = 0
    url: str = ""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted review of a pull request; `commit` is the head that was reviewed.

    It is empty if the host does not say: an approval then counts for no commit.
    """

    id: str
    author: str
    verdict: Verdict
    author_role: str = ""
    body: str = ""
    commit: str = ""
    submitted_at: str = ""
    comments: tuple[ReviewComment, ...] = ()


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the host's merge queue; `state` is the host's own word."""

    position: int = 0
    state: str = ""


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What the host said last of its limit; `reset_at` in seconds since 1970."""

    limit: int = 0
    remaining: int = 0
    reset_at: float = 0.0


class GitAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where git finds the repository, and the variables with which its process signs in.

    The variables hold a token: they are for the environment of git only.
    """

    url: str
    env: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"GitAccess(url={self.url!r}, env={sorted(self.env)!r})"


class Forge(Protocol):
    """A code host with one repository. Every method may raise a `ForgeError`."""

    @property
    def name(self) -> str:
        """The host and the repository, for people: `github.com/acme/shop`."""

    @property
    def offers(self) -> frozenset[Capability]:
        """What this host has; other methods raise `ForgeNotOffered`."""

    @property
    def limit(self) -> RateLimit:
        """What the host said last of its limit."""

    async def account(self) -> str:
        """Return the name of our own account."""

    async def permission(self, user: str) -> AccessLevel:
        """Return what an account may do with the repository."""

    async def git_access(self) -> GitAccess:
        """Return the address for git, and how a process of git signs in."""

    async def issues(
        self, *, label: str = "", assignee: str = "", since: str = ""
    ) -> tuple[Issue, ...]:
        """Return open issues, those changed longest ago first.

        - `label`, `assignee`: only issues with both.
        - `since`: only issues changed at this time or later (an `updated_at`). With it, closed
          issues are returned too, so that a close is noticed.

        At most some thousand are returned: ask again with the last `updated_at` as `since`.
        """

    async def issue(self, number: int) -> Issue:
        """Return one issue."""

    async def given(self, number: int, *, label: str = "", assignee: str = "") -> Act:
        """Return which account gave the issue its label or its assignee last, and when."""

    async def edits(self, number: int) -> tuple[Act, ...]:
        """Return the changes of an issue's title and text that the host knows, the oldest first.

        Of the changes of a text the last one may be the only one.
        """

    async def comments(
        self, number: int, *, on: Place = "issue", since: str = ""
    ) -> tuple[IssueComment, ...]:
        """Return comments, the oldest first; with `since`, those changed at this time or later."""

    async def comment(
        self, number: int, body: str, key: str, *, on: Place = "issue"
    ) -> IssueComment:
        """Write a comment, or bring the one with this key up to date."""

    async def close_issue(self, number: int, body: str, key: str) -> Issue:
        """Close an issue, then say why in a comment.

        An open issue that has this comment already was reopened by a person, and stays open: raise
        `ForgeConflict` with the reason `reopened`.
        """

    async def pull(self, number: int) -> PullRequest:
        """Return one pull request."""

    async def pull_of(self, branch: str) -> PullRequest | None:
        """Return the open pull request of a branch, else its newest one, else None."""

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, key: str
    ) -> PullRequest:
        """Open a pull request, or bring title and body of the one with this key up to date.

        A key belongs to one branch. There is never a second one for a key, nor a second open one
        for a branch and its base: one that was merged or that a person closed is returned as it is,
        and so is an open one that another account opened for them.
        """

    async def checks(self, commit: str, *, app: str = "") -> tuple[Check, ...]:
        """Return the newest result of every check on a commit, by name.

        - `app`: only results that this app reported: on GitHub the name of an app such as
          `github-actions`, whose results are check runs, on GitLab the name of an account.
        """

    async def check_log(self, check: Check) -> str:
        """Return what a check said, at most `LOG_MAX` characters: its end."""

    async def reviews(self, number: int) -> tuple[Review, ...]:
        """Return the submitted reviews of a pull request with their remarks, the oldest first."""

    async def reply(self, comment: ReviewComment, body: str, key: str) -> None:
        """Answer a remark of a review, once for each key."""

    async def merge(
        self, number: int, head: str, method: MergeMethod, key: str, *, message: str = ""
    ) -> PullRequest:
        """Merge a pull request whose head is `head`, and return it.

        The message of the commit ends with the key, as a trailer. A pull request that was merged at
        this head already is returned. Raise `ForgeConflict` if the head moved or if the host does
        not allow the merge.
        """

    async def enqueue(self, number: int, head: str) -> QueueEntry:
        """Put a pull request into the host's merge queue, unless it is there."""

    async def queued(self, number: int) -> QueueEntry | None:
        """Return the place of a pull request in the merge queue, None if it is not there."""

    async def aclose(self) -> None:
        """Close all connections."""


def check_key(key: str) -> str:
    """Return a key. Raise `ValueError` if it cannot stand in a marker."""
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"{key[:130]!r} is no key: it has letters, digits and . _ / : -, no two dashes in a "
            "row, and at most 120 characters"
        )
    return key


def quoted(text: str) -> str:
    """Return text of others as a quotation without mentions: they would count as ours.

    Other programs obey mentions ("@bot merge") of an account that has our rights.
    """
    plain = _MENTION.sub("@\u200b", clean_text(text)).strip()
    return "\n".join(f"> {line}".rstrip() for line in plain.split("\n"))


def with_marker(body: str, key: str) -> str:
    """Return a text to write: bounded, without markers that it quotes, and with its own.

    A line that begins with a slash and a letter would be a command to GitLab ("/merge") and to bots
    of GitHub, obeyed with our rights: a space without width goes before it.
    """
    text = clean_text(_ANY_MARKER.sub(r"&lt;!\1 leadhand:", body)).rstrip()
    text = _COMMAND.sub("\\1\u200b/", text)
    if len(text) > BODY_MAX:
        text = text[:BODY_MAX] + CUT
    return f"{text}\n\n<!-- leadhand:{check_key(key)} -->"


def key_of(text: str) -> str:
    """Return the key of the marker at the end of a text, "" if there is none.

    The caller checks the author: only a text of our own account has a key.
    """
    found = _MARKER.search(text[-300:])
    return found[1] if found and _KEY.fullmatch(found[1]) else ""


def utc_time(text: str | None) -> str:
    """Return a time of a host in UTC and whole seconds, which sorts as text; "" if it is none."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return ""
    aware = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return aware.strftime("%Y-%m-%dT%H:%M:%SZ")


def same_text(one: str, other: str) -> bool:
    """Return whether a host keeps two texts as the same: ends of lines may differ."""
    return clean_text(one).strip() == clean_text(other).strip()


def clean_text(text: str | None, most: int = TEXT_MAX) -> str:
    """Return a text of a host without control characters, and cut after `most` characters.

    A slash that `with_marker` made harmless is one again: people copy lines of our texts.
    """
    plain = (text or "")[: most + 1].replace("\r\n", "\n").replace("\r", "\n")
    plain = _CONTROL.sub("", plain).replace("\u200b/", "/")
    return plain if len(plain) <= most else plain[:most] + CUT
