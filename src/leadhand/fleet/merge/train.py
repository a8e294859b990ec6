"""The merge train: which changes are tested together, which land, which go back. PURE.

The whole train is one list. Changes stand in it in the order they came, and whatever is tested is
main with the first n of them on top: a prefix. So all that is ever known is one row of verdicts,

    main  c1  c2  c3  c4  c5  c6  c7  c8 ...
           .   .   G   .   ?   .   R   .          G green, R red, ? being tested

and everything follows from it:

    landing       the longest green prefix with no red before it lands; it leaves the front
    speculation   while nothing is red, the next prefix to test is a batch longer than the last
    search        once a prefix is red, prefixes shorter than it are tested, spread evenly over as
                  many gate slots as there are: the first red one ends in the culprit
    ejection      a prefix of one that is red is the culprit's: it leaves, and what was known of
                  the prefixes that held it is forgotten. The others keep their order
    together      two changes that fail only together: the prefix with both is the first red one,
                  so the later of the two leaves, as if they had been tested one by one

Laws
    1. Nothing lands but a prefix that was tested green. In strict mode each commit of it was.
    2. No prefix is tested that holds one known to be red.
    3. Who is not at fault keeps its place. Nothing is inserted before what is being tested.
    4. Each change ends: landed, ejected or withdrawn. A culprit is tested once more by itself, on
       the main of that moment, beside the train and without holding it up: gates are flaky. Found
       green it goes back to the train, once.
    5. A change that cannot be merged onto those before it, but onto main, waits until they are
       settled, at most `PARKED_MAX` times. One that cannot be merged onto main is ejected.
    6. Trouble of the gate is no verdict: the same prefix is tested again.
    7. The cost of an event grows with the gate slots and the size of a batch, not with the queue.

How long a batch is follows from how often changes were at fault of late (`best_batch`), and how
many tests run ahead of main is raised by one with each landing and halved with each culprit.

The shell (`conductor.py`) calls `step` with what happened and does what is returned, in order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import ceil, log
from typing import Literal

# Events and actions of a train. PURE.


Kind = Literal["red", "conflict", "foreign", "empty", "protected", "stale"]


# --- what happens --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Added:
    """A change came."""

    change: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A change that is no longer wanted."""

    change: str


@dataclass(frozen=True, slots=True)
class TrainVerdict:
    """A test ended."""

    test: int
    green: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """A test ended without a verdict."""

    test: int


@dataclass(frozen=True, slots=True)
class Unmerged:
    """A change of a test cannot be put on those before it; `final`: nor on main."""

    test: int
    change: str
    kind: Kind
    final: bool


@dataclass(frozen=True, slots=True)
class MainMoved:
    """Main is not where it was thought to be; these did not land after all."""

    back: tuple[str, ...] = ()


Event = Added | Withdrawn | TrainVerdict | Trouble | Unmerged | MainMoved


# --- what is to be done --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """Put these changes on main, in this order, and gate the result."""

    test: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """The verdict is no longer needed."""

    test: int


@dataclass(frozen=True, slots=True)
class Land:
    """Move main over these changes; `test` is the one that was green."""

    changes: tuple[str, ...]
    test: int


@dataclass(frozen=True, slots=True)
class Eject:
    """Give it back; `test` is the one that tells why."""

    change: str
    kind: Kind
    test: int


Action = Probe | Cancel | Land | Eject


BATCH_MAX = 16
PARKED_MAX = 3
SEEN_MAX = 400
GUESS_SEEN, GUESS_BAD = 25.0, 0.5
"""Before anything was seen: one change in fifty is at fault."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a train is run; `slots` is how many gates may run at once."""

    slots: int = 2
    strict: bool = False
    batch_max: int = BATCH_MAX
    confirm: bool = True
    ahead_min: int = 0
    """The fewest tests that run ahead of main; 0: half of the slots."""


@dataclass(slots=True)
class Parked:
    """A change that waits for those that were before it."""

    change: str
    ahead: set[str]


@dataclass(slots=True)
class Train:
    """The state, and the one way to change it: `step`."""

    rules: Rules = field(default_factory=Rules)
    queue: list[str] = field(default_factory=list)
    verdicts: dict[int, tuple[bool, int]] = field(default_factory=dict)
    """By length of the prefix: green or not, and by which test."""
    running: dict[int, int] = field(default_factory=dict)
    """By test: the length of its prefix."""
    suspects: dict[int, str] = field(default_factory=dict)
    """By test: a change that is tested once more by itself."""
    doubted: list[str] = field(default_factory=list)
    """Suspects that wait for a gate slot."""
    parked: list[Parked] = field(default_factory=list)
    ahead: float = 0.0
    seen: float = GUESS_SEEN
    bad: float = GUESS_BAD
    tests: int = 0
    strikes: dict[str, int] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)

    # --- views -----------------------------------------------------------------------------

    @property
    def failure_rate(self) -> float:
        """Return the recent rate of changes that were at fault."""
        return self.bad / self.seen

    @property
    def batch(self) -> int:
        """Return how many changes are tested together if there are many."""
        if self.rules.strict:
            return 1
        rate = round(self.failure_rate, 3)
        return best_batch(rate, self.rules.slots, self.rules.batch_max)

    @property
    def window(self) -> int:
        """Return how many tests may run ahead of main."""
        slots = self.rules.slots
        return int(min(slots, max(self.ahead or slots, self.rules.ahead_min or slots / 2, 1)))

    def __len__(self) -> int:
        """Return how many changes are not settled yet."""
        return len(self.queue) + len(self.suspects) + len(self.doubted) + len(self.parked)

    # --- the one way in --------------------------------------------------------------------

    def step(self, event: Event) -> list[Action]:
        """Take in an event, and return the actions that follow."""
        actions: list[Action] = []
        match event:
            case Added(change):
                self.queue.append(change)
            case Withdrawn(change):
                self._withdraw(change, actions)
            case TrainVerdict(test, green):
                self._judge(test, green, actions)
            case Trouble(test):
                self.running.pop(test, None)
                if test in self.suspects:
                    self.doubted.insert(0, self.suspects.pop(test))
            case Unmerged():
                self._set_aside(event, actions)
            case MainMoved(back):
                self._forget_from(1, actions)
                self.queue[:0] = back
        self._settle(actions)
        self._fill(actions)
        return actions

    # --- what happened ---------------------------------------------------------------------

    def _judge(self, test: int, green: bool, actions: list[Action]) -> None:  # noqa: FBT001
        if test in self.suspects:
            change = self.suspects.pop(test)
            if green:
                self._put_back([change])
            else:
                self._eject(change, "red", test, actions)
            return
        length = self.running.pop(test, 0)
        if length:
            self.verdicts[length] = (green, test)
            if not green:
                self._cancel_from(length + 1, actions)

    def _withdraw(self, change: str, actions: list[Action]) -> None:
        if change in self.queue:
            at = self.queue.index(change)
            self._forget_from(at + 1, actions)
            del self.queue[at]
        for test in [test for test, suspect in self.suspects.items() if suspect == change]:
            del self.suspects[test]
            actions.append(Cancel(test))
        self.doubted = [each for each in self.doubted if each != change]
        self.parked = [each for each in self.parked if each.change != change]
        self._settled([change])

    def _set_aside(self, event: Unmerged, actions: list[Action]) -> None:
        change = event.change
        if self.suspects.get(event.test) == change:  # by itself, so onto main
            del self.suspects[event.test]
            self._eject(change, event.kind, event.test, actions)
            return
        length = self.running.get(event.test, 0)
        if change not in self.queue[:length]:
            return
        at = self.queue.index(change)
        self.running.pop(event.test)
        self._forget_from(at + 1, actions)
        del self.queue[at]
        self.waits[change] = self.waits.get(change, 0) + 1
        if event.final or at == 0 or self.waits[change] > PARKED_MAX:
            self._eject(change, event.kind, event.test, actions)
        else:
            self.parked.append(Parked(change, set(self.queue[:at])))

    # --- what follows ----------------------------------------------------------------------

    def _settle(self, actions: list[Action]) -> None:
        """Land what can land, and eject changes that are at fault."""
        first_red = self._first_red()
        best = self._green()
        if best:
            test = self.verdicts[best][1]
            landed = tuple(self.queue[:best])
            del self.queue[:best]
            actions.append(Land(landed, test))
            self._shift(best, actions)
            self._observe(len(landed), 0)
            self.ahead = min(self.rules.slots, self.window + 1)
            self._settled(landed)
        if first_red and first_red - best == 1:
            test = self.verdicts[1][1]
            change = self.queue.pop(0)
            self._forget_from(1, actions)
            self._observe(1, 1)
            self.ahead = max(1, self.window / 2)
            self.strikes[change] = self.strikes.get(change, 0) + 1
            if self.rules.confirm and self.strikes[change] == 1:
                self.doubted.append(change)
            else:
                self._eject(change, "red", test, actions)

    def _first_red(self) -> int:
        return min((length for length, (green, _) in self.verdicts.items() if not green), default=0)

    def _green(self) -> int:
        """Return how much can land: in strict mode each prefix on the way is green.

        A green prefix lands at once and a red one ends the tests of longer ones, so no prefix known
        to be green is longer than one known to be red.
        """
        if not self.rules.strict:
            return max((length for length, (green, _) in self.verdicts.items() if green), default=0)
        best = 0
        while self.verdicts.get(best + 1, (False, 0))[0]:
            best += 1
        return best

    def _fill(self, actions: list[Action]) -> None:
        """Give the free gate slots something to do."""
        free = self.rules.slots - len(self.running) - len(self.suspects)
        while free > 0 and self.doubted:
            change = self.doubted.pop(0)
            self.suspects[self._test((change,), actions)] = change
            free -= 1
        first_red = self._first_red()
        lengths = self._probes(first_red, free) if first_red else self._batches(free)
        for length in lengths:
            test = self._test(tuple(self.queue[:length]), actions)
            self.running[test] = length

    def _batches(self, free: int) -> Iterable[int]:
        """Yield the next prefixes, each a batch longer than the one before."""
        free = min(free, self.window - len(self.running))
        last, end = max((*self.running.values(), *self.verdicts), default=0), len(self.queue)
        if self.rules.strict:
            taken = {*self.running.values(), *self.verdicts}
            gaps = [length for length in range(1, min(end, last + free) + 1) if length not in taken]
            yield from gaps[: max(0, free)]
            return
        best = self.batch
        while free > 0 and last < end:
            last = min(end, last + max(1, min(best, ceil((end - last) / free))))
            free -= 1
            yield last

    def _probes(self, first_red: int, free: int) -> Iterable[int]:
        """Prefixes shorter than the red one, where they tell most; all of them in strict mode."""
        taken = {
            length for length in (*self.running.values(), *self.verdicts) if length < first_red
        }
        if self.rules.strict:
            yield from [n for n in range(1, first_red) if n not in taken][: max(0, free)]
            return
        marks = sorted({0, first_red, *taken})
        for _ in range(free):
            gap, start = max((b - a, -a) for a, b in pairwise(marks))
            if gap < 2:
                return
            # All slots at once if the gap is untouched, else the middle of the widest one.
            parts = min(free + 1, gap) if len(marks) == 2 else 2
            fresh = sorted({-start + round(gap * n / parts) for n in range(1, parts)})
            yield from fresh
            marks = sorted({*marks, *fresh})
            if parts > 2:
                return

    # --- small things ----------------------------------------------------------------------

    def _test(self, changes: tuple[str, ...], actions: list[Action]) -> int:
        self.tests += 1
        actions.append(Probe(self.tests, changes))
        return self.tests

    def _eject(self, change: str, kind: Kind, test: int, actions: list[Action]) -> None:
        actions.append(Eject(change, kind, test))
        self._settled([change])

    def _settled(self, changes: Iterable[str]) -> None:
        """Remove these changes, and bring back changes that waited only for them."""
        gone = set(changes)
        for change in gone:
            self.strikes.pop(change, None)
            self.waits.pop(change, None)
        ready = []
        for each in self.parked:
            each.ahead -= gone
            if not each.ahead:
                ready.append(each)
        if ready:
            self.parked = [each for each in self.parked if each.ahead]
            self._put_back([each.change for each in ready])

    def _put_back(self, changes: list[str]) -> None:
        """Insert changes behind those under test, before all others."""
        at = max((*self.running.values(), *self.verdicts), default=0)
        self.queue[at:at] = changes

    def _cancel_from(self, length: int, actions: list[Action]) -> None:
        for test in [test for test, size in self.running.items() if size >= length]:
            del self.running[test]
            actions.append(Cancel(test))

    def _forget_from(self, length: int, actions: list[Action]) -> None:
        """Forget the prefixes of this length or more, which have changed."""
        self._cancel_from(length, actions)
        self.verdicts = {size: told for size, told in self.verdicts.items() if size < length}

    def _shift(self, count: int, actions: list[Action]) -> None:
        """Shorten all prefixes by the changes at the front that landed."""
        for test in [test for test, size in self.running.items() if size <= count]:
            del self.running[test]
            actions.append(Cancel(test))
        self.running = {test: size - count for test, size in self.running.items()}
        self.verdicts = {s - count: told for s, told in self.verdicts.items() if s > count}

    def _observe(self, seen: int, bad: int) -> None:
        self.seen, self.bad = self.seen + seen, self.bad + bad
        if self.seen > SEEN_MAX:
            self.seen, self.bad = self.seen / 2, self.bad / 2


@lru_cache(maxsize=4096)
def best_batch(rate: float, slots: int, batch_max: int) -> int:
    """Return the batch size that lands most in the time of one gate run, at this failure rate.

    A chain of batches is tested at once: those before the first red one land, then a search of some
    rounds finds its first culprit, and the changes before that one land too.
    """

    def landed(batch: int) -> float:
        good = 1 - rate
        green = good**batch
        if green >= 1:
            return float(batch * slots)
        some_red = 1 - green**slots
        straight = batch * green * some_red / (1 - green)
        before = sum(n * good**n * rate for n in range(batch)) / (1 - green)
        rounds = ceil(log(batch, slots + 1) - 1e-9)
        return (straight + some_red * before) / (1 + some_red * rounds)

    return max(range(1, batch_max + 1), key=lambda batch: (landed(batch), -batch))
