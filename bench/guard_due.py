"""200 stops that are due at once, on five clouds that enforce their published rates, in real time.

    python -m bench.guard_due              40 on each cloud, some five minutes
    python -m bench.guard_due 5            5 on each

The clouds are the wire fakes of the tests over loopback, each behind a gate that counts its requests, answers 429 beyond the
published rate (../shared/providers), and takes as long as an answer from afar. The adapters keep their own rate limiters. A
guard run begins every 60 s, polls go on beside it. All limits of `[rails]` are open; Lambda has no stop and is terminated.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measured import Measured, table
from costguard.data import ShippedFacts
from costguard.guard.action_plan import RunConstraints, build_action_plan
from costguard.guard.context import GuardConfig
from costguard.guard.limits import Headroom
from costguard.guard.overrides import ARM, Override, find_owner
from costguard.guard.policy import NOTIFY, SCHEDULE_RULE, STOP, TERMINATE, EscalationState, Policy, PolicyStep, Rails
from costguard.guard.run_facts import FirstSighting
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Failed
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Transport
from costguard.services.guarding.act.executor import ActionExecutor
from costguard.services.guarding.act.send_action import read_boot_time_s
from costguard.services.poll.configured_providers import SystemClock
from costguard.values.resource import INSTANCE, RUNNING, ScopeKey
from tests.blank import blank_evaluation, blank_sight
from tests.books import live, meter
from tests.contract.adapters import RIGS
from tests.fakes.server import Answer, Asked, FakeCloud, Fault, Hands, serving
from tests.guard.cases import case, idle, policy

EVERY_S, EACH, RUNS_MAX = 60.0, 40, 30
AFTER_POLLS_S = 5.0
"""How long after the polls a run begins: as in `watch`, whose first run waits for the first polls."""
CLOUDS = ("aws", "gcp", "lambda", "runpod", "vast")
ALL = Fraction(10**6)
RAILS = Rails(
    acts_per_run=10**6,
    acts_per_10m=10**6,
    fleet_share_10m=ALL,
    fleet_share_day=ALL,
    irreversible_per_h=10**6,
    first_seen=timedelta(),
    first_polls=0,
)
LATENCY_S = {"aws": 0.15, "gcp": 0.4, "lambda": 0.3, "runpod": 0.25, "vast": 0.3}
"""Assumed seconds to an answer (2026-11): nothing about it is published."""
GATES = {
    "aws": (("", 20.0, 100.0),),
    "gcp": (("", 25.0, 100.0),),
    "lambda": (("", 1.0, 1.0),),
    "runpod": (("", 1.0, 60.0),),
    "vast": (
        ("GET /api/v0/instances/", 0.5, 1.0),
        ("GET /api/v1/instances/", 1.0, 1.0),
        ("PUT /api/v0/instances/", 1.0, 1.0),
        ("DELETE /api/v0/instances/", 1 / 3, 1.0),
    ),
}
"""By cloud: the beginning of a request's line, requests a second, and how many at once: aws.md 10, gcp.md 9, lambda.md 2,
runpod.md 2 (60 a minute), vast.md 2. A request that comes 150 ms early is let through: a busy machine moves it by so much."""
EARLY_S = 0.15
REQUESTS = {"aws": 7, "gcp": 4, "lambda": 4, "runpod": 4, "vast": 3}
"""Of one stop at the gate that holds it up: two looks, the adapter's own look, and the request, which Vast counts apart. The
target is so many requests a stop at the published rate, and one run.
"""


class Now(Hands):
    """The clock of this machine."""

    def now(self) -> datetime:
        """The present time."""
        return datetime.now(UTC)


@dataclass
class Gate:
    """Stands before a fake cloud. `asked`, `refused`: requests, and those beyond the rate."""

    cloud: str
    fake: FakeCloud
    asked: int = 0
    refused: int = 0
    _tokens: dict[str, tuple[float, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        take = self.fake.take

        def wait_and_take(asked: Asked) -> tuple[Fault | None, Answer | None]:
            if not self._admit(asked.line):
                return None, Answer(status=429, body=b'{"error": {"code": "global/too-many-requests"}}')
            time.sleep(LATENCY_S[self.cloud])
            return take(asked)

        self.fake.take = wait_and_take  # type: ignore[method-assign]  # as if it stood far away

    def _admit(self, line: str) -> bool:
        with self._lock:
            self.asked += 1
            for begins, per_s, burst in GATES[self.cloud]:
                if line.startswith(begins):
                    tokens, at_s = self._tokens.get(begins, (burst, 0.0))
                    now_s = time.monotonic()
                    tokens = min(burst, tokens + (now_s - at_s) * per_s)
                    if tokens < 1 - EARLY_S * per_s:
                        self._tokens[begins] = tokens, now_s
                        self.refused += 1
                        return False
                    self._tokens[begins] = tokens - 1, now_s
                    return True
        return True


@dataclass
class Town:
    """One cloud and its account. `listing`: the last one, and when it was asked for."""

    cloud: str
    rig: Any
    gate: Gate
    account: InstanceSource
    ids: list[str]
    scope: ScopeKey
    listing: tuple[datetime, tuple[Observation, ...]] | None = None

    def poll(self, ledger: LedgerWriter) -> None:
        """List its machines, and record that."""
        poll = self.account.poll(self.scope)
        ledger.record_polls([poll])
        if isinstance(poll.inventory, Failed):
            print(f"{self.cloud}: {poll.inventory.why}", flush=True)
        else:
            self.listing = poll.asked_at or poll.at, tuple(one for one in poll.inventory.items if one.kind == INSTANCE)

    @property
    def running(self) -> int:
        """How many of its machines still run, in truth."""
        return sum(self.rig.state_of(id_) == RUNNING for id_ in self.ids)


def open_town(cloud: str, count: int, stack: ExitStack, transport: Transport, home: Path) -> Town:
    """A cloud with `count` machines, its gate, and its account."""
    module = import_module(RIGS[cloud])
    made = next(one for name, one in vars(module).items() if name.endswith("Rig") and name != "Rig")
    rig = made()
    rig.clock = Now()
    rig.fake = rig.make_fake()
    if cloud == "aws":
        from decimal import Decimal

        rig.fake.pricing.rates["g5.xlarge", "us-east-1"] = Decimal("1.006")
    more: dict[str, object] = {"timeout_s": 30}
    if cloud == "lambda":
        from costguard_lambda import LambdaPlugin

        rig.plugin = LambdaPlugin  # at Lambda's own rate, not the suite's
    if cloud == "runpod":
        more["requests_per_minute"] = 60
    ids = rig.put(count)
    gate = Gate(cloud, rig.fake)
    account = rig.accounts(stack.enter_context(serving(rig.fake)), transport, home, **more)[0]
    return Town(cloud, rig, gate, account, ids, account.list_scopes()[0])


def rule_of(cloud: str) -> Policy:
    """Stops all of it at once; ends it where there is no stop."""
    act = TERMINATE if cloud == "lambda" else STOP
    return policy(
        PolicyStep(do=NOTIFY),
        PolicyStep(do=act),
        when={"provider": cloud},
        name=f"off-{cloud}",
        arm=act,
        rule=SCHEDULE_RULE,
        hold=timedelta(),
        allow_irreversible=True,
    )


def run_guard(book: GuardStore, towns: list[Town], rules: GuardConfig) -> ActionExecutor:
    """One run over the last listings: confirm, plan, act."""
    at = datetime.now(UTC)
    book.acquire_leader_lease("bench", at, timedelta(hours=1))
    machines = [machine for town in towns for machine in list_live(town)]
    known = {one.observation.key: FirstSighting(at=at - timedelta(hours=1), polls=100) for one in machines}
    intents = tuple(book.load_intents_since(at - timedelta(days=1)))
    sources = {(town.scope.provider, town.scope.account): town.account for town in towns}
    deeds = ActionExecutor(
        book=book,
        rules=rules,
        source_of=lambda key: sources.get((key.provider, key.account)),
        clock=SystemClock(),
        seconds=read_boot_time_s,
        epoch=1,
        sight=blank_sight(at, tuple(machines), known=known, intents=intents),
    )
    deeds.confirm_all(intents, machines)
    busy = {one.life.key for one in book.load_intents_since(at - timedelta(days=1)) if one.sends}
    due = [one for one in machines if one.observation.state == RUNNING and one.observation.key not in busy]
    cases = [_case(one, rules, at) for one in due]
    room = Headroom(acts=10**6, irreversible=10**6, why="")
    proposals = build_action_plan(cases, RunConstraints(now=at, interval=timedelta(seconds=EVERY_S), room=room, rails=RAILS))
    evaluation = blank_evaluation(at, cases, proposals, fleet=len(machines))
    deeds.execute_plan(evaluation, deeds.sight)
    return deeds


def list_live(town: Town) -> Iterator[LiveResource]:
    """Its machines as last listed, each dearer than the one before."""
    if town.listing is None:
        return
    at, observations = town.listing
    for number, one in enumerate(observations):
        usual = live(one.key.id, meter((number + 1) * 10**9), scope=town.scope)
        yield replace(usual, observation=one, seen_at=at, first_seen_at=at - timedelta(hours=1))


def _case(one: LiveResource, rules: GuardConfig, at: datetime) -> Any:  # noqa: ANN401 - a PolicyCase
    rule = next(rule for rule in rules.policies if rule.name == f"off-{one.observation.key.provider}")
    hour_ago = at - timedelta(hours=1)
    climb = EscalationState(
        policy=rule.name,
        life=identify_incarnation(one.observation),
        since=hour_ago,
        started_at=hour_ago,
        done=(0,),
        delivered_at=hour_ago,
    )
    return case(one, rule, idle(hour_ago), at, climb, owner=find_owner(one.observation, rules.owner_from), claimed=True)


def measure(count: int) -> Iterator[Measured]:
    """Stop `count` machines on each cloud."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        transport, home = Transport(), Path(folder)
        stack.callback(transport.close)
        towns = [open_town(cloud, count, stack, transport, home) for cloud in CLOUDS]
        rules = GuardConfig(admin_route=True, policies=tuple(rule_of(town.cloud) for town in towns), claims=CLOUDS, rails=RAILS)
        book = stack.enter_context(GuardStore(f"sqlite:///{folder}/ledger.db", rails=RAILS))
        at = datetime.now(UTC)
        for town in towns:
            rule, until = rule_of(town.cloud), at + timedelta(hours=2)
            book.add_override(
                Override(id=rule.name, what=ARM, who="ada", why="", at=at, until=until, subject=rule.name, value=rule.arm)
            )
        ledger = stack.enter_context(
            LedgerWriter(f"sqlite:///{folder}/ledger.db", rules=ShippedFacts().get_billing_rules(), ceilings={})
        )
        over = threading.Event()
        for town in towns:
            town.poll(ledger)
            threading.Thread(target=_poll_on, args=(town, ledger, over), daemon=True).start()
        for town in towns:
            town.gate.asked = town.gate.refused = 0
        time.sleep(AFTER_POLLS_S)
        began_s, last_s, took = time.monotonic(), dict[str, float](), list[float]()
        watch = threading.Thread(target=_note_ends, args=(towns, began_s, last_s, over), daemon=True)
        watch.start()
        while True:
            run_s = time.monotonic()
            deeds = run_guard(book, towns, rules)
            took.append(time.monotonic() - run_s)
            states = Counter(one.state for one in book.load_intents_since(at))
            left = {town.cloud: town.running for town in towns}
            print(
                f"run {len(took)}: {took[-1]:.1f} s, {dict(states)}, running {left}", *deeds.notes[-3:], sep="\n   ", flush=True
            )
            if not any(left.values()) or len(took) > RUNS_MAX:
                break
            time.sleep(max(EVERY_S - (time.monotonic() - run_s), 0))
        over.set()
        watch.join()
        asks = {town.cloud: (town.gate.asked, town.gate.refused) for town in towns}
        intents = book.load_intents_since(at)
    for cloud, (asked, refused) in asks.items():
        most_s = count * REQUESTS[cloud] / GATES[cloud][0][1] + EVERY_S
        what = f"{cloud}: {count} stops; seconds, requests with those of polls, and beyond the rate"
        reached = f"{last_s.get(cloud, math.inf):.0f} s; {asked}, {refused}"
        met = last_s.get(cloud, math.inf) < most_s
        yield Measured(what=what, target=f"< {most_s:.0f} s", reached=reached, met=met)
    yield Measured(what="longest run", target="< 60 s", reached=f"{max(took):.1f} s", met=max(took) < EVERY_S)
    once = len(intents) == len(CLOUDS) * count and all(one.sends == 1 for one in intents)
    yield Measured(what="each machine was sent one request", reached=str(once), met=once)


def _poll_on(town: Town, ledger: LedgerWriter, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        town.poll(ledger)


def _note_ends(towns: list[Town], began_s: float, last_s: dict[str, float], over: threading.Event) -> None:
    """Note when the last machine of each cloud stopped, to half a second."""
    ended = False
    while not ended:
        ended = over.wait(0.5)
        for town in towns:
            if town.cloud not in last_s:
                with town.rig.fake.lock:
                    if not town.running:
                        last_s[town.cloud] = time.monotonic() - began_s


if __name__ == "__main__":
    sys.exit(table(measure(int(sys.argv[1]) if len(sys.argv) > 1 else EACH)))
