"""The host's repository for git: the hub fetches its branches and pushes ours.

A push never forces: a branch that moved meanwhile is `Moved`, and the caller looks again. How git
signs in stands in the environment of its process only (`GitAccess.env`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leadhand.errors import LeadhandError
from leadhand.fleet.repository.git import GitFailed

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.fleet.forge.port import Forge
    from leadhand.fleet.repository.hub import Hub

COPY_S = 1800.0
PROTOCOLS = "file:http:https:ssh"
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy")
PASSED = (*PROXIES, "ALL_PROXY", "all_proxy", "SSH_AUTH_SOCK")
"""Variables of ours that git needs to reach a host."""
KEPT = "refs/leadhand/host"


class Moved(LeadhandError):
    """A branch of the host is not where it was thought to be."""


class HostRepository:
    """Fetches from the host's repository and pushes to it."""

    def __init__(self, hub: Hub, forge: Forge, certificates: Path | None = None) -> None:
        """Create it; `certificates` is a file that git trusts."""
        self._hub, self._forge, self._certificates = hub, forge, certificates

    async def _access(self) -> tuple[str, dict[str, str]]:
        access = await self._forge.git_access()
        ours = {name: os.environ[name] for name in PASSED if name in os.environ}
        if self._certificates is not None:
            ours["GIT_SSL_CAINFO"] = str(self._certificates)
        return access.url, {**ours, **access.env, "GIT_ALLOW_PROTOCOL": PROTOCOLS}

    async def tip(self, branch: str) -> str:
        """Return the commit of a branch, with its objects in the hub; empty if there is none."""
        url, env = await self._access()
        git, ref = self._hub.git, f"refs/heads/{branch}"
        said = await git("ls-remote", "--quiet", url, ref, env=env, time_s=COPY_S)
        rows = [line.split("\t") for line in said.text.splitlines()]
        found = next((sha for sha, name in rows if name == ref), "")
        if not found:
            return ""
        kept = f"{KEPT}/{branch}"
        here = await git("rev-parse", "--verify", "--quiet", kept, codes=(0, 1))
        if here.text != found:
            quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
            await git("fetch", *quiet, url, f"+{ref}:{kept}", env=env, time_s=COPY_S)
            found = (await git("rev-parse", "--verify", f"{kept}^{{commit}}")).text
        return found

    async def push(self, sha: str, branch: str, old: str) -> None:
        """Move a branch from `old` (empty: it does not exist) forward to a commit of the hub.

        Raise `Moved` if it is elsewhere. What was done already is done.
        """
        url, env = await self._access()
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{old}"
        push = ("push", "--quiet", "--no-verify", "--porcelain", lease, url, f"{sha}:{ref}")
        try:
            if old and not await self.is_ancestor(old, sha):
                raise Moved(f"{branch} would lose commits: {sha[:12]} does not come after it")
            await self._hub.git(*push, env=env, time_s=COPY_S)
        except GitFailed as error:
            now = await self.tip(branch)
            if now == sha:
                return
            if now != old:
                raise Moved(f"{branch} is at {now[:12] or 'no commit'}") from error
            raise

    async def branches(self, prefix: str) -> dict[str, str]:
        """Return the branches whose names begin with `prefix`, and the commit of each.

        Their objects are not fetched.
        """
        url, env = await self._access()
        said = await self._hub.git(
            "ls-remote", "--quiet", url, f"refs/heads/{prefix}*", env=env, time_s=COPY_S
        )
        rows = [line.split("\t") for line in said.text.splitlines()]
        found = {name.removeprefix("refs/heads/"): sha for sha, name in rows}
        # A pattern of ls-remote may match the end of another name.
        return {name: sha for name, sha in found.items() if name.startswith(prefix)}

    async def delete(self, branch: str, old: str) -> None:
        """Delete a branch that is at `old`; a branch that is gone is deleted.

        Raise `Moved` if it is elsewhere.
        """
        url, env = await self._access()
        ref = f"refs/heads/{branch}"
        words = (
            "push",
            "--quiet",
            "--no-verify",
            f"--force-with-lease={ref}:{old}",
            url,
            f":{ref}",
        )
        try:
            await self._hub.git(*words, env=env, time_s=COPY_S)
        except GitFailed as error:
            now = (await self.branches(branch)).get(branch, "")
            if not now:
                return
            if now != old:
                raise Moved(f"{branch} is at {now[:12]}") from error
            raise

    async def is_ancestor(self, old: str, new: str) -> bool:
        """Return whether `new` holds `old`."""
        said = await self._hub.git("merge-base", "--is-ancestor", old, new, codes=(0, 1, 128))
        return said.code == 0
