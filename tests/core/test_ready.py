"""The queue of ready steps: best first, whatever the limits did in between."""

import random
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.state.ready import CapacityGroup, Ready

A = CapacityGroup("a", ())
B = CapacityGroup("b", ())


class Tickets(dict):
    """Steps, as far as the queue looks at them."""

    def __getitem__(self, step):
        return SimpleNamespace(ticket=self.get(step, 0))


class Bench:
    """A queue with tickets kept beside it, as steps keep them, and limits that tests fill."""

    def __init__(self):
        self.ready = Ready()
        self.tickets = {}
        self.limits = {}
        self.looked = 0

    def add(self, step, key, group=A):
        self.tickets[step] = self.ready.add((float(key), 0), group, step)

    def __getitem__(self, step):
        self.looked += 1
        return SimpleNamespace(ticket=self.tickets.get(step, 0))

    def full(self, group):
        return next((limit for limit in self.limits.get(group, ()) if limit), "")

    def best(self):
        return self.ready.best(self, self.full)

    def take(self):
        step = self.best()
        if step is not None:
            del self.tickets[step]
        return step


def test_a_group_is_shared_unless_it_says_whose_it_is():
    """By all steps that compete for the same."""
    assert CapacityGroup("w", ()) == CapacityGroup("w", (), "")


def test_an_empty_queue_gives_nothing():
    """Nothing is ready: None, and again None."""
    bench = Bench()
    assert bench.best() is None
    assert bench.best() is None


def test_best_first_across_groups():
    """The smallest key comes first, whichever group it is in."""
    bench = Bench()
    for step, key, group in (("x", 3, A), ("y", 1, B), ("z", 2, A), ("v", 4, B)):
        bench.add(step, key, group)
    assert [bench.take() for _ in range(5)] == ["y", "z", "x", "v", None]


def test_looking_takes_nothing_away():
    """`best` may be asked any number of times."""
    bench = Bench()
    bench.add("x", 1)
    assert [bench.best() for _ in range(3)] == ["x", "x", "x"]


def test_equal_keys_keep_the_order_of_adding():
    """Steps of equal worth start in the order they became ready."""
    bench = Bench()
    for step in "xyz":
        bench.add(step, 1)
    assert [bench.take() for _ in range(3)] == ["x", "y", "z"]


def test_a_better_step_that_comes_later_is_first():
    """A new head of a group takes the place of the old one."""
    bench = Bench()
    bench.add("x", 5)
    assert bench.best() == "x"
    bench.add("y", 1)
    assert [bench.take(), bench.take(), bench.take()] == ["y", "x", None]


def test_tickets_are_numbered_from_one_and_never_reused():
    """Ticket 0 means: not in the queue."""
    ready = Ready()
    assert [ready.add((0.0, 0), A, "x") for _ in range(3)] == [1, 2, 3]


def test_an_entry_that_no_longer_counts_is_dropped():
    """A step that was started or cancelled leaves its entry behind; it is passed over."""
    bench = Bench()
    bench.add("x", 1)
    bench.add("y", 2)
    del bench.tickets["x"]
    assert bench.best() == "y"
    bench.looked = 0
    assert bench.best() == "y"
    assert bench.looked == 1, "the dropped entry is not looked at again"


def test_a_step_queued_again_counts_once():
    """Only its newest entry does."""
    bench = Bench()
    bench.add("x", 1)
    bench.add("x", 3)
    bench.add("y", 2)
    assert [bench.take(), bench.take(), bench.take()] == ["y", "x", None]


def test_a_full_group_is_parked_until_its_limit_frees():
    """A group behind a full limit is not looked at until that limit has room."""
    bench = Bench()
    bench.add("x", 1, A)
    bench.add("y", 2, B)
    bench.limits[A] = ["worker a"]
    assert bench.best() == "y"
    assert bench.ready.parked == {"worker a": [A]}
    bench.limits[A] = []
    assert bench.best() == "y", "nobody said that the limit has room"
    bench.ready.unpark("worker b")
    assert bench.best() == "y"
    bench.ready.unpark("worker a")
    assert bench.ready.parked == {}
    assert [bench.take(), bench.take(), bench.take()] == ["x", "y", None]


def test_adding_to_a_parked_group_does_not_unpark_it():
    """A better step behind the same full limit waits with the others, and comes first after."""
    bench = Bench()
    bench.add("x", 5)
    bench.limits[A] = ["worker a"]
    assert bench.best() is None
    bench.add("y", 1)
    assert bench.best() is None
    assert bench.ready.parked == {"worker a": [A]}, "parked once"
    bench.limits[A] = []
    assert bench.best() is None
    bench.ready.unpark("worker a")
    assert [bench.take(), bench.take(), bench.take()] == ["y", "x", None]


def test_a_group_is_parked_once_though_it_was_listed_twice():
    """Steps that came and went leave old entries of their group behind."""
    bench = Bench()
    bench.add("x", 5)
    bench.add("y", 1)
    assert bench.take() == "y"
    assert bench.best() == "x"
    bench.limits[A] = ["worker a"]
    assert bench.best() is None
    assert bench.ready.parked == {"worker a": [A]}


def test_a_group_without_steps_is_forgotten():
    """What is kept is bounded by what waits, not by what ever waited."""
    bench = Bench()
    for number in range(5):
        bench.add(f"x{number}", 1, CapacityGroup(f"w{number}", ()))
        bench.take()
    assert bench.best() is None
    assert not bench.ready._groups
    assert not bench.ready._headed
    assert not bench.ready._heads


def test_a_group_may_be_parked_under_one_limit_after_another():
    """Room in the first shows that the second is full."""
    bench = Bench()
    bench.add("x", 1)
    bench.limits[A] = ["worker a", "resource r"]
    assert bench.best() is None
    assert bench.ready.parked == {"worker a": [A]}
    bench.limits[A] = ["", "resource r"]
    bench.ready.unpark("worker a")
    assert bench.best() is None
    assert bench.ready.parked == {"resource r": [A]}
    bench.limits[A] = []
    bench.ready.unpark("resource r")
    assert bench.best() == "x"


def test_several_groups_under_one_limit_come_back_together():
    """Each finds its place by its own best step."""
    bench = Bench()
    bench.add("x", 2, A)
    bench.add("y", 1, B)
    bench.limits = {A: ["resource r"], B: ["resource r"]}
    assert bench.best() is None
    assert bench.ready.parked == {"resource r": [B, A]}
    bench.limits.clear()
    bench.ready.unpark("resource r")
    assert [bench.take(), bench.take()] == ["y", "x"]


def test_a_parked_group_whose_steps_are_gone_vanishes():
    """Room for nobody is no error."""
    bench = Bench()
    bench.add("x", 1)
    bench.limits[A] = ["worker a"]
    assert bench.best() is None
    del bench.tickets["x"]
    bench.ready.unpark("worker a")
    assert bench.best() is None
    bench.limits[A] = []
    bench.add("y", 1)
    assert bench.best() == "y"


def test_freeing_what_nobody_waits_for_is_nothing():
    """Most limits free something while nobody is parked under them."""
    bench = Bench()
    bench.ready.unpark("worker a")
    assert bench.best() is None


def test_a_parked_group_costs_nothing_while_it_waits():
    """A thousand steps behind a full limit are not looked at to start one that is free."""
    bench = Bench()
    for number in range(1000):
        bench.add(f"x{number}", number, A)
    bench.add("y", 5000, B)
    bench.limits[A] = ["worker a"]
    bench.best()
    bench.looked = 0
    assert bench.best() == "y"
    assert bench.looked == 1


GROUPS = [CapacityGroup(worker, uses) for worker in "ab" for uses in ((), (("r", 1),), (("r", 2),))]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 5)), max_size=60))
def test_the_order_is_that_of_a_plain_search(script):
    """Against a model that sorts everything each time: parking never changes who is next."""
    capacity = {"worker a": 2, "worker b": 1, "resource r": 2}
    busy = dict.fromkeys(capacity, 0)
    ready, tickets, waiting, running, made = Ready(), {}, {}, [], 0

    def needs(group):
        return [(f"worker {group.worker}", 1), *((f"resource {n}", m) for n, m in group.uses)]

    def full(group):
        return next((limit for limit, n in needs(group) if busy[limit] + n > capacity[limit]), "")

    for verb, value, group_number in script:
        group = GROUPS[group_number]
        if verb <= 2:
            made += 1
            step = f"s{made}"
            key = (float(value), made)
            waiting[step] = (key, group)
            tickets[step] = ready.add(key, group, step)
        elif verb == 3 and waiting:
            step = sorted(waiting)[value % len(waiting)]
            del waiting[step], tickets[step]
        elif verb == 4 and running:
            for limit, amount in needs(running.pop(value % len(running))):
                busy[limit] -= amount
                ready.unpark(limit)
        possible = [(key, step) for step, (key, group) in waiting.items() if not full(group)]
        expected = min(possible)[1] if possible else None
        assert ready.best(Tickets(tickets), full) == expected
        if verb == 5 and expected is not None:
            _, group = waiting.pop(expected)
            del tickets[expected]
            running.append(group)
            for limit, amount in needs(group):
                busy[limit] += amount


def test_a_long_random_script_against_the_model():
    """The same with scripts longer than Hypothesis likes to draw."""
    run = test_the_order_is_that_of_a_plain_search.hypothesis.inner_test
    for seed in range(20):
        rng = random.Random(seed)
        run([(rng.randint(0, 5), rng.randint(0, 9), rng.randint(0, 5)) for _ in range(300)])
