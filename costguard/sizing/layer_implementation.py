"""How transformers writes a family's layers, where that decides what they keep and the shape does not say.

Example: Phi-2 and Llama rotate queries and keys alike, but Phi rotates a part of each head and joins it with the rest: the
result lies in memory head by head, attention's result follows it, and the matrix behind it reads a copy: 2 bytes more a
number. Gemma scales its norms in fp32 and keeps that, 4 bytes a number where Llama keeps 2.

Read off autograd's saved tensors in transformers 5.23 with torch 2.13 on fake CPU tensors, 2026-11; nothing here was
measured on a GPU. `joined` should cost nothing there, where kernels write token by token whatever they read: at most 4 % of
a layer too much. Key heads that are `broadcast` should make CUDA fall back to whole scores as a CPU does, since its fused
kernels want equal numbers of heads. A CPU computes whole scores for latent attention too, whose values are narrower than
its keys; CUDA's memory-efficient kernel should not, and there alone the formula does not follow the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.values.checks import require_one_of

NORMS_KEEP = ("result", "wide", "twice", "pieces")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerImplementation:
    """The defaults are Llama's.

    `norms`: what norms keep beside their input in fp32: RMSNorm its `result` before the weight (Llama), the same `wide`, in
    fp32 (Gemma, OLMo), the input `twice` as it is and in fp32 (T5), or LayerNorm in `pieces`, three in fp32 (Cohere).
    `norms_after`: norms stand behind each half, none before the first. `side_by_side`: both halves read the same input.
    `rotated`: positions are rotated into queries and keys, which are new tensors; `joined`: a part of each head is.
    `masked`: a mask is made even where nothing is padded. `broadcast`: one key head serves all without being copied.
    `wide_softmax`: eager attention's softmax is in fp32; `wide_scores`: and so are its queries and keys.
    `biased`: a learned bias is added to scores. `capped`: scores pass a tanh; `capped_logits`: logits do.
    `wide_loss`: logits are cast to fp32. `recast`: autocast's result of the activation is cast to fp32 and back.
    `normed_embedding`: a norm stands behind the embedding.
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
    recast: bool = False
    wide_loss: bool = True
    normed_embedding: bool = False

    def __post_init__(self) -> None:
        require_one_of(self.norms, NORMS_KEEP, "norms")


LIKE_LLAMA = LayerImplementation()
LIKE_BERT = LayerImplementation(norms_after=True, rotated=False, wide_softmax=False, wide_loss=False)
LIKE_T5 = LayerImplementation(norms="twice", rotated=False, wide_softmax=False, wide_loss=False, biased=True, recast=True)
