"""The repository of a stand-in: in memory, or a real bare one that git can push to."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Protocol


class GitHost(Protocol):
    """What a host needs of git."""

    def head(self, branch: str) -> str:
        """Return the commit of a branch, "" if there is none."""

    def is_merged(self, commit: str, base: str) -> bool:
        """Return whether a branch holds a commit."""

    def conflicts(self, head: str, base: str) -> bool:
        """Return whether a merge into a branch conflicts."""

    def merge(self, head: str, base: str, method: str, message: str) -> str:
        """Merge into a branch; return the new commit."""


class MemoryGit:
    """Branches as names of commits; `push` moves one."""

    def __init__(self) -> None:
        self.branches = {"main": "a" * 40}
        self.merged: dict[str, set[str]] = {}
        self.conflicting: set[str] = set()

    def push(self, branch: str, commit: str = "") -> str:
        old = self.branches.get(branch, branch)
        self.branches[branch] = commit or hashlib.sha1(old.encode()).hexdigest()
        return self.branches[branch]

    def head(self, branch: str) -> str:
        return self.branches.get(branch, "")

    def is_merged(self, commit: str, base: str) -> bool:
        return commit in self.merged.get(base, ()) or commit == self.head(base)

    def conflicts(self, head: str, base: str) -> bool:
        return head in self.conflicting

    def merge(self, head: str, base: str, method: str, message: str) -> str:
        self.merged.setdefault(base, set()).add(head)
        return self.push(base)


class BareGit:
    """A bare repository."""

    def __init__(self, path: Path, source: Path | None = None) -> None:
        """Make it, empty or as a clone of `source`."""
        self.path = path
        if not path.exists():
            given = ["clone", "-q", "--bare", str(source)] if source else ["init", "-q", "--bare"]
            more = [] if source else ["--initial-branch", "main"]
            subprocess.run(["git", *given, *more, str(path)], check=True)
            self.git("config", "http.receivepack", "true")

    def git(self, *words: str, env: dict[str, str] | None = None) -> str:
        ours = {
            "GIT_AUTHOR_NAME": "Host",
            "GIT_AUTHOR_EMAIL": "host@host.test",
            "GIT_COMMITTER_NAME": "Host",
            "GIT_COMMITTER_EMAIL": "host@host.test",
        }
        command = ["git", "--git-dir", str(self.path), *words]
        made = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **ours, **(env or {})},
        )
        if made.returncode:
            raise RuntimeError(made.stderr)
        return made.stdout.strip()

    def head(self, branch: str) -> str:
        try:
            return self.git("rev-parse", "--verify", "-q", f"refs/heads/{branch}")
        except RuntimeError:
            return ""

    def is_merged(self, commit: str, base: str) -> bool:
        try:
            self.git("merge-base", "--is-ancestor", commit, f"refs/heads/{base}")
        except RuntimeError:
            return False
        return True

    def conflicts(self, head: str, base: str) -> bool:
        try:
            self.git("merge-tree", "--write-tree", f"refs/heads/{base}", head)
        except RuntimeError:
            return True
        return False

    def merge(self, head: str, base: str, method: str, message: str) -> str:
        """Merge, or squash; a rebase is a squash here."""
        old = self.head(base)
        tree = self.git("merge-tree", "--write-tree", old, head).splitlines()[0]
        parents = ["-p", old, *(["-p", head] if method == "merge" else [])]
        made = self.git("commit-tree", tree, *parents, "-m", message or "Merge")
        self.git("update-ref", f"refs/heads/{base}", made, old)
        return made

    def over_http(
        self, path: str, query: str, method: str, kind: str, data: bytes, coding: str = ""
    ) -> bytes:
        """Return what `git http-backend` answers, with its headers."""
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.path),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": method,
            "CONTENT_TYPE": kind,
            "CONTENT_LENGTH": str(len(data)),
            "HTTP_CONTENT_ENCODING": coding,
            "REMOTE_USER": "pusher",
        }
        return subprocess.run(
            ["git", "http-backend"], input=data, capture_output=True, env=env, check=True
        ).stdout
