"""Poll the accounts of one ledger beside other watchdogs (`[scale] workers = "share"`), and know what all polls saw.

The polls are jobs that any of the watchdogs works off, so that each account is asked once an interval (`services.poll_jobs`).
What a poll saw beside the ledger is left there for the one that plans. What is recorded for an account names the job, and is
refused if that has ended (`ledger.duty_records`).

A watchdog whose clock differs from the ledger server's by more than `CLOCK_OFF_MAX` polls nothing: what it recorded from the
future would hold up newer listings. It looks with each heartbeat; the recording transaction looks, too.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from costguard.errors import ClockError, CostguardError, InputError, LeaseLostError, LedgerError
from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.watchdog import build_clock_off_alert, build_twin_accounts_alert
from costguard.ledger.duties import DutyStore, PollView
from costguard.ledger.duty_records import CLOCK_OFF_MAX, Lease, build_clock_error
from costguard.metering.inventory import Poll
from costguard.metering.scope_state import AccrualResult
from costguard.metering.spending import ScopeCoverage
from costguard.providers.ports import InstanceSource
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.poll.poll_views import (
    AccountView,
    TwinAccounts,
    decode_account_view,
    encode_account_view,
    find_twin_views,
    list_unpolled,
)
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import Sample
from costguard.watchdog.duty import Log

if TYPE_CHECKING:
    from costguard.services.guarding.watchdog_context import SerializedLedger, WatchdogContext
    from costguard.services.poll.poll_jobs import PollWorker

PRESENT_S = 15.0
"""For how long a watchdog counts as one that is there without saying so again."""


@dataclass(frozen=True, slots=True)
class LeasedLedger:
    """The ledger for the poll of one account: each record names the lease."""

    ledger: SerializedLedger
    lease: Lease

    def record_polls(self, polls: Sequence[Poll]) -> Sequence[AccrualResult]:
        """Record `polls`. Raises LeaseLostError."""
        return self.ledger.record_polls(polls, lease=self.lease)

    def find_suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        """Call the ledger's method."""
        return self.ledger.find_suspects(poll)

    def list_scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        """Call the ledger's method."""
        return self.ledger.list_scopes_of(provider)

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        """Record `samples`. Raises LeaseLostError."""
        return self.ledger.record_samples(samples, lease=self.lease)


@dataclass(slots=True, kw_only=True)
class SharedPolls:
    """The accounts of the settings by name, some of whose polls this watchdog works off.

    `group`: of the watchdogs with the same accounts. `every`: the interval of polls.
    """

    room: WatchdogContext
    store: DutyStore
    group: str
    accounts: Mapping[str, InstanceSource]
    every: timedelta
    log: Log
    _began: datetime = field(init=False)
    _busy: set[str] = field(default_factory=set)
    _views: dict[str, PollView] = field(default_factory=dict)
    _decoded: dict[str, tuple[str, AccountView | None]] = field(default_factory=dict)
    _cut_off: bool = False
    _clock_off: timedelta = timedelta()
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: PollWorker | None = None

    def __post_init__(self) -> None:
        self._began = self.room.clock.now()
        self._is_clock_off()  # before the first run of the guard takes a turn

    def start(self) -> None:
        """Begin to work off polls, in threads beside this one. Raises InputError without procrastinate."""
        try:
            from procrastinate.schema import SchemaManager

            from costguard.services.poll.poll_jobs import PollWorker
        except ImportError as error:
            hint = "in a clone of costguard: pip install '.[postgres]' brings it"
            raise InputError("needs procrastinate", field='scale.workers = "share"', hint=hint) from error
        schema = SchemaManager.get_schema()
        self.store.prepare_jobs(schema)
        self._worker = PollWorker(
            conninfo=self.store.conninfo,
            prepare=partial(self.store.prepare_jobs, schema, replace=False),
            holder=self.store.holder,
            group=self.group,
            accounts=tuple(self.accounts),
            every=self.every,
            poll=self._poll,
            list_paused=self._list_paused,
            may_work=self._announce,
            log=self.log,
        )
        self._worker.start()

    def explain_clock_doubt(self) -> str:
        """Explain why this machine's clock is not trusted; "" if it is."""
        error = build_clock_error(self._clock_off)
        return f"{error.field} {error.what}" if self._clock_off else ""

    def close(self) -> None:
        """Wait for polls in progress, and say that this watchdog is gone."""
        if self._worker is not None:
            self._worker.close()
        with suppress(LedgerError):  # then it counts for a few seconds more
            self.store.leave()
        self.store.close()

    def collect_poll_results(self, own: PollResults) -> PollResults:
        """Return what the last polls of all accounts saw, whoever polled them. `own`: what this process knows by itself."""
        views = self._load_views()
        for twin in find_twin_views(views):
            del views[twin.second]
        return PollResults(
            handling={key: one for view in views.values() for key, one in view.handling.items()},
            sources={scope: self.accounts[name] for name, view in views.items() for scope in view.scopes},
            balances=tuple(view.balance for view in views.values() if view.balance),
            members=tuple(one for view in views.values() for one in view.members),
            lags=own.lags,
            measures=own.measures,
            agents=own.agents,
        )

    def list_unreached(self) -> tuple[ScopeCoverage, ...]:
        """Return the failed scopes of accounts that could not be asked for theirs, and of those that nobody has polled yet."""
        views = self._load_views()
        now = self.room.clock.now()
        waiting_scopes = list_unpolled(self.accounts, self._views, every=self.every, since=self._began, now=now)
        return (*(one for view in views.values() for one in view.unreached), *waiting_scopes)

    def list_alerts(self, now: datetime) -> tuple[Alert, ...]:
        """Return those about clocks and about accounts that are configured twice, which are polled no more."""
        twins = defaultdict[str, list[TwinAccounts]](list)
        for twin in find_twin_views(self._load_views()):
            twins[twin.first].append(twin)
        clocks = (build_clock_off_alert(holder, off=off, at=now) for holder, off in self.store.load_clocks().items())
        return (*clocks, *(_build_twin_alert(of, now) for of in twins.values()))

    def list_scopes_beside(self, sources: Sequence[InstanceSource]) -> set[ScopeKey]:
        """Return the scopes that the last polls of other accounts than `sources` found."""
        views = self._load_views().items()
        return {
            scope for name, view in views if not any(self.accounts[name] is one for one in sources) for scope in view.scopes
        }

    def _load_views(self) -> dict[str, AccountView]:
        self._views = views = self.store.load_views(self._views, self.accounts)
        for name, view in views.items():
            if self._decoded.get(name, ("",))[0] != view.body:  # mostly the same as of the poll before
                self._decoded[name] = (view.body, decode_account_view(view))
        return {name: item for name in self.accounts if name in views and (item := self._decoded[name][1]) is not None}

    def _announce(self) -> bool:
        """Say that this watchdog is there; return whether it may poll. It may not while the ledger refuses that."""
        try:
            off = self._is_clock_off()
            self.store.announce(self.accounts, timedelta(seconds=PRESENT_S), clock_off=self._clock_off)
        except LedgerError as error:
            if not self._cut_off:
                self.log.error("polls_paused", error=str(error), hint="it continues when the ledger accepts its records")  # noqa: TRY400 - known
            self._cut_off = True
            return False
        self._cut_off = False
        if off:
            self.room.release_leadership()
        return not off

    def _list_paused(self) -> set[str]:
        """Return the accounts that another one of the settings already covers: they are polled no more."""
        return {twin.second for twin in find_twin_views(self._load_views())}

    def _is_clock_off(self) -> bool:
        """Compare this machine's clock with the server's, and say so where that is new."""
        off, was_off = self.store.measure_clock(self.room.clock.now), self._clock_off
        self._clock_off = off if abs(off) > CLOCK_OFF_MAX else timedelta()
        if self._clock_off and not was_off:
            why = self.explain_clock_doubt()
            self.log.error("clock_off", off_s=off.total_seconds(), error=why, hint="it does not poll or plan")
        if was_off and not self._clock_off:
            self.log.info("clock_right", off_s=off.total_seconds())
        return bool(self._clock_off)

    def _poll(self, lease: Lease) -> None:
        """Poll one account, and leave what it saw for the watchdog that plans."""
        name = lease.account
        with self._lock:
            if name in self._busy:  # a poll that was ended while this process was suspended is not over here
                return
            self._busy.add(name)
        try:
            source = self.accounts[name]
            polled = self.room.poll([source], ledger=LeasedLedger(self.room.ledger, lease))
            body = encode_account_view(self.room.describe_account(source))
            self.store.finish_poll(lease, every=self.every, at=self.room.clock.now(), body=body)
            self.room.log_polled(polled)
        except LeaseLostError as error:
            self.log.warning("lease_lost", account=name, why=error.what)
        except ClockError as error:
            self.log.error("clock_off", account=name, error=str(error))  # noqa: TRY400 - known
        except Exception as error:  # noqa: BLE001 - whatever a plug-in raises concerns this account alone
            text = str(error) if isinstance(error, CostguardError) else f"{type(error).__name__}: {error}"
            every_s = self.every.total_seconds()
            self.log.error("job_failed", job=name, error=text, next_try_s=every_s)  # noqa: TRY400 - a trace may hold a secret
        finally:
            with self._lock:
                self._busy.discard(name)


def _build_twin_alert(twins: Sequence[TwinAccounts], at: datetime) -> Alert:
    first, *others = (f"the account {one.second.rpartition('/')[2]}" for one in twins)
    name = f"the account {twins[0].first.rpartition('/')[2]}"
    return build_twin_accounts_alert(name, first, same=twins[0].same, others=others, at=at)
