"""What a run needs beside GPUs: host memory and disk of each machine, and checkpoints where it may be interrupted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from costguard.quoting.checkpoints import plan_checkpoints
from costguard.quoting.offer import OWN
from costguard.quoting.quote import QuoteOption
from costguard.quoting.storage import compute_checkpoint_gb, compute_host_gib
from costguard.sizing.job import Job
from costguard.values.resource import SPOT

if TYPE_CHECKING:  # types and no more
    from costguard.data import ShippedFacts


def add_needs(option: QuoteOption, job: Job, disk: int, facts: ShippedFacts) -> QuoteOption:
    """Return `option` with what its machines need beside GPUs, and of a run that may be interrupted its checkpoints."""
    place, offer, notes = option.placement, option.offer, option.notes
    if place is None:
        return option
    host = compute_host_gib(job, place)
    if place.host_gib and offer and offer.ram_gb is None and offer.tier != OWN:
        notes = (*notes, f"its host memory is unknown: what is offloaded needs {place.host_gib:.0f} GiB")
    option = replace(option, host_gib=host, disk_gb=disk, notes=notes)
    interrupted = offer is not None and offer.tier == SPOT and job.recipe.trains
    if not interrupted or offer is None or option.duration is None or option.price is None:
        return option
    risks = facts.get_interruptions()
    risk = risks.get(offer.provider, risks["*"])
    plan = plan_checkpoints(
        gigabytes=compute_checkpoint_gb(job.architecture, job.recipe, place.footprint.basis.measure.adapters),
        machines=place.nodes,
        interruptions_per_hour=risk.per_hour.expected * place.nodes,
        restart_hours=risk.restart_hours,
        work_hours=option.duration.train_hours.expected,
        stated_hours=job.checkpoint_every_hours,
        rate=option.price.expected.multiply(place.nodes),
        store=facts.get_object_storage().get(offer.provider),
    )
    return replace(option, checkpoints=plan)
