"""The repository map as a planner is told it: entries of files by relevance, cut to a budget."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from leadhand.fleet.planning.languages import language_of
from leadhand.fleet.planning.repository_map import COMMON, is_test, root_of, telling_of, words_of
from leadhand.fleet.repository.git import printable_name
from leadhand.models.secret_patterns import scrub
from leadhand.planners.model.prompt import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.fleet.planning.repository_map import RepositoryMap
    from leadhand.fleet.planning.symbols import FileFacts, Symbol

TOKEN_CHARS = 4
"""Characters of a token, about."""
MAP_TOKENS = 8000
DETAILED = 0.8
"""The share of the budget for files with their symbols; the rest names files only."""
SYMBOLS_TOLD = 14
RELATED_TOLD = 4
SHARE_TOLD = 0.25
"""The share of a file's commits that also change another, to be worth a word."""
FOLDERS_TOLD = 80
LISTED = 40
BUILD_NAMES = frozenset(
    {
        "Makefile",
        "makefile",
        "GNUmakefile",
        "justfile",
        "Justfile",
        "Taskfile.yml",
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "tox.ini",
        "noxfile.py",
        "package.json",
        "tsconfig.json",
        "pnpm-workspace.yaml",
        "Cargo.toml",
        "go.mod",
        "pom.xml",
        "build.gradle",
        "build.gradle.kts",
        "settings.gradle",
        "CMakeLists.txt",
        "meson.build",
        "composer.json",
        "Gemfile",
        "Rakefile",
        "Dockerfile",
        "mix.exs",
        "Package.swift",
        "BUILD.bazel",
        "WORKSPACE",
    }
)
CI_PATHS = re.compile(
    r"^(?:\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|Jenkinsfile"
    r"|azure-pipelines\.yml|\.travis\.yml|\.buildkite/.+\.ya?ml|bitbucket-pipelines\.yml)$"
)

Doc = dict[str, Any]


def map_document(made: RepositoryMap, text: str, tokens: int = MAP_TOKENS) -> Doc:
    """Return the map for an epic, within a budget of tokens."""
    rank = made.rank(text)
    wanted = {root_of(word) for word in words_of(text)} - COMMON
    used = Counter(name for each in made.facts.values() for name in each.names)
    left = tokens * TOKEN_CHARS
    detailed = int(left * DETAILED)
    entries: list[Doc] = []
    for path in rank:
        entry = _entry(made, path, wanted, used) if detailed > 0 else _plain(made, path)
        cost = len(entry_text(entry)) + 1
        if cost > left:
            break
        left -= cost
        detailed -= cost
        entries.append(entry)
    return {
        "symbols_by": made.reader,
        "languages": _languages(made),
        "map": entries,
        "folders": _folders(made.sizes) if len(entries) < len(rank) else [],
        "build": _named(rank, lambda path: path.rpartition("/")[2] in BUILD_NAMES),
        "ci": _named(rank, lambda path: CI_PATHS.match(path) is not None),
        "docs": _named(rank, lambda path: language_of(path) in ("markdown", "restructuredtext")),
    }


def entry_text(entry: Doc) -> str:
    """Return one entry as lines of text."""
    about = [entry["path"]]
    if "lines" in entry:
        about.append(f"{entry['lines']} lines")
    if "commits" in entry:
        about.append(f"{entry['commits']} commits")
    related = ("tests", "imports", "owners")
    about += [f"{name}: {' '.join(entry[name])}" for name in related if name in entry]
    if "changes_with" in entry:
        pairs = (f"{each['path']} {each['share']:.0%}" for each in entry["changes_with"])
        about.append(f"changes with: {' '.join(pairs)}")
    line = " · ".join(about)
    symbols = " ".join(f"{each['name']}:{each['line']}" for each in entry.get("symbols", ()))
    return f"{line}\n  {symbols}" if symbols else line


def _plain(made: RepositoryMap, path: str) -> Doc:
    doc: Doc = {"path": printable_name(path), "bytes": made.sizes[path]}
    facts = made.facts.get(path)
    if facts is not None and facts.lines:
        doc |= {"language": facts.language, "lines": facts.lines}
    return doc


def _entry(made: RepositoryMap, path: str, wanted: set[str], used: Mapping[str, int]) -> Doc:
    doc = _plain(made, path)
    facts = made.facts.get(path)
    if facts is not None and facts.symbols:
        doc["symbols"] = [
            {"name": printable_name(each.name), "kind": each.kind, "line": each.line}
            for each in _telling(facts, wanted, used)
        ]
    related = {
        "imports": made.imports.get(path, ()),
        "tests": made.tests.get(path, ()) if not is_test(path) else (),
    }
    doc |= {name: _names(paths[:RELATED_TOLD]) for name, paths in related.items() if paths}
    if owners := made.owners_of(path):
        doc["owners"] = [scrub(clean(printable_name(each)))[:80] for each in owners[:RELATED_TOLD]]
    if path in made.history.churn:
        doc["commits"] = made.history.churn[path]
    shares = [
        (other, made.history.share(path, other)) for other, _ in made.history.together.get(path, ())
    ]
    shares = [pair for pair in shares if pair[1] >= SHARE_TOLD and pair[0] in made.sizes]
    if shares:
        doc["changes_with"] = [
            {"path": printable_name(other), "share": round(share, 2)}
            for other, share in shares[:RELATED_TOLD]
        ]
    return doc


def _telling(facts: FileFacts, wanted: set[str], used: Mapping[str, int]) -> list[Symbol]:
    """Return the symbols that matter most: named by the epic, then used by others."""

    def weight(each: Symbol) -> tuple[float, int]:
        named = len(wanted & {root_of(word) for word in words_of(each.name)})
        outside = each.kind not in ("constant", "method")
        return (
            -(10.0 * named + telling_of(each.name) * (1 + outside) * used[each.name]),
            each.line,
        )

    once = {each.name: each for each in reversed(facts.symbols)}
    chosen = sorted(once.values(), key=weight)[:SYMBOLS_TOLD]
    return sorted(chosen, key=lambda each: each.line)


def _names(paths: Iterable[str]) -> list[str]:
    return [printable_name(path) for path in paths]


def _named(rank: Iterable[str], wanted: Any) -> list[str]:
    return _names([path for path in rank if wanted(path)][:LISTED])


def _languages(made: RepositoryMap) -> list[Doc]:
    sums: dict[str, list[int]] = {}
    for path, size in made.sizes.items():
        row = sums.setdefault(language_of(path) or "other", [0, 0])
        row[0] += 1
        row[1] += size
    order = sorted(sums.items(), key=lambda pair: (-pair[1][1], pair[0]))
    return [{"language": name, "files": n, "bytes": size} for name, (n, size) in order]


def _folders(sizes: Mapping[str, int]) -> list[Doc]:
    """Return the folders of the first two levels, with how much is in each."""
    sums: dict[str, list[int]] = {}
    for path, size in sizes.items():
        row = sums.setdefault("/".join(path.split("/")[:-1][:2]) or ".", [0, 0])
        row[0] += 1
        row[1] += size
    largest = sorted(sums.items(), key=lambda pair: (-pair[1][1], pair[0]))[:FOLDERS_TOLD]
    return [{"path": printable_name(p), "files": n, "bytes": size} for p, (n, size) in largest]
