"""Read billing rules from a table: `billing.toml` in the package of each plug-in.

A complete rule for a cloud that bills by the second and charges for the disk of a stopped machine:

    [acme]
    source = "acme.example/prices"
    observed_on = "2026-11-21"
    lag_s = 60
    restarts = "stated"
    month = "730 h"
    compute = { bills = ["running"], free = ["pending", "starting", "stopped"], minimum_s = 60 }
    storage.ssd = { usd_per_gb_month = "0.10" }

`month`: "calendar" (in UTC), "Los Angeles" (calendar months there), "730 h" or "720 h". A state that is not listed may bill. A
price is a decimal string, or three of them: low, expected and high. `longest_boot_s`: how long after its creation a machine
bills at the latest. `bill = { asked = "doubt", step_s = 3600, settles_s = 3600 }`: the bill is stated by the hour, each hour is
final an hour later, and a watchdog asks for it when it could settle a doubt; "daily": every day; `zone`: the time zone of its
months, UTC without it. `estimated_lag_s = 900, estimated_percent = 2`: a line that is not final contains all usage up to a
quarter of an hour before it was stated, within 2 %. `states_all = true`: what has no line in a complete answer did not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from costguard.errors import InputError, UnknownNameError
from costguard.metering.billing import (
    AT_REST,
    BILL_OCCASIONS,
    HIGHEST_PER_GB,
    RESTART_KINDS,
    BillingRule,
    BillTerms,
    StorageRule,
    TimeRule,
)
from costguard.metering.meter import GB_MONTH, GB_MONTH_720, GB_MONTH_730, GB_MONTH_PACIFIC, PriceRange
from costguard.quoting.machine_rates import NO_FACTORS, RegionFactors
from costguard.values.checks import find_nearest_names, require, require_known_keys, require_one_of, require_whole_number
from costguard.values.money import Money
from costguard.values.resource import ENDED, STATES

REQUIRED = ("source", "observed_on", "lag_s", "restarts", "compute")
RULE_KEYS = (*REQUIRED, "month", "storage", "address", "traffic", "not_counted", "bill", "longest_boot_s")
BILL_KEYS = ("asked", "step_s", "settles_s")
BILL_OPTIONS = ("zone", "estimated_lag_s", "estimated_percent", "states_all")
TIME_KEYS = ("bills", "free", "probably_free", "step_s", "minimum_s")
PRICE_KEYS = ("usd_per_gb_month", "usd_per_gb_month_stopped", "region", "source")
DISK_KEYS = (*TIME_KEYS, *PRICE_KEYS, "at_rest", "row", "type", "from_gb", "to_gb")
MONTH_NAMES = {"calendar": GB_MONTH, "730 h": GB_MONTH_730, "720 h": GB_MONTH_720, "Los Angeles": GB_MONTH_PACIFIC}
EVERY_REGION = ("all", "global")
LONGEST_SECONDS = 366 * 24 * 3600
"""No step, minimum or lag is longer than a year."""

RuleTable = Mapping[str, object]
StorageRateRows = Mapping[str, Mapping[str, str]]


def read_billing_rules(
    table: Mapping[str, object], where: str, rows: Iterable[Mapping[str, str]] = (), regions: RegionFactors = NO_FACTORS
) -> dict[str, BillingRule]:
    """Return the rule of each provider in `table`.

    `where`: the file name, for errors. `rows`: the rows of `storage_rates.csv`, which a disk may name by `row`. `regions`: what
    other regions than that of a row cost relative to it.
    """
    storage_rows = list(rows)
    of = {name: {row["disk"]: row for row in storage_rows if row["provider"] == name} for name in table}
    return {
        name: _add_regions(_read_rule(name, _read_table(rule, f"{where} {name}"), f"{where} {name}", of[name]), regions)
        for name, rule in table.items()
    }


def _add_regions(rule: BillingRule, regions: RegionFactors) -> BillingRule:
    storage = tuple(replace(one, provider=rule.provider, regions=regions) if one.region else one for one in rule.storage)
    return replace(rule, storage=storage)


def _read_rule(provider: str, table: RuleTable, where: str, rows: StorageRateRows) -> BillingRule:
    require_known_keys(table, RULE_KEYS, where)
    for key in REQUIRED:
        require(key in table, f"{where}.{key}", "is missing", f"a rule needs {', '.join(REQUIRED)}")
    disks = _read_table(table.get("storage", {}), f"{where}.storage")
    month = MONTH_NAMES[require_one_of(table.get("month", "730 h"), MONTH_NAMES, f"{where}.month")]
    return BillingRule(
        provider=provider,
        source=_read_text(table["source"], f"{where}.source"),
        observed_on=_read_text(table["observed_on"], f"{where}.observed_on"),
        lag_s=_read_seconds(table["lag_s"], f"{where}.lag_s", least=0),
        restarts=require_one_of(table["restarts"], RESTART_KINDS, f"{where}.restarts"),
        compute=_read_compute(_read_table(table["compute"], f"{where}.compute"), f"{where}.compute"),
        storage=tuple(
            _read_storage(part, _read_table(disk, f"{where}.storage.{part}"), month, f"{where}.storage.{part}", rows)
            for part, disk in disks.items()
        ),
        address=_read_price(table["address"], f"{where}.address") if "address" in table else None,
        traffic=_read_price(table["traffic"], f"{where}.traffic") if "traffic" in table else None,
        not_counted=_read_texts(table.get("not_counted", []), f"{where}.not_counted"),
        bill=_read_bill(_read_table(table["bill"], f"{where}.bill"), f"{where}.bill") if "bill" in table else None,
        longest_boot_s=_read_seconds(table["longest_boot_s"], f"{where}.longest_boot_s", least=1)
        if "longest_boot_s" in table
        else None,
    )


def _read_bill(table: RuleTable, where: str) -> BillTerms:
    require_known_keys(table, (*BILL_KEYS, *BILL_OPTIONS), where)
    for key in BILL_KEYS:
        require(key in table, f"{where}.{key}", "is missing", f"it needs {', '.join(BILL_KEYS)}")
    return BillTerms(
        asked=require_one_of(table["asked"], BILL_OCCASIONS, f"{where}.asked"),
        step_s=_read_seconds(table["step_s"], f"{where}.step_s", least=1),
        settles_s=_read_seconds(table["settles_s"], f"{where}.settles_s", least=0),
        zone=_read_text(table.get("zone", "UTC"), f"{where}.zone"),
        estimated_lag_s=_read_seconds(table["estimated_lag_s"], f"{where}.estimated_lag_s", least=0)
        if "estimated_lag_s" in table
        else None,
        estimated_percent=_read_seconds(table.get("estimated_percent", 0), f"{where}.estimated_percent", least=0),
        states_all=_read_flag(table.get("states_all", False), f"{where}.states_all"),
    )


def _read_compute(table: RuleTable, where: str) -> TimeRule:
    require_known_keys(table, TIME_KEYS, where)
    require("bills" in table, f"{where}.bills", "is missing", 'write the states that bill, such as ["running"]')
    return _read_time(table, where)


def _read_time(table: RuleTable, where: str) -> TimeRule:
    """Read states and steps.

    Without `bills`, every state that is not named otherwise bills.
    """
    lists = {key: _read_states(table.get(key, []), f"{where}.{key}") for key in ("bills", "free", "probably_free")}
    if "bills" not in table:
        lists["bills"] = tuple(s for s in STATES if s not in (*lists["free"], *lists["probably_free"], ENDED))
    twice = [state for state in STATES if sum(state in states for states in lists.values()) > 1]
    require(not twice, where, f"names the state '{''.join(twice[:1])}' in two lists", "put it in one")
    require(ENDED not in lists["bills"], f"{where}.bills", "holds 'ended'", "an ended machine is not billed: leave it out")
    return TimeRule(
        bills=lists["bills"],
        free=lists["free"],
        probably_free=lists["probably_free"],
        quantum_s=_read_seconds(table.get("step_s", 1), f"{where}.step_s", least=1),
        minimum_s=_read_seconds(table.get("minimum_s", 0), f"{where}.minimum_s", least=0),
    )


def _read_storage(part: str, table: RuleTable, month: str, where: str, rows: StorageRateRows) -> StorageRule:
    require_known_keys(table, DISK_KEYS, where)
    priced = table
    if "row" in table:
        twice = [key for key in PRICE_KEYS if key in table]
        require(not twice, f"{where}.{''.join(twice[:1])}", "is already set by row", "remove it, or remove row")
        priced = _find_row(_read_text(table["row"], f"{where}.row"), where, rows)
    running = _read_stated_price(priced, "usd_per_gb_month", where)
    least = require_whole_number(table.get("from_gb", 0), f"{where}.from_gb", least=0)
    return StorageRule(
        part=part,
        type=_read_text(table.get("type", part), f"{where}.type"),
        running=running,
        stopped=_read_stated_price(priced, "usd_per_gb_month_stopped", where)
        if "usd_per_gb_month_stopped" in priced
        else running,
        at_rest=_read_states(table["at_rest"], f"{where}.at_rest") if "at_rest" in table else AT_REST,
        unit=month,
        time=_read_time(table, where),
        region=_read_text(priced.get("region", ""), f"{where}.region"),
        from_gb=least,
        to_gb=require_whole_number(table["to_gb"], f"{where}.to_gb", least=least + 1) if "to_gb" in table else None,
        source=_read_text(priced.get("source", ""), f"{where}.source"),
    )


def _find_row(disk: str, where: str, rows: StorageRateRows) -> RuleTable:
    """Return the prices of a row of `storage_rates.csv` under the key names of this table."""
    row = rows.get(disk)
    if row is None:
        nearest = find_nearest_names(disk, rows)
        hint = f"write one of: {', '.join(rows)}" if rows else "state usd_per_gb_month instead: it has no rows of this provider"
        raise UnknownNameError("disk of storage_rates.csv", disk, field=f"{where}.row", nearest=nearest, hint=hint)
    return {
        "usd_per_gb_month": row["usd_per_gb_month_running"],
        "usd_per_gb_month_stopped": row["usd_per_gb_month_stopped"],
        "region": "" if row["region"] in EVERY_REGION else row["region"],
        "source": f"{row['disk']}: {row['source']}, {row['observed_on']}",
    }


def _read_stated_price(table: RuleTable, key: str, where: str) -> PriceRange | None:
    """Return a price per GB-month; None if the value is empty or absent."""
    return _read_price(table[key], f"{where}.{key}") if table.get(key, "") != "" else None


def _read_price(value: object, where: str) -> PriceRange:
    """Read one price, or low, expected and high.

    A range that begins at 0 is an unstated price (`known` is False).
    """
    prices = value if isinstance(value, list) else [value] * 3
    require(len(prices) == 3, where, f"has {len(prices)} prices", "write one, or low, expected and high")  # noqa: PLR2004 - the three
    low, expected, high = (Money.parse(cast("str", each), field=where).nano for each in prices)
    order = 0 <= low <= expected <= high <= HIGHEST_PER_GB
    require(order, where, f"is not a price: {value}", "write dollars from 0 to 10, low before expected before high")
    return PriceRange(low, expected, high, known=low > 0 or low == high)


def _read_seconds(value: object, where: str, *, least: int) -> int:
    return require_whole_number(value, where, least=least, most=LONGEST_SECONDS)


def _read_flag(value: object, where: str) -> bool:
    require(isinstance(value, bool), where, "must be true or false", "write true or false, without quotes")
    return bool(value)


def _read_states(value: object, where: str) -> tuple[str, ...]:
    return tuple(require_one_of(state, STATES, where) for state in _read_texts(value, where))


def _read_texts(value: object, where: str) -> tuple[str, ...]:
    require(isinstance(value, list), where, "must be a list of words", 'write ["..."]')
    return tuple(_read_text(each, where) for each in cast("list[object]", value))


def _read_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError("must be text", field=where, hint='put it in quotes: "..."')
    return value


def _read_table(value: object, where: str) -> RuleTable:
    if not isinstance(value, Mapping):
        raise InputError("must be a table", field=where, hint="write key = value lines under its name in brackets")
    return cast("RuleTable", value)
