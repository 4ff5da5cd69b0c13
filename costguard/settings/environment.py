"""Settings from the environment: `COSTGUARD_SECTION__FIELD` overrides the file; a mistyped variable is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping

from costguard.errors import InputError, UnknownNameError
from costguard.settings.model import find_reader
from costguard.settings.section_values import read_endpoints
from costguard.settings.sections import SECTIONS
from costguard.values.checks import find_nearest_names

VARIABLE_PREFIX = "COSTGUARD_"
CONFIG_VARIABLE = f"{VARIABLE_PREFIX}CONFIG"
OTHER_VARIABLES = (f"{VARIABLE_PREFIX}API_KEY", f"{VARIABLE_PREFIX}API_URL", CONFIG_VARIABLE)
"""Another product's two variables, and the one that names the file itself."""

SIMILARITY_MIN = 0.8
"""How much of two names must agree (`difflib`, 0 to 1) for one to be the other mistyped: COSTGUARD__URL just is."""


def overlay_environment(table: dict[str, object]) -> dict[str, object]:
    """Return `table` with the values of COSTGUARD_SECTION__FIELD variables replacing its own."""
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in table.items()}
    for name, value in sorted(os.environ.items()):
        section, separator, key = name.removeprefix(VARIABLE_PREFIX).lower().partition("__")
        if not name.startswith(VARIABLE_PREFIX) or name in OTHER_VARIABLES:
            continue
        if not separator:
            _require_no_typo(name)
        else:
            refuse_gone_section(section, f"the environment: {name}")
            _require_known_field(name, section, key)
            inner = merged.setdefault(section, {})
            if isinstance(inner, dict):
                listed = _map_fields()[section, key]
                inner[key] = [part.strip() for part in value.split(",") if part.strip()] if listed else value
    return merged


GONE_SECTIONS = {"lake": "delete it; costguard report --format focus writes a month (docs/EXPORTS.md, Years of months)"}
"""Sections of earlier versions, each with what to do instead."""


def refuse_gone_section(section: str, field: str) -> None:
    """Raise InputError if `section` belongs to a feature that costguard no longer has. `field`: where it is stated."""
    if section in GONE_SECTIONS:
        raise InputError(f"[{section}] was removed together with its feature", field=field, hint=GONE_SECTIONS[section])


def _require_known_field(name: str, section: str, key: str) -> None:
    """Raise UnknownNameError that names the variable, unless it belongs to a field."""
    if (section, key) not in _map_fields():
        variables = _list_variables()
        near, own_variables = (
            find_nearest_names(name, variables),
            [one for one in variables if one.startswith(f"{VARIABLE_PREFIX}{section}__".upper())],
        )
        hint = (
            f"known: {', '.join(own_variables)}"
            if own_variables
            else f"{VARIABLE_PREFIX}SECTION__KEY; sections: {', '.join(SECTIONS)}"
        )
        raise UnknownNameError("variable", name, field="the environment", nearest=near, hint=hint)


def _require_no_typo(name: str) -> None:
    """Raise UnknownNameError for a variable similar to one of costguard's: COSTGUARD_LEDGER_URL, with one `_`.

    Variables that are not similar belong to other programs and are ignored.
    """
    from difflib import SequenceMatcher

    near = {
        variable: SequenceMatcher(None, name.upper(), variable).ratio() for variable in (*_list_variables(), CONFIG_VARIABLE)
    }
    best = max(near, key=near.__getitem__)
    if near[best] >= SIMILARITY_MIN:
        raise UnknownNameError("variable", name, field="the environment", nearest=(best,))


def _map_fields() -> dict[tuple[str, str], bool]:
    """Return (section, key) of every field that has a variable, and whether it is a list: tables have none."""
    return {
        (section, name): "tuple" in str(field.annotation)
        for section, model in SECTIONS.items()
        for name, field in model.model_fields.items()
        if (reader := find_reader(field)) and reader.read is not read_endpoints
    }


def _list_variables() -> list[str]:
    """Return the environment variable of every field."""
    return [format_variable(section, key) for section, key in _map_fields()]


def describe_origin(section: str, key: str, where: str) -> str:
    """Return the name of a field for messages: the variable if it is set, else its place in the file."""
    variable = format_variable(section, key)
    return variable if variable in os.environ else f"{where}: {section}.{key}"


def format_variable(section: str, key: str) -> str:
    """Return the environment variable of a field."""
    return f"{VARIABLE_PREFIX}{section}__{key}".upper()
