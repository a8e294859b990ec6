"""The language of success criteria: what may be written, and that nothing else may."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.plan.expressions import FUNCTIONS, NAMES, is_check_name, parse


@pytest.mark.parametrize(
    "text",
    [
        "data.failed == 0",
        "len(data.rows) > 3 and not error",
        "data['a key'][0] in [1, 2]",
        "-1 <= data.y < 5",
        "data.x % 2 == 0 or status == 'ok'",
        "data.a is null",
        "max(data.a, 3) // 2 == round(cost * 1.5)",
        "true",
    ],
)
def test_what_is_allowed(text):
    """Comparisons, logic, arithmetic, access and the listed functions can be written."""
    assert isinstance(parse(text), ast.Expression)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__import__('os')", "cannot be called"),
        ("data.__class__", "underscore"),
        ("data._x", "underscore"),
        ("2 ** 9", "power"),
        ("[x for x in data]", "comprehension"),
        ("lambda: 1", "lambda"),
        ("data.f()", "no methods"),
        ("len(data)()", "no methods"),
        ("f'{data}'", "f-string"),
        ("len(data, key=1)", "cannot be called"),
        ("len(*data)", "star"),
        ("len == 1", "not a known name"),
        ("foo == 1", "not a known name"),
        ("a b", "not an expression"),
        ("", "not an expression"),
        ("\x00", "not an expression"),
        ("x = 1", "not an expression"),
        ("(data := 3)", "assignment"),
        ("1 if data else 2", "an if"),
        ("{**data}", "an object"),
        ("b'x' == data", "bytes"),
        ("1j", "complex"),
        ("data[1:2]", "slice"),
        ("1 << 9", "LShift"),
        ("data" + ".a" * 900, "too complicated"),
        ("not " * 490 + "1", "too complicated"),
        ("not " * 60 + "true", "too complicated"),
        ("[" + "1, " * 500 + "1]", "too complicated"),
        ("-" * 1900 + "1", "too complicated"),
        ("(" * 300 + "1" + ")" * 300, "not an expression"),
        ("1 + " * 600 + "1", "at most 2000"),
    ],
)
def test_what_is_not_allowed(text, said):
    """Everything else is refused with a reason, however it is nested."""
    with pytest.raises(ValueError, match=r"^.+$") as caught:
        parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("all_tests_pass", True), (" fine ", True), ("data.x", False), ("a-b", False), ("é", False)],
)
def test_a_bare_word_is_the_name_of_a_check(text, is_name):
    """Everything else is an expression."""
    assert is_check_name(text) is is_name


@given(st.text(alphabet="data.xl en()[]'\"=<>!+-*/%0_:,{}fb\\", max_size=30))
def test_whatever_parses_speaks_only_of_allowed_names(text):
    """No accepted tree holds a foreign name, a hidden attribute or a method call."""
    try:
        tree = parse(text)
    except ValueError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            assert node.id in NAMES | FUNCTIONS
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
