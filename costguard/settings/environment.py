"""Settings from the environment: `COSTGUARD_SECTION__FIELD` is laid over the file, and a slip of the pen is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping

from costguard.errors import UnknownNameError
from costguard.settings.sections import SECTIONS, list_fields
from costguard.values.checks import find_nearest_names

VARIABLE_PREFIX = "COSTGUARD_"
CONFIG_VARIABLE = f"{VARIABLE_PREFIX}CONFIG"
OTHER_VARIABLES = (f"{VARIABLE_PREFIX}API_KEY", f"{VARIABLE_PREFIX}API_URL", CONFIG_VARIABLE)
"""Another product's two variables, and the one that names the file itself."""

SIMILARITY_MIN = 0.8
"""How much of two names must agree (`difflib`, 0 to 1) for one to be the other mistyped: COSTGUARD__URL just is."""


def overlay_environment(table: dict[str, object]) -> dict[str, object]:
    """`table` with COSTGUARD_SECTION__FIELD laid over it."""
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in table.items()}
    for name, value in sorted(os.environ.items()):
        section, separator, key = name.removeprefix(VARIABLE_PREFIX).lower().partition("__")
        if not name.startswith(VARIABLE_PREFIX) or name in OTHER_VARIABLES:
            continue
        if not separator:
            _require_no_typo(name)
        else:
            _require_known_field(name, section, key)
            inner = merged.setdefault(section, {})
            if isinstance(inner, dict):
                listed = "list" in _map_fields()[section, key]
                inner[key] = [part.strip() for part in value.split(",") if part.strip()] if listed else value
    return merged


def _require_known_field(name: str, section: str, key: str) -> None:
    """UnknownNameError that names the variable, unless it stands for a field."""
    if (section, key) not in _map_fields():
        known = _list_variables()
        near, ours = (
            find_nearest_names(name, known),
            [one for one in known if one.startswith(f"{VARIABLE_PREFIX}{section}__".upper())],
        )
        hint = f"known: {', '.join(ours)}" if ours else f"{VARIABLE_PREFIX}SECTION__KEY; sections: {', '.join(SECTIONS)}"
        raise UnknownNameError("variable", name, field="the environment", nearest=near, hint=hint)


def _require_no_typo(name: str) -> None:
    """UnknownNameError for a variable that names no section, but nearly is one of ours: COSTGUARD_LEDGER_URL, with one `_`.

    Whatever resembles none of ours belongs to another program.
    """
    from difflib import SequenceMatcher

    near = {known: SequenceMatcher(None, name.upper(), known).ratio() for known in (*_list_variables(), CONFIG_VARIABLE)}
    best = max(near, key=near.__getitem__)
    if near[best] >= SIMILARITY_MIN:
        raise UnknownNameError("variable", name, field="the environment", nearest=(best,))


def _map_fields() -> dict[tuple[str, str], Mapping[str, object]]:
    """(section, key) of every field -> what it is marked with."""
    return {(section, inner.name): inner.metadata for section, make in SECTIONS.items() for inner in list_fields(make)}


def _list_variables() -> list[str]:
    """The variable of every field."""
    return [format_variable(section, key) for section, key in _map_fields()]


def describe_origin(section: str, key: str, where: str) -> str:
    """What to call a field in a message: the variable that states it, else its place in the file."""
    variable = format_variable(section, key)
    return variable if variable in os.environ else f"{where}: {section}.{key}"


def format_variable(section: str, key: str) -> str:
    """The variable that states a field."""
    return f"{VARIABLE_PREFIX}{section}__{key}".upper()
