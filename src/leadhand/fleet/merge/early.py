"""Early merges: work in progress is merged with main while its agent works, to tell of conflicts.

When main has moved, what each agent has by now is merged onto it, in memory, if both changed files
in common. An agent in conflict gets a message with the others' difference, and goes on with the
same conversation; without it the conflict would show when the agent is done and paid for.

An agent that was told brings the others' lines into its own files. Then its change begins where
theirs ended: of these files the base is main's version, so that the merge queue sees only what
the agent added. That is believed only where the file shows it (`takes_in`): every line that the
others added is there, none that they removed has come back. Otherwise the base stays as it was,
and the conflict goes back to its owner as any other.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from leadhand.errors import LeadhandError
from leadhand.fleet.agents.brief import conflict_message
from leadhand.fleet.boundaries import within

if TYPE_CHECKING:
    from leadhand.fleet.context import AtWork, FleetContext
    from leadhand.fleet.machines.remote_slot import RemoteSlot
    from leadhand.fleet.repository.hub import Hub
    from leadhand.fleet.workspace.slots import Slot

TOLD_MAX = 3
"""Messages about conflicts in one attempt: each of them interrupts the agent."""


class EarlyMerges:
    """Tells agents at work of conflicts with main."""

    def __init__(self, shop: FleetContext) -> None:
        self._shop = shop

    async def look(self) -> None:
        """Try the merge of each agent's work with main, if main has moved since the last look."""
        main = self._shop.hub.main()
        for at_work in list(self._shop.at_work.values()):
            slot = at_work.slot
            if slot is None or slot.hub is not self._shop.hub:
                continue
            if main in (at_work.tried, slot.base) or at_work.told >= TOLD_MAX:
                continue
            at_work.tried = main
            try:
                await self._try(at_work, slot, main)
            except (LeadhandError, OSError):
                continue  # its agent has ended or changes its files: the merge queue looks again

    async def _try(self, at_work: AtWork, slot: Slot, main: str) -> None:
        shop, hub, given = self._shop, self._shop.hub, at_work.assignment
        theirs = await hub.changed(slot.told[0] or slot.base, main)
        meant = {path for path in theirs if within(path, given.writes)}
        if not any(not within(path, shop.sharing.append) for path in meant):
            return
        taken = await slot.take("Work in progress")
        if not taken.head or meant.isdisjoint(taken.changed):
            return
        base = await base_taken_in(hub, slot, taken.head)
        merged = await hub.merge(main, taken.head, base)
        if merged.tree is not None:
            return
        paths = tuple(path for path in merged.conflicts if path in meant)
        if not paths:
            return  # it was told of these before
        words = conflict_message(main, paths, await hub.patch(slot.base, main, paths))
        reached = at_work.coder.message(given, words)
        shop.note("conflict", **given.about, paths=list(paths)[:20], told=reached)
        if reached:
            at_work.told += 1
            slot.told = (main, tuple(dict.fromkeys((*slot.told[1], *paths))))
            if at_work.transcript is not None:
                at_work.transcript.note("message from the fleet", text=words)


async def base_taken_in(hub: Hub, slot: Slot | RemoteSlot, head: str) -> str:
    """Return the commit that a change begins at: with main's version of the files it took in."""
    main, paths = slot.told
    if not main:
        return slot.base
    theirs = {each.path: each for each in await hub.entries(slot.base, main) if each.path in paths}
    ours = {each.path: each for each in await hub.entries(slot.base, head)}
    both = [(entry, ours[path]) for path, entry in theirs.items() if path in ours]
    blobs = await hub.blobs(sha for pair in both for e in pair for sha in (e.old_blob, e.blob))
    known = [
        entry
        for entry, own in both
        if {entry.old_blob, entry.blob, own.blob} <= blobs.keys()
        and takes_in(blobs[entry.old_blob], blobs[entry.blob], blobs[own.blob])
    ]
    if not known:
        return slot.base
    tree = await hub.tree(slot.base)
    tree = await hub.replaced(tree, [(each.mode, each.blob, each.path) for each in known])
    return await hub.commit(tree, (slot.base,), "What an agent took in of others' work")


def takes_in(before: bytes, theirs: bytes, ours: bytes) -> bool:
    """Return whether a file holds what others made of it: lines they added, none they removed."""
    was, now, own = (Counter(text.splitlines()) for text in (before, theirs, ours))
    added = all(own[line] >= count for line, count in now.items() if count > was[line])
    return added and all(own[line] <= now[line] for line, count in was.items() if now[line] < count)
