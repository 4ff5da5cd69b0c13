"""The FastAPI application: routes and error responses, behind the limits of `middleware`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from costguard import __version__
from costguard.agents.messages import BROKEN, MALFORMED, NO_METHOD, NOT_FOUND, UNWRITABLE, MessageRefusedError
from costguard.errors import LedgerError
from costguard.services.poll.ports import Seal
from costguard.services.serving.agent_gateway import AgentGateway
from costguard.services.serving.web_backend import WebServices
from costguard.web import routes
from costguard.web.metrics import build_metrics_router
from costguard.web.middleware import build_refusal, is_for_browser
from costguard.web.pages import build_page_router
from costguard.web.routes.admissions import build_admission_router
from costguard.web.watchdog_client import WatchdogClient

BY_STATUS = {404: NOT_FOUND, 405: NO_METHOD}


def build_application(
    parts: WebServices, desk: AgentGateway, seal: Seal, link: WatchdogClient, agent_zip: Callable[[], bytes] | None = None
) -> FastAPI:
    """Return the application with all routes.

    `link`: the channel to the watchdog. `agent_zip`: returns the agent as one file, None: the agent installed here.
    """
    app = FastAPI(
        title="costguard",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
    )
    app.include_router(routes.build_agent_router(desk, seal, link))
    if parts.pages is not None:
        app.include_router(build_page_router(parts.pages, link))
    app.include_router(routes.build_reader_router(parts, agent_zip or routes.build_agent_zip_once()))
    if parts.launchers is not None:
        app.include_router(build_admission_router(parts.launchers, link))
    if parts.metrics is not None:
        app.include_router(build_metrics_router(parts.reader, parts.metrics))

    handle_errors(app)
    app.openapi = lambda: _build_openapi(app)  # type: ignore[method-assign]  # FastAPI's own way to say it
    return app


def handle_errors(app: FastAPI) -> None:
    """Answer what a route refuses, and addresses that there are not, by one sentence."""

    @app.exception_handler(MessageRefusedError)
    async def refused(request: Request, error: MessageRefusedError) -> Response:
        return _build_response(request, error)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        response = _build_response(request, MessageRefusedError(BY_STATUS.get(error.status_code, MALFORMED)))
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    @app.exception_handler(LedgerError)
    async def unwritable(request: Request, _: LedgerError) -> Response:
        return _build_response(request, MessageRefusedError(UNWRITABLE, wait_s=5))

    @app.exception_handler(Exception)
    async def broke(request: Request, _: Exception) -> Response:
        return _build_response(request, MessageRefusedError(BROKEN))  # the door logs what it was


def _build_response(request: Request, error: MessageRefusedError) -> Response:
    is_page = is_for_browser(request.url.path, request.headers.get("accept", ""))
    status, headers, body = build_refusal(error, is_page=is_page)
    return Response(body, status_code=status, headers=headers)


def _build_openapi(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's schema with the token's security scheme, and without its unused validation errors."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        components = schema.setdefault("components", {})
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for name in ("HTTPValidationError", "ValidationError"):
            components.get("schemas", {}).pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema
