r"""HTML pages from Jinja2 templates, in which text stays text.

All output of a template is escaped (autoescape), and characters that hide or reverse other text are
shown as `\u....`, without any code in the template. A missing name is an error (StrictUndefined).
Jinja2 is imported with the first page.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

from leadhand.core.visible import escape_deceptive

if TYPE_CHECKING:
    from jinja2 import Environment

TEXT_MAX = 4000
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def render(package: str, template: str, values: dict[str, Any]) -> str:
    """Return a template of `package` (a folder `templates` beside its modules) with `values`.

    Raise `jinja2.UndefinedError` if the template names a missing value.
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=PackageLoader(package),
        finalize=_visible,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["short"] = short
    return made


def short(value: object, limit: int = TEXT_MAX) -> str:
    """Return a value as text of at most `limit` characters."""
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _visible(value: Any) -> Any:
    """Return a text with its hidden characters shown; any other value, markup too, unchanged."""
    if type(value) is not str or (value.isascii() and value.isprintable()):
        return value
    return "".join(map(_shown, escape_deceptive(value)))


def _shown(char: str) -> str:
    if char in "\n\t" or unicodedata.category(char) not in _HIDDEN:
        return char
    return f"\\u{ord(char):04x}"
