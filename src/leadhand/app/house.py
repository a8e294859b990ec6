"""Where a Lead's runs live: its store, and the host that is opened once for all who use it.

A host is opened when the first verb needs one and closed when the last is done with it. What
people say does not need one of its own: it goes to the host that is there, in this process or
another, and only where there is none is the database taken for the moment.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from leadhand.app import door
from leadhand.app.anchoring import ANCHORED, Anchorer
from leadhand.app.distributed import distant
from leadhand.app.opening import as_place, marker, open_store, service_of
from leadhand.app.planning import successor
from leadhand.engine.host import Host
from leadhand.engine.service import word
from leadhand.errors import UsageError
from leadhand.stores.places import there
from leadhand.stores.postgres.address import Address
from leadhand.temporal.cluster import Cluster
from leadhand.workers.machine import LocalMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.app.opening import Listening
    from leadhand.audit.anchors import Anchoring
    from leadhand.core.plan import Doc
    from leadhand.core.policy import Policy
    from leadhand.ports import Reviewer, Store
    from leadhand.stores.log import KeptStore, Lock
    from leadhand.stores.places import Place
    from leadhand.workers.registry import Registry


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
        self._service: Listening | None = None

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

    async def _open(self) -> Host:
        place = self._store
        if self._cluster is not None:
            return cast("Host", await distant(self._cluster, place))
        kept: KeptStore | None = None
        if isinstance(place, (Path, Address)):
            kept, self._lock = open_store(place)
            store: Store = kept
        else:
            store = place
        host = Host(
            store,
            machine=LocalMachine(marker(place, store)),
            max_concurrency=self._max_concurrency,
            on_notice=self._noticed,
        )
        host.reviewers = dict(self.reviewers)
        host.successor = successor
        host.approvers = self.policy.approvers
        try:
            if kept is not None:
                tell = partial(host.notice, "trouble", "")
                self._anchorer = Anchorer(kept, self._anchoring, tell)
                self._anchorer.refuse_cut()
                host.refuse_altered = self._anchorer.refuse_altered
                host.not_before = self._anchorer.latest()
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

    def _noticed(self, kind: str, run: str, text: str) -> None:
        if self._anchorer is not None and kind in ANCHORED:
            self._anchorer.soon()
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
            self._service = self._lock = self._anchorer = None


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
