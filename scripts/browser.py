"""Have a Chromium for the page's tests: `python3 scripts/browser.py`.

Takes the one of the system: its headless shell where there is one, which needs a third less
processor time. Where there is none and this is a Debian-like system run by root, as on CI, Debian's
package is installed; elsewhere it says what to do.
"""

import os
import shutil
import subprocess
import sys

PACKAGES = ("chromium-headless-shell", "chromium")
NAMES = (*PACKAGES, "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> int:
    """Install a Chromium if there is none. Return 0 if there is one now."""
    if any(map(shutil.which, NAMES)):
        return 0
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        print("leadhand: install Chromium by your system's packages", file=sys.stderr)
        return 1
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([apt, "-qq", "update"], env=quiet, check=False)
    for package in PACKAGES:
        words = [apt, "-qq", "install", "--yes", "--no-install-recommends", package]
        if subprocess.run(words, env=quiet, check=False).returncode == 0:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
