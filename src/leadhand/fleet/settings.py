"""`[fleet]` and `[coders]`: a repository, the agents that work on it, and what they may do.

    [fleet]
    repo = "../shop"
    publish = "leadhand/main"
    gate = ["make check"]
    gate_time = "10 minutes"
    agents = 8
    protected = [".github/**", "Makefile"]
    daily_spend = 40.0
    planner = "lead"

    [coders.fast]
    kind = "claude"
    model = "claude-haiku-4-5"
    key = "ANTHROPIC_API_KEY"

    [coders.able]
    kind = "codex"
    model = "gpt-5-codex"
    tier = 2
    key = "OPENAI_API_KEY"
    price_in = 1.25
    price_out = 10.0

    [coders.house]
    kind = "command"
    tier = 3
    command = ["./agent.py", "{brief_file}", "--model", "{model}"]

A task goes to the coder of the lowest tier; what is too much for it goes to the next one. A
command is a list of arguments, or a line that is split into one: no shell reads it. `key` names
the environment variable that holds the key: no key stands in a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from leadhand.core.durations import seconds
from leadhand.core.wording import closest, listed, shown
from leadhand.errors import UsageError
from leadhand.settings.sections import Section, Trusted, detail_text

if TYPE_CHECKING:
    from leadhand.settings import Settings

# Names of hosts and addresses of services, as far as a text can tell that they are none.


HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?")


def is_host(text: str) -> bool:
    """A name, with a port or without."""
    port = text.partition(":")[2]
    return bool(HOST.fullmatch(text)) and 0 < int(port or 443) < 65536


def is_url(text: str) -> bool:
    """The address of a service; no key stands in it."""
    try:
        parts = urlsplit(text)
        named, port = parts.hostname, parts.port
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text and "@" not in parts.netloc
    return plain and parts.scheme in ("http", "https") and bool(named) and port != 0


Command = tuple[str, ...]
SANDBOXES = ("auto", "bubblewrap", "landlock", "none")
KINDS = ("claude", "codex", "command")
PERSON = "person"
"""Who reviews what is protected, where no coder is named."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
SHELL = ("|", "&&", "||", ";", ">", "<", "&")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What a fleet is and may do, as `[fleet]` says; durations in seconds."""

    repo: Path | None = None
    folder: Path | None = None
    """Where the fleet keeps everything; by default `.leadhand/fleet` of the project."""
    epics: Path | None = None
    """The folder that is looked at for epics; by default `epics` in the fleet's."""
    branch: str = ""
    publish: str = ""
    pull_request: Command = ()
    """The command that makes a pull request of an epic that is done."""
    gate: tuple[Command, ...] = ()
    gate_time: float = 900.0
    gate_paths: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    tampering: bool = True
    failures: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the gate, of set-up commands and of agents, so that they can run the gate themselves."""
    setup: tuple[Command, ...] = ()
    setup_hosts: tuple[str, ...] = ()
    """Whom set-up commands may reach, as host:port; nobody said: no network."""
    cache: Path | None = None
    """Dependencies that all slots share: readable for agents, never writable."""
    readable: tuple[Path, ...] = ()
    keep: tuple[str, ...] = ()
    agents: int = 4
    gates: int = 2
    strict: bool = False
    batch: int = 16
    sandbox: str = "auto"
    protected: tuple[str, ...] = ()
    reviewer: str = PERSON
    daily_spend: float = 0.0
    """In US dollars; 0: no limit."""
    stagger: float = 0.2
    drain: float = 60.0
    """How long agents may go on once the fleet is told to end."""
    time: float = 1800.0
    silence: float = 300.0
    stall: float = 0.0
    turns: int = 200
    cost: float = 0.0
    planner: tuple[str, ...] = ()
    """Who plans epics: a tier, a model or a function by name, or the words of a command."""
    plan_tasks: int = 20
    plan_files: int = 100
    plan_waves: int = 50
    plan_paths: tuple[str, ...] = ()
    """Where planned tasks may write; nothing said: everywhere but what is protected."""
    plan_programs: tuple[str, ...] = ()
    """What acceptance commands of planned tasks may start; nothing said: any program there is."""
    plan_hosts: tuple[str, ...] = ()
    """Whom a planner that is a command may reach."""
    changelog: str = ""
    """The file that gets an entry when an epic is done; nothing said: none."""
    coders: Mapping[str, CoderSettings] = field(default_factory=dict)
    """`[coders.NAME]`: the kinds of agents, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoderSettings:
    """One kind of agent, as `[coders.NAME]` says."""

    name: str
    kind: str
    model: str = ""
    tier: int = 1
    """Order of strength: the lowest tries first."""
    program: str = ""
    command: Command = ()
    hosts: tuple[str, ...] = ()
    """Whom it may reach through the proxy, as host:port."""
    url: str = ""
    """Its provider's address, where it is not the usual one."""
    key: str = ""
    price_in: float = 0.0
    price_out: float = 0.0
    """US dollars for a million tokens."""
    env: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[str, ...] = ()


# Readers of [fleet]; ValueError is the end of a sentence.


def text(value: Any) -> str:
    """A text that says something."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """Texts; one may stand by itself."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise ValueError("must be a list of texts")
    return tuple(given)


def commands(value: Any) -> tuple[Command, ...]:
    """Commands: lines, or lists of arguments."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given:
        raise ValueError('must be a list of commands, as in ["make check"]')
    return tuple(map(_argv, given))


def _argv(given: Any) -> Command:
    if isinstance(given, str):
        try:
            given = shlex.split(given)
        except ValueError as error:
            raise ValueError(f"has a command that cannot be split ({error})") from None
    if not isinstance(given, list) or not given or not all(isinstance(w, str) for w in given):
        raise ValueError('must hold commands, as in ["make check", ["pytest", "-q"]]')
    if not given[0] or any(word in SHELL for word in given):
        raise ValueError(
            f"has {shown(shlex.join(given))}, which needs a shell, and none reads it; "
            "put it into a script"
        )
    return tuple(given)


def one_of(*words: str) -> Any:
    """A reader for one of some words."""

    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return read


def variables(value: Any) -> dict[str, str]:
    """A table of texts by the names of variables."""
    if not isinstance(value, dict) or not all(
        isinstance(v, str) and VARIABLE.fullmatch(k) for k, v in value.items()
    ):
        raise ValueError('must be a table of texts, as in {PATH = "/opt/tools/bin:/usr/bin"}')
    return dict(value)


def pattern(value: Any) -> str:
    """A regular expression with a group."""
    try:
        found = re.compile(text(value))
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    if not found.groups:
        raise ValueError("must have a group: the name of the test that failed")
    return str(value)


def whole(least: int, most: int) -> Any:
    """A reader for a whole number."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def dollars(value: Any) -> float:
    """An amount of money."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError("must be US dollars, as in 40.0")
    return float(value)


def flag(value: Any) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - the end of a sentence
    return value


def duration(value: Any) -> float:
    """A time; 0 where there is no limit."""
    return 0.0 if value == 0 and not isinstance(value, bool) else seconds(value)


def limit(value: Any) -> float:
    """A time that leaves one a chance."""
    if not (found := duration(value)) > 0:
        raise ValueError("must be above 0: nobody would have time for anything")
    return found


def hosts(value: Any) -> tuple[str, ...]:
    """Hosts that may be reached."""
    found = texts(value)
    for host in found:
        if not is_host(host):
            raise ValueError(
                f"has {shown(host)}, which is no host; a name is, as in example.org:443"
            )
    return found


def inside(value: Any) -> str:
    """A path in the repository, and not git's own."""
    parts = text(value).lower().split("/")
    if value.startswith("/") or {"..", ".git"} & {*parts} or not {*parts} - {"", "."}:
        raise ValueError("must be in the repository, and none of git's own")
    return str(value)


def insides(value: Any) -> tuple[str, ...]:
    """Paths in the repository."""
    return tuple(map(inside, texts(value)))


READERS: dict[str, Any] = {
    **dict.fromkeys(("repo", "folder", "epics", "cache", "branch", "publish"), text),
    **dict.fromkeys(("gate", "setup"), commands),
    **dict.fromkeys(("gate_paths", "flaky", "reports", "readable", "protected"), texts),
    **dict.fromkeys(("planner", "plan_paths", "plan_programs"), texts),
    **dict.fromkeys(("stagger", "drain", "stall"), duration),
    **dict.fromkeys(("gate_time", "time", "silence"), limit),
    **dict.fromkeys(("daily_spend", "cost"), dollars),
    **dict.fromkeys(("setup_hosts", "plan_hosts"), hosts),
    "pull_request": _argv,
    "failures": pattern,
    "env": variables,
    "agents": whole(1, 2000),
    "gates": whole(1, 256),
    "batch": whole(1, 256),
    "turns": whole(0, 100_000),
    "plan_tasks": whole(1, 200),
    "plan_files": whole(1, 10_000),
    "plan_waves": whole(1, 1000),
    "strict": flag,
    "tampering": flag,
    "sandbox": one_of(*SANDBOXES),
    "reviewer": text,
    "changelog": inside,
    "keep": insides,
}
PATHS = ("repo", "folder", "epics", "cache")


def fleet_settings(read: Mapping[str, Any], folders: Mapping[str, Path]) -> FleetSettings:
    """`[fleet]` of what was read; a path is relative to the file it stands in."""
    given: dict[str, Any] = {}
    for key in READERS:
        dotted = f"fleet.{key}"
        if dotted not in read:
            continue
        value = read[dotted]
        if key in PATHS:
            value = folders[dotted] / Path(value).expanduser()
        elif key == "readable":
            value = tuple(folders[dotted] / Path(each).expanduser() for each in value)
        given[key] = value
    coders = {
        dotted.partition(".")[2]: each
        for dotted, each in read.items()
        if dotted.startswith("coders.")
    }
    return FleetSettings(**given, coders=coders)


def fleet_rows(settings: FleetSettings) -> dict[str, Any]:
    """Every value of `[fleet]` as plain data, for views."""
    return {f"fleet.{key}": _plain(getattr(settings, key)) for key in READERS}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    # Of variables only the names: a value may be a secret.
    return sorted(value) if isinstance(value, Mapping) else value


# Coders.


def read_coder(origin: str, name: str, value: Any) -> CoderSettings:
    """A `[coders.NAME]` table; UsageError says what is wrong, and where."""
    place = f"{origin}: [coders.{name}]"
    if not NAME.fullmatch(name):
        raise UsageError(f"{place}: a name has small letters, digits, - and _")
    if not isinstance(value, dict):
        raise UsageError(f"{place} must be a table, written [coders.{name}]")
    known = [each.name for each in fields(CoderSettings) if each.name != "name"]
    for key in value:
        if key not in known:
            meant = closest(key, known)
            fix = f'Did you mean "{meant}"?' if meant else f"There are: {listed(known, 40)}."
            raise UsageError(f"{place} has no key {shown(key)}. {fix}")
    if value.get("kind") not in KINDS:
        raise UsageError(f"{place}: kind must be one of {', '.join(KINDS)}")
    wrong = next(_wrong(value), "")
    if wrong:
        raise UsageError(f"{place}: {wrong}")
    made = dict(value)
    for key in ("command", "hosts", "readable"):
        if key in made:
            made[key] = tuple(made[key])
    return CoderSettings(name=name, **made)


def _wrong(table: Mapping[str, Any]) -> Iterator[str]:
    for key in ("model", "program", "url"):
        if not isinstance(table.get(key, ""), str):
            yield f"{key} must be a text"
    for key in ("command", "hosts", "readable"):
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            yield f"{key} must be a list of texts"
    command = table["kind"] == "command"
    if command and not table.get("command"):
        yield 'its command is missing. Fix: write command = ["agent", "{brief_file}"].'
    if not command and "command" in table:
        yield 'command goes with kind = "command". Fix: name the program by program = "…".'
    for host in table.get("hosts", []):
        if not is_host(host):
            yield f"{shown(host)} is no host. Fix: write a name, as in api.example.com:443."
    if table.get("url") and not is_url(table["url"]):
        yield (
            "url must be the address of a service, without a name or a key in it. "
            "Fix: write one that begins with https:// or http://, as in https://api.example.com/v1."
        )
    key = table.get("key", "")
    if not isinstance(key, str) or (key and not VARIABLE.fullmatch(key)):
        yield (
            "key must name the environment variable that holds the key, never the key itself. "
            'Fix: write key = "MY_KEY" and set that variable.'
        )
    tier = table.get("tier", 1)
    if isinstance(tier, bool) or not isinstance(tier, int) or not 1 <= tier <= 100:
        yield "tier must be a whole number from 1 to 100; the lowest tries first"
    for name in ("price_in", "price_out"):
        price = table.get(name, 0)
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 1e9:
            yield f"{name} must be dollars for a million tokens"
    try:
        variables(table.get("env", {}))
    except ValueError as error:
        yield f"env {error}"


# What the settings know of these tables.


def fleet_of(settings: Settings) -> FleetSettings:
    """Return `[fleet]` and `[coders]` of the settings, the defaults where nothing is set."""
    found: FleetSettings = SECTION.of(settings)
    return found


def with_fleet(settings: Settings, fleet: FleetSettings) -> Settings:
    """Return the settings with another `[fleet]`."""
    return replace(settings, sections={**settings.sections, SECTION.name: fleet})


def _trusted(settings: Settings, fleet: FleetSettings) -> Trusted:
    """Yield everything that a fleet executes or contacts."""
    if fleet.planner and not settings.book.knows(fleet.planner[0]):
        yield "fleet planner", "fleet.planner", " ".join(fleet.planner), ""
    for key in ("gate", "setup"):
        for command in getattr(fleet, key):
            yield f"fleet {key}", f"fleet.{key}", " ".join(command), ""
    if fleet.pull_request:
        yield "pull request", "fleet.pull_request", " ".join(fleet.pull_request), ""
    for name, coder in fleet.coders.items():
        detail = {
            "command": list(coder.command),
            "program": coder.program,
            "url": coder.url,
            "key": coder.key,
            "hosts": list(coder.hosts),
        }
        yield "coder", f"coders.{name}", f"{name}, {coder.kind}", detail_text(detail)


def _without(fleet: FleetSettings, kinds: Mapping[str, set[str]]) -> FleetSettings:
    """Return the settings without coders that are not trusted."""
    gone = {name.partition(",")[0] for name in kinds.get("coder", ())}
    kept = {name: each for name, each in fleet.coders.items() if name not in gone}
    return replace(fleet, coders=kept)


SECTION = Section(
    name="fleet",
    tables={"fleet": READERS, "coders": read_coder},
    make=fleet_settings,
    rows=fleet_rows,
    trusted=_trusted,
    without=_without,
    has_workers=lambda fleet: bool(fleet.coders),
)
