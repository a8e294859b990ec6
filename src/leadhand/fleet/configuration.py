"""The configuration of a fleet, made from `[fleet]` and `[coders]` of leadhand.toml.

A coder's key is read from the variable that the settings name. In a sandbox an agent never holds
it: Claude Code and Codex reach their provider by a route of a proxy, which adds the key. A command
gets its own key, and the hosts that it may reach. Each has a proxy of its own, so that nobody works
with the key of another; so have set-up commands and a planner, which have no key at all.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from leadhand.core.wording import closest, listed, shown
from leadhand.errors import UsageError
from leadhand.fleet.agents.claude import ClaudeCoder
from leadhand.fleet.agents.codex import CodexCoder
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.boundaries import Sharing
from leadhand.fleet.context import AttemptLimits, RepositoryConfig
from leadhand.fleet.forge.rules import ForgeSetup
from leadhand.fleet.forge.settings import listen_for_webhooks, open_forge, rules_of
from leadhand.fleet.gate.ci_gate import CiRules
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.machines.settings import MachinesSetup
from leadhand.fleet.merge.resolution import ResolutionRules
from leadhand.fleet.merge.train import Rules
from leadhand.fleet.planning.choice import plan_rules, planner_of
from leadhand.fleet.pull_requests import PLACES, fill
from leadhand.fleet.repositories import variables
from leadhand.fleet.service import FleetConfig
from leadhand.fleet.settings import PERSON, fleet_of, is_url
from leadhand.fleet.status.ladder import CODER
from leadhand.models.messages import Usage
from leadhand.models.names import ModelName
from leadhand.models.prices import cost
from leadhand.settings.folders import FOLDER
from leadhand.workers.sandbox.proxy import Proxy, Route, Upstream
from leadhand.workers.sandbox.sandbox import PLANNER, SETUP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.fleet.agents.base import Coder, Price
    from leadhand.fleet.forge.settings import ForgeTable
    from leadhand.fleet.settings import CoderSettings, FleetSettings, RepositoryTable
    from leadhand.settings import Settings
    from leadhand.workers.processes.runner import Processes


CoderEntries = list[tuple[str, "Coder", str]]
PROVIDERS = {
    "claude": ("https://api.anthropic.com", "x-api-key", "{key}"),
    "codex": ("https://api.openai.com/v1", "authorization", "Bearer {key}"),
}
"""By kind: where its provider is, and how a key is said."""
OWN_KEY = {"claude": ("ANTHROPIC_API_KEY",), "codex": ("CODEX_API_KEY", "OPENAI_API_KEY")}
"""Where a program looks for its key, for when no proxy stands between."""
OWN_TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - the name of a variable
PEM = b"-----BEGIN CERTIFICATE-----"
CHECKOUTS = "leadhand-checkouts"
CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
)
"""Where tools look for a file of certificates: OpenSSL, Go and uv, requests, curl, pip, Node, npm
and pnpm, git, cargo."""
CI_FILES = {
    "github": (".github/workflows/**", ".github/actions/**"),
    "gitlab": (".gitlab-ci.yml", ".gitlab/ci/**"),
    "git": (),
}
"""Files that say what CI runs, by kind of code host."""
NEEDED = """a fleet needs {missing} in leadhand.toml. Fix: write, for example,

[fleet]
gate = ["make check"]

[coders.claude]
kind = "claude"
key = "ANTHROPIC_API_KEY"

`kind` is claude, codex or command; see docs/reference/fleet.md."""


def fleet_folder(settings: Settings) -> Path:
    """Return the folder of a project's fleet."""
    return fleet_of(settings).folder or settings.root / FOLDER / "fleet"


def checkouts_folder(settings: Settings) -> Path:
    """Return the folder of slots and gates.

    By default none of its names begins with a dot: there are test suites that fail below such a
    folder, since servers of files, globs and watchers leave it out.
    """
    fleet = fleet_of(settings)
    return fleet.checkouts or fleet.folder or settings.root / CHECKOUTS


def forge_setup(settings: Settings) -> ForgeSetup | None:
    """Return the code host of the settings; None without one. Raise `UsageError`."""
    fleet = fleet_of(settings)
    if fleet.forge is None:
        return None
    if fleet.pull_request or fleet.publish:
        raise UsageError(
            "[fleet.forge] makes branches and pull requests itself. Fix: remove publish and "
            "pull_request from [fleet]"
        )
    return _forge_of(fleet, fleet.forge, "[fleet.forge]")


def _forge_of(fleet: FleetSettings, table: ForgeTable, place: str) -> ForgeSetup:
    """Return the code host of a repository; `place` is its table, for messages."""
    if table.kind == "git":
        raise UsageError(
            f"{place} plain git has neither issues nor pull requests. Fix: remove the table, "
            "and name the branch that gets what has landed in [fleet] publish"
        )
    if not fleet.planner and not table.writes and (table.label or table.assignee):
        raise UsageError(
            f"{place} cannot say what the task of an issue may write. Fix: name a planner in "
            '[fleet], or paths, as in writes = ["src/**", "tests/**"]'
        )
    connect = partial(open_forge, table, fleet.certificates)
    listen = partial(listen_for_webhooks, table) if table.listen else None
    return ForgeSetup(connect, rules_of(table), fleet.certificates, listen)


def repositories_of(settings: Settings, main: Path) -> dict[str, RepositoryConfig]:
    """Return the further repositories of the settings, by name; `main` is the main one.

    Raise `UsageError` for one that is missing, given twice, or at odds with its code host.
    """
    fleet, found = fleet_of(settings), dict[str, RepositoryConfig]()
    places = {main: "[fleet] repo"}
    for name, table in fleet.repositories.items():
        place = f"{settings.origin('fleet.repositories')}: [fleet.repositories.{name}]"
        repo = table.path.resolve()
        if not repo.is_dir():
            raise UsageError(f"{place}: there is no folder {repo}. Fix: name its git repository")
        if repo in places:
            raise UsageError(f"{place}: is the same as {places[repo]}. Fix: remove one of them")
        places[repo] = f"[fleet.repositories.{name}]"
        if table.forge is not None or fleet.forge is not None:
            raise UsageError(f"{place}: a fleet with several repositories has no code host yet")
        _check_apart(settings, repo)
        if table.forge is not None and table.publish:
            raise UsageError(f"{place}: its forge makes branches itself. Fix: remove publish")
        forge = table.forge
        host = f"{place} forge:"
        found[name] = RepositoryConfig(
            repo=repo,
            gate=gate_rules_of(settings, table),
            branch=table.branch,
            publish=table.publish,
            forge=_forge_of(fleet, forge, host) if forge is not None else None,
            protected=fleet.protected if table.protected is None else table.protected,
            sharing=_sharing_of(fleet, table),
            keep=fleet.keep if table.keep is None else table.keep,
            plan_paths=fleet.plan_paths if table.plan_paths is None else table.plan_paths,
        )
    return found


def gate_rules_of(settings: Settings, table: RepositoryTable | None = None) -> GateRules:
    """Return the gate of the main repository, or of another one: what differs stands in `table`."""
    fleet = fleet_of(settings)

    def own(key: str) -> Any:
        given = getattr(table, key) if table is not None else None
        return getattr(fleet, key) if given is None else given

    return GateRules(
        commands=() if table is None and fleet.tested_by == "remote" else own("gate"),
        setup=own("setup"),
        setup_network=bool(fleet.setup_hosts),
        gate_paths=own("gate_paths"),
        time_s=own("gate_time"),
        env={**env_of(settings), **(table.env if table is not None else {})},
        failures=own("failures"),
        flaky=own("flaky"),
        reports=own("reports"),
        tampering=fleet.tampering,
    )


def _sharing_of(fleet: FleetSettings, table: RepositoryTable) -> Sharing:
    main = fleet.sharing
    append = main.append if table.append is None else table.append
    return Sharing(
        append, main.exclusive if table.exclusive is None else table.exclusive, main.price
    )


def ci_rules(settings: Settings) -> CiRules | None:
    """Return what CI must say of a change; None where it is not the gate. Raise `UsageError`."""
    fleet = fleet_of(settings)
    table = fleet.ci
    if table is None or table.where == "local":
        return None
    if fleet.forge is None or fleet.forge.kind == "git":
        raise UsageError(
            f"{settings.origin('fleet.ci')}: [fleet.ci] needs a code host that runs checks. Fix: "
            'write a table [fleet.forge] with kind = "github" or "gitlab", or where = "local"'
        )
    return CiRules(
        checks=table.checks,
        app=table.app,
        accept=table.accept,
        flaky=tuple(name for name in fleet.flaky if name in table.checks),
        time_s=table.time,
        start_s=table.start_time,
        candidates=table.candidates,
        tries=table.tries,
        on_trouble=table.on_trouble,
    )


def protected_files(settings: Settings) -> tuple[str, ...]:
    """Return the paths whose changes need a review.

    Where CI is the gate, its own files are among them: an agent that may write them could pass
    anything, and would run commands with the rights of CI before a person has seen them.
    """
    fleet = fleet_of(settings)
    own = CI_FILES[fleet.forge.kind] if fleet.forge and fleet.tested_by != "local" else ()
    return tuple(dict.fromkeys((*fleet.protected, *own)))


def epics_folder(settings: Settings) -> Path:
    """Return the folder that epics are put into."""
    return fleet_of(settings).epics or fleet_folder(settings) / "epics"


def coders_by_tier(settings: Settings) -> list[CoderSettings]:
    """Return the coders, the weakest first; within a tier in the order of the file."""
    return sorted(fleet_of(settings).coders.values(), key=lambda coder: coder.tier)


def config_of(
    settings: Settings, repo: Path | None = None, environ: Mapping[str, str] | None = None
) -> FleetConfig:
    """Return the configuration from the settings.

    Raise `UsageError`, which names all that is missing.
    """
    fleet, env = fleet_of(settings), os.environ if environ is None else environ
    wanted: dict[str, object] = {"[coders.NAME]": fleet_of(settings).coders}
    if fleet.tested_by != "remote":
        wanted["[fleet] gate"] = fleet.gate
    missing = [name for name, given in wanted.items() if not given]
    if missing:
        raise UsageError(NEEDED.format(missing=" and ".join(missing)))
    place = repo or fleet.repo
    if place is None:
        raise UsageError("which repository? Fix: give --repo PATH, or write [fleet] repo")
    if not place.is_dir():
        from leadhand.fleet.repository.user_repository import missing_repository_fix

        fix = missing_repository_fix(place, "give --repo a git repository")
        raise UsageError(f"{place}: there is no such folder. Fix: {fix}")
    _check_apart(settings, place.resolve())
    _check_reach(settings)
    _check_reviewer(settings)
    _check_certificates(settings)
    _check_pull_request(settings)
    ci = ci_rules(settings)
    # The merge queue tests no further ahead than CI has room for.
    slots = fleet.gates if ci is None else ci.candidates
    return FleetConfig(
        repo=place.resolve(),
        folder=fleet_folder(settings),
        checkouts=checkouts_folder(settings),
        gate=gate_rules_of(settings),
        branch=fleet.branch,
        publish=fleet.publish,
        pull_request=fleet.pull_request,
        forge=forge_setup(settings),
        ci=ci,
        agents=fleet.agents,
        gates=fleet.gates,
        sandbox=fleet.sandbox,
        protected=protected_files(settings),
        sharing=fleet.sharing,
        resolution=ResolutionRules(fleet.regenerate, fleet.merge_driver),
        screen=fleet.screen,
        instructions=fleet.instructions,
        skills=fleet.skills,
        rules=Rules(slots=slots, strict=fleet.strict, batch_max=fleet.batch),
        limits=AttemptLimits(fleet.time, fleet.silence, fleet.stall, fleet.turns, fleet.cost),
        policy=settings.policy,
        stagger_s=fleet.stagger,
        limit_wait_s=fleet.limit_wait,
        take_over=fleet.on_limit == "next_coder",
        load=fleet.load,
        epics=epics_folder(settings),
        readable=readable_of(settings),
        machines=machines_of(settings),
        keep=fleet.keep,
        doors=doors_of(settings, env),
        daily=fleet.daily_spend,
        reviewer="" if fleet.reviewer == PERSON else fleet.reviewer,
        planner=planner_of(settings),
        planning=plan_rules(settings),
        models=settings.book,
        repositories=repositories_of(settings, place.resolve()),
    )


def readable_of(settings: Settings) -> tuple[Path, ...]:
    """Return what agents and gates may read besides the system and their slots."""
    fleet = fleet_of(settings)
    return (*fleet.readable, *filter(None, (fleet.cache, fleet.certificates)))


def machines_of(settings: Settings) -> MachinesSetup | None:
    """Return how the fleet gives work to other machines; None if it does not."""
    fleet = fleet_of(settings)
    table = fleet.machines
    if table is None:
        if not fleet.agents:
            raise UsageError(
                f"{settings.origin('fleet.agents')}: [fleet] agents is 0, and there are no other "
                "machines. Fix: write a number above 0, or [fleet.machines]"
            )
        return None
    from leadhand.temporal.settings import cluster_of

    if (cluster := cluster_of(settings)) is None:
        raise UsageError(
            "[fleet.machines] needs a Temporal server, which brings work to machines. "
            "Fix: write [temporal] address"
        )
    return MachinesSetup(cluster, table.fleet, table.agents)


def env_of(settings: Settings) -> dict[str, str]:
    """Return the environment of gates, set-up commands and agents."""
    fleet = fleet_of(settings)
    cache = {"LEADHAND_CACHE": str(fleet.cache)} if fleet.cache else {}
    trusted = dict.fromkeys(CERTIFICATE_VARIABLES, str(fleet.certificates or ""))
    hubs = variables(fleet_folder(settings), fleet.repositories)
    return {**cache, **(trusted if fleet.certificates else {}), **hubs, **fleet.env}


def _check_apart(settings: Settings, repo: Path) -> None:
    """Raise `UsageError` if the fleet's folder lies among the user's files."""
    for name, folder in (
        ("folder", fleet_folder(settings).resolve()),
        ("checkouts", checkouts_folder(settings).resolve()),
        ("epics", epics_folder(settings).resolve()),
    ):
        if folder == repo or repo / ".git" in (folder, *folder.parents):
            raise UsageError(
                f"{settings.origin(f'fleet.{name}')}: [fleet] {name} is the repository itself. "
                "Fix: name a folder outside of it"
            )


def _check_reach(settings: Settings) -> None:
    """Raise `UsageError` for a model's agent in a sandbox without a door to the network."""
    if fleet_of(settings).sandbox == "none":
        return
    for coder in coders_by_tier(settings):
        if coder.kind in PROVIDERS and not (coder.credential or coder.url or coder.hosts):
            place = settings.origin(f"coders.{coder.name}")
            raise UsageError(
                f"{place}: [coders.{coder.name}]: cannot reach its model: a sandbox has not your "
                f'network or sign-in. Fix: write key = "{OWN_KEY[coder.kind][-1]}", the name '
                "of the variable that holds its key, or url, the address of a model that needs none"
            )


def _check_certificates(settings: Settings) -> None:
    """Raise `UsageError` if the file of certificates is not one."""
    file = fleet_of(settings).certificates
    if file is None:
        return
    place = f"{settings.origin('fleet.certificates')}: [fleet] certificates"
    try:
        if PEM not in file.read_bytes():
            raise UsageError(
                f"{place}: {file} has no certificate in PEM. Fix: name a file that has "
                "-----BEGIN CERTIFICATE-----"
            )
    except OSError as error:
        words = f"{place}: {file} cannot be read ({error.strerror}). Fix: name a file that can"
        raise UsageError(words) from None


def _check_reviewer(settings: Settings) -> None:
    name = fleet_of(settings).reviewer
    if name == PERSON:
        return
    place = settings.origin("fleet.reviewer")
    if name in fleet_of(settings).coders:
        others = [coder for coder in coders_by_tier(settings) if coder.name != name]
        if not others or others[-1].tier >= fleet_of(settings).coders[name].tier:
            whose = shown(others[-1].name) if others else "itself"
            raise UsageError(
                f"{place}: [fleet] reviewer: {shown(name)} is no stronger than {whose}, whose work "
                "it would review. Fix: name a coder whose tier is above all others, or write "
                f'reviewer = "{PERSON}"'
            )
        return
    meant = closest(name, fleet_of(settings).coders)
    fix = (
        f'Did you mean "{meant}"?' if meant else f"There are: {listed(fleet_of(settings).coders)}."
    )
    raise UsageError(f"{place}: [fleet] reviewer: no coder is called {shown(name)}. {fix}")


def _check_pull_request(settings: Settings) -> None:
    place = f"{settings.origin('fleet.pull_request')}: [fleet] pull_request"
    if fleet_of(settings).pull_request and not fleet_of(settings).publish:
        raise UsageError(f'{place} is of a branch. Fix: write publish = "leadhand/main" beside it')
    try:
        for word in fleet_of(settings).pull_request:
            fill(word, dict.fromkeys(PLACES, ""))
    except ValueError as error:
        raise UsageError(f"{place} {error}") from None


def doors_of(settings: Settings, env: Mapping[str, str]) -> dict[str, Proxy]:
    """Return the doors to the network of the coders that need one, if there is a sandbox."""
    fleet = fleet_of(settings)
    if fleet.sandbox == "none":
        return {}
    doors = {}
    for coder in coders_by_tier(settings):
        routed = coder.kind in PROVIDERS and (coder.credential or coder.url)
        routes = {coder.name: _route(settings, coder, env)} if routed else {}
        if coder.hosts or routes:
            doors[coder.name] = Proxy(coder.hosts, routes, **way_out(settings, env))
    for name, hosts in ((SETUP, fleet.setup_hosts), (PLANNER, fleet.plan_hosts)):
        if hosts:
            doors[name] = Proxy(hosts, **way_out(settings, env))
    return doors


def way_out(settings: Settings, env: Mapping[str, str]) -> dict[str, Any]:
    """Return how doors reach the network: by the proxy of the settings, with its certificates.

    Raise `UsageError` if the address of the proxy, or the variable with its login, is wrong.
    """
    fleet = fleet_of(settings)
    trusted = {"certificates": fleet.certificates} if fleet.certificates else {}
    if not fleet.proxy:
        return trusted
    place = f"{settings.origin('fleet.proxy')}: [fleet] proxy"
    parts = urlsplit(fleet.proxy)
    if not is_url(fleet.proxy) or parts.scheme != "http" or not parts.hostname:
        raise UsageError(
            f"{place} is no address of a proxy. Fix: write http://proxy.example.com:3128; the "
            "password goes into the variable that proxy_login names"
        )
    login = env.get(fleet.proxy_login, "") if fleet.proxy_login else ""
    if fleet.proxy_login and not login:
        raise UsageError(
            f"{place}_login: {fleet.proxy_login} is not set. Fix: set it to user:password where "
            "the fleet is started"
        )
    up = Upstream(parts.hostname, parts.port or 80, login, fleet.no_proxy)
    return {**trusted, "upstream": up}


def _route(settings: Settings, coder: CoderSettings, env: Mapping[str, str]) -> Route:
    address, header, form = PROVIDERS[coder.kind]
    if coder.token:
        header, form = "authorization", "Bearer {key}"
    headers = {header: form.format(key=key_of(settings, coder, env))} if coder.credential else {}
    return Route(coder.url or address, headers)


def key_of(settings: Settings, coder: CoderSettings, env: Mapping[str, str]) -> str:
    """Return a coder's key or token, from the variable that its settings name."""
    if env.get(coder.credential):
        return env[coder.credential]
    place = settings.origin(f"coders.{coder.name}")
    raise UsageError(
        f"{place}: [coders.{coder.name}]: {coder.credential} is not set. "
        f"Fix: set it to the {'token' if coder.token else 'key'} where the fleet is started"
    )


def crew_of(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> Callable[[Processes], CoderEntries]:
    """Return a function that makes the agents: `coder`, and the stronger ones `coder@NAME`."""
    env = os.environ if environ is None else environ
    homes = fleet_folder(settings) / "homes"
    coders = coders_by_tier(settings)
    for coder in coders:  # what is missing is said before anything is opened
        program_of(settings, coder)
        if coder.credential:
            key_of(settings, coder, env)

    def made(processes: Processes) -> CoderEntries:
        return [
            (
                f"{CODER}@{coder.name}" if number else CODER,
                coder_of(settings, coder, env, processes, homes),
                coder.model,
            )
            for number, coder in enumerate(coders)
        ]

    return made


def coder_of(
    settings: Settings,
    coder: CoderSettings,
    env: Mapping[str, str],
    processes: Processes,
    homes: Path,
) -> Coder:
    """Return the agent of `[coders.NAME]`; raise `UsageError` if its program or key is missing."""
    login = coder.login or coder.credential or coder.name
    common: dict[str, Any] = {"processes": processes, "homes": homes, "login": login}
    boxed = fleet_of(settings).sandbox != "none"
    readable = tuple(settings.root / Path(each).expanduser() for each in coder.readable)
    more = {**env_of(settings), **coder.env}
    if coder.kind == "command":
        if coder.key:
            more[coder.key] = key_of(settings, coder, env)
        root = str(settings.root)
        command = [word.replace("{root}", root) for word in coder.command]
        network = bool(coder.hosts)
        own = (Path(word) for word in command if word.startswith("/"))
        readable += tuple(path for path in own if path.is_file())
        return TemplateCoder(
            coder.name, command, network=network, readable=readable, env=more, **common
        )
    if coder.credential and not boxed:
        names = (OWN_TOKEN,) if coder.token else OWN_KEY[coder.kind]
        more |= dict.fromkeys(names, key_of(settings, coder, env))
    route = coder.name if boxed and (coder.credential or coder.url) else ""
    program = program_of(settings, coder)
    kind = ClaudeCoder if coder.kind == "claude" else CodexCoder
    if coder.token:
        common["signed_in"] = True
    price = coder_price(coder)
    return kind(
        coder.name, program, route=route, price=price, readable=readable, env=more, **common
    )


def coder_price(coder: CoderSettings) -> Price:
    """Return the price of a model's tokens: from the settings, else as published, else zero."""
    own = (coder.price_in, coder.price_out) if coder.price_in or coder.price_out else (None, None)
    provider = "anthropic" if coder.kind == "claude" else "openai"

    def price(model: str, used: Usage) -> float:
        name = ModelName(provider=provider, model=model, price_in=own[0], price_out=own[1])
        return cost(name, used) or 0.0

    return price


def program_of(settings: Settings, coder: CoderSettings) -> str:
    """Return the program of a coder. Raise `UsageError` if it is not there."""
    own = coder.kind == "command"
    wanted = coder.command[0].replace("{root}", str(settings.root)) if own else coder.program
    wanted = wanted or coder.kind
    if own and "/" in wanted and not wanted.startswith("/"):
        return wanted  # a file of the repository
    beside = settings.root / Path(wanted).expanduser()
    path = {**env_of(settings), **coder.env}.get("PATH")
    found = str(beside) if "/" in wanted and beside.exists() else shutil.which(wanted, path=path)
    if not found:
        place = settings.origin(f"coders.{coder.name}")
        what = 'name it by its path in "command"' if own else 'write program = "/path/to/it"'
        raise UsageError(
            f"{place}: [coders.{coder.name}]: there is no program {shown(wanted)}. "
            f"Fix: install it, or {what}"
        )
    return found
