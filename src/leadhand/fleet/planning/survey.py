"""The survey of the repository for a planner: at main, through the hub, bounded, no checkout.

It holds the repository map (`repository_map`), the guides of the project and the last commits.

Everything in it was written by somebody else. It is told as data; what a planner makes of it has
to pass the same lint, whatever the files say.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leadhand.fleet.boundaries import within
from leadhand.fleet.planning.languages import DEFINITIONS, language_of
from leadhand.fleet.planning.map_cache import FactsCache
from leadhand.fleet.planning.map_document import MAP_TOKENS, map_document
from leadhand.fleet.planning.map_history import history_of, read_commits
from leadhand.fleet.planning.repository_map import RepositoryMap, read_owners
from leadhand.fleet.planning.symbols import FILE_BYTES_MAX, facts_of, reader
from leadhand.fleet.repository.git import name_of, printable_name, read_log
from leadhand.models.secret_patterns import scrub
from leadhand.planners.model.prompt import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.fleet.planning.symbols import FileFacts
    from leadhand.fleet.repository.git import Commit
    from leadhand.fleet.repository.hub import Hub

T = TypeVar("T")

GUIDES = ("AGENTS.md", "CLAUDE.md", "README.md", "README.rst", "README.txt", "README")
GUIDE_BYTES_MAX = 256 << 10
GUIDE_CHARS = 4000
NESTED = ("AGENTS.md", "CLAUDE.md")
"""Guides that folders have, too."""
GUIDES_READ = 40
NESTED_TOLD = 4
NESTED_CHARS = 1500
OWNERS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
SOURCES_MAX = 20_000
FILES_AT_ONCE = 400
"""Contents that are read at once."""
HISTORY = 30
SUBJECT_CHARS = 120
DRIFT_MAX = 50
PATHS_AT_ONCE = 200
"""Names of files that git is given on one command line."""


class SurveyedFile(NamedTuple):
    """A file at main."""

    bytes: int
    blob: str


@dataclass(frozen=True, slots=True)
class Survey:
    """The content of the repository at a commit."""

    main: str
    files: Mapping[str, SurveyedFile] = field(default_factory=dict)
    guides: Mapping[str, str] = field(default_factory=dict)
    history: tuple[Commit, ...] = ()

    map: RepositoryMap = field(default_factory=lambda: RepositoryMap({}))

    def told(self, text: str = "", tokens: int = MAP_TOKENS) -> dict[str, Any]:
        """Return the survey as a document for an epic; what exceeds the limits is counted."""
        made = map_document(self.map, text, tokens)
        near = [each["path"] for each in made["map"]]
        return {
            "main": self.main,
            "files": len(self.files),
            **made,
            "guides": _guides(self.guides, near),
            "history": [_commit(each) for each in self.history],
        }


async def survey(hub: Hub, cache: FactsCache | None = None) -> Survey:
    """Look at main; `cache` has what is known of contents from before."""
    main = hub.main()
    files = await _files(hub, main)
    places = [
        name
        for name in sorted(files, key=lambda name: (name.count("/"), name))
        if (name in GUIDES or name.rpartition("/")[2] in NESTED)
        and 0 < files[name].bytes <= GUIDE_BYTES_MAX
    ][:GUIDES_READ]
    places += [name for name in OWNERS if name in files and files[name].bytes <= GUIDE_BYTES_MAX]
    wanted = {name: files[name].blob for name in places}
    blobs = await hub.blobs(wanted.values()) if wanted else {}
    texts = {name: blobs[blob] for name, blob in wanted.items() if blob in blobs}
    guides = {name: _guide(data) for name, data in texts.items() if name not in OWNERS}
    owners = next((texts[name] for name in OWNERS if name in texts), b"")
    history = await read_log(hub.git, "--max-count", str(HISTORY), main)
    made = RepositoryMap(
        {path: each.bytes for path, each in files.items()},
        await _facts(hub, files, cache or FactsCache(None, reader())),
        history_of(await read_commits(hub.git, main)),
        read_owners(owners.decode("utf-8", "replace")),
        reader(),
    )
    return Survey(main, files, guides, tuple(history), made)


async def _facts(
    hub: Hub, files: Mapping[str, SurveyedFile], cache: FactsCache
) -> dict[str, FileFacts]:
    """Return what the files hold; only contents that are new are read."""
    keys = {
        path: f"{each.blob}:{language}"
        for path, each in sorted(files.items())
        if (language := language_of(path)) in DEFINITIONS and each.bytes <= FILE_BYTES_MAX
    }
    keys = dict(list(keys.items())[:SOURCES_MAX])
    missing = {key: path for path, key in keys.items() if key not in cache.known}
    new: dict[str, FileFacts] = {}
    for some in batched(missing.items(), FILES_AT_ONCE):
        blobs = await hub.blobs(key.partition(":")[0] for key, _ in some)
        new |= await asyncio.to_thread(_read_facts, some, blobs)
    if new:
        await asyncio.to_thread(cache.save, new, set(keys.values()))
    return {path: cache.known[key] for path, key in keys.items() if key in cache.known}


def _read_facts(
    some: Sequence[tuple[str, str]], blobs: Mapping[str, bytes]
) -> dict[str, FileFacts]:
    named = ((key, path, blobs.get(key.partition(":")[0])) for key, path in some)
    return {key: facts_of(path, data) for key, path, data in named if data is not None}


def batched(rows: Iterable[T], size: int) -> list[list[T]]:
    """Return the rows in lists of at most `size`."""
    all_rows = list(rows)
    return [all_rows[at : at + size] for at in range(0, len(all_rows), size)]


def _guides(guides: Mapping[str, str], near: Sequence[str]) -> list[dict[str, Any]]:
    """Return the guides of the root, and the nested ones of folders that matter to the epic."""
    found = [name for name in guides if "/" not in name]
    nested = [name for name in guides if "/" in name]
    place = {path: at for at, path in reversed(list(enumerate(near)))}

    def first(name: str) -> int:
        folder = name.rpartition("/")[0] + "/"
        return min((at for path, at in place.items() if path.startswith(folder)), default=1 << 30)

    nested = [
        name
        for name in sorted(nested, key=lambda each: (first(each), each))
        if first(name) < 1 << 30
    ]
    found.sort(key=GUIDES.index)
    texts = [(name, guides[name]) for name in found]
    texts += [(name, _cut(guides[name], NESTED_CHARS)) for name in nested[:NESTED_TOLD]]
    return [{"path": _text(name), "text": text} for name, text in texts]


async def changes_since(
    hub: Hub, run: str, since: str, paths: Iterable[str], append: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return what others have changed since a commit in the files that these paths match.

    Changes of files that match `append` are left out: those files only grow.
    """
    wanted = [path.rstrip("/") for path in paths]
    main = hub.main()
    if not wanted or since in ("", main):
        return []
    changed = await hub.changed(since, main)
    meant = [path for path in changed if within(path, wanted) and not within(path, append)]
    others: dict[str, Commit] = {}
    for at in range(0, len(meant), PATHS_AT_ONCE):
        for each in await hub.commits_between(since, main, meant[at : at + PATHS_AT_ONCE]):
            if each.trailers.get("Leadhand-Run") != run:
                others[each.sha] = each
    found = sorted(others.values(), key=lambda each: each.at)
    return [_commit(each) for each in found[-DRIFT_MAX:]]


async def appeared_or_gone(hub: Hub, since: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that stand for a file at only one of two commits: `since`, and main now.

    A task that was to create a file, or to change one, was planned for another repository then.
    """
    main = hub.main()
    before, now = await _files(hub, since), await _files(hub, main)
    return [path for path in paths if (path in before) != (path in now)]


async def _files(hub: Hub, main: str) -> dict[str, SurveyedFile]:
    said = await hub.git("ls-tree", "-r", "-l", "-z", "--full-tree", main)
    found = {}
    for entry in said.out.split(b"\0"):
        about, _, path = entry.partition(b"\t")
        words = about.split()
        if len(words) == 4 and words[1] == b"blob":
            found[name_of(path)] = SurveyedFile(int(words[3]), words[2].decode())
    return found


def _guide(data: bytes) -> str:
    return _cut(scrub(clean(data.decode("utf-8", "backslashreplace"))), GUIDE_CHARS)


def _cut(text: str, most: int) -> str:
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}\n… {more:,} more characters"


def _commit(commit: Commit) -> dict[str, Any]:
    said = commit.trailers
    doc = {"sha": commit.sha[:12], "subject": scrub(clean(_text(commit.subject)))[:SUBJECT_CHARS]}
    for name in ("Leadhand-Task", "Leadhand-Run", "Leadhand-Attempt", "Assisted-by"):
        if name in said:
            doc[name.lower()] = _text(said[name])[:SUBJECT_CHARS]
    return doc


def _text(name: str) -> str:
    return printable_name(name)
