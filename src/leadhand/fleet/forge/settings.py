"""`[fleet.forge]`: the code host of a fleet.

    [fleet.forge]
    kind = "github"
    repository = "acme/shop"
    token = "env:LEADHAND_GITHUB_TOKEN"

No token stands in a file of settings: they name the variable or the file that holds it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from leadhand.codec.tables import Duration, TableSchema, Texts
from leadhand.fleet.forge.rules import ForgeRules
from leadhand.settings.notify import HostPort, HttpAddress, SecretReference, read_secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leadhand.fleet.forge.http import Pace
    from leadhand.fleet.forge.port import Forge
    from leadhand.fleet.forge.webhooks import WebhookListener

_REPOSITORY = {
    "github": re.compile(r"[A-Za-z0-9-]{1,100}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}"),
    "gitlab": re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*){1,20}", re.ASCII),
    "git": re.compile(""),
}
_SSH = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^\x00-\x20]+")


class ForgeTable(TableSchema):
    """`[fleet.forge]`"""

    kind: Literal["github", "gitlab", "git"] = "github"
    """The kind of host: GitHub, GitLab, or plain git, which has no issues, pull requests or CI."""
    repository: str = ""
    """The repository, as in `acme/shop`; on GitLab with all its groups."""
    token: SecretReference = ""
    """Where the token is: `env:NAME` or `file:PATH`."""
    app: str = ""
    """The number of a GitHub App, in place of a token."""
    app_key: SecretReference = ""
    """Where the private key (PEM) of the GitHub App is: `file:PATH` or `env:NAME`."""
    installation: Annotated[int, Meta(ge=0)] = 0
    """The number of the app's installation. Default: the one of the repository."""
    account: str = ""
    """Our own account, for a token that cannot ask for it, such as `github-actions[bot]`."""
    api: HttpAddress = ""
    """The address of the API. Default: the one of github.com or gitlab.com. For a server of your
    own: `https://HOST/api/v3` (GitHub Enterprise Server), `https://HOST/api/v4` (GitLab)."""
    remote: str = ""
    """The address for git, if it is not the host's own by HTTPS: `git@HOST:acme/shop.git` signs in
    by SSH. Required for plain git."""
    log_hosts: Texts = ()
    """Hosts, with all below them, that logs of checks may be read from besides the API. Default:
    the stores of GitHub's logs. They never get the token."""
    listen: HostPort | None = None
    """The address on which webhooks are received, such as `127.0.0.1:8787`. A webhook makes the
    next look at the host come at once. Default: the host is only polled."""
    webhook_secret: SecretReference = ""
    """Where the secret is that webhooks of the host are checked with: `env:NAME` or `file:PATH`.
    Required for `listen`."""

    label: str = "leadhand"
    """Open issues with this label become epics. Empty: the assignee alone decides."""
    assignee: str = ""
    """Only issues that are assigned to this account become epics. Empty: the label alone decides;
    with both empty, no issue does."""
    start: Texts = ("write",)
    """Who may start work, answer questions and review: `write`, `maintain` or another level of
    access to the repository, or names of accounts. What others write is ignored."""
    base: str = ""
    """The branch that pull requests go to. Default: the branch that the fleet follows."""
    prefix: str = "leadhand/"
    """How the names of the fleet's branches begin."""
    merge: Literal["host", "train", "people"] = "people"
    """Who merges a pull request: the host, when it is green and approved; the fleet's merge queue,
    which then pushes the branch; or people."""
    method: Literal["merge", "squash", "rebase"] = "squash"
    """How the host merges."""
    checks: Texts = ()
    """Checks that must pass on a pull request, and on the branch before the issue is closed; a
    missing one has not passed. Default: those that the host shows."""
    check_time: Duration = 7200.0
    """How long checks may take before the attempt fails."""
    approvals: Annotated[int, Meta(ge=0, le=20)] = 1
    """How many people must approve before the host or the merge queue merges."""
    look: Duration = 15.0
    """How often the host is looked at."""
    writes: Texts = ()
    """Paths that the task of an issue may write, in a fleet without a planner."""

    def __post_init__(self) -> None:
        """Raise ValueError, a sentence, for what does not go together."""
        if not _REPOSITORY[self.kind].fullmatch(self.repository) and self.kind != "git":
            raise ValueError(
                'repository must name the repository. Fix: write repository = "acme/shop".'
            )
        if self.kind == "git" and not self.remote:
            raise ValueError(
                'plain git needs its address. Fix: write remote = "git@HOST:acme/shop.git".'
            )
        if self.remote and not _is_remote(self.remote):
            raise ValueError(
                "remote must be an address for git, without a token in it. Fix: write one such as "
                "git@HOST:acme/shop.git or https://HOST/acme/shop.git."
            )
        if self.app and (self.kind != "github" or self.token or not self.app_key):
            raise ValueError(
                'app goes with kind = "github" and app_key, and without token. '
                'Fix: write app_key = "file:app.pem", or a token alone.'
            )
        if self.listen and not self.webhook_secret:
            raise ValueError(
                "listen needs a secret that webhooks are checked with. "
                'Fix: write webhook_secret = "env:LEADHAND_WEBHOOK_SECRET".'
            )
        if self.kind != "git" and not (self.app or self.token):
            raise ValueError(
                'it has no token. Fix: write token = "env:LEADHAND_GITHUB_TOKEN", and set that '
                "variable."
            )


def _is_remote(text: str) -> bool:
    if _SSH.fullmatch(text) or text.startswith("/"):
        return text.isprintable()
    try:
        parts = urlsplit(text)
        user = parts.username or ""
    except ValueError:
        return False
    return (
        text.isprintable()
        and parts.scheme in ("https", "http", "ssh", "file")
        and not parts.password
        and (parts.scheme == "ssh" or not user)
    )


def open_forge(
    table: ForgeTable, certificates: Path | None = None, pace: Pace | None = None
) -> Forge:
    """Return a client for the host; nothing is sent yet. Raise `UsageError`.

    - `certificates`: a file of certificates that are trusted besides the usual ones.
    - `pace`: the times of the client, for tests.
    """
    from leadhand.fleet.forge import github, gitlab
    from leadhand.fleet.forge.http import TokenCredential
    from leadhand.fleet.forge.plain_git import PlainGit

    if table.kind == "git":
        return PlainGit(table.remote)
    read = partial(read_secret, table.token)
    if table.kind == "gitlab":
        return gitlab.GitLab(
            table.repository,
            TokenCredential(read, "private-token"),
            api=table.api or gitlab.API,
            remote=table.remote,
            pace=pace,
            certificates=certificates,
            log_hosts=table.log_hosts,
        )
    api = table.api or github.API
    credential: TokenCredential | github.AppCredential
    if table.app:
        key = partial(read_secret, table.app_key)
        credential = github.AppCredential(
            table.app,
            key,
            table.repository,
            api,
            table.installation,
            pace=pace,
            certificates=certificates,
        )
    else:
        credential = TokenCredential(read, "authorization", "Bearer {}")
    return github.GitHub(
        table.repository,
        credential,
        api=api,
        account=table.account,
        remote=table.remote,
        pace=pace,
        certificates=certificates,
        log_hosts=table.log_hosts or github.LOG_HOSTS,
    )


def rules_of(table: ForgeTable) -> ForgeRules:
    """Return the rules of the flow between the host and the fleet."""
    return ForgeRules(
        label=table.label,
        assignee=table.assignee,
        start=table.start,
        base=table.base,
        prefix=table.prefix,
        merge=table.merge,
        method=table.method,
        checks=table.checks,
        approvals=table.approvals,
        check_time_s=table.check_time,
        look_s=table.look,
        writes=table.writes,
    )


async def listen_for_webhooks(table: ForgeTable, nudge: Callable[[], None]) -> WebhookListener:
    """Listen on `listen` of the settings; a genuine webhook calls `nudge`. Raise `UsageError`."""
    from leadhand.fleet.forge.webhooks import WebhookListener, WebhookReceiver

    assert table.listen is not None
    assert table.kind != "git"
    secret = partial(read_secret, table.webhook_secret)
    secret()  # a mistake is said now, and not at the first webhook
    listener = WebhookListener(WebhookReceiver(table.kind, secret, nudge))
    host, _, port = table.listen.rpartition(":")
    await listener.start(host.strip("[]"), int(port))
    return listener
