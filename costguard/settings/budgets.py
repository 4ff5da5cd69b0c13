"""The `[[budget]]` tables, as budgets.

    [[budget]]
    name = "vision"                           # required; no two alike
    cap = "3000 USD"                          # required: an amount and its currency
    period = "month"                          # "day", "week" (from Monday), "month", or "rolling 7d": the last 7 x 24 hours
    timezone = "Europe/Berlin"                # whose days and months; usually [defaults] timezone
    hard = false                              # true: machines may be stopped to keep it, where a policy is armed
    warn = ["pace+15%", "forecast>100%", "time_to_cap<24h"]     # and "spent>80%"; these three where nothing is stated
    [budget.match]                            # left out: everything. All that is stated must fit; an empty list fits nothing
    providers = ["aws", "gcp"]                # also accounts, regions, owners, gpus, tiers, kinds
    labels = { team = ["vision", "robotics"] }

Errors name the file, the number of the table, its name and the field: `costguard.toml: budget 2 (vision).cap: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from fractions import Fraction

from costguard.core.budget import MEASURES, MONTH, PERIODS, ROLLING, TIME_TO_CAP, USUAL_WARNINGS, Budget, Match, Threshold
from costguard.core.calendar import LONGEST_ROLLING
from costguard.core.checks import described, known_keys, nearest_names, one_of, require, whole
from costguard.core.metering.resource import GROUPED_LABELS, KINDS
from costguard.core.money import Money
from costguard.core.offer import TIERS
from costguard.errors import InputError, UnknownNameError
from costguard.settings.zones import zone_named

Table = Mapping[str, object]

KEYS = ("name", "cap", "period", "timezone", "match", "hard", "warn")
MATCH_KEYS = ("providers", "accounts", "regions", "owners", "gpus", "tiers", "kinds", "labels")
CHOICES = {"tiers": TIERS, "kinds": KINDS}

CAP = 'write an amount and its currency, such as "3000 USD"'
PERIOD = 'write "day", "week", "month" or "rolling 7d"'
WARN = 'write "pace+15%", "forecast>100%", "spent>80%" or "time_to_cap<24h"'

MONEY = re.compile(r"([-+]?[\d._]+)\s+([A-Z]{3})")
WINDOW = re.compile(rf"{ROLLING}\s+(\d{{1,6}})\s*d(?:ays?)?")
THRESHOLD = re.compile(r"([a-z_]+)\s*([+><])\s*(\d{1,6}(?:\.\d{1,6})?)\s*(%|h)")
SIGNS = {"pace": "+%", "forecast": ">%", "spent": ">%", TIME_TO_CAP: "<h"}
LONGEST_NAME = 80
"""Characters of a name: it stands in every message."""


def read_budgets(stated: object, where: str, zone: tzinfo) -> tuple[Budget, ...]:
    """The budgets of `where` (a file) in their order. `zone`: of those that state none."""
    if not isinstance(stated, list) or not all(isinstance(table, Mapping) for table in stated):
        raise InputError("must be a list of tables", field=f"{where}: budget", hint="write [[budget]], and its keys below it")
    budgets = tuple(_budget(table, f"{where}: budget {number}", zone) for number, table in enumerate(stated, 1))
    numbers: dict[str, int] = {}
    for number, budget in enumerate(budgets, 1):
        first = numbers.setdefault(budget.name.casefold(), number)
        field = f"{where}: budget {number} ({budget.name}).name"
        require(first == number, field, f"is that of budget {first} too", "give each budget a name of its own")
    return budgets


def _budget(table: Table, place: str, zone: tzinfo) -> Budget:
    name = _name(table.get("name"), f"{place}.name")
    place = f"{place} ({name})"
    known_keys(table, KEYS, place)
    period, days = _period(table.get("period", MONTH), f"{place}.period")
    hard = table.get("hard", False)
    require(isinstance(hard, bool), f"{place}.hard", f"must be true or false, not {described(hard)}", "write it without quotes")
    return Budget(
        name=name,
        cap=_cap(table.get("cap"), f"{place}.cap"),
        period=period,
        days=days,
        zone=zone_named(_text(table["timezone"], f"{place}.timezone"), f"{place}.timezone") if "timezone" in table else zone,
        match=_match(table.get("match"), f"{place}.match"),
        hard=hard is True,
        warn=_warnings(table["warn"], f"{place}.warn") if "warn" in table else USUAL_WARNINGS,
    )


def _name(stated: object, field: str) -> str:
    if stated is None:
        raise InputError("is missing", field=field, hint='write a name such as "vision"')
    name = _text(stated, field).strip()
    plain = 0 < len(name) <= LONGEST_NAME and name.isprintable()
    require(plain, field, f"must be a name of at most {LONGEST_NAME} plain characters, not {described(name)}")
    return name


def _cap(stated: object, field: str) -> Money:
    if stated is None:
        raise InputError("is missing", field=field, hint=CAP)
    found = MONEY.fullmatch(stated.strip()) if isinstance(stated, str) else None
    if found is None:
        lacks = "must say its currency, and" if re.fullmatch(r"[\d._]+", str(stated)) else "must be an amount of money,"
        raise InputError(f"{lacks} not {described(stated)}", field=field, hint=CAP)
    cap = Money.parse(found[1], found[2], field=field)
    require(cap.nano > 0, field, f"must be more than zero, not {described(stated)}", "take the budget out to set no limit")
    return cap


def _period(stated: object, field: str) -> tuple[str, int]:
    """The kind of period, and the days of a rolling one."""
    text = _text(stated, field).strip()
    window = WINDOW.fullmatch(text)
    if window:
        return ROLLING, whole(int(window[1]), field, most=LONGEST_ROLLING)
    calendar = tuple(period for period in PERIODS if period != ROLLING)
    if text not in calendar:
        near = nearest_names(text, calendar)
        raise UnknownNameError("period", text, field=field, nearest=near, hint=PERIOD)
    return text, 0


def _warnings(stated: object, field: str) -> tuple[Threshold, ...]:
    return tuple(_threshold(text, field) for text in _texts(stated, field))


def _threshold(text: str, field: str) -> Threshold:
    found = THRESHOLD.fullmatch(text.strip())
    if found is None or SIGNS.get(found[1]) != found[2] + found[4]:
        measure = re.match(r"[a-z_]*", text.strip())
        near = nearest_names(measure[0], MEASURES) if measure and measure[0] not in MEASURES else ()
        raise UnknownNameError("warning", text, field=field, nearest=near, hint=WARN)
    share = 100 if found[4] == "%" else 1
    return Threshold(measure=found[1], limit=Fraction(found[3]) / share)


def _match(stated: object, field: str) -> Match:
    """What is counted; everything where nothing is stated."""
    if stated is None:
        return Match()
    if not isinstance(stated, Mapping) or not stated:
        what = "is empty" if stated == {} else f"must be a table, not {described(stated)}"
        raise InputError(what, field=field, hint='write { providers = ["aws"] }, or leave it out to count everything')
    known_keys(stated, MATCH_KEYS, field)
    lists = {key: _names(key, stated[key], f"{field}.{key}") for key in MATCH_KEYS[:-1] if key in stated}
    labels = _labels(stated["labels"], f"{field}.labels") if "labels" in stated else None
    return Match(**lists, labels=labels)


def _names(key: str, stated: object, field: str) -> tuple[str, ...]:
    names = _texts(stated, field)
    for name in names:
        if key in CHOICES:
            one_of(name, CHOICES[key], field)
    return _gpus(names, field) if key == "gpus" else names


def _gpus(names: Iterable[str], field: str) -> tuple[str, ...]:
    """Canonical names. A name that is short for several GPUs would leave the others out unseen, and is refused."""
    from costguard.core.gpu_names import GpuNames
    from costguard.data import Facts

    known = GpuNames(Facts().gpus())
    found = {name: known.resolve(name, field=field) for name in names}
    for name, gpu in found.items():
        hint = f'write "{gpu.canonical}", and the others that are meant'
        require(not gpu.taken_as_short, field, f"'{name}' is short for several GPUs", hint)
    return tuple(gpu.canonical for gpu in found.values())


def _labels(stated: object, field: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(stated, Mapping):
        raise InputError(f"must be a table, not {described(stated)}", field=field, hint='write { team = "vision" }')
    for key in stated:
        one_of(str(key).lower(), GROUPED_LABELS, f"{field}.{key}")
    return tuple((str(key).lower(), _texts(values, f"{field}.{key}")) for key, values in sorted(stated.items()))


def _texts(stated: object, field: str) -> tuple[str, ...]:
    """A list of texts; one text stands for a list of one."""
    texts = [stated] if isinstance(stated, str) else stated
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"must be a list of texts, not {described(stated)}", field=field, hint='write ["a", "b"]')
    return tuple(texts)


def _text(stated: object, field: str) -> str:
    if not isinstance(stated, str):
        raise InputError(f"must be text, not {described(stated)}", field=field, hint='write it in "quotes"')
    return stated
