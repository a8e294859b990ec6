"""The survey of the repository for a planner: at main, through the hub, bounded, no checkout.

Everything in it was written by somebody else. It is told as data; what a planner makes of it has
to pass the same lint, whatever the files say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.fleet.boundaries import within
from leadhand.fleet.repository.git import name_of, printable_name, read_log
from leadhand.models.secret_patterns import scrub
from leadhand.planners.model.prompt import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.fleet.repository.git import Commit
    from leadhand.fleet.repository.hub import Hub

GUIDES = ("AGENTS.md", "CLAUDE.md", "README.md", "README.rst", "README.txt", "README")
GUIDE_BYTES_MAX = 256 << 10
GUIDE_CHARS = 4000
FILES_TOLD = 600
FOLDERS_TOLD = 200
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

    def told(self) -> dict[str, Any]:
        """Return the survey as a document; what exceeds the limits is counted."""
        listed = list(self.files.items())[:FILES_TOLD]
        doc: dict[str, Any] = {
            "main": self.main,
            "files": len(self.files),
            "tree": [{"path": _text(path), "bytes": each.bytes} for path, each in listed],
            "guides": [{"path": path, "text": text} for path, text in self.guides.items()],
            "history": [_commit(each) for each in self.history],
        }
        if len(self.files) > FILES_TOLD:
            doc["folders"] = _folders(self.files)
        return doc


async def survey(hub: Hub) -> Survey:
    """Look at main."""
    main = hub.main()
    files = await _files(hub, main)
    wanted = {
        name: files[name].blob
        for name in GUIDES
        if name in files and 0 < files[name].bytes <= GUIDE_BYTES_MAX
    }
    blobs = await hub.blobs(wanted.values()) if wanted else {}
    guides = {name: _guide(blobs[blob]) for name, blob in wanted.items() if blob in blobs}
    history = await read_log(hub.git, "--max-count", str(HISTORY), main)
    return Survey(main, files, guides, tuple(history))


async def changes_since(
    hub: Hub, run: str, since: str, paths: Iterable[str]
) -> list[dict[str, Any]]:
    """Return what others have changed since a commit in the files that these paths match."""
    wanted = [path.rstrip("/") for path in paths]
    main = hub.main()
    if not wanted or since in ("", main):
        return []
    meant = [path for path in await hub.changed(since, main) if within(path, wanted)]
    others: dict[str, Commit] = {}
    for at in range(0, len(meant), PATHS_AT_ONCE):
        for each in await hub.commits_between(since, main, meant[at : at + PATHS_AT_ONCE]):
            if each.trailers.get("Leadhand-Run") != run:
                others[each.sha] = each
    found = sorted(others.values(), key=lambda each: each.at)
    return [_commit(each) for each in found[-DRIFT_MAX:]]


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
    text = scrub(clean(data.decode("utf-8", "backslashreplace")))
    more = len(text) - GUIDE_CHARS
    return text if more <= 0 else f"{text[:GUIDE_CHARS]}\n… {more:,} more characters"


def _commit(commit: Commit) -> dict[str, Any]:
    said = commit.trailers
    doc = {"sha": commit.sha[:12], "subject": scrub(clean(_text(commit.subject)))[:SUBJECT_CHARS]}
    for name in ("Leadhand-Task", "Leadhand-Run", "Leadhand-Attempt", "Assisted-by"):
        if name in said:
            doc[name.lower()] = _text(said[name])[:SUBJECT_CHARS]
    return doc


def _folders(files: Mapping[str, SurveyedFile]) -> list[dict[str, Any]]:
    """Folders of the first two levels, with how much is in each."""
    sums: dict[str, list[int]] = {}
    for path, each in files.items():
        place = "/".join(path.split("/")[:-1][:2]) or "."
        entry = sums.setdefault(place, [0, 0])
        entry[0] += 1
        entry[1] += each.bytes
    largest = sorted(sums.items(), key=lambda pair: -pair[1][1])[:FOLDERS_TOLD]
    return [{"path": _text(p), "files": n, "bytes": size} for p, (n, size) in largest]


def _text(name: str) -> str:
    return printable_name(name)
