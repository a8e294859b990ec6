"""`leadhand fleet start, submit, drain, stop, message`: the standing fleet."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import FolderPath, actor_of, settings_of, trust_option
from leadhand.cli.rendering.text import clean, clean_lines, count
from leadhand.cli.signals import Signals
from leadhand.errors import Conflict, LeadhandError, UsageError
from leadhand.fleet.planning.progress import EXAMINER
from leadhand.fleet.product_log import FLEET_DATABASE
from leadhand.fleet.settings import fleet_of, with_fleet
from leadhand.fleet.status.figures import DONE, REPLACED

if TYPE_CHECKING:
    from leadhand.core.state.model import State
    from leadhand.fleet.service import Fleet


# What `leadhand fleet start` says while it runs: what lands, what ends, what it cannot take.
#
# It looks at what the fleet knows and says what is new, a line for each epic at most: a hundred
# agents land several changes a second, and nobody reads that.


EVERY_S = 2.0
TESTING_S = 10.0
"""How often it says what tests main, before anybody starts."""


class News:
    """Says once what is new."""

    def __init__(self, console: Console, fleet: Fleet) -> None:
        self._console, self._fleet = console, fleet
        self._refused: dict[str, str] = {}
        self._stood: dict[str, str] = {}
        self._next = 0.0

    def look(self) -> None:
        """Print tasks that could not be taken or given, and the progress of the epics."""
        for name, why in self._fleet.refused.items():
            if self._refused.get(name) != why:
                self._refused[name] = why
                self._console.say(f"{clean(name)}: {clean_lines(why)}")
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            self.stand()

    def stand(self) -> None:
        """Print the progress of each epic, if it has changed."""
        for state in self._fleet.states:
            words = _standing(state)
            if words and self._stood.get(state.run) != words:
                self._stood[state.run] = words
                self._console.say(f"{clean(state.run)}: {words}")


class LiveLine:
    """One line of a terminal that is written again and again; elsewhere a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown, self._due = False, 0.0

    def show(self, text: str) -> None:
        """Show a text until `clear`; where no terminal is, print it every `TESTING_S` seconds."""
        if self._console.terminal:
            wide = shutil.get_terminal_size().columns
            sys.stderr.write(clean(text)[: max(1, wide - 1)])
            sys.stderr.flush()
            self._shown = True
        elif time.monotonic() >= self._due:
            self._console.say(clean(text))
            self._due = time.monotonic() + TESTING_S

    def clear(self) -> None:
        """Take the text away, so that another line can be printed."""
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._shown = False


def _standing(state: State) -> str:
    tasks = [
        step.status
        for step in state.steps.values()
        if step.worker != EXAMINER and step.status != REPLACED
    ]
    landed = tasks.count(DONE)
    if state.ended is not None:
        return f"{state.ended.status}, {landed} of {len(tasks)} landed"
    return f"{landed} of {len(tasks)} landed" if landed else ""


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from leadhand.core.plan.model import Doc
    from leadhand.fleet.service import Fleet
    from leadhand.fleet.station import Station
    from leadhand.server.service import Running
    from leadhand.settings import Settings

    F = TypeVar("F", bound=Callable[..., Any])


def folder_option(function: F) -> F:
    """`--folder PATH`."""
    made = click.option(
        "--folder",
        type=FolderPath(file_okay=False),
        help="The folder of the fleet's data; the default is .leadhand/fleet.",
    )
    return made(function)


def settings_for(folder: str | None, executes: Console | None = None) -> Settings:
    """Return the settings with the fleet's folder; `executes` as in `settings_of`."""
    settings = settings_of(executes=executes)
    if folder is None:
        return settings
    fleet = msgspec.structs.replace(fleet_of(settings), folder=Path(folder).absolute())
    return with_fleet(settings, fleet)


@command("start", "leadhand fleet start --repo ../shop")
@click.option(
    "--repo", type=FolderPath(file_okay=False), help="The repository that the agents work on."
)
@click.option("--no-serve", is_flag=True, help="Do not start the dashboard and HTTP API.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port to listen on; 0 takes a free one."
)
@click.option(
    "--until-idle",
    is_flag=True,
    help="Exit when every epic has ended or is waiting for a decision.",
)
@trust_option
@folder_option
def start(console: Console, **options: Any) -> int:
    """Start the fleet on a repository, until Ctrl-C.

    Epics are read from a folder (`leadhand fleet submit`). Unfinished epics continue, also
    after a crash. Ctrl-C and SIGTERM drain the fleet: no new agents start, running agents get a
    grace period, and their work is saved; a second Ctrl-C ends the fleet at once. The settings
    are [fleet] and [coders.NAME] in leadhand.toml.
    """
    from leadhand.fleet.configuration import config_of, crew_of
    from leadhand.fleet.service import Fleet
    from leadhand.fleet.status.evidence import live_of
    from leadhand.settings.folders import make_store_folder

    settings = settings_for(options["folder"], console)
    repo = Path(options["repo"]).absolute() if options["repo"] else None
    config, crew = config_of(settings, repo), crew_of(settings)
    if not options["no_serve"]:
        _serving()  # what is missing is said before anything is opened
    if (live := live_of(config.folder)) is not None:
        raise Conflict(
            f"a fleet is at work in {config.folder} already, process {live['pid']}. "
            "Fix: leadhand fleet status shows it, leadhand fleet drain ends it"
        )
    make_store_folder(config.folder)
    if not (config.folder / "hub" / "hub.git").exists():
        console.say(f"copying the history of {config.repo}")
    fleet = Fleet(config, crew)
    return asyncio.run(_start(console, settings, fleet, options))


async def _start(console: Console, settings: Settings, fleet: Fleet, options: Doc) -> int:
    from leadhand.fleet.station import Station

    def draining(number: int) -> None:
        word = "Ctrl-C" if number == 2 else "SIGTERM"
        grace = f"those at work have {fleet_of(settings).drain:g} s"
        console.say(f"{word}: no new agents; {grace}. Again ends them at once.")

    news = News(console, fleet)
    with Signals(draining, lambda: None) as signals:
        async with fleet, Station(fleet) as station, _served(console, settings, station, options):
            _say_hello(console, station)
            await _until(console, signals, station, news, until_idle=options["until_idle"])
            left = await station.drain(fleet_of(settings).drain)
            if left:
                console.say(f"{count(left, 'agent')} ended; what they did is saved")
    news.look()
    news.stand()
    console.say("the fleet has ended")
    if signals.number == 15:
        return 128 + signals.number
    return 1 if options["until_idle"] and fleet.refused else 0


@contextlib.asynccontextmanager
async def _served(
    console: Console, settings: Settings, station: Station, options: Doc
) -> AsyncIterator[None]:
    """Serve the API and the page of the fleet's database, unless disabled."""
    if options["no_serve"]:
        yield
        return
    serving = _serving()
    from leadhand.server.settings import server_of

    here = server_of(settings)
    store = station.folder / FLEET_DATABASE
    wanted = serving.Serve(
        settings=replace(settings, store=store),
        actor=actor_of(settings),
        bind=here.bind,
        port=here.port if options["port"] is None else options["port"],
        tell=console.say,
        station=station,
    )
    async with serving.running(wanted) as up:
        station.url = up.url
        _say_address(console, store, up)
        yield
        await up.app_state.hub.close()


def _serving() -> Any:
    try:
        from leadhand.server import service
    except ImportError as error:
        raise UsageError(
            f"the server's packages are not installed ({error.name}). "
            "Fix: pip install 'leadhand[server]' "
            "(in a clone: .venv/bin/pip install -e '.[server]'), or give --no-serve"
        ) from None
    return service


def _say_address(console: Console, store: Path, up: Running) -> None:
    from leadhand.server.accounts import token_file

    if up.new_token:
        console.say(f"Sign in once with: {up.url}/#token={up.new_token}")
    console.say(f"The page is {up.url}/#/fleet, its token in {token_file(store)}")


def _say_hello(console: Console, station: Station) -> None:
    fleet = station.fleet
    doc = {
        "folder": str(station.folder),
        "repo": str(fleet.config.repo),
        "epics": str(fleet.epics),
        "url": station.url or None,
        "open": fleet.open_epics,
    }
    if console.json:
        console.record(doc)
    else:
        console.out(station.url or str(station.folder))
    resumed = f"; {count(fleet.open_epics, 'open epic')} resumed" if fleet.open_epics else ""
    others = "".join(f", {name}" for name in fleet.config.repositories)
    most = fleet.agents_most
    console.say(f"at work on {doc['repo']}{others} with up to {most} agents{resumed}")
    if (paused := fleet.shop.governor.paused) is not None:
        console.say(f"it is {clean(paused.why)}; `leadhand fleet resume` starts agents")
    if aside := fleet.shop.hub.user.aside:
        console.say(clean(aside))
    console.say(f"epics come from {doc['epics']}; `leadhand fleet submit EPIC.md` puts one there")


async def _until(
    console: Console, signals: Signals, station: Station, news: News, *, until_idle: bool
) -> None:
    """Wait until a person ends it, everything is done, or it cannot continue."""
    loop = asyncio.get_running_loop()
    waits: list[asyncio.Task[Any]]
    waits = [loop.create_task(signals.came.wait()), loop.create_task(station.drained.wait())]
    failed = loop.create_task(_failed(console, station, news, until_idle=until_idle))
    if until_idle:
        waits.append(loop.create_task(station.fleet.idle()))
    try:
        await asyncio.wait((*waits, failed), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
    finally:
        for task in (*waits, failed):
            task.cancel()
        with contextlib.suppress(LeadhandError):
            await asyncio.gather(*waits, failed, return_exceptions=True)


async def _failed(console: Console, station: Station, news: News, *, until_idle: bool) -> None:
    host, told = station.fleet.host, set[str]()
    live = LiveLine(console)
    try:
        while host.failed is None:
            live.clear()
            news.look()
            for name, site in station.fleet.sites.items():
                sound, of = site.sound, (f"{name}: " if name else "")
                if progress := sound.progress:
                    live.show(f"{of}{progress}")
                if sound.log and f"{of}{sound.log}" not in told:
                    told.add(f"{of}{sound.log}")
                    fix = "Fix: the gate, or what is in its way (leadhand fleet check)"
                    words = f"{of}{sound.against}. {fix}:\n{clean_lines(sound.log)}"
                    if until_idle:
                        raise UsageError(words)
                    console.say(words)
            await asyncio.sleep(0.2)
    finally:
        live.clear()
    raise host.failed


@command("submit", "leadhand fleet submit search.md --priority 5")
@click.argument("epic", type=click.Path(dir_okay=False))
@click.option(
    "--priority",
    type=int,
    help="Higher priorities are started first; the default is the priority in the file, or 0.",
)
@folder_option
def submit(console: Console, epic: str, priority: int | None, folder: str | None) -> int:
    """Submit an epic to the fleet.

    The file is copied to the folder of epics, whether or not the fleet is running.
    """
    from leadhand.fleet.configuration import epics_folder, fleet_folder
    from leadhand.fleet.epic_folder import refuse_unplanned
    from leadhand.fleet.epic_folder import submit as handed_in
    from leadhand.fleet.epics import read_epic
    from leadhand.fleet.status.evidence import live_of, status_of
    from leadhand.settings.folders import make_store_folder

    settings = settings_for(folder)
    if fleet_of(settings).coders:
        refuse_unplanned(read_epic(Path(epic)), epic, planner=bool(fleet_of(settings).planner))
    make_store_folder(fleet_folder(settings))
    begun = partial(status_of, fleet_folder(settings))
    run, found, place = handed_in(epics_folder(settings), Path(epic), priority, begun)
    alive, known = live_of(fleet_folder(settings)) is not None, begun(run)
    doc = {
        "run": run,
        "title": found.title,
        "tasks": len(found.tasks),
        "priority": found.priority,
        "fleet": alive,
        "known": known or None,
    }
    if console.json:
        console.document(doc)
        return 0
    console.out(run)
    tasks = count(len(found.tasks), "task") if found.tasks else "to be planned"
    console.say(f"{clean(found.title)}: {tasks}")
    if place.name != Path(epic).name:
        console.say(f"another {Path(epic).name} waits there; both are done, this one is {place}")
    if known:
        console.say(f"it was handed in before ({known}); it is not done twice")
        console.say("other words, or another name of the file, make another epic of it")
    elif not alive:
        console.say("no fleet is at work; it begins with the next `leadhand fleet start`")
    return 0


@command("drain", "leadhand fleet drain")
@folder_option
def drain(console: Console, folder: str | None) -> int:
    """Stop the fleet gracefully.

    No new agents start, running agents get a grace period, and their work is saved.
    """
    return _ordered(console, folder, "drain")


@command("pause", "leadhand fleet pause")
@folder_option
def pause(console: Console, folder: str | None) -> int:
    """Start no new agents until the fleet is resumed.

    Running agents continue, and finished changes are merged. The pause lasts across restarts.
    """
    return _ordered(console, folder, "pause")


@command("resume", "leadhand fleet resume\nleadhand fleet resume --login team")
@click.option("--login", default="", help="Lift the usage limit of this login instead.")
@folder_option
def resume(console: Console, login: str, folder: str | None) -> int:
    """Start agents again after `leadhand fleet pause`.

    With --login: stop waiting for the usage limit of a login, such as after buying more usage.
    The order is recorded with your name. If the provider still refuses, the tasks wait again.
    """
    return _ordered(console, folder, "lift" if login else "resume", login)


@command("stop", "leadhand fleet stop query")
@click.argument("task")
@click.option("--reason", default="", help="Why it is stopped; recorded with your name.")
@click.option("--final", is_flag=True, help="Start no other attempt: the task waits.")
@folder_option
def stop(console: Console, task: str, reason: str, folder: str | None, *, final: bool) -> int:
    """Stop the agent that works on a task; its work is saved.

    TASK may be written RUN/TASK. The task itself continues with another attempt, or with the
    next step of its recovery. With --final it does not: the planner decides, or a person, who
    can end the task with `leadhand answer RUN/QUESTION skip`. `leadhand hold` prevents a task
    from starting, and `leadhand cancel` ends the epic.
    """
    return _ordered(console, folder, "end" if final else "stop", task, reason)


@command("message", 'leadhand fleet message query "use the index that is there"')
@click.argument("task")
@click.argument("text")
@folder_option
def message(console: Console, task: str, text: str, folder: str | None) -> int:
    """Send a message to the agent that works on a task.

    TASK may be written RUN/TASK. The agent continues its conversation with the message.
    """
    return _ordered(console, folder, "message", task, text)


def _ordered(
    console: Console, folder: str | None, verb: str, task: str = "", text: str = ""
) -> int:
    from leadhand.fleet.configuration import fleet_folder
    from leadhand.fleet.station import leave_order

    settings = settings_for(folder)
    told = asyncio.run(leave_order(fleet_folder(settings), verb, task, text, actor_of(settings)))
    if console.json:
        console.document(told)
    else:
        fleet = {"drain": "drains", "pause": "is paused", "resume": "starts agents again"}
        if verb == "lift":
            waited = f"{count(told['tasks'], 'task')} waited"
            console.say(f"the usage limit of {clean(task)} is lifted; {waited}")
        elif verb in fleet:
            console.say(f"the fleet {fleet[verb]}")
        else:
            words = "was told" if verb == "message" else "is being ended"
            console.say(f"the agent of {told['task']} {words}")
    return 0
