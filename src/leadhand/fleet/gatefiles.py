"""Which files decide what a gate's command does, read off the command.

Some are named: a script, a Makefile. Others would come before what the command means if they were
there: ``make`` takes GNUmakefile rather than Makefile, and does nothing for a target that is a
file; ``python -m pytest`` runs the pytest of the folder it stands in. A change that adds one of
these would pass a gate that it has put itself in the place of.

More is not read off: what a test runner finds by itself are tests, and tests are the project's.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")


def named(argv: tuple[str, ...]) -> list[str]:
    """Words of a command that may be files of the repository."""
    words = [*argv]
    if _makes(argv):
        words += [posixpath.join(_place(argv), name) for name in MAKEFILES]
    return _inside(words)


def shadowing(argv: tuple[str, ...]) -> list[str]:
    """What would come before the thing that a command means, if it were there."""
    return [word for word in _inside(_shadowing(argv)) if not {*word} & {*"*?"}]


def _shadowing(argv: tuple[str, ...]) -> Iterator[str]:
    if _makes(argv):
        goals = [word for word in argv[1:] if word[:1] != "-" and "=" not in word]
        for name in (*MAKEFILES, *goals):
            yield posixpath.join(_place(argv), name)
    elif PYTHON.fullmatch(posixpath.basename(argv[0])) and "-m" in argv[:-1]:
        module = argv[argv.index("-m") + 1].partition(".")[0]
        yield from (module, f"{module}.py")


def _inside(words: Iterable[str]) -> list[str]:
    """Those that can be paths in the repository, and more than all of it."""
    found = (posixpath.normpath(word) for word in words if word and word[0] not in "-:/")
    return [word for word in found if word != "." and ".." not in word.split("/")]


def _makes(argv: tuple[str, ...]) -> bool:
    return posixpath.basename(argv[0]) in ("make", "gmake")


def _place(argv: tuple[str, ...]) -> str:
    """The folder that make is told to go to."""
    for at, word in enumerate(argv):
        if word in ("-C", "--directory") and at + 1 < len(argv):
            return argv[at + 1]
        for start in ("--directory=", "-C"):
            if word.startswith(start) and word != start:
                return word.removeprefix(start)
    return ""
