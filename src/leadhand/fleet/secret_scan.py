"""Secrets in what a change adds, found by a maintained detector, offline.

`detect-secrets` (Apache-2.0, the extra `fleet`) knows the tokens of providers, private keys and
credentials in addresses. Its searches by entropy and its verification over the network stay off:
the first finds every digest and lock file, the second would send what it found to strangers.
Without the extra a few patterns of our own are looked for, and `leadhand doctor` says so.

Only what a change adds is looked at. A finding names file, line and kind, and never the secret.
"""

from __future__ import annotations

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
FINDINGS_MAX = 20
_OWN = {kind: re.compile(pattern) for kind, pattern in OWN.items()}


def has_detector() -> bool:
    """Whether the detector is installed."""
    return find_spec("detect_secrets") is not None


def secrets_in(path: str, before: str, after: str) -> list[str]:
    """Return what was added to a file that is a secret: `path:line: kind`, never the value."""
    known = set(before.splitlines())
    found: dict[tuple[int, str], None] = {}
    for number, line in enumerate(after.splitlines(), 1):
        if line in known or not line.strip():
            continue
        text = line[:LINE_CHARS]
        for kind in (*_own(text), *_detected(path, text)):
            found[number, kind] = None
        if len(found) >= FINDINGS_MAX:
            break
    return [f"{path}:{number}: a secret ({kind})" for number, kind in found]


def _own(line: str) -> list[str]:
    return [kind for kind, pattern in _OWN.items() if pattern.search(line)]


def _detected(path: str, line: str) -> list[str]:
    found = []
    for plugin in _plugins():
        secrets = plugin.analyze_line(filename=path, line=line, line_number=1)
        found += [str(secret.type) for secret in secrets]
    return found


@lru_cache
def _plugins() -> tuple[Any, ...]:
    """The detector's plugins, made once; none when it is not installed."""
    if not has_detector():
        return ()
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    classes: list[Any] = list(get_mapping_from_secret_type_to_class().values())
    return tuple(each() for each in classes if each.__name__ in PLUGINS)
