"""Descriptions of fields: the text below a field in its class, or below a constant in its module.

The OpenAPI document and the generated reference pages are made from them.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

MODULE = ""
"""The name under which the constants of a module are kept."""


def field_texts(kind: type[Any]) -> dict[str, str]:
    """Return the descriptions of the fields of a class and of its bases, by the field's name."""
    return {
        field: text
        for base in reversed(kind.__mro__)
        for field, text in _texts_of(base.__module__).get(base.__name__, {}).items()
    }


def constant_texts(module: str) -> dict[str, str]:
    """Return the descriptions of the constants of an imported module, by the constant's name."""
    return _texts_of(module).get(MODULE, {})


@functools.cache
def _texts_of(module: str) -> dict[str, dict[str, str]]:
    """Return the texts below the fields of a module's classes, by class and field."""
    if module.partition(".")[0] != "leadhand":
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found = {MODULE: dict(_texts_in(tree.body))}
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        found[kind.name] = dict(_texts_in(kind.body))
    return found


def _texts_in(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield each assigned name that has a text below it, with the text."""
    for field, text in itertools.pairwise(body):
        if not isinstance(field, ast.Assign | ast.AnnAssign) or not isinstance(text, ast.Expr):
            continue
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            target = field.targets[0] if isinstance(field, ast.Assign) else field.target
            yield ast.unparse(target), inspect.cleandoc(text.value.value)
