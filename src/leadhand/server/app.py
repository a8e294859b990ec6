"""The application behind the gate: routes, problems, the OpenAPI document."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from leadhand.errors import LeadhandError
from leadhand.server.openapi import openapi
from leadhand.server.problems import MEDIA, RequestRefused, refusal_of, title_of
from leadhand.server.routes import (
    audit,
    callers,
    events,
    fleet,
    host,
    inbox,
    links,
    overview,
    pages,
    people,
    plans,
    reviews,
    run_details,
    runs,
    session,
    slack,
)
from leadhand.server.rules import API

if TYPE_CHECKING:
    from leadhand.server.app_state import AppState

ROUTERS = (
    audit,
    overview,
    session,
    runs,
    run_details,
    callers,
    plans,
    reviews,
    inbox,
    host,
    events,
    fleet,
    people,
    slack,
)
DESCRIPTION = """\
Everything `leadhand` can see and do. Times are ISO 8601 in UTC, durations in seconds. `money` is
in dollars; `cost` is what counts against a budget: that money, and the cost units of workers. Lists
are pages: `next` is the cursor of the next one. Answers carry an ETag. A POST that creates takes an
`Idempotency-Key`. Errors are RFC 9457 problem documents."""


def build(app_state: AppState) -> FastAPI:
    """Build the application. It must not be served without the gate in front of it."""
    app = FastAPI(
        title="Leadhand",
        version=app_state.version,
        description=DESCRIPTION,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.app_state = app_state
    for each in ROUTERS:
        app.include_router(each.router, prefix=API)
    app.include_router(pages.router)
    app.include_router(links.router)
    app.add_exception_handler(RequestRefused, _refused)
    app.add_exception_handler(LeadhandError, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


def _problem(refused: RequestRefused) -> Response:
    return Response(refused.body(), refused.status, refused.headers, MEDIA)


async def _refused(_request: Request, error: Exception) -> Response:
    return _problem(refusal_of(error))


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = [
        f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg', '')}"
        for each in error.errors()[:20]
    ]
    return _problem(RequestRefused(422, "; ".join(wrong), errors=wrong))


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    detail = str(error.detail) if error.detail else title_of(error.status_code)
    return _problem(RequestRefused(error.status_code, detail, headers=headers))


async def _failed(_request: Request, error: Exception) -> Response:
    refused = refusal_of(error)
    if refused.status == 500:
        traceback.print_exception(error, file=sys.stderr)
    return _problem(refused)
