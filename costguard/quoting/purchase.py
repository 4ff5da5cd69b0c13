"""The answer to "buy or rent?": what was assumed of both, and the hours until they are even."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.quoting.breakeven import BreakEven
from costguard.quoting.offer import Offer
from costguard.values.gpu import Gpu
from costguard.values.money import Money, Rate

USD_PER_KWH = "0.15"
"""Electricity where nobody stated a price: near the 2026 average for firms in the United States and half of Germany's. An
assumption, named in every answer that uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseAnswer:
    """`plain`: price over rent. `full`: with power while in use and resale. `rented_as`: the offer the rent comes from."""

    gpu: Gpu | None
    count: int
    price: Money
    rent: Rate
    power_w: float | None
    usd_per_kwh: str
    resale: Money | None
    hours_week: float | None
    plain: BreakEven
    full: BreakEven
    rented_as: Offer | None = None
    warnings: tuple[str, ...] = ()
