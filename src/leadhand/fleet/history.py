"""Commits as they are read from a repository."""

from collections.abc import Mapping
from dataclasses import dataclass

from leadhand.fleet.git import Git, name_of
from leadhand.fleet.trailers import trailers_of

FORM = "--format=tformat:%H%x00%P%x00%T%x00%ct%x00%an%x00%B"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, with what its trailers say."""

    sha: str
    parents: tuple[str, ...]
    tree: str
    at: int
    author: str
    message: str
    trailers: Mapping[str, str]

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


async def read_log(git: Git, *what: str) -> list[Commit]:
    """Commits, oldest first."""
    said = await git("log", "-z", "--reverse", "--no-show-signature", FORM, *what)
    parts = said.out.split(b"\0")
    found = []
    for at in range(0, len(parts) - 5, 6):
        sha, parents, tree, when, author, text = (name_of(part) for part in parts[at : at + 6])
        about = (sha, tuple(parents.split()), tree, int(when), author, text)
        found.append(Commit(*about, trailers_of(text)))
    return found
