"""`leadhand worker --kinds coder`: this machine's agents for a fleet elsewhere, from settings."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from leadhand.errors import UsageError
from leadhand.fleet.agents.process import watch_answers
from leadhand.fleet.configuration import (
    checkouts_folder,
    crew_of,
    doors_of,
    fleet_folder,
    gate_rules_of,
    readable_of,
)
from leadhand.fleet.gate.gate import Gate
from leadhand.fleet.governor import Governor, Needs
from leadhand.fleet.machines.lease import HubRemote
from leadhand.fleet.machines.messages import rules_digest
from leadhand.fleet.machines.settings import NAME, MachinesSetup
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.settings import fleet_of
from leadhand.fleet.workspace.slots import Slots, make_checkouts_folder, run_set_up
from leadhand.settings.notify import read_secret
from leadhand.temporal.cluster import require
from leadhand.workers.processes.leftovers import kill_leftovers
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.proxy import open_doors
from leadhand.workers.sandbox.sandbox import SETUP, choose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.client import Client
    from temporalio.worker import Worker

    from leadhand.fleet.machines.machine import CoderMachine
    from leadhand.fleet.machines.settings import MachinesTable
    from leadhand.settings import Settings
    from leadhand.temporal.service import RunningService, ServiceOptions

MISSING = """which fleet? Fix: write into leadhand.toml of this machine

[fleet.machines]
hub = "ssh://USER@HOME/PATH/.leadhand/fleet/hub/hub.git"

see docs/how-to/several-machines.md"""


@asynccontextmanager
async def serving_coders(options: ServiceOptions) -> AsyncIterator[RunningService]:
    """Carry out orders of the fleet that the settings name until the block ends; then drain."""
    require()
    from leadhand.temporal.host import connect
    from leadhand.temporal.processes import RunningWorkers
    from leadhand.temporal.service import RunningService

    settings = options.settings
    table = _table(settings)
    name = table.name or socket.gethostname()
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a machine. Fix: write name into [fleet.machines]")
    agents = min(options.concurrency, max(1, fleet_of(settings).agents))
    async with AsyncExitStack() as stack:
        machine = await _machine(stack, settings, table, name, agents)
        setup = MachinesSetup(options.cluster, table.fleet)
        client = await connect(options.cluster)
        workers = _workers(client, setup, machine, agents, options.drain_s)
        serving = await stack.enter_async_context(RunningWorkers(workers))
        machine.reachable = lambda: serving.reachable
        words = f"up to {agents} agents as {name}, from {table.hub}"
        options.notice("coder", setup.fleet, words)
        yield RunningService(serving, None, ["coder"], None, writes=False)


def _table(settings: Settings) -> MachinesTable:
    table = fleet_of(settings).machines
    if table is None or not table.hub:
        raise UsageError(MISSING)
    missing = [
        key
        for key, given in (
            ("[fleet] gate", fleet_of(settings).gate),
            ("[coders.NAME]", fleet_of(settings).coders),
        )
        if not given
    ]
    if missing:
        raise UsageError(
            f"this machine needs {' and '.join(missing)} in leadhand.toml. "
            "Fix: copy [fleet] and [coders] from the fleet's"
        )
    return table


async def _machine(
    stack: AsyncExitStack, settings: Settings, table: MachinesTable, name: str, agents: int
) -> CoderMachine:
    """Open everything that an agent needs here, and save what a killed process left."""
    from leadhand.fleet.machines.machine import CoderMachine

    fleet, folder = fleet_of(settings), fleet_folder(settings) / "machine"
    checkouts, rules = checkouts_folder(settings), gate_rules_of(settings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_checkouts_folder(checkouts)
    mark = f"coder-{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]}"
    processes = await stack.enter_async_context(Processes(mark, strict=True))
    mirror = await stack.enter_async_context(await Hub.mirror(folder / "hub"))
    mirror.keep_all_lines(fleet.append)
    await kill_leftovers(mark)  # the mirror is ours: what still runs was left by a killed process
    coders = {coder.name: coder for _name, coder, _model in crew_of(settings)(processes)}
    opened = doors_of(settings, os.environ)
    watch_answers(coders.values(), opened)
    doors = await open_doors(stack, opened)
    readable = (*readable_of(settings), mirror.git.folder / "objects")
    sandbox = choose(fleet.sandbox, readable=readable, doors=doors)
    gates = Slots(mirror, checkouts / "gates", fleet.gates, prefix="gate")
    gate = Gate(mirror, gates, rules, processes=processes, sandbox=sandbox.through(SETUP))
    setup = run_set_up(gate, checkouts) if rules.setup else None
    slots = Slots(mirror, checkouts / "slots", agents, keep=fleet.keep, setup=setup)
    await mirror.collect(await slots.rescue())
    secret = read_secret(table.token) if table.token else ""
    return CoderMachine(
        name=name,
        mirror=mirror,
        remote=HubRemote(mirror, table.hub, secret, fleet.certificates),
        slots=slots,
        gate=gate,
        sandbox=sandbox,
        governor=Governor(
            agents, stagger_s=fleet.stagger, folder=folder, needs=Needs(load=fleet.load)
        ),
        coders=coders,
        rules=rules_digest(rules),
        homes=fleet_folder(settings) / "homes",
    )


def _workers(
    client: Client, setup: MachinesSetup, machine: CoderMachine, agents: int, drain_s: float
) -> list[Worker]:
    """Return the workers for the orders of the fleet, and for words to this machine's agents."""
    from temporalio.worker import Worker

    from leadhand.temporal.processes import POLLING, THROTTLE_S

    throttle = timedelta(seconds=THROTTLE_S)
    orders = Worker(
        client,
        task_queue=setup.queue,
        activities=[machine.work],
        identity=machine.name,
        max_concurrent_activities=agents,
        activity_task_poller_behavior=POLLING,
        max_heartbeat_throttle_interval=throttle,
        default_heartbeat_throttle_interval=throttle,
        graceful_shutdown_timeout=timedelta(seconds=drain_s),
    )
    words = Worker(
        client,
        task_queue=f"{setup.queue}.{machine.name}",
        activities=[machine.tell],
        identity=machine.name,
    )
    return [orders, words]
