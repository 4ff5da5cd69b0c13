"""Judge an account after its poll, and use what others judged of theirs, where several watchdogs share the accounts.

    after a poll     read the account's machines and new samples -> judge -> leave it under the lease of the poll
    a guard run      load what was left -> refuse what is old, of other settings or damaged (`guard_snapshot` uses the rest)

What is refused or missing is judged by the guard run itself, from the samples in the ledger, as by a watchdog that is alone. So
this only saves work: no judgement is needed for a run (decision 0086).
"""

from __future__ import annotations

import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from zlib import compress, decompressobj
from zlib import error as zlib_error

import msgspec

from costguard import __version__
from costguard.errors import InputError, LedgerError
from costguard.guard.action_intents import Intent
from costguard.guard.context import GuardConfig, build_activity_query
from costguard.guard.judged_machine import ActivityQuery, EvidenceTerms, JudgedMachine
from costguard.guard.judgement import build_account_snapshot, judge_machines
from costguard.guard.overrides import Override
from costguard.guard.policy import START
from costguard.guard.signals import CLOCK_AHEAD_MAX, Activity
from costguard.ledger.judgements import AccountReader, JudgementStore, StoredJudgement
from costguard.services.guard_snapshot import DAY, SampleWindow, decode_instant, load_recent_overrides
from costguard.system.clock import Clock
from costguard.system.process import pause_gc
from costguard.values.agent import Agent
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import Incarnation, ResourceKey, ScopeKey
from costguard.watchdog.duty import Log

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.duty_records import Lease
    from costguard.ledger.guard_records import SnapshotRecords

FORMAT = 1
"""Raised whenever the same samples would be judged otherwise, or what is stored means something else."""
VALID_INTERVALS = 1.5
"""For how many intervals a judgement counts: until the next poll is over, which may take half of one."""
COMMON_FACTS_S = 5.0
"""For how long what all accounts have in common is used without reading it again. Older facts make other terms, and the planner
judges by itself then."""
BODY_BYTES_MAX = 64 * 1024 * 1024
"""Of a judgement once it is decompressed: some 100,000 machines."""


class WireActivity(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An `Activity`. `since`: microseconds since 1970."""

    state: str
    confidence: float
    reasons: tuple[str, ...]
    since: int | None
    families: tuple[str, ...]
    coverage: float | None
    attended: bool
    wasted_share: float


class WireMachine(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A `JudgedMachine`. `works`: the number of a query and of an activity, by turns."""

    key: tuple[str, str, str, str]
    started: int | None
    created: int | None
    gpu_count: float
    since: int
    phase_until: int | None
    lag: int
    seen_at: int
    interval: int
    bounds: tuple[int, int] | None
    agent: str
    works: tuple[int, ...]


class WireJudgement(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The judgement of an account. `at`: by the clock of the watchdog that judged; `digest`: see `digest_rules`."""

    format: int
    digest: str
    account: str
    at: int
    queries: tuple[tuple[int, tuple[str, ...], int], ...]
    activities: tuple[WireActivity, ...]
    machines: tuple[WireMachine, ...]


def digest_rules(rules: GuardConfig, lags: Mapping[str, timedelta]) -> str:
    """Return a digest of the version of costguard and of all in the settings that a judgement depends on."""
    meant = (
        [__version__, FORMAT, rules.interval // MICROSECOND, rules.owner_from, rules.group_from],
        sorted((name, lag // MICROSECOND) for name, lag in lags.items()),
        [
            (one.name, one.digest, repr(one.target), repr(build_activity_query(one)), one.alone, repr(one.schedule), one.rule)
            for one in rules.policies
        ],
    )
    return sha256(msgspec.json.encode(meant)).hexdigest()[:16]


def encode_judgement(account: str, digest: str, at: datetime, judged: Mapping[ResourceKey, JudgedMachine]) -> str:
    """Return what was judged of an account as compressed MessagePack. 100 machines are 3 to 6 KB."""
    queries, activities, rows = dict[ActivityQuery, int](), dict[WireActivity, int](), list[WireMachine]()
    for key, one in judged.items():
        works = list[int]()
        for query, work in one.works.items():
            works += (
                queries.setdefault(query, len(queries)),
                activities.setdefault(_to_wire_activity(work), len(activities)),
            )
        terms = one.terms
        rows.append(
            WireMachine(
                key,
                _to_optional_micros(terms.life.started_at),
                _to_optional_micros(terms.life.created_at),
                terms.gpu_count,
                to_micros(terms.since),
                _to_optional_micros(terms.phase_until),
                terms.lag // MICROSECOND,
                to_micros(one.seen_at),
                one.interval // MICROSECOND,
                None if one.bounds is None else (to_micros(one.bounds[0]), to_micros(one.bounds[1])),
                one.agent,
                tuple(works),
            )
        )
    asked = tuple((window // MICROSECOND, needs, warmup // MICROSECOND) for window, needs, warmup in queries)
    said = WireJudgement(FORMAT, digest, account, to_micros(at), asked, tuple(activities), tuple(rows))
    return b64encode(compress(msgspec.msgpack.encode(said), 1)).decode()


class AccountJudgement(NamedTuple):
    """What another watchdog judged of an account at `at`, by its own clock. `digest`: see `digest_rules`."""

    digest: str
    at: datetime
    machines: Mapping[ResourceKey, JudgedMachine]


def decode_judgement(stored: StoredJudgement) -> AccountJudgement:
    """Return what `stored` says. Raises InputError if it is damaged, of another version, or of another account."""
    try:
        unpacker = decompressobj()
        body = unpacker.decompress(b64decode(stored.body, validate=True), BODY_BYTES_MAX)
        if not unpacker.eof or unpacker.unused_data:
            raise InputError("is truncated, or too large", field=stored.account)
        said = msgspec.msgpack.decode(body, type=WireJudgement)
        if said.format != FORMAT or said.account != stored.account:
            raise InputError("is of another version or account", field=stored.account)
        at = from_micros(said.at)
        asked = [(window * MICROSECOND, needs, warmup * MICROSECOND) for window, needs, warmup in said.queries]
        works = [_from_wire_activity(one, at) for one in said.activities]
        machines = {
            ResourceKey(*one.key): JudgedMachine(
                at=at,
                terms=_read_terms(one),
                seen_at=from_micros(one.seen_at),
                interval=one.interval * MICROSECOND,
                bounds=None if one.bounds is None else (from_micros(one.bounds[0]), from_micros(one.bounds[1])),
                agent=one.agent,
                works={asked[q]: works[n] for q, n in zip(one.works[::2], one.works[1::2], strict=True)},
            )
            for one in said.machines
        }
    except (ValueError, IndexError, OverflowError, RecursionError, zlib_error, msgspec.MsgspecError) as odd:
        raise InputError(f"cannot be read: {type(odd).__name__}", field=stored.account) from None
    return AccountJudgement(said.digest, at, machines)


def _read_terms(one: WireMachine) -> EvidenceTerms:
    life = Incarnation(ResourceKey(*one.key), _from_optional_micros(one.started), _from_optional_micros(one.created))
    until = _from_optional_micros(one.phase_until)
    return EvidenceTerms(life, one.gpu_count, from_micros(one.since), until, one.lag * MICROSECOND)


def _to_wire_activity(one: Activity) -> WireActivity:
    since = _to_optional_micros(one.since)
    return WireActivity(
        one.state, one.confidence, one.reasons, since, one.families, one.coverage, one.attended, one.wasted_share
    )


def _from_wire_activity(one: WireActivity, at: datetime) -> Activity:
    return Activity(
        state=one.state,
        confidence=one.confidence,
        reasons=one.reasons,
        since=_from_optional_micros(one.since),
        families=one.families,
        coverage=one.coverage,
        attended=one.attended,
        wasted_share=one.wasted_share,
        as_of=at,
    )


def _to_optional_micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def _from_optional_micros(us: int | None) -> datetime | None:
    return None if us is None else from_micros(us)


@dataclass(frozen=True, slots=True)
class CommonFacts:
    """What the judgements of all accounts depend on: people's overrides, starts by schedules, agents, and the last gap."""

    wishes: tuple[Override, ...]
    started: tuple[Intent, ...]
    agents: tuple[Agent, ...]
    gap_ended_at: datetime | None


@dataclass(slots=True, kw_only=True)
class AccountJudge:
    """Judges the accounts that a watchdog polls. `rules`: the present settings. `agents`: those that may report."""

    reader: AccountReader
    store: JudgementStore
    rules: Callable[[], GuardConfig]
    lags: Mapping[str, timedelta]
    agents: Callable[[], tuple[Agent, ...]]
    clock: Clock
    _windows: dict[str, SampleWindow] = field(default_factory=dict)
    _common: tuple[float, CommonFacts] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, lease: Lease, scopes: Collection[ScopeKey]) -> int:
        """Judge the machines of the account of `lease`, in `scopes`, and leave that for the watchdog that plans.

        Returns how many. Raises LeaseLostError if the account is another watchdog's by now, and LedgerError.
        """
        rules, common = self.rules(), self._load_common_facts()  # agents' messages are counted before their samples are read
        read_at, now = self.reader.read_server_time(), self.clock.now()
        live = self.reader.load_running(scopes)
        window = self._windows.setdefault(lease.account, SampleWindow())
        sight = build_account_snapshot(
            now=now,
            live=live,
            samples=window.read(self.reader, now, [one.observation.key for one in live]),
            wishes=common.wishes,
            started=common.started,
            lags=self.lags,
            agents=common.agents,
            gap_ended_at=common.gap_ended_at,
        )
        with pause_gc():
            judged = judge_machines(rules, sight)
            body = encode_judgement(lease.account, digest_rules(rules, self.lags), now, judged)
        self.store.leave(lease, read_at, body)
        return len(judged)

    def forget_others(self, held: Collection[str]) -> None:
        """Let go of the samples of all accounts but `held`."""
        for name in set(self._windows) - set(held):
            self._windows.pop(name, None)

    def close(self) -> None:
        """Close the ledger."""
        self.reader.close()
        self.store.close()

    def _load_common_facts(self) -> CommonFacts:
        with self._lock:
            if self._common is None or monotonic() - self._common[0] > COMMON_FACTS_S:
                agents = self.agents()
                self._common = monotonic(), self.reader.read_records(lambda records: self._read_common_facts(records, agents))
            return self._common[1]

    def _read_common_facts(self, records: SnapshotRecords, agents: tuple[Agent, ...]) -> CommonFacts:
        now, last = self.clock.now(), records.load_last_run()
        return CommonFacts(
            wishes=load_recent_overrides(records, now),
            started=tuple(one for one in records.load_sends_since(now - DAY) if one.act == START),
            agents=agents,
            gap_ended_at=decode_instant(dict(last.facts).get("gap_ended_at")) if last else None,
        )


@dataclass(slots=True, kw_only=True)
class JudgementLoader:
    """Loads what watchdogs judged of `accounts`. `every`: the interval of polls."""

    store: JudgementStore
    accounts: Collection[str]
    every: timedelta
    log: Log
    _stored: dict[str, StoredJudgement] = field(default_factory=dict)
    _read: dict[str, tuple[StoredJudgement, AccountJudgement | None]] = field(default_factory=dict)

    def load(self, rules: GuardConfig, lags: Mapping[str, timedelta], now: datetime) -> dict[ResourceKey, JudgedMachine]:
        """Return the machines of which a judgement counts at `now`, by this watchdog's clock.

        A ledger that cannot be read now is one without judgements: the run says what else it means.
        """
        try:
            self._stored, server_now = self.store.load(self._stored, self.accounts, VALID_INTERVALS * self.every)
        except LedgerError as error:
            self.log.warning("judgements_not_read", why=error.what)
            return {}
        digest, found = digest_rules(rules, lags), dict[ResourceKey, JudgedMachine]()
        for name, stored in self._stored.items():
            said = self._decode(name, stored)
            if said is None or said.digest != digest:
                continue
            apart = (now - said.at) - (server_now - stored.read_at)
            if abs(apart) > CLOCK_AHEAD_MAX or stored.read_at > server_now:
                self.log.warning("judgement_refused", account=name, why=f"its clock and this one are {apart} apart")
                continue
            found |= said.machines
        self._read = {name: one for name, one in self._read.items() if name in self._stored}
        return found

    def _decode(self, name: str, stored: StoredJudgement) -> AccountJudgement | None:
        """Return what `stored` says; None, and a line in the log the first time, if it cannot be read."""
        known = self._read.get(name)
        if known is not None and known[0] is stored:
            return known[1]
        try:
            said: AccountJudgement | None = decode_judgement(stored)
        except InputError as error:
            self.log.warning("judgement_refused", account=name, why=error.what)
            said = None
        self._read[name] = stored, said
        return said
