"""The models of `match` (which spending a budget counts, which machines a policy applies to) and of `[[budget]]` tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime, tzinfo
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import model_validator

from costguard.budgets.budget import (
    DEFAULT_THRESHOLDS,
    HOUR,
    MATCH_ALL,
    MEASURES,
    MONTH,
    PERIODS,
    RATE_THRESHOLDS,
    ROLLING,
    SPENT,
    TIME_TO_CAP,
    Budget,
    BudgetThreshold,
    ResourceFilter,
)
from costguard.errors import InputError, UnknownNameError
from costguard.settings.fields import read_text, read_texts
from costguard.settings.model import (
    Flag,
    Name,
    OptionalTexts,
    ReadAs,
    SettingsModel,
    choose_many,
    describe_flag,
    describe_key,
    read_model,
    read_models,
    refuse,
    require_table,
)
from costguard.settings.section_values import read_zone
from costguard.values.calendar import LONGEST_ROLLING_DAYS, make_day
from costguard.values.checks import describe_value, find_nearest_names, require, require_one_of, require_whole_number
from costguard.values.money import USD, Money
from costguard.values.resource import GROUPED_LABELS, KINDS, TIERS

if TYPE_CHECKING:  # types and no more
    from costguard.settings.sections import DisplaySettings


def _read_gpus(value: object, field: str) -> tuple[str, ...]:
    """Return the canonical GPU names.

    A name that matches several GPUs is refused, because the filter would silently leave out the others.
    """
    from costguard.data import ShippedFacts

    gpu_names = ShippedFacts().get_gpu_names()
    matches = {name: gpu_names.resolve(name, field=field) for name in read_texts(value, field)}
    for name, gpu in matches.items():
        hint = f'write "{gpu.canonical}", and any others you mean'
        require(not gpu.taken_as_short, field, f"'{name}' matches several GPUs", hint)
    return tuple(gpu.canonical for gpu in matches.values())


def _read_labels(value: object, field: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, Mapping):
        raise InputError(f"must be a table, not {describe_value(value)}", field=field, hint='write { team = "vision" }')
    for key in value:
        require_one_of(str(key).lower(), GROUPED_LABELS, f"{field}.{key}")
    return tuple((str(key).lower(), read_texts(values, f"{field}.{key}")) for key, values in sorted(value.items()))


class MatchTable(SettingsModel):
    """All stated conditions must match. An empty list matches nothing. An empty table is refused, because it is ambiguous."""

    providers: OptionalTexts = None
    accounts: OptionalTexts = None
    regions: OptionalTexts = None
    owners: OptionalTexts = None
    gpus: Annotated[tuple[str, ...] | None, ReadAs(_read_gpus)] = None
    tiers: Annotated[tuple[str, ...] | None, choose_many(*TIERS)] = None
    kinds: Annotated[tuple[str, ...] | None, choose_many(*KINDS)] = None
    labels: Annotated[tuple[tuple[str, tuple[str, ...]], ...] | None, ReadAs(_read_labels)] = None


MATCH_KEYS = tuple(MatchTable.model_fields)


def make_filter(table: MatchTable | None) -> ResourceFilter:
    """Return the filter that the keys of a MatchTable define; without any of them it matches everything."""
    criteria = {key: getattr(table, key) for key in MATCH_KEYS if table is not None and key in table.model_fields_set}
    return ResourceFilter(**criteria) if criteria else MATCH_ALL


ONLY_HINT = "write --only owner=vision; also provider, account, region, gpu, tier, kind, project and team"


def parse_filter(texts: Sequence[str], option: str) -> ResourceFilter:
    """Return the filter of `option`, such as ("owner=vision", "team=cv"); one key may have several values."""
    table = parse_match_table(texts, option)
    return make_filter(read_model(MatchTable, table, option, ())) if table else MATCH_ALL


def parse_match_table(texts: Sequence[str], option: str) -> dict[str, object]:
    """Return these criteria as the table `match` of the settings file, whose values are not checked; {} for none."""
    criteria = defaultdict[str, list[str]](list)
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        require(bool(separator and value), option, f"is not KEY=VALUE: {describe_value(text)}", ONLY_HINT)
        key_names = (*(name.removesuffix("s") for name in MATCH_KEYS if name != "labels"), *GROUPED_LABELS)
        if key.lower() not in key_names:
            near = find_nearest_names(key, key_names)
            raise UnknownNameError("key", key, field=option, nearest=near, hint=ONLY_HINT)
        criteria[key.lower()].append(value)
    labels = {key: criteria.pop(key) for key in GROUPED_LABELS if key in criteria}
    return {f"{key}s": values for key, values in criteria.items()} | ({"labels": labels} if labels else {})


CAP_HINT = 'write an amount and its currency, such as "3000 USD", or "12 USD/h" for what runs at once'
PERIOD_HINT = 'write "day", "week", "month", "quarter", "year", "rolling 7d" or "total"; of an hour: cap = "12 USD/h"'
DATE_HINT = 'write a day, such as "2026-11-01"'
WARN_HINT = 'write "pace+15%", "forecast>100%", "spent>80%" or "time_to_cap<24h"'

CAP_PATTERN = re.compile(r"([-+]?[\d._]+)\s+([A-Z]{3})(\s*/\s*h)?")
LIKELY_CAP_PATTERN = re.compile(
    r"([$€£]?)\s*(\d[\d._]*)\s*([$€£]|[a-z]{3}\b)?\s*(?:(?:/|per\b|an?\b)\s*([a-z]+))?", re.IGNORECASE
)
CURRENCY_SIGNS = {"$": USD, "€": "EUR", "£": "GBP"}
WINDOW_PATTERN = re.compile(rf"{ROLLING}\s+(\d{{1,6}})\s*d(?:ays?)?")
THRESHOLD_PATTERN = re.compile(r"([a-z_]+)\s*([+><])\s*(\d{1,6}(?:\.\d{1,6})?)\s*(%|h)")
THRESHOLD_SIGNS = {"pace": "+%", "forecast": ">%", "spent": ">%", TIME_TO_CAP: "<h"}


def _read_cap(value: object, field: str) -> tuple[Money, bool]:
    """Return the cap, and whether it is money an hour."""
    match = CAP_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        lacks = "must say its currency, and" if re.fullmatch(r"[\d._]+", str(value)) else "must be an amount of money,"
        raise InputError(f"{lacks} not {describe_value(value)}", field=field, hint=_suggest_cap(str(value).strip()) or CAP_HINT)
    cap = Money.parse(match[1], match[2], field=field)
    require(cap.nano > 0, field, f"must be more than zero, not {describe_value(value)}", "remove the budget to set no limit")
    return cap, match[3] is not None


def _suggest_cap(text: str) -> str:
    """Return what to write instead of `$200`, `200 usd`, `200/h` or `9 USD a day`; "" if it is nothing of the kind."""
    match = LIKELY_CAP_PATTERN.fullmatch(text)
    if match is None or not (match[1] or match[3] or match[4]):
        return ""
    unit, sign = (match[4] or "").lower(), match[1] or match[3] or USD
    amount = f"{match[2]} {CURRENCY_SIGNS.get(sign, sign.upper())}"
    if unit in PERIODS and unit != HOUR:
        return f'write cap = "{amount}" and period = "{unit}"'
    return f'write "{amount}{"/h" if unit else ""}"' if not unit or unit[0] == "h" else ""


def _read_period(value: object, field: str) -> tuple[str, int]:
    """Return the kind of period, and the number of days of a rolling one (0 for the others)."""
    text = read_text(value, field).strip()
    window = WINDOW_PATTERN.fullmatch(text)
    if window:
        return ROLLING, require_whole_number(int(window[1]), field, most=LONGEST_ROLLING_DAYS)
    calendar = tuple(period for period in PERIODS if period not in (ROLLING, HOUR))
    if text not in calendar:
        near = find_nearest_names(text, calendar)
        raise UnknownNameError("period", text, field=field, nearest=near, hint=PERIOD_HINT)
    return text, 0


def read_date(value: object, field: str) -> date:
    """Return a day, of a text or of TOML's own dates."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(read_text(value, field).strip())
    except ValueError:
        raise InputError(f"must be a day, not {describe_value(value)}", field=field, hint=DATE_HINT) from None


def _read_warnings(value: object, field: str) -> tuple[BudgetThreshold, ...]:
    return tuple(_read_threshold(text, field) for text in read_texts(value, field))


def _read_threshold(text: str, field: str) -> BudgetThreshold:
    match = THRESHOLD_PATTERN.fullmatch(text.strip())
    if match is None or THRESHOLD_SIGNS.get(match[1]) != match[2] + match[4]:
        measure = re.match(r"[a-z_]*", text.strip())
        near = find_nearest_names(measure[0], MEASURES) if measure and measure[0] not in MEASURES else ()
        raise UnknownNameError("warning", text, field=field, nearest=near, hint=WARN_HINT)
    share = 100 if match[4] == "%" else 1
    return BudgetThreshold(measure=match[1], limit=Fraction(match[3]) / share)


class BudgetTable(SettingsModel):
    """A `[[budget]]` table."""

    name: Name = describe_key(..., "Unique.", "everything")
    cap: Annotated[tuple[Money, bool], ReadAs(_read_cap)] = describe_key(
        ..., 'An amount and its currency; "12 USD/h": what everything that it counts may cost an hour.', "3000 USD"
    )
    period: Annotated[tuple[str, int], ReadAs(_read_period)] = describe_key(
        (MONTH, 0),
        '"day", "week" (from Monday), "month", "quarter", "year", "rolling 7d": the last 7 x 24 hours, or "total".',
        "month",
    )
    start: Annotated[date | None, ReadAs(read_date)] = describe_key(
        None, "The first day that counts (default: no bound).", "2026-11-01", key="from"
    )
    until: Annotated[date | None, ReadAs(read_date)] = describe_key(
        None, "The first day that no longer counts: from then on it warns of nothing and stops nothing.", "2027-02-01"
    )
    timezone: Annotated[tzinfo | None, ReadAs(read_zone)] = describe_key(
        None, "Zone of its days and months, if not that of [defaults].", "Europe/Berlin"
    )
    match: Annotated[MatchTable | None, require_table('{ providers = ["aws"] }')] = describe_key(
        None,
        "What is counted (default: everything), by providers, accounts, regions, owners, gpus, tiers, kinds, and labels. All "
        "stated keys must match; an empty list matches nothing.",
        {"providers": ["aws", "gcp"], "labels": {"team": ["vision"]}},
    )
    hard: Flag = describe_flag("true: machines may be stopped to keep it, where a policy is armed.")
    allow_irreversible: Flag = describe_flag("true: also machines whose stop loses data; else a person is asked about those.")
    warn: Annotated[tuple[BudgetThreshold, ...], ReadAs(_read_warnings)] = describe_key(
        DEFAULT_THRESHOLDS,
        'When to warn; "spent>80%" is possible too, and all that a cap an hour has (default: "spent>100%").',
        ["pace+15%", "forecast>100%", "time_to_cap<24h"],
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        effective = self.hard or not self.allow_irreversible
        refuse(require, effective, ".allow_irreversible", "has no effect without hard", "add hard = true")
        ordered = self.start is None or self.until is None or self.start < self.until
        refuse(require, ordered, ".until", "is not after from", "write the first day that no longer counts")
        is_rate = self.cap[1]
        periodic = is_rate and "period" in self.model_fields_set
        refuse(require, not periodic, ".period", "has no meaning with a cap an hour", 'remove it, or "/h" from the cap')
        measured = not is_rate or "warn" not in self.model_fields_set or {one.measure for one in self.warn} <= {SPENT}
        refuse(require, measured, ".warn", "needs a period, and a cap an hour has none", 'write "spent>80%"')
        return self


def read_budgets(value: object, where: str, zone: tzinfo, display: DisplaySettings) -> tuple[Budget, ...]:
    """Return the budgets of the file `where` in their order.

    `zone`: the zone of budgets that state none. `display`: its rates make a cap in another currency one in dollars.
    """
    return read_models("budget", BudgetTable, value, where, lambda table: _make_budget(table, zone, display))


def _make_budget(table: BudgetTable, zone: tzinfo, display: DisplaySettings) -> Budget:
    (period, days), zone, (cap, is_rate) = table.period, table.timezone or zone, table.cap
    in_dollars = cap.currency == USD
    currency = display.currency if in_dollars else cap.currency
    rate = max((one for one in display.rates if one.currency == currency), key=lambda one: one.on, default=None)
    cap_stated = cap if rate is not None and not in_dollars else None
    return Budget(
        name=table.name,
        cap=rate.convert_to_dollars(cap_stated) if rate is not None and cap_stated is not None else cap,
        cap_stated=cap_stated,
        rate=rate,
        period=HOUR if is_rate else period,
        days=days,
        zone=zone,
        match=make_filter(table.match),
        hard=table.hard,
        allow_irreversible=table.allow_irreversible,
        warn=RATE_THRESHOLDS if is_rate and "warn" not in table.model_fields_set else table.warn,
        start=make_day(table.start, zone).start if table.start else None,
        end=make_day(table.until, zone).start if table.until else None,
    )
