"""The user's repository: read by fetching, given a branch, otherwise left untouched.

Reading runs `git upload-pack` there, which writes nothing. Giving a branch runs one `git fetch`
there, from the hub, with everything switched off that a fetch might set going (hooks, collection,
tags, submodules, FETCH_HEAD): objects arrive, one ref appears or moves forward, and a branch that
is checked out anywhere is refused. No file of a checkout, no index, no configuration is opened
for writing; whether the tree is dirty, HEAD detached or the history shallow makes no difference.

Which branch is followed is written into the hub when it is made. A checkout goes from branch to
branch, and what somebody tries on one of them must not come to main because a fleet was started
anew meanwhile. A HEAD that named no branch then is a commit to start from, and nothing is followed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from leadhand.errors import Conflict, UsageError
from leadhand.fleet.repository.git import Git, GitFailed

USER = "refs/leadhand/user"
COPY_S = 3600.0
PROMISOR = r"^remote\..*\.promisor$"
FOLLOWED = "leadhand.followed"


@dataclass(frozen=True, slots=True)
class Fetched:
    """The user's commit, and whether it is the same as main, behind it, ahead, or diverged."""

    tip: str
    relation: str
    base: str
    """The last commit that both have; nothing where they have none."""


@dataclass(frozen=True, slots=True)
class User:
    """The user's repository, and what is taken from it: a branch, or one commit."""

    repo: Path
    git: Git
    ref: str
    aside: str = ""
    """What is to be said where something else is checked out than what is followed."""

    @classmethod
    async def find(cls, repo: Path, branch: str, hub: Git) -> Self:
        """Find the repository a path lies in: a checkout, a linked worktree, or a bare one.

        `branch` is the one to take; by default the one that the hub was made with, and for a new
        hub the one that is checked out.
        """
        repo = Path.cwd() / repo
        if not repo.exists():  # git would look for one further up
            fix = missing_repository_fix(repo, "name the folder of a git repository")
            raise UsageError(f"there is no {repo}. Fix: {fix}")
        folder = await _git_folder(repo, hub)
        theirs = Git(folder, hub.configuration, hub.held)
        here = (await theirs("symbolic-ref", "--quiet", "HEAD", codes=(0, 1))).text
        known, aside = "" if branch else await _recorded(hub), ""
        if branch:
            whole = branch == "HEAD" or branch.startswith("refs/")
            ref = branch if whole else f"refs/heads/{branch}"
        else:
            ref = known or here or "HEAD"
        found = await theirs("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", codes=(0, 1))
        if found.code:
            since = ", which this fleet follows. Fix: name another in [fleet] branch"
            words = f"{repo} has no branch {_short(ref)!r} with a commit on it"
            raise UsageError(words + since * bool(known))
        await _refuse_partial(repo, theirs, found.text)
        if ref == "HEAD" and not branch:
            ref = found.text
        if not branch and ref != here:
            aside = _aside(ref, here)
        return cls(repo, theirs, ref, aside)

    async def record(self, hub: Git) -> None:
        """Record what the hub follows from now on, unless it is recorded already."""
        if not await _recorded(hub):
            await hub("config", FOLLOWED, self.ref)

    async def has(self, sha: str) -> bool:
        """Return whether it holds a commit."""
        found = await self.git("cat-file", "-e", f"{sha}^{{commit}}", codes=(0, 1, 128))
        return found.code == 0

    async def object_format(self) -> str:
        return (await self.git("rev-parse", "--show-object-format")).text

    async def tip(self) -> str:
        """Return the commit of the branch."""
        return (await self.git("rev-parse", "--verify", f"{self.ref}^{{commit}}")).text

    async def fetch(self, into: Git) -> str:
        """Copy the branch's commits, and return its tip."""
        await into(
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--update-shallow",
            str(self.git.folder),
            f"+{self.ref}:{USER}",
            time_s=COPY_S,
        )
        return (await into("rev-parse", "--verify", f"{USER}^{{commit}}")).text

    async def check_name(self, branch: str) -> None:
        """Raise `UsageError` if a branch cannot have this name."""
        valid = await self.git("check-ref-format", "--branch", branch, codes=(0, 1, 128))
        if valid.code or valid.text != branch:
            raise UsageError(f"{branch!r} cannot be the name of a branch. Fix: [fleet] publish")
        said = await self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")
        for other in said.text.splitlines():
            if branch.startswith(f"{other}/") or other.startswith(f"{branch}/"):
                raise UsageError(
                    f"{branch!r} cannot be made beside your branch {other!r}: git keeps a branch "
                    "and a folder of branches apart by name. Fix: another name in [fleet] publish"
                )

    async def publish(self, hub: Git, sha: str, branch: str) -> None:
        """Make a branch of the user's, or move it forward, to a commit of the hub."""
        await self.check_name(branch)
        try:
            await self.git(
                "fetch",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-recurse-submodules",
                "--update-shallow",
                str(hub.folder),
                f"{sha}:refs/heads/{branch}",
                time_s=COPY_S,
            )
        except GitFailed as error:
            if "non-fast-forward" in error.err:
                raise Conflict(f"branch {branch!r} holds commits that main does not") from error
            if "refusing to fetch into" in error.err:
                raise Conflict(f"branch {branch!r} is checked out; choose another") from error
            raise


async def _refuse_partial(repo: Path, theirs: Git, commit: str) -> None:
    """Raise `UsageError` for a partial clone that misses objects: nothing is downloaded here."""
    said = await theirs("config", "--get-regexp", PROMISOR, codes=(0, 1))
    lines = [line for line in said.text.splitlines() if line.endswith(" true")]
    remotes = [line.removeprefix("remote.").rpartition(".promisor")[0] for line in lines]
    if not remotes:
        return
    listed = await theirs(
        "rev-list", "--objects", "--missing=print", commit, time_s=COPY_S, codes=(0, 128)
    )
    missing = sum(line.startswith("?") for line in listed.text.splitlines())
    if missing or listed.code:
        raise UsageError(
            f"{repo} is a partial clone, and objects of its history are missing ({missing}). "
            f"Fix: git -C {repo} config --unset remote.{remotes[0]}.partialclonefilter; "
            f"git -C {repo} fetch --refetch {remotes[0]}"
        )


def missing_repository_fix(repo: Path, otherwise: str) -> str:
    """Return how to get a repository that is missing: by the script of `leadhand init`, if any."""
    script = repo.parent / "make_repo.py"
    return f"run python3 {script.name}" if script.is_file() else otherwise


async def _git_folder(repo: Path, git: Git) -> Path:
    """Return the folder that git itself would find; the file `.git` of a worktree is followed."""
    for place in (repo, *repo.parents):
        inner = place / ".git"
        bare = (place / "HEAD").is_file() and (place / "objects").is_dir()
        if not (inner.exists() or bare):
            continue
        folder = inner if inner.is_dir() else place
        if inner.is_file():
            said = inner.read_text(errors="surrogateescape").removeprefix("gitdir:").strip()
            folder = place / said
        theirs = Git(folder, git.configuration, git.held)
        try:
            return Path((await theirs("rev-parse", "--absolute-git-dir")).text)
        except GitFailed as error:
            raise UsageError(f"{place} is not a repository git can read: {error.err}") from error
    raise UsageError(f"{repo} is in no git repository")


async def _recorded(hub: Git) -> str:
    if not hub.folder.exists():
        return ""
    return (await hub("config", "--get", FOLLOWED, codes=(0, 1, 128))).text


def _aside(ref: str, here: str) -> str:
    other = _short(here) if here else "HEAD, which names no branch,"
    fix = "Fix: to have another followed, name it in [fleet] branch"
    if not ref.startswith("refs/"):
        return f"no branch is followed: none was checked out when this fleet began. {fix}"
    return f"{_short(ref)} is followed, as since this fleet began; {other} is checked out. {fix}"


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")
