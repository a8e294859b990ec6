"""Plain git: a repository that branches are pushed to. It has no issues, pull requests or CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from leadhand.fleet.forge.errors import ForgeNotOffered
from leadhand.fleet.forge.port import GitAccess, RateLimit

if TYPE_CHECKING:
    from leadhand.fleet.forge.port import (
        AccessLevel,
        Act,
        Capability,
        Check,
        Issue,
        IssueComment,
        MergeMethod,
        Place,
        PullRequest,
        QueueEntry,
        Review,
        ReviewComment,
    )


class PlainGit:
    """A repository by its address; all but `git_access` raises `ForgeNotOffered`."""

    offers: frozenset[Capability] = frozenset()
    limit = RateLimit()

    def __init__(self, remote: str) -> None:
        """Create a client; git signs in as the user configured it (SSH, credential helper)."""
        self.name = remote.rpartition("@")[2]
        self._remote = remote

    async def git_access(self) -> GitAccess:
        """Return the address."""
        return GitAccess(url=self._remote, env={"GIT_TERMINAL_PROMPT": "0"})

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    async def account(self) -> str:
        """Raise `ForgeNotOffered`."""
        self._none("read our own account")

    async def permission(self, user: str) -> AccessLevel:
        """Raise `ForgeNotOffered`."""
        self._none("read the permission of an account")

    async def issues(
        self, *, label: str = "", assignee: str = "", since: str = ""
    ) -> tuple[Issue, ...]:
        """Raise `ForgeNotOffered`."""
        self._none("read issues")

    async def issue(self, number: int) -> Issue:
        """Raise `ForgeNotOffered`."""
        self._none("read an issue")

    async def given(self, number: int, *, label: str = "", assignee: str = "") -> Act:
        """Raise `ForgeNotOffered`."""
        self._none("read the events of an issue")

    async def edits(self, number: int) -> tuple[Act, ...]:
        """Raise `ForgeNotOffered`."""
        self._none("read the changes of an issue")

    async def comments(
        self, number: int, *, on: Place = "issue", since: str = ""
    ) -> tuple[IssueComment, ...]:
        """Raise `ForgeNotOffered`."""
        self._none("read comments")

    async def comment(
        self, number: int, body: str, key: str, *, on: Place = "issue"
    ) -> IssueComment:
        """Raise `ForgeNotOffered`."""
        self._none("comment")

    async def close_issue(self, number: int, body: str, key: str) -> Issue:
        """Raise `ForgeNotOffered`."""
        self._none("close an issue")

    async def pull(self, number: int) -> PullRequest:
        """Raise `ForgeNotOffered`."""
        self._none("read a pull request")

    async def pull_of(self, branch: str) -> PullRequest | None:
        """Raise `ForgeNotOffered`."""
        self._none("read pull requests")

    async def open_pull(
        self, branch: str, base: str, title: str, body: str, key: str
    ) -> PullRequest:
        """Raise `ForgeNotOffered`."""
        self._none("open a pull request")

    async def checks(self, commit: str, *, app: str = "") -> tuple[Check, ...]:
        """Raise `ForgeNotOffered`."""
        self._none("read checks")

    async def check_log(self, check: Check) -> str:
        """Raise `ForgeNotOffered`."""
        self._none("read the log of a check")

    async def reviews(self, number: int) -> tuple[Review, ...]:
        """Raise `ForgeNotOffered`."""
        self._none("read reviews")

    async def reply(self, comment: ReviewComment, body: str, key: str) -> None:
        """Raise `ForgeNotOffered`."""
        self._none("answer a remark")

    async def merge(
        self, number: int, head: str, method: MergeMethod, key: str, *, message: str = ""
    ) -> PullRequest:
        """Raise `ForgeNotOffered`."""
        self._none("merge a pull request")

    async def enqueue(self, number: int, head: str) -> QueueEntry:
        """Raise `ForgeNotOffered`."""
        self._none("use a merge queue")

    async def queued(self, number: int) -> QueueEntry | None:
        """Raise `ForgeNotOffered`."""
        self._none("use a merge queue")

    def _none(self, what: str) -> NoReturn:
        raise ForgeNotOffered(
            self.name,
            what,
            'plain git does not have it. Fix: set [fleet.forge] kind = "github" or "gitlab"',
        )
