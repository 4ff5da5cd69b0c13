"""`costguard.gpus/1`: the known GPUs, one record each, and the table.

Rates are of matrix multiplications with fp32 accumulation, dense and with 2:4 sparsity. Vendors' headlines are often the sparse
figure: an H100's "3,958 TFLOPS fp8" is 1,979 for the dense matrices of models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costguard.quoting.gpu_prices import PricedGpu
from costguard.values.gpu import Gpu
from costguard.views.columns import ColumnFit
from costguard.views.document import Column, Document, build_record, build_table

SCHEMA = "costguard.gpus/1"
PRECISIONS = {
    "fp32": ("fp32", "fp32_tflops"),
    "tf32": ("tf32", "tf32_tflops"),
    "16-bit": ("16bit", "bf16_tflops"),
    "fp8": ("fp8", "fp8_tflops"),
    "fp4": ("fp4", "fp4_tflops"),
    "int8": ("int8", "int8_tops"),
}
"""Heading -> key in JSON, and the field of a `Gpu` with the dense rate."""
REMARKS_SHOWN = 12
"""GPUs up to which the remarks are printed: beyond that they are longer than the table."""
FITS = {
    **{heading: ColumnFit(rank=rank) for rank, heading in enumerate(("fp8", "tf32", "int8", "fp4", "fp32", "W"), 3)},
    "link GB/s": ColumnFit(rank=10),
}


def build_gpus_document(rows: Sequence[PricedGpu]) -> Document:
    """Return the document for `rows`, in their order."""
    records = tuple(build_record(_COLUMNS, row) for row in rows)
    table = build_table(_COLUMNS, rows)
    shown = len(rows) <= REMARKS_SHOWN
    remarks = [f"{row.gpu.name}: {row.gpu.note}." for row in rows if row.gpu.note] if shown else []
    unchecked = sum(not row.gpu.verified.startswith("read") for row in rows)
    notes = (
        *remarks,
        "TFLOPS (int8: TOPS) dense / with 2:4 sparsity, which models rarely use: costguard computes with the dense rate.",
        *((f"{unchecked} of {len(rows)} (*) were not compared with a datasheet.",) if unchecked else ()),
        *(() if shown else ("costguard gpus NAME also prints remarks on the figures; --json has them all.",)),
    )
    lead = () if rows else ("No known GPU matches.",)
    return Document(
        data={"schema": SCHEMA, "gpus": list(records)},
        records=records,
        lead=lead,
        tables=(replace(table, fits=FITS),),
        notes=notes if rows else (),
    )


def _get_rates(gpu: Gpu) -> dict[str, tuple[float | None, float | None]]:
    """Return the dense and the sparse rate by key."""
    return {key: (getattr(gpu, field), gpu.get_sparse_rate(field)) for key, field in PRECISIONS.values()}


def _format_rates(row: PricedGpu, key: str) -> str:
    dense, sparse = _get_rates(row.gpu)[key]
    if dense is None:
        return "-"
    return f"{dense:g}" if sparse is None else f"{dense:g} / {sparse:g}"


def _make_rate_column(heading: str, key: str) -> Column[PricedGpu]:
    return Column("", f"{heading}>", lambda row: row, lambda row: _format_rates(row, key))


def _build_rates_data(row: PricedGpu) -> Mapping[str, object]:
    return {key: {"dense": dense, "sparse": sparse} for key, (dense, sparse) in _get_rates(row.gpu).items()}


def _build_price_data(row: PricedGpu) -> Mapping[str, object] | None:
    prices = row.prices
    if prices is None:
        return None
    ends = {"low": prices.low.format(), "high": prices.high.format()}
    return {**ends, "providers": prices.providers, "age_days": prices.age_days, "too_old": prices.too_old}


def _format_prices(row: PricedGpu) -> str:
    prices = row.prices
    if prices is None:
        return "-"
    ends = dict.fromkeys((prices.low.format(2), prices.high.format(2)))
    return " - ".join(ends) + (f", seen {prices.age_days}d ago" if prices.too_old else "")


_COLUMNS: tuple[Column[PricedGpu], ...] = (
    Column(
        "gpu", "GPU", lambda row: row.gpu.name, lambda row: row.gpu.name + ("" if row.gpu.verified.startswith("read") else " *")
    ),
    Column("vendor", "", lambda row: row.gpu.vendor),
    Column("architecture", "", lambda row: row.gpu.arch),
    Column("compute_capability", "", lambda row: row.gpu.compute_capability or None),
    Column("memory_gb", "GB>", lambda row: row.gpu.vram_gb, lambda row: f"{row.gpu.vram_gb:g}"),
    Column("usable_gib", "usable GiB>", lambda row: round(row.gpu.card_gib, 2), lambda row: f"{row.gpu.card_gib:.1f}"),
    Column("devices", "", lambda row: row.gpu.dies),
    Column("bandwidth_gb_s", "GB/s>", lambda row: row.gpu.bandwidth_gb_s, lambda row: f"{row.gpu.bandwidth_gb_s:g}"),
    *(_make_rate_column(heading, key) for heading, (key, _) in PRECISIONS.items()),
    Column("tflops", "", _build_rates_data),
    Column("bf16", "", lambda row: row.gpu.has_bf16),
    Column("interconnect", "", lambda row: row.gpu.interconnect or None),
    Column(
        "interconnect_gb_s",
        "link GB/s>",
        lambda row: row.gpu.interconnect_gb_s,
        lambda row: f"{row.gpu.interconnect_gb_s:g}" if row.gpu.interconnect_gb_s else "-",
    ),
    Column("watts", "W>", lambda row: row.gpu.tdp_w, lambda row: f"{row.gpu.tdp_w:g}" if row.gpu.tdp_w else "-"),
    Column("list_price_usd", "", lambda row: row.gpu.price_usd),
    Column("usd_per_gpu_hour", "$/GPU-h>", _build_price_data, _format_prices),
    Column("checked", "", lambda row: row.gpu.verified),
    Column("remark", "", lambda row: row.gpu.note or None),
    Column("aliases", "", lambda row: list(row.gpu.aliases)),
)
