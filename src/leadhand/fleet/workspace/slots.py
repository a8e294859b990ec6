"""Slots: folders in which agents work, one task at a time.

To an agent a slot is an ordinary checkout with a ``.git`` of its own, which borrows the hub's
objects. To us it is a folder of files and nothing more. The agent may do there whatever it likes:
plant hooks, filters and includes, rewrite history, replace ``.git`` by a link. None of it is ever
read by our git, which works on the same files with the hub's repository and with an index that
lies in the hub, out of the agent's reach. What it is told about a file by attributes that agents
may write (line ends, encodings) starts no program.

Laws
    1. A slot is used by one holder at a time, and is exactly its base commit when it is handed
       over: what is not of that commit is removed, its ``.git`` is made anew from nothing. What
       cannot be cleaned is thrown away and made again.
    2. ``take`` is what the agent left, as one commit of ours on the base. How it was left there
       (committed, staged, changed, on what branch) makes no difference. It changes nothing in the
       slot, and can be repeated.
    3. What could not be taken is named, never dropped in silence: files too large, devices, names
       git refuses (``left_out``), files that the project's rules ignore (``ignored``), commits on
       branches and stashes that the files do not show (``elsewhere``).
    4. Repositories inside the slot are taken as plain files. The project's own submodules stay as
       they are in the base.
    5. Before an agent is ended its work is saved (``save``), under a name in the hub. A later save
       of the same attempt keeps the earlier one as its parent.
    6. Who dies while slots are held has left a note of each in the hub: ``rescue`` saves what is
       in them, before they are handed to anybody else.
    7. A slot whose work could not be saved, as on a full disk, keeps its note and is handed to
       nobody. Saving is tried again, later and later, until it succeeds; ``told`` says so.
    8. A slot is free again when nothing of ours is at work in it any more, also after a
       cancellation: a thread cannot be stopped, so it is awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from leadhand.errors import LeadhandError
from leadhand.fleet.background import finish_despite_cancel
from leadhand.fleet.repository.git import GitFailed, printable_name
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.capture import CapturedWork, CaptureLimits, Mark, marks, read_files
from leadhand.fleet.workspace.clean_up import make_git_folder, open_folder, remove, remove_foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.fleet.gate.gate import Gate


COPY_S = 1800.0
AGAIN_S = 5.0
AGAIN_S_MAX = 300.0
"""How long it takes until saving is tried again, at first and at most."""


class SlotGone(LeadhandError):
    """The slot is no longer a folder with files in it: the agent removed or replaced it."""


@dataclass(slots=True)
class Slot:
    """A folder at a commit, held by one task."""

    hub: Hub
    path: Path
    name: str
    base: str
    limits: CaptureLimits
    prepared: dict[str, Mark] = field(default_factory=dict)
    """What the set-up left among the files: no work of the agent's, as long as it stays so."""
    saved: bool = False
    """Whether its content is saved and its agent has ended."""
    told: tuple[str, tuple[str, ...]] = ("", ())
    """The main that its agent was told to take in, and the files in conflict."""

    @property
    def index(self) -> Path:
        """Our index of the slot's files, as they were handed over."""
        return self.hub.path / "index" / f"{self.name}-{crc32(os.fsencode(self.path)):08x}"

    @property
    def note(self) -> Path:
        """Return the file that names the slot's holder, for recovery after the holder died."""
        return self.index.with_name(self.index.name + ".held")

    async def take(self, message: str = "Work of an agent", author: str = "") -> CapturedWork:
        """Capture the agent's work as one commit on the base."""
        await asyncio.to_thread(self._check)
        tree, read = await read_files(self.hub, self.path, self.index, self.base, self)
        changed = await self.hub.changed(await self.hub.tree(self.base), tree)
        head = ""
        if changed:
            who = author or "Leadhand agent <agent@localhost>"
            head = await self.hub.commit(tree, (self.base,), message, author=who)
        return CapturedWork(head, tree, changed, read.left_out, read.ignored, read.elsewhere)

    async def save(self, ref: str) -> str | None:
        """Keep the present files under a ref in the hub; None if nothing differs from the base."""
        taken = await self.take("Work in progress")
        before = (await self.hub.kept(ref)).get(ref)
        if not (taken.head or any(taken.elsewhere.values())):
            return before  # an agent that cleans up when it is told to end takes nothing back
        if before and not taken.elsewhere and await self.hub.tree(before) == taken.tree:
            return before
        older = [sha for sha in (before, *taken.elsewhere.values()) if sha]
        parents = tuple(dict.fromkeys((self.base, *older)))
        notes = [
            f"not taken: {printable_name(path)}: {why}" for path, why in taken.left_out.items()
        ]
        text = "\n".join(["Work in progress", "", *notes[:100]])
        sha = await self.hub.commit(taken.tree, parents, text)
        await self.hub.submit(ref, sha)
        return sha

    async def settle(self, ref: str) -> str:
        """Save the work of an agent that has ended; return why that failed, or an empty text."""
        try:
            await self.save(ref)
        except SlotGone:
            pass  # there is nothing left that could be kept
        except (OSError, LeadhandError) as error:
            return str(error) or type(error).__name__
        self.saved = True
        return ""

    def _check(self) -> None:
        if self.path.is_symlink() or not self.path.is_dir():
            raise SlotGone(f"{self.name} is not a folder any more")
        open_folder(self.path)
        if not any(entry.name != ".git" for entry in self.path.iterdir()):
            raise SlotGone(f"{self.name} was emptied")


FAIR = 4
"""Of so many places that are given while both kinds wait, one goes to those without urgency."""


class UrgentFirst:
    """Places for holders, the urgent before the others; nobody waits for ever."""

    def __init__(self, size: int) -> None:
        self._free, self._given = size, 0
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    async def acquire(self, *, urgent: bool = False) -> None:
        """Wait for a place."""
        if self._free:
            self._free -= 1
            return
        line = self._urgent if urgent else self._others
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with contextlib.suppress(ValueError):
                    line.remove(turn)
            else:  # it was given a place at that moment
                self.release()
            raise

    def release(self) -> None:
        """Give a place to the next who waits."""
        waits = [line for line in (self._urgent, self._others) if line]
        self._given = self._given + 1 if len(waits) > 1 else 0
        if self._given >= FAIR:
            self._given = 0
            waits.reverse()
        for line in waits:
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1


class Slots:
    """A pool of slots in one folder; more are made as they are needed, up to `size`.

    `keep` are paths that outlive a task, such as installed dependencies. Agents write them, so the
    next task works with what the last one left there. `setup` prepares a slot each time it is
    handed over; the files it makes do not count as the agent's.
    """

    def __init__(
        self,
        hub: Hub,
        folder: Path,
        size: int,
        *,
        keep: Sequence[str] = (),
        limits: CaptureLimits | None = None,
        prefix: str = "slot",
        setup: Callable[[Slot], Awaitable[None]] | None = None,
    ) -> None:
        self.hub, self.folder, self.size = hub, folder.absolute(), size
        self.keep, self.limits = tuple(keep), limits or CaptureLimits()
        self._setup = setup
        names = [f"{prefix}-{number}" for number in range(size)]
        # Those that exist already come first: cleaning is cheaper than making.
        names.sort(key=lambda name: not (self.folder / name).is_dir())
        self._free = deque(names)
        self._waiting = UrgentFirst(size)
        self._withheld: dict[str, str] = {}
        self._later: set[asyncio.Task[None]] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    @contextlib.asynccontextmanager
    async def lease(
        self, base: str, tree: str = "", *, saved_as: str = "", urgent: bool = False
    ) -> AsyncIterator[Slot]:
        """Hold a slot at a commit while the block runs; the `urgent` come first.

        `tree` replaces the commit's own files. `saved_as` is the ref under which `rescue` keeps the
        content, if this process dies before the block ends.
        """
        await self._waiting.acquire(urgent=urgent)
        name = self._free.popleft()
        slot, handed = Slot(self.hub, self.folder / name, name, base, self.limits), False
        try:
            await self._hand_over(slot, tree or await self.hub.tree(base))
            if self._setup is not None:
                await self._setup(slot)
                slot.prepared.update(await marks(self.hub, slot.path, slot.index, slot))
            if saved_as:
                slot.note.write_text(json.dumps({"base": base, "ref": saved_as}))
            handed = True
            yield slot
        finally:
            await finish_despite_cancel(self._give_back(slot, saved_as, handed=handed))

    async def _give_back(self, slot: Slot, saved_as: str, *, handed: bool) -> None:
        why = ""
        if handed and saved_as and not slot.saved:
            why = await slot.settle(saved_as)
        if why:
            self._withhold(slot, saved_as, why)
        else:
            self._free_again(slot, first=handed)

    def _free_again(self, slot: Slot, *, first: bool = True) -> None:
        slot.note.unlink(missing_ok=True)
        # The last one used is the next one given: its files are likely the same. One that could
        # not be prepared is the last.
        if first:
            self._free.appendleft(slot.name)
        else:
            self._free.append(slot.name)
        self._waiting.release()

    # --- work that could not be saved ---

    @property
    def told(self) -> dict[str, str]:
        """Return the withheld slots, whose content could not be saved, with the reason."""
        return dict(self._withheld)

    def _withhold(self, slot: Slot, ref: str, why: str) -> None:
        self._tell(slot, ref, why)
        task = asyncio.get_running_loop().create_task(self._save_later(slot, ref))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _tell(self, slot: Slot, ref: str, why: str) -> None:
        work = ref.removeprefix("refs/leadhand/wip/")
        self._withheld[slot.name] = f"the work of {work} is not saved yet, which is tried: {why}"

    async def _save_later(self, slot: Slot, ref: str) -> None:
        pause_s = AGAIN_S
        while True:
            await asyncio.sleep(pause_s)
            why = await slot.settle(ref)
            if not why:
                break
            self._tell(slot, ref, why)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)
        del self._withheld[slot.name]
        self._free_again(slot)

    async def rescue(self) -> list[str]:
        """Save the slots of a process that died; return the refs under which they are kept."""
        found = []
        for name in list(self._free):
            slot = Slot(self.hub, self.folder / name, name, "", self.limits)
            ref = await self._noted(slot)
            why = await slot.settle(ref) if ref else ""
            if why:
                self._free.remove(name)
                await self._waiting.acquire()
                self._withhold(slot, ref, why)
                continue
            if ref and await self.hub.kept(ref):
                found.append(ref)
            slot.note.unlink(missing_ok=True)
        return found

    async def _noted(self, slot: Slot) -> str:
        """Return the ref in a slot's note, and put the base into the slot; empty without a note."""
        try:
            held = json.loads(slot.note.read_text())
            slot.base, ref = str(held["base"]), str(held["ref"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""
        told = await self.hub.git("cat-file", "-e", f"{slot.base}^{{commit}}", codes=(0, 1, 128))
        return "" if told.code else ref

    async def _hand_over(self, slot: Slot, tree: str) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        slot.index.parent.mkdir(exist_ok=True)
        try:
            await self._check_out(slot, tree)
        except (GitFailed, OSError) as error:
            if isinstance(error, GitFailed) and error.full:
                raise
            await _in_thread(self._throw_away, slot)
            await self._check_out(slot, tree)

    async def _check_out(self, slot: Slot, tree: str) -> None:
        git, index = self.hub.git, slot.index
        index.with_name(index.name + ".lock").unlink(missing_ok=True)
        if slot.path.is_symlink() or not slot.path.is_dir():
            await _in_thread(self._throw_away, slot)
        await _in_thread(remove, slot.path / ".git")
        tracked = (await git("ls-files", "-z", index=index)).names()
        await _in_thread(remove_foreign, slot.path, tracked, self.keep)
        await git("read-tree", "--reset", "-u", tree, files=slot.path, index=index, time_s=COPY_S)
        await _in_thread(make_git_folder, slot.path, self.hub.git.folder, slot.base, index)

    def _throw_away(self, slot: Slot) -> None:
        remove(slot.path)
        slot.index.unlink(missing_ok=True)
        slot.path.mkdir()


async def _in_thread(work: Callable[..., object], *given: object) -> None:
    await finish_despite_cancel(asyncio.to_thread(work, *given))


# Set-up of a slot: the project's set-up commands, run before an agent gets it.
#
# They are the gate's own, run in the same way: in the sandbox, with the slot and a home that is
# thrown away, and with the shared cache of dependencies to read. What they leave among the files is
# not the agent's work.


SAID_CHARS = 2_000


class SetupFailed(LeadhandError):
    """A slot could not be prepared, which says nothing about the task."""


def make_checkouts_folder(folder: Path) -> None:
    """Create the folder of slots and gates, for this account only; git leaves it out."""
    if folder.exists():
        return
    folder.mkdir(mode=0o700, parents=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def run_set_up(gate: Gate, folder: Path) -> Callable[[Slot], Awaitable[None]]:
    """Runs the set-up commands of a gate in a slot."""

    async def prepare(slot: Slot) -> None:
        home = Path(tempfile.mkdtemp(prefix="setup-", dir=folder))
        try:
            for argv in gate.rules.setup:
                network = gate.rules.setup_network
                code, said = await gate.run(argv, slot, home, network=network)
                if code:
                    words = f"{shlex.join(argv)} ended with {code}"
                    raise SetupFailed(f"a slot cannot be prepared: {words}\n{said[-SAID_CHARS:]}")
        finally:
            await asyncio.shield(asyncio.to_thread(remove, home))

    return prepare
