"""A small market with fixed prices and dates, written as a real market file, and a day on which it is read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from costguard.ledger.market import write_market
from costguard.quoting.offer import Offer
from costguard.values.money import Rate

TODAY = date(2026, 11, 21)
"""The day on which these tests ask."""

FRESH = date(2026, 11, 20)
OLD = date(2026, 10, 11)
"""41 days before TODAY."""


def offer(
    provider: str,
    gpu: str,
    usd: str | None,
    *,
    count: int = 1,
    tier: str = "on-demand",
    region: str = "global",
    seen: date = FRESH,
    name: str | None = None,
    ram_gb: float | None = None,
) -> Offer:
    """One offer; `usd` an hour for all its GPUs, None unknown."""
    return Offer(
        provider=provider,
        region=region,
        instance_type=name or f"{gpu} x{count}",
        gpu=gpu,
        gpu_count=count,
        tier=tier,
        rate=None if usd is None else Rate.parse(usd),
        observed_on=seen,
        source=f"{provider}'s price list",
        pricing="dynamic" if tier == "spot" else "standard",
        ram_gb=ram_gb,
    )


SHOP = (
    offer("aws", "H100-SXM", "40", count=8, region="us-east-1", name="p5.48xlarge", ram_gb=2048),
    offer("aws", "H100-SXM", "38.5", count=8, region="us-west-2", name="p5.48xlarge", ram_gb=2048),
    offer("aws", "H100-SXM", "16", count=8, tier="spot", region="us-east-1", name="p5.48xlarge", ram_gb=2048),
    offer("aws", "T4", "0.526", region="us-east-1", name="g4dn.xlarge", ram_gb=16),
    offer("aws", "T4", "0.16", tier="spot", region="us-east-1", name="g4dn.xlarge", ram_gb=16),
    offer("gcp", "A100-80GB-SXM", "5.07", region="us-central1", name="a2-ultragpu-1g", seen=OLD),
    offer("gcp", "L4", None, region="us-central1", name="g2-standard-4"),
    offer("runpod", "H100-SXM", "2.99", tier="community"),
    offer("runpod", "H100-SXM", "23.92", count=8, tier="secure"),
    offer("runpod", "RTX-4090", "0.34", tier="community"),
    offer("lambda", "H100-SXM", "31.92", count=8, name="gpu_8x_h100_sxm5", seen=OLD),
    offer("lambda", "A10", "0.75", name="gpu_1x_a10"),
)
"""Four providers, four tiers, spot beside on-demand, a stale price, and one that nobody knows (gcp's L4)."""


def market(folder: Path, offers: Iterable[Offer] = SHOP) -> str:
    """The path of a market file in `folder` that holds `offers`."""
    path = folder / "market.sqlite"
    write_market(path, offers, {"built_from": "tests/shop.py"})
    return str(path)


QLORA = ("--model", "llama-3.1-8b", "--method", "qlora", "--tokens", "50e6", "--seq-len", "2048")
"""The main job, as flags."""
STATED = (*QLORA, "--micro-batch", "2", "--precision", "bf16", "--checkpointing", "full", "--optimizer", "adamw")
"""The same with nothing left to assume."""
