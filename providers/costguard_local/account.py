"""The machines of your own, as `[providers.local]` names them: listed without a request, their GPUs' energy by the agent.

The reading of a machine's energy is kept in the cache between two polls. If it is lost, or cannot be read, counting begins
anew, which a note names; what the ledger has booked stays. A machine whose agent is silent costs an interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from costguard.errors import CostguardError, InputError, UnknownNameError
from costguard.metering.inventory import Complete, Poll
from costguard.metering.meter import ELECTRICITY
from costguard.metering.observation import MOST_GPUS, Handling, Observation, TrafficCounter
from costguard.providers.transport import ProviderContext
from costguard.quoting.own_hardware import YEARS
from costguard.values.checks import require, require_number, require_whole_number
from costguard.values.money import Money
from costguard.values.provider import CHECK_GOOD, CREDENTIALS_CHECK, UTILIZATION_CHECK, HealthCheck
from costguard.values.resource import RUNNING, ResourceKey, ScopeKey, is_storable
from costguard.values.sample import GPU_POWER, Sample
from costguard_local import MANIFEST
from costguard_local.costs import SAMPLE_GAP_MAX, EnergyReading, OwnMachine, count_energy, price_estimated, price_measured

ACCOUNT, SCOPE, REGION = "own", "machines", "here"
NAME, WHERE = MANIFEST.name, "providers.local"
COST_KEYS = ("watts", "idle_watts", "host_watts", "price", "years")
MACHINE_KEYS = ("name", "gpu", "gpus", "owner", *COST_KEYS)
OLDEST = datetime(2000, 1, 1, tzinfo=UTC)
LONGEST_SILENCE = timedelta(minutes=5)
"""The newest sample is younger than this, or the machine is not measured: as late as the guard accepts an agent's."""
CANNOT = Handling(stops=False, terminates=False, starts=False)


class LocalAccount:
    """All machines of `[[providers.local.machines]]`."""

    providers: Sequence[str] = (NAME,)

    def __init__(self, machines: Sequence[OwnMachine], around: ProviderContext) -> None:
        self._machines = {ResourceKey(NAME, ACCOUNT, REGION, one.name): one for one in machines}
        self._around = around

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return the one scope."""
        return (ScopeKey(NAME, ACCOUNT, SCOPE),)

    def poll(self, scope: ScopeKey) -> Poll:
        """Return every machine. A ledger that cannot be read makes the cost an interval, and is a note."""
        now, notes = self._around.clock.now(), list[str]()
        measured = {key for key, one in self._machines.items() if one.host_watts is not None}
        samples: Mapping[ResourceKey, Sequence[Sample]] = {}
        try:
            if measured:
                samples = self._around.load_samples(measured, now - timedelta(hours=1))
        except CostguardError as error:
            notes.append(f"the agents' samples cannot be read, so power is not measured: {error.what}")
        items = tuple(self._observe(key, samples.get(key, ()), now, notes) for key in self._machines)
        return Poll(scope=scope, asked_at=now, at=now, inventory=Complete(items), notes=tuple(notes))

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return the machine; None if the settings do not name it."""
        return self._observe(key, (), self._around.clock.now(), []) if key in self._machines else None

    def examine(self) -> Sequence[HealthCheck]:
        """Return what is stated of the machines; nothing is asked."""
        names = ", ".join(one.name for one in self._machines.values())
        measured = sum(one.host_watts is not None for one in self._machines.values())
        return (
            HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told="it needs none"),
            HealthCheck(
                subject=UTILIZATION_CHECK,
                outcome=CHECK_GOOD,
                told=f"machines: {names}; energy is measured of {measured}, once costguard agent enrol NAME joined an agent",
            ),
        )

    def _observe(self, key: ResourceKey, samples: Sequence[Sample], now: datetime, notes: list[str]) -> Observation:
        machine = self._machines[key]
        observation = Observation(
            key=key,
            state=RUNNING,
            name=machine.name,
            instance_type=f"{machine.gpu} x{machine.gpus}" if machine.gpu else "",
            gpu=machine.gpu,
            gpu_count=machine.gpus,
            owner=machine.owner,
            prices=(price_estimated(machine),),
            handling=CANNOT,
        )
        if machine.host_watts is None:
            return observation
        last_reading = self._load_reading(machine.name)
        if last_reading is None:
            notes.append(f"{machine.name}: the energy of its GPUs is counted from now on")
            last_reading = EnergyReading(now, 0)
        power = [one for one in samples if one.signal == GPU_POWER and one.at <= now]
        fresh = bool(power) and now - power[-1].at <= LONGEST_SILENCE
        reading = count_energy(last_reading, power)
        if not fresh:  # the interval of its price covers this time, so samples that come later do not count for it
            reading = replace(reading, at=max(reading.at, now - SAMPLE_GAP_MAX))
        self._store_reading(machine.name, reading)
        counter = TrafficCounter(ELECTRICITY, reading.watt_hours, machine.usd_per_kwh.nano)
        prices = (price_measured(machine),) if fresh else observation.prices
        return replace(observation, prices=prices, counters=(counter,))

    def _load_reading(self, name: str) -> EnergyReading | None:
        try:
            at, total = json.loads(self._around.cache.get(f"local-energy-{name}", OLDEST) or b"")
            return EnergyReading(datetime.fromisoformat(at), total) if isinstance(total, int) and total >= 0 else None
        except (ValueError, TypeError):
            return None

    def _store_reading(self, name: str, reading: EnergyReading) -> None:
        text = json.dumps([reading.at.isoformat(), reading.milliwatt_seconds])
        self._around.cache.put(f"local-energy-{name}", text.encode())


def open_account(table: Mapping[str, object], around: ProviderContext) -> LocalAccount:
    """Return the account of `table`; raise InputError, which names the field, if it names no machine or a wrong one."""
    machine_tables = table.get("machines")
    if not isinstance(machine_tables, list) or not machine_tables:
        hint = 'write [[providers.local.machines]] with name = "box"'
        raise InputError("names no machine", field=WHERE, hint=hint)
    machines = [read_machine(one, table, f"{WHERE}.machines[{number}]", around) for number, one in enumerate(machine_tables)]
    names = [one.name.casefold() for one in machines]
    for number, name in enumerate(names):
        require(name not in names[:number], f"{WHERE}.machines[{number}].name", "is that of another machine", "name each once")
    return LocalAccount(machines, around)


def read_machine(machine_table: object, table: Mapping[str, object], where: str, around: ProviderContext) -> OwnMachine:
    """Return one machine; what it does not state is as in `table`, the whole of `[providers.local]`."""
    if not isinstance(machine_table, Mapping):
        raise InputError("must be a table", field=where, hint="write [[providers.local.machines]]")
    for key in machine_table:
        if key not in MACHINE_KEYS:
            raise UnknownNameError("key", str(key), field=where, nearest=(), hint=f"known: {', '.join(MACHINE_KEYS)}")
    costs = {key: table[key] for key in COST_KEYS if key in table} | dict(machine_table)
    name, gpu, owner = (_read_text(costs.get(key, ""), f"{where}.{key}") for key in ("name", "gpu", "owner"))
    require(bool(name), f"{where}.name", "is missing", 'write name = "box"')
    require("watts" in costs, f"{where}.watts", "is missing", "write watts = 450, what the whole machine draws under load")
    numbers = {
        key: require_number(costs[key], f"{where}.{key}", least=least, most=most)
        for key, least, most in (("watts", 1, 1e6), ("idle_watts", 0, 1e6), ("host_watts", 1, 1e6), ("years", 0.1, 50))
        if key in costs
    }
    for key in ("idle_watts", "host_watts"):
        low = numbers.get(key, 0) <= numbers["watts"]
        require(low, f"{where}.{key}", "is above watts, what the whole machine draws under load", "write less")
    gpus = require_whole_number(costs.get("gpus", 1 if gpu else 0), f"{where}.gpus", least=0, most=MOST_GPUS)
    require("usd_per_kwh" in table, f"{WHERE}.usd_per_kwh", "is missing", "write usd_per_kwh = 0.30")
    return OwnMachine(
        name=name,
        usd_per_kwh=_read_amount(table["usd_per_kwh"], f"{WHERE}.usd_per_kwh"),
        watts=numbers["watts"],
        idle_watts=numbers.get("idle_watts", 0),
        host_watts=numbers.get("host_watts"),
        price=_read_amount(costs["price"], f"{where}.price") if "price" in costs else None,
        years=numbers.get("years", YEARS),
        gpu=around.gpus.resolve(gpu).canonical if gpu else "",
        gpus=gpus,
        owner=owner,
    )


def _read_text(value: object, field: str) -> str:
    fits = isinstance(value, str) and is_storable(value) and len(value) <= NAME_MOST and value == value.strip()
    require(fits, field, f"is not a text of at most {NAME_MOST} characters", 'write "box"')
    return str(value)


NAME_MOST = 60


def _read_amount(value: object, field: str) -> Money:
    """Return an amount of dollars from 0, as a number or as text."""
    money = Money.parse(Decimal(str(value)) if isinstance(value, float) else value, field=field)  # type: ignore[arg-type]  # it refuses what is no amount
    require(money.nano >= 0, field, "is below zero", "write 0 or more")
    return money
