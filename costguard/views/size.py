"""The memory of a job as a document: `costguard.size/1`, with the GPUs that hold it and changes that reduce it.

The key `exact` and its table show a step executed on fake tensors, compared with the closed form.
"""

from __future__ import annotations

from costguard.sizing.memory.footprint import SERVER_SHARE, Footprint
from costguard.sizing.size_answer import FittingGpus, JobChangeEffect, SizeAnswer
from costguard.values.gpu import GIB
from costguard.views.document import Document, TableView
from costguard.views.job import TERMS, build_job_data, build_memory_data, build_peak_data, format_split, to_gib

SCHEMA = "costguard.size/1"
GPUS_NAMED = 8


def build_size_document(size: SizeAnswer, *, explain: tuple[TableView, ...] = ()) -> Document:
    """Return the document: one record per GPU that holds the job; terms, GPUs and memory savings as tables."""
    fits_on = [
        {"gpu": f.gpu, "count": f.count, "peak_gib": round(f.peak_gib, 3), "precision": f.precision, "fit": f.fit}
        for f in size.fits_on
    ]
    data = {
        "schema": SCHEMA,
        "job": build_job_data(size.job),
        "on": {"gpu": size.on.gpu.name, "count": size.on.gpu_count, "nodes": size.on.nodes} if size.on else None,
        "memory_gib": build_memory_data(size.footprint),
        "peak_gib": build_peak_data(size.footprint),
        "gpu_memory_gib": round(size.on.gpu.memory_gib, 3) if size.on else None,
        "fits": size.fits,
        "fit": size.fit,
        "fits_on": fits_on,
        "capacity_tokens": size.capacity,
        "host_gib": to_gib(size.footprint.host_bytes),
        "levers": [
            {
                "field": e.lever.field,
                "from": e.lever.was,
                "to": e.lever.becomes,
                "peak_gib": round(e.peak_gib, 3),
                "saves_gib": round(e.saves_gib, 3),
                "fits": e.fits,
                "fit": e.fit,
                "cost": e.lever.cost,
            }
            for e in size.levers
        ],
        "exact": _build_exact_data(size),
        "notes": list(_list_notes(size)),
        "warnings": list(size.warnings),
    }
    return Document(
        data=data,
        records=tuple(fits_on),
        lead=tuple(_list_lead_lines(size)),
        tables=(
            _build_phase_table(size.footprint),
            *_list_exact_tables(size),
            *explain,
            _build_gpu_table(size.fits_on, size.job.recipe.precision),
            _build_savings_table(size),
        ),
        notes=tuple(f"Warning: {w}." for w in size.warnings),
    )


def _list_lead_lines(size: SizeAnswer) -> list[str]:
    f = size.footprint
    a = size.job.architecture
    low, high = f.peak_interval.low / GIB, f.peak_interval.high / GIB
    peak = (
        f"peak {f.peak / GIB:.1f} GiB a GPU ({low:.1f} to {high:.1f}) in {f.peak_phase}, "
        f"{f.reserved / GIB:.1f} GiB with CUDA context and slack"
    )
    lines = [f"{a.name} ({a.parameters / 1e9:.2f}B): {peak}"]
    if size.on and size.placed:
        has = size.on.gpu.memory_gib
        verdict = {"yes": "fits", "maybe": "may not fit", "no": "does not fit"}[size.placed.fit]
        doubt = size.placed.explain_fit().removeprefix("may not fit")
        if size.fits and size.sequences == 0:
            verdict = "the weights fit, but no memory is left for one sequence,"
        split = format_split(size.placed.parallel)
        where = f"{size.on.gpu.name} x{size.on.gpu_count}" + (f" x{size.on.nodes} nodes" if size.on.nodes > 1 else "")
        lines.append(f"{verdict} on {where} ({has:.1f} GiB each{'' if split == '-' else f', {split}'}){doubt}")
    lines += _list_notes(size)
    if size.capacity is not None:
        each = size.job.recipe.seq_len
        share = "" if size.on and size.on.gpu.unified_memory else f" at {SERVER_SHARE:.0%} of memory"
        lines.append(f"tokens that fit{share}: {size.capacity:,} at once, {size.sequences or 0:,} sequences of {each:,}")
    if f.host_bytes:
        lines.append(f"host memory: {f.host_bytes / GIB:.1f} GiB a GPU for what is offloaded")
    return lines


def _list_notes(size: SizeAnswer) -> tuple[str, ...]:
    if size.placed:
        return size.placed.notes
    calibration = size.job.calibration
    return calibration.list_notes(size.footprint) if calibration else ()


def _build_phase_table(f: Footprint) -> TableView:
    """Return a table with one row per phase and one column per term; the largest row is the peak."""
    rows = []
    for phase in f.phases:
        total = sum(phase.terms[t] for t in TERMS)
        mark = "  <- peak" if phase.name == f.peak_phase else ""
        rows.append((phase.name, *(f"{phase.terms[t] / GIB:.2f}" for t in TERMS), f"{total / GIB:.2f}{mark}"))
    return TableView(title="GiB a GPU, by phase", columns=("phase", *(f"{t}>" for t in TERMS), "sum"), rows=tuple(rows))


def _build_gpu_table(fits_on: tuple[FittingGpus, ...], precision: str) -> TableView:
    """Return a table with one row per number of GPUs: the smallest kinds of which that number holds the job.

    The number of larger kinds is added, and what those need on which the job does not run in its `precision` precision.
    """
    rows = []
    for count in dict.fromkeys(f.count for f in sorted(fits_on, key=lambda f: f.count)):
        same = [f for f in fits_on if f.count == count]
        sure, doubtful = ([f for f in same if f.fit == fit] for fit in ("yes", "maybe"))
        kinds = _join_kinds(sure, precision) if sure else "none for sure"
        kinds += f"; may not fit: {_join_kinds(doubtful, precision)}" if doubtful else ""
        needed = min(same, key=lambda f: (f.precision != precision, f.has_gib)).reserved_gib
        rows.append((str(count), f"{needed:.1f}", kinds))
    columns = ("GPUs>", "needs GiB>", "smallest kinds that hold it, with their GiB")
    return TableView(title="Fits on (fewest of each kind)", columns=columns, rows=tuple(rows))


def _join_kinds(kinds: list[FittingGpus], precision: str) -> str:
    more = f" and {len(kinds) - GPUS_NAMED} larger kinds" if len(kinds) > GPUS_NAMED else ""
    return ", ".join(_format_kind(kind, precision) for kind in kinds[:GPUS_NAMED]) + more


def _format_kind(kind: FittingGpus, precision: str) -> str:
    """Return the GPU with its GiB, and what the job needs there in another precision than the `precision` one."""
    other = "" if kind.precision == precision else f": {kind.precision}, {kind.reserved_gib:.1f}"
    return f"{kind.gpu} ({kind.has_gib:.0f}{other})"


def _build_savings_table(size: SizeAnswer) -> TableView:
    return _build_effect_table("Ways to reduce it", size.levers)


def build_what_if_table(effects: tuple[JobChangeEffect, ...]) -> TableView:
    """Return the table of `--explain` with the effect of each change, whether it needs less or more memory."""
    return _build_effect_table("Effect of each change", effects)


def _build_effect_table(title: str, effects: tuple[JobChangeEffect, ...]) -> TableView:
    rows = tuple(
        (
            e.lever.change,
            f"{e.peak_gib:.1f}",
            f"{-e.saves_gib:+.1f}",
            e.fit or "-",
            e.lever.cost,
        )
        for e in effects
    )
    return TableView(title=title, columns=("change", "peak GiB>", "saves>", "fits", "what it costs"), rows=rows)


def _build_exact_data(size: SizeAnswer) -> dict[str, object] | None:
    """Return the bytes at each moment; None if it was not requested."""
    exact = size.exact
    if exact is None:
        return None
    from costguard.sizing.exact_memory import compare_moments

    moments = [
        {
            "moment": c.moment,
            "bytes": c.exact,
            "closed_form_bytes": c.closed,
            "difference_percent": None if c.difference is None else round(100 * c.difference, 3),
        }
        for c in compare_moments(exact, size.footprint)
    ]
    return {
        "peak_bytes": exact.peak,
        "closed_form_peak_bytes": size.footprint.peak,
        "difference_percent": moments[0]["difference_percent"],
        "parameters": exact.parameters,
        "trained_parameters": exact.trained,
        "moments": moments,
        "made_with": exact.made_with,
    }


def _list_exact_tables(size: SizeAnswer) -> tuple[TableView, ...]:
    """Return a table with one row per moment; empty if it was not requested."""
    if size.exact is None:
        return ()
    from costguard.sizing.exact_memory import compare_moments

    rows = tuple(
        (
            c.moment,
            f"{c.exact / GIB:.3f}",
            "-" if c.closed is None else f"{c.closed / GIB:.3f}",
            "-" if c.difference is None else f"{100 * c.difference:+.2f} %",
        )
        for c in compare_moments(size.exact, size.footprint)
    )
    title = f"One step on fake tensors ({size.exact.made_with})"
    return (TableView(title=title, columns=("moment", "run GiB>", "closed form GiB>", "difference>"), rows=rows),)
