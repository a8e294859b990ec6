"""Folder trust: code and addresses in a project's settings are used only once they are trusted.

A settings file names modules to import, MCP servers to start, addresses that get keys, and people
who may sign in. Looking at a folder must run nothing of it, and an agent that can edit the file
must admit no person. So each such entry (`TrustEntry`) of a `leadhand.toml` or `pyproject.toml`
counts only after the person at this account trusted it. Trust is kept outside of the folder, in
`$XDG_STATE_HOME/leadhand/trust.json` (mode 0600), by folder and entry: an entry that is added or
changed later is asked about again, an edit of a worker's code is not.

Always trusted, since the person named it: flags, `LEADHAND_*` variables, the user's own
`config.toml`, and Python programs that use Leadhand as a library. `LEADHAND_TRUST` lists folders
(absolute, separated by `:`) in which everything is trusted, for CI and containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict

from leadhand.core.plan.model import GOAL_PLANNER
from leadhand.core.wording import shown
from leadhand.errors import NotAllowed, NotTrusted, UsageError
from leadhand.settings.notify import NotifyTable
from leadhand.settings.sections import Section, detail_text, section_of

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings

PROJECT_FILES = ("leadhand.toml", "pyproject.toml")
VARIABLE = "LEADHAND_TRUST"
FILE_BYTES_MAX = 4 << 20
REACH = ("command", "cwd", "env", "secrets", "set_env", "url", "headers", "auth")
"""Keys of `[mcp.NAME]` that determine what is started or contacted, and how."""


class TrustEntry(NamedTuple):
    """One thing that a settings file causes to be executed or contacted."""

    kind: str
    name: str
    detail: str = ""
    """Everything in the settings that it depends on, as text; part of its digest."""
    folder: str = ""
    """The folder of the settings file that names it."""

    @property
    def digest(self) -> str:
        """The digest that trust is bound to: of kind, name and detail."""
        words = json.dumps([self.kind, self.name, self.detail])
        return hashlib.sha256(words.encode()).hexdigest()

    def __str__(self) -> str:
        name = self.name.removeprefix(f"{self.folder}{os.sep}")[:300]
        return f"{self.kind} {name}" + (f" ({self.shown})" if self.shown else "")

    @property
    def shown(self) -> str:
        """The detail for people: the command or the address, without values of variables."""
        if not self.detail.startswith("{"):
            return self.detail[:200]
        table = json.loads(self.detail)
        command = table.get("command") or table.get("program") or table.get("url") or ""
        text = " ".join(map(str, command)) if isinstance(command, list) else str(command)
        return text[:200]


@dataclass(frozen=True, slots=True)
class Trust:
    """The trust of this account; the file is read anew on each query."""

    file: Path
    folders: tuple[Path, ...] = ()
    """Folders of `LEADHAND_TRUST`."""
    everything: bool = False
    """Whether `--trust` was given."""

    @classmethod
    def here(cls, environ: Mapping[str, str] | None = None, *, everything: bool = False) -> Trust:
        """Return the trust of this account, located by its environment.

        Raise `UsageError` if `LEADHAND_TRUST` holds a path that is not absolute.
        """
        env = os.environ if environ is None else environ
        folders: list[Path] = []
        for text in filter(None, env.get(VARIABLE, "").split(os.pathsep)):
            folder = Path(text).expanduser()
            if not folder.is_absolute():
                raise UsageError(
                    f"{VARIABLE} holds {shown(text)}, which is no absolute path. "
                    f'Fix: list folders, as in {VARIABLE}="$PWD".'
                )
            folders.append(folder.resolve())
        return cls(state_folder(env) / "trust.json", tuple(folders), everything)

    def allows(self, entry: TrustEntry) -> bool:
        """Return whether an entry may be executed or contacted."""
        folder = Path(entry.folder)
        return (
            self.everything
            or any(folder.is_relative_to(each) for each in self.folders)
            or entry.digest in self._read().get(entry.folder, {}).get("entries", {})
        )

    def remember(self, entries: Iterable[TrustEntry]) -> None:
        """Trust entries from now on. Raise `NotAllowed` if that cannot be stored."""
        new = [each for each in entries if not self._knows(each)]
        if not new:
            return
        with self._locked() as known:
            for each in new:
                kept = known.setdefault(each.folder, {"entries": {}})
                kept["since"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                kept["entries"][each.digest] = str(each)

    def forget(self, folder: Path) -> bool:
        """Remove the trust of a folder; return whether there was any."""
        with self._locked() as known:
            return known.pop(str(folder), None) is not None

    def known(self) -> Doc:
        """Return the stored trust: for each folder `since` and `entries`."""
        return self._read()

    def _knows(self, entry: TrustEntry) -> bool:
        return entry.digest in self._read().get(entry.folder, {}).get("entries", {})

    def _read(self) -> Doc:
        """Return the content of the file; empty if damaged, or if others could have written it."""
        try:
            with self.file.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    return {}
                found = json.loads(file.read(FILE_BYTES_MAX))
        except (OSError, ValueError):
            return {}
        folders = found.get("folders") if isinstance(found, dict) else None
        if not isinstance(folders, dict):
            return {}
        return {
            folder: each
            for folder, each in folders.items()
            if isinstance(each, dict) and isinstance(each.get("entries"), dict)
        }

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Doc]:
        """Yield the stored trust under a lock, and replace the file by it at the end."""
        home = self.file.parent
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            home.chmod(0o700)
            with (home / "trust.lock").open("a") as lock:
                os.fchmod(lock.fileno(), 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                known = {name: each for name, each in self._read().items() if Path(name).is_dir()}
                yield known
                text = json.dumps({"version": 1, "folders": known}, indent=1)
                number, name = tempfile.mkstemp(prefix="trust.", dir=home)  # mode 0600
                with os.fdopen(number, "w", encoding="utf-8") as made:
                    made.write(text)
                Path(name).replace(self.file)
        except OSError as error:
            raise NotAllowed(
                f"{self.file}: trust cannot be kept there ({error.strerror}). "
                f'Fix: make it writable, or set {VARIABLE} to the folder, as in "$PWD".'
            ) from None


def state_folder(env: Mapping[str, str]) -> Path:
    """Return the folder for Leadhand's own data about this account."""
    state = env.get("XDG_STATE_HOME") or ""
    if not Path(state).is_absolute():
        state = str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(state) / "leadhand"


def entries_of(settings: Settings) -> list[TrustEntry]:
    """Return everything that project files cause to be executed or contacted, in this order."""
    found = [
        *(("workers", f"project.workers:{each}", each, "") for each in settings.workers),
        *_planners(settings),
        *(("reviewer", "review.reviewers", each, "") for each in settings.policy.reviewers),
        *(
            ("MCP server", f"mcp.{name}", name, detail_text({key: table.get(key) for key in REACH}))
            for name, table in settings.mcp.items()
        ),
        *_addresses(settings),
        *(
            each
            for part in _sections(settings)
            for each in part.trusted(settings, part.of(settings))
        ),
    ]
    made = []
    for kind, key, name, detail in found:
        origin = Path(settings.origin(key.partition(":")[0]))
        if origin.name in PROJECT_FILES:
            made.append(TrustEntry(kind, name, detail, str(origin.parent)))
    return made


Found = Iterator[tuple[str, str, str, str]]
"""Kind, key of the settings, name, detail."""


def _planners(settings: Settings) -> Found:
    name = settings.planner
    if name and name != GOAL_PLANNER and not settings.book.knows(name):
        yield "planner", "project.planner", name, ""


def _addresses(settings: Settings) -> Found:
    yield from _notifications(settings.notify)
    for name, model in settings.models.items():
        if model.url:
            yield "model", f"models.{name}", name, detail_text({"url": model.url, "key": model.key})
    for tier, words in settings.tiers.items():
        yield from (("model", f"tiers.{tier}", word, "") for word in words if "@http" in word)
    if not isinstance(settings.store, Path):
        yield "database", "project.store", str(settings.store), ""


def _notifications(notify: NotifyTable) -> Found:
    """Yield the program and the servers that messages go to; secrets only by their reference."""
    if notify.command:
        detail = detail_text({"command": notify.command})
        yield "notification", "notify.command", "command", detail
    if notify.webhook:
        yield "notification", "notify.webhook", "webhook", notify.webhook.partition("?")[0]
    for name in ("email", "slack", "ntfy"):
        if (table := getattr(notify, name)) is not None:
            yield "notification", f"notify.{name}", name, detail_text(asdict(table))


def _sections(settings: Settings) -> list[Section]:
    """Return the sections of products in these settings."""
    return [each for each in map(section_of, settings.sections) if each is not None]


def untrusted_entries(settings: Settings, trust: Trust) -> list[TrustEntry]:
    """Return the entries of project files that are not trusted yet."""
    return [each for each in entries_of(settings) if not trust.allows(each)]


def require(settings: Settings, trust: Trust) -> Settings:
    """Return the settings with their trust. Raise `NotTrusted` if an entry is not trusted."""
    if missing := untrusted_entries(settings, trust):
        raise NotTrusted(refusal(missing))
    return replace(settings, trust=trust)


def refusal(missing: list[TrustEntry]) -> str:
    """Return the message of NotTrusted: the entries, and the ways to trust them."""
    folder = missing[0].folder
    names = ", ".join(map(str, missing[:6])) + (
        f" and {len(missing) - 6} more" if missing[6:] else ""
    )
    return (
        f"{folder} is not trusted, and its settings name code, servers or people: {names}. "
        "Nothing was executed or contacted. Fix: read them, then `leadhand trust "
        f"{folder}`; in CI give --trust, or set {VARIABLE}={folder}."
    )


def looking(settings: Settings, trust: Trust) -> Settings:
    """Return the settings for a command that only looks: without untrusted entries.

    `not_loaded` holds the entries left out. Agents are left out with them: their tools may be among
    them. Raise `NotTrusted` for a remote database: there is nothing to show without contacting it.
    """
    missing = untrusted_entries(settings, trust)
    if not missing:
        return replace(settings, trust=trust)
    kinds = {kind: {each.name for each in missing if each.kind == kind} for kind, *_ in missing}
    if "database" in kinds:
        raise NotTrusted(refusal(missing))
    return replace(
        settings,
        trust=trust,
        not_loaded=tuple(missing),
        workers=tuple(each for each in settings.workers if each not in kinds.get("workers", ())),
        mcp={
            name: table
            for name, table in settings.mcp.items()
            if name not in kinds.get("MCP server", ())
        },
        agents={},
        agent_folders={},
        notify=NotifyTable() if "notification" in kinds else settings.notify,
        sections={
            each.name: each.without(each.of(settings), kinds) for each in _sections(settings)
        },
    )


def refuse_code(settings: Settings, kind: str, name: str) -> None:
    """Raise `NotTrusted` for code named by neither trusted settings nor the person.

    The log of a run names sources too, and may have come with the folder. `trust` is None for
    programs that use Leadhand as a library: those chose their code themselves.
    """
    if settings.trust is None:
        return
    given = {"workers": settings.workers, "planner": (settings.planner,)}.get(kind, ())
    entry = TrustEntry(kind, name, "", str(settings.root))
    if name in given or settings.trust.allows(entry):
        return
    option = "--planner" if kind == "planner" else "--workers"
    raise NotTrusted(f"{kind} {shown(name)} is not trusted. Fix: name it with {option} {name}")


def trust_written(folder: Path, kind: str = "", name: str = "") -> None:
    """Trust the entries of a folder's settings file that this process has just written.

    `kind` and `name`: only this entry; by default all.
    """
    from leadhand.settings import load_settings

    place = str(folder.resolve())
    found = [each for each in entries_of(load_settings(folder=folder)) if each.folder == place]
    if kind:
        found = [each for each in found if (each.kind, each.name) == (kind, name)]
    with contextlib.suppress(NotAllowed):  # then the next command explains it
        Trust.here().remember(found)


def remember_named(settings: Settings) -> None:
    """Trust the workers and the planner that a flag or a variable names: `resume` loads them."""
    trust = settings.trust
    if trust is None:
        return
    named = [("workers", "project.workers", each) for each in settings.workers]
    named += [(kind, key, name) for kind, key, name, _ in _planners(settings)]
    entries = [
        TrustEntry(kind, name, "", str(settings.root))
        for kind, key, name in named
        if Path(settings.origin(key)).name not in PROJECT_FILES
    ]
    with contextlib.suppress(NotAllowed):  # then `resume` asks for them by name
        trust.remember(entries)
