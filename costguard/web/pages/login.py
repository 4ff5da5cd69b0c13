"""Logging in by a one-time link, and out. Opening a link shows a button; only the button uses the link up."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from costguard.errors import CostguardError
from costguard.services.serving.web_logins import LOGIN_PATH
from costguard.values.agent import VIEWER
from costguard.values.web_login import SESSION_VALID_FOR
from costguard.web.pages.room import OIDC_LOGIN_PATH, PageReader, PageRoom, build_redirect, is_same_origin


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get(LOGIN_PATH + "{code}")
    async def ask(code: str) -> Response:
        try:
            invite = await asyncio.to_thread(room.desk.find_invite, code)
        except CostguardError as error:
            return room.refuse(403, "This link does not log in", str(error))
        return room.render("login.html", None, title="Log in", invite=invite)

    @routes.post(LOGIN_PATH + "{code}")
    async def enter(code: str, request: Request) -> Response:
        if not is_same_origin(request):
            return room.refuse(403, "Wrong origin", "Open the link itself and click the button.")
        try:
            secret, _ = await asyncio.to_thread(room.desk.redeem, code)
        except CostguardError as error:
            return room.refuse(403, "This link does not log in", str(error))
        answer = build_redirect("/")
        set_session_cookie(answer, room, secret)
        return answer

    @routes.post("/logout")
    @room.open_to(VIEWER, changes=True)
    async def leave(_: Request, reader: PageReader) -> Response:
        await asyncio.to_thread(room.desk.end, reader.session)
        logout_url = room.find_provider_logout(reader)
        answer = room.refuse(
            200, "Logged out", "Your session has ended.", login=OIDC_LOGIN_PATH if room.oidc else "", logout_url=logout_url
        )
        set_session_cookie(answer, room, "")
        return answer

    return routes


def set_session_cookie(answer: Response, room: PageRoom, secret: str) -> None:
    """Set the cookie of a session, or remove it where `secret` is ""."""
    lasts_s = int(SESSION_VALID_FOR.total_seconds()) if secret else 0
    answer.set_cookie(
        room.cookie, secret, max_age=lasts_s, path="/", secure=room.services.secure, httponly=True, samesite="strict"
    )
