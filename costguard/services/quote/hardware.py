"""Hardware as people write it: `H100:8x4`, `8xH100`, `a100-40`, `p5.48xlarge`, `M4 Max 64GB`.

An instance type is looked up in the market: `p5.48xlarge` is a machine of 8 H100-SXM.
"""

from __future__ import annotations

from costguard.data import MARKET, ShippedFacts
from costguard.errors import InputError
from costguard.quoting.offer import OfferSelection
from costguard.settings import get_cache_path
from costguard.sizing.placement import Hardware
from costguard.values import checks
from costguard.values.gpu import Gpu, rewrite_hardware

LONGEST_COUNT = 12
"""Digits of a count of machines: more is a slip of the pen, and thousands of them no longer an integer."""


def parse_hardware(on: str | None, facts: ShippedFacts, *, field: str = "--on") -> tuple[Hardware | None, tuple[str, ...]]:
    """Parse `GPU:COUNT[xNODES]`, with a note if a short name was completed."""
    if on is None:
        return None, ()
    name, counted, counts = rewrite_hardware(on).partition(":")
    gpu_count, joined, nodes = counts.partition("x")
    numbers = [gpu_count if counted else "1", nodes if joined else "1"]
    if not all(n.isascii() and n.isdigit() and len(n) <= LONGEST_COUNT for n in numbers):
        what = f"is not GPU:COUNT[xNODES]: {checks.describe_value(on)}"
        raise InputError(what, field=field, hint="write H100:8, or H100:8x4")
    machine = find_instance_type(name.strip(), facts)
    if machine is not None:  # what is counted are machines then
        name, numbers = machine[0], [str(machine[1]), numbers[0] if numbers[1] == "1" else numbers[1]]
    gpu, notes = facts.get_gpu_names().resolve_with_size(name.strip(), field=field)
    if not gpu.runs_pytorch:
        raise refuse_accelerator(gpu, int(numbers[0]) * int(numbers[1]), facts, field)
    gpu_count_, nodes_ = (checks.require_whole_number(int(n), field, most=1_000_000) for n in numbers)
    if machine is not None:
        notes = (f"{on} is {gpu.name}:{gpu_count_}{f'x{nodes_}' * (nodes_ > 1)}, as every provider sells it", *notes)
    return Hardware(gpu=gpu, gpu_count=gpu_count_, nodes=nodes_), notes


def match_gpus(text: str, facts: ShippedFacts, *, field: str, family: bool) -> tuple[tuple[str, ...], int | None, str]:
    """Return the GPUs that a filter names, the GPUs of a machine if it states them, and a note ("": none).

    `family`: a short name is all that it may mean; else the usual one.
    """
    name, counted, number = rewrite_hardware(text).partition(":")
    checks.require(
        not counted or (number.isascii() and number.isdigit() and 0 < len(number) <= LONGEST_COUNT and int(number) > 0),
        field,
        f"is no GPU with a count: {checks.describe_value(text)}",
        "write H100, or H100:8 for machines of 8",
    )
    machine = None if counted else find_instance_type(name, facts)
    if machine is not None:
        return (machine[0],), machine[1], f"{text} is {machine[0]}:{machine[1]}, as every provider sells it"
    match = facts.get_gpu_names().resolve(name.strip(), field=field)
    count = int(number) if counted else None
    if not match.taken_as_short:
        return (match.canonical,), count, ""
    if not family:
        return (match.canonical,), count, f"{name} was taken as {match.canonical}"
    kinds = facts.get_gpu_names().list_family(name.strip())
    return kinds, count, f"{name} is {', '.join(kinds)}: name one to see it alone"


def find_instance_type(name: str, facts: ShippedFacts) -> tuple[str, int] | None:
    """Return the GPU and the GPUs of a machine of the instance type `name`; None if the market has none, or it is a GPU."""
    if not any(letter in name for letter in ".-_") or facts.get_gpu_names().find(name) is not None:
        return None
    from costguard.ledger.market import MarketReader, select_newest_market

    with MarketReader(select_newest_market(MARKET, get_cache_path("market.sqlite"))) as market:
        offers = market.list_offers(OfferSelection())
        kinds = {(one.gpu, one.gpu_count) for one in offers if one.instance_type.lower() == name.lower()}
    return kinds.pop() if len(kinds) == 1 else None


def refuse_accelerator(gpu: Gpu, count: int, facts: ShippedFacts, field: str) -> InputError:
    """Return the error for hardware whose compiler decides the memory, with GPUs that have as much memory and arithmetic."""
    from costguard.sizing.equivalents import USUAL_GPUS, find_equivalents, format_equivalents

    same = format_equivalents(find_equivalents(gpu, max(1, count), (facts.get_gpus()[name] for name in USUAL_GPUS)))
    hint = f"GPUs with as much memory and arithmetic: {field} {same}" if same else "name a GPU: H100:8"
    return InputError(f"{gpu.name} is not sized: its compiler decides the memory", field=field, hint=hint)
