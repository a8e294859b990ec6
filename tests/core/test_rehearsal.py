"""The rehearsal: which of the steps that compete should start first."""

from heapq import heappop, heappush

from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.plan.graph import tails
from leadhand.core.policy import Policy
from leadhand.core.state import rehearsal


def urgency(docs, resources, limits=None, **policy):
    """Urgencies of some steps: (id, seconds, uses, waits for)."""
    graph = {ident: after for ident, _, _, after in docs}
    steps = [{"id": ident, "worker": "w", "uses": uses} for ident, _, uses, _ in docs]
    est = {ident: seconds for ident, seconds, _, _ in docs}
    rules = Policy(resources=resources, **policy)
    return rehearsal.urgency(steps, graph, est, rules, (limits or {}).get)


def carried_out(docs, resources, order):
    """How long it takes, whoever is first in `order` first: a plain loop of its own."""
    free, done, running, now = dict(resources), set(), [], 0
    left = sorted(docs, key=lambda doc: -order[doc[0]])
    while left or running:
        for doc in list(left):
            ident, seconds, uses, after = doc
            fits = all(free[name] >= amount for name, amount in uses.items())
            if fits and done.issuperset(after):
                left.remove(doc)
                for name, amount in uses.items():
                    free[name] -= amount
                heappush(running, (now + seconds, ident, uses))
        now = running[0][0]
        while running and running[0][0] == now:
            _, ident, uses = heappop(running)
            done.add(ident)
            for name, amount in uses.items():
                free[name] += amount
    return now


def tails_of(docs):
    """The critical path alone."""
    return tails({i: after for i, _, _, after in docs}, {i: s for i, s, _, _ in docs})


CROWDED = [
    ("a", 5, {"pool": 1}, []),
    ("b", 4, {"pool": 2}, []),
    ("c", 3, {"pool": 1}, []),
    ("d", 3, {"pool": 2}, ["c"]),
]


def test_with_room_for_all_the_tails_decide():
    """Nobody competes: the critical path first, and nothing is rehearsed."""
    assert urgency(CROWDED, {"pool": 6}) == tails_of(CROWDED)


def test_where_steps_compete_a_better_order_is_found():
    """By tail it takes longer: the rehearsal notices before anything runs."""
    found = urgency(CROWDED, {"pool": 3})
    by_tail = carried_out(CROWDED, {"pool": 3}, tails_of(CROWDED))
    assert carried_out(CROWDED, {"pool": 3}, found) < by_tail


def test_a_worker_and_the_run_are_limits_too():
    """One at a time: the longest rest first, whichever limit it is."""
    docs = [("a", 1, {}, []), ("b", 1, {}, []), ("c", 9, {}, ["b"])]
    for found in (
        urgency(docs, {}, {"w": 1}),
        urgency(docs, {}, max_concurrency=1),
    ):
        assert found["b"] > found["a"]


def test_who_wants_more_than_there_is_stops_nothing():
    """Such a step is refused elsewhere; here it has everything to itself."""
    docs = [("a", 2, {"pool": 9}, []), ("b", 3, {"pool": 1}, ["a"])]
    assert urgency(docs, {"pool": 1}) == {"a": 5.0, "b": 3.0}


def test_large_plans_go_by_their_tails(monkeypatch):
    """So do those that take too many looks."""
    monkeypatch.setattr(rehearsal, "STEPS_MAX", 3)
    assert urgency(CROWDED, {"pool": 3}) == tails_of(CROWDED)
    monkeypatch.setattr(rehearsal, "STEPS_MAX", 4)
    monkeypatch.setattr(rehearsal, "LOOKS_MAX", 3)
    assert urgency(CROWDED, {"pool": 3}) == tails_of(CROWDED)


@st.composite
def plans(draw):
    """Steps that wait for earlier ones and share two pools."""
    found = []
    for i in range(draw(st.integers(2, 10))):
        uses = draw(st.dictionaries(st.sampled_from("pq"), st.integers(1, 3), max_size=2))
        before = [name for name, *_ in found]
        after = draw(st.lists(st.sampled_from(before), unique=True, max_size=2)) if before else []
        found.append((f"s{i:02}", draw(st.integers(1, 9)), uses, after))
    return found


@given(plans())
def test_it_is_never_longer_than_by_tail(docs):
    """As estimated: the order that is taken does at least as well as the critical path."""
    room = {"p": 3, "q": 4}
    found = urgency(docs, room)
    assert found.keys() == {doc[0] for doc in docs}
    assert found == urgency(docs, room)
    ours, plain = (carried_out(docs, room, order) for order in (found, tails_of(docs)))
    assert ours <= plain
