"""Where a Lead's runs live: its store, and the host that is opened once for all who use it.

A host is opened when the first verb needs one and closed when the last is done with it. What
people say does not need one of its own: it goes to the host that is there, in this process or
another, and only where there is none is the database taken for the moment.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from leadhand.app import door
from leadhand.app.anchoring import ANCHORED, Anchorer
from leadhand.app.distributed import distant
from leadhand.app.opening import (
    artifacts_of,
    as_place,
    joining,
    marker,
    open_reader,
    open_store,
    service_of,
)
from leadhand.app.planning import successor
from leadhand.app.used_approvals import UsedApprovals
from leadhand.engine.guest.process import Guest, SharedStore, Ways
from leadhand.engine.host import Host
from leadhand.engine.host_socket import word
from leadhand.errors import Conflict, UsageError
from leadhand.settings.trust import state_folder
from leadhand.stores.location import home, there
from leadhand.stores.permissions import kept_by
from leadhand.stores.postgres.address import Address
from leadhand.temporal.cluster import Cluster
from leadhand.workers.processes.machine import LocalMachine, is_alive, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.app.opening import Listening
    from leadhand.audit.anchors import Anchoring
    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy
    from leadhand.ports import Reviewer, Store
    from leadhand.stores.location import Place
    from leadhand.stores.log import KeptStore, Lock
    from leadhand.workers.registry import Registry

HOSTED = "is the host of this database"
LOOK_S = 0.05
STEP_BACK_S = 10.0
"""How long a process that was asked to step back may take to let go of the database."""


class House:
    """The part of a Lead that opens and closes its host."""

    registry: Registry
    reviewers: Mapping[str, Reviewer]
    actor: str
    policy: Policy

    def open_on(
        self,
        store: str | Place | Store,
        max_concurrency: int,
        on_notice: Callable[[str, str, str], None] | None,
        anchoring: Anchoring,
        temporal: Cluster | str | None = None,
    ) -> None:
        """Say where runs live; nothing is opened yet."""
        self._store = as_place(store)
        self._cluster = Cluster.of(temporal)
        self._max_concurrency = max_concurrency
        self._on_notice = on_notice or (lambda _kind, _run, _text: None)
        self._anchoring = anchoring
        self._anchorer: Anchorer | None = None
        self._host: Host | None = None
        self._users = 0
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._lock: Lock | None = None
        self._kept: KeptStore | None = None
        self._service: Listening | None = None
        self.beside = False
        """Whether runs are driven beside the host of the database, where there is one."""
        self.presides = False
        """Whether this should be the host: a run's process that is it steps back when asked."""

    def hosting(self) -> _Hosting:
        """`async with lead.hosting() as host`: opened once, however many runs share it."""
        return _Hosting(self)

    async def say(self, run_id: str, verb: str, **details: Any) -> Doc:
        """Say something to a run, whoever hosts it; durable when it returns."""
        place = self._store
        async with self._one_at_a_time():
            elsewhere = self._host is None
        if self._cluster is not None:
            async with self.hosting() as distant:
                return await cast("Any", distant).say(run_id, verb, self.actor, details)  # type: ignore[no-any-return]
        if elsewhere and isinstance(place, (Path, Address)):
            return await door.say(
                _there(place, run_id),
                run_id,
                verb,
                actor=self.actor,
                anchoring=self._anchoring,
                workers=self.registry,
                **details,
            )
        async with self.hosting() as host:
            run = host.load(run_id, self.registry)
            return await word(host, run, verb, self.actor, details)

    def _one_at_a_time(self) -> asyncio.Lock:
        """A lock belongs to the loop it is used in, and a Lead may see several, one by one."""
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        return self._opening[1]

    async def _acquire(self) -> Host:
        async with self._one_at_a_time():
            if self._host is None:
                self._host = await self._open()
            self._users += 1
            return self._host

    def _private(self) -> list[Path]:
        """What workers with a sandbox may not see: the database with all beside it, and keys."""
        found = [self._anchoring.file, self._anchoring.key, state_folder(os.environ)]
        if isinstance(self._store, (Path, Address)):
            found += kept_by(home(self._store).resolve())
        return [path for path in found if path is not None]

    async def _open(self) -> Host:
        place = self._store
        if self._cluster is not None:
            return cast("Host", await distant(self._cluster, place))
        if self.beside and isinstance(place, Path):
            return await self._open_beside(place)
        kept: KeptStore | None = None
        if isinstance(place, (Path, Address)):
            kept, self._lock = await self._owned(place)
            store: Store = kept
        else:
            store = place
        host = Host(
            store,
            machine=LocalMachine(marker(place, store), hidden=self._private),
            max_concurrency=self._max_concurrency,
            on_notice=self._noticed,
        )
        self._equip(host)
        try:
            if kept is not None:
                self._anchor(host, kept)
            await host.open()
            if self._anchorer is not None:
                self._anchorer.open()
            if isinstance(place, (Path, Address)):
                self._service = service_of(host, place)
                await self._service.open()
        except BaseException:
            await self._close(host)
            raise
        return host

    def _equip(self, host: Host) -> None:
        host.reviewers = dict(self.reviewers)
        host.successor = successor
        host.approvers = self.policy.approvers
        host.guests.lives = is_alive
        host.guests.noticed = self._anchor_soon

    def _anchor(self, host: Host, kept: KeptStore) -> None:
        self._anchorer = Anchorer(kept, self._anchoring, partial(host.notice, "trouble", ""))
        self._anchorer.refuse_cut()
        self._look_with(host, self._anchorer, kept)

    def _look_with(self, host: Host, anchorer: Anchorer, log: KeptStore) -> None:
        """Have chains, anchors and uses of approvals looked at before anything of a run starts."""
        host.claim_approval = UsedApprovals(log.database_id).claim
        host.refuse_altered = anchorer.refuse_altered
        host.not_before = anchorer.latest()

    async def _owned(self, place: Place) -> tuple[KeptStore, Lock]:
        """The database, for this process alone; a run's process that hosts it steps back."""
        until = time.monotonic() + STEP_BACK_S
        while True:
            try:
                return open_store(place)
            except Conflict as error:
                late = not self.presides or time.monotonic() > until or HOSTED not in str(error)
                if late or not await door.step_back(place):
                    raise self._named(error) from None
            await asyncio.sleep(LOOK_S)

    def _named(self, error: Conflict) -> Conflict:
        """The error with a way out, where another process is the host."""
        if HOSTED not in str(error):
            return error
        if self.presides:
            return Conflict(
                f"{error}. Fix: use that one, or end it first with Ctrl-C where it runs"
            )
        return Conflict(
            f"{error}. Fix: start it with `leadhand run`, which drives it beside that host; or run "
            "all plans in one program"
        )

    async def _open_beside(self, place: Path) -> Host:
        """The host of a run's own process: a guest of whoever hosts the database."""
        made = not there(place)
        if made:  # a new database: somebody has to make it
            kept, lock = open_store(place)
            await kept.close()
            lock.release()
        reading = open_reader(place)
        own = this_process()
        ways = Ways(
            connect=partial(joining, place),
            inherit=partial(self._inherit, place),
            step_back=self._step_back,
        )
        store = SharedStore(reading, artifacts_of(place).put)
        machine = LocalMachine(marker(place, store), own, hidden=self._private)
        more = {"max_concurrency": self._max_concurrency, "on_notice": self._noticed}
        guest = Guest(store, ways, own, machine=machine, **more)
        self._equip(guest)
        tell, log = partial(guest.notice, "trouble", ""), cast("KeptStore", reading)
        try:
            # It is looked at the anchors; the host writes them.
            self._look_with(guest, Anchorer(log, self._anchoring, tell), log)
            await guest.open()
        except BaseException:
            await self._close(guest)
            raise
        return guest

    async def _inherit(self, place: Path, guest: Guest) -> bool:
        """Make a guest the host; false when another process is."""
        try:
            kept, lock = open_store(place)
        except Conflict as error:
            if HOSTED in str(error):
                return False
            raise
        self._lock, self._kept = lock, kept
        try:
            await LocalMachine(marker(place, kept)).clear()
            self._anchor(guest, kept)
            await guest.preside(kept)
        except BaseException:
            await kept.close()
            self._lock = None
            lock.release()
            raise
        assert self._anchorer is not None
        self._anchorer.open()
        self._service = service_of(guest, place)
        await self._service.open()
        return True

    async def _step_back(self) -> None:
        """Let go of the database, so that another process becomes its host."""
        service, anchorer, lock = self._service, self._anchorer, self._lock
        kept, self._kept = self._kept, None
        self._service = self._anchorer = self._lock = None
        try:
            if service is not None:
                await service.close()
            if kept is not None:
                await kept.close()
            if anchorer is not None:
                await anchorer.close()
        finally:
            if lock is not None:
                lock.release()

    def _anchor_soon(self, kind: str, _run: str) -> None:
        if self._anchorer is not None and kind in ANCHORED:
            self._anchorer.soon()

    def _noticed(self, kind: str, run: str, text: str) -> None:
        self._anchor_soon(kind, run)
        self._on_notice(kind, run, text)

    async def _release(self) -> None:
        async with self._one_at_a_time():
            self._users -= 1
            if not self._users and self._host is not None:
                host, self._host = self._host, None
                await self._close(host)

    async def _close(self, host: Host) -> None:
        try:
            if self._service is not None:
                await self._service.close()
            await host.close()
            if self._anchorer is not None:
                await self._anchorer.close()
        finally:
            if self._lock is not None:
                self._lock.release()
            self._service = self._lock = self._anchorer = self._kept = None


def _there(place: Place, run_id: str) -> Place:
    if not there(place):
        raise UsageError(f"there is no run {run_id}: {place} does not exist")
    return place


class _Hosting:
    def __init__(self, house: House) -> None:
        self._house = house

    async def __aenter__(self) -> Host:
        return await self._house._acquire()  # noqa: SLF001 - its other half

    async def __aexit__(self, *_: object) -> None:
        await self._house._release()  # noqa: SLF001 - its other half
