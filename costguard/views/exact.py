"""A step as it was run on fake tensors, beside the closed form: the key `exact` of `costguard.size/1`, and its table."""

from __future__ import annotations

from costguard.sizing.size_answer import SizeAnswer
from costguard.values.gpu import GIB
from costguard.views.document import TableView


def _build_exact_data(size: SizeAnswer) -> dict[str, object] | None:
    """Bytes at each moment; None where nobody asked."""
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
    """A row a moment."""
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
    title = f"One step as run on fake tensors ({size.exact.made_with})"
    return (TableView(title=title, columns=("moment", "run GiB>", "closed form GiB>", "difference>"), rows=rows),)
