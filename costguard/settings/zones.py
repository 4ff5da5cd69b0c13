"""IANA time zones by their names."""

from __future__ import annotations

from datetime import UTC, tzinfo

from costguard.errors import InputError, UnknownNameError
from costguard.values.checks import find_nearest_names


def load_zone(name: str, field: str) -> tzinfo:
    """The zone `name`, such as "Europe/Berlin"; UnknownNameError for `field` with the nearest names where there is none."""
    if name == "UTC":
        return UTC  # also where the machine carries no data of zones
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; no name at all ("../x"); a folder ("Europe")
        raise _make_unknown_zone_error(name, field) from None


def _make_unknown_zone_error(name: str, field: str) -> InputError:
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    if not known:
        what = "cannot be looked up: this machine has no data of time zones"
        return InputError(what, field=field, hint="pip install tzdata, or write UTC")
    near = find_nearest_names(name, known) or tuple(
        zone for zone in known if zone.rpartition("/")[2].casefold() == name.casefold()
    )
    return UnknownNameError("time zone", name, field=field, nearest=near, hint='write an IANA name such as "Europe/Berlin"')
