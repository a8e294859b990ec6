"""Leases: the right of one machine to hand in the work of one attempt, as a ref of the hub.

Laws
    1. Home opens a lease by a ref whose name is its token, `refs/leadhand/lease/TOKEN`, at the
       commit that the attempt begins with.
    2. A machine hands in by one push that moves this ref from that commit to the commit with its
       work. The hub's git compares and swaps, so there is one result or none. It refuses every
       other ref (`receive.hideRefs`): only the train moves main.
    3. Home ends a lease by removing the ref, whatever it is at. Then git refuses the push of a
       machine that was given up, however late it comes.
    4. Home accepts the commit that the result names only if the ref is at it when it is removed.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from leadhand.errors import LeadhandError
from leadhand.fleet.forge.remote import PASSED
from leadhand.fleet.repository.git import GitFailed
from leadhand.fleet.repository.hub import LEASES, MAIN

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.fleet.repository.hub import Hub

COPY_S = 1800.0
PUSH_S = 600.0
PROTOCOLS = "file:https:ssh"
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=20"
UPSTREAM = "refs/leadhand/upstream"


class LeaseLost(LeadhandError):
    """The lease has ended: the work of this machine is not wanted any more."""


def lease_ref(token: str) -> str:
    """Return the ref of a lease."""
    return f"{LEASES}/{token}"


class HubRemote:
    """The hub at home, as a machine reaches it."""

    def __init__(
        self, mirror: Hub, url: str, token: str = "", certificates: Path | None = None
    ) -> None:
        """Create it; `token` is the password by HTTPS, `certificates` a file that git trusts."""
        self._mirror, self.url = mirror, url
        self._env = git_access(url, token, certificates)

    async def fetch(self, base: str) -> None:
        """Bring main and the commit that an attempt begins with."""
        mirror, git = self._mirror, self._mirror.git
        async with mirror.fetching:
            quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
            wanted = [f"+{MAIN}:{UPSTREAM}"]
            known = await git("cat-file", "-e", f"{base}^{{commit}}", codes=(0, 1, 128))
            if known.code:
                wanted.append(base)
            await git("fetch", *quiet, self.url, *wanted, env=self._env, time_s=COPY_S)
            await mirror.follow(await mirror.resolve(UPSTREAM))

    async def hand_in(self, token: str, base: str, seal: str) -> None:
        """Push the work of an attempt. Raise `LeaseLost` if the lease has ended."""
        ref = lease_ref(token)
        push = ("push", "--quiet", "--no-verify", "--porcelain")
        lease = f"--force-with-lease={ref}:{base}"
        git = self._mirror.git
        try:
            await git(*push, lease, self.url, f"{seal}:{ref}", env=self._env, time_s=PUSH_S)
        except GitFailed as error:
            said = await git("ls-remote", "--quiet", self.url, ref, env=self._env)
            now = said.text.split("\t")[0]
            if now == seal:
                return
            if now != base:
                raise LeaseLost(f"the lease {token} has ended: the push was refused") from error
            raise


def git_access(url: str, token: str, certificates: Path | None) -> dict[str, str]:
    """Return the variables with which git reaches the hub; a token is in its environment only."""
    env = {name: os.environ[name] for name in PASSED if name in os.environ}
    ssh = os.environ.get("GIT_SSH_COMMAND", SSH)
    env |= {"GIT_ALLOW_PROTOCOL": PROTOCOLS, "GIT_SSH_COMMAND": ssh}
    if certificates is not None:
        env["GIT_SSL_CAINFO"] = str(certificates)
    parts = urlsplit(url)
    if token and parts.scheme == "https":
        port = f":{parts.port}" if parts.port else ""
        coded = base64.b64encode(f"{parts.username or 'leadhand'}:{token}".encode()).decode()
        env |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.https://{parts.hostname}{port}/.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {coded}",
        }
    return env
