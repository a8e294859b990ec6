"""What a worker may return, what becomes of it, and what is refused."""

import dataclasses
import datetime as dt
import decimal
import enum
import math
import time
import types
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path, PurePosixPath

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.codec.values import plain


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Shout(str):
    __slots__ = ()

    def __str__(self):
        return "not the text"


@dataclasses.dataclass
class Row:
    name: str
    tags: tuple


class Packed(msgspec.Struct, rename="camel"):
    row_count: int
    inner: Row


class Model:
    def model_dump(self):
        return {"a": (1, 2)}


Pair = namedtuple("Pair", "x y")  # noqa: PYI024 - what workers really return


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        ("é", "é"),
        ((1, (2, 3)), [1, [2, 3]]),
        (Pair(1, 2), [1, 2]),
        ({"a": Colour.RED, Colour.RED: 1}, {"a": "red", "red": 1}),
        (Size.BIG, 3),
        (Shout("x"), "x"),
        (Row("a", (1,)), {"name": "a", "tags": [1]}),
        (Packed(1, Row("a", ())), {"rowCount": 1, "inner": {"name": "a", "tags": []}}),
        (Model(), {"a": [1, 2]}),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "2026-01-02T03:00:00+00:00"),
        (dt.time(3, 4), "03:04:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a/b"), "/a/b"),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
    ],
)
def test_what_has_an_obvious_form_is_converted(value, expected):
    """The result is plain JSON data of exactly the basic types."""
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"rows": [0, 1, 2, {1, 2}]}, "data.rows[3] is a set; JSON holds lists: return sorted"),
        (frozenset(), "data is a frozenset"),
        ({"a": math.nan}, "data.a is nan"),
        ([math.inf], "data[0] is inf"),
        (b"x", "data is a bytes; JSON holds texts"),
        ({"a b": bytearray()}, 'data["a b"] is a bytearray'),
        ({1: 2}, "which is a int; JSON keys are strings"),
        ({"x": {None: 1}}, "data.x"),
        (1j, "data is a complex"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        ({"s": "\ud800"}, "data.s holds half a character"),
        ({"\udfff": 1}, "half a character"),
        (Path("\udc80"), "half a character"),
        (object(), "data is an object"),
        (lambda: 1, "function"),
        (Row, "is the type Row"),
        (decimal.Decimal(1), "return float"),
        (dt.timedelta(1), "total_seconds"),
        ((each for each in ()), "return list"),
        (Row("a", ({1},)), "data.tags[0] is a set"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value, said):
    """The message names the place and a way out."""
    with pytest.raises(ValueError, match=r"^data") as caught:
        plain(value)
    assert said in str(caught.value)


def test_the_place_can_be_named():
    """Other doors than a worker's data say where they are."""
    with pytest.raises(ValueError, match=r"^decision\.notes is a set"):
        plain({"notes": {1}}, place="decision")


def test_circles_are_told_where_they_start():
    """A value that holds itself is named at the outermost turn of the circle."""
    circle: dict = {"a": 1}
    circle["back"] = [circle]
    with pytest.raises(ValueError, match=r"^data\.x(\.back)? holds itself"):
        plain({"x": circle})


def test_deep_values_are_refused():
    """64 levels pass, 65 do not."""
    value: list = []
    for _ in range(63):
        value = [value]
    assert plain(value) == value
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        plain([value])


@pytest.mark.slow
def test_shared_values_cannot_grow_without_end():
    """Thirty lists that each hold the last one twice are two to the thirtieth: refused soon."""
    value: list = []
    for _ in range(30):
        value = [value, value]
    start = time.process_time()
    with pytest.raises(ValueError, match="more than 1,000,000 values"):
        plain(value)
    assert time.process_time() - start < 10


def test_the_result_is_a_copy():
    """What the worker changes afterwards changes nothing."""
    row = [1]
    data = {"rows": row}
    found = plain(data)
    row.append(2)
    data["more"] = 1
    assert found == {"rows": [1]}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=25,
)


@given(values)
def test_json_data_passes_unchanged_and_can_be_stored(value):
    """Plain data is itself, and comes back from its bytes equal."""
    found = plain(value)
    assert repr(found) == repr(value)
    assert repr(msgspec.json.decode(msgspec.json.encode(found))) == repr(value)
