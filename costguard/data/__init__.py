"""Shipped, dated facts, each file read at most once a process.

Facts that hold for all clouds lie beside this file. Facts of one cloud lie in the package of its plug-in: `billing.toml` (what
bills when), `storage_rates.csv` (prices of disks), `machine_rates.csv` and `region_factors.csv` (public prices of machines
without a GPU, and of regions), `interruptions.csv` (how often spot machines are taken back). The plug-in's entry point says
where; none of its code is imported. Every file names the source and date of its rows; a value that no source gives is empty,
never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

from costguard.errors import InputError, UnknownNameError
from costguard.values.checks import find_nearest_names, require
from costguard.values.gpu import Gpu, GpuNames, read_gpus

if TYPE_CHECKING:  # what reads a file is imported with it: a status needs no word of sizing
    from costguard.metering.billing import BillingRule
    from costguard.quoting.checkpoints import ObjectStorage
    from costguard.quoting.machine_rates import MachineRates, RegionFactors
    from costguard.quoting.offer import Subscription
    from costguard.quoting.price_drift import PriceDrift
    from costguard.quoting.storage import StorageRate
    from costguard.quoting.template import WorkloadTemplate
    from costguard.sizing.architecture import Architecture
    from costguard.sizing.speed.duration import InterruptionRate
    from costguard.sizing.speed.efficiency import Efficiency

FOLDER = Path(__file__).parent
MARKET = FOLDER / "market.sqlite"
"""The shipped price snapshot (`scripts/build_market.py`)."""
CHECKOUT_PAGES = {"docs": FOLDER.parents[1] / "docs", "iam": FOLDER.parents[1] / "config" / "iam"}
"""Where the pages are in a checkout; the wheel has them beside this file (`force-include` in pyproject.toml)."""
EXAMPLES = FOLDER / "examples"
"""Settings files to begin with: `costguard init --example lab`."""


PROVIDER_GROUP, PROVIDER_PREFIX = "costguard.providers", "costguard_"
"""Entry points of provider plug-ins; the plug-in `aws` comes with the package `costguard_aws`."""


class ShippedFacts:
    """What is shipped: reads a file when somebody first asks for what is in it."""

    def get_architecture(self, name: str) -> Architecture:
        """Return the shape of the model `name`: shipped, by any spelling, or else of its stated size in the nearest shape.

        Raise UnknownNameError with the nearest names if the name states no size either.
        """
        return self.get_shipped_architecture(name) or self._build_by_size(name)

    def get_shipped_architecture(self, name: str) -> Architecture | None:
        """Return the shape of the shipped model that `name` means; None if it means none."""
        match = self.find_model(name)
        return match and self._build_shipped(*match)

    def _build_shipped(self, key: str, stored: str | None) -> Architecture:
        from costguard.sizing.huggingface import build_architecture_from_config

        entry = self._models[key]
        built = build_architecture_from_config(self._get_config(key), name=key)
        denoising = cast("Mapping[str, object]", entry.get("denoising", {}))
        return replace(
            built,
            released_precision=stored or str(entry["released_precision"]),
            denoising_steps=cast("int | None", denoising.get("steps")),
            guided=bool(denoising.get("guided", built.guided)),
        )

    def find_model(self, name: str) -> tuple[str, str | None] | None:
        """Return the shipped model that `name` means, and what its weights are stored in if the name says so."""
        from costguard.sizing.model_names import find_model

        return (name, None) if name in self._models else find_model(name, self._spellings)

    def config(self, name: str) -> Mapping[str, object]:
        """The Hugging Face config of the shipped model `name` (or alias): what differs from its class's defaults."""
        match = self.find_model(name)
        if match is None:
            raise self._build_unknown_model(name)
        return self._get_config(match[0])

    def _get_config(self, key: str) -> Mapping[str, object]:
        return cast("Mapping[str, object]", self._models[key]["config"])

    def _build_by_size(self, name: str) -> Architecture:
        """Return the nearest shipped shape with the parameters that the name states, if it has half to twice as many."""
        from costguard.sizing.nearest_models import FAR_SIZE, read_size

        size, error = read_size(name.rpartition("/")[2]), self._build_unknown_model(name)
        require(not name.startswith("-"), "model", f"'{name}' starts with a sign", "write the parameters as 7b, above zero")
        if size is None or not error.nearest:
            raise error
        shape = error.nearest[0]
        if not 1 / FAR_SIZE <= size / cast("int", self._models[shape]["published_params"]) <= FAR_SIZE:
            raise error
        note = (
            f"the shape of '{name}' is not known: sized by the {size / 1e9:.4g} B of its name in the shape of {shape}; "
            "its config.json would say more"
        )
        built = self._build_shipped(shape, None)
        return replace(
            built, name=name, stated_params=round(size), shape_of=shape, notes=(*built.notes, note), released_precision=None
        )

    def _build_unknown_model(self, name: str) -> UnknownNameError:
        """Return the error for a name that is not shipped, with the nearest shapes that are."""
        from costguard.sizing.nearest_models import ShippedModel, find_nearest_models

        shipped = {
            key: ShippedModel(float(cast("int", entry["published_params"])), str(self._get_config(key).get("model_type")))
            for key, entry in self._models.items()
        }
        near = find_nearest_models(name, shipped)
        best = f"the nearest shipped shape is {near[0]} ({shipped[near[0]].parameters / 1e9:.3g} B); " if near else ""
        hint = f"{best}or give its config.json, or an [architecture] table"
        return UnknownNameError("model", name, field="model", nearest=near, hint=hint)

    def get_gpus(self) -> Mapping[str, Gpu]:
        """Every known GPU by its canonical name."""
        return self._gpus

    def get_gpu_names(self) -> GpuNames:
        """Return the names of the GPUs of `get_gpus`: its tables are built once (2 ms), and not with each quote."""
        return self._gpu_names

    def get_efficiency(self) -> Efficiency:
        """Fitted constants that turn peak FLOPs into tokens a second."""
        return self._efficiency

    def get_storage_rates(self) -> Mapping[str, StorageRate]:
        """What a running machine's disk costs, by provider; a provider that is absent is unknown."""
        return self._storage_rates

    def get_billing_rules(self) -> Mapping[str, BillingRule]:
        """What bills when, by provider; one that is absent gets a careful rule (`metering.billing`)."""
        return self._billing_rules

    def get_machine_rates(self) -> MachineRates:
        """Public rates of machines without a GPU, with the factors of regions."""
        return self._machine_rates

    def get_interruptions(self) -> Mapping[str, InterruptionRate]:
        """How often spot machines are taken back, by provider; `*` stands for every other."""
        return self._interruptions

    def get_object_storage(self) -> Mapping[str, ObjectStorage]:
        """What it costs to keep checkpoints, by provider; a provider that is absent is unknown."""
        from costguard.quoting.checkpoints import read_object_storage

        return read_object_storage(_read_rows(FOLDER / "object_storage.csv"))

    def templates(self) -> Mapping[str, WorkloadTemplate]:
        """Every shipped workload template by its name."""
        return self._templates

    def get_price_drift(self) -> Mapping[str, PriceDrift]:
        """How prices move with their age, by drift class."""
        return self._price_drift

    def get_subscriptions(self) -> tuple[Subscription, ...]:
        """Plans that sell access rather than machines."""
        from costguard.quoting.offer import read_subscriptions

        return read_subscriptions(_read_rows(FOLDER / "subscriptions.csv"))

    @cached_property
    def _models(self) -> dict[str, dict[str, object]]:
        return cast("dict[str, dict[str, dict[str, object]]]", _read_json("architectures.json"))["models"]

    def list_models(self) -> dict[str, tuple[str, ...]]:
        """Every shipped model with the other names that it goes by."""
        return {name: tuple(cast("list[str]", entry["aliases"])) for name, entry in self._models.items()}

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Every spelling, folded, to the shipped name."""
        from costguard.sizing.model_names import list_spellings

        return list_spellings(self.list_models())

    @cached_property
    def _templates(self) -> dict[str, WorkloadTemplate]:
        import tomllib

        from costguard.quoting.template import read_templates

        return read_templates(tomllib.loads((FOLDER / "templates.toml").read_text(encoding="utf-8")))

    @cached_property
    def _gpus(self) -> dict[str, Gpu]:
        return read_gpus(_read_rows(FOLDER / "gpus.csv"))

    @cached_property
    def _gpu_names(self) -> GpuNames:
        return GpuNames(self._gpus)

    @cached_property
    def _efficiency(self) -> Efficiency:
        from costguard.sizing.speed.efficiency import read_efficiency

        return read_efficiency(cast("Mapping[str, object]", _read_json("efficiency.json")))

    @cached_property
    def _storage_rates(self) -> dict[str, StorageRate]:
        from costguard.quoting.storage import read_storage_rates

        return read_storage_rates(row for rows in self._storage_rows.values() for row in rows)

    @cached_property
    def _storage_rows(self) -> dict[str, list[dict[str, str]]]:
        """Plug-in -> its rows of `storage_rates.csv`."""
        return {name: list(_read_provider_rows(name, folder, "storage_rates.csv")) for name, folder in _find_provider_folders()}

    @cached_property
    def _price_drift(self) -> dict[str, PriceDrift]:
        from costguard.quoting.price_drift import read_price_drift

        return read_price_drift(_read_rows(FOLDER / "price_drift.csv"))

    @cached_property
    def _billing_rules(self) -> dict[str, BillingRule]:
        import tomllib

        from costguard.metering.billing_table import read_billing_rules

        rules: dict[str, BillingRule] = {}
        for name, folder in _find_provider_folders():
            file = folder / "billing.toml"
            if file.is_file():
                table = tomllib.loads(file.read_text(encoding="utf-8"))
                _check_speaks_for(name, table, file)
                rows, regions = self._storage_rows[name], self._region_factors
                rules |= read_billing_rules(table, f"{folder.name}/billing.toml", rows, regions)
        return rules

    @cached_property
    def _machine_rates(self) -> MachineRates:
        from costguard.quoting.machine_rates import read_machine_rates

        return read_machine_rates(self._read_of_providers("machine_rates.csv"), self._region_factors)

    @cached_property
    def _region_factors(self) -> RegionFactors:
        from costguard.quoting.machine_rates import read_region_factors

        return read_region_factors(self._read_of_providers("region_factors.csv"))

    def _read_of_providers(self, file: str) -> Iterator[dict[str, str]]:
        """Yield the rows of `file` in every provider's package that has one."""
        return chain.from_iterable(_read_provider_rows(name, folder, file) for name, folder in _find_provider_folders())

    @cached_property
    def _interruptions(self) -> dict[str, InterruptionRate]:
        from costguard.sizing.speed.duration import read_interruptions

        of_providers = (_read_provider_rows(name, folder, "interruptions.csv") for name, folder in _find_provider_folders())
        return read_interruptions(chain(_read_rows(FOLDER / "interruptions.csv"), *of_providers))


@cache
def _find_provider_folders() -> tuple[tuple[str, Path], ...]:
    """(plug-in, folder of its package) of every installed provider, by name."""
    from importlib.util import find_spec

    from costguard.system.process import list_entry_points

    folders = dict[str, Path]()
    for point in list_entry_points(PROVIDER_GROUP):
        spec = find_spec(point.module.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            folders[point.name.removeprefix(PROVIDER_PREFIX)] = Path(spec.submodule_search_locations[0])
    return tuple(sorted(folders.items()))


def _read_provider_rows(name: str, folder: Path, file: str) -> Iterator[dict[str, str]]:
    if (folder / file).is_file():
        for row in _read_rows(folder / file):
            _check_speaks_for(name, (row["provider"],), folder / file)
            yield row


def _check_speaks_for(name: str, providers: Iterable[str], file: Path) -> None:
    """A plug-in states facts of itself alone: `sim` of sim and sim-aws, and `acme` never of aws."""
    for provider in providers:
        if provider != name and not provider.startswith(f"{name}-"):
            what = f"states facts of {provider}, and the plug-in is {name}"
            raise InputError(what, field=str(file), hint="reinstall or remove the package that brings it")


def _read_rows(file: Path) -> Iterator[dict[str, str]]:
    import csv

    with file.open(encoding="utf-8", newline="") as rows:
        yield from csv.DictReader(rows)


def _read_json(name: str) -> object:
    import json

    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def read_shipped_page(kind: str, name: str | None) -> str:
    """Return the text of the page `name` of `kind` ("docs", "iam"); without `name` the names, a line each."""
    folder = FOLDER / kind if (FOLDER / kind).is_dir() else CHECKOUT_PAGES[kind]
    pages = {path.stem.lower(): path for path in sorted(folder.glob("*.*")) if path.is_file()}
    if name is None:
        return "".join(f"{one}\n" for one in pages)
    page = pages.get(name.lower().rpartition(".")[0] or name.lower()) or pages.get(name.lower())
    if page is None:
        hint = f"costguard {kind} lists them"
        raise UnknownNameError("page", name, field=kind, nearest=find_nearest_names(name.lower(), pages), hint=hint)
    return page.read_text(encoding="utf-8")
