"""Ready steps, best first, under limits, at a cost that does not grow with the plan.

Steps that compete for the same capacity form a group: the same worker and the same named resources.
Each group is a heap; `heads` is a heap of the groups' best entries. A group that meets a full limit
is parked under that limit and examined again only when the limit has room. Obsolete entries
(started, cancelled) are dropped when they surface: an entry counts while its ticket is the step's
current one.

The removals that `best` does on the way are invisible: they never change which step is best.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.core.plan.model import Doc


Key = tuple[float, int]
"""Sort key of a step: minus its critical-path tail, then its place in the plan."""


class Ticketed(Protocol):
    """The part of a step that the queue uses."""

    ticket: int
    """The ticket of its current entry, or 0."""


class CapacityGroup(NamedTuple):
    """The capacity a step competes for."""

    worker: str
    uses: tuple[tuple[str, int], ...]
    own: str = ""
    """The step itself, if other workers may do it: it need not wait for its own worker."""


def uses_of(doc: Doc) -> tuple[tuple[str, int], ...]:
    """Return the named resources a step holds while it runs, with amounts."""
    uses = doc.get("uses")
    if not uses:
        return ()
    if isinstance(uses, str):
        return ((uses, 1),)
    if isinstance(uses, dict):
        return tuple(sorted((name, int(amount)) for name, amount in uses.items()))
    return tuple((name, 1) for name in sorted(uses))


class Ready:
    """The queue of steps that could start now."""

    __slots__ = ("_groups", "_headed", "_heads", "_parked_groups", "_tickets", "parked")

    def __init__(self, first: int = 0) -> None:
        """Create an empty queue whose tickets come after `first`."""
        self._tickets = first
        self._groups: dict[CapacityGroup, list[tuple[Key, int, str]]] = {}
        self._heads: list[tuple[Key, CapacityGroup]] = []
        self._headed: dict[CapacityGroup, Key] = {}
        self.parked: dict[str, list[CapacityGroup]] = {}
        self._parked_groups: set[CapacityGroup] = set()

    def add(self, key: Key, group: CapacityGroup, step: str) -> int:
        """Queue a step. Return its ticket: the entry counts while the step keeps this ticket."""
        self._tickets += 1
        heap = self._groups.get(group)
        if heap is None:
            heap = self._groups[group] = []
        entry = (key, self._tickets, step)
        heappush(heap, entry)
        if heap[0] is entry and group not in self._parked_groups:
            self._headed[group] = key
            heappush(self._heads, (key, group))
        return self._tickets

    def best(
        self, steps: Mapping[str, Ticketed], full: Callable[[CapacityGroup], str]
    ) -> str | None:
        """Return the step to start next; None if none is ready or every limit is full."""
        heads = self._heads
        while heads:
            key, group = heads[0]
            if self._headed.get(group) != key:
                heappop(heads)
                continue
            heap = self._groups[group]
            while heap and steps[heap[0][2]].ticket != heap[0][1]:
                heappop(heap)
            if not heap:
                heappop(heads)
                del self._headed[group], self._groups[group]
                continue
            if heap[0][0] != key:
                self._headed[group] = heap[0][0]
                head = (heap[0][0], group)
                heapreplace(heads, head)
                if heads[0] is not head:
                    continue
            limit = full(group)
            if not limit:
                return heap[0][2]
            heappop(heads)
            del self._headed[group]
            self.parked.setdefault(limit, []).append(group)
            self._parked_groups.add(group)
        return None

    def unpark(self, limit: str) -> None:
        """Re-examine the groups parked under a limit that has room again."""
        groups = self.parked.pop(limit, None)
        for group in groups or ():
            self._parked_groups.discard(group)
            heap = self._groups.get(group)
            if heap:
                self._headed[group] = heap[0][0]
                heappush(self._heads, (heap[0][0], group))
