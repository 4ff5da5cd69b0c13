"""What every page is made with: its reader's session and role, the template, and the headers of its answer."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial, wraps
from hmac import compare_digest
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec
from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from costguard.agents.messages import MessageRefusedError
from costguard.errors import CostguardError, LedgerError, to_one_line
from costguard.services.guarding.ask_links import PATHS_SAFE
from costguard.services.serving.door_messages import ActOffer, PersonOffer, PersonReply
from costguard.services.serving.fleet_page import FleetPage
from costguard.services.serving.person_acts import PersonActs
from costguard.services.serving.web_logins import SessionDesk, compute_form_token
from costguard.services.serving.web_pages import PageServices
from costguard.values.agent import VIEWER
from costguard.values.text_format import format_amount, format_instant, limit_lines
from costguard.values.web_login import OIDC_NAME, WebSession, get_shown_name, has_role
from costguard.web.pages.computation import PageComputer
from costguard.web.watchdog_client import WatchdogClient

if TYPE_CHECKING:  # a type and no more: it imports authlib, which few servers need
    from costguard.services.serving.oidc import OidcClient

COOKIE, SECURE_COOKIE = "costguard", "__Host-costguard"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {"content-security-policy": CONTENT_POLICY, "referrer-policy": "same-origin", "cache-control": "no-store"}
"""`same-origin`: with `no-referrer` a browser hides the origin of a form, which is checked."""
FIELDS_MAX, FIELD_CHARS_MAX = 40, 500
NEWS_MAX = 1_000
PAGE_THREADS = 4
"""Pages that are built at once; others wait for a thread."""
_Built = TypeVar("_Built")
HTTP_UNAUTHORIZED = 401
OIDC_LOGIN_PATH = "/oidc/login"
Page = Callable[[Request, "PageReader"], Awaitable[Response]]


class PageReader:
    """Who reads: a session and its secret."""

    def __init__(self, session: WebSession, secret: str) -> None:
        self.name, self.role, self.session, self.secret = session.name, session.role, session, secret
        self.shown = get_shown_name(session.name)
        self.form_token = compute_form_token(secret)

    def may(self, needed: str) -> bool:
        """Return whether the reader's role may do what `needed` may."""
        return has_role(self.role, needed)


class PageRoom:
    """Services, sessions and templates of the pages. `oidc`: the identity provider; None: people log in by links alone.

    `acts`: does what people confirm: the watchdog, or in a demo this process.
    """

    def __init__(
        self,
        services: PageServices,
        desk: SessionDesk,
        acts: WatchdogClient | PersonActs,
        oidc: OidcClient | None = None,
    ) -> None:
        self.services, self.desk, self.oidc = services, desk, oidc
        self._acts, self.has_watchdog = acts, not isinstance(acts, PersonActs)
        self.cookie = SECURE_COOKIE if services.secure else COOKIE
        self.computer = PageComputer(services)
        self._threads = ThreadPoolExecutor(PAGE_THREADS, "pages")
        self._loading: asyncio.Task[FleetPage] | None = None
        self._news: OrderedDict[str, tuple[str, tuple[str, ...]]] = OrderedDict()
        self._templates = Environment(
            loader=PackageLoader("costguard.web", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_clean_text,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            instant=format_instant,
            limit=limit_lines,
            time=_build_time,
            amount=format_amount,
            words=drop_commands,
            path=lambda path: quote(path, safe=PATHS_SAFE),
        )

    async def load_fleet(self) -> FleetPage:
        """Return the fleet as of the last guard run. Requests that come while it is loaded wait together, and for one thread.

        A thread for each would take all that there are, while the first fleet after a start is built.
        """
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self.run(self.services.load_fleet))
        return await asyncio.shield(self._loading)

    async def run(self, build: Callable[..., _Built], *args: object, **kwargs: object) -> _Built:
        """Return `build(*args, **kwargs)`, run in a thread of the pages' own: health, tokens and agents have others."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(build, *args, **kwargs))

    async def ask(self, offer: PersonOffer) -> PersonReply:
        """Have the watchdog do what `offer` says, and return what became of it, in `lines` at least."""
        try:
            if isinstance(self._acts, PersonActs):
                reply = await self.run(self._acts.answer, offer)
            else:
                reply = await self._acts.ask(offer, PersonReply)
        except MessageRefusedError as refused:
            reply = PersonReply(refused.name, refused.says)
        reasons = [] if reply.done else [reply.says or f"the watchdog refused it: {reply.refused}"]
        return msgspec.structs.replace(reply, lines=reply.lines or reasons)

    async def act(self, reader: PageReader, act: str, subject: str, **facts: str) -> None:
        """Have the watchdog do what the reader confirmed; its answer is at the head of the reader's next page."""
        try:
            self.services.require_changes()
            reply = await self.ask(ActOffer(reader.secret, act, subject, **facts))
        except CostguardError as error:
            reply = PersonReply(lines=str(error).splitlines())
        self.tell_next(reader, "good" if reply.done else "bad", tuple(reply.lines))
        self.services.forget_fleet()

    def open_to(
        self, needed: str = VIEWER, *, changes: bool = False
    ) -> Callable[[Page], Callable[[Request], Awaitable[Response]]]:
        """Return a decorator: the page is for sessions with the role `needed`. `changes`: a form that changes something."""

        def decorate(page: Page) -> Callable[[Request], Awaitable[Response]]:
            @wraps(page)
            async def answer(request: Request) -> Response:
                return await self._answer(request, page, needed, changes=changes)

            answer.__annotations__ = {"request": Request, "return": Response}
            del answer.__wrapped__  # FastAPI would read the page's own parameters
            return answer

        return decorate

    async def _answer(self, request: Request, page: Page, needed: str, *, changes: bool) -> Response:
        try:
            secret = request.cookies.get(self.cookie, "")
            session = await asyncio.to_thread(self.desk.find_session, secret)
            if session is None:
                return self.refuse(
                    401, "Log in", "You are not logged in, or your session has ended.", login=self._build_login_link(request)
                )
            reader = PageReader(session, secret)
            if not reader.may(needed):
                return self.refuse(403, "Not allowed", f"This needs the role {needed}; you are {reader.role}.", reader=reader)
            if changes:
                fields = await read_form(request)
                if not is_same_origin(request) or not compare_digest(
                    fields.get("token", "").encode(), reader.form_token.encode()
                ):
                    reason = "This form is not from your session and was not used: reload the page."
                    return self.refuse(403, "Wrong session", reason, reader=reader)
            return await page(request, reader)
        except LedgerError as error:
            return self.refuse(503, "The ledger cannot be read", str(error))
        except CostguardError as error:
            return self.refuse(422, "Invalid request", str(error))

    def render(
        self,
        template: str,
        reader: PageReader | None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **facts: object,
    ) -> Response:
        """Return the page made from `template`."""
        news = self._news.pop(reader.session.hash, ("", ())) if reader else ("", ())
        text = self._templates.get_template(template).render(
            reader=reader, read_only=self.services.read_only, news=news, now=self.services.clock(), **facts
        )
        return Response(text, status_code=status, media_type="text/html; charset=utf-8", headers={**HEADERS, **(headers or {})})

    def refuse(
        self, status: int, title: str, reason: str, *, reader: PageReader | None = None, login: str = "", logout_url: str = ""
    ) -> Response:
        """Return a page that says why there is no other. `login`, `logout_url`: where to log in, where to log out as well."""
        asks_login = status == HTTP_UNAUTHORIZED
        return self.render(
            "refused.html",
            reader,
            status=status,
            title=title,
            told=reason.splitlines(),
            login=login,
            further=logout_url,
            hint=asks_login,
        )

    def find_provider_logout(self, reader: PageReader) -> str:
        """Return the identity provider's page to log out, for who logged in there; "" if there is none."""
        return self.oidc.find_logout_url() if self.oidc and reader.name.startswith(OIDC_NAME) else ""

    def _build_login_link(self, request: Request) -> str:
        """Return where to log in and come back to the page of `request`; "" without an identity provider."""
        path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        back = path if request.method == "GET" else "/"
        return f"{OIDC_LOGIN_PATH}?next={quote(back, safe='')}" if self.oidc else ""

    def tell_next(self, reader: PageReader, tone: str, lines: tuple[str, ...]) -> None:
        """Show `lines` at the head of the reader's next page. `tone`: good or bad."""
        self._news[reader.session.hash] = (tone, lines)
        while len(self._news) > NEWS_MAX:
            self._news.popitem(last=False)


def build_redirect(path: str) -> Response:
    """Return the answer that sends a browser to `path` after a form."""
    return Response(status_code=303, headers={**HEADERS, "location": path})


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; empty if the body is none."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(body, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return {}
    return {name: value[:FIELD_CHARS_MAX] for name, value in pairs}


def is_same_origin(request: Request) -> bool:
    """Return whether the browser says that the request comes from a page of this host. Without `Origin` it does not say so."""
    site, origin = request.headers.get("sec-fetch-site", "same-origin"), request.headers.get("origin")
    return site == "same-origin" and (origin is None or origin.partition("://")[2] == request.headers.get("host", ""))


def _clean_text(value: object) -> object:
    """Return a text without line breaks and signs that turn others around; markup as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return to_one_line(value)


COMMANDS = (
    "admit|agent|approve|audit|breaker|db|demo|doctor|explain|freeze|gpus|iam|init|keep|models|notify|offers|plan|policy|prices|"
    "protect|providers|quote|reconcile|report|run|serve|settings|simulate|size|snooze|start|status|stop|terminate|until|watch|web"
)
COMMAND_CLAUSE = re.compile(
    r"(?:(?<=[.;:,])\s+|^)(?:hint: |next: |or |run |see |with )*"
    rf"(?:costguard (?:(?:{COMMANDS})\b|-)|--[a-z][a-z-]*(?![a-z:-]))[^.;]*(?:[.;](?=\s|$)|$)"
)
"""A clause that begins with a command or a flag of the terminal."""
FLAG = re.compile(r"(?<![\w-])--(?=[a-z])")


def drop_commands(text: str) -> str:
    """Return a line of a command's answer for a page: without clauses that name another command, and flags as fields.

    Example: "--month: must be a month; costguard report --help" -> "month: must be a month".
    """
    return FLAG.sub("", COMMAND_CLAUSE.sub("", text)).rstrip(" ;:,")


def _build_time(at: datetime | str | None) -> Markup:
    """Return an instant, or its text in a document, in UTC; the script shows it in the reader's zone."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    if at is None:
        return Markup("-")
    return Markup('<time datetime="{}" data-local>{}</time>').format(
        at.strftime("%Y-%m-%dT%H:%M:%SZ"), f"{at:%Y-%m-%d %H:%M} UTC"
    )
