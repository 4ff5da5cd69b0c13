"""The fitted constants that turn datasheet peaks into tokens per second, and the widths of the intervals.

They are in `data/efficiency.json`, which `scripts/fit_efficiency.py` writes.

    seconds per token = arithmetic / exp(sum of weight x share) + sum of weight x seconds
    log rate = -log(seconds per token) + sum of weight x factor

Each name is a component of a step (see `step_time.py`), so every factor of an answer can be read: with `network` 20 us a token,
a weight of 0.6 and 100 us for everything before it, the factor is 100 / 112.

The interval is a split conformal one over sources (decision 0048): the errors of published runs, each predicted without its
source, each source with the same weight, at the level 0.8 (k + 1) / k of k sources. Jobs of a class that is predicted worse
(mixtures, offload), or with something nobody measured, get the width times a factor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from costguard.values.checks import require, require_number
from costguard.values.interval import Interval

UNITLESS_MOST = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """Costs of a step besides matrix products, in bytes, GB/s (1e9) and shares; the file gives the reason for each."""

    layer_bytes_per_hidden: float
    layer_bytes_per_ffn: float
    logits_bytes_per_word: float
    optimizer_bytes_per_weight: float
    dequantised_bytes_per_weight: float
    attention_per_fp32: float
    attention_per_fp32_old_kernel: float
    attention_per_fp32_blackwell: float
    attention_per_fp32_amd: float
    launch_s: float
    step_s: float
    routing_s: float
    adapter_launch_s: float
    expert_launch_s: float
    expert_fetch_s: float
    fused_share: float
    routed_bytes_per_hidden: float
    narrow_hidden: float
    pcie_gb_s: float
    pcie_node_gb_s: float
    fabric_share_per_gpu: float
    host_gb_s: float
    host_weights_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFamily:
    """GPUs of one generation, whose `arch` begins with `prefix`.

    `full_power_w_per_tflops`: power limit in watts per TFLOPS of the generation's least throttled large GPU. A GPU with less
    runs at lower clocks. None: not modelled. `achieved_share`: share of its peak that the best matrix product of that GPU
    reaches.
    """

    prefix: str
    full_power_w_per_tflops: float | None = None
    achieved_share: float = 0.8


UNKNOWN_FAMILY = GpuFamily(prefix="unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEfficiency:
    """How near a server comes to its GPU's peaks, fitted to published servers (`bench/serving.py`).

    - `bandwidth_share`, `compute_share`: of the bandwidth and of the peak arithmetic. `mixture_compute_share`: of a mixture.
    - `layer_s`: seconds a layer takes in a step besides, to launch its kernels.
    - `factor`, `mixture_factor`: the 80 % interval around the speed, as a factor.
    """

    bandwidth_share: float
    compute_share: float
    mixture_compute_share: float
    layer_s: float
    factor: float
    mixture_factor: float

    def get_factor(self, *, mixture: bool) -> float:
        """Return the factor by which the speed may be off either way."""
        return self.mixture_factor if mixture else self.factor


class SpeedSpread(NamedTuple):
    """Log half-width of the 80 % interval of a speed, and the factors by which it grows.

    - `dense`: of a dense model on a card and with a library that published runs used.
    - `mixture`, `host`: for a mixture, and for offload. `new_card`: no published run used the card or the library.
        `new_kind`: none used its generation of GPUs or had one of the job's components.
    """

    dense: float
    mixture: float
    host: float
    new_card: float
    new_kind: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """All fitted constants.

    - `weights`: weight by component. `evidence`: number of sources in which the component was not 0, and by "card NAME" and
        "library NAME" the sources that used them.
    - `spread`: the widths of intervals of speed.
    - `overhead`: hours of a weeks-long run divided by its steady-state hours (restarts, evaluation). Its low end is
        below 1, because few published long runs state how they were made.
    - `overhead_hours`: steady-state hours at which half of the overhead's log applies.
    """

    weights: Mapping[str, float]
    evidence: Mapping[str, float]
    families: tuple[GpuFamily, ...]
    physics: StepConstants
    serving: ServingEfficiency
    spread: SpeedSpread
    overhead: Interval
    overhead_hours: float

    def find_family(self, arch: str) -> GpuFamily:
        """Return the family with the longest prefix of `arch`; an unknown family if none matches."""
        fitting = [f for f in self.families if arch.startswith(f.prefix)]
        return max(fitting, key=lambda f: len(f.prefix), default=UNKNOWN_FAMILY)

    def list_unmeasured(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` (components, "card NAME", "library NAME") that no published run had."""
        return tuple(name for name in names if not self.evidence.get(name, 0))

    def compute_half_width(self, names: Collection[str]) -> float:
        """Return the log half-width of the interval for a job with these components, card and library."""
        missing = self.list_unmeasured(names)
        width = self.spread.dense
        width *= self.spread.mixture if "mixture" in names else 1
        width *= self.spread.host if "host" in names else 1
        if any(not name.startswith(OF_CARD) for name in missing):
            return width * self.spread.new_kind
        return width * (self.spread.new_card if missing else 1)


OF_CARD = ("card ", "library ", "method ", "length ")
"""How the names begin that say what a job runs on, and by which method at which length, rather than what a step costs."""


def read_efficiency(table: Mapping[str, object]) -> Efficiency:
    """Return the Efficiency from the parsed JSON file; raise InputError that names the first wrong figure."""
    overhead, achieved = _read_values(table, "overhead"), _read_values(table, "achieved_share")
    return Efficiency(
        weights=_read_values(table, "weights"),
        evidence=_read_values(table, "evidence"),
        families=tuple(
            GpuFamily(prefix=p, full_power_w_per_tflops=w, achieved_share=achieved[p])
            for p, w in _read_values(table, "full_power").items()
        ),
        physics=StepConstants(**_read_values(table, "physics")),
        serving=ServingEfficiency(**_read_values(table, "serving")),
        spread=SpeedSpread(**_read_values(table, "spread")),
        overhead=Interval(overhead["low"], overhead["expected"], overhead["high"]),
        overhead_hours=overhead["half_hours"],
    )


def _read_values(table: Mapping[str, object], name: str) -> dict[str, float]:
    part = _read_table(table, name)
    return {key: _read_value(part, key, name) for key in part}


def _read_value(table: Mapping[str, object], key: str, where: str) -> float:
    """Return a figure, written either as a number or as the `value` of a documented entry."""
    entry = table.get(key)
    return require_number(entry["value"] if isinstance(entry, Mapping) else entry, f"{where}.{key}", least=-UNITLESS_MOST)


def _read_table(table: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = table.get(name)
    if not isinstance(part, Mapping):
        require(
            truth=False, field=f"efficiency.{name}", what="is missing or not a table", hint="refit: scripts/fit_efficiency.py"
        )
        return {}
    return part
