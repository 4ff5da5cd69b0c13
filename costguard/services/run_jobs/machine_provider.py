"""Detect the provider of this machine and its spot notices, from the manifests of the installed plug-ins.

Example: /sys/class/dmi/id/sys_vendor reads "Amazon EC2", so the metadata service of `aws` is polled for notices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from costguard.providers.plugins import load_providers
from costguard.system.child.spot_notices import SpotNoticeSource
from costguard.values.checks import require_one_of
from costguard.values.provider import MachineTraits

AUTO, NONE = "auto", "none"
DMI = Path("/sys/class/dmi/id")
SPARE_S = 1.0
"""Seconds of a provider's grace after SIGTERM that are left to the program's own end."""


def find_spot_notice_source(
    provider: str, environ: Mapping[str, str] = os.environ, firmware: Path = DMI
) -> SpotNoticeSource | None:
    """Return the source of spot notices; None: no source.

    `provider`: a provider, AUTO for the one of this machine, or NONE.
    """
    sources = {name: traits for name, traits in _list_traits() if traits.metadata_url}
    require_one_of(provider, (AUTO, *sources, NONE), "--notices")
    name = _detect_provider(sources, environ, firmware) if provider == AUTO else provider
    if name not in sources:
        return None
    traits, plugin = sources[name], load_providers().found[name]
    base = environ.get(traits.metadata_variable, "") or traits.metadata_url
    return SpotNoticeSource(
        cloud=name,
        base=base if "://" in base else f"http://{base}",
        within_s=traits.notice_ahead.total_seconds(),
        fetch=_get_fetch(plugin),
    )


def guess_provider(environ: Mapping[str, str] = os.environ, firmware: Path = DMI) -> str | None:
    """Return the probable provider of this machine; None if nothing identifies it."""
    traits = dict(_list_traits())
    providers = (name for name, one in traits.items() if any(environ.get(variable) for variable in one.variables))
    return next(providers, None) or _detect_provider(traits, environ, firmware)


def get_sigterm_grace_s(provider: str) -> float | None:
    """Return the seconds between the provider's SIGTERM and the end of the machine, less SPARE_S; None: it sends none."""
    traits = dict(_list_traits()).get(provider)
    return traits.sigterm_grace.total_seconds() - SPARE_S if traits and traits.sigterm_grace else None


def _list_traits() -> Iterator[tuple[str, MachineTraits]]:
    return ((name, one.manifest.machine) for name, one in load_providers().found.items() if one.manifest.machine)


def _detect_provider(traits: Mapping[str, MachineTraits], environ: Mapping[str, str], firmware: Path) -> str | None:
    """Detect by the variable of the provider's own tools, then by the firmware."""
    for name, one in traits.items():
        if one.metadata_variable and environ.get(one.metadata_variable):
            return name
    for name, one in traits.items():
        for field in ("sys_vendor", "board_vendor", "product_name"):
            with suppress(OSError, UnicodeDecodeError):
                if one.firmware and (firmware / field).read_text(encoding="ascii").startswith(one.firmware):
                    return name
    return None


def _get_fetch(plugin: Any) -> Any:  # noqa: ANN401 - an optional method of a plug-in
    return plugin.fetch_spot_notice
