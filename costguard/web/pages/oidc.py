"""Logging in at the identity provider of `[web.oidc]`: to its page, and back with a code.

The provider is asked in threads of their own, few at a time and each for ten seconds at most: one that hangs holds up logins
and nothing else. The session's cookie is SameSite=Strict, so a browser that comes from the provider's page would not send it
yet: the answer is a page of ours that goes on by itself. The cookie of a login that is under way is Lax, and grants nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from costguard.errors import CostguardError, InputError
from costguard.services.serving.oidc import LOGIN_WITHIN_S, OidcClient
from costguard.settings.web import CALLBACK_PATH
from costguard.system.logs import get_log
from costguard.values.web_login import ROLES, choose_role, name_person
from costguard.web.middleware import RateLimiter, name_client
from costguard.web.pages.login import set_session_cookie
from costguard.web.pages.room import OIDC_LOGIN_PATH, PageRoom, build_redirect

THREADS, WAITING_MAX = 4, 16
"""How many logins ask the provider at a time, and how many may be under way here; one more is told to come back."""
PER_ADDRESS_S, BURST = 1.0, 30.0
"""Requests of one address: a login has two, and a whole office may stand behind one."""
QUERY_FIELDS_MAX = 20
COOKIE, SECURE_COOKIE = "costguard-login", "__Host-costguard-login"
T = TypeVar("T")


class LoginThreads:
    """The threads that ask the provider."""

    def __init__(self) -> None:
        self._pool, self._under_way = ThreadPoolExecutor(THREADS, thread_name_prefix="oidc"), 0

    @property
    def is_full(self) -> bool:
        """Return whether as many logins as are allowed are under way."""
        return self._under_way >= WAITING_MAX

    async def run(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns."""
        self._under_way += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, ask)
        future.add_done_callback(self._leave)
        return await future

    def _leave(self, _: object) -> None:
        self._under_way -= 1


class LoginPages:
    """Logins at the provider: of each request, whether it may ask the provider, and the page that answers it."""

    def __init__(self, room: PageRoom, client: OidcClient) -> None:
        self._room, self._client = room, client
        self._threads, self._rates = LoginThreads(), RateLimiter(PER_ADDRESS_S, BURST)
        self._cookie = SECURE_COOKIE if room.services.secure else COOKIE

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider's page."""
        back = request.query_params.get("next", "/")
        start = await self._ask_provider(request, lambda: self._client.begin_login(back))
        if isinstance(start, Response):
            return start
        return self._set_cookie(build_redirect(start.url), start.cookie, LOGIN_WITHIN_S)

    async def finish(self, request: Request) -> Response:
        """Take what the browser brings back from there, and log in."""
        try:
            query = dict(parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX))
        except ValueError:
            query = {}
        brought = request.cookies.get(self._cookie, "")
        login = await self._ask_provider(request, lambda: self._client.finish_login(brought, query))
        answer = login if isinstance(login, Response) else await asyncio.to_thread(self._log_in, *login)
        return self._set_cookie(answer, "", 0)

    async def _ask_provider(self, request: Request, ask: Callable[[], T]) -> T | Response:
        """Return what `ask` returns, or the page that says why there is no login."""
        wait_s = self._rates.take(name_client(request.client.host if request.client else "?"))
        if wait_s or self._threads.is_full:
            answer = self._room.refuse(429, "Too many logins", "Too many people are logging in: try again in a few seconds.")
            answer.headers["retry-after"] = str(max(2, round(wait_s)))
            return answer
        try:
            return await self._threads.run(ask)
        except InputError as error:  # the client's secret cannot be read: for whoever runs the server
            get_log().error("oidc_broken", why=str(error))
            return self._room.refuse(503, "Not logged in", "The server's login settings are wrong: see its log.")
        except CostguardError as error:
            get_log().warning("oidc_refused", why=error.what)
            return self._room.refuse(403, "Not logged in", str(error), login=OIDC_LOGIN_PATH)

    def _log_in(self, claims: dict[str, object], back: str) -> Response:
        """Open a session for who the provider says it is, and return the page that goes on to `back`."""
        settings, name = self._client.settings, name_person(claims)
        role = choose_role(claims, settings.role_claim, {one: getattr(settings, one) for one in ROLES})
        if name is None or role is None:
            get_log().warning("oidc_refused", why="no role" if name else "no subject", name=name or "")
            who = name or "A user without a subject"
            reason = f"{who}: no group in {settings.role_claim} has access to these pages."
            return self._room.refuse(403, "Not allowed", reason)
        try:
            secret = self._room.desk.open_session(name, role, settings.issuer)
        except CostguardError as error:
            return self._room.refuse(503, "The ledger cannot be written", str(error))
        answer = self._room.render("continue.html", None, title="Logged in", back=back)
        set_session_cookie(answer, self._room, secret)
        return answer

    def _set_cookie(self, answer: Response, value: str, lasts_s: float) -> Response:
        secure = self._room.services.secure
        answer.set_cookie(self._cookie, value, max_age=int(lasts_s), path="/", secure=secure, httponly=True, samesite="lax")
        return answer


def build_router(room: PageRoom, client: OidcClient) -> APIRouter:
    """Return the routes."""
    routes, pages = APIRouter(), LoginPages(room, client)
    routes.add_api_route(OIDC_LOGIN_PATH, pages.begin, methods=["GET"])
    routes.add_api_route(CALLBACK_PATH, pages.finish, methods=["GET"])
    return routes
