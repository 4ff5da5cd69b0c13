"""Five fake clouds, a watchdog that watched them before, and `costguard watch` beside it as a process of its own.

Idleness takes ten minutes and its grace five, by floors in the code. So a watchdog made of the real flows watches for twenty
minutes of the fakes' time first, armed for no more than notices; what it leaves in the ledger is what any watchdog leaves.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Self, TextIO

from costguard.data import ShippedFacts
from costguard.guard.overrides import ARM, ARMED_FOR, Override, join_arming
from costguard.guard.policy import Rails
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.rows import insert_new
from costguard.ledger.guard import guard_state
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.ledger.tables.notices import NoticeDeliveryRow
from costguard.metering.inventory import Failed
from costguard.metering.observation import Handling
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Transport
from costguard.services.guarding.guard import GuardRunner
from costguard.services.guarding.guard_inputs import build_guard_config, read_measurement_lags
from costguard.services.poll.poll import measure_activity, poll_sources
from costguard.settings import check_settings
from costguard.values.instant import to_micros
from costguard.values.resource import ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL, Sample
from tests.blank import blank_latest
from tests.contract.rig import Rig
from tests.fakes.aws import FakeAws
from tests.fakes.gcp import FakeGCP, account_file
from tests.fakes.runpod import FakeRunpod
from tests.fakes.server import Hands, serving
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

RIGS: tuple[type[Rig], ...] = (AwsRig, GcpRig, LambdaRig, RunpodRig, VastRig)
ROOT = Path(__file__).parents[2]
S = timedelta(seconds=1)
MACHINES, VICTIM = 3, 1
GCP_DUTY = "agent.googleapis.com/gpu/utilization"
IDLE, BUSY = 0.0, 80.0
LONGEST_S = 300.0
PACED = ("gcp", "vast")
"""Whose accounts ask no faster than their providers let anybody, by the real time: each round opens them anew."""
OWN_PACE = ("aws", "gcp")
"""Who publishes a measure every few minutes or every minute, however often anybody asks."""
FINE = (GPU_UTIL, CPU_UTIL)
"""Signals of which the ledger has a sample for every second of the past, as a watchdog at that pace leaves them."""


@dataclass
class Five:
    """The five fakes, served. `ids`: provider -> its machines, of which number VICTIM idles, where it is measured."""

    folder: Path
    rigs: dict[str, Rig] = field(default_factory=lambda: {rig.provider: rig() for rig in RIGS})
    ids: dict[str, list[str]] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> str:
        """Its URL."""
        return f"sqlite:///{self.folder}/ledger.db"

    def victim(self, provider: str) -> str:
        """The one that idles."""
        return self.ids[provider][VICTIM]

    def write(self, text: str) -> str:
        """The settings: the accounts, and `text`, where "@aws" stands for the victim of that cloud."""
        said = re.sub("@([a-z]+)", lambda found: self.victim(found[1]), text)
        for name, rig in self.rigs.items():
            rows = (f"{key} = {json.dumps(value)}\n" for key, value in rig.table(self.bases[name]).items())
            said += f"[providers.{name}]\n{''.join(rows)}"
        said += "[notify]\nconsole_is_delivery = true\n"
        (self.folder / "costguard.toml").write_text(said)
        if (self.folder / "ledger.db").exists():
            accept_policies(self.ledger, said)
        return said

    def stops(self) -> dict[str, int]:
        """Requests that stop or end anything, as each fake logged them; clouds that got none are left out."""
        found = {name: sum(_acts(rig, one.line) for one in tuple(rig.fake.asked)) for name, rig in self.rigs.items()}
        return {name: count for name, count in found.items() if count}

    def asked(self, provider: str) -> int:
        """How many requests one fake got."""
        return len(self.rigs[provider].fake.asked)

    def resting(self) -> set[tuple[str, str]]:
        """(provider, machine) of all that run no more, as the fakes know it."""
        every = [(name, one) for name, ids in self.ids.items() for one in ids]
        return {(name, one) for name, one in every if self.rigs[name].state_of(one) != "running"}

    def set_clocks(self, at: datetime) -> None:
        """All fakes' time."""
        for rig in self.rigs.values():
            rig.clock.at = at


def _acts(rig: Rig, line: str) -> bool:
    return any(re.search(pattern, line) for pattern in (rig.stops, rig.terminates) if pattern)


@contextmanager
def five_clouds(folder: Path, born: datetime) -> Iterator[Five]:
    """The five, with three machines each that run since `born` or before."""
    five = Five(folder)
    five.set_clocks(born)
    five.ids = {name: rig.put(MACHINES) for name, rig in five.rigs.items()}
    _let_idle(five)
    (folder / "home").mkdir()
    with ExitStack() as stack:
        five.bases = {name: stack.enter_context(serving(rig.fake)) for name, rig in five.rigs.items()}
        five.environ = make_environ(five)
        yield five


def _let_idle(five: Five) -> None:
    aws, gcp, runpod = (five.rigs[name].fake for name in ("aws", "gcp", "runpod"))
    assert isinstance(aws, FakeAws)
    assert isinstance(gcp, FakeGCP)
    assert isinstance(runpod, FakeRunpod)
    for id_ in five.ids["aws"]:
        duty = IDLE if id_ == five.victim("aws") else BUSY
        aws.cloudwatch.gpu(id_, 0, lambda _, duty=duty: duty)  # type: ignore[misc]  # a lambda with a default
    gcp.measures[GCP_DUTY] = {id_: IDLE if id_ == five.victim("gcp") else BUSY for id_ in five.ids["gcp"]}
    runpod.manners.idle.add(five.victim("runpod"))
    five.rigs["vast"].spoil(five.victim("vast"), gpu_util=IDLE, cpu_util=IDLE, gpu_temp=35)


def make_environ(five: Five) -> dict[str, str]:
    """The variables of a process that has the keys of `five`, and nothing of this machine's user."""
    folder, key = five.folder, five.folder / "home" / "key.json"
    key.write_text(account_file(five.bases["gcp"], "/token"))
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    dirs = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    keys = {name: value for rig in five.rigs.values() for name, value in rig.environ().items()}
    ours = {"HOME": str(folder / "home"), "COSTGUARD_LEDGER__URL": five.ledger, "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}"}
    return {**kept, **dirs, **keys, **ours, "GOOGLE_APPLICATION_CREDENTIALS": str(key), "NO_GCE_CHECK": "true"}


def accept_policies(ledger: str, text: str) -> None:
    """As if somebody had accepted the policies of these settings, and each notice so far had been delivered at once."""
    with GuardStore(ledger, rails=Rails()) as book:
        now = datetime.now(UTC)
        for policy in check_settings(text, "costguard.toml").policies:
            value = join_arming(policy.arm, policy.digest)
            book.add_override(
                Override(
                    id=token_hex(8),
                    what=ARM,
                    who="the test",
                    why="",
                    at=now,
                    until=now + ARMED_FOR,
                    subject=policy.name,
                    value=value,
                )
            )
        told = [one for one in book.load_escalations() if one.done]
        rows = [
            NoticeDeliveryRow(
                message_id="before",
                channel="slack",
                topic=f"policy:{one.policy}",
                subject="/".join(one.life.key),
                notice_us=to_micros(one.started_at),
                delivered_us=to_micros(one.started_at),
            )
            for one in told
        ]
        with book._begin_write() as (ask, tell):
            tell(insert_new(NoticeDeliveryRow), [row.model_dump() for row in rows])
            announce_as_before(ask, tell)


def announce_as_before(ask: Query, tell: Execute) -> None:
    """Let what was announced before something held it stand: the test has no time for another grace."""
    guard_state.replace_escalations(ask, tell, [replace(one, announced_from=None) for one in guard_state.load_escalations(ask)])


class Before:
    """A watchdog of the real flows at the fakes' own time, whose settings are `text`; it runs every `step`.

    `unseen`: what the last round lacked, and why.
    """

    def __init__(self, five: Five, text: str, begins: datetime, step: timedelta, stack: ExitStack) -> None:
        self._five, self._step, self._began = five, step, begins
        self._clock, self._transport = Hands(begins), Transport()
        stack.callback(self._transport.close)
        self._sources = {name: self._opened(name) for name in five.rigs}
        settings, billing = check_settings(text, "costguard.toml"), ShippedFacts().get_billing_rules()
        rules = build_guard_config(settings, step)
        self._ledger = stack.enter_context(LedgerWriter(five.ledger, rules=billing, ceilings={}))
        self.book = stack.enter_context(GuardStore(five.ledger, rails=rules.rails))
        self._latest, self.unseen = blank_latest(), tuple[str, ...]()
        self._guard = GuardRunner(
            book=self.book,
            books=partial(SpendingReader, five.ledger, rules=billing),
            rules=rules,
            latest=lambda: self._latest,
            clock=self._clock,
            holder="the one before",
            holds=lambda _: (),
            seconds=lambda: self._clock.now().timestamp(),
        )

    def _opened(self, name: str) -> Sequence[InstanceSource]:
        return self._five.rigs[name].accounts(self._five.bases[name], self._transport, self._five.folder / "home")

    def watch(self, at: datetime) -> None:
        """One round of polls and one guard run, at `at`."""
        self._clock.at = at
        self._five.set_clocks(at)
        self._sources |= {name: self._opened(name) for name in PACED if name in self._five.rigs}
        polled = poll_sources([one for accounts in self._sources.values() for one in accounts], self._ledger, self._clock)
        self.unseen = (*(one.why for one in polled.unseen), *polled.refused)
        measure_activity(polled.seen, self._ledger, at)
        items = [i for one in polled.seen if not isinstance(one.poll.inventory, Failed) for i in one.poll.inventory.items]
        handling: Mapping[ResourceKey, Handling] = {item.key: item.handling for item in items}
        sources: dict[object, InstanceSource] = {one.poll.scope: one.source for one in polled.seen}
        self._latest = blank_latest(handling=handling, sources=sources, lags=read_measurement_lags())
        self.judge(at)

    def judge(self, at: datetime) -> None:
        """One guard run alone: somebody else polls into the ledger."""
        self._clock.at = at
        guarded = self._guard.run()
        assert guarded.committed, guarded.broken

    def watch_until(self, end: datetime) -> None:
        """All of the past, the last of it at `end`; and the samples between those that there are."""
        at = self._began
        while at < end:
            self.watch(at)
            assert self.unseen == ()
            at += self._step
        self.watch(end)
        self.fill()

    def fill(self) -> None:
        """Have samples between those that there are, as a watchdog that looks every second leaves them."""
        self._ledger.record_samples(self._between())

    def _between(self) -> list[Sample]:
        made = []
        for key, samples in self.book.load_samples_since(self._began - timedelta(minutes=5)).items():
            for one, other in pairwise(samples):
                if key.provider not in OWN_PACE and one.signal == other.signal and one.signal in FINE:
                    seconds = int((other.at - one.at) / S)
                    made += [Sample(key=key, signal=one.signal, at=one.at + n * S, value=one.value) for n in range(1, seconds)]
        return made

    def give_turn(self) -> None:
        """Whoever comes may act."""
        with self.book._begin_write() as (ask, tell):
            announce_as_before(ask, tell)
        turn = self.book.load_leader_lease()
        assert turn is not None
        self.book.release_leader_lease(turn.epoch)


@contextmanager
def time_goes_on(five: Five) -> Iterator[None]:
    """The fakes' clocks show what the wall's does."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.02):
            five.set_clocks(datetime.now(UTC))

    five.set_clocks(datetime.now(UTC))
    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass
class Watching:
    """A `costguard watch` that runs. `out`, `err`: what it has said so far."""

    process: subprocess.Popen[str]
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    @classmethod
    def started(cls, five: Five, every: str = "2s", module: str = "costguard") -> Self:
        """A process of its own in the folder of `five`."""
        words = [sys.executable, "-m", module, "--json-log", "watch", "--interval", every]
        process = subprocess.Popen(
            words, cwd=five.folder, env=five.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        made = cls(process)
        for pipe, lines in ((process.stdout, made.out), (process.stderr, made.err)):
            assert pipe is not None
            threading.Thread(target=_read, args=(pipe, lines), daemon=True).start()
        return made

    def said(self, what: str) -> bool:
        """Whether a line of it holds `what`."""
        return self.count(what) > 0

    def count(self, what: str) -> int:
        """How many lines of it hold `what`."""
        return sum(what in line for line in (*tuple(self.out), *tuple(self.err)))

    def ended(self, number: int) -> int:
        """Its exit code after the signal `number`."""
        self.process.send_signal(number)
        return self.process.wait(LONGEST_S)

    def close(self) -> None:
        """Let there be nothing left of it."""
        self.process.kill()
        self.process.communicate()

    def tail(self) -> str:
        """The end of what it said."""
        return "".join((*self.out[-30:], *self.err[-10:]))


def _read(pipe: TextIO, lines: list[str]) -> None:
    with suppress(ValueError):  # it was closed
        for line in pipe:
            lines.append(line)  # noqa: PERF402 - each as soon as it comes


def until(true: Callable[[], bool], *those: Watching, within_s: float = LONGEST_S) -> None:
    """Wait for what another process does: until `true`; AssertionError with the last words of `those` after `within_s`."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "\n".join(one.tail() for one in those)
        threading.Event().wait(0.05)
