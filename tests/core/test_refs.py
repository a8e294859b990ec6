"""References: typed substitution, escapes, and what is said when one has no value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.hashing import canonical
from leadhand.core.plan.references import DEPTH_MAX, MARK, Artifact, Unresolved, find, resolve

DATA = {
    "x": [1, {"y": "z"}],
    "n": 3,
    "f": 1.5,
    "t": True,
    "s": "${{ params.p }}",
    "a key": "spaced",
    "o": {},
    "nothing": None,
    "0": "zero",
}


def lookup(ref):
    if ref.kind == "params":
        return {"p": "P", "q": {"host": ["h0"]}}[ref.name]
    if ref.name == "big":
        return Artifact("sha256:1")
    if ref.name not in ("a", "a.b"):
        raise LookupError(f"there is no step {ref.name}")
    return DATA


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${{ steps.a.data }}", DATA),
        ("${{steps.a.data.x}}", DATA["x"]),
        ("${{ steps.a.data.x[1].y }}", "z"),
        ("${{ steps.a.b.data.n }}", 3),
        ('${{ steps.a.data["a key"] }}', "spaced"),
        ("${{ steps.a.data['a key'] }}", "spaced"),
        ("${{ steps.a.data.0 }}", "zero"),
        ("${{ steps.a.data.nothing }}", None),
        ("${{ params.p }}", "P"),
        ("${{ params.q.host[0] }}", "h0"),
        ("v${{ steps.a.data.n }}", "v3"),
        ("${{ steps.a.data.f }}/${{ steps.a.data.t }}", "1.5/true"),
        (" ${{ steps.a.data.n }}", " 3"),
        ("$${{ params.p }}", "${{ params.p }}"),
        ("$${{ and ${{ params.p }}", "${{ and P"),
        ("no reference $ { {", "no reference $ { {"),
        ("${{ steps.big.data.rows[2] }}", Artifact("sha256:1", ("rows", 2))),
    ],
)
def test_a_reference_becomes_its_value(text, expected):
    """Alone it keeps its type, in a text it becomes JSON's spelling, escaped it stays."""
    assert resolve(text, lookup) == expected
    assert type(resolve(text, lookup)) is type(expected)


def test_what_is_put_in_is_never_scanned_again():
    """A result that looks like a reference stays text, alone and inside a text."""
    assert resolve("${{ steps.a.data.s }}", lookup) == "${{ params.p }}"
    assert resolve("<${{ steps.a.data.s }}>", lookup) == "<${{ params.p }}>"
    nested = resolve({"k": "${{ steps.a.data }}"}, lookup)
    assert nested["k"]["s"] == "${{ params.p }}"


def test_the_template_is_left_alone():
    """What was approved is what is stored: resolving fills a copy."""
    template = {"k": ["${{ params.p }}", {"n": "${{ steps.a.data.n }}"}], "same": [1]}
    filled = resolve(template, lookup)
    assert filled == {"k": ["P", {"n": 3}], "same": [1]}
    assert template == {"k": ["${{ params.p }}", {"n": "${{ steps.a.data.n }}"}], "same": [1]}
    assert filled["same"] is template["same"]


@pytest.mark.parametrize(
    ("value", "place", "said"),
    [
        ("${{ steps.b.data }}", "", "there is no step b"),
        ("${{ steps.a.data.q }}", "", "steps.a.data has no key 'q'; it has keys: x, n"),
        ({"k": ["ok", "${{ steps.a.data.x[9] }}"]}, "k[1]", "is a list of 2"),
        ("${{ steps.a.data.x[2] }}", "", "is a list of 2"),
        ("${{ steps.a.data.x.y }}", "", "is a list of 2"),
        ("${{ steps.a.data.n[0] }}", "", "is a number"),
        ({"a": {"odd key": ["${{ steps.a.data.n.m }}"]}}, 'a["odd key"][0]', "is a number"),
        ("v ${{ steps.a.data.x }}", "", "inside a text only"),
        ("v ${{ steps.a.data.o }}", "", "inside a text only"),
        ("v ${{ steps.a.data.nothing }}", "", "is null; inside a text only"),
        ("v ${{ steps.big.data }}", "", "stored apart"),
        ("${{ foo }}", "", "write steps.ID.data.path"),
        ("${{ steps.a.status }}", "", "comes .data"),
        ("${{ steps.a.data..x }}", "", "not a way into data"),
        ("${{ steps.a.data.x", "", 'no "}}"'),
        ("${{ params. }}", "", "comes the name"),
        ("${{ ${{ params.p }} }}", "", "not a reference"),
        ("${{ steps.a.data." + "x" * 2000 + " }}", "", "too long"),
    ],
)
def test_what_has_no_value_says_what_is_there(value, place, said):
    """Unresolved names the place, the reference and what stands there instead."""
    with pytest.raises(Unresolved) as caught:
        resolve(value, lookup)
    assert caught.value.place == place
    assert said in caught.value.message


def test_find_lists_every_reference_in_order():
    """Places, kinds and wholeness are told; malformed ones and keys carry a problem."""
    value = {
        "a": ["${{ params.x }}", "b ${{ steps.a.b.data.c[1] }}, ${{"],
        "c": "$${{ no }}",
        "${{ params.k }}": 1,
    }
    found = [
        (ref.place, ref.kind, ref.name, ref.path, ref.whole, bool(ref.problem))
        for ref in find(value)
    ]
    assert sorted(found) == sorted(
        [
            ("a[0]", "params", "x", (), True, False),
            ("a[1]", "steps", "a.b", ("c", 1), False, False),
            ("a[1]", "", "", (), False, True),
            ("", "", "", (), False, True),
        ]
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_values_without_references_come_back_themselves(value):
    """Nothing is copied and nothing is changed where there is no mark."""
    if MARK.encode() not in canonical(value):
        assert resolve(value, lookup) is value
        assert find(value) == []


@given(st.text(alphabet="${}. abstepdra[]0\"'", max_size=60))
def test_no_text_does_anything_but_resolve_or_say_why(text):
    """`find` and `resolve` agree: a problem in one is an error in the other."""
    problems = [ref for ref in find(text) if ref.problem]
    try:
        resolve(text, lookup)
    except (Unresolved, KeyError):
        return
    assert not problems


def test_endless_nesting_is_refused():
    """A value nested without end is an error, not a crash."""
    value: list = []
    for _ in range(DEPTH_MAX * 50):
        value = [value]
    with pytest.raises(Unresolved, match="nested"):
        resolve(value, lookup)
    assert any(ref.problem for ref in find(value))


def test_an_artifact_has_one_spelling():
    """The placeholder is written as an object that says what it is, so that it can be hashed."""
    written = canonical({"k": Artifact("sha256:1", ("rows", 2))})
    assert written == b'{"k":{"$artifact":"sha256:1","path":["rows",2]}}'
