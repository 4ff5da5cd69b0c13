"""Shipped, dated facts, read from the files beside this one, each at most once a process.

Every file names where its rows come from and when; a value no source gives is empty, never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from costguard.errors import UnknownNameError
from costguard.quoting.storage import StorageRate, read_storage_rates
from costguard.quoting.subscription import Subscription, read_subscriptions
from costguard.sizing.architecture import Architecture
from costguard.sizing.speed.duration import InterruptionRate, read_interruptions
from costguard.sizing.speed.efficiency import Efficiency, read_efficiency
from costguard.values.checks import find_nearest_names, fold_name
from costguard.values.gpu import Gpu, read_gpus

if TYPE_CHECKING:  # read only when one is asked for
    from costguard.metering.billing import BillingRule
    from costguard.quoting.template import WorkloadTemplate

FOLDER = Path(__file__).parent
MARKET = FOLDER / "market.sqlite"
"""The shipped price snapshot (`scripts/build_market.py`)."""


class ShippedFacts:
    """What is shipped: reads a file when somebody first asks for what is in it."""

    def get_architecture(self, name: str) -> Architecture:
        """The shape of the shipped model `name` (or alias); UnknownNameError with the nearest names."""
        from costguard.sizing.huggingface import build_architecture_from_config

        key = self._find_name(name)
        return build_architecture_from_config(self._get_config(key), name=key)

    def config(self, name: str) -> Mapping[str, object]:
        """The Hugging Face config of the shipped model `name` (or alias): what differs from its class's defaults."""
        return self._get_config(self._find_name(name))

    def _get_config(self, key: str) -> Mapping[str, object]:
        return cast("Mapping[str, object]", self._models[key]["config"])

    def _find_name(self, name: str) -> str:
        key = name if name in self._models else self._aliases.get(fold_name(name))
        if key is None:
            raise UnknownNameError(
                "model",
                name,
                field="model",
                nearest=find_nearest_names(name, self._models),
                hint="or give a config.json, or an [architecture] table",
            )
        return key

    def get_gpus(self) -> Mapping[str, Gpu]:
        """Every known GPU by its canonical name."""
        return self._gpus

    def get_efficiency(self) -> Efficiency:
        """Fitted constants that turn peak FLOPs into tokens a second."""
        return self._efficiency

    def get_storage_rates(self) -> Mapping[str, StorageRate]:
        """What a running machine's disk costs, by provider; a provider that is absent is unknown."""
        return self._storage_rates

    def get_billing_rules(self) -> Mapping[str, BillingRule]:
        """What bills when, by provider; one that is absent gets a careful rule (`core.metering.billing.rule_for`)."""
        return self._billing_rules

    def get_interruptions(self) -> Mapping[str, InterruptionRate]:
        """How often spot machines are taken back, by provider; `*` stands for every other."""
        return self._interruptions

    def templates(self) -> Mapping[str, WorkloadTemplate]:
        """Every shipped workload template by its name."""
        return self._templates

    def get_subscriptions(self) -> tuple[Subscription, ...]:
        """Plans that sell access rather than machines."""
        return read_subscriptions(_read_rows("subscriptions.csv"))

    @cached_property
    def _models(self) -> dict[str, dict[str, object]]:
        return cast("dict[str, dict[str, dict[str, object]]]", _read_json("architectures.json"))["models"]

    @cached_property
    def _aliases(self) -> dict[str, str]:
        """Every spelling, folded, to the shipped name."""
        named = ((name, (name, *cast("list[str]", entry["aliases"]))) for name, entry in self._models.items())
        return {fold_name(spelling): name for name, spellings in named for spelling in spellings}

    @cached_property
    def _templates(self) -> dict[str, WorkloadTemplate]:
        import tomllib

        from costguard.quoting.template import read_templates

        return read_templates(tomllib.loads((FOLDER / "templates.toml").read_text(encoding="utf-8")))

    @cached_property
    def _gpus(self) -> dict[str, Gpu]:
        return read_gpus(_read_rows("gpus.csv"))

    @cached_property
    def _efficiency(self) -> Efficiency:
        return read_efficiency(cast("Mapping[str, object]", _read_json("efficiency.json")))

    @cached_property
    def _storage_rates(self) -> dict[str, StorageRate]:
        return read_storage_rates(_read_rows("storage_rates.csv"))

    @cached_property
    def _billing_rules(self) -> dict[str, BillingRule]:
        import tomllib

        from costguard.metering.billing_table import read_billing_rules

        table = tomllib.loads((FOLDER / "billing.toml").read_text(encoding="utf-8"))
        return read_billing_rules(table, "billing.toml", _read_rows("storage_rates.csv"))

    @cached_property
    def _interruptions(self) -> dict[str, InterruptionRate]:
        return read_interruptions(_read_rows("interruptions.csv"))


def _read_rows(name: str) -> Iterator[dict[str, str]]:
    import csv

    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _read_json(name: str) -> object:
    import json

    return json.loads((FOLDER / name).read_text(encoding="utf-8"))
