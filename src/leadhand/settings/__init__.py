"""One frozen `Settings`: the configuration, with the origin of each value.

Precedence: flag > LEADHAND_* > leadhand.toml > pyproject.toml [tool.leadhand] > user config. The
two project files are looked for in the working folder and upwards; the user's is
`$XDG_CONFIG_HOME/leadhand/config.toml`.

    [project]
    workers = ["workers.py", "company.workers"]
    planner = "planning:next_step"

    [policy]
    timeout = "10 minutes"

    [notify]
    command = ["notify-send", "{kind}", "{run}: {text}"]

    [audit]
    anchor = "/mnt/elsewhere/leadhand.anchors"

    [workers.deploy]
    command = ["./deploy.sh", "{version}"]

    [tiers]
    lead = "anthropic:claude-opus-4-5"
    hand = ["small", "openai:gpt-5-mini"]

    [models.small]
    provider = "chat"
    model = "qwen3"
    url = "http://127.0.0.1:8080/v1"

    [agents.research]
    tier = "hand"
    tools = ["search", "fetch"]
    instructions = "Find what was asked for; name your sources."

    [mcp.files]
    command = ["files-server", "/data"]

In the environment a key of `[project]` is LEADHAND_STORE, LEADHAND_WORKERS (a list with commas) and
so on; keys of other tables have two underscores: LEADHAND_POLICY__TIMEOUT.

A key that is not known is an error, with its file and the key that was probably meant: a misspelt
limit that is silently ignored is no limit. Paths are relative to the file that contains them.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.audit.anchors import Anchoring
from leadhand.codec.documents import dangling
from leadhand.codec.syntax_errors import toml_problem
from leadhand.codec.tables import TableError, keys
from leadhand.codec.tables import read as read_value
from leadhand.core.plan.model import Doc
from leadhand.core.policy import Policy
from leadhand.core.wording import closest, listed, shown
from leadhand.errors import NotAllowed, UsageError
from leadhand.models.names import ModelName
from leadhand.settings.contexts import ContextSettings, check_context, find_context
from leadhand.settings.folders import FOLDER
from leadhand.settings.models import check_tiers
from leadhand.settings.notify import NotifyTable, notify_settings
from leadhand.settings.review import refuse_namesakes
from leadhand.settings.schema import APPROVERS, NAMED, SCHEMAS, TABLES
from leadhand.settings.sections import Section, section_of, tables
from leadhand.stores.location import StoreLocation, place_of

if TYPE_CHECKING:
    from leadhand.models.registry import ModelRegistry
    from leadhand.settings.trust import Trust, TrustEntry

PROJECT_FILE = "leadhand.toml"
DATABASE = "leadhand.db"
FILE_BYTES_MAX = 1 << 20
DEFAULT = "default"
DECLARING = ("workers", "mcp", "agents")
"""Tables in which every key is a name and declares a part."""


class Retention(NamedTuple):
    """The settings of `[archive]`: what is archived, where to, and when archives end."""

    older_than_s: float | None = None
    """Runs that ended longer ago than this are archived."""
    folder: Path | None = None
    """None: beside the database, in the folder with the suffix `.archives`."""
    delete_after_s: float | None = None
    """Archives of which every run ended longer ago than this are deleted; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured."""

    root: Path
    """The folder of the project: that of its settings file, else the working folder."""
    store: StoreLocation
    name: str = ""
    """The name of the project, if the settings give one."""
    environment: str = ""
    """The environment that runs are started in, if the settings name one."""
    workers: tuple[str, ...] = ()
    """Modules, or absolute paths of Python files, with workers."""
    declared: Mapping[str, Doc] = field(default_factory=dict)
    """`[workers.NAME]` tables as written in the file."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """For each declared worker, the folder of the file that declares it."""
    mcp: Mapping[str, Doc] = field(default_factory=dict)
    """`[mcp.NAME]` tables as written in the file."""
    mcp_folders: Mapping[str, Path] = field(default_factory=dict)
    """For each MCP server, the folder of the file that declares it."""
    agents: Mapping[str, Doc] = field(default_factory=dict)
    """`[agents.NAME]` tables as written in the file."""
    agent_folders: Mapping[str, Path] = field(default_factory=dict)
    tiers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    models: Mapping[str, ModelName] = field(default_factory=dict)
    planner: str = ""
    """A model, a tier, `module:function`, or `file.py:function` with the file's absolute path."""
    planner_given: str = ""
    """The same, as written in the configuration."""
    planning: Doc = field(default_factory=dict)
    """How a model plans, if one does."""
    telemetry: Doc = field(default_factory=dict)
    actor: str = ""
    policy: Policy = field(default_factory=Policy)
    notify: NotifyTable = field(default_factory=NotifyTable)
    """The channels that tell people when a run waits for them or has ended."""
    anchoring: Anchoring = field(default_factory=Anchoring)
    """Where and how often the head of the log is recorded outside the database."""
    retention: Retention = field(default_factory=Retention)
    """Which runs are archived, where to, and when archives end."""
    approver_key: Path | None = None
    """The key that signs this person's approvals."""
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Settings of products (`[server]`, `[fleet]`), by the name of their section."""
    context: ContextSettings | None = None
    """The chosen context, as `[context.NAME]` describes it."""
    contexts: tuple[str, ...] = ()
    """The contexts that can be chosen."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """For each key that was set: the flag, variable or file it came from."""
    files: tuple[Path, ...] = ()
    """The settings files that were read."""
    trust: Trust | None = None
    """The trusted code and addresses; None for a program that uses Leadhand as a library: all."""
    not_loaded: tuple[TrustEntry, ...] = ()
    """Entries of project files that were left out because they are not trusted."""

    @property
    def book(self) -> ModelRegistry:
        """The configured models, by name and by tier."""
        from leadhand.models.registry import ModelRegistry

        return ModelRegistry(self.tiers, self.models)

    def origin(self, key: str) -> str:
        """Return the origin of a value."""
        return self.origins.get(key, DEFAULT)


class _Value(NamedTuple):
    value: Any
    origin: str
    folder: Path


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    context: str | None = None,
) -> Settings:
    """Read all settings that apply in a folder; `flags` holds dotted keys ("project.store").

    A flag that is None was not given; `environ` replaces the process's environment, and `context`
    chooses a `[context.NAME]`. Raise `UsageError`, which names the file or variable, the key, and
    what was probably meant.
    """
    env = os.environ if environ is None else environ
    here = (folder or Path.cwd()).resolve()
    found: dict[str, _Value] = {}
    files: list[Path] = []
    root = here
    for path, table in _documents(env, here):
        files.append(path)
        if path.name in (PROJECT_FILE, "pyproject.toml"):
            root = path.parent
        found |= {key: _Value(value, str(path), path.parent) for key, value in _flat(path, table)}
    places = {
        key.partition(".")[2]: found.pop(key) for key in list(found) if key.startswith("context.")
    }
    tables = {name: each.value for name, each in places.items()}
    place = None if context is None else find_context(tables, context)
    if place is not None:
        given = places[place.name]
        policy = given.value.get("policy", {})
        found |= {f"policy.{key}": given._replace(value=value) for key, value in policy.items()}
    found |= {key: _Value(value, name, here) for key, name, value in _from_environment(env)}
    for key, value in (flags or {}).items():
        if value is not None:
            _refuse_unknown(key)
            found[key] = _Value(value, f"flag --{key.rpartition('.')[2].replace('_', '-')}", here)
    made = _settings(found, root, tuple(reversed(files)))
    return replace(made, context=place, contexts=tuple(places))


def _documents(env: Mapping[str, str], here: Path) -> Iterator[tuple[Path, Doc]]:
    """Yield the existing settings files with their tables, the weakest first."""
    config = env.get("XDG_CONFIG_HOME") or str(
        Path(env.get("HOME") or "~").expanduser() / ".config"
    )
    user = Path(config) / "leadhand" / "config.toml"
    if _present(user):
        yield user, _read(user)
    project = next(_upwards(here, PROJECT_FILE), None)
    for path in _upwards(here, "pyproject.toml"):
        table = _read(path).get("tool", {}).get("leadhand")
        if table is not None:
            _refuse_strangers(path, here)
            if not isinstance(table, dict):
                raise UsageError(f"{path}: [tool.leadhand] must be a table")
            yield path, table
            break
    if project is not None:
        _refuse_strangers(project, here)
        yield project, _read(project)


def _upwards(here: Path, name: str) -> Iterator[Path]:
    return (path for folder in (here, *here.parents) if _present(path := folder / name))


def _present(path: Path) -> bool:
    """Return whether a settings file is there. Raise `UsageError` for one that is no file.

    Without the error the settings of a folder above would apply, with their store.
    """
    if path.is_file():
        return True
    if path.is_symlink() and not path.exists():
        raise UsageError(f"{path}: {dangling(path)}. Fix: correct the link, or delete it")
    if path.exists():
        what = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"{path}: is {what}, and must be a settings file. Fix: move it away")
    return False


def _refuse_strangers(path: Path, here: Path) -> None:
    """Raise `NotAllowed` for a file of another user above the folder: settings name code to run."""
    if path.parent == here:
        return
    owner = path.stat().st_uid
    if owner not in (0, os.geteuid(), here.stat().st_uid):
        raise NotAllowed(
            f"{path}: belongs to another user, and settings name code that is run. "
            f"Fix: put a {PROJECT_FILE} of your own into {here}."
        )


def _read(path: Path) -> Doc:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not TOML: it is not UTF-8. Fix: save it as UTF-8.") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, line = toml_problem(str(error), text)
        raise UsageError(f"{path}:{line}: is not TOML: {problem}") from None


def _flat(path: Path, document: Doc) -> Iterator[tuple[str, Any]]:
    """Yield a file's values by dotted key; each declared worker is one value."""
    for table, content in document.items():
        owned = table in TABLES or section_of(table) is not None
        if not owned:
            raise _unknown(path, table, (*TABLES, *tables()), "table")
        if not isinstance(content, dict):
            raise UsageError(f"{path}: {table} must be a table, written [{table}]")
        for key, value in content.items():
            if table == "context":
                check_context(path, key, value)
            elif table not in DECLARING and _keys(table) is None:
                pass  # The names are free.
            elif table in DECLARING:
                if not isinstance(value, dict):
                    fix = "Fix: modules that hold workers stand in [project] workers = [...]."
                    more = f" {fix}" if table == "workers" else ""
                    raise UsageError(
                        f"{path}: {table}.{key} must be a table, written [{table}.{key}].{more}"
                    )
            elif key not in (known := _keys(table) or ()):
                raise _unknown(path, key, known, "key", f"[{table}] ")
            yield f"{table}.{key}", value


def _refuse_unknown(flag: str) -> None:
    """Raise `UsageError` if a dotted key names no setting."""
    table, _, key = flag.partition(".")
    if table not in TABLES and section_of(table) is None:
        raise _unknown(shown(flag), table, (*TABLES, *tables()), "table")
    known = _keys(table)
    if known is not None and key not in known:
        raise _unknown(shown(flag), key, known, "key", f"[{table}] ")


def _keys(table: str) -> tuple[str, ...] | None:
    """Return the keys of a table; None if its keys are free names."""
    section = section_of(table) if table not in TABLES else None
    schema = SCHEMAS.get(table) if section is None else section.tables[table]
    return tuple(keys(schema)) if isinstance(schema, type) else None


def _unknown(
    where: object, word: str, known: tuple[str, ...], what: str, place: str = ""
) -> UsageError:
    meant = closest(word, known)
    fix = f'Did you mean "{meant}"?' if meant else f"There are: {listed(known, 40)}."
    return UsageError(f"{where}: {place}has no {what} {shown(word)}. {fix}")


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the variables that are settings. Others that begin with LEADHAND_ have other uses."""
    for name in sorted(env):
        if not name.startswith("LEADHAND_") or not env[name]:
            continue
        table, two, key = name.removeprefix("LEADHAND_").lower().partition("__")
        if not two:
            table, key = "project", table
            if key not in (_keys(table) or ()):
                continue
        elif table not in SCHEMAS and section_of(table) is None:
            raise _unknown(name, table, (*SCHEMAS, *tables()), "table")
        elif key not in (known := _keys(table) or ()):
            raise _unknown(name, key, known, "key", f"[{table}] ")
        yield f"{table}.{key}", name, _from_text(env[name], table, key)


def _from_text(text: str, table: str, key: str) -> Any:
    """Return the value of a variable's text: JSON if it is JSON, a list with commas for workers."""
    if (table, key) == ("project", "workers"):
        return [each.strip() for each in text.split(",") if each.strip()]
    if table == "project" or key == "webhook":
        return text
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return text if found is None else found


def _settings(found: Mapping[str, _Value], root: Path, files: tuple[Path, ...]) -> Settings:
    read = {
        dotted: _value(dotted, given)
        for dotted, given in found.items()
        if dotted.partition(".")[0] not in DECLARING
    }
    policy = {
        each.name: read[f"{table}.{key}"]
        for table in ("policy", "review")
        for key, each in keys(SCHEMAS[table]).items()
        if each.name in Policy.__struct_fields__ and f"{table}.{key}" in read
    }
    if people := _under("approvers", read):
        try:
            refuse_namesakes(people)
        except ValueError as error:
            raise UsageError(f"{files[0] if files else 'settings'}: [approvers] {error}") from None
        policy["approvers"] = people
    store = found.get("project.store", _Value(DATABASE, DEFAULT, root / FOLDER))
    tiers, models = _under("tiers", read), _under("models", read)
    check_tiers(tiers, models, {key: each.origin for key, each in found.items()})
    declared, servers, agents = (
        {key.partition(".")[2]: each for key, each in found.items() if key.startswith(f"{table}.")}
        for table in DECLARING
    )
    sources = found.get("project.workers")
    return Settings(
        root=root,
        store=place_of(store.value, store.folder, root / FOLDER),
        workers=tuple(source_of(each, sources.folder) for each in read["project.workers"])
        if sources
        else (),
        declared={name: each.value for name, each in declared.items()},
        folders={name: each.folder for name, each in declared.items()},
        mcp={name: each.value for name, each in servers.items()},
        mcp_folders={name: each.folder for name, each in servers.items()},
        agents={name: each.value for name, each in agents.items()},
        agent_folders={name: each.folder for name, each in agents.items()},
        tiers=tiers,
        models=models,
        **_planner(found.get("project.planner")),
        planning=_planning(read, found),
        telemetry=_under("telemetry", read),
        name=read.get("project.name", ""),
        environment=read.get("project.environment", ""),
        actor=read.get("project.actor", ""),
        policy=Policy(**policy),
        notify=notify_settings(read, {key: given.folder for key, given in found.items()}),
        approver_key=_path_of(found.get("review.key")),
        sections={
            each.name: each.make(read, {key: given.folder for key, given in found.items()})
            for each in _sections(read)
        },
        anchoring=Anchoring(
            _path_of(found.get("audit.anchor")),
            read.get("audit.every", Anchoring().every_s),
            _path_of(found.get("audit.key")),
        ),
        retention=Retention(
            read.get("archive.older_than"),
            _path_of(found.get("archive.folder")),
            read.get("archive.delete_after"),
        ),
        origins={key: each.origin for key, each in found.items()},
        files=files,
    )


def _value(dotted: str, given: _Value) -> Any:
    """Return the value of one key. Raise `UsageError`, which names its place."""
    table, _, key = dotted.partition(".")
    section = section_of(table) if table not in TABLES else None
    schema = NAMED.get(table, SCHEMAS.get(table)) if section is None else section.tables[table]
    if schema is not None and not isinstance(schema, type):
        return schema(given.origin, key, given.value)
    try:
        return read_value(given.value, APPROVERS if schema is None else keys(schema)[key].type)
    except TableError as error:
        first = error.mistakes[0]
        inside = f".{first.place}" if first.place else ""
        # A secret that was written in place of its reference is not repeated.
        value = "" if inside or "secret" in key else f" (it is {shown(given.value)})"
        raise UsageError(f"{given.origin}: {key}{inside} {first.what}{value}") from None


def _sections(read: Doc) -> list[Section]:
    """Return the sections of products with any value set, each once."""
    names = dict.fromkeys(dotted.partition(".")[0] for dotted in read)
    found = [section_of(name) for name in names if name not in TABLES]
    return list({each.name: each for each in found if each is not None}.values())


def _under(table: str, read: Doc) -> Doc:
    """Return the values of a table, by key."""
    return {
        key.partition(".")[2]: each for key, each in read.items() if key.startswith(f"{table}.")
    }


def _planning(read: Doc, found: Mapping[str, _Value]) -> Doc:
    given = _under("planner", read)
    prompts = _path_of(found.get("planner.prompts"))
    return given if prompts is None else {**given, "prompts": prompts}


def _planner(given: _Value | None) -> Doc:
    """Return the configured planner; a file's path is relative to the file that names it."""
    if given is None:
        return {}
    name = str(given.value)
    place, _, function = name.rpartition(":")
    found = f"{source_of(place, given.folder)}:{function}" if place.endswith(".py") else name
    return {"planner": found, "planner_given": name}


def _path_of(given: _Value | None) -> Path | None:
    return None if given is None else given.folder / Path(given.value).expanduser()


def source_of(name: str, folder: Path) -> str:
    """Return a source of workers: a module's name unchanged, a file's path made absolute."""
    if name.endswith(".py") or os.sep in name:
        return str((folder / Path(name).expanduser()).resolve())
    return name
