"""The fitted constants that turn datasheet peaks into tokens a second.

They stand in `data/efficiency.json`, which `scripts/fit_efficiency.py` makes.

    log rate = log ideal rate + sum of weight x feature

The ideal rate is peak arithmetic and nothing else; each feature is a named cost (see `throughput.py`), so every factor of an
answer can be read: `network` 0.34 with weight 0.4 is a factor exp(-0.4 x 0.34) = 0.87.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costguard.values.checks import require, require_number
from costguard.values.interval import Interval

UNITLESS_MOST = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """What a step costs besides matrix multiplications. Bytes, GB/s (1e9) and shares; each one's reason stands in the file."""

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
    """GPUs of one generation: `arch` begins with `prefix`.

    `full_power_w_per_tflops`: what its least throttled large part may draw; a part allowed less runs at lower clocks.
    None: not modelled.
    """

    prefix: str
    full_power_w_per_tflops: float | None = None


UNKNOWN_FAMILY = GpuFamily(prefix="unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEfficiency:
    """Shares of bandwidth and of peak arithmetic that decoding and prefill reach, and the 80 % factor around them."""

    bandwidth_share: float
    compute_share: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """All constants. `weights`: feature -> weight. `evidence`: feature -> published rows in which it was not 0.

    `spread_seen` and `spread_unseen`: log half-width of the 80 % interval of a speed, where every feature of the job
    has evidence and where one has none. `overhead`: hours of a run of weeks over those of its steady state (restarts,
    evaluation), below 1 at its low end, since few long runs say how they were made; `overhead_hours`: the steady state
    at which half of its log has come about.
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
        """The family whose prefix fits `arch` best; one nobody has timed where none does."""
        fitting = [f for f in self.families if arch.startswith(f.prefix)]
        return max(fitting, key=lambda f: len(f.prefix), default=UNKNOWN_FAMILY)

    def choose_spread(self, features: Mapping[str, float]) -> float:
        """Log half-width for a job of these features."""
        seen = all(self.evidence.get(name, 0) > 0 for name, x in features.items() if x)
        return self.spread_seen if seen else self.spread_unseen


def read_efficiency(table: Mapping[str, object]) -> Efficiency:
    """Efficiency from the parsed JSON file; the first wrong figure is named."""
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
    """A figure, either bare or the `value` of a documented entry."""
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
