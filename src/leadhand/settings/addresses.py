"""Names of hosts and addresses of services, as far as a text can tell that they are none."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?")


def is_host(text: str) -> bool:
    """A name, with a port or without."""
    port = text.partition(":")[2]
    return bool(HOST.fullmatch(text)) and 0 < int(port or 443) < 65536


def is_url(text: str) -> bool:
    """The address of a service; no key stands in it."""
    try:
        parts = urlsplit(text)
        named, port = parts.hostname, parts.port
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text and "@" not in parts.netloc
    return plain and parts.scheme in ("http", "https") and bool(named) and port != 0
