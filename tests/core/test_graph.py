"""The step graph: implied edges, order, tails, cycles, and depth without recursion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.plan import graph

DEEP = 100_000


def test_dependencies_are_declared_or_implied():
    """References, undo and context make edges of their own; a declared one keeps its word."""
    step = {
        "id": "z",
        "depends_on": ["a", {"step": "b", "if": "finished"}, {"step": "c"}],
        "parameters": {"x": "${{ steps.d.data }}", "y": ["${{ steps.b.data.k }}"]},
        "undo": {"parameters": {"x": "${{ steps.z.data.id }}", "y": "${{ steps.e.data }}"}},
        "context": ["f", "a"],
    }
    expected = {"a": False, "b": True, "c": False, "d": False, "e": False, "f": False}
    assert graph.dependencies(step) == expected
    assert list(graph.dependencies(step))[:3] == ["a", "b", "c"]


def test_a_diamond():
    """Order, sinks, ancestors and tails of the smallest graph that has them all."""
    diamond = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["elsewhere"]}
    assert graph.order(diamond) == ["a", "e", "b", "c", "d"]
    assert graph.sinks(diamond) == ["d", "e"]
    assert graph.ancestors(diamond, "d") == {"a", "b", "c"}
    assert graph.tails(diamond, {"a": 1, "b": 5, "c": 2, "d": 1}) == {
        "a": 7,
        "b": 6,
        "c": 3,
        "d": 1,
        "e": 0,
    }
    assert graph.cycles(diamond) == []


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": ["b"], "b": ["a"]}, [["a", "b"]]),
        ({"a": ["b"], "b": ["c"], "c": ["a", "b"], "d": ["a"]}, [["a", "b", "c"]]),
        ({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}, [["a", "b"], ["c", "d"]]),
        ({"a": ["a"]}, []),
        ({"a": ["a", "b"], "b": ["a"]}, [["a", "b"]]),
        ({}, []),
    ],
)
def test_each_knot_is_named_by_one_whole_cycle(edges, expected):
    """The cycle reads in the order of waiting; a step that waits for itself is not one."""
    assert sorted(graph.cycles(edges)) == expected


graphs = st.integers(1, 12).flatmap(
    lambda n: st.fixed_dictionaries(
        {str(i): st.lists(st.integers(0, n).map(str), max_size=3) for i in range(n)}
    )
)


@given(graphs)
def test_a_graph_has_an_order_or_a_cycle(edges):
    """Either every step can be ordered after what it waits for, or a real cycle is shown."""
    edges = {name: [other for other in waits if other != name] for name, waits in edges.items()}
    order = graph.order(edges)
    place = {name: i for i, name in enumerate(order)}
    for name in order:
        assert all(place[other] < place[name] for other in edges[name] if other in edges)
    cycles = graph.cycles(edges)
    assert (len(order) == len(edges)) == (not cycles)
    for cycle in cycles:
        assert len(set(cycle)) == len(cycle) > 1
        for name, other in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            assert other in edges[name]


@pytest.mark.slow
def test_a_very_deep_chain_needs_no_recursion():
    """100,000 steps in a row are ordered, measured and found to be a circle."""
    chain = {str(i): [str(i - 1)] if i else [] for i in range(DEEP)}
    assert graph.order(chain)[-1] == str(DEEP - 1)
    assert graph.tails(chain, dict.fromkeys(chain, 1.0))["0"] == DEEP
    assert len(graph.ancestors(chain, str(DEEP - 1))) == DEEP - 1
    chain["0"] = [str(DEEP - 1)]
    assert len(graph.cycles(chain)[0]) == DEEP


# --- who comes before whom ------------------------------------------------------------------

dags = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        *(st.sets(st.integers(0, i - 1)) if i else st.just(set()) for i in range(count))
    )
)


@given(dags)
def test_order_knows_who_comes_before_whom(waits):
    """The same as looking at all ancestors; and two steps run together if neither is one."""
    edges = {f"s{i}": tuple(f"s{other}" for other in each) for i, each in enumerate(waits)}
    order = graph.StepOrder(edges)
    assert order.complete
    for one in edges:
        for other in edges:
            assert order.before(one, other) == (one in graph.ancestors(edges, other))
            apart = one in graph.ancestors(edges, other) or other in graph.ancestors(edges, one)
            assert order.together(one, other) == (one != other and not apart)


def test_order_gives_up_in_time():
    """Beyond its work it says that it does not know, and never that two run together."""
    edges = {f"s{i}": tuple(f"s{j}" for j in range(max(0, i - 3), i - 1)) for i in range(200)}
    order = graph.StepOrder(edges)
    order.work_left = 0
    answers = {order.before("s0", name) for name in edges}
    assert None in answers
    assert not order.together("s1", "s199") or order.before("s1", "s199") is False


def test_order_leaves_out_what_stands_behind_a_circle():
    """Nothing is said of such steps."""
    order = graph.StepOrder({"a": (), "b": ("c",), "c": ("b",), "d": ("c",), "e": ("a",)})
    assert not order.complete
    assert order.names == ["a", "e"]
    assert order.before("a", "e")
