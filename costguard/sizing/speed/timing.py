"""How fast a placed job is and how long it takes to begin, whether one model works or several take turns."""

from __future__ import annotations

from costguard.sizing.job import Job
from costguard.sizing.placement import Placement
from costguard.sizing.speed.duration import BOOT_HOURS, compute_startup
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.throughput import Throughput, compute_throughput
from costguard.values.interval import Interval


def compute_job_speed(job: Job, placed: Placement, efficiency: Efficiency) -> Throughput | None:
    """Tokens of the job a second per GPU; None where no rate of the GPU is known."""
    if job.beside is None:
        p = placed
        return compute_throughput(
            job.architecture, p.recipe, p.parallel, p.gpu, gpus=p.gpus, nodes=p.nodes, efficiency=efficiency
        )
    from costguard.sizing.speed.preference import compute_preference_speed

    return compute_preference_speed(job.architecture, job.beside, placed, efficiency)


def compute_job_startup(job: Job, *, booted: bool = False) -> Interval:
    """Hours from the order to the first step, companions' weights fetched too. `booted`: the machine runs already."""
    beside = job.beside.list_with_weights(job.recipe) if job.beside else ()
    boot = Interval.exactly(0.0) if booted else BOOT_HOURS
    return compute_startup(job.architecture, *(c.architecture for c in beside), boot=boot)
