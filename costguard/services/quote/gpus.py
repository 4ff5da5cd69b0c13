"""Answer `gpus`: the known GPUs with their datasheet figures and what they cost now."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from costguard.data import ShippedFacts
from costguard.ledger.market import MarketReader
from costguard.quoting.gpu_prices import PricedGpu, collect_gpu_prices
from costguard.quoting.offer import OfferSelection
from costguard.services import CommandAnswer
from costguard.services.quote.market_choice import find_market_file
from costguard.values import checks
from costguard.values.checks import fold_name
from costguard.values.gpu import Gpu
from costguard.views.gpus import build_gpus_document

GPU_SORTS: dict[str, Callable[[PricedGpu], float | None]] = {
    "memory": lambda one: -one.gpu.vram_gb,
    "bandwidth": lambda one: -one.gpu.bandwidth_gb_s,
    "tflops": lambda one: -one.gpu.bf16_tflops if one.gpu.bf16_tflops else None,
    "power": lambda one: one.gpu.tdp_w,
    "price": lambda one: one.prices.low.nano_per_hour if one.prices else None,
}
"""Orders of the table: most first, but for power and price. Without one the GPUs stand by architecture, as in the data."""


def answer_gpus(
    *,
    name: str | None = None,
    vendor: str | None = None,
    min_memory: float | None = None,
    sort: str | None = None,
    market: str | None = None,
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard gpus`.

    `name`: part of a name or of an alias, or any spelling of one GPU. `min_memory`: GB of a card.
    """
    facts = ShippedFacts()
    gpus = list(facts.get_gpus().values())
    if vendor is not None:
        vendors = {fold_name(gpu.vendor): gpu.vendor for gpu in gpus}
        checks.require_one_of(fold_name(vendor), vendors, "--vendor")
        gpus = [gpu for gpu in gpus if fold_name(gpu.vendor) == fold_name(vendor)]
    if name is not None:
        gpus = [gpu for gpu in gpus if _has_name(gpu, name)] or [_resolve(facts, name)]
    if min_memory is not None:
        least = checks.require_number(min_memory, "--min-memory", least=0)
        gpus = [gpu for gpu in gpus if gpu.vram_gb >= least]
    with MarketReader(find_market_file(market, config)) as source:
        offers = source.list_offers(OfferSelection(gpus=tuple(gpu.name for gpu in gpus)))
        prices = collect_gpu_prices(offers, facts.get_price_drift(), datetime.now(UTC).date())
    rows = [PricedGpu(gpu=gpu, prices=prices.get(gpu.name)) for gpu in gpus]
    if sort is not None:
        get_key = GPU_SORTS[checks.require_one_of(sort, GPU_SORTS, "--sort")]
        rows.sort(key=lambda one: (get_key(one) is None, get_key(one) or 0))
    return CommandAnswer(document=build_gpus_document(rows))


def _has_name(gpu: Gpu, text: str) -> bool:
    return any(fold_name(text) in fold_name(spelling) for spelling in (gpu.name, *gpu.aliases))


def _resolve(facts: ShippedFacts, name: str) -> Gpu:
    return facts.get_gpus()[facts.get_gpu_names().resolve(name, field="NAME").canonical]
