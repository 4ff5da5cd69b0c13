"""What a provider says it charged: the lines of its bill, to hold costguard's own charges against.

Bills come late and change: a line is known by its `id` (same id: the newer statement replaces the older), and one that is
`estimated` will change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costguard.core.checks import require
from costguard.core.instant import sensible
from costguard.core.money import Money

COMPUTE, STORAGE, ADDRESS, TRAFFIC, OTHER, CREDIT, TAX = "compute", "storage", "address", "traffic", "other", "credit", "tax"
CHARGES = (COMPUTE, STORAGE, ADDRESS, TRAFFIC, OTHER, CREDIT, TAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """`amount` for `charge` from `start` until before `end` (UTC). Credits are negative.

    `resource_id`: the provider's id, "" where the line is of no single resource. `source` names the statement
    ("GET /v2/billing/pods"). `tags` are sorted pairs.
    """

    id: str
    provider: str
    account: str
    start: datetime
    end: datetime
    amount: Money
    charge: str = OTHER
    resource_id: str = ""
    region: str = ""
    estimated: bool = False
    source: str = ""
    description: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.id and self.provider), "bill line", "needs an id and a provider")
        require(self.charge in CHARGES, f"bill line {self.id}", f"has charge '{self.charge}'", f"one of {', '.join(CHARGES)}")
        sensible(self.start, f"bill line {self.id}")
        sensible(self.end, f"bill line {self.id}")
        require(self.start < self.end, f"bill line {self.id}", "ends before it starts", "a half-open period")


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """Every line that a provider could give of a period. `why`: what is missing, "" where the statement is whole."""

    lines: tuple[BillLine, ...]
    why: str = ""
