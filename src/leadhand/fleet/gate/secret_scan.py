"""Secrets in the lines that a change adds, found offline by a maintained detector.

`detect-secrets` (Apache-2.0, the extra `fleet`) knows the tokens of providers, private keys and
credentials in addresses. Its searches by entropy and its verification over the network stay off:
the first finds every digest and lock file, the second would send what it found to strangers.
Without the extra a few patterns of our own are looked for, and `leadhand doctor` says so.

Only what a change adds is looked at. A finding names file, line and kind, and never the secret.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

PLUGINS = (
    *("ArtifactoryDetector", "AWSKeyDetector", "AzureStorageKeyDetector", "BasicAuthDetector"),
    *("CloudantDetector", "DiscordBotTokenDetector", "GitHubTokenDetector", "GitLabTokenDetector"),
    *("IbmCloudIamDetector", "IbmCosHmacDetector", "JwtTokenDetector", "MailchimpDetector"),
    *("NpmDetector", "OpenAIDetector", "PrivateKeyDetector", "PypiTokenDetector"),
    *("SendGridDetector", "SlackDetector", "SoftlayerDetector", "SquareOAuthDetector"),
    *("StripeDetector", "TelegramBotTokenDetector", "TwilioKeyDetector"),
)
OWN = {
    "Private Key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "AWS Access Key": r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[0-9A-Z]{16}\b",
    "GitHub Token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})\b",
    "Anthropic Key": r"\bsk-ant-[A-Za-z0-9_-]{20,}",
    "Google API Key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "Slack Token": r"\bxox[abprs]-[0-9A-Za-z-]{10,}",
}
"""What the detector does not know, or what is looked for without it."""
LINE_CHARS = 2000
OVERLAP_CHARS = 200
"""Longer lines are looked at in pieces, each with the end of the one before."""
ENCODED_MAX = 50
WHOLE_CHARS = 1 << 20
"""What a file adds beyond this is looked at with the patterns of our own only."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
FINDINGS_MAX = 20
_OWN = {kind: re.compile(pattern) for kind, pattern in OWN.items()}


def has_detector() -> bool:
    """Return whether the detector is installed."""
    return find_spec("detect_secrets") is not None


def secrets_in(path: str, before: str, after: str) -> list[str]:
    """Return the secrets that were added to a file: `path:line: kind`, never the value."""
    known = set(before.splitlines())
    found: dict[tuple[int, str], None] = {}
    seen = 0
    for number, line in enumerate(after.splitlines(), 1):
        if line in known or not line.strip():
            continue
        known.add(line)  # the same line again says nothing new
        for at in range(0, len(line), LINE_CHARS):
            text = line[max(0, at - OVERLAP_CHARS) : at + LINE_CHARS]
            more = (*_detected(path, text), *_encoded(text)) if seen < WHOLE_CHARS else ()
            seen += len(text)
            for kind in (*_own(text), *more):
                found[number, kind] = None
        if len(found) >= FINDINGS_MAX:
            break
    return [f"{path}:{number}: a secret ({kind})" for number, kind in found]


def _own(line: str) -> list[str]:
    return [kind for kind, pattern in _OWN.items() if pattern.search(line)]


def _encoded(line: str) -> list[str]:
    """Return the secrets in base64 texts of a line."""
    found: list[str] = []
    for match in list(_BASE64.finditer(line))[:ENCODED_MAX]:
        body = match[0].rstrip("=").translate(str.maketrans("-_", "+/"))
        body = body[: len(body) - (len(body) % 4 == 1)]
        text = base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")
        if "\ufffd" not in text[:20]:
            found += [kind for each in text.splitlines() for kind in _own(each)]
    return found


def text_of(data: bytes) -> str:
    """Return the text of a file in any encoding."""
    for mark, name in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data.decode(name, "replace")
    if b"\0" in data[:4000]:  # every second byte, or three of four
        return data.replace(b"\0", b"").decode("utf-8", "replace")
    return data.decode("utf-8", "replace")


def _detected(path: str, line: str) -> list[str]:
    found = []
    for plugin in _plugins():
        secrets = plugin.analyze_line(filename=path, line=line, line_number=1)
        found += [str(secret.type) for secret in secrets]
    return found


@lru_cache
def _plugins() -> tuple[Any, ...]:
    """Return the detector's plugins, made once; none if it is not installed."""
    if not has_detector():
        return ()
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    classes: list[Any] = list(get_mapping_from_secret_type_to_class().values())
    return tuple(each() for each in classes if each.__name__ in PLUGINS)
