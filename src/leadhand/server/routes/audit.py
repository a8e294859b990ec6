"""Evidence of a run: its export as one file, and the verification of its log.

Both read the whole log of a run, and verification also every commit. They run one at a time in a
thread of their own, with a bound on the requests that wait, so that neither the loop nor the
readers of the page are kept waiting.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from leadhand.app.anchors import public_key
from leadhand.app.export import export_run
from leadhand.app.reader import reading
from leadhand.app.verification import (
    VerificationDocument,
    VerificationScope,
    compare_histories,
    verify_database,
)
from leadhand.server.app_state import answer, app_state_of
from leadhand.server.problems import RequestRefused
from leadhand.server.request_forms import NoForm
from leadhand.server.routes.common import PROBLEMS, done

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.server.app_state import AppState
    from leadhand.server.cached_reader import CachedReader

T = TypeVar("T")
router = APIRouter(tags=["runs"])
ENTRIES_MAX = 200_000
"""The longest log that is exported or verified here; `leadhand export` has no such limit."""
WAITING_MAX = 4
_AUDIT = ThreadPoolExecutor(1, thread_name_prefix="leadhand-audit")
_waiting: set[object] = set()
ZIP = {
    200: {"description": "The file.", "content": {"application/zip": {}}},
    **PROBLEMS,
}


async def _apart(app_state: AppState, run: str, work: Callable[[], T]) -> T:
    """Run `work` about a run in the thread for evidence. Raise `RequestRefused` if that is full."""

    def look(desk: CachedReader) -> int:
        return desk.header(run).seq

    if await app_state.cached_readers.read(look) > ENTRIES_MAX:
        raise RequestRefused(
            413,
            f"the log of run {run} has more than {ENTRIES_MAX:,} entries. Fix: use `leadhand "
            f"export {run}` or `leadhand verify {run}` on the machine of the database",
        )
    if len(_waiting) >= WAITING_MAX:
        raise RequestRefused(503, "too many exports and verifications at once")
    ticket = object()
    _waiting.add(ticket)
    future = _AUDIT.submit(work)
    future.add_done_callback(lambda _done: _waiting.discard(ticket))  # not when the client leaves
    return await asyncio.wrap_future(future)


@router.post("/runs/{run}/export", responses=ZIP)
async def export(request: Request, run: str, form: NoForm) -> Response:  # noqa: ARG001 - a body
    """Export a run as one zip file, signed if the server has a key, as `leadhand export` does."""
    app_state = app_state_of(request)
    settings = app_state.settings

    def work() -> bytes:
        return export_run(settings.store, run, settings.anchoring)

    data = await _apart(app_state, run, work)
    headers = {"Content-Disposition": f'attachment; filename="run-{run}.zip"'}
    return Response(data, 200, headers, "application/zip")


@router.post("/runs/{run}/verify", responses=done(VerificationDocument))
async def verify(request: Request, run: str, form: NoForm) -> Response:  # noqa: ARG001 - a body
    """Verify the log of a run: hash chains, anchors, signatures and every rule.

    An open run that Temporal hosts is compared with its history too.
    """
    app_state = app_state_of(request)
    settings = app_state.settings

    def work() -> VerificationDocument:
        with reading(settings.store) as reader:
            found = verify_database(
                reader,
                settings.store,
                settings.anchoring,
                VerificationScope(run),
                key=public_key(settings.anchoring, None),
                approvers=settings.policy.approvers,
            )
            asyncio.run(compare_histories(found, settings, reader, run))
        return msgspec.convert(found.document(), VerificationDocument)

    return answer(await _apart(app_state, run, work))
