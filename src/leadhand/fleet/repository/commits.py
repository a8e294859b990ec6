"""Commits as they are read from a repository."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from leadhand.fleet.repository.git import Git, name_of

# What a commit says of itself: whose work it is, in lines that a program can read back.
#
# The trailers are the last paragraph of a message. They are facts that recovery relies on, and the
# rest of a message is a stranger's text: a line in it that looks like one of ours is quoted, so
# that nobody can claim a task for another by writing so.


OURS = ("Leadhand-", "Assisted-by")
SUBJECT_MAX = 72
BODY_MAX = 20_000
VALUE_MAX = 500

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_LINE = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (.*)")
_CLAIM = re.compile(rf"(?im)^(?=\s*(?:{'|'.join(map(re.escape, OURS))})[\w-]*\s*:)")


def message_of(text: str, trailers: Mapping[str, str]) -> str:
    """A subject, what else was said, and the trailers."""
    plain = "".join(c for c in text.strip()[:BODY_MAX] if c in "\n\t" or c.isprintable())
    subject, _, body = plain.partition("\n")
    if len(subject) > SUBJECT_MAX:
        subject, body = _shortened(subject), f"{subject}\n{body}"
    wanted = "\n".join(f"{_named(name)}: {_value(value)}" for name, value in trailers.items())
    said = [_quoted(part.strip("\n")) for part in (subject or "A change", body) if part.strip()]
    return "\n\n".join([*said, *([wanted] if wanted else [])]) + "\n"


def trailers_of(message: str) -> dict[str, str]:
    """The last paragraph, if it is made of trailers and nothing else."""
    last = message.strip().rsplit("\n\n", 1)[-1]
    found = [_LINE.fullmatch(line) for line in last.splitlines()]
    return {line[1]: line[2] for line in found if line} if all(found) else {}


def _quoted(text: str) -> str:
    return _CLAIM.sub("> ", text)


def _shortened(subject: str) -> str:
    return subject[: SUBJECT_MAX - 1].rsplit(" ", 1)[0].rstrip() + "…"


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a trailer")
    return name


def _value(value: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in value[:VALUE_MAX])
    return " ".join(plain.split()) or "-"


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
