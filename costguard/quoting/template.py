"""Workload templates: common jobs, each with the hours and cost that its source claims, compared with a quote.

Example: the source documents claim that a LoRA fine-tune of a 7B model takes 4-12 h and $5-15 on one A100-80GB. That implies a
price of 5 / 4 = 15 / 12 = $1.25 a GPU-hour. costguard's 4 h (3.2 to 5.2) overlap with the claimed hours, so it comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costguard.errors import InputError, UnknownNameError
from costguard.quoting.quote import QuoteOption
from costguard.values.checks import find_nearest_names, require, require_known_keys, require_number, require_whole_number
from costguard.values.interval import Interval

TEMPLATE_KEYS = ("title", "tokens_why", "job", "claim")
CLAIM_KEYS = ("source", "gpu", "gpu_count", "nodes", "hours", "usd", "note")

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateClaim:
    """What a source claims of a job on given GPUs. `hours`, `usd`: (low, high). `note`: the explanation."""

    source: str
    gpu: str
    gpu_count: int
    nodes: int
    hours: tuple[float, float]
    usd: tuple[float, float] | None
    note: str

    @property
    def gpus(self) -> int:
        """Return the total number of GPUs."""
        return self.gpu_count * self.nodes

    @property
    def gpu_hour(self) -> tuple[float, float] | None:
        """Return the implied price of a GPU-hour, lower first; None if the claim states no cost."""
        if self.usd is None:
            return None
        low, high = sorted(usd / hours / self.gpus for usd, hours in zip(self.usd, self.hours, strict=True))
        return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTemplate:
    """A named job. `job`: as in a job file. `tokens_why`: the source of its amount of work. `claim` None: no claim."""

    name: str
    title: str
    tokens_why: str
    job: Table
    claim: TemplateClaim | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateComparison:
    """A template's job on the hardware of its claim. `option`: at the cheapest market price that is not spot.

    `lacking`: why there is no option; `changed`: keys in which the job differs from the template, so nothing is compared.
    """

    template: WorkloadTemplate
    option: QuoteOption | None = None
    lacking: str | None = None
    changed: tuple[str, ...] = ()

    @property
    def hours(self) -> Interval | None:
        """Return the hours on the claim's hardware."""
        return self.option.hours if self.option else None

    @property
    def usd_as_implied(self) -> Interval | None:
        """Return those hours at the price that the claim implies, in dollars."""
        claim = self.template.claim
        if claim is None or claim.gpu_hour is None or self.hours is None:
            return None
        low, high = claim.gpu_hour
        h, n = self.hours, claim.gpus
        return Interval(h.low * low * n, h.expected * (low + high) / 2 * n, h.high * high * n)

    @property
    def comes_out(self) -> bool | None:
        """Return whether costguard's interval and the claimed hours overlap; None if nothing is compared."""
        claim = self.template.claim
        if claim is None or self.hours is None:
            return None
        return self.hours.low <= claim.hours[1] and claim.hours[0] <= self.hours.high

    @property
    def ratio(self) -> float | None:
        """Return the expected hours divided by the nearest claimed hours."""
        claim = self.template.claim
        if claim is None or self.hours is None:
            return None
        nearest = min(max(self.hours.expected, claim.hours[0]), claim.hours[1])
        return self.hours.expected / nearest


def read_templates(tables: Table) -> dict[str, WorkloadTemplate]:
    """Return every template by name; raise InputError for the first invalid one."""
    return {name: _read_template(name, _read_table(table, name)) for name, table in tables.items()}


def find_template(name: object, templates: Mapping[str, WorkloadTemplate]) -> WorkloadTemplate:
    """Return the template of that name; raise UnknownNameError with the nearest names otherwise."""
    template = templates.get(name) if isinstance(name, str) else None
    if template is None:
        near = find_nearest_names(str(name), templates)
        raise UnknownNameError(
            "template", str(name), field="template", nearest=near, hint=f"write one of: {', '.join(templates)}"
        )
    return template


def list_changed_keys(job: Table, template: WorkloadTemplate) -> tuple[str, ...]:
    """Return the keys that make `job` a different job than the template's; limits and disk are ignored."""
    ignored_keys = ("limits", "disk_gb", "checkpoint_every_hours")
    keys = dict.fromkeys((*template.job, *job))
    return tuple(key for key in keys if key not in ignored_keys and job.get(key) != template.job.get(key))


def _read_template(name: str, table: Table) -> WorkloadTemplate:
    require_known_keys(table, TEMPLATE_KEYS, f"templates.{name}")
    return WorkloadTemplate(
        name=name,
        title=str(table["title"]),
        tokens_why=str(table["tokens_why"]),
        job=_read_table(table["job"], f"{name}.job"),
        claim=_read_claim(name, _read_table(table["claim"], f"{name}.claim")) if "claim" in table else None,
    )


def _read_claim(name: str, table: Table) -> TemplateClaim:
    where = f"templates.{name}.claim"
    require_known_keys(table, CLAIM_KEYS, where)
    return TemplateClaim(
        source=str(table["source"]),
        gpu=str(table["gpu"]),
        gpu_count=require_whole_number(table["gpu_count"], f"{where}.gpu_count"),
        nodes=require_whole_number(table.get("nodes", 1), f"{where}.nodes"),
        hours=_read_pair(table["hours"], f"{where}.hours"),
        usd=_read_pair(table["usd"], f"{where}.usd") if "usd" in table else None,
        note=str(table.get("note", "")),
    )


def _read_pair(value: object, field: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - a low and a high end
        raise InputError("must be [low, high]", field=field)
    low, high = (require_number(v, field) for v in value)
    require(0 < low <= high, field, "is not in order", "write [low, high]")
    return low, high


def _read_table(value: object, field: str) -> Table:
    if not isinstance(value, Mapping):
        raise InputError("must be a table", field=f"templates.{field}")
    return value
