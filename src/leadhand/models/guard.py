"""What looks like a secret goes neither to a model nor out of one: fixed patterns, no judgement.

Known secrets (parameters of the type `secret`, variables a worker declares) are taken out by the
engine, by value. This catches the others, by their form: keys of well-known services, private
keys, tokens, passwords in addresses. It runs over everything an agent's tools give back before a
model reads it, over the arguments of every tool before it is called, and over every result.
"""

from __future__ import annotations

import re
from typing import Any

MARK = "[secret]"

_FORMS = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                                # AWS
    | \bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{16,}                   # Anthropic, OpenAI, OpenRouter
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}                             # Slack
    | \bAIza[0-9A-Za-z_-]{30,}                                     # Google
    | \b[sr]k_(?:live|test)_[0-9A-Za-z]{16,}                       # Stripe
    | \bnpm_[A-Za-z0-9]{30,} | \bpypi-[A-Za-z0-9_-]{30,} | \bhf_[A-Za-z0-9]{20,}
    | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}   # JSON web tokens
    | (?<=://)[^\s/:@]{1,100}:[^\s/@]{3,200}(?=@)                  # user:password@host
    | (?i:(?<=bearer\ )|(?<=bearer:))[A-Za-z0-9._~+/=-]{16,}
    """,
    re.VERBOSE,
)
_NAMED = re.compile(
    r"""(?i)((?:api[_-]?key|secret|passw(?:or)?d|token|credential)[\w-]{0,20}["']?\s*[:=]\s*["']?)"""
    r"""(?=[^\s"',;]*[0-9])(?=[^\s"',;]*[a-zA-Z])[^\s"',;]{12,200}"""
)
"""`API_KEY=…` with a value of letters and digits."""


def scrub(text: str) -> str:
    """A text without what looks like a secret."""
    return _NAMED.sub(rf"\1{MARK}", _FORMS.sub(MARK, text))


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
    """Whether something in it looks like a secret."""
    return bool(scrubbed(value) != value)
