"""The workers of the release: they deploy a version, check its health, and switch back.

Production is a folder here: `site/releases/VERSION` holds each version, and the link `site/live`
points to one of them. Replace the bodies of these functions by calls of your own tools.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from leadhand import Permanent, Unavailable, worker

HERE = Path(__file__).resolve().parent
SITE = HERE / "site"
LIVE = SITE / "live"


def live_version() -> str:
    """Return the version that is live, or an empty text."""
    return LIVE.resolve().name if LIVE.is_symlink() else ""


def switch(version: str) -> None:
    """Make a version live in one step: there is no moment without a link."""
    new = SITE / "live.new"
    new.unlink(missing_ok=True)
    new.symlink_to(Path("releases") / version)
    new.replace(LIVE)


def is_deployed(version: str) -> dict[str, str] | None:
    """Tell whether a deployment took effect whose process died: the probe of `deploy`."""
    if live_version() != version:
        return None
    note = SITE / "releases" / version / "previous"
    return {"live": version, "previous": note.read_text(encoding="utf-8")}


@worker(
    name="site",
    action="deploy",
    effects=["production"],  # what it changes; reviews show it
    risk="high",  # by the rule in leadhand.toml a person must approve the plan
    probe=is_deployed,  # asked after a crash, instead of deploying twice
    timeout="10 minutes",
)
def deploy(version: str) -> dict[str, str]:
    """Copy the service into a new release and make that release live."""
    release, previous = SITE / "releases" / version, live_version()
    if version == previous:
        raise Permanent(f"{version} is live already. Choose another: --set version=...")
    shutil.rmtree(release, ignore_errors=True)
    release.mkdir(parents=True)
    shutil.copy(HERE / "service.py", release / "service.py")
    (release / "VERSION").write_text(version, encoding="utf-8")
    (release / "previous").write_text(previous, encoding="utf-8")
    switch(version)
    return {"live": version, "previous": previous}


@worker(
    name="site",
    action="health",
    effects=(),
    idempotent=True,
    checks={"healthy": lambda data: data["status"] == "ok" and data["ms"] <= data["ms_max"]},
    timeout="1 minute",
)
def health(version: str, ms_max: int) -> dict[str, object]:
    """Ask the live service how it is, and measure how long it takes to answer."""
    begun = time.monotonic()
    command = [sys.executable, str(LIVE / "service.py"), "health"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"the health check of {version} failed: {done.stderr.strip()[-200:]}")
    answer = json.loads(done.stdout)
    if answer["version"] != version:
        raise Permanent(f"{answer['version']} is live, not {version}")
    ms = round((time.monotonic() - begun) * 1000, 1)
    return {"status": answer["status"], "version": version, "ms": ms, "ms_max": ms_max}


@worker(name="site", action="switch_back", effects=["production"], idempotent=True)
def switch_back(to: str) -> dict[str, str]:
    """Make the version of before live again; without one, take the service down."""
    if to:
        switch(to)
    else:
        LIVE.unlink(missing_ok=True)
    return {"live": live_version()}
