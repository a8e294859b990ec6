"""Patterns of secrets, which are kept out of models' requests and answers.

Known secrets (parameters of the type `secret`, variables a worker declares) are taken out by the
engine, by value. This catches the others, by their form: keys of well-known services, private keys,
tokens, passwords in addresses. It runs over everything an agent's tools give back before a model
reads it, over the arguments of every tool before it is called, and over every result.

Its input may have been written to keep it busy. So each pattern is searched for only where a text
contains its first letters, and no pattern has an unbounded part that is retried: the time grows
with the length of a text, never with its square.
"""

from __future__ import annotations

import re
from typing import Any

MARK = "[secret]"

_FORMS = tuple(
    (letters, re.compile(form))
    for letters, form in (
        (
            ("PRIVATE KEY-----",),
            (
                r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?"
                r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
            ),
        ),
        (("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),  # AWS
        # Anthropic, OpenAI, OpenRouter
        (("sk-",), r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{16,}"),
        (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
        (("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
        (("glpat-",), r"\bglpat-[A-Za-z0-9_-]{16,}"),
        (("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),  # Slack
        (("AIza",), r"\bAIza[0-9A-Za-z_-]{30,}"),  # Google
        (("k_live_", "k_test_"), r"\b[sr]k_(?:live|test)_[0-9A-Za-z]{16,}"),  # Stripe
        (("npm_",), r"\bnpm_[A-Za-z0-9]{30,}"),
        (("pypi-",), r"\bpypi-[A-Za-z0-9_-]{30,}"),
        (("hf_",), r"\bhf_[A-Za-z0-9]{20,}"),
        # JSON web tokens
        (
            ("eyJ",),
            r"\beyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{10,20000}\.[A-Za-z0-9_-]{10,}",
        ),
        (("://",), r"(?<=://)[^\s/:@]{1,100}:[^\s/@]{3,200}(?=@)"),  # user:password@host
    )
)
_WORDS = ("bearer", "key", "secret", "passw", "token", "credential")
_BEARER = re.compile(r"(?i)(bearer[ :])[A-Za-z0-9._~+/=-]{16,}")
_NAMED = re.compile(
    r"""(?i)((?:api[_-]?key|secret|passw(?:or)?d|token|credential)[\w-]{0,20}"""
    r"""\\{0,8}["']?\s*[:=]\s*\\{0,8}["']?)([^\s"',;]{12,}+)"""
)
"""`API_KEY=…`, also in JSON that stands in JSON."""
_LETTER, _DIGIT = re.compile("[a-zA-Z]"), re.compile("[0-9]")


def scrub(text: str) -> str:
    """Return `text` with everything that looks like a secret replaced."""
    for letters, form in _FORMS:
        if any(each in text for each in letters):
            text = form.sub(MARK, text)
    small = text.lower()
    if any(word in small for word in _WORDS):
        text = _NAMED.sub(_named, _BEARER.sub(rf"\1{MARK}", text))
    return text


def _named(found: re.Match[str]) -> str:
    """Without the value, if that has letters and digits: `password: the usual rules` has none."""
    name, value = found.groups()
    hidden = _LETTER.search(value) and _DIGIT.search(value)
    return f"{name}{MARK}" if hidden else found[0]


def scrubbed(value: Any) -> Any:
    """JSON-like data without it."""
    match value:
        case str():
            return scrub(value)
        case dict():
            return {scrub(str(key)): scrubbed(item) for key, item in value.items()}
        case list() | tuple():
            return [scrubbed(item) for item in value]
        case _:
            return value


def finds(value: Any) -> bool:
    """Return whether anything in `value` looks like a secret."""
    return bool(scrubbed(value) != value)
