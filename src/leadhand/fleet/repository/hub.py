"""The hub: one bare repository of the fleet's own, which keeps all work of agents.

Laws
    1. One process owns a hub, by a lock that its git calls inherit. So whoever gets the lock knows
       that nothing of an earlier owner is at work any more, and may take away the lock files and
       half-written objects that a killed git leaves behind.
    2. ``main`` moves by compare-and-swap and only forward. Nothing else writes it.
    3. Nothing is ever collected: slots borrow the hub's objects, and what was saved is kept.
    4. Merging needs no files: trees in, a tree out. A conflict is what has conflicted entries;
       whatever else goes wrong is trouble of the machine, never the change's fault.
    5. The log says what was meant to happen, git says what has landed: ``landed`` finds it by the
       trailers of the commits on main, whatever this process remembers. Anybody can write trailers;
       they count on a commit with the hub's own seal (``seal_of``) only.
    6. The user's repository is read by fetching and given results by ``publish``
       (``user_repository.py``).

A merge is clean when git says so and when it is the change (``merge/same_change.py``). A change to
a file that was renamed on main meanwhile is a conflict that goes back to its owner; so the paths a
change touches are the paths it lands on.

    refs/heads/main                          what has landed
    refs/leadhand/user, .../start            the user's branch now, and when the hub was made
    refs/leadhand/task/RUN/TASK/ATTEMPT      what was handed in
    refs/leadhand/wip/RUN/TASK/ATTEMPT       work in progress, saved before anything is ended
    refs/leadhand/lease/TOKEN                the lease of another machine (``machines/lease.py``)

A machine that works for a fleet elsewhere has a mirror: a hub without a user's repository, whose
main follows the fleet's (``Hub.mirror``).
"""

import asyncio
import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from leadhand.errors import Bug, Conflict, StoreCorrupt, StoreError, UsageError
from leadhand.fleet.merge.same_change import TreeEntry, same_lines, strangers
from leadhand.fleet.repository.git import (
    Commit,
    Git,
    GitFailed,
    check_version,
    message_of,
    name_of,
    raw_of,
    read_log,
    trailers_of,
)
from leadhand.fleet.repository.user_repository import Fetched, User
from leadhand.settings.trust import state_folder

# The lock of a hub, and the clean-up after a killed git.


WAIT_S = 10.0
LOOK_S = 0.05
TEMPORARY = ("index/take-*", "found-*", "gate-*", "hub.new")


async def hold(path: Path, wait_s: float = WAIT_S) -> int:
    """Return a descriptor that holds the lock; git calls of a dead owner are waited for."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(LOOK_S)
                continue
            os.close(lock)
            raise Conflict(f"{path.parent} is in use by another process") from None
        else:
            return lock


def tidy(path: Path, folder: Path) -> int:
    """Remove lock files and half-written objects; only for the holder of the lock, while alone."""
    gone = 0
    for left in (place for pattern in TEMPORARY for place in path.glob(pattern)):
        shutil.rmtree(left, ignore_errors=True)
    for place, _, names in os.walk(folder):
        inside_objects = Path(place).is_relative_to(folder / "objects")
        for name in names:
            half = inside_objects and name.startswith(("tmp_", ".tmp-"))
            if half or (name.endswith(".lock") and not inside_objects) or name == "pack.lock":
                with contextlib.suppress(FileNotFoundError):
                    (Path(place) / name).unlink()
                    gone += 1
    return gone


# Making a hub from the user's repository: whole, or not at all.


REPOSITORY = (
    ("gc.auto", "0"),
    ("gc.pruneExpire", "never"),
    ("receive.autogc", "false"),
    ("core.logAllRefUpdates", "true"),
    ("receive.denyNonFastForwards", "true"),
    ("receive.denyDeletes", "true"),
    ("uploadpack.allowAnySHA1InWant", "true"),
)
LEASES = "refs/leadhand/lease"
PUSHED_ONLY = ("refs", f"!{LEASES}")
"""What `receive.hideRefs` of a hub says: machines push to refs of their leases, and to no other."""


async def make(hub: Git, user: User, main: str, refs: Iterable[str]) -> None:
    """Make a hub in a folder beside, which then gets its name: a half-made hub is never seen.

    `refs` begin where the user's branch is.
    """
    half = hub.folder.with_suffix(".new")
    shutil.rmtree(half, ignore_errors=True)
    git = Git(half, hub.configuration, hub.held)
    form = await user.object_format()
    await git("init", "--quiet", "--bare", "--template=", f"--object-format={form}", str(half))
    for name, value in REPOSITORY:
        await git("config", name, value)
    for value in PUSHED_ONLY:
        await git("config", "--add", "receive.hideRefs", value)
    await user.record(git)
    fetched = await user.fetch(git)
    for ref in refs:
        await git("update-ref", ref, fetched)
    await git("symbolic-ref", "HEAD", main)
    half.rename(hub.folder)


# The seal of commits that the fleet made: trailers alone could be written by anybody.


SEAL = "Leadhand-Seal"
SEAL_KEY = "seal.key"
KEY_BYTES = 32
_SEALED = ("Leadhand-Run", "Leadhand-Task", "Leadhand-Attempt")


def seal_of(key: bytes, trailers: Mapping[str, str], tree: str, parents: Sequence[str]) -> str:
    """Return the seal of a commit: it binds run, task and attempt to one tree on its parents.

    Without the key it can neither be made nor moved to another change.
    """
    parts = [*(trailers.get(name, "") for name in _SEALED), tree, *parents]
    return hmac.new(key, json.dumps(parts).encode(), hashlib.sha256).hexdigest()[:KEY_BYTES]


def seal_key(path: Path) -> bytes:
    """Return the key of a hub's seals; make it the first time.

    A new hub takes the key of the account, which outlives the folder of a fleet: one that was
    lost and made again knows its commits. Neither agents nor slots see either place. Raise
    `StoreCorrupt` if the key is too short.
    """
    place = path / SEAL_KEY
    if not place.exists():
        _write_key(place, _account_key())
    key = place.read_bytes().strip()
    if len(key) < KEY_BYTES:
        raise StoreCorrupt(f"{place}: it is cut. Fix: put back its copy, or remove it")
    return key


def _account_key() -> bytes:
    """Return the key of this account, or a new one where the account can keep none."""
    fresh = secrets.token_hex(KEY_BYTES).encode()
    place = state_folder(os.environ) / "fleet" / SEAL_KEY
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.exists():
            _write_key(place, fresh)
        return place.read_bytes().strip() or fresh
    except OSError:
        return fresh


def _write_key(place: Path, key: bytes) -> None:
    """Write a key, durably, unless another process was faster."""
    fresh = place.with_name(f"{SEAL_KEY}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    with fresh.open("wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        place.hardlink_to(fresh)
    fresh.unlink()


MAIN = "refs/heads/main"
START = "refs/leadhand/start"
OLDER_MAX = 5_000
"""Commits older than the hub that are looked at for what has landed."""
TRIES = 3
PAUSE_S = 0.2
TREES_MAX = 10_000
CONFIGURATION = """\
[safe]
\tdirectory = *
"""
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Merge:
    """A tree, or the paths that conflict."""

    tree: str | None
    conflicts: tuple[str, ...] = ()
    partial: str = ""
    """The tree with what could be merged; conflicting files hold marks."""
    why: str = ""
    """What a program said that could not settle the conflict (`merge/resolution.py`)."""


def ref_of(kind: str, run: str, task: str, attempt: int) -> str:
    """Return the ref of one attempt's work; names that git would not take are escaped."""
    parts = (quote(part, safe="").replace(".", "%2E") or "-" for part in (run, task, str(attempt)))
    return f"refs/leadhand/{kind}/" + "/".join(parts)


def _attribute(pattern: str) -> str:
    """Return a path pattern as gitattributes writes it: from the root, quoted."""
    rooted = pattern if pattern.startswith("**/") else f"/{pattern.lstrip('/')}"
    return json.dumps(rooted, ensure_ascii=False)


class Hub:
    """Opened by `Hub.open`, given back by `close`."""

    def __init__(self, path: Path, git: Git, user: User | None, lock: int) -> None:
        self.path, self.git, self._user = path, git, user
        self._lock = lock
        self._main = ""
        self._moving, self._keeping = asyncio.Lock(), asyncio.Lock()
        self.fetching = asyncio.Lock()
        """Held while a mirror fetches."""
        self._trees: dict[str, str] = {}
        self._landed: dict[tuple[str, str], Commit] = {}
        self._key = b""

    # --- opening ---------------------------------------------------------------------------

    @classmethod
    async def open(cls, path: Path, repo: Path, branch: str = "") -> Self:
        """Open the hub in a folder; make it from the user's repository the first time.

        `branch` is the user's branch it starts from and follows; by default the one that was
        checked out when it was made.
        """
        await check_version()
        path = Path.cwd() / path
        if "\n" in str(path) or str(path).startswith('"'):
            raise UsageError(f"the fleet cannot live in a folder with such a name: {str(path)!r}")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = await hold(path / "lock")
        try:
            configuration = path / "gitconfig"
            configuration.write_text(CONFIGURATION)
            git = Git(path / "hub.git", configuration, (lock,))
            user = await User.find(repo, branch, git)
            hub = cls(path, git, user, lock)
            if not git.folder.exists():
                await make(git, user, MAIN, (MAIN, START))
            elif not await user.has(await hub.resolve(START)):
                raise UsageError(
                    f"the fleet in {path.parent} began with another repository than {repo}. "
                    "Fix: give this one a folder of its own with --folder PATH"
                )
            await asyncio.to_thread(tidy, path, git.folder)
            await user.record(git)
            hub._key = await asyncio.to_thread(seal_key, path)
            await hub._read()
        except BaseException:
            os.close(lock)
            raise
        return hub

    @classmethod
    async def mirror(cls, path: Path) -> Self:
        """Open the mirror of a hub elsewhere; it is empty at first (`follow`).

        Unlike a hub it is collected: what earlier processes left is removed when it is opened.
        """
        await check_version()
        path = Path.cwd() / path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = await hold(path / "lock")
        try:
            configuration = path / "gitconfig"
            configuration.write_text(CONFIGURATION)
            git = Git(path / "hub.git", configuration, (lock,))
            if not (git.folder / "HEAD").exists():
                shutil.rmtree(git.folder, ignore_errors=True)
                await git("init", "--quiet", "--bare", "--template=", str(git.folder))
                for name, value in REPOSITORY:
                    await git("config", name, value)
            await asyncio.to_thread(tidy, path, git.folder)
            hub = cls(path, git, None, lock)
            if MAIN in await hub.kept(MAIN):
                await hub._read()
        except BaseException:
            os.close(lock)
            raise
        return hub

    async def follow(self, sha: str) -> None:
        """Move main of a mirror to where it is at home: forward, or from nothing."""
        if not self._main:
            for ref in (START, MAIN):
                await self.git("update-ref", ref, _sha(sha))
            self._main = sha
        elif sha != self._main:
            await self.advance(sha, self._main)

    async def collect(self, keep: Iterable[str]) -> None:
        """Remove refs of a mirror but main, its start and `keep`, and all that they alone hold.

        Call it while no slot is handed out: slots borrow objects.
        """
        wanted = {MAIN, START, *keep}
        gone = [ref for ref in await self.kept("refs/") if ref not in wanted]
        lines = "".join(f"delete {ref}\n" for ref in gone)
        await self.git("update-ref", "--stdin", stdin=lines.encode())
        if self._main:
            await self.git("repack", "-a", "-d", "-q", "--no-write-bitmap-index", time_s=3600)
        await self.git("prune", "--expire=now", time_s=3600)

    @classmethod
    async def look(cls, path: Path, at: str = "") -> Self:
        """Open a hub that another process may own, for reading only.

        - `at`: a commit that is taken for main, such as an earlier one.
        """
        path = Path.cwd() / path
        hub = cls(path, Git(path / "hub.git", path / "gitconfig"), None, -1)
        with contextlib.suppress(FileNotFoundError):
            hub._key = (path / SEAL_KEY).read_bytes().strip()
        await hub._read()
        if at:
            hub._main = await hub.resolve(f"{at}^{{commit}}")
        return hub

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def user(self) -> User:
        """Return the user's repository."""
        return self._own()

    def _own(self) -> User:
        self._writes()
        if self._user is None:
            raise Bug("this hub is a mirror: it has no repository of a user")
        return self._user

    def _writes(self) -> None:
        if self._lock < 0:
            raise Bug("this hub is closed, or was opened for reading only")

    async def _read(self) -> None:
        try:
            self._main = await self.resolve(MAIN)
            await self.git("cat-file", "-e", f"{self._main}^{{tree}}")
        except GitFailed as error:
            raise StoreCorrupt(f"the hub in {self.path} has no readable main: {error}") from error
        older = await read_log(self.git, "--max-count", str(OLDER_MAX), START)
        for commit in (*older, *await read_log(self.git, f"{START}..{MAIN}")):
            self._note(commit)

    # --- main ------------------------------------------------------------------------------

    def main(self) -> str:
        """Return the commit that main is at."""
        return self._main

    async def advance(self, new: str, old: str) -> bool:
        """Move main from `old` to `new`; return False if main is not at `old`.

        Once begun it is finished, also when the caller is cancelled, so that our knowledge of main
        is true.
        """
        self._writes()
        return await asyncio.shield(asyncio.ensure_future(self._advance(new, old)))

    async def _advance(self, new: str, old: str) -> bool:
        async with self._moving:
            ancestor = await self.git(
                "merge-base", "--is-ancestor", _sha(old), _sha(new), codes=(0, 1)
            )
            if ancestor.code:
                raise Bug(f"main would lose commits: {new} does not come after {old}")
            found, commits = new, await read_log(self.git, f"{old}..{new}")
            try:
                await self.git("update-ref", "-m", "advance", MAIN, new, old)
            except GitFailed:
                # It may have moved all the same, or another was first, or git met trouble.
                found = await self.resolve(MAIN)
                if found == old:
                    # Only we write main, so a lock on it was left by a git that was killed.
                    (self.git.folder / f"{MAIN}.lock").unlink(missing_ok=True)
                    raise
                commits = await read_log(self.git, f"{old}..{found}")
            self._main = found
            for commit in commits:
                self._note(commit)
        return found == new

    async def base_on_main(self, sha: str) -> str:
        """Return the last commit of main that `sha` holds; main itself if they have none."""
        said = await self.git("merge-base", self._main, _sha(sha), codes=(0, 1))
        return said.text or self._main

    def landed(self, run: str, task: str) -> str | None:
        """Return the commit on main with the work of a task, or None."""
        found = self.landing(run, task)
        return found.sha if found else None

    def landing(self, run: str, task: str) -> Commit | None:
        """Return the last commit on main with the work of a task, with its trailers, or None."""
        return self._landed.get((run, task))

    def landings(self, run: str) -> list[Commit]:
        """Return the commits on main with the work of a run's tasks, oldest first."""
        return [commit for (own, _task), commit in self._landed.items() if own == run]

    async def commits(self, since: str = START) -> list[Commit]:
        """Return the commits that landed after `since`, oldest first."""
        return await read_log(self.git, f"{since}..{MAIN}")

    async def commits_between(self, old: str, new: str, paths: Sequence[str] = ()) -> list[Commit]:
        """Return the commits from `old` to `new` that touch these paths, or any."""
        return await read_log(self.git, f"{old}..{new}", "--", *paths)

    async def tips(self) -> list[str]:
        """Return the former positions of main, oldest first: each was gated as a whole."""
        said = await self.git("log", "--walk-reflogs", "--format=%H", MAIN)
        return said.text.split()[::-1]

    def _note(self, commit: Commit) -> None:
        said = commit.trailers
        if "Leadhand-Run" in said and "Leadhand-Task" in said and self._is_ours(commit):
            self._landed[said["Leadhand-Run"], said["Leadhand-Task"]] = commit

    def _is_ours(self, commit: Commit) -> bool:
        """Return whether the fleet made a commit, by its seal."""
        if not self._key:
            return False
        wanted = seal_of(self._key, commit.trailers, commit.tree, commit.parents)
        return hmac.compare_digest(commit.trailers.get(SEAL, "").encode(), wanted.encode())

    def keep_all_lines(self, patterns: Iterable[str]) -> None:
        """Let merges of these files keep the lines of both sides, instead of a conflict."""
        lines = [f"{_attribute(pattern)} merge=union\n" for pattern in patterns]
        place = self.git.folder / "info" / "attributes"
        place.parent.mkdir(exist_ok=True)
        fresh = place.with_name(".attributes.new")
        fresh.write_text("".join(lines), encoding="utf-8")
        fresh.replace(place)

    # --- objects ---------------------------------------------------------------------------

    async def resolve(self, name: str) -> str:
        """Return the commit of a name."""
        said = await self.git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        return said.text

    async def tree(self, commit: str) -> str:
        if commit not in self._trees:
            if len(self._trees) >= TREES_MAX:
                self._trees.clear()
            said = await self.git("rev-parse", "--verify", f"{_sha(commit)}^{{tree}}")
            self._trees[commit] = said.text
        return self._trees[commit]

    async def merge(self, onto: str, head: str, base: str) -> Merge:
        """Put the change from `base` to `head` on top of `onto`."""
        merge_base = await self.git("merge-base", "--all", _sha(onto), _sha(head), codes=(0, 1))
        if merge_base.text != base:
            onto, head = await self._as_if_from(base, onto, head)
        said = await self.git("merge-tree", "--write-tree", "-z", onto, head, codes=(0, 1))
        tree, *rest = said.out.split(b"\0")
        if said.code == 0:
            odd = await self.strangers(onto, head, base, name_of(tree))
            return Merge(None, tuple(odd)) if odd else Merge(name_of(tree))
        # MODE BLOB STAGE<tab>PATH for each conflicted entry, then an empty one.
        entries = rest[: rest.index(b"")] if b"" in rest else rest
        conflicts = dict.fromkeys(name_of(e.partition(b"\t")[2]) for e in entries if b"\t" in e)
        if not conflicts:
            raise GitFailed(("merge-tree",), said.code, "a conflict without conflicted entries")
        return Merge(None, tuple(conflicts), name_of(tree))

    async def strangers(self, onto: str, head: str, base: str, tree: str) -> list[str]:
        """Return the paths on which a merge is not the change (`merge/same_change.py`)."""
        change, merged = await self.entries(base, head), await self.entries(onto, tree)
        if change == merged:
            return []
        odd, both = strangers(change, merged, await self.entries(base, onto))
        shas = [sha for pair in both for e in pair for sha in (e.old_blob, e.blob)]
        blobs = await self.blobs(shas) if both else {}
        return odd + [entry.path for entry, now in both if not same_lines(entry, now, blobs)]

    async def _as_if_from(self, base: str, *tips: str) -> list[str]:
        """Return stand-ins for commits, whose merge base is `base` whatever their history is."""
        root = await self.commit(await self.tree(base), (), "base")
        return [await self.commit(await self.tree(tip), (root,), "tip") for tip in tips]

    async def commit(
        self,
        tree: str,
        parents: Sequence[str],
        message: str,
        trailers: Mapping[str, str] | None = None,
        author: str = "Leadhand <leadhand@localhost>",
    ) -> str:
        """Make a commit of a tree, on no branch yet, and return its name.

        With the trailers of a run and a task it gets a seal: on main it is that task, landed.
        """
        said = dict(trailers or {})
        if self._key and {"Leadhand-Run", "Leadhand-Task"} <= said.keys():
            read = trailers_of(message_of("", said))  # as they are read back
            said[SEAL] = seal_of(self._key, read, tree, parents)
        name, _, email = author.partition("<")
        env = {
            "GIT_AUTHOR_NAME": re.sub(r"[<>\n\0]", " ", name).strip() or "Leadhand",
            "GIT_AUTHOR_EMAIL": re.sub(r"[<>\s\0]", "", email) or "leadhand@localhost",
        }
        before = [word for parent in parents for word in ("-p", _sha(parent))]
        text = message_of(message, said).encode("utf-8", "replace")
        return (await self.git("commit-tree", _sha(tree), *before, stdin=text, env=env)).text

    async def entries(self, a: str, b: str) -> list[TreeEntry]:
        """Return the differences between two commits or trees, path by path."""
        said = await self.git("diff-tree", "-r", "-z", "--raw", "--no-abbrev", _sha(a), _sha(b))
        parts, found = said.out.split(b"\0"), []
        for about, path in zip(parts[::2], parts[1::2], strict=False):
            old_mode, mode, old_blob, blob, status = about.decode().lstrip(":").split(" ")
            found.append(TreeEntry(name_of(path), status, old_mode, mode, old_blob, blob))
        return found

    async def replaced(self, tree: str, entries: Iterable[tuple[str, str, str]]) -> str:
        """Return a tree with other entries: mode, blob and path of each; a mode of 0 removes it."""
        lines = b"".join(
            f"{mode.lstrip('0') or '0'} {blob}\t".encode() + raw_of(path) + b"\0"
            for mode, blob, path in entries
        )
        with tempfile.TemporaryDirectory(dir=self.path, prefix="gate-") as folder:
            index = Path(folder) / "index"
            await self.git("read-tree", _sha(tree), index=index)
            await self.git("update-index", "-z", "--index-info", stdin=lines, index=index)
            return (await self.git("write-tree", index=index)).text

    async def changed(self, a: str, b: str) -> dict[str, str]:
        """Return the paths that differ: A added, M changed, D gone, T of another type."""
        return {entry.path: entry.status for entry in await self.entries(a, b)}

    async def blobs(self, shas: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of blobs; missing ones are left out."""
        return await read_blobs(self.git, shas)

    async def patch(self, a: str, b: str, paths: Sequence[str] = (), limit: int = 40_000) -> str:
        """Return a difference for people to read, cut at `limit`."""
        said = await self.git(
            "diff-tree", "-p", "--no-ext-diff", "--no-textconv", _sha(a), _sha(b), "--", *paths
        )
        text = said.out.decode("utf-8", "backslashreplace")
        return text if len(text) <= limit else text[:limit] + f"\n… {len(text) - limit} more\n"

    # --- what is kept ----------------------------------------------------------------------

    async def submit(self, ref: str, sha: str) -> None:
        """Keep a commit under a name of the fleet's."""
        self._writes()
        if not ref.startswith("refs/leadhand/"):
            raise Bug(f"{ref} is not a place of the fleet's")
        for left in reversed(range(TRIES)):
            try:
                async with self._keeping:
                    await self.git("update-ref", ref, _sha(sha))
            except GitFailed as error:
                # One at a time, so a lock on it is of a git that was killed.
                (self.git.folder / f"{ref}.lock").unlink(missing_ok=True)
                if not left or error.full:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def drop(self, ref: str, sha: str = "") -> bool:
        """Remove a ref of the fleet's; return False if it is not at `sha`, where that is given."""
        self._writes()
        for left in reversed(range(TRIES)):
            now = (await self.kept(ref)).get(ref, "")
            if not now or (sha and now != sha):
                return not now and not sha
            with contextlib.suppress(GitFailed):  # it moved, or another git has it at the moment
                async with self._keeping:
                    await self.git("update-ref", "-d", ref, _sha(now))
                return True
            if left:
                await asyncio.sleep(PAUSE_S)
        raise StoreError(f"{ref} cannot be removed: another git holds it")

    async def kept(self, prefix: str = "refs/leadhand/") -> dict[str, str]:
        """Return the refs below a prefix, with their commits."""
        form = "--format=%(refname) %(objectname)"
        said = await self.git("for-each-ref", form, prefix)
        return dict(line.split(" ", 1) for line in said.text.splitlines())

    async def pack(self) -> None:
        """Put loose objects into packs, and small packs together; nothing is deleted.

        Unreferenced objects stay too: slots borrow them. A concurrent reader finds an object in the
        new pack if the old file is gone: git looks again.
        """
        packing = ("repack", "--geometric=2", "-d", "-q", "--no-write-bitmap-index")
        await self.git(*packing, time_s=3600)
        await self.git("pack-refs", "--all", "--no-prune", time_s=600)

    def loose(self) -> int:
        """About how many objects are files of their own: by one folder of 256, as git counts."""
        place = self.git.folder / "objects" / "17"
        return 256 * len(list(place.iterdir())) if place.is_dir() else 0

    # --- the user's repository -------------------------------------------------------------

    async def user_tip(self) -> str:
        """Return the commit of the user's branch; nothing is copied."""
        return await self._own().tip()

    async def fetch_user(self) -> Fetched:
        """Look at the user's branch again, and say how it stands to main."""
        tip = await self._own().fetch(self.git)
        if tip == self._main:
            return Fetched(tip, "same", tip)
        said = await self.git("merge-base", tip, self._main, codes=(0, 1))
        relation = {tip: "behind", self._main: "ahead"}.get(said.text, "diverged")
        return Fetched(tip, relation, said.text)

    async def publish(self, branch: str) -> str:
        """Give main to the user as a branch of its own; never by force, never into a checkout."""
        main = self._main
        await self._own().publish(self.git, main, branch)
        return main


def _sha(text: str) -> str:
    """Return a whole object name.

    Raise `Bug` for anything else: it must not get into an argument list.
    """
    if not _SHA.fullmatch(text):
        raise Bug(f"{text!r} is not an object name")
    return text


async def read_blobs(git: Git, shas: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of blobs of a repository; missing ones are left out."""
    wanted = list(dict.fromkeys(sha for sha in shas if sha.strip("0")))
    said = await git("cat-file", "--batch", stdin="\n".join(wanted).encode() + b"\n")
    found, at = {}, 0
    while at < len(said.out):
        end = said.out.index(b"\n", at)
        head = said.out[at:end].split()
        size = int(head[2]) if len(head) == 3 else -1
        if head[1:2] == [b"blob"]:
            found[head[0].decode()] = said.out[end + 1 : end + 1 + size]
        at = end + 1 + (size + 1 if size >= 0 else 0)
    return found
