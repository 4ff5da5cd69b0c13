"""The 80 % interval of a peak: how far published peaks of sources nobody had seen lay from what was predicted.

It is a split conformal interval over sources, as that of speed: the errors of published peaks, each source with the same
weight, at the level 0.8 (k + 1) / k of k sources, and a third wider because the model was built with them in view
(scripts/fit_memory_interval.py prints the figures below; decision 0048).

Example: 40 GB on one GPU with a log half-width of 0.09 is 36.6 to 43.8 GB. The same job sharded over eight GPUs has twice the
width: 33.4 to 47.9 GB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costguard.values.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSpread:
    """Log half-width of the 80 % interval of a peak on one GPU, and the factors by which it grows.

    `sharded`: where several GPUs share the job. `mixture`: where the model has experts.
    """

    one_gpu: float
    sharded: float
    mixture: float

    def compute_half_width(self, *, sharded: bool, mixture: bool) -> float:
        """Return the log half-width for a job of these classes; never less than LEAST_HALF_WIDTH."""
        width = self.one_gpu * (self.sharded if sharded else 1) * (self.mixture if mixture else 1)
        return max(LEAST_HALF_WIDTH, width)


LEAST_HALF_WIDTH = 0.05
"""Half of the log by which two sources of one recipe differ: allocators, drivers and library versions (memory_dev.csv: the same
LoRA of Llama-2-7B by litgpt and by PEFT differs by a tenth). No interval is narrower."""

PEAK_SPREAD = PeakSpread(one_gpu=0.089, sharded=2.0, mixture=2.0)
"""Printed by scripts/fit_memory_interval.py from memory_dev.csv and memory2_dev.csv, 2026-11."""


def compute_peak_interval(peak: float, *, sharded: bool, mixture: bool) -> Interval:
    """Return the 80 % interval of a peak of `peak` bytes."""
    return Interval.around(peak, math.exp(PEAK_SPREAD.compute_half_width(sharded=sharded, mixture=mixture)))
