"""Finding plug-ins: providers, notifiers and reports enter by entry points, one line in a pyproject.toml each.

A group is read once per question; nothing is imported until a plug-in is asked for by name. Providers are asked for their
manifests, which import no SDK and no network.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol, cast

from costguard.errors import CostguardError, InputError, UnknownNameError, shorten, to_one_line
from costguard.system.process import list_entry_points
from costguard.values.checks import find_nearest_names
from costguard.values.provider import ProviderManifest, ProviderSetting, Seller
from costguard.views.document import LongRenderer, Renderer

if TYPE_CHECKING:  # a type and no more: it brings what only a message needs
    from costguard.notifiers import ChannelPlugin
    from costguard.providers.ports.price_source import PublicPriceSource

REPORT_GROUP, PROVIDER_GROUP, NOTIFIER_GROUP = "costguard.reports", "costguard.providers", "costguard.notifiers"
PRICE_SOURCE_GROUP = "costguard.price_sources"
OUR_DISTRIBUTION = "gpu-costguard"
OUR_PREFIX = "costguard_"
"""How the packages of providers are called: costguard_aws brings the provider aws."""
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
"""What a provider may call itself: it is a key of the settings, a name in the ledger and a word of the command line."""

SECRET_VARIABLE = re.compile(r"KEY|SECRET|TOKEN|PASS|CREDENTIAL|_UR[IL]$", re.IGNORECASE)
LEAST_SECRET = 8
"""Characters of a variable's value that is looked for in a package's words: shorter ones are words of their own."""


class DiscoveredProvider(Protocol):
    """A provider's plug-in as discovered: its name and distribution. `services.configured_providers` opens it."""

    @property
    def manifest(self) -> ProviderManifest:
        """What it says of itself before it is asked anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRegistry:
    """`found`: plug-ins by the names of their manifests. `broken`: by the name one would have, why it cannot be used."""

    found: Mapping[str, DiscoveredProvider]
    broken: Mapping[str, str]

    def get(self, name: str, *, field: str = "provider") -> DiscoveredProvider:
        """The provider `name`; UnknownNameError with the nearest, CostguardError where it is there and broken."""
        if name in self.found:
            return self.found[name]
        if name in self.broken:
            raise CostguardError(f"the provider '{name}' cannot be used: {self.broken[name]}", field=field, hint=MEND_HINT)
        names = sorted(self.found)
        near = find_nearest_names(name, names)
        raise UnknownNameError("provider", name, field=field, nearest=near, hint=f"installed: {', '.join(names) or 'none'}")


MEND_HINT = "reinstall or remove the package that brings it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFormat:
    """A report format. `needs`: the field of a document that it is made of, "" for what every document has.

    `options`: flags of the command that it takes, too, by their names in Python. A module says both as NEEDS and OPTIONS.
    """

    name: str
    render: Renderer | LongRenderer
    needs: str = ""
    options: tuple[str, ...] = ()


def load_renderer(name: str) -> Renderer:
    """The report format `name`; UnknownNameError lists those installed."""
    return cast("Renderer", _load_entry_point(REPORT_GROUP, name, "format", "--format"))


FORMAT_BY_ENDING = {"htm": "html", "md": "markdown", "txt": "table"}
"""Endings of files that are not called as their format is."""
PACKED_ENDING = ".gz"
"""What is written to a file that ends so is packed; the ending before it is the one that counts."""


def find_format_by_ending(file: str) -> str:
    """The format that the ending of `file` speaks of: html for x.html, focus-parquet for x.parquet, csv for x.csv.gz.

    table where it has none (october, october.2026); InputError for an ending of no format (x.xlsx), with those there are.
    """
    ending = _get_ending(file)
    if not ending[:1].isalpha():
        return "table"
    format_name, names = FORMAT_BY_ENDING.get(ending, ending), sorted(list_entry_points(REPORT_GROUP).names)
    made_for = [name for name in names if name == format_name or name.endswith(f"-{format_name}")]
    if not made_for:
        endings = ", ".join(f".{one}" for one in sorted({*FORMAT_BY_ENDING, *(name.rpartition("-")[2] for name in names)}))
        hint = f"end it in {endings}, any of them with {PACKED_ENDING} behind it, or say which with --format NAME"
        raise InputError(f"ends in .{shorten(ending, 20)}, which no format uses", field=file, hint=hint)
    return min(made_for, key=lambda name: name != format_name)


def _get_ending(file: str) -> str:
    """`csv` of x.CSV and of x.csv.gz; "" of x."""
    path = PurePath(file)
    if path.suffix.lower() == PACKED_ENDING:
        path = path.with_suffix("")
    return path.suffix.lower().removeprefix(".")


def load_report_format(name: str, *, file: str = "") -> ReportFormat:
    """The report format `name`; for `file` the variant made for its ending: `focus` for x.parquet is `focus-parquet`."""
    ending = _get_ending(file)
    if ending and f"{name}-{ending}" in list_entry_points(REPORT_GROUP).names:
        name = f"{name}-{ending}"
    render = load_renderer(name)
    module = sys.modules.get(getattr(render, "__module__", ""))
    needs, options = getattr(module, "NEEDS", ""), getattr(module, "OPTIONS", ())
    return ReportFormat(name=name, render=render, needs=needs, options=tuple(options))


def load_notifier(name: str) -> ChannelPlugin:
    """The channel `name`; UnknownNameError lists those installed."""
    return cast("ChannelPlugin", _load_entry_point(NOTIFIER_GROUP, name, "channel", "channel"))


def load_providers() -> ProviderRegistry:
    """Every installed provider. One that cannot be imported, or says nothing of itself, is named and stops no other."""
    providers, broken = dict[str, DiscoveredProvider](), dict[str, str]()
    for point in sorted(
        list_entry_points(PROVIDER_GROUP), key=lambda point: (not point.name.startswith(OUR_PREFIX), point.name)
    ):
        name = point.name.removeprefix(OUR_PREFIX)
        try:
            plugin = _load_provider(point)
        except (Exception, SystemExit) as wrong:  # noqa: BLE001 - a package that somebody else wrote may raise anything
            broken[name] = _describe_failure(wrong)
            continue
        name = plugin.manifest.name
        if name in providers:
            broken[point.name] = f"its name is {name}, which another package also has"
        else:
            providers[name] = plugin
    return ProviderRegistry(found=providers, broken=broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSourceRegistry:
    """`found`: installed sources of public prices by name. `broken`: by name, why a source cannot be used."""

    found: Mapping[str, PublicPriceSource]
    broken: Mapping[str, str]


def load_price_sources() -> PriceSourceRegistry:
    """Every installed source of public prices. One that cannot be imported is named and stops no other."""
    from costguard.providers.ports.price_source import PriceSourceFacts

    sources: dict[str, PublicPriceSource] = {}
    broken: dict[str, str] = {}
    for point in sorted(list_entry_points(PRICE_SOURCE_GROUP), key=lambda point: point.name):
        try:
            source = point.load()
            facts = source.facts
            if not isinstance(facts, PriceSourceFacts) or facts.name != point.name:
                raise TypeError(f"{point.value} is not the price source {point.name}")  # noqa: TRY301 - named as any other
        except (Exception, SystemExit) as wrong:  # noqa: BLE001 - a package that somebody else wrote may raise anything
            broken[point.name] = _describe_failure(wrong)
            continue
        sources[point.name] = source
    return PriceSourceRegistry(found=sources, broken=broken)


def load_sellers() -> dict[str, Seller]:
    """What exports call every installed provider that says so, by what the ledger calls it."""
    return {name: one.manifest.seller for name, one in load_providers().found.items() if one.manifest.seller is not None}


def _describe_failure(wrong: BaseException) -> str:
    """What broke a package, in its own words, without any secret that the environment holds: its author may have quoted one."""
    text = f"{type(wrong).__name__}: {wrong}"
    for name, value in os.environ.items():
        if SECRET_VARIABLE.search(name) and len(value) >= LEAST_SECRET:
            text = text.replace(value, "[secret]")
    return shorten(to_one_line(text), 200)


def find_missing_packages(manifest: ProviderManifest) -> tuple[str, ...]:
    """The packages of the extra that `manifest` needs which are not installed; nothing is imported for it."""
    try:
        needed = (distribution(OUR_DISTRIBUTION).requires or []) if manifest.extra else []
    except PackageNotFoundError:
        return ()
    marker = re.compile(rf"""extra\s*==\s*['"]{re.escape(manifest.extra)}['"]""")
    names = [match[0] for line in needed if marker.search(line) and (match := re.match(r"[A-Za-z0-9._-]+", line))]
    return tuple(name for name in names if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _load_provider(point: EntryPoint) -> DiscoveredProvider:
    """The object behind `point`, which must hold a manifest."""
    plugin = point.load()
    manifest = getattr(plugin, "manifest", None)
    if not isinstance(manifest, ProviderManifest):
        raise TypeError(f"{point.value} is not a provider: it has no manifest")
    if not isinstance(manifest.name, str) or not PROVIDER_NAME.fullmatch(manifest.name):
        raise TypeError(f"{point.value} has an invalid provider name: use small letters, digits, - and _")
    texts = (manifest.title, manifest.extra, manifest.key_at, *manifest.credentials, *manifest.not_seen)
    strings = (*texts, *manifest.abilities, *manifest.abilities.values())
    kinds = (*((one, ProviderSetting) for one in manifest.settings), (manifest.seller, Seller | None))
    if not all(isinstance(one, str) for one in strings) or not all(isinstance(one, kind) for one, kind in kinds):
        raise TypeError(f"{point.value} has a manifest that cannot be read")
    return cast("DiscoveredProvider", plugin)


def _load_entry_point(group: str, name: str, kind: str, field: str) -> Callable[..., object]:
    """The object behind entry point `name` of `group`."""
    entry_points = list_entry_points(group)
    if name not in entry_points.names:
        names = tuple(sorted(entry_points.names))
        raise UnknownNameError(
            kind, name, field=field, nearest=find_nearest_names(name, names), hint=f"installed: {', '.join(names) or 'none'}"
        )
    try:
        return cast("Callable[..., object]", entry_points[name].load())
    except (ImportError, AttributeError) as broken:
        raise CostguardError(f"the plug-in '{name}' of {group} cannot be loaded: {broken}", hint=MEND_HINT) from broken
