"""Documents about the setup: `costguard.init/1`, `costguard.doctor/1` and `costguard.providers/1`.

The first shows what `costguard init` wrote, one record per provider. The second shows the findings of `costguard doctor`, one
record per check. The third shows what costguard supports for each provider, one record per provider.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costguard.values.provider import ABILITIES, CHECK_BAD, CHECK_GOOD, HealthCheck, ProviderManifest
from costguard.views.document import Document, TableView

INIT_SCHEMA = "costguard.init/1"


def build_init_document(
    path: str,
    found: Sequence[str],
    looked: Mapping[str, Sequence[str]],
    unready: Mapping[str, str],
    *,
    cap: str | None,
    zone: str | None,
    usual: bool,
) -> Document:
    """Return the document of a new settings file.

    - `found`: providers with credentials. `looked`: the places that were searched, for the other providers.
    - `unready`: what must be set before credentials can be searched.
    - `usual`: the file is at a place where costguard reads it without --config.
    """
    config = "" if usual else f" --config {path}"
    steps = [f"costguard{config} doctor", f"costguard{config} status"]
    data = {
        "schema": INIT_SCHEMA,
        "path": path,
        "providers": list(found),
        "not_found": {name: list(places) for name, places in sorted(looked.items()) if places},
        "unready": dict(sorted(unready.items())),
        "budget": cap,
        "timezone": zone or "UTC",
        "next": steps,
    }
    records = tuple({"provider": name, "found": name in found} for name in sorted({*found, *looked, *unready}))
    missing = [f"{name}: no credentials in {'; '.join(places)}." for name, places in sorted(looked.items()) if places]
    told = [f"{name}: not switched on. {why}" for name, why in sorted(unready.items())]
    lead = f"Wrote {path}, with {', '.join(found) or 'no provider'} switched on. It holds no key."
    budget = f"Budget: {cap} a month." if cap else "No budget: see [[budget]] in the file."
    return Document(
        data=data, records=records, lead=(lead, budget), notes=(*missing, *told, *(f"Next: {step}" for step in steps))
    )


DOCTOR_SCHEMA = "costguard.doctor/1"
SIGNS = {CHECK_GOOD: "ok", CHECK_BAD: "BAD"}
"""How an outcome is shown in the table; the others by their own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChecks:
    """The checks of one account, or of costguard's own ledger (`provider` "ledger")."""

    provider: str
    account: str
    checks: tuple[HealthCheck, ...]


def build_doctor_document(findings: Sequence[AccountChecks], own: AccountChecks, *, notes: Sequence[str] = ()) -> Document:
    """Return the document of all checks.

    `own`: the checks of the ledger. `notes`: explanations for users who expected more findings.
    """
    every = (*findings, own)
    counted = Counter(check.outcome for one in every for check in one.checks)
    data = {
        "schema": DOCTOR_SCHEMA,
        "good": not counted[CHECK_BAD],
        "counts": dict(sorted(counted.items())),
        "providers": [_build_account_data(one) for one in findings],
        "ledger": {"path": own.account, "checks": [_build_check_data(check) for check in own.checks]},
        "notes": list(notes),
    }
    records = tuple({"provider": o.provider, "account": o.account, **_build_check_data(c)} for o in every for c in o.checks)
    table = TableView(title="", columns=("provider", "account", "check", "", "found"), rows=tuple(_list_check_rows(every)))
    return Document(
        data=data, records=records, tables=(table,), notes=(*_list_fixes(every), *notes, _format_check_counts(counted))
    )


def _build_account_data(one: AccountChecks) -> Mapping[str, object]:
    return {"provider": one.provider, "account": one.account, "checks": [_build_check_data(check) for check in one.checks]}


def _build_check_data(check: HealthCheck) -> Mapping[str, object]:
    return {"check": check.subject, "outcome": check.outcome, "told": check.told, "fix": check.fix}


def _list_check_rows(every: Sequence[AccountChecks]) -> Iterator[tuple[str, ...]]:
    for one in every:
        for number, check in enumerate(one.checks):
            name, account = (one.provider, one.account or "?") if number == 0 else ("", "")
            yield name, account, check.subject, SIGNS.get(check.outcome, check.outcome), check.told


def _list_fixes(every: Sequence[AccountChecks]) -> Iterator[str]:
    """Yield the fixes as lines below the table, where a line can be as long as a command."""
    for one in every:
        for check in one.checks:
            if check.fix and check.outcome != CHECK_GOOD:
                yield f"{one.provider}, {check.subject}: {check.fix}"


def _format_check_counts(counted: Counter[str]) -> str:
    rest = ", ".join(f"{count} {word}" for word, count in sorted(counted.items()) if word not in (CHECK_GOOD, CHECK_BAD))
    return f"{counted[CHECK_GOOD]} good, {counted[CHECK_BAD]} bad{f', {rest}' if rest else ''}."


PROVIDERS_SCHEMA = "costguard.providers/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledProvider:
    """One provider.

    `missing`: packages of its SDK that are not installed. `configured`: whether it has a table in the settings.
    """

    manifest: ProviderManifest
    missing: tuple[str, ...]
    configured: bool


def build_providers_document(installed: Sequence[InstalledProvider], broken: Mapping[str, str]) -> Document:
    """Return the document of the installed providers.

    `broken`: plug-ins that cannot be used, with the reason.
    """
    warnings = tuple(f"the plug-in {name} cannot be used: {why}" for name, why in sorted(broken.items()))
    data = {
        "schema": PROVIDERS_SCHEMA,
        "abilities": dict(ABILITIES),
        "providers": [_build_provider_data(one) for one in installed],
        "broken": [{"name": name, "why": why} for name, why in sorted(broken.items())],
        "warnings": list(warnings),
    }
    return Document(
        data=data,
        records=tuple(_build_provider_record(one) for one in installed),
        lead=tuple(f"WARNING: {warning}" for warning in warnings),
        tables=(_build_ability_table(installed), _build_detail_table(installed)),
        notes=tuple(f"Not seen: {sentence}." for one in installed for sentence in _list_unseen_kinds(one.manifest)),
    )


def _build_provider_data(one: InstalledProvider) -> Mapping[str, object]:
    manifest = one.manifest
    return {
        "name": manifest.name,
        "title": manifest.title,
        "configured": one.configured,
        "sdk": _format_sdk(one),
        "install": f"pip install 'gpu-costguard[{manifest.extra}]'" if manifest.extra else None,
        "credentials": list(manifest.credentials),
        "key_at": manifest.key_at or None,
        "abilities": dict(manifest.abilities),
        "not_seen": list(manifest.not_seen),
        "settings": [{"name": setting.name, "kind": setting.kind, "told": setting.told} for setting in manifest.settings],
    }


def _build_provider_record(one: InstalledProvider) -> Mapping[str, object]:
    can = {ability: ability in one.manifest.abilities for ability in ABILITIES}
    return {"name": one.manifest.name, "configured": one.configured, "sdk": _format_sdk(one), **can}


def _format_sdk(one: InstalledProvider) -> str:
    """Return `none` if no SDK is needed, `missing` if it is not installed (see `install`), else `installed`."""
    return "none" if not one.manifest.extra else "missing" if one.missing else "installed"


def _build_ability_table(installed: Sequence[InstalledProvider]) -> TableView:
    rows = tuple(
        (
            one.manifest.name,
            "yes" if one.configured else "-",
            _format_sdk(one),
            *("yes" if ability in one.manifest.abilities else "-" for ability in ABILITIES),
        )
        for one in installed
    )
    return TableView(title="", columns=("provider", "configured", "SDK", *ABILITIES), rows=rows)


def _build_detail_table(installed: Sequence[InstalledProvider]) -> TableView:
    rows = tuple((one.manifest.name, ability, how) for one in installed for ability, how in one.manifest.abilities.items())
    return TableView(title="How, and how far", columns=("provider", "ability", "how"), rows=rows)


def _list_unseen_kinds(manifest: ProviderManifest) -> tuple[str, ...]:
    """Return each sentence about resources that are not seen, with the provider's name before it exactly once."""
    prefix = f"{manifest.title}: "
    return tuple(f"{prefix}{s.removeprefix(prefix).removesuffix('.')}" for s in manifest.not_seen)
