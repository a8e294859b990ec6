"""The service that is released. Replace it by your own."""

import json
import sys
from pathlib import Path


def version() -> str:
    """Return the version of the release that this file lies in."""
    file = Path(__file__).with_name("VERSION")
    return file.read_text(encoding="utf-8") if file.exists() else "development"


def greeting(name: str) -> str:
    """Return what the service is for."""
    return f"Hello, {name.strip() or 'stranger'}."


if __name__ == "__main__":
    if sys.argv[1:] == ["health"]:
        print(json.dumps({"status": "ok", "version": version()}))
    else:
        print(greeting(" ".join(sys.argv[1:])))
