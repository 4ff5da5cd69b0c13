"""Settings from the environment: `COSTGUARD_SECTION__FIELD` is laid over the file, and a slip of the pen is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping

from costguard.errors import UnknownNameError
from costguard.settings.sections import SECTIONS, fields_of
from costguard.values.checks import find_nearest_names

PREFIX = "COSTGUARD_"
CONFIG = f"{PREFIX}CONFIG"
NOT_OURS = (f"{PREFIX}API_KEY", f"{PREFIX}API_URL", CONFIG)
"""Another product's two variables, and the one that names the file itself."""

ALIKE = 0.8
"""How much of two names must agree (`difflib`, 0 to 1) for one to be the other mistyped: COSTGUARD__URL just is."""


def with_environment(table: dict[str, object]) -> dict[str, object]:
    """`table` with COSTGUARD_SECTION__FIELD laid over it."""
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in table.items()}
    for name, value in sorted(os.environ.items()):
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if not name.startswith(PREFIX) or name in NOT_OURS:
            continue
        if not separator:
            _no_slip(name)
        else:
            _known_variable(name, section, key)
            inner = merged.setdefault(section, {})
            if isinstance(inner, dict):
                listed = "list" in _places()[section, key]
                inner[key] = [part.strip() for part in value.split(",") if part.strip()] if listed else value
    return merged


def _known_variable(name: str, section: str, key: str) -> None:
    """UnknownNameError that names the variable, unless it stands for a field."""
    if (section, key) not in _places():
        known = _variables()
        near, ours = find_nearest_names(name, known), [one for one in known if one.startswith(f"{PREFIX}{section}__".upper())]
        hint = f"known: {', '.join(ours)}" if ours else f"{PREFIX}SECTION__KEY; sections: {', '.join(SECTIONS)}"
        raise UnknownNameError("variable", name, field="the environment", nearest=near, hint=hint)


def _no_slip(name: str) -> None:
    """UnknownNameError for a variable that names no section, but nearly is one of ours: COSTGUARD_LEDGER_URL, with one `_`.

    Whatever resembles none of ours belongs to another program.
    """
    from difflib import SequenceMatcher

    near = {known: SequenceMatcher(None, name.upper(), known).ratio() for known in (*_variables(), CONFIG)}
    best = max(near, key=near.__getitem__)
    if near[best] >= ALIKE:
        raise UnknownNameError("variable", name, field="the environment", nearest=(best,))


def _places() -> dict[tuple[str, str], Mapping[str, object]]:
    """(section, key) of every field -> what it is marked with."""
    return {(section, inner.name): inner.metadata for section, make in SECTIONS.items() for inner in fields_of(make)}


def _variables() -> list[str]:
    """The variable of every field."""
    return [variable_of(section, key) for section, key in _places()]


def origin(section: str, key: str, where: str) -> str:
    """What to call a field in a message: the variable that states it, else its place in the file."""
    variable = variable_of(section, key)
    return variable if variable in os.environ else f"{where}: {section}.{key}"


def variable_of(section: str, key: str) -> str:
    """The variable that states a field."""
    return f"{PREFIX}{section}__{key}".upper()
