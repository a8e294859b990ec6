"""What a signature says of needs and gives, where the decorator says nothing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NewType

import pytest

from leadhand import Context, Report, worker
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.planners.goal.operators import operators_of
from leadhand.workers.declared import declared_workers
from leadhand.workers.registry import Registry
from tests.planners.goal.judge import Does, catalog_of


@dataclass
class PriceTable:
    """A class of the user's own."""

    rows: list[int]


@dataclass
class HTTPPage:
    """One with an abbreviation in its name."""

    text: str


RawText = NewType("RawText", str)


def offer(function):
    """What the worker offers."""
    (made,) = Registry([function])
    return made.spec.offers[""]


def returning(kind):
    """A worker with this return annotation."""

    def made(): ...

    made.__annotations__["return"] = kind
    return worker(made)


@pytest.mark.parametrize(
    ("kind", "gives"),
    [
        (PriceTable, ("price_table",)),
        (HTTPPage, ("http_page",)),
        (RawText, ("raw_text",)),
        (PriceTable | None, ("price_table",)),
        (Annotated[PriceTable, "checked"], ("price_table",)),
        (PriceTable | HTTPPage, ()),
        (list[PriceTable], ()),
        (dict, ()),
        (str, ()),
        (Path, ()),
        (Any, ()),
        (Report, ()),
        (None, ()),
    ],
)
def test_what_a_function_gives_is_the_class_it_returns(kind, gives):
    """Only a class of the user's own says enough."""
    assert offer(returning(kind)).gives == gives


def test_what_a_function_needs_are_its_parameters():
    """Those without a default; the context is none."""

    @worker
    def made(topic: str, context: Context, limit: int = 3) -> PriceTable: ...

    assert offer(made).needs == ("topic",)


def test_what_is_said_counts():
    """Also when nothing is said on purpose."""

    @worker(needs=(), gives="raw", drops="old:raw")
    def made(topic: str) -> PriceTable: ...

    assert (offer(made).needs, offer(made).gives) == ((), ("raw",))
    assert offer(made).drops == ("old:raw",)


def test_commands_need_their_placeholders():
    """As functions need their parameters."""
    tables = {"build": {"command": ["make", "{target}"], "gives": ["built:it"]}}
    (made,) = declared_workers(tables)
    assert made.spec.offers[""].needs == ("target",)


def test_every_action_is_an_operator():
    """What gives nothing is none."""
    found = operators_of(
        catalog_of([Does("stack:a.b", (), ("on:a:b",)), Does("stack:b.a", (), ("on:b:a",))])
    )
    assert list(found.by_name) == ["stack:a.b", "stack:b.a"]
    assert operators_of(catalog_of([Does("log")])).by_name == {}


def test_one_need_and_one_parameter_left_over_belong_together():
    """`needs="prices"` fills `items`; what is required and not named is needed as well."""
    schema = {"type": "object", "properties": {"items": {}}, "required": ["items"]}
    spec = WorkerSpec(
        name="w", offers={"": Offer(parameters=schema, needs=("prices",), gives=("sum",))}
    )
    found = operators_of(type(catalog_of([]))([spec])).by_name["w"]
    assert (found.takes, found.needs) == ({"items": "prices"}, ("prices",))
    both = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    spec = WorkerSpec(
        name="w", offers={"": Offer(parameters=both, needs=("prices",), gives=("sum",))}
    )
    found = operators_of(type(catalog_of([]))([spec])).by_name["w"]
    assert found.needs == ("a", "b", "prices")
