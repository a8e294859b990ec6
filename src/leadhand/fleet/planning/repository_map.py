"""The repository map: what a planner is told of the code, ranked by relevance to its epic.

    files ─► symbols, imports ─┐
    history ─► churn, co-change ├─► graph of files ─► rank for this epic ─► cut to a budget
    tests, owners, guides ─────┘

A file points to another that defines a name it uses, that it imports, that it tests, or that
changes with it. The rank is PageRank over that graph, begun at the files and symbols that the epic
names (as aider's repository map does). Everything is sorted: the same commit and the same epic give
the same map. What a file holds is kept by the id of its content; see `map_cache`.

Everything in it was written by somebody else. It is told as data, without secrets, in bounds.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from math import log, sqrt
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING

from leadhand.fleet.planning.map_history import ChangeHistory
from leadhand.fleet.planning.symbols import FileFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DAMPING = 0.5
"""Lower than usual: a file is wanted that is near to what the epic names, not one that all use."""
ROUNDS = 12
DEFINERS_MAX = 8
"""A name that more files define says nothing about which of them is meant."""
EDGES_MAX = 40
IMPORT_WEIGHT, TEST_WEIGHT, CHANGE_WEIGHT = 3.0, 4.0, 6.0
NAMED_WEIGHT = 20.0
"""For a path that the epic names, against one word of it."""
SYMBOL_WEIGHT = 2.0
FLOOR = 0.1
"""The share of the start that every file gets."""
TEST_NAME = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)test_[^/]*$|_test\.\w+$|\.(?:test|spec)\.\w+$"
    r"|Tests?\.(?:java|cs|php)$|_spec\.rb$"
)
_WORDS = re.compile(r"[A-Za-z][a-z]+|[A-Z]{2,}(?![a-z])|[a-z]{2,}")
_TOKEN = re.compile(r"[\w][\w./-]*\w")
_PATH_WORDS = re.compile(r"[a-zA-Z]{3,}")
COMMON = frozenset(
    {
        "the",
        "and",
        "for",
        "with",
        "that",
        "this",
        "from",
        "into",
        "are",
        "not",
        "all",
        "its",
        "one",
        "when",
        "what",
        "which",
        "them",
        "they",
        "has",
        "have",
        "than",
        "then",
        "each",
        "every",
        "more",
        "most",
        "only",
        "also",
        "where",
        "must",
        "should",
        "shall",
        "can",
        "may",
        "will",
        "use",
        "used",
        "add",
        "fix",
        "make",
        "new",
        "old",
        "file",
        "files",
        "line",
        "lines",
        "test",
        "tests",
        "code",
        "docs",
        "change",
        "changes",
    }
)

Edges = dict[str, dict[str, float]]


@dataclass(frozen=True)
class RepositoryMap:
    """A repository at a commit, as a graph of files."""

    sizes: Mapping[str, int]
    """Bytes of every file, by path."""
    facts: Mapping[str, FileFacts] = field(default_factory=dict)
    history: ChangeHistory = field(default_factory=ChangeHistory)
    owners: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Patterns of CODEOWNERS with their owners; the last that matches counts."""
    reader: str = ""

    @cached_property
    def definers(self) -> dict[str, tuple[str, ...]]:
        """Return the files that define each name."""
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for path, each in self.facts.items():
            for symbol in each.symbols:
                found[symbol.name][path] = None
        return {name: tuple(paths) for name, paths in found.items()}

    @cached_property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """Return the files of the repository that each file imports."""
        known = ModuleIndex(self.sizes)
        found = {}
        for path, each in self.facts.items():
            files = dict.fromkeys(
                file for name in each.imports if (file := known.find(path, name)) and file != path
            )
            if files:
                found[path] = tuple(files)
        return found

    @cached_property
    def tests(self) -> dict[str, tuple[str, ...]]:
        """Return the tests of each file, by what they import and by their names."""
        by_stem: dict[str, list[str]] = defaultdict(list)
        plain = [path for path in self.facts if self.facts[path].symbols and not is_test(path)]
        for path in plain:
            by_stem[_stem(path)].append(path)
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for test in filter(is_test, self.facts):
            named = by_stem.get(_tested_stem(test), ())
            imported = [path for path in self.imports.get(test, ()) if not is_test(path)]
            for path in (*named[:DEFINERS_MAX], *imported):
                found[path][test] = None
        return {path: tuple(sorted(tests)) for path, tests in sorted(found.items())}

    @cached_property
    def edges(self) -> Edges:
        """Return the graph: for a file the files that it leads to, with weights."""
        found: Edges = {}
        users = Counter(name for each in self.facts.values() for name in each.names)
        telling = {
            name: (telling_of(name) / (len(places) * _scale(users[name])), places)
            for name, places in self.definers.items()
            if len(places) <= DEFINERS_MAX
        }
        counted = Counter(place for places in self.imports.values() for place in places)
        importers = {place: _scale(count) for place, count in counted.items()}
        for path, each in self.facts.items():
            row: dict[str, float] = defaultdict(float)
            for name in telling.keys() & each.names:
                weight, places = telling[name]
                if path not in places:
                    for place in places:
                        row[place] += weight
            for place in self.imports.get(path, ()):
                row[place] += IMPORT_WEIGHT / importers[place]
            for test in self.tests.get(path, ()):
                row[test] += TEST_WEIGHT
            found[path] = dict(row)
        for path, others in self.history.together.items():
            if path in self.sizes:
                changed = found.setdefault(path, {})
                for other, _ in others:
                    if other in self.sizes:
                        weight = CHANGE_WEIGHT * self.history.share(path, other)
                        changed[other] = changed.get(other, 0.0) + weight
        return {path: _largest(row, EDGES_MAX) for path, row in found.items() if row}

    def owners_of(self, path: str) -> tuple[str, ...]:
        """Return the owners of a file."""
        for pattern, owners in reversed(self.owners):
            if _owned(path, pattern):
                return owners
        return ()

    def rank(self, text: str) -> dict[str, float]:
        """Return every file with its relevance to an epic, most relevant first."""
        start = self.seed(text)
        if not self.sizes:
            return {}
        total = sum(start.values())
        even = 1.0 / len(self.sizes)
        share = FLOOR if total else 1.0
        begin = {
            path: share * even + ((1 - share) * start.get(path, 0.0) / total if total else 0.0)
            for path in self.sizes
        }
        rank = dict(begin)
        outgoing = [(path, row, sum(row.values())) for path, row in self.edges.items()]
        for _ in range(ROUNDS):
            moved = dict.fromkeys(rank, 0.0)
            given = 0.0
            for path, row, weight in outgoing:
                mass = DAMPING * rank[path]
                given += mass
                for place, each in row.items():
                    moved[place] += mass * each / weight
            rest = 1.0 - given
            rank = {path: moved[path] + rest * begin[path] for path in rank}
        return dict(sorted(rank.items(), key=lambda pair: (-round(pair[1], 12), pair[0])))

    def seed(self, text: str) -> dict[str, float]:
        """Return the files that an epic names, by path, by symbol or by words, with weights."""
        found: dict[str, float] = defaultdict(float)
        tokens = set(_TOKEN.findall(text))
        for path in self._named(tokens):
            found[path] += NAMED_WEIGHT
        for token in sorted(tokens):
            for name in {token, *token.split(".")}:
                places = self.definers.get(name, ())
                if len(name) > 2 and 0 < len(places) <= DEFINERS_MAX and _identifier(name):
                    for place in places:
                        found[place] += SYMBOL_WEIGHT * telling_of(name) / len(places)
        words = {root_of(word) for word in words_of(text)} - COMMON
        files = len(self.sizes)
        for word in sorted(words):
            having = self.by_word.get(word, {})
            for place, weight in having.items():
                found[place] += weight * log(1 + files / len(having)) / sqrt(len(having))
        return dict(found)

    @cached_property
    def by_word(self) -> dict[str, dict[str, float]]:
        """Return for each word the files that have it in their path or in names of symbols."""
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for path in self.sizes:
            for word in _PATH_WORDS.findall(path.rpartition("/")[2].partition(".")[0]):
                found[root_of(word)][path] = 2.0
            for word in _PATH_WORDS.findall(dirname(path)):
                found[root_of(word)].setdefault(path, 1.0)
        for path, each in self.facts.items():
            for symbol in each.symbols:
                for word in words_of(symbol.name):
                    found[root_of(word)].setdefault(path, 0.5)
        return dict(found)

    def _named(self, tokens: Iterable[str]) -> Iterator[str]:
        """Yield the files that tokens name: by path, by its end, or as a folder."""
        ends: dict[str, list[str]] = defaultdict(list)
        for path in self.sizes:
            ends[path.rpartition("/")[2]].append(path)
        for token in sorted(tokens):
            plain = token.strip("/")
            if "/" not in plain and "." not in plain:
                continue
            near = ends.get(plain.rpartition("/")[2], ())
            for path in near:
                if len(near) <= DEFINERS_MAX and (path == plain or path.endswith(f"/{plain}")):
                    yield path
            if "/" in plain:
                below = [path for path in self.sizes if path.startswith(f"{plain}/")]
                yield from below if len(below) <= 40 else ()


class ModuleIndex:
    """Finds the file that an import means, without knowing the language's search path."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = set(files)
        self._ends: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._folders: dict[str, str] = {}
        for path in sorted(self._files):
            parts = _module_parts(path)
            for size in (1, 2, 3):
                if parts and len(parts) >= size:
                    self._ends[parts[-size:]].append(path)
            self._folders.setdefault(dirname(path), path)

    def find(self, path: str, name: str) -> str:
        """Return the file that an import in `path` means; empty if it is none of the repository."""
        if name.startswith(".") and "/" not in name:
            return self._relative(path, name)
        if name.startswith("."):
            return self._beside(path, name)
        if "/" in name or name.endswith((".h", ".hpp", ".hh")):
            return self._beside(path, f"./{name}") or self._at_end(_module_parts(name))
        return self._at_end(tuple(part for part in re.split(r"::|[.\\]", name) if part))

    def _relative(self, path: str, name: str) -> str:
        """Python: each dot after the first is one folder up."""
        rest = name.lstrip(".")
        base = path
        for _ in range(len(name) - len(rest)):
            base = dirname(base)
        return self._beside(join(base, "x"), f"./{rest.replace('.', '/')}")

    def _beside(self, path: str, name: str) -> str:
        place = normpath(join(dirname(path), name))
        for end in ("", ".py", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".rb", ".h", ".rs"):
            if place + end in self._files:
                return place + end
        for end in ("/index.ts", "/index.tsx", "/index.js", "/__init__.py", "/mod.rs"):
            if place + end in self._files:
                return place + end
        stem = place.rpartition(".")[0] if place.endswith((".js", ".mjs")) else ""
        return next((stem + end for end in (".ts", ".tsx") if stem + end in self._files), "")

    def _at_end(self, parts: tuple[str, ...]) -> str:
        """Return the one file whose path ends so; its last part may be a name in the file."""
        for tail in (parts[-3:], parts[-2:], parts[-4:-1], parts[-3:-1]):
            found = self._ends.get(tail[-3:], ()) if len(tail) > 1 else ()
            if len(found) == 1:
                return found[0]
        top = self._ends.get(parts, ()) if len(parts) == 1 else ()
        return top[0] if len(top) == 1 else ""


def is_test(path: str) -> bool:
    """Return whether a file is a test, by its path."""
    return TEST_NAME.search(path) is not None


def read_owners(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the rules of a CODEOWNERS file."""
    found = []
    for line in text.splitlines()[:2000]:
        words = line.partition("#")[0].split()
        if words and not words[0].startswith(("[", "^[")):
            found.append((words[0], tuple(words[1:9])))
    return tuple(found)


def _owned(path: str, pattern: str) -> bool:
    """Return whether a pattern of CODEOWNERS covers a file (as in .gitignore, without `!`)."""
    rooted = "/" in pattern.rstrip("/")
    plain = pattern.strip("/")
    if plain in ("", "*", "**"):
        return True
    parts = path.split("/")
    if rooted:
        return any(fnmatchcase("/".join(parts[:n]), plain) for n in range(1, len(parts) + 1))
    within = parts[:-1] if pattern.endswith("/") else parts
    return any(fnmatchcase(part, plain) for part in within)


def _largest(row: Mapping[str, float], most: int) -> dict[str, float]:
    kept = sorted(row.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    return {place: weight for place, weight in kept if weight > 0}


def telling_of(name: str) -> float:
    """Return how much a name says: long ones of several words most, private ones little."""
    weight = 0.3 if name.startswith("_") else 1.0
    several = "_" in name.strip("_") or not (name.islower() or name.isupper() or name.istitle())
    return weight * (3.0 if several and len(name) >= 8 else 1.0 if len(name) > 4 else 0.4)


def _scale(users: int) -> float:
    """Return by how much less a thing says that many use."""
    return 1.0 + log(max(1, users))


def _identifier(name: str) -> bool:
    """Return whether a word of a text looks like code: `read_log`, `RepositoryMap`, `MAX`."""
    return "_" in name or not (name.islower() or name.istitle())


def words_of(text: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(text) if len(word) > 2]


def root_of(word: str) -> str:
    """Return a word without the endings of English plurals and verbs, roughly."""
    plain = word.lower()
    for end in ("ings", "ing", "ies", "ers", "ed", "er", "es", "s"):
        if plain.endswith(end) and len(plain) - len(end) > 2:
            return plain.removesuffix(end)
    return plain


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0].lower()


def _tested_stem(path: str) -> str:
    stem = _stem(path)
    for part in ("test_", "_test", "_spec", "tests", "test", "spec"):
        stem = stem.removeprefix(part).removesuffix(part)
    return stem.strip("_-")


def _module_parts(path: str) -> tuple[str, ...]:
    """Return a file's path as the parts of a module's name."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if not parts:
        return ()
    stem = parts[-1].partition(".")[0]
    inner = stem in ("__init__", "index", "mod")
    return tuple(parts[:-1] if inner and len(parts) > 1 else [*parts[:-1], stem])
