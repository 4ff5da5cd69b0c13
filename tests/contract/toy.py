"""A small cloud and its adapter, on which the contract suite is tried itself: a right one, and wrong ones that it must catch.

GET  /machines?limit=2&after=TOKEN   {"machines": [...], "next": TOKEN or null}
GET  /machines/ID                    one machine
POST /machines/ID/stop or /start, DELETE /machines/ID
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from costguard.errors import (
    ConflictError,
    CredentialsError,
    InputError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    UnknownNameError,
    shorten,
)
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Handling, Observation, Price, parse_hourly_rate
from costguard.providers.transport import Deadline, ProviderChannel, ProviderContext, Secret, TokenBucket, check_url
from costguard.values.provider import (
    ACCEPTED,
    ALREADY,
    CHECK_BAD,
    CHECK_GOOD,
    CLOCK_CHECK,
    CREDENTIALS_CHECK,
    REACHABLE_CHECK,
    REFUSED,
    UNCLEAR,
    ActionResponse,
    HealthCheck,
    interpret_act_error,
)
from costguard.values.resource import ResourceKey, ScopeKey
from tests.contract.rig import Rig
from tests.fakes.server import Answer, Asked, FakeCloud, Hands

CANARY = "toy-canary-5f8e2d7a91b3c4d6"
STATES = {"on": "running", "off": "stopped", "gone": "ended"}
ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
MOST_ITEMS, MOST_PAGES = 10_000, 1_000


@dataclass
class Machine:
    """One machine of the toy cloud as it goes over the wire."""

    id: str
    status: str = "on"
    spoilt: dict[str, Any] = field(default_factory=dict)

    def wire(self) -> dict[str, Any]:
        """What a listing shows of it."""
        right = {"id": self.id, "name": f"n-{self.id}", "status": self.status, "price": "2.5", "gpu": "H100", "gpu_count": 1}
        shown = {**right, "started": "2026-11-21T10:00:00Z", "owner": "ann", **self.spoilt}
        return {name: value for name, value in shown.items() if value is not ...}


class FakeToy(FakeCloud):
    """The toy cloud, healthy."""

    def __init__(self, clock: Hands) -> None:
        super().__init__(clock)
        self.resources: list[Machine] = []
        self.size = 100

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {CANARY}":
            return Answer.of({"error": "unknown key"}, 401)
        id_, _, verb = asked.path.removeprefix("/machines").strip("/").partition("/")
        if not id_:
            return self._page(int(asked.one("after", "0")))
        machine = next((one for one in self.resources if one.id == id_ and one.status != "gone"), None)
        if machine is None:
            return Answer.of({"error": "no such machine"}, 404)
        if asked.method == "GET":
            return Answer.of(machine.wire())
        return self._acted(machine, verb)

    def _page(self, first: int) -> Answer:
        there = [one for one in self.resources if one.status != "gone"]
        end = first + self.size
        page = [one.wire() for one in there[first:end]]
        return Answer.of({"machines": page, "next": str(end) if end < len(there) else None})

    def _acted(self, machine: Machine, verb: str) -> Answer:
        if verb == "stop" and machine.status == "off":
            return Answer.of({"error": "already off"}, 409)
        if verb == "start" and machine.status == "on":
            return Answer.of({"error": "already on"}, 409)
        if not self.deaf:
            machine.status = {"stop": "off", "start": "on"}.get(verb, "gone")
        return Answer.of({"taken": True})


class Wire(msgspec.Struct):
    """One machine, as far as it is used."""

    id: str
    name: str | None = None
    status: str | None = None
    price: Any = None
    gpu: str | None = None
    gpu_count: Any = None
    started: Any = None
    owner: str | None = None


class Page(msgspec.Struct):
    """One page; `next` null ends the listing."""

    machines: list[msgspec.Raw]
    next: str | None


class Taken(msgspec.Struct):
    """The answer to an act."""

    taken: bool


class ToyAccount:
    """The right adapter: every port that the suite tries."""

    providers: Sequence[str] = ("toy",)

    def __init__(self, channel: ProviderChannel, around: ProviderContext, timeout_s: int) -> None:
        self.channel, self.clock, self.gpus, self.timeout_s = channel, around.clock, around.gpus, timeout_s

    def list_scopes(self) -> Sequence[ScopeKey]:
        return (ScopeKey("toy", "default", "all"),)

    def poll(self, scope: ScopeKey) -> Poll:
        asked_at, notes = self.clock.now(), list[str]()
        inventory = self._listed(Deadline(self.timeout_s), notes)
        return Poll(scope=scope, asked_at=asked_at, at=self.clock.now(), inventory=inventory, notes=tuple(notes))

    def _listed(self, deadline: Deadline, notes: list[str]) -> Inventory:
        items, seen, after, odd = list[Observation](), set[str](), "", list[str]()
        for page in range(MOST_PAGES):
            try:
                reply = self.channel.read("/machines", {"after": after} if after else None, deadline=deadline)
                got = self.channel.decode(reply, Page, "the list of machines")
            except ProviderError as broken:
                return Partial(tuple(items), broken.what) if page else Failed(broken.what)
            self._take(got.machines, items, notes, odd)
            if len(items) > MOST_ITEMS:
                return Partial(tuple(items[:MOST_ITEMS]), f"more than {MOST_ITEMS} machines")
            if got.next is None:
                return Partial(tuple(items), odd[0]) if odd else Complete(tuple(items))
            if got.next in seen:
                return Partial(tuple(items), "the same page token came twice")
            seen.add(after := got.next)
        return Partial(tuple(items), "the listing does not end")

    def _take(self, raws: Sequence[msgspec.Raw], items: list[Observation], notes: list[str], odd: list[str]) -> None:
        for raw in raws:
            try:
                items.append(self.translate(raw, notes))
            except (msgspec.DecodeError, InputError, RecursionError):
                odd.append("a machine that cannot be read")

    def translate(self, raw: msgspec.Raw, notes: list[str]) -> Observation:
        try:
            wire = msgspec.json.decode(raw, type=Wire)
        except msgspec.ValidationError:
            bare = msgspec.json.decode(raw, type=dict[str, Any])
            if not isinstance(bare.get("id"), str):
                raise
            wire = Wire(id=bare["id"])
            notes.append(f"{shorten(wire.id)} cannot be read")
        rate, why = parse_hourly_rate(str(wire.price) if isinstance(wire.price, float) else wire.price)
        notes += [f"{shorten(wire.id)}: {why}"] if why else []
        gpu = (wire.gpu or "")[:80]
        with suppress(UnknownNameError):
            gpu = self.gpus.resolve(gpu).canonical if gpu else ""
        count = wire.gpu_count if isinstance(wire.gpu_count, int) and 0 <= wire.gpu_count <= 1000 else 0
        return Observation(
            key=ResourceKey("toy", "default", "all", wire.id),
            state=STATES.get(wire.status or "", "unknown"),
            why=wire.status or "",
            name=wire.name or "",
            gpu=gpu,
            gpu_count=count,
            owner=wire.owner or "",
            started_at=when(wire.started),
            prices=(Price(rate),),
            handling=Handling(stops=True, terminates=True, terminate_loses=("its disk",), starts=wire.status == "off"),
        )

    def look_up(self, key: ResourceKey) -> Observation | None:
        try:
            reply = self.channel.read(f"/machines/{key.id}")
        except MissingError:
            return None
        try:
            return self.translate(msgspec.Raw(reply.body), [])
        except (msgspec.DecodeError, RecursionError):
            raise InvalidAnswerError("a machine that cannot be read", provider="toy") from None

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:  # noqa: ARG002 - it loses nothing
        return self._acted(key, "POST", "/stop")

    def terminate(self, key: ResourceKey) -> ActionResponse:
        return self._acted(key, "DELETE", "")

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        return self._acted(key, "POST", "/start")

    def fetch_start_price(self, key: ResourceKey) -> Price:
        seen = self.look_up(key)
        return seen.prices[-1] if seen else Price(None)

    def _acted(self, key: ResourceKey, method: str, verb: str) -> ActionResponse:
        if key[:3] != ("toy", "default", "all") or not ID.fullmatch(key.id):
            return ActionResponse(said=REFUSED, why="that is not a machine of this account")
        try:
            taken = self.channel.decode(self.channel.act(method, f"/machines/{key.id}{verb}"), Taken, "the answer")
        except ConflictError as already:
            return ActionResponse(said=ALREADY, why=already.what)
        except ProviderError as broken:
            return interpret_act_error(broken)
        return ActionResponse(said=ACCEPTED) if taken.taken else ActionResponse(said=UNCLEAR, why="it did not take it")

    def examine(self) -> Sequence[HealthCheck]:
        try:
            reply = self.channel.read("/machines", deadline=Deadline(self.timeout_s))
            self.channel.decode(reply, Page, "the list of machines")
        except CredentialsError as wrong:
            return (HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=wrong.what, fix="set TOY_KEY"),)
        except ProviderError as broken:
            return (HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=broken.what, fix="look at base_url"),)
        skew = abs((self.clock.now() - (self.channel.date or self.clock.now())).total_seconds())
        clock = HealthCheck(
            subject=CLOCK_CHECK, outcome=CHECK_BAD if skew > 30 else CHECK_GOOD, told=f"{skew} s apart", fix="set the clock"
        )
        return (HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told="TOY_KEY"), clock)


def when(stated: object) -> datetime | None:
    """A time in RFC 3339 or as an epoch; None where it cannot be read."""
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(stated, str) and not stated.isdigit():
            at = datetime.fromisoformat(stated)
            return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
        if isinstance(stated, int | float | str) and not isinstance(stated, bool):
            seconds = float(stated)
            return datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC)
    return None


class ToyPlugin:
    """The toy's plug-in."""

    account: ClassVar[type[ToyAccount]] = ToyAccount

    def open(self, table: Mapping[str, Any], around: ProviderContext) -> Sequence[ToyAccount]:
        base_url = check_url(table["base_url"], "providers.toy.base_url")
        if "TOY_KEY" not in around.environ:
            raise CredentialsError("there is no key", provider="toy", hint="set TOY_KEY")
        key = Secret(f"Bearer {around.environ['TOY_KEY']}")
        buckets = {"": TokenBucket(1000, 1000, reserve=10)}
        channel = ProviderChannel(
            around.transport, provider="toy", base_url=base_url, headers={"Authorization": key}, buckets=buckets
        )
        return (self.account(channel, around, table.get("timeout_s", 60)),)


class ToyRig(Rig):
    """The toy cloud for the suite."""

    provider = "toy"
    secret = CANARY
    lists = r"GET /machines(\?|$)"
    stops = r"POST /machines/.*/stop"
    starts = r"POST /machines/.*/start"
    terminates = r"DELETE /machines/"
    one = r"GET /machines/."
    fake: FakeToy

    def make_fake(self) -> FakeCloud:
        return FakeToy(self.clock)

    def put(self, count: int) -> list[str]:
        first = len(self.fake.resources)
        ids = [f"m-{first + i:05}" for i in range(count)]
        self.fake.resources += [Machine(id=id_) for id_ in ids]
        return ids

    def _of(self, id: str) -> Machine:  # noqa: A002 - the ledger's word
        return next(one for one in self.fake.resources if one.id == id)

    def state_of(self, id: str) -> str:  # noqa: A002
        return STATES[self._of(id).status]

    def let(self, id: str, state: str) -> None:  # noqa: A002
        self._of(id).status = next(word for word, ours in STATES.items() if ours == state)

    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401
        self._of(id).spoilt.update(fields)

    def page(self, size: int) -> None:
        self.fake.size = size

    def environ(self) -> Mapping[str, str]:
        return {"TOY_KEY": CANARY}

    def table(self, base: str) -> Mapping[str, object]:
        return {"base_url": base}

    def plugin(self) -> ToyPlugin:
        return ToyPlugin()
