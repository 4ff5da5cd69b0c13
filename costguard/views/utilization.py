"""How far GPUs are used, in `status`, in reports and on pages: data, cells and sentences.

`guard/utilization.py` measures it now, `reporting/statement/gpu_hours.py` over a period.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from costguard.errors import shorten
from costguard.guard.signals import ACTIVE
from costguard.guard.utilization import USAGE_WINDOW, GpuUsage, describe_usage
from costguard.reporting.statement.groups import CurrencySums
from costguard.reporting.statement.waste import Waste
from costguard.reporting.status import ResourceBurn
from costguard.values.instant import HOUR_US, to_hours
from costguard.values.text_format import limit_lines

LONGEST_NAME = 60
USE_MEANS = (
    "time in which the busiest GPU of a machine ran a kernel, times the GPUs that ran one; "
    "an upper bound for machines with several GPUs"
)


def format_usage(usage: GpuUsage | None) -> str:
    """Return the mean in a table: `31 %`, or `-` where it is not known."""
    return "-" if usage is None else f"{usage.mean:.0%}".replace("%", " %")


def build_usage_data(one: ResourceBurn) -> dict[str, object] | None:
    """Return the use of a machine's GPUs: the mean of the busiest, 0 to 1, its pattern and what it says; None: not known."""
    usage = one.beside.usage
    if usage is None:
        return None
    window_s = int(USAGE_WINDOW.total_seconds())
    says = explain_usage(one)
    return {"mean": round(usage.mean, 4), "window_seconds": window_s, "pattern": usage.pattern or None, "says": says or None}


def explain_usage(one: ResourceBurn) -> str:
    """Explain a low use of a machine that works: `4 GPUs at 31 %, jumping ...`; "" where its samples show no reason."""
    usage = one.beside.usage
    if usage is None or not usage.pattern or one.work.state != ACTIVE:
        return ""
    return f"{describe_usage(usage, one.live.observation.gpu_count)}."


def list_usage_lines(resources: Iterable[ResourceBurn]) -> tuple[str, ...]:
    """Return a sentence for each machine whose samples show why its GPUs are used little."""
    lines = ((one, explain_usage(one)) for one in resources)
    return limit_lines(
        (
            f"{shorten(one.live.observation.name or one.live.observation.key.id, LONGEST_NAME)}: {says}"
            for one, says in lines
            if says
        ),
        "machines",
    )


def build_use_record(waste: Waste | None) -> dict[str, object]:
    """Return the GPU-hours of a group, for JSON and CSV. None: nothing of it is measured."""
    measured = waste.measured_gpu_us if waste else 0
    return {
        "measured_gpu_hours": to_hours(round(measured)),
        "used_gpu_hours": to_hours(round(waste.used_gpu_us)) if waste and measured else None,
    }


def build_use_data(usd: CurrencySums) -> dict[str, object]:
    """Return the contract's `use`: the GPU-hours of all groups that were paid, measured and used."""
    return {"gpu_hours": to_hours(_sum_paid(usd)), **build_use_record(usd.waste), "means": USE_MEANS}


def list_use_sentences(usd: CurrencySums) -> Iterator[str]:
    """Yield what was paid and used; nothing if it is not known."""
    paid, waste = _sum_paid(usd), usd.waste
    if paid and waste is not None and waste.measured_gpu_us:
        share = format_usage(GpuUsage(mean=waste.used_gpu_us / waste.measured_gpu_us))
        rest = max(0.0, paid - waste.measured_gpu_us)
        unmeasured = f"; {_format_hours(rest)} not measured" if round(rest / HOUR_US, 1) else ""
        used = f"used {_format_hours(waste.used_gpu_us)} ({share} of those measured)"
        yield f"GPUs: paid {_format_hours(paid)} GPU-hours, {used}{unmeasured}."


def list_use_notes(usd: CurrencySums) -> Iterator[str]:
    """Yield what the figures mean, or that they are not known."""
    if _sum_paid(usd):
        is_measured = usd.waste is not None and usd.waste.measured_gpu_us
        yield f"Used means: {USE_MEANS}." if is_measured else "GPU use: not known. No samples of GPU duty."


def format_use_cell(waste: Waste | None, paid_us: float) -> str:
    """Return the used GPU-hours of a group in a table: `410.0`, or `410.0 of 1,120.0` if not all of `paid_us` are measured."""
    if not paid_us:
        return "-"
    if waste is None or not waste.measured_gpu_us:
        return "unknown"
    part = round((paid_us - waste.measured_gpu_us) / HOUR_US, 1) > 0
    return _format_hours(waste.used_gpu_us) + (f" of {_format_hours(waste.measured_gpu_us)}" if part else "")


def _sum_paid(usd: CurrencySums) -> float:
    return sum(group.gpu_milli_us for group in usd.groups) / 1000


def _format_hours(gpu_us: float) -> str:
    return f"{gpu_us / HOUR_US:,.1f}"
