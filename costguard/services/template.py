"""template: a template's job on the hardware that its source names, beside what the source says."""

from __future__ import annotations

from dataclasses import replace

from costguard.quoting.quote import NO_LIMITS
from costguard.quoting.template import TemplateComparison, WorkloadTemplate
from costguard.services.accounts import FactSource, OfferSource
from costguard.services.quote import build_quote
from costguard.sizing.job import Job
from costguard.sizing.placement import Hardware

EXCLUDED_TIER = "spot"
"""The tier that no source means when it names a price."""


def compare_with_claim(
    template: WorkloadTemplate, job: Job, changed: tuple[str, ...], *, market: OfferSource, facts: FactSource
) -> TemplateComparison:
    """The claim of `template` against what costguard says there; nothing where flags made `job` another one."""
    claim = template.claim
    if claim is None or changed:
        return TemplateComparison(template=template, changed=changed)
    on = Hardware(gpu=facts.get_gpus()[claim.gpu], gpu_count=claim.gpu_count, nodes=claim.nodes)
    answer = build_quote(replace(job, limits=NO_LIMITS), market=market, facts=facts, on=on)
    kept = [o for o in answer.options if not o.offer or o.offer.tier != EXCLUDED_TIER]
    lacking = next((r.reason for r in answer.refused), None)
    return TemplateComparison(template=template, option=kept[0] if kept else None, lacking=None if kept else lacking)
