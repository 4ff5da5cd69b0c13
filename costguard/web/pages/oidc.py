"""Logging in at the identity provider of `[web.oidc]`: to its page, and back with a code.

The provider is asked in threads of their own, few at a time and each for ten seconds at most: one that hangs holds up logins
and nothing else. The session's cookie is SameSite=Strict, so a browser that comes from the provider's page would not send it
yet: the answer is a page of ours that goes on by itself. The cookie of a login that is under way is Lax, and grants nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from costguard.agents.messages import NOT_ALLOWED
from costguard.errors import CostguardError
from costguard.services.serving.door_messages import OidcOffer, PersonReply
from costguard.services.serving.oidc import LOGIN_WITHIN_S, OidcClient, drop_login
from costguard.settings.web import CALLBACK_PATH
from costguard.system.logs import get_log
from costguard.web.middleware import RateLimiter, name_client
from costguard.web.pages.login import set_session_cookie
from costguard.web.pages.room import OIDC_LOGIN_PATH, PageRoom, build_redirect

THREADS, WAITING_MAX = 4, 16
"""How many logins ask the provider at a time, and how many may be under way here; one more is told to come back."""
PER_ADDRESS_S, BURST = 1.0, 30.0
"""Requests of one address: a login has two, and a whole office may stand behind one."""
QUERY_FIELDS_MAX = 20
ANSWER_FIELDS = ("state", "code", "error", "iss")
"""What is read of a provider's answer."""
COOKIE, SECURE_COOKIE = "costguard-login", "__Host-costguard-login"
T = TypeVar("T")


class LoginPages:
    """Logins at the provider: of each request, whether it may ask the provider, and the page that answers it."""

    def __init__(self, room: PageRoom, client: OidcClient) -> None:
        self._room, self._client = room, client
        self._threads, self._under_way = ThreadPoolExecutor(THREADS, thread_name_prefix="oidc"), 0
        self._rates = RateLimiter(PER_ADDRESS_S, BURST)
        self._cookie = SECURE_COOKIE if room.services.secure else COOKIE

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider's page."""
        back = request.query_params.get("next", "/")
        loop = asyncio.get_running_loop()
        begin = partial(self._client.begin_login, back, request.cookies.get(self._cookie, ""))
        start = await self._ask_provider(request, lambda: loop.run_in_executor(self._threads, begin))
        if isinstance(start, Response):
            return start
        return self._set_cookie(build_redirect(start.url), start.cookie, LOGIN_WITHIN_S)

    async def finish(self, request: Request) -> Response:
        """Pass on what the browser brings back from there: the watchdog asks the provider for the ID token, and logs in."""
        try:
            pairs = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            pairs = []
        query = {name: value for name, value in pairs if name in ANSWER_FIELDS}
        offer = OidcOffer(request.cookies.get(self._cookie, ""), query)
        reply = await self._ask_provider(request, lambda: self._room.ask(offer))
        answer = reply if isinstance(reply, Response) else self._build_answer(reply)
        others = drop_login(offer.cookie, query.get("state", ""))
        return self._set_cookie(answer, others, LOGIN_WITHIN_S if others else 0)

    async def _ask_provider(self, request: Request, ask: Callable[[], Awaitable[T]]) -> T | Response:
        """Return what `ask` returns, or the page that says why there is no login."""
        wait_s = self._rates.take(name_client(request.client.host if request.client else "?"))
        if wait_s or self._under_way >= WAITING_MAX:
            answer = self._room.refuse(429, "Too many logins", "Too many people are logging in: try again in a few seconds.")
            answer.headers["retry-after"] = str(max(2, round(wait_s)))
            return answer
        self._under_way += 1
        try:
            return await ask()
        except CostguardError as error:
            get_log().warning("oidc_refused", why=error.what)
            return self._room.refuse(403, "Not logged in", str(error), login=OIDC_LOGIN_PATH)
        finally:
            self._under_way -= 1

    def _build_answer(self, reply: PersonReply) -> Response:
        """Return the page that goes on to where the login began, with the session's cookie, or says why there is none."""
        if not reply.done:
            status, title = (403, "Not allowed") if reply.refused == NOT_ALLOWED else (503, "Not logged in")
            login = "" if reply.refused else OIDC_LOGIN_PATH
            return self._room.refuse(status if reply.refused else 403, title, "\n".join(reply.lines), login=login)
        answer = self._room.render("continue.html", None, title="Logged in", back=reply.back)
        set_session_cookie(answer, self._room, reply.secret)
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
