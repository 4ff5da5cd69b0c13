"""One try: an adapter asks its fake, or acts on it, while one thing goes wrong on the wire; and what a judge says of what came.

The judge knows what the fake holds and what the fake was asked. A poll may say less than that (Partial, Failed, an unknown
price) and never anything else; an act may say "unclear" and never what is not so; and no act arrives twice, or hits another.
"""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import costguard_aws.session
import stamina
from costguard_gcp import actions as gcp_acts

from costguard.errors import CostguardError, ProviderError
from costguard.metering.inventory import Complete, Failed, Poll
from costguard.metering.observation import Observation
from costguard.providers.transport import TokenBucket, Transport, channel
from costguard.providers.transport.channel import CircuitBreakers
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, POSTPONED, REFUSED, UNCLEAR
from tests.contract.case import forms
from tests.contract.rig import Rig
from tests.fakes.aws import FakeAws, scope_of
from tests.fakes.server import Asked, FakeCloud, serving
from tests.networks.plan import BODY, CONNECT, DOWN, HEAD, UP, Fault
from tests.networks.proxy import Line, Proxy, port_of, proxied
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

RIGS: dict[str, type[Rig]] = {rig.provider: rig for rig in (AwsRig, GcpRig, LambdaRig, RunpodRig, VastRig)}
MACHINES, PAGE, VICTIM = 5, 2, 2
QUICK_S, ACT_S = 1, 1.0
"""Seconds that one poll, and one act, may take here. In a real watchdog it is 60 and 20."""
LATE_S = 20.0
"""Seconds within which each must be over on a machine that is busy: many times what it may take, and no end of waiting."""
LOOKS = 10
SLOW = {"delay": 0.2, "drip": 0.2}
MOST_CONNECTIONS = 60

POLL_PHASES = ("connect", "request", "header", "body", "pages")
ACT_PHASES = ("act request", "act body", "act header", "act answer")
PHASES = (*POLL_PHASES, *ACT_PHASES)
TLS_PHASES = ("connect", "request", "body", "act request", "act answer")
REFUSE, FILL = "refuse", "fill"
OF_CONNECT = (REFUSE, FILL, "cut", "reset", "hole", "garbage", "delay")
OF_BYTES = ("cut", "reset", "half", "hole", "drip", "delay", "corrupt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One try. `once`: it goes wrong the first time alone, so that a read may succeed when it is asked again.

    `at`: the byte at which it strikes. `tls`: the wire is TLS, and `at` a byte of what the proxy sees of it.
    """

    provider: str
    phase: str
    kind: str
    at: int
    once: bool = False
    tls: bool = False

    @property
    def plan(self) -> list[Fault]:
        """What the proxy is told."""
        slow = SLOW.get(self.kind, 0.0)
        if self.kind in (REFUSE, FILL):
            return []
        if self.tls:
            side = UP if "request" in self.phase else DOWN
            last = 2 if self.once else MOST_CONNECTIONS
            skip = self.at % 7 if side == UP else 0
            return [
                Fault(kind=self.kind, side=side, at=self.at, skip=skip, seconds=slow, connections=(n,)) for n in range(1, last)
            ]
        if self.phase == "connect":
            return [Fault(kind=self.kind, side=CONNECT, times=1 if self.once else None, seconds=slow)]
        rig = RIGS[self.provider]
        mark = rig.lists if self.phase in POLL_PHASES else rig.stops or rig.terminates
        return [
            Fault(
                kind=self.kind,
                side=UP if self.phase in ("request", "act request", "act body") else DOWN,
                mark=mark,
                part=BODY if self.phase in ("body", "act body", "act answer") else HEAD,
                at=0 if self.phase == "pages" else self.at,
                skip=self.phase == "pages",
                times=1 if self.once else None,
                seconds=slow,
            )
        ]


@dataclass(slots=True)
class Came:
    """What came of a try. `victim`: the machine that is acted on. `struck`: how often it went wrong.

    `unknowable`: a changed byte made another sound answer.
    """

    cell: Cell
    victim: str
    said: str = ""
    struck: int = 0
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)
    unknowable: bool = False
    cut_short: int = 0


def cells(seed: str, providers: Sequence[str] = tuple(RIGS), *, each: int = 1) -> Iterator[Cell]:
    """The whole matrix: every fault in every phase of every provider, `each` times, the bytes drawn from `seed`."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    for provider, phase in product(providers, PHASES):
        kinds = OF_CONNECT if phase == "connect" else OF_BYTES
        for kind, _, once in product(kinds, range(each), (False, True)):
            if _is_one(provider, phase, kind, once=once):
                at = chance.randrange(12, 60) if "header" in phase or "request" in phase else chance.randrange(60)
                yield Cell(provider=provider, phase=phase, kind=kind, at=at, once=once)
    for provider, phase, kind, _ in product(providers, TLS_PHASES, ("cut", "reset", "half", "corrupt"), range(each)):
        at = chance.randrange(40) if "request" in phase else chance.randrange(6000)
        yield Cell(provider=provider, phase=phase, kind=kind, at=at, tls=True)


def _is_one(provider: str, phase: str, kind: str, *, once: bool) -> bool:
    """Whether there is such a cell: an act is sent once anyway, and what plain http is asked to do must not be changed."""
    if (phase == "pages" and not RIGS[provider].paged) or (once and (phase in ACT_PHASES or kind in (REFUSE, FILL))):
        return False
    return kind != "corrupt" or phase not in ("request", "act request", "act body")


@contextmanager
def unhurried() -> Iterator[None]:
    """No pauses between tries, enough of every quota, closed circuits, and acts that end soon: as the contract suite has it."""
    with (
        patch.object(
            TokenBucket,
            "acquire",
            lambda self, deadline, **_: self._closed_until - self._monotonic() <= deadline.compute_left(),
        ),
        patch.object(CircuitBreakers, "reserve_probe", lambda _self, _scope: 0.0),
        patch.object(channel, "ACT_S", ACT_S),
        patch.object(costguard_aws.session, "ACT_S", ACT_S),
        patch.object(gcp_acts, "ACT_S", ACT_S),
        patch.object(gcp_acts, "LOOK_S", ACT_S),
        stamina.set_testing(True, attempts=3, cap=True),
    ):
        yield


def played(cell: Cell, home: Path, tls: tuple[ssl.SSLContext, Path] | None = None) -> Came:
    """One try in the folder `home`, which is its own. `tls`: a server's side, and the file of its authority."""
    rig = RIGS[cell.provider]()
    came = Came(cell, victim=rig.put(MACHINES)[VICTIM])
    rig.page(PAGE)
    with ExitStack() as stack:
        transport, before = Transport(ca_file=tls[1] if tls and cell.tls else None), Transport()
        stack.callback(transport.close)
        stack.callback(before.close)
        with serving(rig.fake) as base:
            truth = _truth(rig.accounts(base, before, home)[0])
        base = stack.enter_context(serving(rig.fake, tls[0] if tls and cell.tls else None))
        proxy = stack.enter_context(proxied(port_of(base), cell.plan, None if cell.tls else line_of(rig.fake)))
        scheme = "https" if cell.tls else "http"
        source = rig.accounts(f"{scheme}://127.0.0.1:{proxy.port}", transport, home, timeout_s=QUICK_S)[0]
        _broken_port(cell, proxy)
        began = time.monotonic()
        if cell.phase in POLL_PHASES:
            _poll(came, source, truth)
        else:
            _act(came, rig, source, proxy, truth)
        came.took_s = time.monotonic() - began
    came.struck = len(proxy.struck) + (cell.kind in (REFUSE, FILL))
    came.cut_short = rig.fake.cut_short
    if came.took_s > LATE_S:
        came.wrong.append(f"it took {came.took_s:.1f} s")
    came.wrong += [f"it shows a secret: {form}" for form in _secrets(rig) if form in came.said]
    return came


def line_of(fake: FakeCloud) -> Line:
    """What the fake calls a request; AWS's says it when it has looked at the signature."""
    if not isinstance(fake, FakeAws):
        return fake.line

    def line(method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
        asked = Asked(method=method, path=path, query={}, headers=headers, body=body, line="")
        service, region = scope_of(asked)
        action = re.search(rb"(?:^|&)Action=(\w+)", body)
        return f"{method} /{service}/{region}/{action[1].decode() if action else ''}?{body.decode('latin-1')}"

    return line


def _secrets(rig: Rig) -> list[str]:
    return [form for canary in (rig.secret, *rig.more_secrets) for form in forms(canary)]


def _broken_port(cell: Cell, proxy: Proxy) -> None:
    if cell.kind == REFUSE:
        proxy.refuse()
    elif cell.kind == FILL:
        proxy.fill()


def _truth(source: Any) -> dict[object, Observation]:  # noqa: ANN401 - an account
    poll: Poll = source.poll(source.list_scopes()[0])
    assert isinstance(poll.inventory, Complete), poll.inventory
    return {item.key: item for item in poll.inventory.items}


def _poll(came: Came, source: Any, truth: dict[object, Observation]) -> None:  # noqa: ANN401 - an account
    try:
        poll: Poll = source.poll(source.list_scopes()[0])
    except ProviderError as broken:
        came.said = f"failed: {broken}"
        return
    except Exception as broken:  # noqa: BLE001 - what no adapter may raise
        came.wrong.append(f"it raised {broken!r}")
        return
    if isinstance(poll.inventory, Failed):
        came.said = f"failed: {poll.inventory.why}"
        return
    came.said = f"{type(poll.inventory).__name__.lower()}: {getattr(poll.inventory, 'why', '')} {'; '.join(poll.notes)}"
    found = {item.key: item for item in poll.inventory.items}
    faults = [f"it has {key}, which is not there" for key in found.keys() - truth.keys()]
    if isinstance(poll.inventory, Complete):
        faults += [f"it is complete without {key}" for key in truth.keys() - found.keys()]
    faults += [f"{key} is said to be another" for key in found.keys() & truth.keys() if not _says(found[key], truth[key])]
    if came.cell.kind == "corrupt" and not came.cell.tls:
        came.unknowable = bool(faults)
    else:
        came.wrong += faults


def _says(found: Observation, right: Observation) -> bool:
    """Whether `found` says nothing but what is so; a price, a disk or a time may be unknown."""
    mended = {name: getattr(right, name) for name in MAYBE if not _known(found, name)}
    return {n: mended.get(n, getattr(found, n)) for n in FIELDS} == {n: getattr(right, n) for n in FIELDS}


def _known(found: Observation, name: str) -> bool:
    values = getattr(found, name)
    return bool(values) and (name != "prices" or any(price.rate is not None for price in values))


MAYBE = ("prices", "disks", "created_at", "started_at")
FIELDS = ("key", "kind", "state", "gpu", "gpu_count", "tier", "name", "owner", "created_at", "started_at", "prices", "disks")


def _act(came: Came, rig: Rig, source: Any, proxy: Proxy, truth: dict[object, Observation]) -> None:  # noqa: ANN401 - an account
    fake, there = rig.fake, [item.key.id for item in truth.values() if item.kind == "instance"]
    seen = next(item for item in truth.values() if item.key.id == came.victim)
    id_ = came.victim
    line = rig.stops or rig.terminates
    try:
        if not came.cell.tls:
            source.poll(source.list_scopes()[0])
        lose = frozenset(seen.handling.stop_loses)
        reception = source.stop(seen.key, lose=lose) if rig.stops else source.terminate(seen.key)
    except CostguardError as broken:
        came.wrong.append(f"the act raised {broken!r}")
        return
    came.said = f"{reception.said}: {reception.why}"
    arrived = sum(bool(re.search(line, one.line)) for one in tuple(fake.asked))
    done = rig.state_of(id_) != "running"
    came.wrong += [f"it arrived {arrived} times"] * (arrived > 1)
    came.wrong += [f"it hit {other}, too" for other in there if other != id_ and rig.state_of(other) != "running"]
    lies = {
        ACCEPTED: not done,
        REFUSED: done,
        POSTPONED: done,
        MISSING: True,
        ALREADY: not done,
        UNCLEAR: not reception.why,
    }
    came.wrong += [f"it says {reception.said}, and the machine is {rig.state_of(id_)}"] * lies[reception.said]
    proxy.heal()
    came.wrong += _settled(source, seen, rig, id_)


def _settled(source: Any, seen: Observation, rig: Rig, id_: str) -> list[str]:  # noqa: ANN401 - an account
    """Nothing where a look says what became of it, once the wire is whole again.

    A look that comes too late is had again, and so is one that does not fit: the act may have come through between the two.
    """
    wrong = ""
    for _ in range(LOOKS):
        try:
            found = source.look_up(seen.key)
        except CostguardError as broken:
            wrong = f"it cannot be looked at afterwards: {broken}"
            continue
        state, is_so = found.state if found else "ended", rig.state_of(id_)
        if (state == "running") == (is_so == "running"):
            return []
        wrong = f"a look says {state}, and it is {is_so}"
    return [wrong]
