"""What costguard can ask of each provider, as a document: `costguard.providers/1`, one record a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costguard.values.provider import ABILITIES, ProviderManifest
from costguard.views.document import Document, TableView

SCHEMA = "costguard.providers/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One provider. `missing`: packages of its SDK that are not installed; `configured`: it has a table in the settings."""

    manifest: ProviderManifest
    missing: tuple[str, ...]
    configured: bool


def providers_document(installed: Sequence[Installed], broken: Mapping[str, str]) -> Document:
    """`broken`: plug-ins that cannot be used, and why."""
    warnings = tuple(f"the plug-in {name} cannot be used: {why}" for name, why in sorted(broken.items()))
    data = {
        "schema": SCHEMA,
        "abilities": dict(ABILITIES),
        "providers": [_provider(one) for one in installed],
        "broken": [{"name": name, "why": why} for name, why in sorted(broken.items())],
        "warnings": list(warnings),
    }
    return Document(
        data=data,
        records=tuple(_record(one) for one in installed),
        lead=tuple(f"WARNING: {warning}" for warning in warnings),
        tables=(_matrix(installed), _details(installed)),
        notes=tuple(f"Not seen: {sentence}." for one in installed for sentence in _not_seen(one.manifest)),
    )


def _provider(one: Installed) -> Mapping[str, object]:
    manifest = one.manifest
    return {
        "name": manifest.name,
        "title": manifest.title,
        "configured": one.configured,
        "sdk": _sdk(one),
        "install": f"pip install 'gpu-costguard[{manifest.extra}]'" if manifest.extra else None,
        "credentials": list(manifest.credentials),
        "key_at": manifest.key_at or None,
        "abilities": dict(manifest.abilities),
        "not_seen": list(manifest.not_seen),
        "settings": [{"name": setting.name, "kind": setting.kind, "told": setting.told} for setting in manifest.settings],
    }


def _record(one: Installed) -> Mapping[str, object]:
    can = {ability: ability in one.manifest.abilities for ability in ABILITIES}
    return {"name": one.manifest.name, "configured": one.configured, "sdk": _sdk(one), **can}


def _sdk(one: Installed) -> str:
    """none: it needs none; missing: see `install`."""
    return "none" if not one.manifest.extra else "missing" if one.missing else "installed"


def _matrix(installed: Sequence[Installed]) -> TableView:
    rows = tuple(
        (
            one.manifest.name,
            "yes" if one.configured else "-",
            _sdk(one),
            *("yes" if ability in one.manifest.abilities else "-" for ability in ABILITIES),
        )
        for one in installed
    )
    return TableView(title="", columns=("provider", "configured", "SDK", *ABILITIES), rows=rows)


def _details(installed: Sequence[Installed]) -> TableView:
    rows = tuple((one.manifest.name, ability, how) for one in installed for ability, how in one.manifest.abilities.items())
    return TableView(title="How, and how far", columns=("provider", "ability", "how"), rows=rows)


def _not_seen(manifest: ProviderManifest) -> tuple[str, ...]:
    """Each sentence with the provider's name before it, once."""
    prefix = f"{manifest.title}: "
    return tuple(f"{prefix}{s.removeprefix(prefix).removesuffix('.')}" for s in manifest.not_seen)
