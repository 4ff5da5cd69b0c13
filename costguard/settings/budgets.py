"""Reads `match` tables (which spending a budget counts, which machines a policy applies to) and `[[budget]]` tables.

    match = { providers = ["aws", "gcp"], labels = { team = ["vision", "robotics"] } }

All stated conditions must match. An empty list matches nothing. An empty table is refused, because it is ambiguous.

    [[budget]]
    name = "vision"                           # required; unique
    cap = "3000 USD"                          # required: an amount and its currency
    period = "month"                          # "day", "week" (from Monday), "month", or "rolling 7d": the last 7 x 24 hours
    timezone = "Europe/Berlin"                # zone of its days and months; default: [defaults] timezone
    hard = false                              # true: machines may be stopped to keep it, if a policy is armed
    allow_irreversible = false                # true: also machines whose stop loses data; else a person is asked about those
    warn = ["pace+15%", "forecast>100%", "time_to_cap<24h"]     # the default; "spent>80%" is possible too
    [budget.match]                            # default: everything. All stated keys must match; an empty list matches nothing
    providers = ["aws", "gcp"]                # also accounts, regions, owners, gpus, tiers, kinds
    labels = { team = ["vision", "robotics"] }

Errors name the file, the number of the table, its name and the field: `costguard.toml: budget 2 (vision).cap: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from fractions import Fraction

from costguard.budgets.budget import (
    DEFAULT_THRESHOLDS,
    MATCH_ALL,
    MEASURES,
    MONTH,
    PERIODS,
    ROLLING,
    TIME_TO_CAP,
    Budget,
    BudgetThreshold,
    ResourceFilter,
)
from costguard.errors import InputError, UnknownNameError
from costguard.settings.fields import (
    SettingsTable,
    read_flag,
    read_inner,
    read_name,
    read_tables,
    read_text,
    read_texts,
    require_unique_names,
)
from costguard.settings.sections import load_zone
from costguard.values.calendar import LONGEST_ROLLING_DAYS
from costguard.values.checks import (
    describe_value,
    find_nearest_names,
    require,
    require_known_keys,
    require_one_of,
    require_whole_number,
)
from costguard.values.money import Money
from costguard.values.resource import GROUPED_LABELS, KINDS, TIERS

MATCH_KEYS = ("providers", "accounts", "regions", "owners", "gpus", "tiers", "kinds", "labels")
MATCH_CHOICES = {"tiers": TIERS, "kinds": KINDS}


def read_match(stated: SettingsTable, field: str) -> ResourceFilter:
    """Return the ResourceFilter that the keys MATCH_KEYS of `stated` define."""
    lists = {key: _read_names(key, stated[key], f"{field}.{key}") for key in MATCH_KEYS[:-1] if key in stated}
    labels = _read_labels(stated["labels"], f"{field}.labels") if "labels" in stated else None
    return ResourceFilter(**lists, labels=labels)


def _read_names(key: str, stated: object, field: str) -> tuple[str, ...]:
    names = read_texts(stated, field)
    for name in names:
        if key in MATCH_CHOICES:
            require_one_of(name, MATCH_CHOICES[key], field)
    return _resolve_gpus(names, field) if key == "gpus" else names


def _resolve_gpus(names: Iterable[str], field: str) -> tuple[str, ...]:
    """Return the canonical GPU names.

    A name that matches several GPUs is refused, because the filter would silently leave out the others.
    """
    from costguard.data import ShippedFacts

    known = ShippedFacts().get_gpu_names()
    found = {name: known.resolve(name, field=field) for name in names}
    for name, gpu in found.items():
        hint = f'write "{gpu.canonical}", and any others you mean'
        require(not gpu.taken_as_short, field, f"'{name}' matches several GPUs", hint)
    return tuple(gpu.canonical for gpu in found.values())


def _read_labels(stated: object, field: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(stated, Mapping):
        raise InputError(f"must be a table, not {describe_value(stated)}", field=field, hint='write { team = "vision" }')
    for key in stated:
        require_one_of(str(key).lower(), GROUPED_LABELS, f"{field}.{key}")
    return tuple((str(key).lower(), read_texts(values, f"{field}.{key}")) for key, values in sorted(stated.items()))


BUDGET_KEYS = ("name", "cap", "period", "timezone", "match", "hard", "allow_irreversible", "warn")

CAP_HINT = 'write an amount and its currency, such as "3000 USD"'
PERIOD_HINT = 'write "day", "week", "month" or "rolling 7d"'
WARN_HINT = 'write "pace+15%", "forecast>100%", "spent>80%" or "time_to_cap<24h"'

MONEY_PATTERN = re.compile(r"([-+]?[\d._]+)\s+([A-Z]{3})")
WINDOW_PATTERN = re.compile(rf"{ROLLING}\s+(\d{{1,6}})\s*d(?:ays?)?")
THRESHOLD_PATTERN = re.compile(r"([a-z_]+)\s*([+><])\s*(\d{1,6}(?:\.\d{1,6})?)\s*(%|h)")
THRESHOLD_SIGNS = {"pace": "+%", "forecast": ">%", "spent": ">%", TIME_TO_CAP: "<h"}


def read_budgets(stated: object, where: str, zone: tzinfo) -> tuple[Budget, ...]:
    """Return the budgets of the file `where` in their order.

    `zone`: the zone of budgets that state none.
    """
    tables = read_tables(stated, where, "budget")
    budgets = tuple(_read_budget(table, f"{where}: budget {number}", zone) for number, table in enumerate(tables, 1))
    require_unique_names([budget.name for budget in budgets], where, "budget")
    return budgets


def _read_budget(table: SettingsTable, place: str, zone: tzinfo) -> Budget:
    name = read_name(table.get("name"), f"{place}.name", "vision")
    place = f"{place} ({name})"
    require_known_keys(table, BUDGET_KEYS, place)
    hard = read_flag(table.get("hard", False), f"{place}.hard")
    allow = read_flag(table.get("allow_irreversible", False), f"{place}.allow_irreversible")
    require(hard or not allow, f"{place}.allow_irreversible", "has no effect without hard", "add hard = true")
    period, days = _read_period(table.get("period", MONTH), f"{place}.period")
    return Budget(
        name=name,
        cap=_read_cap(table.get("cap"), f"{place}.cap"),
        period=period,
        days=days,
        zone=load_zone(read_text(table["timezone"], f"{place}.timezone"), f"{place}.timezone") if "timezone" in table else zone,
        match=_read_budget_match(table["match"], f"{place}.match") if "match" in table else MATCH_ALL,
        hard=hard,
        allow_irreversible=allow,
        warn=_read_warnings(table["warn"], f"{place}.warn") if "warn" in table else DEFAULT_THRESHOLDS,
    )


def _read_cap(stated: object, field: str) -> Money:
    if stated is None:
        raise InputError("is missing", field=field, hint=CAP_HINT)
    found = MONEY_PATTERN.fullmatch(stated.strip()) if isinstance(stated, str) else None
    if found is None:
        lacks = "must say its currency, and" if re.fullmatch(r"[\d._]+", str(stated)) else "must be an amount of money,"
        raise InputError(f"{lacks} not {describe_value(stated)}", field=field, hint=CAP_HINT)
    cap = Money.parse(found[1], found[2], field=field)
    require(cap.nano > 0, field, f"must be more than zero, not {describe_value(stated)}", "remove the budget to set no limit")
    return cap


def _read_period(stated: object, field: str) -> tuple[str, int]:
    """Return the kind of period, and the number of days of a rolling one (0 for the others)."""
    text = read_text(stated, field).strip()
    window = WINDOW_PATTERN.fullmatch(text)
    if window:
        return ROLLING, require_whole_number(int(window[1]), field, most=LONGEST_ROLLING_DAYS)
    calendar = tuple(period for period in PERIODS if period != ROLLING)
    if text not in calendar:
        near = find_nearest_names(text, calendar)
        raise UnknownNameError("period", text, field=field, nearest=near, hint=PERIOD_HINT)
    return text, 0


def _read_warnings(stated: object, field: str) -> tuple[BudgetThreshold, ...]:
    return tuple(_read_threshold(text, field) for text in read_texts(stated, field))


def _read_threshold(text: str, field: str) -> BudgetThreshold:
    found = THRESHOLD_PATTERN.fullmatch(text.strip())
    if found is None or THRESHOLD_SIGNS.get(found[1]) != found[2] + found[4]:
        measure = re.match(r"[a-z_]*", text.strip())
        near = find_nearest_names(measure[0], MEASURES) if measure and measure[0] not in MEASURES else ()
        raise UnknownNameError("warning", text, field=field, nearest=near, hint=WARN_HINT)
    share = 100 if found[4] == "%" else 1
    return BudgetThreshold(measure=found[1], limit=Fraction(found[3]) / share)


def _read_budget_match(stated: object, field: str) -> ResourceFilter:
    table = read_inner(stated, field, '{ providers = ["aws"] }')
    require_known_keys(table, MATCH_KEYS, field)
    return read_match(table, field)
