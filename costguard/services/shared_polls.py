"""Poll the accounts that this watchdog holds, where several share those of one ledger (`[scale] workers = "share"`).

Every second: renew what is held, take a fair share of what nobody holds, give back what is too much, and poll what is due.

    three watchdogs, 100 accounts: each holds up to 34. One dies: its leases run out after a third of an interval, and the two
    others hold 50 each. A fourth comes: each gives back what it has above 25, and the fourth takes it.

An account is asked once an interval, whoever holds it: when it is due stands in its duty. What a watchdog records for an
account names the lease under which it polled, and is refused if that is not in force any more (`ledger.duties`).

A watchdog whose clock differs from the ledger server's by more than `CLOCK_OFF_MAX` gives everything back and polls nothing:
what it recorded from the future would hold up newer listings. It looks when it renews; the recording transaction looks, too.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

from costguard.errors import ClockError, CostguardError, LeaseLostError, LedgerError
from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.sharing import build_clock_off_alert, build_twin_accounts_alert
from costguard.ledger.duties import DutyStore, PollView
from costguard.ledger.duty_records import CLOCK_OFF_MAX, Lease, build_clock_error
from costguard.metering.inventory import Poll
from costguard.metering.scope_state import AccrualResult
from costguard.metering.spending import ScopeCoverage
from costguard.providers.ports import InstanceSource
from costguard.services.guard_inputs import PollResults
from costguard.services.poll_views import (
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
    from costguard.services.judgements import AccountJudge
    from costguard.services.watchdog_context import SerializedLedger, WatchdogContext

TICK = timedelta(seconds=1)
LEASE_MIN_S, LEASE_MAX_S = 6.0, 60.0
RENEWALS = 3
"""A lease lasts for a third of an interval, so that an account whose holder dies is polled again before two intervals are over,
and is renewed three times in it."""
RETRY_S = 2.0
"""After which an account is polled again whose poll could not be recorded."""
TWIN_PAUSE = timedelta(hours=1)
"""For how long an account is not polled that another one of the settings already covers; it starts anew with each guard run."""
POLLS_AT_ONCE = 16
"""Accounts that one process asks at the same time; each has threads of its own for its scopes."""


@dataclass(slots=True)
class HeldAccount:
    """An account that this watchdog holds. `due_s`: when it is to be polled, by the monotonic clock."""

    lease: Lease
    due_s: float
    busy: bool = False


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
    """The accounts of the settings by name, and those of them that this watchdog holds.

    `every`: the interval of polls. `judge`: judges an account after its poll; None: the watchdog that plans judges all.
    """

    room: WatchdogContext
    store: DutyStore
    accounts: Mapping[str, InstanceSource]
    every: timedelta
    log: Log
    judge: AccountJudge | None = None
    _began: datetime = field(init=False)
    _held: dict[str, HeldAccount] = field(default_factory=dict)
    _views: dict[str, PollView] = field(default_factory=dict)
    _decoded: dict[str, tuple[str, AccountView | None]] = field(default_factory=dict)
    _renew_at: float = 0.0
    _until: float = 0.0
    _cut_off: bool = False
    _clock_off: timedelta = timedelta()
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=POLLS_AT_ONCE, thread_name_prefix="poll")
    )

    def __post_init__(self) -> None:
        self._began = self.room.clock.now()
        self._is_clock_off()  # before the first run of the guard takes a turn

    @property
    def lease_s(self) -> float:
        """Seconds for which a lease is taken."""
        return min(max(self.every.total_seconds() / 3, LEASE_MIN_S), LEASE_MAX_S)

    @property
    def held(self) -> tuple[str, ...]:
        """The names of the accounts that are held."""
        with self._lock:
            return tuple(sorted(self._held))

    def run(self) -> None:
        """Renew, take and give back leases if that is due, and start the polls that are due. Once every `TICK`."""
        now = monotonic()
        if now >= self._renew_at:
            self._renew_at = now + self.lease_s / RENEWALS
            try:
                self._balance()
                self._cut_off = False
            except LedgerError as error:
                self._renew_at = now
                if not self._cut_off:
                    self.log.error("leases_not_renewed", error=str(error), hint="polls end when the leases run out")  # noqa: TRY400 - known
                self._cut_off = True
        with self._lock:
            if monotonic() >= self._until:
                return  # the ledger could not be reached: what is held may be another's by now
            due = sorted((one.due_s, name) for name, one in self._held.items() if not one.busy and one.due_s <= now)
            busy = sum(one.busy for one in self._held.values())
            started = [name for _, name in due[: max(0, POLLS_AT_ONCE - busy)]]
            for name in started:
                self._held[name].busy = True
        for name in started:
            self._pool.submit(self._poll, name, self._held[name])

    def explain_clock_doubt(self) -> str:
        """Explain why this machine's clock is not trusted; "" if it is."""
        error = build_clock_error(self._clock_off)
        return f"{error.field} {error.what}" if self._clock_off else ""

    def close(self) -> None:
        """Wait for polls in progress, and give all leases back."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        with suppress(LedgerError):  # then they run out
            self.store.leave()
        self.store.close()
        if self.judge is not None:
            self.judge.close()

    def collect_poll_results(self, mine: PollResults) -> PollResults:
        """Return what the last polls of all accounts saw, whoever polled them. `mine`: what this process knows by itself."""
        found = self._load_views()
        for twin in find_twin_views(found):
            del found[twin.second]
        return PollResults(
            handling={key: one for view in found.values() for key, one in view.handling.items()},
            sources={scope: self.accounts[name] for name, view in found.items() for scope in view.scopes},
            balances=tuple(view.balance for view in found.values() if view.balance),
            members=tuple(one for view in found.values() for one in view.members),
            lags=mine.lags,
            measures=mine.measures,
            agents=mine.agents,
        )

    def list_unreached(self) -> tuple[ScopeCoverage, ...]:
        """Return the failed scopes of accounts that could not be asked for theirs, and of those that nobody has polled yet."""
        found = self._load_views()
        now = self.room.clock.now()
        unpolled = list_unpolled(self.accounts, self._views, every=self.every, since=self._began, now=now)
        return (*(one for view in found.values() for one in view.unreached), *unpolled)

    def list_alerts(self, now: datetime) -> tuple[Alert, ...]:
        """Return those about clocks and about accounts that are configured twice, which are not polled for `TWIN_PAUSE`."""
        twins = defaultdict[str, list[TwinAccounts]](list)
        for twin in find_twin_views(self._load_views()):
            twins[twin.first].append(twin)
        if twins:
            self.store.postpone([one.second for of in twins.values() for one in of], TWIN_PAUSE)
        clocks = (build_clock_off_alert(holder, off=off, at=now) for holder, off in self.store.load_clocks().items())
        return (*clocks, *(_build_twin_alert(of, now) for of in twins.values()))

    def list_scopes_beside(self, asked: Sequence[InstanceSource]) -> set[ScopeKey]:
        """Return the scopes that the last polls of other accounts than `asked` found."""
        views = self._load_views().items()
        return {scope for name, view in views if not any(self.accounts[name] is one for one in asked) for scope in view.scopes}

    def _load_views(self) -> dict[str, AccountView]:
        self._views = views = self.store.load_views(self._views, self.accounts)
        for name, view in views.items():
            if self._decoded.get(name, ("",))[0] != view.body:  # mostly the same as of the poll before
                self._decoded[name] = (view.body, decode_account_view(view))
        return {name: found for name in self.accounts if name in views and (found := self._decoded[name][1]) is not None}

    def _balance(self) -> None:
        lasts = timedelta(seconds=self.lease_s)
        asked = monotonic()
        if self._is_clock_off():
            self.store.announce(self.accounts, lasts, clock_off=self._clock_off)
            self._give_all_back()
            return
        workers = self.store.announce(self.accounts, lasts)
        renewed = self.store.renew(lasts)
        share = -(-len(self.accounts) // max(workers, 1))
        with self._lock:
            self._until = asked + self.lease_s
            before, now = self._held, monotonic()
            self._held = {}
            for lease, due_in_s in renewed:
                known = before.get(lease.account)
                same = known if known is not None and known.lease == lease else HeldAccount(lease, now + due_in_s)
                if now + due_in_s > same.due_s + self.every.total_seconds():
                    same.due_s = now + due_in_s  # it was postponed
                self._held[lease.account] = same
            for name in sorted(before.keys() - self._held.keys()):
                self.log.warning("lease_lost", account=name)
            idle = sorted((one.due_s, name) for name, one in self._held.items() if not one.busy)
            surplus = [self._held.pop(name).lease for _, name in idle[::-1][: max(0, len(self._held) - share)]]
            room = share - len(self._held)
        self.store.release(surplus)
        if self.judge is not None:
            self.judge.forget_others(self.held)
        taken = self.store.take(self.accounts, room, lasts)
        now = monotonic()
        with self._lock:
            self._held |= {lease.account: HeldAccount(lease, now + due_in_s) for lease, due_in_s in taken}
        if taken or surplus:
            self.log.info("accounts_held", held=len(self._held), taken=len(taken), given_back=len(surplus), watchdogs=workers)

    def _is_clock_off(self) -> bool:
        """Compare this machine's clock with the server's, and say so where that is new."""
        off, before = self.store.measure_clock(self.room.clock.now), self._clock_off
        self._clock_off = off if abs(off) > CLOCK_OFF_MAX else timedelta()
        if self._clock_off and not before:
            why = self.explain_clock_doubt()
            self.log.error("clock_off", off_s=off.total_seconds(), error=why, hint="it polls and plans nothing")
        if before and not self._clock_off:
            self.log.info("clock_right", off_s=off.total_seconds())
        return bool(self._clock_off)

    def _give_all_back(self) -> None:
        with self._lock:
            leases = [one.lease for one in self._held.values()]
            self._held = {}
        self.store.release(leases)
        self.room.release_leadership()

    def _poll(self, name: str, held: HeldAccount) -> None:
        """Poll one account, and leave what it saw for the watchdog that plans."""
        began, every_s, source = monotonic(), self.every.total_seconds(), self.accounts[name]
        on_the_beat = held.due_s + every_s  # a poll that is late does not make the next one come at once
        held.due_s = on_the_beat if on_the_beat > began + every_s / 2 else began + every_s
        try:
            polled = self.room.poll([source], ledger=LeasedLedger(self.room.ledger, held.lease))
            body = encode_account_view(self.room.describe_account(source))
            next_in = timedelta(seconds=max(0.0, held.due_s - monotonic()))
            self.store.finish_poll(held.lease, next_in=next_in, at=self.room.clock.now(), body=body)
            self.room.log_polled(polled)
            if self.judge is not None:
                self._judge(held.lease, source, self.judge)
        except LeaseLostError as error:
            self.log.warning("lease_lost", account=name, why=error.what)
            with self._lock:
                if self._held.get(name) is held:
                    del self._held[name]
        except ClockError as error:
            self._renew_at = 0.0  # where it is measured, and everything is given back
            self.log.error("clock_off", account=name, error=str(error))  # noqa: TRY400 - known
        except LedgerError as error:  # it was asked in vain, and is asked again soon: two intervals must not pass
            held.due_s = monotonic() + min(RETRY_S, every_s / 4)
            self.log.error("job_failed", job=name, error=str(error), next_try_s=held.due_s - monotonic())  # noqa: TRY400 - known
        except Exception as error:  # noqa: BLE001 - whatever a plug-in raises concerns this account alone
            said = str(error) if isinstance(error, CostguardError) else f"{type(error).__name__}: {error}"
            self.log.error("job_failed", job=name, error=said, next_try_s=every_s)  # noqa: TRY400 - a trace may hold a secret
        finally:
            held.busy = False

    def _judge(self, lease: Lease, source: InstanceSource, judge: AccountJudge) -> None:
        """Judge an account that was just polled. If that fails, the watchdog that plans judges it."""
        try:
            judge.judge(lease, self.room.describe_account(source).scopes)
        except LeaseLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the poll is recorded, and what was not judged here is judged by the planner
            said = str(error) if isinstance(error, CostguardError) else f"{type(error).__name__}: {error}"
            self.log.warning("account_not_judged", account=lease.account, why=said)


def _build_twin_alert(twins: Sequence[TwinAccounts], at: datetime) -> Alert:
    first, *others = (f"the account {one.second.rpartition('/')[2]}" for one in twins)
    name = f"the account {twins[0].first.rpartition('/')[2]}"
    return build_twin_accounts_alert(name, first, same=twins[0].same, others=others, at=at)
