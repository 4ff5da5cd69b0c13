"""`costguard.fitting_models/1`: the models that a machine can train or serve, one record each, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costguard.sizing.fitting_models import LARGEST_BATCH, FittingModel
from costguard.sizing.placement import Hardware
from costguard.views.columns import ColumnFit
from costguard.views.document import Column, Document, build_record, build_table

SCHEMA = "costguard.fitting_models/1"
FITS = {"precision": ColumnFit(rank=4), "split": ColumnFit(rank=3), "B parameters": ColumnFit(rank=5)}


def build_fitting_models_document(
    fitting: Sequence[FittingModel], on: Hardware, *, method: str, too_large: int, unable: int
) -> Document:
    """Return the document. `too_large`: models that do not fit; `unable`: models that cannot run by this method."""
    count = on.gpu_count * on.nodes
    verb = "model fits" if len(fitting) == 1 else "models fit"
    machine = f"{on.gpu.name}" if count == 1 else f"{count} x {on.gpu.name}"
    records = tuple(build_record(_COLUMNS, one) for one in fitting)
    left_out = (
        *((f"{too_large} models do not fit, or may not.",) if too_large else ()),
        *((f"{unable} cannot run as {method} (costguard size --model NAME --method {method} says why).",) if unable else ()),
    )
    notes = (
        "Batch: sequences a pass at that length. Longest: tokens with a batch of 1, at most the model's context.",
        "Both are found by doubling. A dash: the context is not known, or the model does not count tokens.",
        "Each fits by the high end of its 80 % interval (costguard size --on shows it); what is shown is the expected need.",
        *((" ".join(left_out),) if left_out else ()),
    )
    return Document(
        data={
            "schema": SCHEMA,
            "on": {"gpu": on.gpu.name, "gpus": count, "usable_gib": round(on.gpu.memory_gib, 2)},
            "method": method,
            "models": list(records),
            "too_large": too_large,
            "unable": unable,
        },
        records=records,
        lead=(f"{method} on {machine}, {on.gpu.memory_gib:.1f} GiB a GPU: {len(fitting)} {verb}.",),
        tables=(replace(build_table(_COLUMNS, fitting), fits=FITS),) if fitting else (),
        notes=notes if fitting else (),
    )


def _format_batch(one: FittingModel) -> str:
    return f"{one.micro_batch}+" if one.micro_batch >= LARGEST_BATCH else str(one.micro_batch)


_COLUMNS: tuple[Column[FittingModel], ...] = (
    Column("model", "model", lambda one: one.job.architecture.name),
    Column(
        "parameters",
        "B parameters>",
        lambda one: one.job.architecture.parameters,
        lambda one: f"{one.job.architecture.parameters / 1e9:.2f}",
    ),
    Column("precision", "precision", lambda one: one.placement.recipe.precision),
    Column("quant", "", lambda one: one.job.recipe.quant),
    Column(
        "needs_gib", "needs GiB>", lambda one: round(one.placement.needs_gib, 2), lambda one: f"{one.placement.needs_gib:.1f}"
    ),
    Column(
        "seq_len",
        "at length>",
        lambda one: None if one.job.architecture.sample_unit else one.job.recipe.seq_len,
        lambda one: "-" if one.job.architecture.sample_unit else f"{one.job.recipe.seq_len:,}",
    ),
    Column("micro_batch", "batch>", lambda one: one.micro_batch, _format_batch),
    Column("longest", "longest>", lambda one: one.seq_len, lambda one: f"{one.seq_len:,}" if one.seq_len else "-"),
)
