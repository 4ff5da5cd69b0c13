"""Finding plug-ins: providers, notifiers and reports enter by entry points, one line in a pyproject.toml each.

A group is read once per question; nothing is imported until a plug-in is asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

from costguard.core.checks import nearest_names
from costguard.errors import CostguardError, UnknownNameError
from costguard.ports import Renderer

REPORTS = "costguard.reports"


def renderer(name: str) -> Renderer:
    """The report format `name`; UnknownNameError lists those installed."""
    return cast("Renderer", _load(REPORTS, name, "format"))


def _load(group: str, name: str, kind: str) -> Callable[..., object]:
    """The object behind entry point `name` of `group`."""
    found = entry_points(group=group)
    if name not in found.names:
        known = tuple(sorted(found.names))
        raise UnknownNameError(
            kind, name, field=kind, nearest=nearest_names(name, known), hint=f"installed: {', '.join(known) or 'none'}"
        )
    try:
        return cast("Callable[..., object]", found[name].load())
    except (ImportError, AttributeError) as broken:
        raise CostguardError(
            f"the plug-in '{name}' of {group} cannot be loaded: {broken}", hint="reinstall or remove the package that brings it"
        ) from broken
