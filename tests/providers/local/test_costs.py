"""Own hardware in the ledger: a month against a hand calculation, a measured week, and tables with slips."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from costguard_local import LocalPlugin
from costguard_local.account import ACCOUNT, REGION

from costguard.data import ShippedFacts
from costguard.errors import InputError, LedgerError
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete
from costguard.metering.meter import ELECTRICITY
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import ProviderContext, Transport
from costguard.services.poll.configured_providers import FileCache
from costguard.services.poll.poll import poll_sources
from costguard.settings import read_settings
from costguard.testing import FakeClock
from costguard.values.calendar import Period
from costguard.values.resource import ResourceKey
from costguard.values.sample import GPU_POWER, Sample
from tests.contract.rig import BILLS, NAMES

START, HOUR, DAY = datetime(2026, 11, 1, tzinfo=UTC), timedelta(hours=1), timedelta(days=1)
RULES = ShippedFacts().get_billing_rules()
BOX = ResourceKey("local", ACCOUNT, REGION, "box")
COSTS: dict[str, Any] = {"usd_per_kwh": 0.30, "watts": 450, "price": 1600, "years": 3}


def make_source(folder: Path, clock: FakeClock, machine: Mapping[str, Any], load: Any = None) -> InstanceSource:  # noqa: ANN401 - a `SampleReader`
    more = {} if load is None else {"load_samples": load}
    around = ProviderContext(
        transport=Transport(),
        clock=clock,
        gpus=NAMES,
        cache=FileCache(folder / "cache"),
        environ={},
        home=folder,
        bills=BILLS,
        **more,
    )
    return LocalPlugin().open({**COSTS, "machines": [{"name": "box", "gpu": "RTX 4090", **machine}]}, around)[0]


def observe(source: InstanceSource) -> Any:  # noqa: ANN401 - the only observation, and the notes
    poll = source.poll(source.list_scopes()[0])
    assert isinstance(poll.inventory, Complete)
    return poll.inventory.items[0], poll.notes


def sum_costs(url: str, end: datetime) -> dict[str, tuple[float, float, float]]:
    """The dollars of each charge from the start to `end`: low, expected, high, to the cent."""
    with ReportReader(url, rules=RULES) as books:
        costs = books.load_costs(Period(start=START, end=end), end)
    return {one.charge: tuple(round(nano / 1e9, 2) for nano in (one.low, one.expected, one.high)) for one in costs}  # type: ignore[misc]  # three


class Bench:
    """A box whose GPU draws 350 W for the first eight hours of a day and 20 W else, as the agent's samples say."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.silent, self.broken = clock, False, False

    def load(self, keys: Collection[ResourceKey], since: datetime) -> Mapping[ResourceKey, Sequence[Sample]]:
        if self.broken:
            raise LedgerError("disk full", field="ledger")
        if self.silent:
            return {}
        first = max(since, START) + timedelta(minutes=1)
        minutes = range(int((self.clock.now() - first) / timedelta(minutes=1)) + 1)
        times = [first + timedelta(minutes=number) for number in minutes]
        return {key: [Sample(key=key, signal=GPU_POWER, at=at, value=self.draw(at)) for at in times] for key in keys}

    @staticmethod
    def draw(at: datetime) -> float:
        return 350.0 if timedelta() < (at - START) % DAY <= 8 * HOUR else 20.0


def test_a_month_costs_power_and_wear_as_by_hand_to_the_cent(tmp_path: Path) -> None:
    """$1,600 over 26,280 h, and 60 W to 450 W at $0.30: 720 h cost $43.8356 of wear, and $12.96 to $97.20 of power."""
    url, clock, end = f"sqlite:///{tmp_path}/ledger.db", FakeClock(START), START + 30 * DAY
    source = make_source(tmp_path, clock, {"idle_watts": 60})
    with LedgerWriter(url, rules=RULES, ceilings={}) as ledger:
        while clock.now() <= end:
            assert not poll_sources([source], ledger, clock).refused
            clock.advance(4 * HOUR)
    assert sum_costs(url, end) == {"compute": (56.80, 98.92, 141.04)}


def test_a_week_by_the_agents_samples_is_the_energy_that_the_gpus_took(tmp_path: Path) -> None:
    """A day is 8 h of 350 W and 16 h of 20 W: 3.12 kWh; a week 21.84, of which each whole kWh is booked at once.

    Beside that, 90 W of the host at $0.30 and wear cost $0.0879 an hour: $14.76. The first poll finds no interval behind it.
    """
    url, clock, end = f"sqlite:///{tmp_path}/ledger.db", FakeClock(START + HOUR), START + 7 * DAY
    bench = Bench(clock)
    source = make_source(tmp_path, clock, {"host_watts": 90}, bench.load)
    with LedgerWriter(url, rules=RULES, ceilings={}) as ledger:
        while clock.now() <= end:
            poll_sources([source], ledger, clock)
            clock.advance(timedelta(minutes=30))
    observation, _ = observe(source)
    assert observation.counters[0].mb == 21840 - 350 + 175, "without the first hour, with a half hour after"
    costs = sum_costs(url, end)
    assert costs["compute"][0] == costs["compute"][2] == round(167 * (0.027 + 1600 / 26280), 2)
    booked = costs[ELECTRICITY][1]
    assert costs[ELECTRICITY] == (booked, booked, booked)
    assert 0 <= 21.49 * 0.30 - booked <= 0.30, "less than a kWh waits"


def test_a_silent_agent_and_an_unreadable_ledger_make_the_cost_an_interval_and_a_lost_meter_loses_nothing(
    tmp_path: Path,
) -> None:
    clock = FakeClock(START + HOUR)
    bench = Bench(clock)
    source = make_source(tmp_path, clock, {"host_watts": 90}, bench.load)
    assert observe(source)[1] == ("box: the energy of its GPUs is counted from now on",)
    clock.advance(timedelta(minutes=30))
    counted, notes = observe(source)
    assert (counted.counters[0].mb, counted.prices[0].estimate, notes) == (175, None, ())
    bench.silent = True
    clock.advance(timedelta(minutes=30))
    silent, _ = observe(source)
    assert (silent.counters[0].mb, silent.prices[0].estimate.high) == (175, 135_000_000 + round(1600e9 / 26280))
    bench.silent, bench.broken = False, True
    broken, notes = observe(source)
    assert (broken.counters, notes[0]) == (
        silent.counters,
        "the agents' samples cannot be read, so power is not measured: disk full",
    )
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(b"{")
    fresh, notes = observe(source)
    assert (fresh.counters[0].mb, notes[-1]) == (0, "box: the energy of its GPUs is counted from now on")
    again = observe(source)[0]
    assert again.counters == fresh.counters, "a meter that fell began anew: what is booked stays (line_accrual)"


@pytest.mark.parametrize(
    ("machine", "field"),
    [
        ({"name": ""}, "machines[0].name"),
        ({"watts": "much"}, "machines[0].watts"),
        ({"host_watts": 460}, "machines[0].host_watts"),
        ({"gpu": "RTX 9999 Ultra"}, ""),
        ({"usd_per_kwh": 1}, "machines[0]"),
    ],
)
def test_a_slip_names_its_field(tmp_path: Path, machine: Mapping[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        make_source(tmp_path, FakeClock(START), machine)
    assert field in str(refused.value)


def test_costs_alone_configure_no_provider_and_machines_do(tmp_path: Path) -> None:
    config = tmp_path / "costguard.toml"
    config.write_text("[providers.local]\nusd_per_kwh = 0.3\n")
    assert read_settings(str(config)).providers == {}
    config.write_text('[providers.local]\nusd_per_kwh = 0.3\nwatts = 450\n[[providers.local.machines]]\nname = "box"\n')
    settings = read_settings(str(config))
    assert settings.local is not None
    assert [*settings.providers] == ["local"]
