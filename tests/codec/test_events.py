"""Events to bytes and back: every class, old versions, newer ones, damage."""

import typing
from functools import partial

import msgspec
import pytest

from leadhand.codec import events as codec
from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.host_events import KeptRun
from leadhand.errors import StoreCorrupt, StoreError
from tests.core.driver import started

SAMPLES = {
    str: "text é",
    int: 7,
    float: 0.5,
    bool: True,
    ev.Policy: ev.Policy(budget=3.0, resources={"gpu": 2}),
}


def sample(hint):
    """A value of a type that differs from every default."""
    if hint in SAMPLES:
        return SAMPLES[hint]
    if hint is typing.Any:
        return {"b": [1, 2.5, None], "a": "x"}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return [sample(args[0])]
    if origin is tuple:
        return (sample(args[0]),)
    if origin is dict:
        return {"z": sample(args[1]), "a": sample(args[1])}
    if args:  # one of several types, or none
        return sample(next(arg for arg in args if arg is not type(None)))
    if hint is WorkerSpec:
        offer = Offer(parameters={"type": "object"}, checks=("fine",), effects=("x",))
        return WorkerSpec(name="w", offers={"": offer})
    if hint is ev.GuestProcess:
        return ev.GuestProcess(7, 8, "b", "/tmp", "python")
    if hint is ev.StepComment:
        return ev.StepComment("c1", "x", "a")
    if hint is ev.CommentAnswer:
        return ev.CommentAnswer("c1", "addressed", "x")
    if hint is KeptRun:
        return KeptRun("k", 1, 2, "h")
    raise AssertionError(f"no sample for {hint}")


def full(cls):
    hints = typing.get_type_hints(cls)
    return cls(**{name: sample(hints[name]) for name in cls.__struct_fields__})


@pytest.mark.parametrize("cls", codec.EVENTS, ids=lambda cls: cls.__name__)
def test_every_event_comes_back_equal(cls, monkeypatch):
    """With every field set, the bytes give the same event, and the same bytes again."""
    monkeypatch.setattr(codec, "DECIDE_VERSION", SAMPLES[int])
    event = full(cls)
    body = codec.encode(event)
    again = codec.decode(ev.EVENT_VERSION, body)
    assert type(again) is cls
    assert again == event
    assert codec.encode(again) == body
    assert msgspec.json.decode(body)["type"] == cls.__name__


def test_a_step_is_stored_as_its_author_wrote_it():
    """Keys keep their order in the log."""
    step = {"worker": "w", "id": "a", "parameters": {"z": 1, "a": 2}}
    event = ev.RevisionProposed(number=1, author="x", base="", hash="h", add=[step])
    again = codec.decode(ev.EVENT_VERSION, codec.encode(event))
    assert isinstance(again, ev.RevisionProposed)
    assert list(again.add[0]) == ["worker", "id", "parameters"]
    assert list(again.add[0]["parameters"]) == ["z", "a"]


def test_old_events_are_lifted_version_by_version(monkeypatch):
    """Each upcaster is applied once, in order, to the document."""
    monkeypatch.setattr(codec, "EVENT_VERSION", 3)
    monkeypatch.setattr(
        codec,
        "UPCASTERS",
        {
            1: lambda doc: doc | {"actor": doc.pop("who")},
            2: lambda doc: doc | {"actor": doc["actor"].upper()},
        },
    )
    assert codec.decode(1, b'{"type":"RunResumed","who":"ann"}') == ev.RunResumed("ANN")
    assert codec.decode(2, b'{"type":"RunResumed","actor":"ann"}') == ev.RunResumed("ANN")
    assert codec.decode(3, b'{"type":"RunResumed","actor":"ann"}') == ev.RunResumed("ann")


def test_how_the_next_version_of_decisions_comes(monkeypatch):
    """A new run says its number; one that says none is of the first, and keeps its branch."""
    first = codec.encode(started())
    assert b"decide_version" not in first
    second = codec.encode(started(decide_version=2))
    for read in (partial(codec.decode, 1), lambda body: codec.decode_all([(1, body)])):
        with pytest.raises(StoreError, match=r"newer Leadhand \(decisions 2.*upgrade"):
            read(second)
    monkeypatch.setattr(codec, "DECIDE_VERSION", 2)
    found = codec.decode_all([(1, first), (1, second)])
    assert [each.decide_version for each in found] == [1, 2]


def test_every_older_version_can_be_lifted():
    """There is an upcaster from each version that was ever written."""
    assert set(codec.UPCASTERS) == set(range(1, ev.EVENT_VERSION))


def test_newer_logs_ask_for_an_upgrade():
    """A newer version, or an event of a newer program, is not taken for damage."""
    body = codec.encode(ev.RunResumed("ann"))
    with pytest.raises(StoreError, match="newer Leadhand") as caught:
        codec.decode(ev.EVENT_VERSION + 1, body)
    assert "upgrade" in str(caught.value)
    with pytest.raises(StoreError, match=r'"RunTeleported".*upgrade') as caught:
        codec.decode(ev.EVENT_VERSION, b'{"type":"RunTeleported"}')
    assert not isinstance(caught.value, StoreCorrupt)
    with pytest.raises(StoreError, match="no way to read"):
        codec.decode(0, body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"{}",
        b"\xff",
        b'{"type":5}',
        b'{"type":"RunResumed"}',
        b'{"type":"RunResumed","actor":5}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_damage_is_damage(body):
    """Bytes that are no event at all are a corrupt log."""
    with pytest.raises(StoreCorrupt):
        codec.decode(ev.EVENT_VERSION, body)
