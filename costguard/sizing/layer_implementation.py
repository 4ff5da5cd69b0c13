"""How transformers implements a family's layers, as far as it decides which tensors the backward pass needs.

Example: Phi-2 and Llama both rotate queries and keys, but Phi rotates only a part of each head and joins it with the rest. The
result is stored head by head, attention's result has the same layout, and the next matrix reads a copy: 2 more bytes per
number. Gemma scales its norms in fp32 and keeps that result, 4 bytes per number where Llama keeps 2.

Source: autograd's saved tensors in transformers 5.23 with torch 2.13 on fake CPU tensors, 2026-11; 28 steps measured on an
H100 (`bench/card.csv`) agree within 1 % in the median. Expected differences on CUDA:

- `joined` should need no extra memory, because CUDA kernels write token by token; the estimate is at most 4 % of a
    layer too high.
- `broadcast` key heads should make CUDA compute full scores as the CPU does, because its fused kernels need equal
    head counts.
- Latent attention has narrower values than keys. A CPU computes full scores for it; CUDA's memory-efficient kernel
    should not. This is the only case where the formula does not follow the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.values.checks import require_one_of

NORMS_KEEP = ("result", "wide", "twice", "pieces")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerImplementation:
    """Implementation details of one family; the defaults are Llama's.

    - `norms`: what a norm keeps. RMSNorm keeps its input in fp32, and besides it: `result`, the result before the
        weight (Llama); `wide`, the same in fp32 (Gemma, OLMo); `twice`, also the input in its own precision (T5).
        `pieces`: LayerNorm that keeps three fp32 tensors (Cohere).
    - `norms_after`: norms follow each half of the layer, and none precedes the first half.
    - `side_by_side`: both halves read the same input.
    - `rotated`: queries and keys are rotated by position, which makes new tensors. `joined`: only a part of each head
        is rotated.
    - `masked`: a mask is made even if nothing is padded. `broadcast`: all query heads use one key head without a copy.
    - `wide_softmax`: eager attention computes its softmax in fp32. `wide_scores`: its queries and keys are in fp32 too.
    - `distance_rows`: embeddings of distances that every query and every key is multiplied with, of both together (DeBERTa).
    - `biased`: a learned bias is added to scores. `capped`: scores pass through a tanh. `capped_logits`: logits do.
    - `wide_loss`: logits are cast to fp32. `recast`: under autocast the activation's result is cast to fp32 and back.
    - `normed_embedding`: a norm follows the embedding.
    - `drops`: the released configuration has dropout (a tenth), which training keeps masks of.
    """

    norms: str = "result"
    norms_after: bool = False
    rotated: bool = True
    joined: bool = False
    masked: bool = True
    broadcast: bool = False
    side_by_side: bool = False
    wide_softmax: bool = True
    wide_scores: bool = False
    capped: bool = False
    capped_logits: bool = False
    biased: bool = False
    distance_rows: int = 0
    recast: bool = False
    wide_loss: bool = True
    normed_embedding: bool = False
    drops: bool = False

    def __post_init__(self) -> None:
        require_one_of(self.norms, NORMS_KEEP, "norms")


LIKE_LLAMA = LayerImplementation()
LIKE_BERT = LayerImplementation(norms_after=True, rotated=False, wide_softmax=False, wide_loss=False, drops=True)
LIKE_T5 = LayerImplementation(
    norms="twice", rotated=False, wide_softmax=False, wide_loss=False, biased=True, recast=True, drops=True
)
