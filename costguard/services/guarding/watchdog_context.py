"""Resources that `watch` keeps open: accounts, ledger, guard, dispatcher; and the heartbeat.

The heartbeat requests `[watch] heartbeat_url`; its receiver alerts when requests stop. The head of the audit log is sent as
`User-Agent: costguard audit/1234:9f86d081884c7d65`: most receivers log that header, where nobody on this machine can change it
(decision 0025).
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from costguard.budgets.hold import Hold
from costguard.data import ShippedFacts
from costguard.errors import InputError, LedgerError, ProviderError
from costguard.guard.alerts.alert import FIRST, Notification
from costguard.guard.alerts.watchdog import build_ledger_unwritable_alert
from costguard.guard.context import GuardConfig
from costguard.ledger.agents.records import load_agents
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.duty_records import Lease
from costguard.ledger.guard.audit_log import read_head_text
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import load_counting_holds
from costguard.ledger.reports.store import ReportStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.sample_retention import RetentionResult
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Failed, Poll
from costguard.metering.observation import Observation
from costguard.metering.price_ladder import PriceLadder
from costguard.metering.scope_state import AccrualResult
from costguard.metering.spending import ScopeCoverage
from costguard.providers.ports import BalanceSource, InstanceSource
from costguard.services.guarding.act.hooks import record_hook_ends
from costguard.services.guarding.anomaly_watch import open_anomaly_watch
from costguard.services.guarding.audit import find_rollback_marker
from costguard.services.guarding.dispatch import (
    OutboxDispatcher,
    build_hook_runner,
    is_led_by_another,
    list_routes,
    open_console,
    open_dispatcher,
)
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.services.guarding.guard_inputs import (
    PollResults,
    build_guard_config,
    read_measurement_lags,
)
from costguard.services.guarding.run_view import digest_providers
from costguard.services.guarding.sample_cache import AgentSampleCache
from costguard.services.poll.account_identity import IdentityCache
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.configured_providers import SystemClock, list_sources, open_providers, open_transport
from costguard.services.poll.kubernetes_view import KubernetesView, open_kubernetes_view
from costguard.services.poll.market_prices import open_price_ladder, read_price_ceilings
from costguard.services.poll.poll import POLL_CYCLE_LIMIT_S, PollCycleResult, ScopePoll, measure_activity, poll_sources
from costguard.services.poll.poll_views import AccountView
from costguard.services.poll.ports import Ledger
from costguard.settings import Settings, resolve_ledger_url
from costguard.settings.notify import resolve_address
from costguard.settings.sections import SHARE
from costguard.system.logs import get_log
from costguard.values.agent import Agent
from costguard.values.money import PrepaidBalance
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import Sample

if TYPE_CHECKING:  # what only a watchdog that runs on has: a plan does without
    from costguard.services.guarding.shared_polls import SharedPolls
    from costguard.services.quote.price_refresh import DailyPriceRefresh

WARN_AGAIN_AFTER = timedelta(hours=1)
"""How often it is said again that the ledger cannot be written."""
BALANCE_EVERY, BALANCE_LIMIT_S = timedelta(minutes=5), 20.0
"""A balance lasts for hours; asking costs a request that a listing may need."""


class SerializedLedger:
    """The ledger writer behind a lock, for duties that poll in parallel."""

    def __init__(self, ledger: LedgerWriter, agent_samples: AgentSampleCache | None = None) -> None:
        self._ledger, self._heard, self._lock = ledger, agent_samples or AgentSampleCache(), threading.Lock()

    def record_polls(self, polls: Sequence[Poll], *, lease: Lease | None = None) -> Sequence[AccrualResult]:
        """Call the ledger's method under the lock."""
        with self._lock:
            return self._ledger.record_polls(polls, lease=lease)

    def adopt(self, ladder: PriceLadder) -> None:
        """Go on with other agreements."""
        with self._lock:
            self._ledger.ladder = ladder

    def find_suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        """Call the ledger's method under the lock."""
        with self._lock:
            return self._ledger.find_suspects(poll)

    def list_scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        """Call the ledger's method under the lock."""
        with self._lock:
            return self._ledger.list_scopes_of(provider)

    def record_samples(self, samples: Sequence[Sample], *, lease: Lease | None = None) -> frozenset[ResourceKey]:
        """Cache the samples as measured by providers, then call the ledger's method under the lock."""
        self._heard.add_provider_samples(samples)
        with self._lock:
            return self._ledger.record_samples(samples, lease=lease)

    def keep_samples_bounded(self, now: datetime) -> RetentionResult:
        """Call the ledger's method without the lock: it takes seconds, and polls go on in the meantime."""
        return self._ledger.keep_samples_bounded(now)


@dataclass(slots=True, kw_only=True)
class WatchdogContext:
    """The open resources of a watchdog.

    `lags`: how late each provider's measurements arrive. `recorded`: the last run is in the ledger. `heard`: cache of agents'
    samples. `agents`: those that may report. `after_run`: called with each run. `committed_at`: time of the last run of this
    process that is in the ledger. `prices`: refreshes the prices once a day; None: never. `check_bills`: asks for
    bills; None: never. `shared`: polls accounts beside other watchdogs; None: this process polls every account.
    """

    settings: Settings
    sources: tuple[InstanceSource, ...]
    ledger: SerializedLedger
    guard: GuardRunner
    book: GuardStore
    postman: OutboxDispatcher
    reports: ReportStore
    clock: SystemClock
    clusters: KubernetesView
    lags: Mapping[str, timedelta]
    heard: AgentSampleCache
    agents: Callable[[], tuple[Agent, ...]]
    after_run: Callable[[GuardRunResult], None] | None = None
    audit_head: Callable[[], str] = field(default=str)
    prices: DailyPriceRefresh | None = None
    check_bills: Callable[[], object] | None = None
    shared: SharedPolls | None = None
    committed_at: datetime | None = None
    recorded: bool = False
    _listed: dict[ScopeKey, tuple[Observation, ...]] = field(default_factory=dict)
    _by_key: dict[ResourceKey, Observation] = field(default_factory=dict)
    _balances: dict[int, PrepaidBalance] = field(default_factory=dict)
    _unreached: dict[int, tuple[ScopeCoverage, ...]] = field(default_factory=dict)
    _sources: dict[ScopeKey, InstanceSource] = field(default_factory=dict)
    _identities: IdentityCache = field(default_factory=IdentityCache)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _broken_since: datetime | None = None
    _said_at: datetime | None = None

    def poll(self, sources: Sequence[InstanceSource] | None = None, *, ledger: Ledger | None = None) -> PollCycleResult:
        """Run one poll cycle over `sources`, None: all, and measure running machines.

        `ledger`: to record them in; None: `self.ledger`. Raises InputError for duplicate accounts.
        """
        targets = self.sources if sources is None else sources
        limit = min(POLL_CYCLE_LIMIT_S, max(self.guard.rules.interval.total_seconds(), 10.0))
        ledger = ledger or self.ledger
        run_cycle = partial(poll_sources, targets, ledger, self.clock, limit_s=limit, identities=self._identities)
        other_scopes = partial(self._list_scopes_beside, targets)
        polled = self.clusters.poll(partial(run_cycle, elsewhere=other_scopes), every_account=sources is None)
        if polled.twins:
            hint = "remove one of the two from the settings: its costs would be counted twice"
            raise InputError("; ".join(polled.twins), field="providers", hint=hint)
        with self._lock:
            for one in polled.seen:
                self._remember_listing(one)
            for source in polled.others:  # nothing is done with its key
                self._sources = {scope: of for scope, of in self._sources.items() if of is not source}
                self._balances.pop(id(source), None)
            for source in targets:
                failed = (one.coverage for one in polled.unreached if one.source is source)
                self._unreached[id(source)] = keep_failing_since(failed, self._unreached.get(id(source), ()))
        self._ask_balances([one for one in targets if not any(one is other for other in polled.others)])
        measure_activity(polled.seen, ledger, self.clock.now(), limit_s=limit)
        return polled

    def adopt(self, settings: Settings, rules: GuardConfig) -> None:
        """Continue with other settings for the same accounts and ledger."""
        self.settings, self.guard.rules, self.guard.routes = settings, rules, list_routes(settings)
        self.book.set_rails(rules.rails)
        self.clusters.adopt(settings)
        self.ledger.adopt(open_price_ladder(settings, read_price_ceilings(settings)))
        self.postman = open_dispatcher(settings, self.book, self.clock, self.guard.holder)
        self.guard.anomalies = open_anomaly_watch(settings)
        self.guard.hooks.post = build_hook_runner(settings, self.clock).post

    def collect_poll_results(self) -> PollResults:
        """Return the data of the last listings, whichever watchdog made them."""
        own = self._collect_own_results()
        return self.shared.collect_poll_results(own) if self.shared else own

    def describe_account(self, source: InstanceSource) -> AccountView:
        """Return what the last poll of `source` saw beside the ledger, and what its provider calls it, if it was asked."""
        with self._lock:
            scopes = tuple(scope for scope, of in self._sources.items() if of is source)
            items = [item for scope in scopes for item in self._listed.get(scope, ())]
            return AccountView(
                scopes=scopes,
                handling={item.key: item.handling for item in items},
                members=tuple(item for item in items if item.handling.controller),
                balance=self._balances.get(id(source)),
                unreached=self._unreached.get(id(source), ()),
                identity=self._identities.get(source),
            )

    @staticmethod
    def log_polled(polled: PollCycleResult) -> None:
        """Log what a poll could not see or record."""
        for one in polled.unseen:
            get_log().warning("not_seen", scope="/".join(one.state.scope), outcome=one.outcome, why=one.why)
        for sentence in polled.refused:
            get_log().warning("not_recorded", why=sentence)

    def _collect_own_results(self) -> PollResults:
        with self._lock:
            handling = {item.key: item.handling for items in self._listed.values() for item in items}
            members = tuple(item for items in self._listed.values() for item in items if item.handling.controller)
            balances = tuple(self._balances.values())
            sources = dict(self._sources)
        return PollResults(
            handling=handling,
            sources=sources,
            balances=balances,
            members=members,
            lags=self.lags,
            measures=(self.heard,),
            agents=self.agents(),
        )

    def list_unreached(self) -> tuple[ScopeCoverage, ...]:
        """Return the failed scopes of accounts that could not be asked for theirs when last polled."""
        if self.shared:
            return self.shared.list_unreached()
        with self._lock:
            return tuple(one for scopes in self._unreached.values() for one in scopes)

    def find_listed(self, key: ResourceKey) -> Observation | None:
        """Return one resource as in the last listings; None if they lack it."""
        with self._lock:
            return self._by_key.get(key)

    def run_guard(self) -> GuardRunResult:
        """Run the guard once. An unwritable ledger is reported on the console, at once and then every hour."""
        guarded = self.guard.run()
        self.recorded = guarded.acting
        if guarded.committed and not guarded.broken:
            self.committed_at = guarded.at
        if self.after_run is not None:
            self.after_run(guarded)
        if not guarded.broken:
            self._broken_since = self._said_at = None
            return guarded
        self._broken_since = self._broken_since or guarded.at
        if self._said_at is None or guarded.at - self._said_at >= WARN_AGAIN_AFTER:
            self._said_at = guarded.at
            notice = build_ledger_unwritable_alert(why=guarded.broken, at=guarded.at, since=self._broken_since)
            open_console(self.clock)(
                Notification(
                    id=f"ledger {guarded.at.isoformat()}",
                    channel="console",
                    why_now=FIRST,
                    severity=notice.severity,
                    title=notice.what,
                    notices=(notice,),
                    at=guarded.at,
                )
            )
        return guarded

    def end_hooks(self, *, cut_short: bool = False) -> None:
        """Wait until no hook runs, and record their ends if the ledger can be written."""
        self.guard.hooks.wait(cut_short=cut_short)
        if not self.guard.dry_run:
            with suppress(LedgerError):  # then their time runs out, and they are lost
                record_hook_ends(self.book, self.guard.hooks, self.clock.now(), lost=False)

    def may_lead(self) -> bool:
        """Return whether what the one that plans does besides is this one's: no other has the turn, and its clock is right."""
        trusted = not self.guard.dry_run and not self.guard.clock_doubt()
        return trusted and not is_led_by_another(self.book, self.guard.holder, self.clock.now())

    def release_leadership(self) -> None:
        """Release the leader lease, so that the next watchdog need not wait for it to expire."""
        with suppress(LedgerError):  # then it runs out
            turn = self.book.load_leader_lease()
            if turn is not None and turn.holder == self.guard.holder:
                self.book.release_leader_lease(turn.epoch)

    def _list_scopes_beside(self, sources: Sequence[InstanceSource]) -> frozenset[ScopeKey]:
        """Return the scopes that were last listed by other accounts than `sources`, whichever watchdog polled them."""
        with self._lock:
            other_scopes = {scope for scope, of in self._sources.items() if not any(of is one for one in sources)}
        return frozenset(other_scopes | self.shared.list_scopes_beside(sources) if self.shared else other_scopes)

    def _remember_listing(self, scope_poll: ScopePoll) -> None:
        self._sources[scope_poll.poll.scope] = scope_poll.source
        if not isinstance(scope_poll.poll.inventory, Failed):
            old_observations = self._listed.get(scope_poll.poll.scope, ())
            self._listed[scope_poll.poll.scope] = scope_poll.poll.inventory.items
            for one in old_observations:
                self._by_key.pop(one.key, None)
            self._by_key |= {one.key: one for one in scope_poll.poll.inventory.items}

    def _ask_balances(self, sources: Sequence[InstanceSource]) -> None:
        """Fetch the balances of prepaid accounts every BALANCE_EVERY. If a request fails, the last balance is kept."""
        now = self.clock.now()
        prepaid = {id(one): one for one in sources if isinstance(one, BalanceSource)}
        last = {number: self._balances.get(number) for number in prepaid}
        due = [n for n, balance in last.items() if balance is None or now - balance.at >= BALANCE_EVERY]
        answers = run_all({number: prepaid[number].fetch_balance for number in due}, limit_s=BALANCE_LIMIT_S)
        with self._lock:
            self._balances |= {number: answer for number, answer in answers.items() if isinstance(answer, PrepaidBalance)}


@contextmanager
def open_watchdog_context(
    settings: Settings,
    *,
    interval: timedelta | None = None,
    dry_run: bool = False,
    resident: bool = False,
    offline: bool = False,
    open_bills: Callable[[WatchdogContext], Callable[[], object]] | None = None,
) -> Iterator[WatchdogContext]:
    """Open everything; it is closed when the block ends. `offline`: no account is polled.

    `open_bills`: returns what asks for bills; it is not called offline or for a dry run.
    """
    url, clock, billing = resolve_ledger_url(settings), SystemClock(), ShippedFacts().get_billing_rules()
    rules, most = build_guard_config(settings, interval), read_price_ceilings(settings)
    holder = f"{socket.gethostname()}:{os.getpid()}:{token_hex(3)}"  # containers may share a host name, and number 1 in each
    with (
        open_providers(settings, only=() if offline else None) as clouds,
        LedgerWriter(url, rules=billing, ceilings=most, ladder=open_price_ladder(settings, most)) as ledger,
        GuardStore(url, rails=rules.rails) as book,
        ReportStore(url) as reports,
        closing(open_kubernetes_view(settings, clock)) as clusters,
    ):
        agent_samples = AgentSampleCache()
        context: WatchdogContext = WatchdogContext(
            settings=settings,
            sources=list_sources(clouds),
            ledger=SerializedLedger(ledger, agent_samples),
            heard=agent_samples,
            agents=partial(_load_agents, url),
            audit_head=partial(_read_audit_head, url),
            guard=GuardRunner(
                book=book,
                books=partial(SpendingReader, url, rules=billing, ceilings=lambda: most),
                rules=rules,
                latest=lambda: context.collect_poll_results(),  # noqa: PLW0108 - it is made around this
                clock=clock,
                holder=holder,
                holds=partial(_load_holds, url),
                routes=list_routes(settings),
                dry_run=dry_run,
                resident=resident,
                hooks=build_hook_runner(settings, clock),
                mark=find_rollback_marker(settings),
                asks=digest_providers(settings.providers),
                unreached=lambda: context.list_unreached(),  # noqa: PLW0108 - it is made around this
                anomalies=open_anomaly_watch(settings),
            ),
            book=book,
            postman=open_dispatcher(settings, book, clock, holder),
            reports=reports,
            clock=clock,
            clusters=clusters,
            lags=read_measurement_lags(),
        )
        if not offline and not dry_run:
            from costguard.services.quote.price_refresh import DailyPriceRefresh

            context.prices = DailyPriceRefresh(lambda: context.settings, log=get_log())
            context.check_bills = open_bills(context) if open_bills else None
        if resident and not dry_run and not offline and settings.scale.workers == SHARE:
            context.shared = _open_shared_polls(context, url, interval or settings.watch.interval)
            context.guard.clock_doubt, context.guard.more_alerts = (
                context.shared.explain_clock_doubt,
                context.shared.list_alerts,
            )
            context.guard.shares = settings.web.listen is None  # who serves agents evaluates as well, to know their machines
        try:
            yield context
        finally:
            context.end_hooks(cut_short=True)
            if context.shared:
                context.shared.close()


def _open_shared_polls(context: WatchdogContext, url: str, every: timedelta) -> SharedPolls:
    """Return the accounts that this watchdog shares with others which have the same settings of providers.

    Accounts are named by these settings, so that watchdogs with others never take one account for another.
    """
    from costguard.ledger.duties import DutyStore
    from costguard.services.guarding.shared_polls import SharedPolls

    digest = digest_providers(context.settings.providers)[:8]
    store = DutyStore(url, context.guard.holder, group=digest)
    accounts = {f"{digest}/{name}": source for name, source in name_sources(context.sources)}
    return SharedPolls(room=context, store=store, group=digest, accounts=accounts, every=every, log=get_log())


def name_sources(sources: Sequence[InstanceSource]) -> list[tuple[str, InstanceSource]]:
    """Return each account with a unique name: its providers, and a number if there are several."""
    names, counts = ["+".join(source.providers) for source in sources], Counter[str]()
    many, named_sources = Counter(names), list[tuple[str, InstanceSource]]()
    for name, source in zip(names, sources, strict=True):
        counts[name] += 1
        named_sources.append((name if many[name] == 1 else f"{name} {counts[name]}", source))
    return named_sources


def keep_failing_since(failed: Iterable[ScopeCoverage], previous: Iterable[ScopeCoverage]) -> tuple[ScopeCoverage, ...]:
    """Return `failed`, each since the first of its failures in a row; `previous`: those of the poll before."""
    since = {one.scope: one.since for one in previous}
    return tuple(replace(one, since=since.get(one.scope, one.since)) for one in failed)


def _load_agents(url: str) -> tuple[Agent, ...]:
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return tuple(load_agents(ask))


def _read_audit_head(url: str) -> str:
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return read_head_text(ask)


def _load_holds(url: str, now: datetime) -> list[Hold]:
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return load_counting_holds(ask, now)


HEARTBEAT_LIMIT_S = 10.0
"""How long one may take. Its thread holds back nothing but the next one."""
HEARTBEAT_BYTES_MAX = 64 * 1024
HTTP_OK, HTTP_REDIRECT = 200, 300


def send_heartbeat(settings: Callable[[], Settings]) -> str:
    """Send one request; return "" if it got a 2xx or no URL is set, else the reason without the address."""
    from costguard.providers.transport import Deadline
    from costguard.providers.transport.client import HttpRequest

    now = settings()
    if now.watch.heartbeat_url is None:
        return ""
    transport = open_transport(now)
    try:
        url = resolve_address(now.watch.heartbeat_url, "watch.heartbeat_url")
        reply = transport.exchange(
            HttpRequest(method="GET", url=url, headers=_build_heartbeat_headers(now), called="its address"),
            provider="heartbeat",
            deadline=Deadline(HEARTBEAT_LIMIT_S),
            most_bytes=HEARTBEAT_BYTES_MAX,
        )
    except InputError as error:
        return str(error)
    except ProviderError as error:
        return "; ".join(filter(None, (error.what, error.hint)))
    finally:
        transport.close()
    return "" if HTTP_OK <= reply.status < HTTP_REDIRECT else f"it answered {reply.status}"


def _build_heartbeat_headers(settings: Settings) -> Mapping[str, str]:
    """Return the User-Agent header with the head of the audit log; without the head if it cannot be read."""
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.guard.audit_log import read_head_text

    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            head = read_head_text(ask)
    except (InputError, LedgerError):
        head = ""
    return {"User-Agent": f"costguard audit/{head}" if head else "costguard"}
