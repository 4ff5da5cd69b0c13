"""The fitted constants that turn datasheet peaks into tokens per second.

They are in `data/efficiency.json`, which `scripts/fit_efficiency.py` writes.

    log rate = log ideal rate + sum of weight x feature

The ideal rate is peak arithmetic only. Each feature is a named cost (see `throughput.py`), so every factor of an answer can be
read: `network` 0.34 with weight 0.4 is a factor exp(-0.4 x 0.34) = 0.87.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    attention_slowdown: float
    attention_slowdown_old_kernel: float
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
    runs at lower clocks. None: not modelled.
    """

    prefix: str
    full_power_w_per_tflops: float | None = None


UNKNOWN_FAMILY = GpuFamily(prefix="unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEfficiency:
    """Shares of bandwidth and peak arithmetic that decoding and prefill reach, and the 80 % factor around the speed."""

    bandwidth_share: float
    compute_share: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """All fitted constants.

    - `weights`: weight by feature. `evidence`: number of published rows in which the feature was not 0.
    - `spread_seen`, `spread_unseen`: log half-width of the 80 % interval of a speed, if every feature of the job has
        evidence and if one has none.
    - `overhead`: hours of a weeks-long run divided by its steady-state hours (restarts, evaluation). Its low end is
        below 1, because few published long runs state how they were made.
    - `overhead_hours`: steady-state hours at which half of the overhead's log applies.
    """

    weights: Mapping[str, float]
    evidence: Mapping[str, float]
    families: tuple[GpuFamily, ...]
    physics: StepConstants
    serving: ServingEfficiency
    spread_seen: float
    spread_unseen: float
    overhead: Interval
    overhead_hours: float

    def find_family(self, arch: str) -> GpuFamily:
        """Return the family with the longest prefix of `arch`; an unknown family if none matches."""
        fitting = [f for f in self.families if arch.startswith(f.prefix)]
        return max(fitting, key=lambda f: len(f.prefix), default=UNKNOWN_FAMILY)

    def choose_spread(self, features: Mapping[str, float]) -> float:
        """Return the log half-width for a job with these features."""
        seen = all(self.evidence.get(name, 0) > 0 for name, x in features.items() if x)
        return self.spread_seen if seen else self.spread_unseen


def read_efficiency(table: Mapping[str, object]) -> Efficiency:
    """Return the Efficiency from the parsed JSON file; raise InputError that names the first wrong figure."""
    spread, overhead = _read_values(table, "spread"), _read_values(table, "overhead")
    return Efficiency(
        weights=_read_values(table, "weights"),
        evidence=_read_values(table, "evidence"),
        families=tuple(GpuFamily(prefix=p, full_power_w_per_tflops=w) for p, w in _read_values(table, "full_power").items()),
        physics=StepConstants(**_read_values(table, "physics")),
        serving=ServingEfficiency(**_read_values(table, "serving")),
        spread_seen=spread["seen"],
        spread_unseen=spread["unseen"],
        overhead=Interval(overhead["low"], overhead["expected"], overhead["high"]),
        overhead_hours=overhead["half_hours"],
    )


def _read_values(table: Mapping[str, object], name: str) -> dict[str, float]:
    part = _read_table(table, name)
    return {key: _read_value(part, key, name) for key in part}


def _read_value(table: Mapping[str, object], key: str, where: str) -> float:
    """Return a figure, written either as a number or as the `value` of a documented entry."""
    found = table.get(key)
    return require_number(found["value"] if isinstance(found, Mapping) else found, f"{where}.{key}", least=-UNITLESS_MOST)


def _read_table(table: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = table.get(name)
    if not isinstance(part, Mapping):
        require(
            truth=False, field=f"efficiency.{name}", what="is missing or not a table", hint="refit: scripts/fit_efficiency.py"
        )
        return {}
    return part
