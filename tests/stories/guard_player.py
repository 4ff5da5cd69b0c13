"""Plays a story with the real guard: its polls, its ledger, its messages, and what people want of it.

    outcome = play(read_file(path), GuardPlay, tmp_path)
    assert not outcome.faults, outcome.report()

Every channel is the story's one notifier, the clouds are asked as accounts are, and a command of a person is run as one.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex

from costguard.budgets.hold import Hold
from costguard.errors import InputError, LedgerError
from costguard.guard.overrides import (
    ACCEPT,
    APPROVE,
    ARM,
    ARMED_FOR,
    FREEZE,
    LEASE,
    PHASE,
    PROTECT,
    SNOOZE,
    STOP_AT,
    UNTIL,
    Override,
    decide_lease,
    find_owner,
    join_arming,
)
from costguard.guard.policy import Rails
from costguard.guard.policy_evaluation import compute_burn_rate, matches_target
from costguard.guard.until import join_until_labels
from costguard.ledger.db.session import SqlSession
from costguard.ledger.duty_records import Lease
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import HoldStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Failed, Poll
from costguard.metering.observation import Handling, Observation, identify_incarnation
from costguard.metering.scope_state import AccrualResult
from costguard.metering.spending import LiveResource
from costguard.providers.ports import BalanceSource, InstanceSource
from costguard.services.guarding.dispatch import OutboxDispatcher
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.run_jobs.record_store import take_hold
from costguard.settings import check_settings
from costguard.testing.guarding import APPROVED_FOR, accept_policies, build_dispatcher, build_guard_runner, list_routes
from costguard.values.money import PrepaidBalance
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import Sample
from costguard.values.text_format import get_currency_sign
from tests.stories.player import GuardResult, PollPlayer, StoryReply, StoryStage
from tests.stories.story import StoryEvent

HELD_FOR = timedelta(days=1)
"""A hold of a story, where nobody says for how long."""
DISK_FULL = "cannot be written: the disk is full; nothing was written"
COMMAND_S = 60


class _FullBook(GuardStore):
    """The guard's part of a ledger whose disk may be full: reading goes on, and nothing can be written."""

    full = False

    @contextmanager
    def _begin_write(self) -> Iterator[SqlSession]:
        if self.full:
            raise LedgerError(DISK_FULL)
        with super()._begin_write() as voices:
            yield voices


class _FullLedger(LedgerWriter):
    """The polls' part of it."""

    full = False

    def record_polls(self, polls: Sequence[Poll], *, lease: Lease | None = None) -> tuple[AccrualResult, ...]:
        if self.full:
            raise LedgerError(DISK_FULL)
        return super().record_polls(polls, lease=lease)

    def record_samples(self, samples: Sequence[Sample], *, lease: Lease | None = None) -> frozenset[ResourceKey]:
        if self.full:
            raise LedgerError(DISK_FULL)
        return super().record_samples(samples, lease=lease)


class GuardPlayer(PollPlayer):
    """Costguard in a story. `guarded`: the last guard run, None before the first. A `crash` forgets all but the ledger.

    `folder`: in which commands of people run; None: the current one.
    """

    guarded: GuardRunResult | None
    ledger: _FullLedger
    _guard: GuardRunner
    _postman: OutboxDispatcher
    _book: _FullBook

    def __init__(self, stage: StoryStage, *, folder: Path | None = None) -> None:
        self.folder = folder
        self.settings = check_settings(stage.config, stage.story.source or "story")
        self._starts = 0
        self._full = False
        super().__init__(stage)

    def poll(self) -> None:
        """See `PollPlayer`. What cannot be written is as if it had not been asked."""
        try:
            super().poll()
        except LedgerError:
            return
        for one in self.polled.seen:
            self._sources[one.poll.scope] = one.source
            if not isinstance(one.poll.inventory, Failed):
                self._handling[one.poll.scope] = {item.key: item.handling for item in one.poll.inventory.items}
                self._members[one.poll.scope] = tuple(item for item in one.poll.inventory.items if item.handling.controller)

    def guard(self) -> None:
        """See `PollPlayer`; messages go out after it."""
        self.guarded = self._guard.run()
        self._guard.hooks.wait()  # the time of a story stands still while they run
        try:
            self._postman.deliver()
        except LedgerError:
            return

    def seen(self) -> GuardResult:
        """See `PollPlayer`."""
        found = self.guarded
        works = found.survey.works if found and found.survey else {}
        return GuardResult(works=works, intents=found.intents if found else ())

    def wish(self, event: StoryEvent) -> StoryReply:
        """See `PollPlayer`."""
        verbs: Mapping[str, Callable[[StoryEvent], StoryReply]] = {
            "keep": self._keep,
            "hold": self._hold,
            "run": self._run,
            "thaw": partial(self._lift_override, what=FREEZE),
            "unprotect": partial(self._lift_override, what=PROTECT),
            "cancel-stop": partial(self._lift_override, what=STOP_AT),
        }
        try:
            return verbs.get(event.what, self._wished)(event)
        except (InputError, LedgerError) as error:
            return StoryReply(done=False, text=str(error))

    def fill(self, *, full: bool) -> None:
        """See `PollPlayer`."""
        self._full = self.ledger.full = self._book.full = full

    def close(self) -> None:
        """See `PollPlayer`."""
        self._book.close()
        super().close()

    def crash(self) -> None:
        """See `PollPlayer`."""
        self.close()
        self._open()

    def _open(self) -> None:
        stage, settings = self.stage, self.settings
        self._starts += 1
        self.guarded = None
        self._sources: dict[ScopeKey, InstanceSource] = {}
        self._handling: dict[ScopeKey, dict[ResourceKey, Handling]] = {}
        self._members: dict[ScopeKey, tuple[Observation, ...]] = {}
        rails, rules, url, clock = settings.rails or Rails(), stage.rules, stage.ledger_url, stage.clock
        self.ledger = _FullLedger(url, rules=rules, ceilings={})
        self._book = _FullBook(url, rails=rails)
        self.fill(full=self._full)
        routes = list_routes(settings)
        self._guard = build_guard_runner(
            settings,
            book=self._book,
            ledger_url=url,
            rules=rules,
            clock=clock,
            interval=stage.story.poll,
            latest=self._latest,
            holder=f"story:{self._starts}",
            routes=routes,
        )
        if self._starts == 1:  # a story begins with settings that somebody accepted
            accept_policies(self._book, settings.policies, who="story", now=clock.now())
        self._postman = build_dispatcher(self._book, routes, stage.notifier, clock)

    def _latest(self) -> PollResults:
        handling = {key: value for scope in self._handling.values() for key, value in scope.items()}
        members, sources = tuple(item for scope in self._members.values() for item in scope), dict(self._sources)
        return PollResults(
            handling=handling, sources=sources, balances=self._balances(), members=members, lags={}, measures=(), agents=()
        )

    def _balances(self) -> tuple[PrepaidBalance, ...]:
        return tuple(cloud.fetch_balance() for cloud in self.stage.clouds.values() if isinstance(cloud, BalanceSource))

    def _live(self, name: str) -> LiveResource:
        key, now = self.stage.key(name), self.stage.clock.now()
        with SpendingReader(self.stage.ledger_url, rules=self.stage.rules) as books:
            live = next((one for one in books.load_live(now) if one.observation.key == key), None)
        if live is None:
            raise InputError(f"no machine has the name '{name}'", field="ID")
        return live

    def _keep(self, event: StoryEvent) -> StoryReply:
        now, live, lasts = self.stage.clock.now(), self._live(event.name), event.length or timedelta()
        life, owner = identify_incarnation(live.observation), find_owner(live.observation, self.settings.defaults.owner_from)
        meant = [policy for policy in self.settings.policies if matches_target(policy.target, live.observation, owner)]
        taken = self._book.load_overrides_since(live.first_seen_at)
        allowed = decide_lease(life, taken, meant, lasts, now, rate=compute_burn_rate(live, now))
        if not allowed.allowed:
            return StoryReply(done=False, text=allowed.why)
        costs = "at a price nobody stated"
        if allowed.costs is not None:
            costs = f"up to {get_currency_sign(allowed.costs.currency)}{allowed.costs.format()}"
        self._add(event, LEASE, until=now + lasts, live=live, whole_life=True)
        return StoryReply(done=True, text=f"kept, {costs}")

    def _hold(self, event: StoryEvent) -> StoryReply:
        now = self.stage.clock.now()
        if event.money is None:
            return StoryReply(done=False, text="how much?")
        wanted = Hold(
            id=f"hold-{token_hex(6)}", money=event.money, who=event.who, why=event.name, taken_at=now, expires_at=now + HELD_FOR
        )
        with HoldStore(self.stage.ledger_url, rules=self.stage.rules) as holds:
            admission = take_hold(wanted, holds, self._book, self.settings.budgets, now)
        return StoryReply(done=admission.admitted, text=admission.says)

    def _run(self, event: StoryEvent) -> StoryReply:
        _, *arguments = shlex.split(event.text)
        command = [sys.executable, "-m", "costguard", *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False, cwd=self.folder)
        return StoryReply(done=ran.returncode == 0, text=ran.stdout + ran.stderr)

    def _wished(self, event: StoryEvent) -> StoryReply:  # noqa: C901 - a table of words
        now, lasts = self.stage.clock.now(), event.length or timedelta()
        match event.what:
            case "protect":
                self._add(event, PROTECT, live=self._live(event.name))
            case "plan-stop":
                live, due = self._live(event.name), (now + lasts).isoformat()
                losses = "\n".join(self._latest().handling[live.observation.key].stop_loses)
                self._add(event, STOP_AT, live=live, whole_life=True, subject=due, value=losses)
            case "set-until":
                live, due = self._live(event.name), (now + lasts).isoformat()
                labels = join_until_labels(live.observation)
                self._add(event, UNTIL, live=live, whole_life=True, subject=due, value=labels)
            case "approve":
                live = self._live(event.name)
                self._add(event, APPROVE, until=now + APPROVED_FOR, live=live, whole_life=True, subject=event.text)
            case "snooze" if event.name in {policy.name for policy in self.settings.policies}:
                self._add(event, SNOOZE, until=now + lasts, subject=event.name)
            case "snooze":
                self._add(event, SNOOZE, until=now + lasts, live=self._live(event.name))
            case "freeze":
                self._add(event, FREEZE)
            case "accept":
                self._add(event, ACCEPT, subject=self.guarded.plan_hash if self.guarded else "")
            case "phase":
                live = self._live(event.name)
                self._add(event, PHASE, until=now + lasts, live=live, whole_life=True, subject=event.text)
            case "arm":
                policy = next((one for one in self.settings.policies if one.name == event.name), None)
                value = join_arming(event.text, policy.digest if policy else "")
                self._add(event, ARM, until=now + ARMED_FOR, subject=event.name, value=value)
            case what:
                return StoryReply(done=False, text=f"nobody listens to '{what}'")
        return StoryReply(done=True, text=event.what)

    def _lift_override(self, event: StoryEvent, what: str) -> StoryReply:
        now = self.stage.clock.now()
        key = self.stage.key(event.name) if event.name else None
        there = [wish for wish in self._book.load_open_overrides(now) if wish.what == what and wish.key == key]
        for wish in there:
            self._book.lift_override(wish.id, who=event.who, now=now)
        return StoryReply(done=bool(there), text="lifted" if there else "there was nothing to lift")

    def _add(
        self,
        event: StoryEvent,
        what: str,
        *,
        until: datetime | None = None,
        live: LiveResource | None = None,
        whole_life: bool = False,
        subject: str = "",
        value: str = "",
    ) -> None:
        seen = live.observation if live else None
        wish = Override(
            id=token_hex(8),
            what=what,
            who=event.who,
            why=event.text,
            at=self.stage.clock.now(),
            until=until,
            key=seen.key if seen else None,
            life=identify_incarnation(seen) if seen and whole_life else None,
            subject=subject,
            value=value,
        )
        self._book.add_override(wish)
