"""Names of contents."""

from dataclasses import MISSING, fields

from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.canonical import canonical_step
from leadhand.core.plan.model import Step


def test_canonical_ignores_the_order_of_keys():
    """Equal values have equal bytes, however they were written."""
    assert canonical({"b": [1, {"y": 1, "x": 2}], "a": 1}) == b'{"a":1,"b":[1,{"x":2,"y":1}]}'


@given(st.lists(st.binary(), max_size=4), st.lists(st.binary(), max_size=4))
def test_parts_cannot_run_into_each_other(one, other):
    """Different parts have different names, even if their bytes together are the same."""
    assert (digest(*one) == digest(*other)) == (one == other)


def test_text_counts_as_its_bytes():
    """A text and its UTF-8 have one name."""
    assert digest("é") == digest("é".encode())
    assert digest("ab", "c") != digest("a", "bc")


def test_a_step_that_repeats_a_default_is_the_same_step():
    """Every field that has a default, so that an approval of one form holds for the other."""
    plain = {"id": "a", "worker": "w"}
    for field in fields(Step):
        make = field.default_factory
        default = field.default if make is MISSING else make()
        if default is MISSING or default is None:  # null is no value of a plan
            continue
        value = list(default) if isinstance(default, tuple) else default
        assert canonical_step({**plain, field.name: value}) == canonical_step(plain), field.name
