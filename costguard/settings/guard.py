"""The models of `[rails]` (limits on all acts, whatever the policies state) and of the `[[hook]]` tables."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from functools import partial
from typing import Annotated, Self

from pydantic import model_validator

from costguard.errors import InputError
from costguard.guard.escalation import Hook
from costguard.guard.policy import Rails
from costguard.settings.fields import read_section, read_text, read_texts
from costguard.settings.model import (
    Name,
    ReadAs,
    SettingsModel,
    count,
    describe_key,
    limit_duration,
    list_stated,
    read_model,
    read_models,
    refuse,
    require_table,
)
from costguard.settings.notify import check_address
from costguard.values.checks import describe_value, require, require_number

ACTS_MAX, MACHINES_MAX = 1000, 10**6
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def _read_percent(value: object, field: str, *, most: int = 100) -> Fraction:
    if isinstance(value, str):
        raise InputError(f"must be a number, not {describe_value(value)}", field=field, hint="write 10 for 10 %")
    return Fraction(str(require_number(value, field, least=1, most=most))) / 100


Count = Annotated[int | None, count(0, ACTS_MAX)]
Machines = Annotated[int | None, count(1, MACHINES_MAX)]
Percent = Annotated[Fraction | None, ReadAs(_read_percent)]
PercentOfDay = Annotated[Fraction | None, ReadAs(partial(_read_percent, most=1000))]
Time = Annotated[timedelta | None, limit_duration(most=7 * DAY)]
Interval = Annotated[timedelta | None, limit_duration(MINUTE, DAY)]


class ActsTable(SettingsModel):
    """`acts`: the most stops. The fields are those of Rails, the keys those of the file."""

    acts_per_run: Count = describe_key(None, "stops in a run", 5, key="per_run")
    acts_per_10m: Count = describe_key(None, "stops in 10 minutes", 15, key="per_10m")
    fleet_share_10m: Percent = describe_key(None, "share of the fleet in 10 minutes", 100, key="fleet_percent")
    fleet_share_day: PercentOfDay = describe_key(None, "stops in a day, in percent of the fleet", 200, key="fleet_percent_day")
    acts_least_day: Machines = describe_key(None, "that many in a day in any case", 20, key="least_per_day")
    irreversible_per_h: Count = describe_key(None, "stops that lose data in an hour", 1)


class CapsTable(SettingsModel):
    """`caps`: the keys of `acts` for hard caps that a person accepted; none of them may be 0."""

    acts_per_run: Machines = describe_key(None, example=99, key="per_run")
    acts_per_10m: Machines = describe_key(None, example=99, key="per_10m")
    fleet_share_10m: Percent = describe_key(None, example=100, key="fleet_percent")
    fleet_share_day: Percent = describe_key(None, example=100, key="fleet_percent_day")
    acts_least_day: Machines = describe_key(None, example=99, key="least_per_day")
    irreversible_per_h: Machines = describe_key(None, example=99)


class StartsTable(SettingsModel):
    """`starts`: the most machines that schedules start."""

    starts_per_run: Count = describe_key(None, "in a run", 2, key="per_run")
    starts_per_h: Count = describe_key(None, "in an hour", 20, key="per_h")


class BreakerTable(SettingsModel):
    """`breaker`: when idle acts are suspended."""

    breaker_share: Percent = describe_key(None, "share of the fleet that turns idle or unknown", 25, key="percent")
    breaker_least: Machines = describe_key(None, "and so many machines", 5, key="least")
    breaker_window: Interval = describe_key(None, "within this time", "10m", key="window")
    breaker_recovery: Interval = describe_key(None, "suspended until so long after it ends", "30m", key="recovery")
    breaker_asks: Interval = describe_key(None, "a person is asked after this time", "1h", key="asks")
    breaker_lasts: Time = describe_key(None, "suspended for at most this time", "24h", key="lasts")


class RailsTable(SettingsModel):
    """The `[rails]` section; missing values take the defaults of Rails."""

    acts: Annotated[ActsTable | None, require_table("acts = { per_10m = 15 }")] = describe_key(
        None,
        "Maximum number of stops in a run and in 10 minutes, maximum share of the fleet in 10 minutes and in a day (at least "
        "one), how many that lose data in an hour.",
    )
    starts: Annotated[StartsTable | None, require_table("starts = { per_h = 20 }")] = describe_key(
        None, "Maximum number of machines that schedules start in a run and in an hour."
    )
    breaker: Annotated[BreakerTable | None, require_table("breaker = { percent = 25 }")] = describe_key(
        None,
        "Once this share of the fleet (and so many) turns idle or unknown within the window, idle acts are suspended until "
        "that long after it ends.",
    )
    caps: Annotated[CapsTable | None, require_table("caps = { per_10m = 20 }")] = describe_key(
        None,
        "The same keys, none of them 0, for hard caps that somebody accepted (costguard plan --accept); default: as many stops "
        "as a cap needs. A hard cap that nobody accepted acts within acts.",
    )
    first_seen: Time = describe_key(None, "No act on machines observed for less.", "15m")


def read_rails(value: object, where: str) -> Rails:
    """Return the rails of the file `where`."""
    place = f"{where}: rails"
    table = read_model(RailsTable, read_section(value, place, "a [rails] section"), place, ("rails",))
    values = dict[str, object]()
    for inner in (table.acts, table.starts, table.breaker):
        values |= list_stated(inner) if inner else {}
    if "fleet_share_day" in values and "acts_least_day" not in values:
        values["acts_least_day"] = 1  # who states a share of the day means it for small fleets too
    if table.first_seen is not None:
        values["first_seen"] = table.first_seen
    if table.caps:
        values["caps"] = replace(Rails.unlimited(), **list_stated(table.caps))
    return Rails(**values)  # type: ignore[arg-type]  # each read as its field wants it


VARIABLE_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOOK_VARIABLES_MAX = 32
COMMAND_HINT = 'write a list (no shell is used): command = ["/usr/local/bin/save", "--all"]'


def _read_command(value: object, field: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InputError("must be a list of texts, not one text", field=field, hint=COMMAND_HINT)
    command = read_texts(value, field)
    require(bool(command) and bool(command[0].strip()), field, "names no program", COMMAND_HINT)
    return command


def _read_variables(value: object, field: str) -> tuple[str, ...]:
    names = read_texts(value, field)
    require(len(names) <= HOOK_VARIABLES_MAX, field, f"names {len(names)} variables", f"name {HOOK_VARIABLES_MAX} at most")
    for name in names:
        what = f"'{name}' is not a name of a variable"
        require(bool(VARIABLE_NAME_PATTERN.fullmatch(name)), field, what, 'write "AWS_PROFILE"')
    return names


def _read_url(value: object, field: str) -> str:
    return check_address(read_text(value, field), field, "HOOK_URL")


class HookTable(SettingsModel):
    """A `[[hook]]` table: a command or a request that a policy's escalation may run before its next step."""

    name: Name = describe_key(..., "The name by which a step runs it.", "checkpoint")
    command: Annotated[tuple[str, ...], ReadAs(_read_command)] = describe_key(
        (), "A program and its arguments, without a shell.", ["/usr/local/bin/save-checkpoint"]
    )
    url: Annotated[str, ReadAs(_read_url)] = describe_key("", "Called by POST instead.", "https://example.com/drain")
    env: Annotated[tuple[str, ...], ReadAs(_read_variables)] = describe_key(
        (), "Environment variables passed to a command; no other key or secret is passed.", ["AWS_PROFILE"]
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        set_fields = self.model_fields_set
        refuse(
            require,
            ("command" in set_fields) != ("url" in set_fields),
            "",
            "needs a command or a url, and not both",
            COMMAND_HINT,
        )
        alone = "url" not in set_fields or "env" not in set_fields
        refuse(require, alone, ".env", "belongs to a command", "remove it: a web server gets no variables")
        return self


def read_hooks(value: object, where: str) -> tuple[Hook, ...]:
    """Return the hooks of the file `where` in their order."""
    return read_models("hook", HookTable, value, where, lambda table: Hook(**dict(table)))
