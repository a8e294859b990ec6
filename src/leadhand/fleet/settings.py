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

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from leadhand.codec.tables import (
    Duration,
    KeyVariable,
    Misplaced,
    Price,
    TableSchema,
    Text,
    Texts,
    read,
    read_table,
    reader,
)
from leadhand.core.durations import seconds
from leadhand.core.wording import shown
from leadhand.errors import UsageError
from leadhand.fleet.boundaries import Sharing
from leadhand.fleet.forge.settings import ForgeTable
from leadhand.fleet.machines.settings import MachinesTable
from leadhand.fleet.status.ladder import MAIN_REPOSITORY
from leadhand.settings.notify import referenced_files, with_folder
from leadhand.settings.sections import Section, Trusted, detail_text

if TYPE_CHECKING:
    from leadhand.settings import Settings

# Names of hosts and addresses of services, as far as a text can tell that they are none.


HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?")


def is_host(text: str) -> bool:
    """Return whether a text is a host name, with a port or without."""
    port = text.partition(":")[2]
    return bool(HOST.fullmatch(text)) and 0 < int(port or 443) < 65536


def is_url(text: str) -> bool:
    """Return whether a text is the address of a service, without a key in it."""
    try:
        parts = urlsplit(text)
        named, port = parts.hostname, parts.port
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text and "@" not in parts.netloc
    return plain and parts.scheme in ("http", "https") and bool(named) and port != 0


Command = tuple[str, ...]
PERSON = "person"
"""Who reviews what is protected, where no coder is named."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
SHELL = ("|", "&&", "||", ";", ">", "<", "&")


# Types of values; a function raises ValueError, the end of a sentence.


def _commands(value: Any) -> tuple[Command, ...]:
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


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(v, str) and VARIABLE.fullmatch(k) for k, v in value.items()
    ):
        raise ValueError('must be a table of texts, as in {PATH = "/opt/tools/bin:/usr/bin"}')
    return dict(value)


def _regeneration(value: Any) -> dict[str, Command]:
    if not isinstance(value, dict) or not value:
        raise ValueError('must be a table of commands, as in {"uv.lock" = ["uv", "lock"]}')
    return {read(name, Text): _argv(argv) for name, argv in value.items()}


def _driver(value: Any) -> Command:
    found = _argv(value)
    for place in ("{base}", "{ours}", "{theirs}", "{output}"):
        if not any(place in word for word in found):
            raise ValueError(f"must have {place}: the driver reads three files and writes one")
    return found


def _pattern(value: Any) -> str:
    try:
        found = re.compile(read(value, Text))
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    if not found.groups:
        raise ValueError("must have a group: the name of the test that failed")
    return str(value)


def _duration(value: Any) -> float:
    """Read a time; 0 where there is no limit."""
    return 0.0 if value == 0 and not isinstance(value, bool) else seconds(value)


def _limit(value: Any) -> float:
    if not (found := _duration(value)) > 0:
        raise ValueError("must be above 0")
    return found


def _hosts(value: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = read(value, Texts)
    for host in found:
        if not is_host(host):
            raise ValueError(
                f"has {shown(host)}, which is no host; a name is, as in example.org:443"
            )
    return found


def _inside(value: Any) -> str:
    text: str = read(value, Text)
    parts = text.lower().split("/")
    if text.startswith("/") or {"..", ".git"} & {*parts} or not {*parts} - {"", "."}:
        raise ValueError("must be in the repository, and none of git's own")
    return text


def _insides(value: Any) -> tuple[str, ...]:
    return tuple(map(_inside, read(value, Texts)))


def _path(value: Any) -> Path:
    return Path(read(value, Text)).expanduser()


def _paths(value: Any) -> tuple[Path, ...]:
    return tuple(map(_path, read(value, Texts)))


if TYPE_CHECKING:
    Argv: TypeAlias = Command
    Commands: TypeAlias = tuple[Command, ...]
    Variables: TypeAlias = dict[str, str]
    Regeneration: TypeAlias = dict[str, Command]
    Driver: TypeAlias = Command
    Pattern: TypeAlias = str
    Time: TypeAlias = float
    Limit: TypeAlias = float
    Hosts: TypeAlias = tuple[str, ...]
    Inside: TypeAlias = str
    Insides: TypeAlias = tuple[str, ...]
    FilePath: TypeAlias = Path
    FilePaths: TypeAlias = tuple[Path, ...]
else:
    Argv = reader(_argv, "a command")
    Commands = reader(_commands, "a list of commands")
    Variables = reader(_variables, "a table of texts")
    Regeneration = reader(_regeneration, "a table of commands")
    Driver = reader(_driver, "a command")
    Pattern = reader(_pattern, "a regular expression")
    Time = reader(_duration, "a duration")
    Limit = reader(_limit, "a duration")
    Hosts = reader(_hosts, "a list of hosts")
    Inside = reader(_inside, "a path in the repository")
    Insides = reader(_insides, "paths in the repository")
    FilePath = reader(_path, "a path")
    FilePaths = reader(_paths, "a list of paths")

Dollars = Annotated[float, Meta(ge=0, lt=1e9, description="US dollars, as in 40.0")]
TIER = Meta(ge=1, le=100, description="a whole number from 1 to 100; the lowest tries first")


APPEND = tuple(
    f"{folder}{name}*"
    for name in ("CHANGELOG", "CHANGES", "HISTORY", "NEWS")
    for folder in ("", "**/")
)
"""Names of changelogs, in any folder."""
LOCK_FILES = tuple(
    f"{folder}{name}"
    for name in ("*.lock", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum")
    for folder in ("", "**/")
)
"""Names of lock files, in any folder: a merge of two is no lock of both."""


class RepositoryTable(TableSchema, kw_only=True):
    """The keys of `[fleet.repositories.NAME]`: a repository besides the main one."""

    path: FilePath
    """The git repository."""
    branch: Text = ""
    """The branch that the fleet starts from and follows. Default: the one that is checked out."""
    publish: Text = ""
    """The branch of the repository that receives merged changes. Default: none."""
    gate: Commands | None = None
    """Commands that must succeed before a change is merged. Default: those of `[fleet]`."""
    gate_time: Limit | None = None
    """The longest that each gate command may take. Default: that of `[fleet]`."""
    gate_paths: Texts = ()
    """The files that belong to the gate itself. Default: the files that its commands name."""
    flaky: Texts = ()
    """Tests that are known to be flaky."""
    reports: Texts | None = None
    """JUnit XML files that the gate commands write. Default: those of `[fleet]`."""
    failures: Pattern | None = None
    """A regular expression whose first group is the name of a failed test. Default: that of
    `[fleet]`."""
    setup: Commands | None = None
    """Commands that prepare a checkout. Default: those of `[fleet]`."""
    env: Variables = msgspec.field(default_factory=dict)
    """Environment variables of the gate and of set-up commands, besides those of `[fleet]`."""
    keep: Insides | None = None
    """Paths of a slot that are kept from task to task. Default: those of `[fleet]`."""
    append: Texts | None = None
    """Files that grow, such as changelogs. Default: those of `[fleet]`."""
    exclusive: Texts | None = None
    """Files that one task at a time writes. Default: those of `[fleet]`."""
    protected: Texts | None = None
    """Paths whose changes need a review besides the gate. Default: those of `[fleet]`."""
    plan_paths: Texts | None = None
    """Paths that planned tasks may write. Default: those of `[fleet]`."""
    forge: ForgeTable | None = None
    """Its code host, a table `[fleet.repositories.NAME.forge]` with the keys of `[fleet.forge]`."""


def _repositories(value: Any) -> dict[str, RepositoryTable]:
    found: dict[str, RepositoryTable] = read(value, dict[str, RepositoryTable])
    for name in found:
        if not NAME.fullmatch(name) or name == MAIN_REPOSITORY:
            raise Misplaced(
                (name,),
                "cannot be its name: a name has small letters, digits, - and _, and "
                f"{MAIN_REPOSITORY!r} is the repository of [fleet] itself",
            )
    return found


if TYPE_CHECKING:
    RepositoryTables: TypeAlias = dict[str, RepositoryTable]
else:
    RepositoryTables = reader(_repositories, "a table for each repository")


class CiTable(TableSchema, kw_only=True):
    """The keys of `[fleet.ci]`: the CI of the code host as the gate of the merge queue."""

    where: Literal["local", "remote", "both"] = "both"
    """Where a change is tested before it lands: by the commands of `gate` alone, by CI on a
    candidate branch alone, or by both, CI then only on what passed the commands."""
    checks: Texts
    """The names of the checks that must pass on a candidate branch. One that does not report, is
    skipped or is neutral has not passed."""
    app: str = ""
    """The app that must have reported the checks, such as `github-actions`; on GitLab the name of
    an account. Default: any."""
    accept: tuple[Literal["neutral", "skipped"], ...] = ()
    """Ends of a required check that count as passed besides success."""
    time: Duration = 7200.0
    """How long the checks of a candidate branch may take."""
    start_time: Duration = 900.0
    """How long a candidate branch may be without a single required check."""
    candidates: Annotated[int, Meta(ge=1, le=256)] = 2
    """The most candidate branches at once: how far the merge queue tests ahead of main."""
    tries: Annotated[int, Meta(ge=1, le=20)] = 3
    """How many candidate branches of the same content are tested when the host cancels a check,
    ends it for time or never starts it. No attempt of an agent is used up."""
    on_trouble: Literal["wait", "fail"] = "wait"
    """What happens when the tries are used up: the change waits and `fleet status` says why, or it
    goes back to its agent as a failed attempt."""

    def __post_init__(self) -> None:
        """Raise ValueError, a sentence, for what does not go together."""
        if not self.checks and self.where != "local":
            raise ValueError(
                "checks must name at least one check, since a candidate without one is never "
                'green. Fix: write checks = ["build", "test"], as the host shows their names.'
            )


class FleetTable(TableSchema):
    """The keys of `[fleet]`: what a fleet is and may do; durations in seconds."""

    repo: FilePath | None = None
    """The git repository. Default: the option `--repo`."""
    folder: FilePath | None = None
    """The folder in which the fleet keeps its clone, logs and database. Default:
    `.leadhand/fleet`."""
    checkouts: FilePath | None = None
    """The folder of the checkouts that agents and gates work in. Default: `leadhand-checkouts`
    beside `.leadhand`, or `folder` where that is given."""
    epics: FilePath | None = None
    """The folder that is watched for epics. Default: `epics` in `folder`."""
    branch: Text = ""
    """The branch of the repository that the fleet starts from and follows. Default: the branch that
    was checked out when the fleet began."""
    publish: Text = ""
    """The branch of the repository that receives merged changes. Default: none."""
    pull_request: Argv = ()
    """The command that opens a pull request for a finished epic."""
    gate: Commands = ()
    """Commands that must succeed before a change is merged. No shell reads them."""
    gate_time: Limit = 900.0
    """The longest that each gate command may take."""
    gate_paths: Texts = ()
    """The files that belong to the gate itself. Default: the files that its commands name."""
    flaky: Texts = ()
    """Tests that are known to be flaky."""
    reports: Texts = ()
    """JUnit XML files that the gate commands write, as in `["build/reports/*.xml"]`."""
    tampering: bool = True
    """Whether a change of the test machinery needs approval."""
    failures: Pattern = ""
    """A regular expression whose first group is the name of a failed test in the gate's output."""
    env: Variables = msgspec.field(default_factory=dict)
    """Environment variables of the gate, of set-up commands and of agents."""
    instructions: bool = True
    """Whether agents are told what `AGENTS.md` and `CLAUDE.md` of the repository say, those in
    folders of their paths too."""
    skills: bool = True
    """Whether agents are told which skills the repository has in `.claude/skills` and
    `.agents/skills`, and what each is for."""
    setup: Commands = ()
    """Commands that prepare a checkout."""
    setup_hosts: Hosts = ()
    """Hosts, as `host:port`, that set-up commands may contact. Default: no network."""
    cache: FilePath | None = None
    """A folder of dependencies that all slots share and that agents can read but not write."""
    certificates: FilePath | None = None
    """A file of certificates (PEM) that set-up, gates and agents trust: all that they need, your
    company's among them. It is shown to them, and named in the variables of their tools."""
    proxy: Text = ""
    """The proxy that leads out of your network, as `http://proxy.example.com:3128`. Set-up,
    planners and agents reach their hosts through it; they see neither it nor its password."""
    proxy_login: KeyVariable = ""
    """The environment variable that holds `user:password` for `proxy`."""
    no_proxy: Texts = ()
    """Hosts that are reached without `proxy`, as in `["models.internal", ".example.com"]`."""
    readable: FilePaths = ()
    """Other paths that agents and gates may read."""
    keep: Insides = ()
    """Paths of a slot that are kept from task to task; agents can write them."""
    append: Texts = APPEND
    """Files that grow, such as changelogs: several tasks may write them at once, and the lines of
    all are kept."""
    overlap: Literal["price", "exclusive"] = "price"
    """What happens to tasks that may write the same file: `price` starts them at once when the
    expected cost of a conflict is less than that of waiting, `exclusive` one after the other."""
    exclusive: Texts = LOCK_FILES
    """Files that one task at a time writes, whatever waiting costs, since they cannot be merged."""
    regenerate: Regeneration = msgspec.field(default_factory=dict)
    """By path or pattern: the command that writes the file anew, such as a lock file. Many tasks
    may write these files at once. Where two did, the command runs on the merged files, in the
    sandbox and with the hosts of `setup_hosts`, and the gate tests the result."""
    merge_driver: Driver = ()
    """The command that merges `{base}`, `{ours}` and `{theirs}` of the file `{path}` to `{output}`
    where git finds a conflict. It runs in the sandbox; the gate tests the result. Default: none,
    and conflicts go back to the agent."""
    agents: Annotated[int, Meta(ge=0, le=2000)] = 4
    """The number of agents at once on this machine; 0: all work on others (`[fleet.machines]`)."""
    gates: Annotated[int, Meta(ge=1, le=256)] = 2
    """The number of gate runs at once, those of the merge queue first."""
    screen: Literal["auto", "always"] = "auto"
    """Whether each change passes the gate by itself before the merge queue tests it in a batch:
    `always`, or `auto`: when a fifth of the last changes were red, and what people must see."""
    strict: bool = False
    """Whether the gate runs on every commit and not only on batches."""
    batch: Annotated[int, Meta(ge=1, le=256)] = 16
    """The largest number of changes in one batch of the merge queue."""
    sandbox: Literal["auto", "bubblewrap", "landlock", "none"] = "auto"
    """The sandbox of agents and gates; `auto` takes the strongest one that the machine has."""
    protected: Texts = ()
    """Paths whose changes need a review besides the gate."""
    reviewer: Text = PERSON
    """The reviewer of protected changes: `person`, or the coder of the highest tier."""
    daily_spend: Dollars = 0.0
    """The most that may be spent in a day, in US dollars; 0: no limit."""
    stagger: Time = 0.2
    """The pause between the starts of two agents."""
    load: Annotated[float, Meta(gt=0, le=10_000)] = 8.0
    """The load of the machine for each core above which no further agent starts."""
    drain: Time = 60.0
    """How long agents may go on after the fleet is told to end."""
    time: Limit = 1800.0
    """The longest that one attempt of an agent may take."""
    silence: Limit = 300.0
    """An agent that gives no sign for this long is stopped."""
    limit_wait: Time = 691_200.0
    """The longest usage limit of a provider that is waited out, without using up a try; a longer
    one is a failure of the task; 0: none is waited out."""
    on_limit: Literal["wait", "next_coder"] = "wait"
    """What happens to a task when the usage limit of its coder is reached: it waits, or a coder of
    the next tier with another login takes over."""
    stall: Time = 0.0
    """An agent that changes no file for this long is stopped; 0: no limit."""
    turns: Annotated[int, Meta(ge=0, le=100_000)] = 200
    """The number of turns of an agent in one attempt; 0: no limit."""
    cost: Dollars = 0.0
    """The most that one attempt may cost, in US dollars; 0: no limit."""
    planner: Texts = ()
    """The planner of epics: a tier, a model, a function by name, or the words of a command."""
    plan_tasks: Annotated[int, Meta(ge=1, le=200)] = 20
    """The number of tasks in one planned wave."""
    plan_files: Annotated[int, Meta(ge=1, le=10_000)] = 100
    """The number of files that one planned task may cover."""
    plan_waves: Annotated[int, Meta(ge=1, le=1000)] = 50
    """The number of waves of one epic."""
    plan_paths: Texts = ()
    """Paths that planned tasks may write. Default: all that are not protected."""
    plan_programs: Texts = ()
    """Programs that acceptance commands of planned tasks may start. Default: every program the gate
    finds."""
    plan_hosts: Hosts = ()
    """Hosts that a planner that is a command may contact. Default: none."""
    changelog: Inside = ""
    """The file that gets an entry when an epic is done. Default: none."""
    forge: ForgeTable | None = None
    """The code host with issues, pull requests and CI, a table `[fleet.forge]`."""
    repositories: RepositoryTables = msgspec.field(default_factory=dict)
    """Further repositories of the fleet, each a table `[fleet.repositories.NAME]`; a task names the
    one that it belongs to."""
    ci: CiTable | None = None
    """The CI of the code host as the gate of the merge queue, a table `[fleet.ci]`."""
    machines: MachinesTable | None = None
    """Agents on other machines, a table `[fleet.machines]`."""


class CoderTable(TableSchema, kw_only=True):
    """The keys of `[coders.NAME]`."""

    kind: Literal["claude", "codex", "command"]
    """The kind of agent: Claude Code, Codex, or a command of your own."""
    model: str = ""
    """The model that the agent uses."""
    tier: Annotated[int, TIER] = 1
    """The order of strength: a task goes to the lowest tier first."""
    program: str = ""
    """The path of Claude Code or Codex. Default: found in `PATH`. In the sandbox the agent sees
    that file, or the npm or Python package that holds it."""
    command: tuple[str, ...] = ()
    """The arguments of kind `command`, with `{brief_file}`, `{task}`, `{attempt}`, `{session}`,
    `{model}`, `{slot}`, `{home}`, `{run}`, `{gateway}`; `{root}` is the folder of the settings."""
    hosts: tuple[str, ...] = ()
    """Hosts, as `host:port`, that the agent may contact through the proxy."""
    url: str = ""
    """The address of the provider, if it is not the usual one."""
    key: KeyVariable = ""
    """The environment variable that holds the provider's key."""
    token: KeyVariable = ""
    """In place of `key`, the environment variable that holds the token of a login: for Claude Code
    the one that `claude setup-token` prints. Only the proxy knows it, as with a key."""
    login: str = ""
    """The name of the account that the agent uses. Agents of one login share its usage limits.
    Default: the name of the key or the token, else of the coder."""
    price_in: Price = 0.0
    """US dollars for a million input tokens, if no price is published."""
    price_out: Price = 0.0
    """US dollars for a million output tokens, if no price is published."""
    env: Variables = msgspec.field(default_factory=dict)
    """Environment variables of the agent."""
    readable: tuple[str, ...] = ()
    """Files that the agent may read."""

    @property
    def credential(self) -> str:
        """Return the name of the variable with the key or the token; empty if there is none."""
        return self.key or self.token

    def __post_init__(self) -> None:
        """Raise ValueError, a sentence, for what does not go together."""
        if self.key and self.token:
            raise ValueError("key and token exclude each other. Fix: leave one of them out.")
        if self.token and self.kind == "codex":
            raise ValueError(
                "the login of Codex is a file that Codex itself renews, so an agent would have to "
                "hold it. Fix: write key, the name of the variable that holds a key."
            )
        if self.token and self.kind == "command":
            raise ValueError(
                'token goes with kind = "claude". Fix: write key, whose variable the command gets.'
            )
        if self.kind == "command" and not self.command:
            raise ValueError(
                'its command is missing. Fix: write command = ["agent", "{brief_file}"].'
            )
        if self.kind != "command" and self.command:
            raise ValueError(
                'command goes with kind = "command". Fix: name the program by program = "…".'
            )
        for host in self.hosts:
            if not is_host(host):
                raise ValueError(
                    f"{shown(host)} is no host. Fix: write a name, as in api.example.com:443."
                )
        if self.url and not is_url(self.url):
            raise ValueError(
                "url must be the address of a service, without a name or a key in it. Fix: write "
                "one that begins with https:// or http://, as in https://api.example.com/v1."
            )


class CoderSettings(CoderTable, kw_only=True):
    """One kind of agent, as `[coders.NAME]` says."""

    name: str


class FleetSettings(FleetTable):
    """`[fleet]` and `[coders]`."""

    coders: dict[str, CoderSettings] = msgspec.field(default_factory=dict)
    """The kinds of agents, by name."""

    @property
    def tested_by(self) -> Literal["local", "remote", "both"]:
        """Return where a change is tested before it lands."""
        return self.ci.where if self.ci is not None else "local"

    @property
    def sharing(self) -> Sharing:
        """Return which paths several tasks may write at once."""
        shared = (*self.append, *self.regenerate)
        return Sharing(shared, self.exclusive, self.overlap == "price")


PATHS = ("repo", "folder", "checkouts", "epics", "cache", "certificates")


def fleet_settings(given: Mapping[str, Any], folders: Mapping[str, Path]) -> FleetSettings:
    """Return `[fleet]` of what was read; a path is relative to its settings file."""
    made: dict[str, Any] = {}
    for dotted, value in given.items():
        table, _, key = dotted.partition(".")
        if table == "fleet":
            made[key] = value
            if key in PATHS:
                made[key] = folders[dotted] / value
            elif key == "readable":
                made[key] = tuple(folders[dotted] / each for each in value)
            elif key in ("forge", "machines"):
                made[key] = with_folder(value, folders[dotted])
            elif key == "repositories":
                made[key] = {name: _placed(each, folders[dotted]) for name, each in value.items()}
    coders = {key.partition(".")[2]: each for key, each in given.items() if key[:7] == "coders."}
    return FleetSettings(**made, coders=coders)


def _placed(table: RepositoryTable, folder: Path) -> RepositoryTable:
    """Return the table with its paths made absolute, relative to its settings file."""
    forge = with_folder(table.forge, folder) if table.forge is not None else None
    return msgspec.structs.replace(table, path=folder / table.path, forge=forge)


def fleet_rows(settings: FleetSettings) -> dict[str, Any]:
    """Return every value of `[fleet]` as plain data, for views."""
    return {f"fleet.{key}": _plain(getattr(settings, key)) for key in FleetTable.__struct_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, ForgeTable):
        return f"{value.kind} {value.repository or value.remote}"
    if isinstance(value, RepositoryTable):
        return str(value.path)
    if isinstance(value, CiTable):
        return f"{value.where}: {', '.join(value.checks)}"
    if isinstance(value, MachinesTable):
        return f"{value.fleet} {value.hub}".rstrip()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    # Of variables only the names: a value may be a secret.
    return sorted(value) if isinstance(value, Mapping) else value


# Coders.


def read_coder(origin: str, name: str, value: Any) -> CoderSettings:
    """Read a `[coders.NAME]` table. Raise `UsageError`, which names the problem and its place."""
    place = f"{origin}: [coders.{name}]"
    if not NAME.fullmatch(name):
        raise UsageError(f"{place}: a name has small letters, digits, - and _")
    if not isinstance(value, dict):
        raise UsageError(f"{place} must be a table, written [coders.{name}]")
    found = read_table(place, value, CoderTable)
    return CoderSettings(name=name, **msgspec.structs.asdict(found))


# What the settings know of these tables.


def fleet_of(settings: Settings) -> FleetSettings:
    """Return `[fleet]` and `[coders]` of the settings, the defaults where nothing is set."""
    found: FleetSettings = SECTION.of(settings)
    return found


def with_fleet(settings: Settings, fleet: FleetSettings) -> Settings:
    """Return the settings with another `[fleet]`."""
    return dataclasses.replace(settings, sections={**settings.sections, SECTION.name: fleet})


def _trusted(settings: Settings, fleet: FleetSettings) -> Trusted:
    """Yield everything that a fleet executes or contacts."""
    if fleet.planner and not settings.book.knows(fleet.planner[0]):
        yield "fleet planner", "fleet.planner", " ".join(fleet.planner), ""
    for key in ("gate", "setup"):
        for command in getattr(fleet, key):
            yield f"fleet {key}", f"fleet.{key}", " ".join(command), ""
    for pattern, command in fleet.regenerate.items():
        yield "fleet regenerate", "fleet.regenerate", f"{pattern}: {' '.join(command)}", ""
    if fleet.merge_driver:
        yield "merge driver", "fleet.merge_driver", " ".join(fleet.merge_driver), ""
    if fleet.pull_request:
        yield "pull request", "fleet.pull_request", " ".join(fleet.pull_request), ""
    if fleet.forge is not None:
        name = f"{fleet.forge.kind} {fleet.forge.repository or fleet.forge.remote}"
        yield "code host", "fleet.forge", name, detail_text(msgspec.to_builtins(fleet.forge))
    for name, each in fleet.repositories.items():
        place = "fleet.repositories"
        for key in ("gate", "setup"):
            for command in getattr(each, key) or ():
                yield f"fleet {key}", place, f"{name}: {' '.join(command)}", ""
        if each.forge is not None:
            host = f"{name}: {each.forge.kind} {each.forge.repository or each.forge.remote}"
            yield "code host", place, host, detail_text(msgspec.to_builtins(each.forge))
    if fleet.machines is not None and fleet.machines.hub:
        told = detail_text({"token": fleet.machines.token})
        yield "fleet hub", "fleet.machines", fleet.machines.hub, told
    for name, coder in fleet.coders.items():
        detail = {
            "command": list(coder.command),
            "program": coder.program,
            "url": coder.url,
            "key": coder.key,
            "token": coder.token,
            "hosts": list(coder.hosts),
        }
        yield "coder", f"coders.{name}", f"{name}, {coder.kind}", detail_text(detail)


def _without(fleet: FleetSettings, kinds: Mapping[str, set[str]]) -> FleetSettings:
    """Return the settings without coders that are not trusted."""
    gone = {name.partition(",")[0] for name in kinds.get("coder", ())}
    kept = {name: each for name, each in fleet.coders.items() if name not in gone}
    forge, repositories = fleet.forge, fleet.repositories
    if "code host" in kinds:
        forge = None
        repositories = {
            name: msgspec.structs.replace(each, forge=None) for name, each in repositories.items()
        }
    machines = None if "fleet hub" in kinds else fleet.machines
    found = {"forge": forge, "repositories": repositories, "machines": machines}
    return msgspec.structs.replace(fleet, coders=kept, **found)


def _private(fleet: FleetSettings) -> list[Path]:
    """Return the files with tokens and keys: of the code hosts, of the hub elsewhere."""
    forges = [fleet.forge, *(each.forge for each in fleet.repositories.values())]
    tables = [*forges, fleet.machines]
    return [path for table in tables if table is not None for path in referenced_files(table)]


SECTION = Section(
    name="fleet",
    tables={"fleet": FleetTable, "coders": read_coder},
    make=fleet_settings,
    rows=fleet_rows,
    trusted=_trusted,
    without=_without,
    private=_private,
    has_workers=lambda fleet: bool(fleet.coders),
)
