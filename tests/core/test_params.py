"""Parameters of a plan: declarations, defaults, types, and texts from a command line."""

import pytest

from leadhand.core.plan.parameters import bind_params, bind_texts, parse_param

DECLARED = {
    "version": {"type": "string", "description": "what to deploy"},
    "replicas": 3,
    "ratio": {"type": "number", "default": 0.5, "maximum": 1},
    "dry": False,
    "hosts": {"type": "array", "items": {"type": "string"}, "default": []},
    "note": {"type": "string", "required": False},
    "tier": {"enum": ["small", "large"], "default": "small"},
    "labels": {"app": "auth"},
}


def rules(findings):
    return [(each.rule, each.place) for each in findings]


def test_defaults_fill_what_is_not_given():
    """Every parameter has a value: given, default, or null for an optional one."""
    values, findings = bind_params(DECLARED, {"version": "1.10"})
    assert findings == []
    assert values == {
        "version": "1.10",
        "replicas": 3,
        "ratio": 0.5,
        "dry": False,
        "hosts": [],
        "note": None,
        "tier": "small",
        "labels": {"app": "auth"},
    }
    assert bind_params(DECLARED, values) == (values, [])


def test_everything_wrong_is_told_at_once():
    """Missing, wrong and unknown values each give a finding."""
    values, findings = bind_params(
        DECLARED, {"replicas": "3", "ratio": 2, "verison": "x", "tier": "lagre", "hosts": [1]}
    )
    assert rules(findings) == [
        ("param-missing", "params.version"),
        ("param-wrong", "params.replicas"),
        ("param-wrong", "params.ratio"),
        ("param-wrong", "params.hosts[0]"),
        ("param-wrong", "params.tier"),
        ("param-unknown", "params.verison"),
    ]
    assert "version" not in values
    assert 'Did you mean "version"?' in str(findings[-1])


@pytest.mark.parametrize(
    ("text", "declared", "expected"),
    [
        ("1.10", {"type": "string"}, "1.10"),
        ("1.10", None, "1.10"),
        ("1.10", "default", "1.10"),
        ("5", 3, 5),
        ("5", {"type": "number"}, 5),
        ("2.5", 1.0, 2.5),
        ("true", False, True),
        ("No", {"type": "boolean"}, False),
        ('["a"]', [], ["a"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("null", {"type": ["integer", "null"]}, None),
        ("7", {"enum": [7, 8]}, 7),
    ],
)
def test_a_text_is_read_by_its_declared_type(text, declared, expected):
    """The command line gives texts; the declaration says what they are. Nothing is guessed."""
    found = parse_param(text, declared)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("x", 3),
        ("2.5", 3),
        ("NaN", 1.0),
        ("1e999", 1.0),
        ("maybe", True),
        ("[1", []),
        ("{}", []),
        ("[" * 100_000, []),
    ],
)
def test_a_text_of_the_wrong_type_is_refused(text, declared):
    """The message says what it must be."""
    with pytest.raises(ValueError, match="must be"):
        parse_param(text, declared)


def test_a_default_is_enough_even_where_a_value_is_required():
    """`required` asks for a value, and a default is one."""
    assert bind_params({"n": {"default": 1, "required": True}}, {}) == ({"n": 1}, [])


def test_texts_are_bound_with_all_findings():
    """A text that cannot be read is one finding, not also a missing value."""
    declared = {"replicas": {"type": "integer"}} | {
        k: DECLARED[k] for k in ("version", "dry", "hosts")
    }
    values, findings = bind_texts(declared, {"replicas": "x", "dry": "yes", "hosts": '["a"]'})
    assert rules(findings) == [
        ("param-wrong", "params.replicas"),
        ("param-missing", "params.version"),
    ]
    assert values["dry"] is True
    assert values["hosts"] == ["a"]
