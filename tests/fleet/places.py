"""A user's repository to try things on, and helpers that look at every byte of it."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

WHO = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@localhost",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@localhost",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C", **WHO}


def run_git(folder, *arguments, check=True, stdin=None, env=None):
    """Git as a user or an agent would run it."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**ENV, **(env or {})},
        input=stdin,
        capture_output=True,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"git {arguments}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode("utf-8", "surrogateescape").strip("\n")


def make_repo(folder, files=None):
    """A repository with one commit."""
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "-b", "main")
    write(folder, files or {"a.txt": "a\n", "src/b.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n"})
    return commit_all(folder, "The beginning")


def write(folder, files):
    for name, text in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def commit_all(folder, message):
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "-m", message)
    return run_git(folder, "rev-parse", "HEAD")


def every_byte(folder):
    """Each file below a folder: its kind, mode, time of change and contents."""
    found = {}
    top = os.fsencode(folder)
    for place, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = place + b"/" + name
            about = os.lstat(path)
            what = b""
            if stat.S_ISLNK(about.st_mode):
                what = os.fsencode(Path(os.fsdecode(path)).readlink())
            elif stat.S_ISREG(about.st_mode):
                what = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).digest()
            times = () if stat.S_ISDIR(about.st_mode) else (about.st_mtime_ns,)
            found[path[len(top) + 1 :]] = (about.st_mode, what, *times)
    return found


def files_of(folder, commit):
    """The files of a commit, with their contents."""
    names = run_git(folder, "ls-tree", "-r", "-z", "--name-only", commit).split("\0")
    return {name: run_git(folder, "show", f"{commit}:{name}") for name in names if name}
