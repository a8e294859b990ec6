r"""HTML pages from Jinja2 templates, in which text stays text.

Whatever a template prints is escaped (autoescape), and characters that hide or turn round what
stands beside them are shown as `\u....`: both hold without a word in the template. A name that is
not given is an error (StrictUndefined). Jinja2 is imported with the first page.
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

    Raises jinja2.UndefinedError where the template names what `values` does not hold.
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
    """Return a text with its hidden characters shown; anything else, markup too, as it is."""
    if type(value) is not str or (value.isascii() and value.isprintable()):
        return value
    return "".join(map(_shown, escape_deceptive(value)))


def _shown(char: str) -> str:
    if char in "\n\t" or unicodedata.category(char) not in _HIDDEN:
        return char
    return f"\\u{ord(char):04x}"
