"""Workload templates: each is a whole job, and what its source says of it comes out, or it is known why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from costguard.errors import InputError, UnknownNameError
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.template import TemplateComparison, WorkloadTemplate, find_template, list_changed_keys, read_templates
from costguard.services.quote.quote import compare_with_claim
from costguard.sizing.job import merge_flags, parse_job
from costguard.values.gpu import GpuNames
from tests.sizing.shapes import FACTS
from tests.sizing.speeds import GPUS

TEMPLATES = FACTS.templates()
DOES_NOT_COME_OUT = {
    "qlora-70b": "the paper groups sequences of like length, most of them shorter than 512 tokens",
    "rlhf-7b": "the row is right for four passes over each batch",
}
"""What is known not to come out, and why; whoever changes a template or a constant meets this list."""


class NoMarket:
    """Sells nothing: hours need no price."""

    def list_classes(self, selection: OfferSelection) -> list[tuple[str, int]]:  # noqa: ARG002 - the port's signature
        return []

    def find_best(self, *_: object) -> list[Offer]:
        return []

    def list_offers(self, selection: OfferSelection, *, sort: str, limit: int | None) -> Iterator[Offer]:  # noqa: ARG002 - the port's signature
        return iter(())


def compared(template: WorkloadTemplate, **flags: object) -> TemplateComparison:
    table = merge_flags(template.job, flags)
    job = parse_job(table, FACTS.get_architecture(str(table["model"])), FACTS.get_architecture)
    return compare_with_claim(template, job, list_changed_keys(table, template), market=NoMarket(), facts=FACTS)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_leaves_nothing_to_be_assumed(name: str) -> None:
    job = parse_job(TEMPLATES[name].job, FACTS.get_architecture(str(TEMPLATES[name].job["model"])), FACTS.get_architecture)
    assert job.assumed == ()
    assert job.tokens is not None


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_names_its_source_a_known_gpu_and_why_so_many_tokens(name: str) -> None:
    template = TEMPLATES[name]
    assert template.tokens_why
    assert template.claim is not None
    assert template.claim.source
    assert template.claim.note
    assert GpuNames(GPUS).resolve(template.claim.gpu, field="gpu").canonical == template.claim.gpu


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_source_comes_out_or_it_is_known_why_not(name: str) -> None:
    found = compared(TEMPLATES[name])
    assert found.hours is not None, found.lacking
    assert found.comes_out is (name not in DOES_NOT_COME_OUT)
    assert found.ratio is not None
    assert 0.3 < found.ratio < 2


def test_the_documents_rlhf_row_comes_out_with_four_passes_over_each_batch() -> None:
    rlhf = TEMPLATES["rlhf-7b"]
    job = merge_flags(rlhf.job, {"preference": {"updates": 4}})
    four = WorkloadTemplate(name="four", title="", tokens_why="", job=job, claim=rlhf.claim)
    assert compared(four).comes_out


def test_the_documents_five_rows_share_one_hidden_price() -> None:
    """SIZING.md, C1: $1.04 to $1.25 a GPU-hour."""
    rows = [t.claim for t in TEMPLATES.values() if t.claim and t.claim.source.startswith("S0")]
    assert len(rows) == 5
    for claim in rows:
        assert claim.gpu_hour is not None
        assert 1.03 < claim.gpu_hour[0] <= claim.gpu_hour[1] < 1.26


def test_at_the_documents_price_the_money_of_a_row_that_comes_out_meets_theirs() -> None:
    for name in ("lora-7b", "full-7b", "pretrain-1b", "diffusion-256"):
        found = compared(TEMPLATES[name])
        claim = found.template.claim
        assert claim is not None
        assert claim.usd is not None
        assert found.usd_as_implied is not None
        assert found.usd_as_implied.low <= claim.usd[1]
        assert found.usd_as_implied.high >= claim.usd[0]


def test_another_job_is_not_compared_but_another_limit_is() -> None:
    lora = TEMPLATES["lora-7b"]
    assert compared(lora, method="qlora").changed == ("method",)
    assert compared(lora, method="qlora").comes_out is None
    assert compared(lora, limits={"max_usd": 5}).comes_out


def test_an_unknown_template_offers_the_nearest_and_names_all() -> None:
    with pytest.raises(UnknownNameError, match="did you mean lora-7b") as told:
        find_template("lora7b", TEMPLATES)
    assert "gpt2-reproduction" in str(told.value)


@pytest.mark.parametrize("hours", [[4], [12, 4], "4-12", [0, 1]])
def test_a_badly_written_claim_is_named(hours: object) -> None:
    claim = {"source": "s", "gpu": "H100-SXM", "gpu_count": 1, "hours": hours}
    with pytest.raises(InputError, match=r"templates\.x\.claim\.hours"):
        read_templates({"x": {"title": "t", "tokens_why": "w", "job": {}, "claim": claim}})
