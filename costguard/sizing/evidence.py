"""Observed runs beside what was expected of them: which ones count, which do not and why, and what they say together.

Example: of five runs one is 40 times slower than expected (somebody wrote tokens a minute), and two are the same job on the
same GPU at 1,000 and 3,000 tokens a second, of which nobody can say which is right. Two runs are left, and three are named.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from costguard.sizing.calibration import MEMORY_SPREAD, Calibration, RunFamily, compute_usual_variance, estimate_family
from costguard.sizing.job import Table
from costguard.sizing.observed_runs import ObservedRun

FAR_OFF = math.log(10)
"""Observed over expected beyond which a row is a mistake of units and no news: nothing in 217 published runs is 4 times off."""

CONTRADICTION = math.log(2)
"""Two runs of the same job on the same hardware that differ by more contradict each other."""

UNITS = {
    "speed": "tokens_per_s is of all GPUs, tokens_per_s_per_gpu of one",
    "memory": "peak_gib and peak_gb are of one GPU",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison:
    """One figure of a run: its family and log(observed / expected), or why it cannot be true. Empty: it was not observed."""

    family: RunFamily | None = None
    ratio: float = 0.0
    wrong: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """An observed run beside what was expected of it."""

    run: ObservedRun
    speed: FigureComparison = FigureComparison()
    memory: FigureComparison = FigureComparison()

    @property
    def findings(self) -> tuple[tuple[str, FigureComparison], ...]:
        """By measure, those that were observed."""
        both = (("speed", self.speed), ("memory", self.memory))
        return tuple((measure, f) for measure, f in both if f.family or f.wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedFigure:
    """A figure of a run that does not count, and why."""

    run: str
    measure: str
    why: str

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.run}: its {self.measure} was left out: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedRuns:
    """What the runs say together, and what was not counted."""

    calibration: Calibration
    left_out: tuple[ExcludedFigure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationAnswer:
    """The answer. `file`: where `runs` (as stated) are kept, `new` of them now; `spread`: the speed's own log half-width."""

    file: str
    runs: tuple[Table, ...]
    new: int
    weighed: WeighedRuns
    spread: float
    warnings: tuple[str, ...] = ()


def weigh_runs(runs: Iterable[RunComparison], *, spread_seen: float) -> WeighedRuns:
    """Every family's belief from the runs that count. `spread_seen`: log half-width of the speed's own 80 % interval."""
    usual = {"speed": compute_usual_variance(spread_seen), "memory": compute_usual_variance(MEMORY_SPREAD)}
    left_out: list[ExcludedFigure] = []
    plausible: dict[tuple[RunFamily, str], list[tuple[str, float]]] = defaultdict(list)
    for expected in runs:
        for measure, found in expected.findings:
            wrong = found.wrong or _explain_far_off(measure, found.ratio)
            if found.family is None or wrong:
                left_out.append(
                    ExcludedFigure(run=expected.run.name, measure=measure, why=wrong or "nothing was expected of it")
                )
            else:
                plausible[found.family, expected.run.same].append((expected.run.name, found.ratio))
    counted: dict[RunFamily, list[float]] = defaultdict(list)
    for (family, _), alike in plausible.items():
        agreeing = _select_agreeing([ratio for _, ratio in alike])
        counted[family] += (ratio for _, ratio in alike if ratio in agreeing)
        left_out += _list_contradicting(family, alike, agreeing)
    beliefs = {family: estimate_family(ratios, usual[family.measure]) for family, ratios in counted.items() if ratios}
    return WeighedRuns(calibration=Calibration(beliefs), left_out=tuple(left_out))


def find_contradiction(ratios: Mapping[str, float]) -> str | None:
    """Why figures of one run, each as log(observed / expected), cannot all be true; None where they can."""
    if not ratios or max(ratios.values()) - min(ratios.values()) <= CONTRADICTION:
        return None
    apart = math.exp(max(ratios.values()) - min(ratios.values()))
    return f"its {' and '.join(ratios)} contradict each other: {apart:,.1f} times apart"


def _explain_far_off(measure: str, ratio: float) -> str | None:
    if abs(ratio) <= FAR_OFF:
        return None
    times = f"{math.exp(abs(ratio)):,.0f} times {'more' if ratio > 0 else 'less'} than expected"
    return f"{times}: check the units ({UNITS[measure]})"


def _select_agreeing(ratios: list[float]) -> frozenset[float]:
    """The runs of one job that agree: all, or the majority around their median, or none."""
    if max(ratios) - min(ratios) <= CONTRADICTION:
        return frozenset(ratios)
    middle = median(ratios)
    near = [r for r in ratios if abs(r - middle) <= CONTRADICTION / 2]
    return frozenset(near) if 2 * len(near) > len(ratios) else frozenset()


def _list_contradicting(
    family: RunFamily, alike: list[tuple[str, float]], agreeing: frozenset[float]
) -> Iterator[ExcludedFigure]:
    names = [name for name, _ in alike]
    spread = math.exp(max(r for _, r in alike) - min(r for _, r in alike))
    for name, ratio in alike:
        if ratio not in agreeing:
            others = ", ".join(n for n in names if n != name)
            why = f"it contradicts {others}: the same job on the same hardware, up to {spread:.1f} times apart"
            yield ExcludedFigure(run=name, measure=family.measure, why=why)
