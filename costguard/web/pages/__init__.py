"""The pages: server-rendered, for people who are logged in. `build_page_router` is all that a server needs of them.

    request -> session of its cookie -> role -> (of a change: same origin, form token) -> page

What a page shows and does comes from `services/serving/web_pages.py` and `web_answers.py`; templates are in `web/templates`,
scripts and style in `web/static`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from costguard.ledger.agents.logins import LoginStore
from costguard.services.serving.person_acts import PersonActs
from costguard.services.serving.web_logins import SessionDesk
from costguard.services.serving.web_pages import PageServices
from costguard.settings import resolve_ledger_url
from costguard.web.pages import answers, ask, fleet, live, login, machine, static
from costguard.web.pages.room import PageRoom
from costguard.web.watchdog_client import WatchdogClient

if TYPE_CHECKING:  # a type and no more: it imports authlib, which few servers need
    from costguard.services.serving.oidc import OidcClient

__all__ = ["build_page_router"]


def build_page_router(services: PageServices, link: WatchdogClient | None = None) -> APIRouter:
    """Return the routes of the pages. The ledger of the settings is opened for logins, and read for each page.

    `link`: the channel to the watchdog, which logs people in and does what they confirm; None: this process does, as in a demo,
    and nothing can be stopped from a page.
    """
    oidc = _open_provider(services)
    url = resolve_ledger_url(services.settings)
    acts = PersonActs(url=url, config=services.config, key_file=services.settings.web.key_file) if link is None else link
    room = PageRoom(services, SessionDesk(LoginStore(url)), acts, oidc)
    routes = APIRouter(include_in_schema=False)
    if oidc is not None:
        from costguard.web.pages import oidc as provider_pages

        routes.include_router(provider_pages.build_router(room, oidc))
    for topic in (static, login, ask, fleet, machine, answers, live):
        routes.include_router(topic.build_router(room))
    return routes


def _open_provider(services: PageServices) -> OidcClient | None:
    """Return the identity provider of the settings; None without [web.oidc], and in a demo. Nothing is asked yet."""
    if services.settings.web.oidc is None or services.read_only:
        return None
    from costguard.services.serving.oidc import open_oidc_client

    return open_oidc_client(services.settings, services.clock)
