"""Have a Chromium for the page's tests: `python3 scripts/browser.py`.

Takes the one of the system. Where there is none and this is a Debian-like system run by root, as
on CI, Debian's package is installed; elsewhere it says what to do.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> int:
    if any(map(shutil.which, NAMES)):
        return 0
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        print("leadhand: install Chromium by your system's packages", file=sys.stderr)
        return 1
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        done = subprocess.run([apt, "-qq", *words], env=quiet, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
