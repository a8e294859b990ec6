"""The wheel of this checkout, and an environment that holds it."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "examples", "src")


def build(folder: Path) -> Path:
    """Build the wheel from a folder of links, so that the checkout stays as it is."""
    for name in (".gitignore", *SOURCES):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "out"]
    subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    (wheel,) = (folder / "out").iterdir()
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a new environment; return its folder of programs.

    Its dependencies are those of this environment, which a path file adds behind the wheel: the
    index is not asked. Path files of this environment are not read, so the checkout is not seen.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install"]
    quiet = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, *quiet, wheel], capture_output=True, check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs
