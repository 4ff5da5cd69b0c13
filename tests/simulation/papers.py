"""A plan as JSON and back, exactly: what replays a world, and what is kept of one that failed.

{"seed": 7, "kind": "storm", "minutes": 60, "boxes": [{"name": "b0", ...}], "events": [{"at": 3, "what": "down", ...}], ...}
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from tests.simulation.plans import Box, Does, Happens, Plan


def text_of(plan: Plan) -> str:
    """`plan` as JSON, a line for each machine and each event."""
    whole = {one.name: getattr(plan, one.name) for one in fields(plan)}
    whole["boxes"] = [_stated(box) | {"does": [list(does) for does in box.does]} for box in plan.boxes]
    whole["events"] = [{name: value for name, value in event._asdict().items() if value} for event in plan.events]
    whole["rails"], whole["meddles"] = dict(plan.rails), {str(look): what for look, what in sorted(plan.meddles.items())}
    lines = [f"  {json.dumps(name)}: {_block(value)}" for name, value in whole.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def plan_from(text: str) -> Plan:
    """The plan that `text_of` wrote. ValueError or TypeError where it is none."""
    whole = json.loads(text)
    boxes = tuple(Box(**box | {"does": tuple(Does(*does) for does in box["does"])}) for box in whole.pop("boxes"))
    events = tuple(Happens(**{"at": 0, **event}) for event in whole.pop("events"))
    meddles = {int(look): what for look, what in whole.pop("meddles").items()}
    return Plan(boxes=boxes, events=events, meddles=meddles, **whole)


def kept_plan(path: Path) -> Plan:
    """The plan in a file."""
    return plan_from(path.read_text(encoding="utf-8"))


def _stated(box: Box) -> dict[str, Any]:
    """What is not as it always is."""
    return {
        one.name: getattr(box, one.name)
        for one in fields(box)
        if one.default is MISSING or getattr(box, one.name) != one.default
    }


def _block(value: Any) -> str:  # noqa: ANN401 - whatever a plan holds
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {json.dumps(one)}" for one in value) + "\n  ]"
    return json.dumps(value)
