"""Find the one machine that is meant: by its full key, by one run of it, or by the word of a person at a terminal.

Example: i-0a1 ends, and somebody names another machine "aws/1/us-east-1/i-0a1". That text still means the machine that ended,
so it is refused; so is the word "i-0a1" for a machine of that name, because it was another machine's id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from costguard.errors import InputError, shorten, to_one_line
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.instant import from_micros
from costguard.values.resource import (
    ENDED,
    SHORT_ID_CHARS,
    Incarnation,
    ResourceKey,
    compute_key_digest,
    is_same_life,
    parse_resource_key,
)

CHOICES_SHOWN = 3
"""Lines of matches in an error, which has five in all."""
NAME_CHARS_MAX, KEY_CHARS_MAX = 60, 200
CUT, LEAST_PRINTED = re.compile(r"\u2026|\.\.\."), 3
"""What stands for the rest of a text that was cut, and the characters that must be left of it."""
SHORT_ID = re.compile(f"[0-9a-f]{{{SHORT_ID_CHARS},64}}")
MachineReference = str | ResourceKey | Incarnation
"""How a caller names a machine: a person's word (a full key, an id, a name, a prefix), a key, or one run of a machine."""


def resolve_resource(
    reference: MachineReference, live: Iterable[LiveResource], field: str = "ID", former: Iterable[ResourceKey] = ()
) -> LiveResource:
    """Return the one resource that `reference` names.

    A full key, also as text, means the resource of that key and no other: anybody may give a machine a name of that form.
    Another word is an id, a name or what costguard prints for them, else a prefix or a printed form that was cut. `former`: the
    keys of all resources, ended ones too, that ever had that id; a name that is also another resource's id is refused. Raises
    InputError that lists what matches.
    """
    resources = [one for one in live if one.observation.state != ENDED]
    key = get_stated_key(reference)
    if key is not None and not any(str(reference).strip() == _list_names(one.observation)[-1] for one in resources):
        life = reference if isinstance(reference, Incarnation) else None
        return _find_key(key, life, resources, field, has_ended=key in former)
    word = str(reference).strip()
    if not word:
        raise InputError("is empty", field=field, hint="costguard status lists running machines")
    of_id = [one for one in resources if word == one.observation.key.id]
    fitting = of_id + [one for one in resources if word in _list_names(one.observation) and word != one.observation.key.id]
    keys = {one.observation.key for one in fitting} | (set() if of_id else set(former))
    if not keys:
        fitting = [one for one in resources if _has_prefix(word, one.observation)]
        keys = {one.observation.key for one in fitting}
    if len(keys) == 1 and fitting:
        return fitting[0]
    shown = shorten(word, NAME_CHARS_MAX)
    if fitting:
        raise InputError(f"'{shown}' matches {len(keys)} resources", field=field, hint=_format_choices(keys))
    what = f"'{shown}' is the id of a machine that no longer exists" if keys else f"no machine has the name '{shown}'"
    raise InputError(what, field=field, hint="costguard status lists the machines")


def get_stated_key(reference: MachineReference) -> ResourceKey | None:
    """Return the key that `reference` is or is written as; None for another word."""
    if isinstance(reference, Incarnation):
        return reference.key
    return reference if isinstance(reference, ResourceKey) else parse_resource_key(reference)


def require_resource_key(reference: str | ResourceKey, field: str = "machine") -> ResourceKey:
    """Return `reference` as a key. Raises InputError for a name, an id or a prefix: those are for people at a terminal."""
    key = get_stated_key(reference)
    if key is None:
        hint = "write provider/account/region/id, each as status lists it"
        raise InputError("is not the full key of a machine", field=field, hint=hint)
    return key


def require_machine(path: str, life: str) -> ResourceKey | Incarnation:
    """Return the machine of a form: its key `path`, and the run that its page showed (`format_life`); `life` "": any run."""
    key = require_resource_key(path)
    try:
        started, created = (from_micros(int(at)) if at else None for at in life.split("_")) if life else (None, None)
    except (ValueError, OverflowError):
        raise InputError("is not a run of a machine", field="life", hint="open the machine's page again") from None
    return Incarnation(key, started, created) if life else key


def _find_key(
    key: ResourceKey, life: Incarnation | None, resources: Iterable[LiveResource], field: str, *, has_ended: bool
) -> LiveResource:
    fitting, shown = [one for one in resources if one.observation.key.path == key.path], shorten(key.path, KEY_CHARS_MAX)
    if len(fitting) != 1:
        what = f"'{shown}' has ended" if has_ended else f"no machine has the key '{shown}'"
        raise InputError(f"{what}; nothing was done", field=field, hint="costguard status lists the machines")
    if life is not None and not is_same_life(life, identify_incarnation(fitting[0].observation)):
        hint = "check its current run first"
        raise InputError(f"'{shown}' was restarted, and this was for its earlier run; nothing was done", field=field, hint=hint)
    return fitting[0]


def format_resource(observation: Observation) -> str:
    """Return the name and key: `train-1 (aws/123/us-east-1/i-0a1)`."""
    has_name = observation.name and observation.name != observation.key.id
    return f"{shorten(observation.name, NAME_CHARS_MAX)} ({observation.key.path})" if has_name else observation.key.path


def _format_choices(keys: Iterable[ResourceKey]) -> str:
    """List the matching keys, one a line, ready to be typed."""
    paths = sorted(key.path for key in keys)
    shown = (
        paths if len(paths) <= CHOICES_SHOWN else [*paths[: CHOICES_SHOWN - 1], f"and {len(paths) - CHOICES_SHOWN + 1} more"]
    )
    return "\n".join(("write one of them in full:", *shown))


def _list_names(observation: Observation) -> tuple[str, ...]:
    """Return the texts in which tables and messages print a machine."""
    name, key = to_one_line(observation.name), observation.key
    return observation.name, *((f"{name} {key.id}", f"{name} ({key.id})", f"{name} ({key.path})") if name else ())


def _has_prefix(prefix: str, observation: Observation) -> bool:
    """Return whether `prefix` begins the id or the name, or is a short id or a printed form cut as `trai\u2026-3 4f2c9a`."""
    start, _, last = prefix.rpartition(" ")
    if SHORT_ID.fullmatch(last) and compute_key_digest(observation.key).startswith(last):
        return not start or start in (observation.name, observation.key.id) or _has_prefix(start, observation)
    names = (observation.key.id, *_list_names(observation))
    if len("".join(parts := CUT.split(prefix))) < LEAST_PRINTED or len(parts) == 1:
        return any(one.startswith(prefix) for one in names[:2])
    pattern = ".*".join(map(re.escape, parts))
    return any(re.fullmatch(pattern, one, re.DOTALL) for one in names)
