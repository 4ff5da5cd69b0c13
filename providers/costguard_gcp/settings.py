"""The settings of `[providers.gcp]`, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from costguard.errors import InputError
from costguard.providers.transport import check_url
from costguard_gcp.api import BILLING, COMPUTE, MONITORING, PLACES, RESOURCES

TIMEOUT_S = 60
SETTINGS = {
    COMPUTE: "api_endpoint",
    MONITORING: "monitoring_endpoint",
    BILLING: "billing_endpoint",
    RESOURCES: "resource_manager_endpoint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpSettings:
    """`bases`: service -> base address.

    `focus_export`: a file or folder, "" for none. `timeout_s`: for one poll.
    """

    projects: tuple[str, ...]
    bases: Mapping[str, str]
    discover: bool = False
    focus_export: str = ""
    timeout_s: float = TIMEOUT_S


def parse_settings(table: Mapping[str, object]) -> GcpSettings:
    """Parse the table; raises InputError that names the invalid key."""
    listed = table.get("projects") or ()
    projects = tuple(_check_project(str(one)) for one in listed) if isinstance(listed, list | tuple) else ()
    discover = bool(table.get("discover"))
    if not projects and not discover:
        hint = 'write projects = ["my-project"], or discover = true for all that the credentials can see'
        raise InputError("names no project", field="providers.gcp.projects", hint=hint)
    if len(set(projects)) < len(projects):
        twice = next(one for one in projects if projects.count(one) > 1)
        raise InputError(f"names {twice} twice", field="providers.gcp.projects", hint="its charges would be counted twice")
    timeout = table.get("timeout_s", TIMEOUT_S)
    if not isinstance(timeout, int) or not 1 <= timeout <= LONGEST_S:
        raise InputError(f"must be from 1 to {LONGEST_S} seconds", field="providers.gcp.timeout_s", hint="write timeout_s = 60")
    return GcpSettings(
        projects=projects,
        bases=_parse_bases(table),
        discover=discover,
        focus_export=str(table.get("focus_export") or ""),
        timeout_s=timeout,
    )


LONGEST_S = 600


def _parse_bases(table: Mapping[str, object]) -> dict[str, str]:
    """Return the base addresses: `api_endpoint`, if set, is used for every service without its own setting."""
    own = table.get(SETTINGS[COMPUTE])
    bases = {}
    for service, key in SETTINGS.items():
        address = table.get(key) or own
        bases[service] = check_url(str(address), f"providers.gcp.{key}") if address else PLACES[service]
    return bases


def _check_project(name: str) -> str:
    """Return a project's id; a number is refused, since the same project under two names would be charged twice."""
    if name.isdigit():
        hint = f"write the project's id: gcloud projects describe {name} --format='value(projectId)'"
        raise InputError(f"is a project's number, {name}", field="providers.gcp.projects", hint=hint)
    if not _PROJECT.fullmatch(name):
        raise InputError(
            f"is not a project's id: {name[:80]!r}", field="providers.gcp.projects", hint="such as my-project-123456"
        )
    return name


_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{0,98}[a-z0-9]", re.ASCII)
