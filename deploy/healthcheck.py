"""The health check of the image: exit 0 if the process takes work, else 1 with the reason.

It asks `/readyz` on this machine: of the server on its port (`LEADHAND_SERVER__PORT`, or 8787), or
at `LEADHAND_HEALTH_URL`, such as `http://127.0.0.1:8080/readyz` of a Temporal worker. A certificate
is not checked, since the request does not leave the container. Standard library only.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

TIMEOUT_S = 4
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def address() -> str:
    """Return the address to ask."""
    port = os.environ.get("LEADHAND_SERVER__PORT") or "8787"
    return os.environ.get("LEADHAND_HEALTH_URL") or f"http://127.0.0.1:{port}/readyz"


def main() -> int:
    """Ask, and say why not."""
    url = address()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname not in LOOPBACK:
        sys.stderr.write(f"{url}: must be an http address of this machine\n")
        return 1
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Proxy variables are for workers; this request stays inside.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            answer.read(1024)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{url}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
