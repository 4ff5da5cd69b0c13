"""What costguard can ask of each provider, as a document: `costguard.providers/1`, one record a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costguard.values.provider import ABILITIES, ProviderManifest
from costguard.views.document import Document, TableView

PROVIDERS_SCHEMA = "costguard.providers/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledProvider:
    """One provider. `missing`: packages of its SDK that are not installed; `configured`: it has a table in the settings."""

    manifest: ProviderManifest
    missing: tuple[str, ...]
    configured: bool


def build_providers_document(installed: Sequence[InstalledProvider], broken: Mapping[str, str]) -> Document:
    """`broken`: plug-ins that cannot be used, and why."""
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
    """none: it needs none; missing: see `install`."""
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
    """Each sentence with the provider's name before it, once."""
    prefix = f"{manifest.title}: "
    return tuple(f"{prefix}{s.removeprefix(prefix).removesuffix('.')}" for s in manifest.not_seen)
