"""What differs in memory between the libraries that run the same model: one row a library, each fact with its source.

Example: a layer of Llama-2-7B with adapters on q and v keeps 41.2 x 4096 bytes a token in Hugging Face (fp32 adapters copy
their inputs) and 42.2 x 4096 in litgpt (16-bit adapters share it, but q, k and v stay packed beside their rotated copies).
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.core.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Modules:
    """How a library writes its modules; the defaults are Hugging Face transformers' and PEFT's.

    `repeats_kv`: key heads are copied to every query head before attention. `pads`: a mask is made where sequences of a
    batch may be padded. `fuses`: norms and gated activations are one kernel, which keeps its inputs only.
    `packs_qkv`: q, k, v are one tensor that stays alive beside the rotated q and k.
    `adapters_fp32`: adapters, and a copy of the input for each, are fp32. `loss_fp32`: logits are cast to fp32.
    `logits_whole`: chunks of the loss are cut from whole logits. `quantises_head`: the head is quantised too.
    `keeps_inputs`: quantised matrices keep their input although frozen. `upcasts`: what is not quantised becomes fp32.
    `double_quant`: nf4's scales are always quantised. `shards_root`: embedding and head are units of their own, gathered
    while they work only. `copies_gradients`: DDP's buckets are beside the gradients, not the gradients themselves.
    `foreach`: AdamW runs over all weights at once with one temporary of their size; fused, it needs none.
    """

    repeats_kv: bool = True
    pads: bool = True
    fuses: bool = False
    packs_qkv: bool = False
    adapters_fp32: bool = True
    loss_fp32: bool = True
    logits_whole: bool = False
    quantises_head: bool = False
    keeps_inputs: bool = False
    upcasts: bool = True
    double_quant: bool = False
    shards_root: bool = False
    copies_gradients: bool = True
    foreach: bool = False


MODULES = {
    # transformers 5.23, peft 0.21 read with tools/faketensor.py, 2026-11. PEFT: autocast_adapter_dtype=True makes adapters
    # fp32, prepare_model_for_kbit_training makes embeddings, norms and head fp32.
    "hf": Modules(),
    "deepspeed": Modules(),
    # torchtune 0.6: modules/attention.py expands k and v; modules/peft/lora.py follows the model's dtype;
    # modules/loss/ce_chunked_output_loss.py cuts whole logits into 8 chunks; torchao's NF4Tensor has int8 scales.
    "torchtune": Modules(
        pads=False, adapters_fp32=False, logits_whole=True, upcasts=False, double_quant=True, shards_root=True
    ),
    # litgpt 0.5, run on fake tensors 2026-11: lora.py packs q, k, v; utils.chunked_cross_entropy stays in bf16;
    # bitsandbytes < 0.43 (which it pins) kept MatMul4Bit's input.
    "litgpt": Modules(
        pads=False,
        packs_qkv=True,
        adapters_fp32=False,
        loss_fp32=False,
        logits_whole=True,
        quantises_head=True,
        keeps_inputs=True,
        upcasts=False,
        foreach=True,
    ),
    # torchtitan, models/llama/model.py: repeat_kv, nn.RMSNorm, logits.float() in the loss.
    "torchtitan": Modules(pads=False, upcasts=False, shards_root=True),
    # Megatron-LM with Transformer Engine: fused norms and SwiGLU, grouped keys in the attention kernel.
    "megatron": Modules(repeats_kv=False, pads=False, fuses=True, upcasts=False, copies_gradients=False),
    # Unsloth: Triton norms, rotary and SwiGLU, native grouped keys; base weights outside the layers stay 16-bit.
    "unsloth": Modules(repeats_kv=False, pads=False, fuses=True, upcasts=False),
}


def modules(recipe: Recipe) -> Modules:
    """The facts of the recipe's library."""
    return MODULES[recipe.framework]


def fuses(recipe: Recipe) -> bool:
    """Whether norms and activations are fused: by the library, by torch.compile, or by Liger, which brings the fused loss."""
    known = modules(recipe)
    return known.fuses or recipe.compiled or (recipe.fused_loss and not known.logits_whole)
