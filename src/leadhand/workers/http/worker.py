"""HTTP workers: actions that are one request each.

What is sent stands in `request`, where it may go in `netguard`, what the answer means in
`exchange`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadhand.core.catalog import WorkerSpec
from leadhand.core.report import Report
from leadhand.workers.checks import holds
from leadhand.workers.http.exchange import Exchange, Network
from leadhand.workers.http.request import HttpAction, Missing, fixed_headers
from leadhand.workers.reports import bounded
from leadhand.workers.template import with_defaults

if TYPE_CHECKING:
    from leadhand.ports import Context, Task
    from leadhand.workers.http.netguard import Resolve


class HttpWorker:
    """A worker whose actions are HTTP requests."""

    def __init__(
        self,
        spec: WorkerSpec,
        calls: Mapping[str, HttpAction],
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.spec = spec
        self._calls = dict(calls)
        self._network = Network(resolve, tls)

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Variables whose values must not get into the log: those of headers."""
        headers = (header for call in self._calls.values() for header in call.headers)
        return tuple(header.env for header in headers if header.env)

    @property
    def given_values(self) -> dict[str, str]:
        """The headers that stand in the settings, by name."""
        headers = [header for call in self._calls.values() for header in call.headers]
        return fixed_headers(headers)

    async def perform(self, task: Task, context: Context) -> Report:
        """Send the request and judge the answer."""
        call = self.call(task.action)
        if call is None:
            return Report.failed("permanent", f"{self.spec.name} offers no {task.action!r}")
        return await self._send(call, task.parameters, context.key)

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Ask the declared address whether it happened."""
        call = self.call(task.action)
        if call is None or call.probe is None:
            raise LookupError(f"{self.spec.name} declares no probe")
        # It asks about the same call, and needs only those of its parameters that it names.
        values = with_defaults(call.offer.parameters, task.parameters)
        named = {name: values[name] for name in call.probe.holes if name in values}
        report = await self._send(call.probe, named, "")
        status = report.error.details["status"] if report.error and report.error.details else None
        if status in (404, 410):
            return None
        if report.error:
            raise LookupError(f"the probe cannot tell: {report.error.message}")
        return report

    def check(self, name: str, action: str, data: Any) -> bool:
        """Whether a declared expression holds for the data."""
        call = self.call(action)
        expression = (call.checks.get(name) if name else call.check) if call else None
        return holds(expression, name, data)

    async def close(self) -> None:
        """Nothing is kept open."""

    def call(self, action: str) -> HttpAction | None:
        """The request of an action, the unnamed one answering any."""
        return self._calls.get(action) or self._calls.get("")

    async def _send(self, call: HttpAction, parameters: Mapping[str, Any], key: str) -> Report:
        try:
            request = call.request(parameters, os.environ)
        except Missing as problem:
            return Report.failed("unavailable", str(problem))
        except (ValueError, TypeError) as problem:
            return Report.failed("permanent", bounded(str(problem)))
        exchange = Exchange(self._network, call, request, key)
        try:
            async with asyncio.timeout(call.timeout_s):
                return await exchange.run()
        except TimeoutError:
            return exchange.lost("timeout", f"no answer within {call.timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - a worker reports; it does not raise
            return exchange.failed(error)
