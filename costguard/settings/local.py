"""The `[providers.local]` table: what a machine of your own costs, which `quote --on` shows beside rented ones.

[providers.local]
usd_per_kwh = 0.30
watts = 450        # of the whole machine under load
price = 1600       # of the whole machine
years = 3          # until it is worth nothing

Its `machines`, which costguard watches, are read by the provider `local`, as the table of any provider is.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from costguard.quoting.own_hardware import LOCAL, OwnCosts
from costguard.settings.fields import SettingsTable
from costguard.settings.model import ReadAs, SettingsModel, describe_key, place_errors, read_model
from costguard.values.checks import require, require_number
from costguard.values.money import Money

MACHINES = "machines"


def split_local(tables: Mapping[str, SettingsTable], where: str) -> tuple[OwnCosts, dict[str, SettingsTable]]:
    """Return the costs, and the tables of the providers: with `local` among them only if it names machines to watch."""
    costs = read_local(tables[LOCAL], where)
    return costs, {name: table for name, table in tables.items() if name != LOCAL or MACHINES in table}


def read_local(table: SettingsTable, where: str) -> OwnCosts:
    """Return the table of the file `where`; raise InputError for a figure that no machine has, or one without its other."""
    place, path = f"{where}: providers.{LOCAL}", ("providers", LOCAL)
    read = read_model(LocalTable, {key: value for key, value in table.items() if key != MACHINES}, place, path)
    with place_errors(place, path):
        require(read.years is None or read.price is not None, "years", "is the life of no price", "write price = 1600 as well")
    return OwnCosts(usd_per_kwh=read.usd_per_kwh, watts=read.watts, price=read.price, years=read.years)


def read_own_amount(value: object, field: str) -> Money:
    """Return an amount of dollars from 0, as a number or as text."""
    digits = Decimal(str(value)) if isinstance(value, float) else value
    money = Money.parse(digits, field=field)  # type: ignore[arg-type]  # it refuses what is no amount
    require(money.nano >= 0, field, "is below zero", "write 0 or more")
    return money


def read_watts(value: object, field: str) -> float:
    """Return watts of a machine."""
    return require_number(value, field, least=1, most=1e6)


def read_years(value: object, field: str) -> float:
    """Return the years that a machine lasts."""
    return require_number(value, field, least=0.1, most=50)


class LocalTable(SettingsModel):
    """A machine of your own."""

    usd_per_kwh: Annotated[Money, ReadAs(read_own_amount)] = describe_key(..., "Price of electricity, in $ per kWh.", 0.30)
    watts: Annotated[float | None, ReadAs(read_watts)] = describe_key(
        None, "Watts that the whole machine draws under load. Default: those of its GPUs' datasheet.", 450
    )
    price: Annotated[Money | None, ReadAs(read_own_amount)] = describe_key(
        None, "Price of the whole machine, in $. Default: the list price of its GPUs.", 1600
    )
    years: Annotated[float | None, ReadAs(read_years)] = describe_key(None, "Years until it is worth nothing (3).", 3)
