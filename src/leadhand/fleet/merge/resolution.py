"""Resolution of conflicts by programs: files that are regenerated, and a merge driver.

Git merges lines. Where it cannot, a program may: the command that made a lock file makes it again
from the merged inputs, and a driver that knows the language merges by structure. Both run in the
sandbox, in a checkout of the merged files, for the conflicting files only.

Laws
    1. A program settles all conflicts of a change, or none: else the change goes back to its owner
       as it would without, with what the program said.
    2. Only the conflicting files are taken from it. What it does to other files is thrown away.
    3. Its result is a change like any other: the gate tests it before it lands.
    4. A regenerated file that both sides changed is made again even where the lines merge: a lock
       file whose lines are those of both is no lock of both.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from leadhand.fleet.boundaries import within

if TYPE_CHECKING:
    from pathlib import Path

    from leadhand.fleet.gate.gate import Command, Gate
    from leadhand.fleet.repository.hub import Hub, Merge
    from leadhand.fleet.workspace.slots import Slot

BYTES_MAX = 32 << 20
SAID_CHARS = 1200
MARKS = (b"<<<<<<< ", b">>>>>>> ")
"""Lines that begin so are of a conflict that is left."""


@dataclass(frozen=True, slots=True)
class ResolutionRules:
    """The programs that settle conflicts."""

    regenerate: Mapping[str, Command] = field(default_factory=dict)
    """By pattern of paths: the command that writes the file anew."""
    driver: Command = ()
    """The command that merges {base}, {ours} and {theirs} to {output}; {path} is the file's."""

    def command_of(self, path: str) -> Command:
        """Return the command that writes a file anew; none: it is merged."""
        found = (argv for text, argv in self.regenerate.items() if within(path, (text,)))
        return next(found, ())


class _Unsettled(Exception):
    """A program could not settle a conflict; the message is for the owner of the change."""


class ConflictResolution:
    """Settles conflicts of changes by programs, in checkouts of the gate."""

    def __init__(self, hub: Hub, gate: Gate, rules: ResolutionRules) -> None:
        self._hub, self._gate, self._rules = hub, gate, rules

    async def settled(self, merged: Merge, onto: str, head: str, base: str) -> Merge:
        """Return the merge without its conflicts, or as it was, with the reason in `why`."""
        paths = [path for path in merged.conflicts if self._settles(path)]
        if merged.tree is not None:
            paths = await self._made_twice(onto, head, base)
        elif not merged.partial or len(paths) < len(merged.conflicts):
            return merged
        if not paths:
            return merged
        try:
            tree = await self._tree(merged.tree or merged.partial, paths, onto, head, base)
        except _Unsettled as why:
            return replace(merged, tree=None, conflicts=tuple(paths), why=str(why))
        odd = await self._hub.strangers(onto, head, base, tree)
        if left := [path for path in odd if path not in paths]:
            return replace(merged, tree=None, conflicts=tuple(left))
        return replace(merged, tree=tree, conflicts=())

    def _settles(self, path: str) -> bool:
        return bool(self._rules.command_of(path) or self._rules.driver)

    async def _made_twice(self, onto: str, head: str, base: str) -> list[str]:
        if not self._rules.regenerate:
            return []
        ours, theirs = await self._hub.changed(base, head), await self._hub.changed(base, onto)
        both = (path for path, how in ours.items() if path in theirs and how != "D")
        return [path for path in both if self._rules.command_of(path)]

    async def _tree(self, tree: str, paths: list[str], onto: str, head: str, base: str) -> str:
        hub = self._hub
        known = {path: await self._versions(path, base, onto, head) for path in paths}
        made = []
        async with self._gate.workshop(onto, tree) as (slot, home):
            # Inputs first: a lock file is made from files that the driver has merged.
            for path in sorted(paths, key=lambda path: bool(self._rules.command_of(path))):
                mode, blobs = known[path]
                if argv := self._rules.command_of(path):
                    text = await self._regenerated(argv, path, slot, home, blobs[1])
                else:
                    text = await self._driven(path, slot, home, blobs)
                said = await hub.git("hash-object", "-w", "--stdin", stdin=text)
                made.append((mode, said.text, path))
        return await hub.replaced(tree, made)

    async def _versions(self, path: str, *commits: str) -> tuple[str, list[bytes]]:
        """Return the mode of a file, and its contents in each commit; one may lack it."""
        mode, shas = "100644", []
        for commit in commits:
            said = await self._hub.git("ls-tree", "-z", commit, "--", path)
            about = said.out.partition(b"\t")[0].decode().split(" ")
            if len(about) == 3 and about[1] == "blob" and about[0] in ("100644", "100755"):
                mode = about[0]
                shas.append(about[2])
            elif said.out:
                raise _Unsettled(f"{path} is no plain file")
            else:
                shas.append("")
        blobs = await self._hub.blobs(sha for sha in shas if sha)
        return mode, [blobs.get(sha, b"") for sha in shas]

    async def _regenerated(
        self, argv: Command, path: str, slot: Slot, home: Path, mains: bytes
    ) -> bytes:
        place = slot.path / path
        _write(slot, place, mains)  # no marks of a conflict: its command reads what is there
        network = self._gate.rules.setup_network
        code, said = await self._gate.run(argv, slot, home, network=network)
        if code:
            words = f"{shlex.join(argv)} could not make {path} anew (exit {code})"
            raise _Unsettled(f"{words}:\n{said[-SAID_CHARS:]}")
        return _read(slot, place, path)

    async def _driven(self, path: str, slot: Slot, home: Path, versions: list[bytes]) -> bytes:
        places = {name: home / f"merge-{name}" for name in ("base", "ours", "theirs", "output")}
        for place, text in zip(places.values(), versions, strict=False):
            place.write_bytes(text)
        places["output"].unlink(missing_ok=True)
        words = {**{name: str(place) for name, place in places.items()}, "path": path}
        argv = tuple(_filled(word, words) for word in self._rules.driver)
        code, said = await self._gate.run(argv, slot, home, network=False)
        if code or not places["output"].is_file() or places["output"].is_symlink():
            raise _Unsettled(f"the merge driver left {path} (exit {code}):\n{said[-SAID_CHARS:]}")
        text = places["output"].read_bytes()[:BYTES_MAX]
        if any(line.startswith(MARKS) for line in text.split(b"\n")):
            raise _Unsettled(f"the merge driver left a conflict in {path}")
        _write(slot, slot.path / path, text)
        return text


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _inside(slot: Slot, place: Path) -> bool:
    return place.parent.resolve().is_relative_to(slot.path.resolve())


def _write(slot: Slot, place: Path, text: bytes) -> None:
    """Write a file of the checkout; never through a link that the change brings along."""
    if not _inside(slot, place):
        raise _Unsettled(f"{place.name} lies behind a link")
    place.unlink(missing_ok=True)
    place.write_bytes(text)


def _read(slot: Slot, place: Path, path: str) -> bytes:
    if not _inside(slot, place) or place.is_symlink() or not place.is_file():
        raise _Unsettled(f"{path} is no plain file any more")
    if place.stat().st_size > BYTES_MAX:
        raise _Unsettled(f"{path} is larger than {BYTES_MAX >> 20} MB")
    return place.read_bytes()
