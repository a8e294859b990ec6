"""The third clock: whether anything in a slot has changed, and when.

A fingerprint is made of names, sizes, kinds and change times, not of content: thousands of files
in some milliseconds. Change times (ctime) cannot be set by a program, so touching files back does
not hide a change. Git's own folder counts by its index and its HEAD only. What is larger than the
most is looked at in part; the part is the same every time, as long as nothing changes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

ENTRIES_MAX = 50_000
PASSED_OVER = frozenset({".git", "node_modules", "__pycache__", ".venv"})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A slot at one moment."""

    digest: str
    changed_at: float
    """When the newest of its entries changed, by the clock on the wall."""


def fingerprint(folder: Path) -> Fingerprint:
    """What the folder looks like now; a folder that is gone has a fingerprint too."""
    seen, newest, count = blake2b(digest_size=16), 0.0, 0
    folders = [os.fspath(folder)]
    for name in (".git/index", ".git/HEAD"):
        try:
            state = os.lstat(folder / name)
        except OSError:
            continue
        seen.update(f"{name}\0{state.st_size}\0{state.st_ctime_ns}\n".encode())
        newest = max(newest, state.st_ctime)
    while folders and count < ENTRIES_MAX:
        here = folders.pop()
        try:
            with os.scandir(here) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            seen.update(b"gone\n")
            continue
        for entry in listed:
            if entry.name in PASSED_OVER:
                continue
            count += 1
            try:
                state = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
            except OSError:
                continue
            text = f"{entry.path}\0{state.st_mode}\0{state.st_size}\0{state.st_ctime_ns}\n"
            seen.update(text.encode(errors="surrogateescape"))
            newest = max(newest, state.st_ctime)
    return Fingerprint(seen.hexdigest(), newest)
