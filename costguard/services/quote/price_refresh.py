"""The daily refresh of the prices by `costguard watch`: `[prices] refresh = "daily"`.

A duty looks every minute whether a refresh is due and starts it in a thread of its own, so that neither a poll nor the end of
the watchdog waits for it; a refresh that is cut off changes nothing. Example: the last refresh was at 09:00 on Monday, so the
next one starts on Tuesday at 05:00, twenty hours later, whoever did the last one and however often the watchdog was restarted.
If it fails, that is logged, and it is tried again after 1, 2, 4, 8 and then every 12 hours.

Two clocks guard against a wall clock that jumps: by the wall clock the last refresh must be of an earlier day, and by the clock
that never jumps so many hours must have passed since this process tried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue

from costguard.errors import CostguardError
from costguard.ledger.market import MarketReader
from costguard.services.quote import offers
from costguard.settings import Settings, get_cache_path
from costguard.settings.sections import DAILY
from costguard.system.atomic_file import remove_file, write_file_atomically
from costguard.values.text_format import format_instant
from costguard.watchdog.duty import Log

CHECK_EVERY = timedelta(minutes=1)
"""How often the duty looks."""
REFRESH_AFTER = timedelta(hours=20)
"""A refresh may move to an earlier hour, so that it does not slide into the evening; and never are there two in one day."""
CLOCK_AHEAD_MAX = timedelta(days=1)
"""A refresh that is dated further ahead was dated by a wrong clock."""
RETRY_FIRST, RETRY_MAX = timedelta(hours=1), timedelta(hours=12)
"""Pauses after failures: some public sources allow few requests an hour."""
PAUSE_AFTER_SUCCESS = timedelta(hours=6)
"""By the clock that never jumps, in one process: a wall clock that jumps forth and back by a day costs four refreshes a day."""
TRIED_FILE = "market.refresh-tried"


def refresh_market_prices(settings: Settings) -> tuple[str, ...]:
    """Refresh the market file from the configured providers and the public sources, and append to the history.

    Returns warnings; raises CostguardError if no price came. `[prices] only = []` leaves the public sources out.
    """
    answer = offers.refresh_prices(public=settings.prices.only != (), settings=settings)
    if answer.refusal is not None:
        raise answer.refusal
    return answer.warnings


class DailyPriceRefresh:
    """Starts a refresh when one is due; `run` is called again and again.

    `settings`: those now in force. `refresh`: does it. `wall`, `steady`: the time of day, and seconds of a clock that never
    jumps. `start`: runs a function beside the caller.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        *,
        log: Log,
        refresh: Callable[[Settings], tuple[str, ...]] = refresh_market_prices,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        steady: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], object] = lambda run: threading.Thread(
            target=run, name="prices", daemon=True
        ).start(),
    ) -> None:
        self._settings, self._log, self._refresh = settings, log, refresh
        self._wall, self._steady, self._start = wall, steady, start
        self._outcomes: SimpleQueue[tuple[str, ...] | BaseException] = SimpleQueue()
        self._running, self._not_before = False, 0.0

    def run(self) -> None:
        """Start a refresh if one is due, and raise the error of the last one if it failed since the last call."""
        self._finish()
        if self._running or self._settings().prices.refresh != DAILY or not self._is_due():
            return
        self._running = True
        _note_attempt(_count_failures() + 1, self._wall())
        self._start(self._play)
        self._finish()

    def _is_due(self) -> bool:
        if self._not_before and self._steady() < self._not_before:
            return False
        now = self._wall()
        return is_refresh_due(read_refresh_time(offers.get_refreshed_market_file()), now) and not _is_pausing(now)

    def _play(self) -> None:
        try:
            self._outcomes.put(self._refresh(self._settings()))
        except BaseException as failed:  # noqa: BLE001 - whatever a plug-in raises, SystemExit too, is raised by `run`
            self._outcomes.put(failed)

    def _finish(self) -> None:
        """Record the end of the refresh under way, if it has ended."""
        try:
            outcome = self._outcomes.get_nowait()
        except Empty:
            return
        self._running = False
        if isinstance(outcome, BaseException):
            self._not_before = self._steady() + compute_pause(_count_failures()).total_seconds()
            raise outcome
        self._not_before = self._steady() + PAUSE_AFTER_SUCCESS.total_seconds()
        with suppress(OSError):
            remove_file(_get_tried_file())
        self._log.info("prices_refreshed", missing=len(outcome), why="; ".join(outcome[:3]))


def is_refresh_due(refreshed_at: datetime | None, now: datetime) -> bool:
    """Return whether a daily refresh is due. `refreshed_at`: when the last one was; None: there was none."""
    if refreshed_at is None or refreshed_at > now + CLOCK_AHEAD_MAX:
        return True
    return refreshed_at.date() < now.date() and now - refreshed_at >= REFRESH_AFTER


def read_refresh_time(market: Path) -> datetime | None:
    """Return when the market file was last refreshed; None if it is missing or cannot be read."""
    if not market.is_file():
        return None
    try:
        with MarketReader(market) as market_reader:
            return datetime.fromisoformat(str(market_reader.describe_file()["refreshed_at"]))
    except (CostguardError, KeyError, ValueError):
        return None


def compute_pause(failures: int) -> timedelta:
    """Return how long to wait after so many failures in a row."""
    return min(RETRY_MAX, RETRY_FIRST * (1 << min(max(failures, 1) - 1, 10)))


def _get_tried_file() -> Path:
    """Return the file that outlives a restart: a watchdog that is restarted every minute must not ask every minute."""
    return get_cache_path(TRIED_FILE)


def _note_attempt(failures: int, now: datetime) -> None:
    """Record an attempt before it begins; a success removes the record."""
    with suppress(OSError):  # then a restart tries again
        write_file_atomically(_get_tried_file(), f"{failures} {format_instant(now)}\n".encode())


def _read_attempt() -> tuple[int, datetime] | None:
    try:
        failures, at = _get_tried_file().read_text(encoding="utf-8").split()
        return int(failures), datetime.fromisoformat(at)
    except (OSError, ValueError):
        return None


def _count_failures() -> int:
    """Return the attempts since the last success."""
    attempt = _read_attempt()
    return attempt[0] if attempt else 0


def _is_pausing(now: datetime) -> bool:
    """Return whether the last attempt, of whatever process, was too short a time ago."""
    attempt = _read_attempt()
    return attempt is not None and timedelta() <= now - attempt[1] < compute_pause(attempt[0])
