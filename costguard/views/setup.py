"""What `costguard init` wrote, as a document: `costguard.init/1`, one record a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costguard.views.document import Document

INIT_SCHEMA = "costguard.init/1"


def build_init_document(
    path: str,
    found: Sequence[str],
    looked: Mapping[str, Sequence[str]],
    unready: Mapping[str, str],
    *,
    cap: str | None,
    zone: str | None,
    usual: bool,
) -> Document:
    """`found`: with credentials. `looked`: where those of the others were looked for. `usual`: the file is read by itself.

    `unready`: what must be set before it can be told whether there are any.
    """
    config = "" if usual else f" --config {path}"
    steps = [f"costguard{config} doctor", f"costguard{config} status"]
    data = {
        "schema": INIT_SCHEMA,
        "path": path,
        "providers": list(found),
        "not_found": {name: list(places) for name, places in sorted(looked.items()) if places},
        "unready": dict(sorted(unready.items())),
        "budget": cap,
        "timezone": zone or "UTC",
        "next": steps,
    }
    records = tuple({"provider": name, "found": name in found} for name in sorted({*found, *looked, *unready}))
    missing = [f"{name}: no credentials in {'; '.join(places)}." for name, places in sorted(looked.items()) if places]
    told = [f"{name}: not switched on. {why}" for name, why in sorted(unready.items())]
    lead = f"Wrote {path}, with {', '.join(found) or 'no provider'} switched on. It holds no key."
    budget = f"Budget: {cap} a month." if cap else "No budget: see [[budget]] in the file."
    return Document(
        data=data, records=records, lead=(lead, budget), notes=(*missing, *told, *(f"Next: {step}" for step in steps))
    )
