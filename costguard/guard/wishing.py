"""Which resource a person means who types an id, a name, or the beginning of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costguard.errors import InputError, shorten
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.values.resource import ENDED

CHOICES_SHOWN = 3
"""Lines of matches in an error, which has five in all."""
NAME_CHARS_MAX = 60


def resolve_resource(stated: str, lives: Iterable[LiveResource], field: str = "ID") -> LiveResource:
    """The one resource that `stated` means: its whole key, its id, its name, or the beginning of either.

    What fits best decides: an id is not taken for the beginning of a longer one. InputError that lists them where several fit.
    """
    wanted = stated.strip()
    there = [one for one in lives if one.observation.state != ENDED]
    if not wanted:
        raise InputError("is empty", field=field, hint="costguard status lists what runs")
    for fits in (_is_key, _is_id, _is_name, _has_prefix):
        fitting = [one for one in there if fits(wanted, one.observation)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            what = f"'{shorten(wanted, NAME_CHARS_MAX)}' may mean {len(fitting)} resources"
            raise InputError(what, field=field, hint=_format_choices(fitting))
    what = f"nothing that is there is called '{shorten(wanted, NAME_CHARS_MAX)}'"
    raise InputError(what, field=field, hint="costguard status lists what is there")


def format_resource(seen: Observation) -> str:
    """`train-1 (aws/123/us-east-1/i-0a1)`."""
    key = "/".join(seen.key)
    return f"{shorten(seen.name, NAME_CHARS_MAX)} ({key})" if seen.name and seen.name != seen.key.id else key


def _format_choices(fitting: Sequence[LiveResource]) -> str:
    """What may have been meant, a line each, as it may be typed."""
    keys = sorted("/".join(one.observation.key) for one in fitting)
    shown = keys if len(keys) <= CHOICES_SHOWN else [*keys[: CHOICES_SHOWN - 1], f"and {len(keys) - CHOICES_SHOWN + 1} more"]
    return "\n".join(("write one of them in full:", *shown))


def _is_key(wanted: str, seen: Observation) -> bool:
    return wanted == "/".join(seen.key)


def _is_id(wanted: str, seen: Observation) -> bool:
    return wanted == seen.key.id


def _is_name(wanted: str, seen: Observation) -> bool:
    return wanted == seen.name


def _has_prefix(wanted: str, seen: Observation) -> bool:
    return seen.key.id.startswith(wanted) or seen.name.startswith(wanted)
