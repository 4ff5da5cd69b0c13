"""What the HTTP server answers with: the agents' gateway, the status, and the authorization of readers, all from the ledger.

It runs in the process of the server, reads the ledger by itself, and writes nothing: what changes something goes to the
watchdog (`door_messages`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.agents.messages import NO_TOKEN, NOT_ALLOWED, MessageRefusedError
from costguard.budgets.budget import Budget
from costguard.errors import CostguardError
from costguard.guard.run_facts import LATE_AFTER_RUNS
from costguard.ledger.agents.directory import AgentDirectory
from costguard.services.poll.configured_providers import SystemClock
from costguard.services.poll.ports import Seal
from costguard.services.report.metrics import open_metrics_board
from costguard.services.report.run_board import RunBoard
from costguard.services.serving.agent_gateway import AgentGateway, hash_token
from costguard.services.serving.login_key import locate_key_file
from costguard.services.serving.web_activity import ActivityBoard
from costguard.services.serving.web_admissions import AdmissionQuoter
from costguard.settings import Settings, WebSettings, read_settings, resolve_ledger_url
from costguard.values.agent import TOKEN_ROLES, WebToken, is_token_valid

if TYPE_CHECKING:  # a type and no more: it imports what builds a plan
    from costguard.services.serving.page_builder import PageBuilder
    from costguard.services.serving.web_pages import PageServices


@dataclass(slots=True, kw_only=True)
class LauncherServices:
    """What launchers are answered with. `authorize`: returns the record of a token with one of these roles, or raises."""

    authorize: Callable[[str, tuple[str, ...]], WebToken]
    quoter: AdmissionQuoter
    activity: ActivityBoard


@dataclass(slots=True, kw_only=True)
class WebServices:
    """The parts to be served. `desk`: builds the gateway for a signer. `note_run`: called with a run that is not in the ledger.

    `health`: seconds since the last run that is in the ledger, and whether it is late. `metrics`: the text for Prometheus;
    None: no route. `pages`, `launchers`: None: none of their routes.
    """

    web: WebSettings
    key_file: Path
    desk: Callable[[Seal], AgentGateway]
    board: RunBoard
    reader: Callable[[str], WebToken]
    health: Callable[[], tuple[float | None, bool]]
    metrics: Callable[[], bytes] | None = None
    pages: PageServices | None = None
    launchers: LauncherServices | None = None
    note_run: Callable[[datetime], object] = field(default=lambda _: None)


def build_web_services(
    settings: Settings,
    *,
    config: str | None = None,
    interval: timedelta | None = None,
) -> WebServices:
    """Return the parts over the ledger of `settings`. `config`: the file that they are read from again for each status.

    `interval`: of the guard, None: that of the settings.
    """
    sources, builds = _LedgerSources(settings, config, interval), _open_builder(settings, config)
    board = RunBoard(sources.get_mark, builds.build_status)
    return WebServices(
        web=settings.web,
        key_file=find_key_file(settings),
        desk=lambda seal: AgentGateway(book=sources.directory, seal=seal, clock=sources.clock),
        board=board,
        reader=sources.authorize_reader,
        health=sources.check_health,
        metrics=open_metrics_board(settings, builds.build_metrics).read_text,
        pages=_build_pages(settings, config),
        launchers=_build_launchers(sources, board, config),
        note_run=sources.note_run,
    )


class _LedgerSources:
    """What the parts read."""

    def __init__(self, settings: Settings, config: str | None, interval: timedelta | None) -> None:
        self.clock, self.directory = SystemClock(), AgentDirectory(resolve_ledger_url(settings))
        self._settings, self._config, self._interval = settings, config, interval
        self._noted: datetime | None = None

    def note_run(self, at: datetime) -> None:
        """Know of a run that may not be in the ledger, as of a dry run."""
        self._noted = at

    def get_mark(self) -> object:
        """Return what the newest run is known by; None before the first."""
        last = self.directory.load_last_run()
        return None if last is None and self._noted is None else (last.id if last else 0, self._noted)

    def authorize_reader(self, token: str) -> WebToken:
        """Return the record of a reader's `token`. Raises MessageRefusedError if it grants no access."""
        return self.authorize(token, TOKEN_ROLES)

    def authorize(self, token: str, roles: tuple[str, ...]) -> WebToken:
        """Return the record of `token`. Raises MessageRefusedError if it grants no access, or has none of `roles`."""
        web_token = self.directory.load_token(hash_token(token)) if token else None
        if web_token is None or not is_token_valid(web_token, self.clock.now()):
            raise MessageRefusedError(NO_TOKEN)
        if web_token.role not in roles:
            raise MessageRefusedError(NOT_ALLOWED)
        return web_token

    def check_health(self) -> tuple[float | None, bool]:
        """Return the age of the last run in the ledger in seconds, None without one, and whether the guard is late."""
        last = self.directory.load_last_run()
        if last is None:
            return None, True
        interval = self._interval or self._settings.watch.interval
        age_s = (self.clock.now() - last.at).total_seconds()
        turned_back = age_s < -interval.total_seconds()  # nobody knows how old the run is
        return max(0.0, age_s), turned_back or age_s > LATE_AFTER_RUNS * interval.total_seconds()

    def list_budgets(self) -> tuple[Budget, ...]:
        """Return the budgets of the settings as they are now."""
        return self._read_settings().budgets

    def _read_settings(self) -> Settings:
        """Return the settings as the file has them now; if it is invalid, as they were."""
        if self._config is not None:
            try:
                self._settings = read_settings(self._config)
            except CostguardError:
                return self._settings
        return self._settings


def _open_builder(settings: Settings, config: str | None) -> PageBuilder:
    from costguard.services.serving.page_builder import PageBuilder

    return PageBuilder(config, settings)


def _build_launchers(sources: _LedgerSources, board: RunBoard, config: str | None) -> LauncherServices:
    return LauncherServices(
        authorize=sources.authorize,
        quoter=AdmissionQuoter(config=config, budgets=sources.list_budgets),
        activity=ActivityBoard(board=board, health=sources.check_health, clock=sources.clock.now),
    )


def _build_pages(settings: Settings, config: str | None) -> PageServices:
    from costguard.services.serving.web_pages import PageServices

    web = settings.web
    secure = web.tls_cert is not None or web.behind_proxy is not None
    return PageServices(config=config, initial=settings, secure=secure)


def find_key_file(settings: Settings) -> Path:
    """Return the file of the key that signs answers to agents: as stated, or beside the ledger."""
    return locate_key_file(resolve_ledger_url(settings), settings.web.key_file)
