"""What the tests of time and money share: shipped facts, and a model everybody knows."""

from __future__ import annotations

import csv
import json
from importlib.resources import files

from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.speed.efficiency import Efficiency, read_efficiency
from costguard.values.gpu import Gpu, read_gpus

DATA = files("costguard") / "data"


def shipped_gpus() -> dict[str, Gpu]:
    return read_gpus(csv.DictReader(DATA.joinpath("gpus.csv").read_text(encoding="utf-8").splitlines()))


def shipped_efficiency() -> Efficiency:
    return read_efficiency(json.loads(DATA.joinpath("efficiency.json").read_text(encoding="utf-8")))


def decoder(  # noqa: PLR0917 - the columns of a model card, in their usual order
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, *, gated: bool = True, window: int | None = None
) -> Architecture:
    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=hidden // heads, window=window)
    block = LayerBlock(layers=layers, hidden=hidden, attention=attention, feed_forward=FeedForward(ffn=ffn, gated=gated))
    return Architecture(name="decoder", kind="decoder", blocks=(block,), vocab=vocab)


LLAMA_2_7B = decoder(32, 4096, 32, 32, 11008, 32_000)
LLAMA_3_8B = decoder(32, 4096, 32, 8, 14336, 128_256)
LLAMA_2_70B = decoder(80, 8192, 64, 8, 28672, 32_000)
GPUS = shipped_gpus()
EFFICIENCY = shipped_efficiency()
