"""The product over simulated clouds, in one process: its polls, its ledger, its guard and its messages, a round at a time.

watch = GuardedClouds(clouds, settings, clock=clock, notifier=notifier, ledger_url=url, interval=timedelta(minutes=20))
watch.poll(); watch.guard()
watch.run.intents                            # what was sent so far, and what came of it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex

from costguard.budgets.hold import Hold
from costguard.guard.alerts.alert import INFO, AlertRoute
from costguard.guard.context import GuardConfig
from costguard.guard.overrides import APPROVE, ARM, ARMED_FOR, Override, join_arming
from costguard.guard.policy import Policy, Rails
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import load_counting_holds
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.billing import BillingRule
from costguard.metering.inventory import Failed
from costguard.metering.observation import Handling, identify_incarnation
from costguard.providers.ports import InstanceSource
from costguard.services.guarding.dispatch import OutboxDispatcher
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.poll.poll import poll_sources
from costguard.services.poll.ports import Notifier
from costguard.settings import Settings
from costguard.testing.cloud import TerminateOnlyCloud
from costguard.testing.doubles import FakeClock
from costguard.values.resource import ResourceKey, ScopeKey

CHANNEL = "simulated"
APPROVED_FOR = timedelta(hours=24)


class GuardedClouds:
    """See the module. `run`: the last guard run, None before the first."""

    run: GuardRunResult | None = None

    def __init__(
        self,
        clouds: Mapping[str, TerminateOnlyCloud],
        settings: Settings,
        *,
        clock: FakeClock,
        notifier: Notifier,
        ledger_url: str,
        interval: timedelta,
    ) -> None:
        self.clouds, self.rules = clouds, {provider: cloud.rule() for provider, cloud in clouds.items()}
        self._clock = clock
        self._sources: dict[ScopeKey, InstanceSource] = {}
        self._handling: dict[ScopeKey, dict[ResourceKey, Handling]] = {}
        self._ledger = LedgerWriter(ledger_url, rules=self.rules, ceilings={})
        self._book = GuardStore(ledger_url, rails=settings.rails or Rails())
        accept_policies(self._book, settings.policies, who="demo", now=clock.now())
        routes = list_routes(settings)
        self._guard = build_guard_runner(
            settings,
            book=self._book,
            ledger_url=ledger_url,
            rules=self.rules,
            clock=clock,
            interval=interval,
            latest=self._collect_results,
            holder="demo",
            routes=routes,
        )
        self._postman = build_dispatcher(self._book, routes, notifier, clock)

    def poll(self) -> None:
        """Poll each cloud once; its machines measure themselves with the listing."""
        for one in poll_sources(self.clouds.values(), self._ledger, self._clock).seen:
            self._sources[one.poll.scope] = one.source
            if not isinstance(one.poll.inventory, Failed):
                self._handling[one.poll.scope] = {item.key: item.handling for item in one.poll.inventory.items}

    def guard(self) -> None:
        """Run the guard once, then deliver its messages."""
        self.run = self._guard.run()
        self._postman.deliver()

    def approve(self, name: str, act: str, *, who: str) -> None:
        """Record that `who` approves `act` on the machine that is called `name`."""
        now = self._clock.now()
        machine = next(cloud.machines[name] for cloud in self.clouds.values() if name in cloud.machines)
        observation = machine.observation(now)
        assert observation is not None  # noqa: S101 - it is there
        yes = Override(
            id=token_hex(8),
            what=APPROVE,
            who=who,
            why=act,
            at=now,
            until=now + APPROVED_FOR,
            key=observation.key,
            life=identify_incarnation(observation),
            subject=act,
        )
        self._book.add_override(yes)

    def close(self) -> None:
        """Let go of the ledger."""
        self._book.close()
        self._ledger.close()

    def _collect_results(self) -> PollResults:
        handling = {key: value for scope in self._handling.values() for key, value in scope.items()}
        return PollResults(
            handling=handling, sources=dict(self._sources), balances=(), members=(), lags={}, measures=(), agents=()
        )


def build_guard_runner(
    settings: Settings,
    *,
    book: GuardStore,
    ledger_url: str,
    rules: Mapping[str, BillingRule],
    clock: FakeClock,
    interval: timedelta,
    latest: Callable[[], PollResults],
    holder: str,
    routes: tuple[AlertRoute, ...],
) -> GuardRunner:
    """Return a guard as the watchdog runs it, for `settings` that are polled once in `interval`."""

    def load_holds(now: datetime) -> list[Hold]:
        with LedgerReader(ledger_url) as reader, reader.snapshot() as ask:
            return load_counting_holds(ask, now)

    return GuardRunner(
        book=book,
        books=partial(SpendingReader, ledger_url, rules=rules),
        rules=GuardConfig(
            policies=settings.policies,
            budgets=settings.budgets,
            rails=settings.rails or Rails(),
            owner_from=settings.defaults.owner_from,
            group_from=settings.defaults.group_from,
            protect=settings.defaults.protect,
            zone=settings.defaults.timezone,
            interval=interval,
            claims=settings.watch.claims,
            hooks=settings.hooks,
            admin_route=True,
        ),
        latest=latest,
        clock=clock,
        holder=holder,
        holds=load_holds,
        routes=routes,
        resident=True,
        seconds=lambda: clock.boottime().total_seconds(),
    )


def accept_policies(book: GuardStore, policies: Iterable[Policy], *, who: str, now: datetime) -> None:
    """Arm `policies` as their settings say, as a person who accepted them would."""
    for policy in policies:
        armed = join_arming(policy.arm, policy.digest)
        override = Override(
            id=token_hex(8), what=ARM, who=who, why="", at=now, until=now + ARMED_FOR, subject=policy.name, value=armed
        )
        book.add_override(override)


def list_routes(settings: Settings) -> tuple[AlertRoute, ...]:
    """Return the routes of `settings`, else one that takes everything."""
    return settings.routes or (AlertRoute(name=CHANNEL, channels=(CHANNEL,), min_severity=INFO),)


def build_dispatcher(book: GuardStore, routes: Iterable[AlertRoute], notifier: Notifier, clock: FakeClock) -> OutboxDispatcher:
    """Return what delivers the messages of `book`, every channel of `routes` being `notifier`."""
    channels = dict.fromkeys((name for route in routes for name in route.channels), notifier)
    return OutboxDispatcher(_Outbox(book), channels, clock=clock, second=notifier)


class _Outbox:
    """The messages of a guard's store, under the names that the dispatcher calls."""

    def __init__(self, book: GuardStore) -> None:
        self.due_messages, self.settle, self.undelivered = book.due_messages, book.settle_message, book.undelivered
