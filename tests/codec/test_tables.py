"""Tables read by schemas: every mistake is found, each with its place and what would be right."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from leadhand.codec.tables import (
    Count,
    Misplaced,
    Number,
    Seconds,
    TableError,
    TableSchema,
    Text,
    Texts,
    read,
    reader,
)


def even(value):
    if isinstance(value, list):
        raise Misplaced((len(value) - 1,), "is one too many")
    if value % 2:
        raise ValueError("must be even")
    return value


EVEN = reader(even, "an even number")


class Inner(TableSchema, kw_only=True):
    name: Text
    level: Literal["low", "high"] = "low"

    def __post_init__(self):
        if self.name == self.level:
            raise ValueError("is called after its level")


class Outer(TableSchema, kw_only=True):
    count: Count = 1
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    cost: Number | None = None
    texts: Texts = ()
    time: Seconds = 0.0
    even: EVEN = 0
    inner: dict[str, Inner] = msgspec.field(default_factory=dict)
    port: Annotated[int, Meta(lt=10, description="a port")] = 1


def mistakes(**values):
    with pytest.raises(TableError) as caught:
        read(values, Outer)
    return [(each.place, each.what) for each in caught.value.mistakes]


def test_values_are_read_by_their_types():
    """Functions of reader types give plain values."""
    found = read({"texts": "one", "time": "2 minutes", "inner": {"a": {"name": "x"}}}, Outer)
    assert (found.texts, found.time, found.inner["a"].name) == (("one",), 120.0, "x")
    assert type(found.time) is float


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count": 0}, [("count", "must be a whole number from 1")]),
        ({"count": True}, [("count", "must be a whole number from 1")]),
        ({"share": 2}, [("share", "must be a number from 0 to 1")]),
        ({"cost": -1}, [("cost", "must be a number that is not negative")]),
        ({"texts": [1]}, [("texts", "must be a list of texts")]),
        ({"even": 3}, [("even", "must be even")]),
        ({"even": [1, 2]}, [("even[1]", "is one too many")]),
        ({"port": 10}, [("port", "must be a port")]),
        ({"cuont": 1}, [("cuont", "is not known; did you mean count?")]),
        ({"inner": {"a": {"name": " "}}}, [("inner.a.name", "must be a text that is not empty")]),
        (
            {"inner": {"a": {"nmae": "x"}}},
            [
                ("inner.a.nmae", "is not known; did you mean name?"),
                ("inner.a.name", "is missing; it must be a text that is not empty"),
            ],
        ),
        (
            {"inner": {"a": {"name": "x", "level": "mid"}}},
            [("inner.a.level", "must be one of low, high")],
        ),
        ({"inner": {"a": {"name": "low"}}}, [("inner.a", "is called after its level")]),
        ({"inner": 3}, [("inner", "must be a table, each value a table")]),
        (
            {"count": 0, "even": 3},
            [
                ("count", "must be a whole number from 1"),
                ("even", "must be even"),
            ],
        ),
    ],
)
def test_every_mistake_is_named_with_its_place(values, said):
    """However deep it is."""
    assert mistakes(**values) == said
