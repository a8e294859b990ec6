"""Scripts of the page as they are sent: without comments and needless spaces, line for line.

Nothing is renamed and no line moves, so a browser names the line of the source. Texts, templates
and regular expressions are left as they are, except for the indentation of lines inside templates:
the only templates of our scripts that span lines are those of `htm`, which drops it.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)
    |(?P<line>//[^\n]*)
    |(?P<block>/\*.*?\*/)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<regex>/(?![*/])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*)
    |(?P<word>[\w$]+)
    |(?P<sign>[\s\S])""",
    re.VERBOSE | re.DOTALL,
)
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*", re.DOTALL)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_SIGNS = frozenset("{}()[];,:?=<>&|+-*!%^~`")
_BEFORE_REGEX = frozenset((*"(,=:[!&|?{};+>\n", "return", "typeof", "case"))


def script_text(source: str) -> str:
    """Return a script without comments, and without spaces that separate nothing."""
    return _INDENT.sub("", "".join(_Packing(source).parts()))


class _Packing:
    """One pass over a script; braces of `${…}` are counted to find the end of a template."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._last = self._before = "\n"
        self._open: list[int] = []

    def parts(self) -> list[str]:
        """Return the script in parts."""
        found: list[str] = []
        while self._at < len(self._source):
            found.append(self._next())
        return found

    def _next(self) -> str:
        match = _TOKEN.match(self._source, self._at)
        assert match is not None
        kind, text = str(match.lastgroup), match[0]
        if kind == "regex" and self._before not in _BEFORE_REGEX:
            kind, text = "sign", "/"  # a division
        self._at += len(text)
        if kind == "space":
            return self._space()
        if kind in {"line", "block"}:
            return "\n" * text.count("\n")
        self._last = text[-1]
        self._before = text if kind == "word" else self._last
        if kind == "sign":
            return text + self._after(text)
        return text

    def _space(self) -> str:
        before, after = self._last, self._source[self._at : self._at + 1]
        if before == "\n" or after in {"", "\n"}:
            return ""
        both = before in "+-" and after in "+-"  # a + +b
        return " " if both or not ({before, after} & _SIGNS) else ""

    def _after(self, sign: str) -> str:
        """Return the text of a template that a sign opens or goes on with."""
        if sign == "{" and self._open:
            self._open[-1] += 1
        elif sign == "}" and self._open:
            self._open[-1] -= 1
            if self._open[-1] < 0:
                self._open.pop()
                return self._template()
        elif sign == "`":
            return self._template()
        return ""

    def _template(self) -> str:
        """Return a template up to its end, or up to its next `${`."""
        match = _TEMPLATE.match(self._source, self._at)
        assert match is not None
        self._at = match.end() + 1
        text = match[0]
        if self._source[match.end()] == "`":
            self._last = self._before = "`"
            return f"{text}`"
        self._at += 1
        self._open.append(0)
        self._last = self._before = "{"
        return f"{text}${{"
