"""The merge train: whatever comes in whatever order, only green lands, and everything ends."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.fleet.merge.train import (
    PARKED_MAX,
    Added,
    Cancel,
    Eject,
    Land,
    MainMoved,
    Probe,
    Rules,
    Train,
    TrainVerdict,
    Trouble,
    Unmerged,
    Withdrawn,
    best_batch,
)


class World:
    """Gates that answer when they are told to, and a main that is checked at every landing."""

    def __init__(self, rules, *, bad=(), pairs=(), conflicts=(), flaky=()):
        self.train = Train(rules)
        self.bad, self.pairs, self.conflicts = set(bad), [set(p) for p in pairs], conflicts
        self.flaky, self.honest = set(flaky), not flaky
        self.main, self.ejected, self.withdrawn = [], {}, []
        self.tests, self.verdicts, self.gone = {}, {}, set()
        self.runs = 0

    def green(self, changes):
        held = set(changes)
        return not (held & self.bad) and not any(pair <= held for pair in self.pairs)

    def clash(self, changes):
        """The first change of a list that conflicts with one before it."""
        for at, change in enumerate(changes):
            for before in changes[:at]:
                if {change, before} in self.conflicts:
                    return change
        return None

    def tell(self, event):
        for action in self.train.step(event):
            match action:
                case Probe(test, changes):
                    assert test not in self.tests
                    self.tests[test] = (tuple(self.main), changes)
                    self.runs += 1
                case Cancel(test):
                    del self.tests[test]
                case Land(changes, test):
                    self.land(changes, test)
                case Eject(change, kind, test):
                    assert change not in self.ejected
                    self.ejected[change] = kind
        assert len(self.tests) <= self.train.rules.slots
        red = [length for length, (green, _) in self.train.verdicts.items() if not green]
        assert all(length < min(red) for length in self.train.running.values() if red)
        assert {*self.train.running, *self.train.suspects} == set(self.tests)
        return self

    def land(self, changes, test):
        after = [*self.main, *changes]
        assert self.verdicts[test] == (tuple(after), True), "what lands is what was tested green"
        if self.train.rules.strict:
            told = {held for held, green in self.verdicts.values() if green}
            steps = [tuple(after[:n]) for n in range(len(self.main) + 1, len(after) + 1)]
            assert set(steps) <= told, "each commit was tested"
        red = {held for held, green in self.verdicts.values() if not green}
        if self.honest:
            for n in range(len(self.main) + 1, len(after) + 1):
                assert tuple(after[:n]) not in red, "no commit known to be red lands"
        assert not set(self.main) & set(changes), "once"
        self.main = after

    def answer(self, test):
        """One running gate ends."""
        main, changes = self.tests.pop(test)
        held = (*main, *changes)
        odd = self.clash(held)
        if odd is not None:
            assert odd in changes
            final = self.clash((*self.main, odd)) is not None
            self.tell(Unmerged(test, odd, "conflict", final))
            return
        green = self.green(held)
        hit = self.flaky & set(changes)
        if green and hit:
            self.flaky -= hit
            green = False
        self.verdicts[test] = (held, green)
        self.tell(TrainVerdict(test, green))

    def run(self, changes, choose=min):
        """Everything comes at once, gates answer in some order, until nothing is left."""
        for change in changes:
            self.tell(Added(change))
        while self.tests:
            self.answer(choose(sorted(self.tests)))
        assert len(self.train) == 0
        return self


def greedy(world, changes):
    """What testing one by one would do."""
    main = []
    for change in changes:
        if world.green([*main, change]) and world.clash([*main, change]) is None:
            main.append(change)
    return main


def names(count):
    return [f"c{number:03}" for number in range(count)]


RULES = st.builds(
    Rules,
    slots=st.integers(1, 8),
    strict=st.booleans(),
    batch_max=st.sampled_from([1, 3, 16]),
    confirm=st.booleans(),
)


@st.composite
def troubled(draw, most=30):
    """Changes, some bad by themselves, some only together."""
    changes = names(draw(st.integers(2, most)))
    some = st.sampled_from(changes)
    bad = draw(st.sets(some, max_size=6))
    pairs = draw(st.lists(st.sets(some, min_size=2, max_size=2), max_size=4))
    return changes, bad, pairs


@given(RULES, troubled(), st.randoms(use_true_random=False))
def test_the_train_ends_as_testing_one_by_one_would(rules, case, chance):
    """Whatever the order of the verdicts: the same land, in the order they came; the rest goes."""
    changes, bad, pairs = case
    world = World(rules, bad=bad, pairs=pairs).run(changes, chance.choice)
    assert world.main == greedy(world, changes)
    assert set(world.ejected) == set(changes) - set(world.main)
    assert set(world.ejected.values()) <= {"red"}


@given(RULES, troubled(), st.randoms(use_true_random=False))
def test_gate_runs_are_bounded(rules, case, chance):
    """A culprit costs at most what was running ahead and a search; nothing is tested for ever."""
    changes, bad, pairs = case
    world = World(rules, bad=bad, pairs=pairs).run(changes, chance.choice)
    culprits = len(world.ejected)
    assert world.runs <= len(changes) + culprits * (4 * rules.slots + 2 * rules.batch_max + 4)


@given(RULES, troubled(), st.randoms(use_true_random=False))
def test_nothing_breaks_a_train(rules, case, chance):
    """Late arrivals, withdrawals, trouble of gates, a main that moves: only green lands."""
    changes, bad, pairs = case
    clashes = [set(chance.sample(changes, 2)) for _ in range(3)]
    world = World(rules, bad=bad, pairs=pairs, conflicts=clashes)
    coming, left = list(changes), 60
    while coming or world.tests:
        draw = chance.random()
        if coming and (draw < 0.4 or not world.tests):
            world.tell(Added(coming.pop(0)))
        elif draw < 0.45 and left and world.tests:
            left -= 1
            test = chance.choice(sorted(world.tests))
            del world.tests[test]
            world.tell(Trouble(test))
        elif draw < 0.5 and left and world.train.queue:
            left -= 1
            change = chance.choice(world.train.queue)
            world.withdrawn.append(change)
            world.tell(Withdrawn(change))
        elif draw < 0.55 and left:
            left -= 1
            world.tell(MainMoved())
        elif world.tests:
            world.answer(chance.choice(sorted(world.tests)))
    assert len(world.train) == 0
    assert world.green(world.main)
    assert world.clash(world.main) is None
    assert sorted([*world.main, *world.ejected, *world.withdrawn]) == changes
    plain = [change for change in world.main if not any(change in pair for pair in clashes)]
    assert plain == sorted(plain), "who conflicts with nobody keeps its place"


@given(RULES, st.integers(0, 29), st.randoms(use_true_random=False))
def test_a_flaky_gate_ejects_nobody(rules, hit, chance):
    """Who seems at fault is tested by itself before it is sent away; only it loses its place."""
    changes = names(30)
    rules = Rules(rules.slots, strict=rules.strict, batch_max=rules.batch_max)
    world = World(rules, flaky={changes[hit]}).run(changes, chance.choice)
    assert not world.ejected
    assert sorted(world.main) == changes
    late = [change for at, change in enumerate(world.main) if change < max(world.main[: at + 1])]
    assert len(late) <= 1


# --- by example ----------------------------------------------------------------------------


def test_one_change_is_tested_at_once():
    """A quiet train waits for nobody."""
    train = Train(Rules(slots=4))
    assert train.step(Added("a")) == [Probe(1, ("a",))]
    assert train.step(Added("b")) == [Probe(2, ("a", "b"))]
    assert train.step(TrainVerdict(2, green=True)) == [Land(("a", "b"), 2), Cancel(1)]


def test_strict_mode_waits_for_each_commit():
    """A green tip is not enough."""
    train = Train(Rules(slots=4, strict=True))
    train.step(Added("a"))
    train.step(Added("b"))
    assert train.step(TrainVerdict(2, green=True)) == []
    assert train.step(TrainVerdict(1, green=True)) == [Land(("a", "b"), 2)]


def test_a_culprit_is_searched_with_all_slots():
    """Seven prefixes at once, not three one after the other."""
    world = World(Rules(slots=8, confirm=False), bad={"c005"})
    train = world.train
    train.queue = names(8)
    train.running = {1: 8}
    train.tests, world.tests = 1, {1: ((), tuple(names(8)))}
    world.answer(1)
    assert sorted(train.running.values()) == [1, 2, 3, 4, 5, 6, 7]
    for test in sorted(world.tests, key=lambda test: -train.running[test]):
        if test in world.tests:
            world.answer(test)
    assert world.ejected == {"c005": "red"}
    assert world.main[:5] == names(5)


def test_fewer_slots_than_changes_are_spread_evenly():
    """Four gates cut sixteen changes into five parts, not in half."""
    train = Train(Rules(slots=4), queue=names(16), running={1: 16}, tests=1)
    train.step(TrainVerdict(1, green=False))
    assert sorted(train.running.values()) == [3, 6, 10, 13]


def test_a_second_chance_is_the_last():
    """Red, green by itself, red again: it goes, or it would go round for ever."""
    train = Train(Rules(slots=1))
    assert train.step(Added("a")) == [Probe(1, ("a",))]
    assert train.step(TrainVerdict(1, green=False)) == [Probe(2, ("a",))]
    assert train.suspects == {2: "a"}
    assert train.step(TrainVerdict(2, green=True)) == [Probe(3, ("a",))]
    assert train.running == {3: 1}
    assert train.step(TrainVerdict(3, green=False)) == [Eject("a", "red", 3)]
    assert len(train) == 0


def test_two_that_fail_only_together():
    """The later one goes, and its suspicion is confirmed on main with the other one there."""
    world = World(Rules(slots=4), pairs=[("c002", "c009")]).run(names(12))
    assert world.ejected == {"c009": "red"}
    assert world.main == [name for name in names(12) if name != "c009"]


def test_a_conflict_with_one_that_is_queued_waits_for_it():
    """It lands if the other is sent away, and is ejected if the other has landed."""
    clash = [{"c000", "c001"}]
    assert World(Rules(slots=2), conflicts=clash).run(names(3)).ejected == {"c001": "conflict"}
    world = World(Rules(slots=2), conflicts=clash, bad={"c000"}).run(names(3))
    assert world.ejected == {"c000": "red"}
    assert sorted(world.main) == ["c001", "c002"]


def test_nobody_is_parked_for_ever():
    """After some times it goes back to its owner, even if it could still be merged onto main."""
    train = Train(Rules(slots=16))
    for change in ("c0", "odd", "c1"):
        train.step(Added(change))
    for number in range(PARKED_MAX + 1):
        tests = [test for test, n in train.running.items() if "odd" in train.queue[:n]]
        assert train.queue[0] != "odd"
        actions = train.step(Unmerged(tests[0], "odd", "conflict", final=False))
        if Eject("odd", "conflict", tests[0]) in actions:
            break
        for name in "xyz":
            train.step(Added(f"{name}{number}"))
        count = len(train.parked[0].ahead)
        (before,) = (test for test, n in train.running.items() if n == count)
        train.step(TrainVerdict(before, green=True))
    else:
        pytest.fail("it was parked once more")
    assert number == PARKED_MAX


def test_a_conflict_with_main_is_final():
    """It waits for nobody, since nobody can help."""
    train = Train(Rules(slots=2))
    train.step(Added("a"))
    train.step(Added("b"))
    assert train.step(Unmerged(2, "b", "conflict", final=True)) == [Eject("b", "conflict", 2)]
    assert train.queue == ["a"]


def test_a_main_that_moved_makes_all_verdicts_void():
    """What did not land after all stands in front again, and everything is tested anew."""
    train = Train(Rules(slots=2))
    train.step(Added("a"))
    train.step(Added("b"))
    again = [Probe(3, ("x", "a")), Probe(4, ("x", "a", "b"))]
    assert train.step(MainMoved(("x",))) == [Cancel(1), Cancel(2), *again]


def test_who_is_withdrawn_twice_or_unknown_changes_nothing():
    """Events may come late."""
    train = Train()
    assert train.step(Withdrawn("nobody")) == []
    assert train.step(TrainVerdict(77, green=True)) == []
    assert train.step(Trouble(77)) == []
    assert train.step(Unmerged(77, "nobody", "conflict", final=True)) == []


def test_the_batch_follows_the_failures():
    """Long while nearly all is well, short when it is not; one in strict mode."""
    assert [best_batch(rate, 16, 16) for rate in (0.0, 0.005, 0.01)] == [16, 16, 16]
    assert best_batch(0.05, 16, 16) <= 3
    assert best_batch(0.2, 16, 16) == 1
    assert Train(Rules(slots=16, strict=True)).batch == 1
    train = Train(Rules(slots=4))
    before = train.batch
    for _ in range(300):
        train._observe(1, 0)
    assert train.batch >= before
    for _ in range(100):
        train._observe(1, 1)
    assert train.batch == 1


def test_the_window_grows_slowly_and_shrinks_at_once():
    """Additive increase, multiplicative decrease, never below the least."""
    world = World(Rules(slots=16, confirm=False, ahead_min=3), bad=set(names(400)[100:200]))
    for change in names(400)[:101]:
        world.tell(Added(change))
    while "c100" not in world.ejected:
        world.answer(min(world.tests))
    assert world.train.window == 8
    for change in names(400)[101:]:
        world.tell(Added(change))
    while "c199" not in world.ejected:
        world.answer(min(world.tests))
    assert world.train.window == 3
    while world.tests:
        world.answer(min(world.tests))
    assert world.train.window > 3


def test_ten_thousand_changes_are_no_burden():
    """The cost of an event does not grow with the queue."""

    def cost(count):
        chance = random.Random(1)
        changes = [f"c{n}" for n in range(count)]
        bad = {change for change in changes if chance.random() < 0.01}
        train = Train(Rules(slots=16))
        began, tests, events = time.thread_time(), {}, count
        for change in changes:
            for action in train.step(Added(change)):
                if isinstance(action, Probe):
                    tests[action.test] = action.changes
        while train.running or train.suspects:
            test = min((*train.running, *train.suspects))
            events += 1
            for action in train.step(TrainVerdict(test, green=not bad & set(tests[test]))):
                if isinstance(action, Probe):
                    tests[action.test] = action.changes
        return (time.thread_time() - began) / events

    assert min(cost(20_000) for _ in range(2)) < 8 * max(cost(1_000) for _ in range(3))


def test_the_train_beside_others():
    """Same changes for all, same outcome, and at least five times what a serial gate lands."""
    bench = Path(__file__).parents[2] / "bench/train.py"
    command = [sys.executable, bench, "--changes", "600", "--rates", "0.5,1,5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same outcome: met" in done.stdout
