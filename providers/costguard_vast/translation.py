"""From Vast's contracts and volumes to observations. Pure: no network, no clock.

What cannot be read of one item is said about that item and costs no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from costguard.errors import InputError, shorten, to_one_line
from costguard.metering.observation import Handling, Observation
from costguard.values.gpu_names import GpuNames
from costguard.values.resource import VOLUME, ResourceKey
from costguard.values.stated_time import parse_instant
from costguard_vast import prices
from costguard_vast.numbers import counted, finite, positive
from costguard_vast.states import WAITING, settled, state_of, word
from costguard_vast.traffic import Say, counters
from costguard_vast.wire import UNREADABLE, Identity, Instance, Volume, mended

PROVIDER, SCOPE, REGION = "vast", "contracts", "global"
"""Vast has no regions: ids are unique, and `geolocation` is a host's word that may change, so it is in no key."""
VOLUME_MARK = "volume-"
"""Before the id of a volume, as charges write it: instances and volumes are numbered apart."""
LONGEST_GPU, LONGEST_NAME, MOST_LABELS = 80, 200, 20
STATED = frozenset(("actual_status", "intended_status", "cur_state", "next_state"))
"""Fields without any of which the state of a contract is unknown."""
REFUND = "the discount taken and a fee of 5 % of what is left of its prepayment"


@dataclass(slots=True)
class Telling:
    """What a poll has to say beside its items: `notes`, and `lost`, for which the listing is not whole. Each is said once."""

    notes: dict[str, None] = field(default_factory=dict)
    lost: dict[str, None] = field(default_factory=dict)

    def of(self, what: str) -> Say:
        """A voice that says whose note it is."""
        return lambda text: self.notes.setdefault(f"{PROVIDER} {what}: {text}")


@dataclass(frozen=True, slots=True)
class Naming:
    """Vast's GPU names to canonical ones, each looked up once."""

    names: GpuNames
    known: dict[tuple[str, Decimal | None], str] = field(default_factory=dict)

    def of(self, name: str | None, ram_mb: Decimal | None) -> str | None:
        """The canonical GPU; None: no name here fits. `ram_mb` decides between sizes: both A100s have one name."""
        text, ram = " ".join((name or "").split()), positive(ram_mb)
        if (text, ram) not in self.known:
            found = self._resolved(text, ram)
            if found is None:
                return None
            self.known[text, ram] = found
        return self.known[text, ram]

    def _resolved(self, text: str, ram: Decimal | None) -> str | None:
        found = self.names.find(text, vram_gb=float(ram) / 1024 if ram else None)
        if found is not None:
            return found.canonical
        found = self.names.find(text)
        return None if found is None or found.taken_as_short else found.canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Turns the items of one account into observations. `traffic_unit`: GB, MB, or "" where nobody says."""

    account: str
    naming: Naming
    traffic_unit: str = ""

    def instance(self, raw: msgspec.Raw, telling: Telling) -> tuple[Observation | None, Instance | None]:
        """One contract, and what was decoded of it; where only its id can be read, its state and price are unknown."""
        try:
            one = msgspec.json.decode(raw, type=Instance)
        except UNREADABLE as odd:
            found, left_out = mended(raw, Instance)
            if found is None or STATED.intersection(left_out):
                return self._unreadable(raw, "", shorten(to_one_line(str(odd)), 100), telling), None
            one = found
            telling.of(shorten(to_one_line(f"{one.id}"), 40))(f"cannot be read: {', '.join(left_out)}")
        return self._made(f"{one.id}".strip(), telling, lambda key, say: self._instance(one, key, say)), one

    def volume(self, raw: msgspec.Raw, telling: Telling) -> Observation | None:
        """One volume."""
        try:
            one = msgspec.json.decode(raw, type=Volume)
        except UNREADABLE as odd:
            found, left_out = mended(raw, Volume)
            if found is None or "status" in left_out:
                return self._unreadable(raw, VOLUME_MARK, shorten(to_one_line(str(odd)), 100), telling)
            one = found
            telling.of(shorten(to_one_line(f"{VOLUME_MARK}{one.id}"), 40))(f"cannot be read: {', '.join(left_out)}")
        id_ = f"{one.id}".strip()
        return self._made(f"{VOLUME_MARK}{id_}" if id_ else "", telling, lambda key, say: _volume(one, key, say))

    def _made(self, id_: str, telling: Telling, make: Callable[[ResourceKey, Say], Observation]) -> Observation | None:
        try:
            return make(ResourceKey(PROVIDER, self.account, REGION, id_), telling.of(shorten(to_one_line(id_), 40)))
        except InputError as odd:
            telling.lost.setdefault(f"an item cannot be kept: {shorten(to_one_line(odd.what), 100)}")
            return None

    def _unreadable(self, raw: msgspec.Raw, mark: str, why: str, telling: Telling) -> Observation | None:
        try:
            id_ = f"{msgspec.json.decode(raw, type=Identity).id}".strip()
        except (msgspec.DecodeError, RecursionError):
            telling.lost.setdefault(f"an item without an id cannot be read ({why})")
            return None
        kind = VOLUME if mark else "instance"
        telling.of(shorten(to_one_line(mark + id_), 40))(f"it cannot be read ({why}): its state and price are unknown")

        def unknown(key: ResourceKey, _: Say) -> Observation:
            return Observation(key=key, state="unknown", kind=kind, why="unreadable")

        return self._made(mark + id_ if id_ else "", telling, unknown)

    def _instance(self, one: Instance, key: ResourceKey, say: Say) -> Observation:
        state, why = state_of(one)
        gpu, count = self._gpus(one, say)
        created = parse_instant(one.start_date)
        if created is None and one.start_date is not None:
            say("start_date cannot be read")
        if WAITING in why:
            say(f"it is stopped, {WAITING}")
        owner, labels = labels_of(one.label)
        return Observation(
            key=key,
            state=state,
            name=shorten((one.label or "").strip(), LONGEST_NAME),
            instance_type=f"{count}x {(one.gpu_name or '').strip()}"[:LONGEST_NAME] if gpu else "",
            gpu=gpu,
            gpu_count=count,
            tier="reserved" if prices.reserved(one) else "spot" if one.is_bid else "on-demand",
            owner=owner,
            labels=labels,
            created_at=created,
            prices=prices.computing(one, state, count, say),
            disks=prices.disks(one, state, say),
            counters=counters(one, self.traffic_unit, say),
            why=why,
            handling=handling(one, state),
        )

    def _gpus(self, one: Instance, say: Say) -> tuple[str, int]:
        """Its GPU, canonical where a name fits, and how many."""
        word_ = " ".join((one.gpu_name or "").split())
        gpu = self.naming.of(word_, one.gpu_ram) if word_ else ""
        if gpu is None:
            gpu = word_[:LONGEST_GPU]
            say(f"its GPU '{to_one_line(gpu)}' has no name here, so its market price is unknown")
        count = counted(one.num_gpus)
        if count is None:
            say("num_gpus is missing or absurd")
            return gpu, 0
        return gpu, count


def handling(one: Instance, state: str) -> Handling:
    """What acting on it would do. A stop keeps the disk; its GPU may be rented to somebody else meanwhile."""
    prepaid, size = prices.reserved(one), finite(one.disk_space)
    lost = (f"{size:f} GB of disk",) if size else ("its disk",)
    return Handling(
        stops=not settled(one) or bool(one.is_bid),
        terminates=True,
        terminate_loses=(*lost, REFUND) if prepaid else lost,
        restart_doubtful=True,
        committed="prepaid: the credit stays locked to it while it is stopped" if prepaid else "",
        ends_at=None if state == "ended" else parse_instant(one.end_date),
    )


def labels_of(label: str | None) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The owner and the pairs that a label states, such as "owner=alice project=llm"; Vast has one text and no tags."""
    found = dict[str, str]()
    for name, value in re.findall(r"([^\s=,;]{1,64})=([^\s=,;]{1,200})", (label or "")[:1024])[:MOST_LABELS]:
        found.setdefault(name, value)
    owner = next((value for name, value in found.items() if name.lower() == "owner"), "")
    return owner, tuple(sorted(found.items()))


def _volume(one: Volume, key: ResourceKey, say: Say) -> Observation:
    if not key.id:
        raise InputError("a volume has no id")
    offline = word(one.status) == "offline"
    owner, labels = labels_of(one.label)
    return Observation(
        key=key,
        state="repairing" if offline else "running",
        kind=VOLUME,
        name=shorten((one.label or "").strip(), LONGEST_NAME),
        owner=owner,
        labels=labels,
        created_at=parse_instant(one.start_date),
        disks=prices.volume_disk(one, say),
        why=word(one.status),
    )
