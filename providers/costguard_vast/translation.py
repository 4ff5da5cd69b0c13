"""Translate Vast's contracts and volumes to observations.

Pure: no network, no clock. A field that cannot be read is noted for its item and affects no other item.

State: Vast has four fields. `actual_status` is the container's, by its last heartbeat; `intended_status` is what was requested;
`cur_state` and `next_state` are the contract's, which is what is billed. If the two differ, the contract may still hold its
GPU, and the state is an uncertain one. Source: the project's provider notes (vast.md, section 3, 2026-11-21). Example:
container "exited", contract "running": the process ended and the GPU is still held, so `failed`, which may be billed.

Utilisation comes with the listing. Vast states percent; its spec says fraction (vast.md, sections 3 and 9, 2026-11-21). A value
above 1 proves percent. An instance that never had one and whose GPU is hot may be busy and use the other scale: it gets no
sample, so it does not count as idle.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

import msgspec

from costguard.errors import InputError, shorten, to_one_line
from costguard.metering.observation import Handling, Observation
from costguard.values.gpu import GpuNames
from costguard.values.instant import parse_instant
from costguard.values.resource import VOLUME, ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_TEMPERATURE, GPU_UTIL, MEMORY_USED, Sample
from costguard_vast import prices
from costguard_vast.prices import Say, list_counters
from costguard_vast.wire import (
    UNREADABLE,
    Instance,
    ItemIdentity,
    Volume,
    parse_finite,
    parse_gpu_count,
    parse_leniently,
    parse_percent,
    parse_positive,
)

PROVIDER, SCOPE, REGION = "vast", "contracts", "global"
"""Vast has no regions: ids are unique, and `geolocation` is a host's word that may change, so it is in no key."""
VOLUME_MARK = "volume-"
"""Before the id of a volume, as charges write it: instances and volumes are numbered apart."""
LONGEST_GPU, LONGEST_NAME, MOST_LABELS = 80, 200, 20
STATED = frozenset(("actual_status", "intended_status", "cur_state", "next_state"))
"""Fields without any of which the state of a contract is unknown."""
REFUND = "the discount taken and a fee of 5 % of what is left of its prepayment"


@dataclass(slots=True)
class PollNotes:
    """The distinct notes of a poll: `notes`, and `lost`, which make the listing incomplete."""

    notes: dict[str, None] = field(default_factory=dict)
    lost: dict[str, None] = field(default_factory=dict)

    def make_voice(self, what: str) -> Say:
        """Return a function that adds a note prefixed with `what`."""
        return lambda text: self.notes.setdefault(f"{PROVIDER} {what}: {text}")


@dataclass(frozen=True, slots=True)
class VastGpuNames:
    """Vast's GPU names mapped to canonical ones, each looked up once."""

    names: GpuNames
    known: dict[tuple[str, Decimal | None], str] = field(default_factory=dict)

    def find_gpu(self, name: str | None, ram_mb: Decimal | None) -> str | None:
        """Return the canonical GPU; None if none matches.

        `ram_mb` selects the size: both A100s have one name.
        """
        text, ram = " ".join((name or "").split()), parse_positive(ram_mb)
        if (text, ram) not in self.known:
            canonical = self._resolve(text, ram)
            if canonical is None:
                return None
            self.known[text, ram] = canonical
        return self.known[text, ram]

    def _resolve(self, text: str, ram: Decimal | None) -> str | None:
        match = self.names.find(text, vram_gb=float(ram) / 1024 if ram else None)
        if match is not None:
            return match.canonical
        match = self.names.find(text)
        return None if match is None or match.taken_as_short else match.canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReader:
    """Translates the items of one account to observations.

    `traffic_unit`: GB, MB, or "" if unknown.
    """

    account: str
    naming: VastGpuNames
    traffic_unit: str = ""

    def read_instance(self, raw: msgspec.Raw, telling: PollNotes) -> tuple[Observation | None, Instance | None]:
        """Return one contract and its decoded item; if only its id can be read, its state and price are unknown."""
        try:
            one = msgspec.json.decode(raw, type=Instance)
        except UNREADABLE as odd:
            instance, left_out = parse_leniently(raw, Instance)
            if instance is None or STATED.intersection(left_out):
                return self._observe_unreadable(raw, "", shorten(to_one_line(str(odd)), 100), telling), None
            one = instance
            telling.make_voice(shorten(to_one_line(f"{one.id}"), 40))(f"cannot be read: {', '.join(left_out)}")
        return self._make_observation(f"{one.id}".strip(), telling, lambda key, say: self._observe_instance(one, key, say)), one

    def read_volume(self, raw: msgspec.Raw, telling: PollNotes) -> Observation | None:
        """Return one volume."""
        try:
            one = msgspec.json.decode(raw, type=Volume)
        except UNREADABLE as odd:
            volume, left_out = parse_leniently(raw, Volume)
            if volume is None or "status" in left_out:
                return self._observe_unreadable(raw, VOLUME_MARK, shorten(to_one_line(str(odd)), 100), telling)
            one = volume
            telling.make_voice(shorten(to_one_line(f"{VOLUME_MARK}{one.id}"), 40))(f"cannot be read: {', '.join(left_out)}")
        id_ = f"{one.id}".strip()
        return self._make_observation(
            f"{VOLUME_MARK}{id_}" if id_ else "", telling, lambda key, say: _observe_volume(one, key, say)
        )

    def _make_observation(
        self, id_: str, telling: PollNotes, make: Callable[[ResourceKey, Say], Observation]
    ) -> Observation | None:
        try:
            return make(ResourceKey(PROVIDER, self.account, REGION, id_), telling.make_voice(shorten(to_one_line(id_), 40)))
        except InputError as odd:
            telling.lost.setdefault(f"an item cannot be kept: {shorten(to_one_line(odd.what), 100)}")
            return None

    def _observe_unreadable(self, raw: msgspec.Raw, mark: str, why: str, telling: PollNotes) -> Observation | None:
        try:
            id_ = f"{msgspec.json.decode(raw, type=ItemIdentity).id}".strip()
        except (msgspec.DecodeError, RecursionError):
            telling.lost.setdefault(f"an item without an id cannot be read ({why})")
            return None
        kind = VOLUME if mark else "instance"
        telling.make_voice(shorten(to_one_line(mark + id_), 40))(f"it cannot be read ({why}): its state and price are unknown")

        def unknown(key: ResourceKey, _: Say) -> Observation:
            return Observation(key=key, state="unknown", kind=kind, why="unreadable")

        return self._make_observation(mark + id_ if id_ else "", telling, unknown)

    def _observe_instance(self, one: Instance, key: ResourceKey, say: Say) -> Observation:
        state, why = find_state(one)
        gpu, count = self._find_gpus(one, say)
        created = parse_instant(one.start_date)
        if created is None and one.start_date is not None:
            say("start_date cannot be read")
        if WAITING in why:
            say(f"it is stopped, {WAITING}")
        owner, labels = parse_labels(one.label)
        return Observation(
            key=key,
            state=state,
            name=shorten((one.label or "").strip(), LONGEST_NAME),
            instance_type=f"{count}x {(one.gpu_name or '').strip()}"[:LONGEST_NAME] if gpu else "",
            gpu=gpu,
            gpu_count=count,
            tier="reserved" if prices.is_reserved(one) else "spot" if one.is_bid else "on-demand",
            owner=owner,
            labels=labels,
            created_at=created,
            prices=prices.list_compute_prices(one, state, count, say),
            disks=prices.list_disks(one, state, say),
            counters=list_counters(one, self.traffic_unit, say),
            why=why,
            handling=make_handling(one, state),
        )

    def _find_gpus(self, one: Instance, say: Say) -> tuple[str, int]:
        """Return its GPU, canonical if a name matches, and the count."""
        word_ = " ".join((one.gpu_name or "").split())
        gpu = self.naming.find_gpu(word_, one.gpu_ram) if word_ else ""
        if gpu is None:
            gpu = word_[:LONGEST_GPU]
            say(f"its GPU '{to_one_line(gpu)}' has no name here, so its market price is unknown")
        count = parse_gpu_count(one.num_gpus)
        if count is None:
            say("num_gpus is missing or absurd")
            return gpu, 0
        return gpu, count


def make_handling(one: Instance, state: str) -> Handling:
    """Return the effects of acting.

    A stop keeps the disk; another customer may rent its GPU meanwhile.
    """
    prepaid, size = prices.is_reserved(one), parse_finite(one.disk_space)
    lost = (f"{size:f} GB of disk",) if size else ("its disk",)
    return Handling(
        stops=not is_settled(one) or bool(one.is_bid),
        terminates=True,
        terminate_loses=(*lost, REFUND) if prepaid else lost,
        restart_doubtful=True,
        committed="prepaid: the credit stays locked to it while it is stopped" if prepaid else "",
        ends_at=None if state == "ended" else parse_instant(one.end_date),
        starts=state == "stopped" and is_settled(one),
        start_waits=state == "stopped" and normalise_word(one.intended_status) == "running",
    )


def parse_labels(label: str | None) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the owner and the pairs in a label such as "owner=alice project=llm"; Vast has one text and no tags."""
    labels = dict[str, str]()
    for name, value in re.findall(r"([^\s=,;]{1,64})=([^\s=,;]{1,200})", (label or "")[:1024])[:MOST_LABELS]:
        labels.setdefault(name, value)
    owner = next((value for name, value in labels.items() if name.lower() == "owner"), "")
    return owner, tuple(sorted(labels.items()))


def _observe_volume(one: Volume, key: ResourceKey, say: Say) -> Observation:
    if not key.id:
        raise InputError("a volume has no id")
    offline = normalise_word(one.status) == "offline"
    owner, labels = parse_labels(one.label)
    return Observation(
        key=key,
        state="repairing" if offline else "running",
        kind=VOLUME,
        name=shorten((one.label or "").strip(), LONGEST_NAME),
        owner=owner,
        labels=labels,
        created_at=parse_instant(one.start_date),
        disks=prices.list_volume_disks(one, say),
        why=normalise_word(one.status),
    )


HELD = {"running": "running", "rebooting": "running", "recycling": "running", "frozen": "paused", "exited": "failed"}
ARRIVING = frozenset(("", "loading", "created", "scheduling"))
OFF = frozenset(("stopped", "unloaded"))
LONGEST_WORD = 80
WAITING = "waits for its GPU, and then starts and bills by itself"
MAY_RESUME = "interruptible: it resumes by itself when its bid wins"


def find_state(one: Instance) -> tuple[str, str]:
    """Return costguard's state, and Vast's status if that adds information."""
    actual, intended = normalise_word(one.actual_status), normalise_word(one.intended_status)
    state = _find_base_state(actual, intended, one)
    shown = (one.actual_status or "").strip()[:LONGEST_WORD] if actual != state else ""
    if state == "stopped" and intended == "running":
        return state, f"{shown or 'stopped'}, {WAITING}"
    if state == "stopped" and one.is_bid:
        return state, f"{shown or 'stopped'}, {MAY_RESUME}"
    return state, shown


def is_settled(one: Instance) -> bool:
    """Return whether contract and request both are stopped, and no other state is pending."""
    return (
        normalise_word(one.cur_state) in OFF
        and normalise_word(one.intended_status) == "stopped"
        and normalise_word(one.next_state) in (*OFF, "")
    )


def normalise_word(text: str | None) -> str:
    """Return a status normalised for comparison: some have spaces and newlines."""
    return (text or "").strip().lower()[:LONGEST_WORD]


def _find_base_state(actual: str, intended: str, one: Instance) -> str:
    contract = normalise_word(one.cur_state)
    if actual == "offline":
        return "repairing"
    if is_settled(one):
        return "stopped"
    if actual in ARRIVING:
        return _find_arriving_state(actual, contract, intended)
    if actual == "stopped":
        return _find_stopped_state(contract, intended)
    if actual in HELD:
        return _find_held_state(actual, contract, intended)
    return "unknown"


def _find_arriving_state(actual: str, contract: str, intended: str) -> str:
    """Return the state of a contract without a container yet; unknown if no field states anything."""
    if contract in OFF:
        return "stopped"
    return "starting" if actual or contract == "running" or intended in ("running", "stopped") else "unknown"


def _find_stopped_state(contract: str, intended: str) -> str:
    """Return the state for a stopped container, whose contract may still or again hold its GPU."""
    if contract in OFF or not contract:
        return "stopped"
    return "starting" if intended == "running" else "stopping"


def _find_held_state(actual: str, contract: str, intended: str) -> str:
    if contract in OFF:
        return "stopped" if actual == "exited" else "stopping"
    return "stopping" if intended == "stopped" else HELD[actual]


HOT_C = 60.0
"""Degrees at which a GPU surely works, or has just worked: an assumption, 2026-11."""
HOTTEST_C = 150.0


def build_samples(one: Instance, key: ResourceKey, at: datetime, proven: set[str], say: Say) -> tuple[Sample, ...]:
    """Return the samples of a running instance's last heartbeat.

    `proven`: ids that are known to state percent; it is extended.
    """
    use, heat = parse_percent(one.gpu_util), parse_finite(one.gpu_temp)
    heat_c = float(heat) if heat is not None and 0 < heat <= Decimal(HOTTEST_C) else None
    if use is not None and use > 1:
        proven.add(key.id)
    if use is not None and key.id not in proven and heat_c is not None and heat_c >= HOT_C:
        say(f"scale suspicious: gpu_util {use:g} at {heat_c:.0f} degrees, so it is taken for unknown, not for idle")
        use = None
    values = {
        GPU_UTIL: use,
        GPU_TEMPERATURE: heat_c,
        CPU_UTIL: parse_percent(one.cpu_util),
        MEMORY_USED: _compute_memory_percent(one),
    }
    return tuple(Sample(key=key, signal=name, at=at, value=value) for name, value in values.items() if value is not None)


def _compute_memory_percent(one: Instance) -> float | None:
    """Return the main memory in use, in percent.

    Both values have the same unit, whichever it is.
    """
    used, limit = parse_finite(one.mem_usage), parse_positive(one.mem_limit)
    return float(100 * used / limit) if used is not None and limit is not None and 0 <= used <= limit else None
