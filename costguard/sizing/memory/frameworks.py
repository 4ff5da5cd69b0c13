"""Memory differences between the libraries that run the same model: one entry per library, each fact with its source.

Example: a layer of Llama-2-7B with adapters on q and v keeps 41.2 x 4096 bytes per token in Hugging Face (fp32 adapters copy
their inputs) and 42.2 x 4096 in litgpt (16-bit adapters share the input, but packed q, k and v stay beside their rotated
copies).

The numerics are the bytes per number of each kind of tensor. Example: plain bf16 stores weights, gradients and both AdamW
moments in 2 bytes each, 8 per parameter. Under autocast (`bf16-amp`) all four are fp32, 16 per parameter, while matrices are
multiplied in 2-byte copies. DeepSpeed and Megatron store those copies as the weights and an fp32 master with the optimizer:
2+2+12 and 2+4+12.

The layer style is how the modules are implemented, as far as it decides what they keep for the backward pass. Example: Llama in
Hugging Face with batches of two uses flash attention with a mask per layer, repeated key heads and unfused norms. The same
model under Megatron has no mask, no repeated key heads and fused norms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from costguard.sizing.architecture import LayerBlock
from costguard.sizing.layer_implementation import LIKE_LLAMA, LayerImplementation
from costguard.sizing.memory import overheads
from costguard.sizing.recipe import Parallelism, Recipe


@dataclass(frozen=True, slots=True)
class FrameworkTraits:
    """How a library implements its modules; the defaults are those of Hugging Face transformers and PEFT.

    - `repeats_kv`: key heads are copied to every query head before attention.
    - `pads`: a mask is made if sequences of a batch may be padded.
    - `fuses`: norms and gated activations are one kernel, which keeps only its inputs.
    - `packs_qkv`: q, k, v are one tensor that stays alive beside the rotated q and k.
    - `ties`: a tied head is not stored a second time. `kernels`: GELU is PyTorch's kernel, whatever name the model's
        config uses.
    - `adapters_fp32`: adapters are fp32, and each makes an fp32 copy of its input unless the library `casts_adapters`.
    - `loss`: what it does where nothing is stated. `loss_fp32`: logits are cast to fp32.
    - `loss_copies`: fp32 tensors of the logits' size in the backward pass of the loss; `loss_copies_split`: the same where
        tensor parallelism divides them.
    - `loss_compiled`: torch.compile includes the loss, so full fp32 logits never exist.
    - `softmax_fp32`: eager attention's softmax is fp32, and its result is a cast copy.
    - `clamps_scores`: Llama's eager attention keeps the scores from before they are clamped.
    - `logits_whole`: the chunks of the loss are cut from full logits. `quantises_head`: the head is quantised too.
    - `quantised_input`: bytes per number of the input that a frozen quantised matrix keeps, and of its dequantised
        copy.
    - `upcasts`: weights that are not quantised become fp32: "all", "norms" (and not embeddings and head) or "none".
        `double_quant`: nf4 scales are always quantised.
    - `shards_root`: embedding and head are separate FSDP units, gathered only while they compute.
    - `flattens`: FSDP stores frozen and trained weights of a layer in one parameter, whose gradient covers both.
    - `syncs_late`: gradients are divided over ranks only after the last accumulated pass, and are full until then.
    - `copies_gradients`: DDP's buckets are separate from the gradients.
    - `foreach`: AdamW runs over all weights at once with a temporary of their size; a fused AdamW needs none.
    - `masters`: mixed precision stores fp32 master weights with the optimizer (ZeRO, section 3.1). `gradients_fp32`:
        and fp32 gradients.
    - `sequence_parallel`: tensor parallelism also divides norms and the residual stream.
    - `holds_gradients`: gradients lie in one buffer that is never freed. `offloads_gradients`: an optimizer in host memory
        takes the gradients with it. `shards_experts`: FSDP also divides the experts of one expert-parallel rank.
    - `keeps_matmuls`: selective checkpointing keeps every second product (PyTorch's policy); else it repeats attention's
        scores alone (Korthikanti et al. 2022), which flash attention never keeps.
    - `loops_experts`: a mixture's experts are modules that run one after the other: "never", "hooked" (where ZeRO-3's
        hooks fetch each module) or "always". `reduces_fp32`: gradients are summed over ranks in fp32.
    - `gathered`: layers whose full weights FSDP holds at once. `keeps_gathered`: a layer's full weights stay from its forward
        to its backward pass (`reshard_after_forward=False`).
    - `copies_reduced`: gradients are copied into the buffer that is summed over ranks (FSDP2's reduce-scatter input), in fp32
        if it `reduces_fp32`; and what is gathered arrives in a buffer of its own stream, whose memory no other stream gets.
    - `fuses_head`: its fused cross-entropy makes the logits chunk by chunk; else it fuses the loss's kernels over whole logits.
    - `widens_frozen`: FSDP stores frozen weights in fp32, and gathers them in 16 bits.
    - `narrows_quantised`: adapters on quantised weights are 16-bit although others are fp32.
    - `context`: bytes of the CUDA context.
    - `slack`, `slack_gathered`: share of the temporary bytes that the allocator holds and cannot hand out, normally and
        where weights are gathered and freed.
    """

    repeats_kv: bool = True
    pads: bool = True
    fuses: bool = False
    packs_qkv: bool = False
    ties: bool = True
    kernels: bool = False
    adapters_fp32: bool = True
    casts_adapters: bool = False
    loss: str = "whole"
    loss_fp32: bool = True
    loss_copies: int = 3
    loss_copies_split: int = 3
    loss_compiled: bool = False
    softmax_fp32: bool = True
    clamps_scores: bool = False
    logits_whole: bool = False
    quantises_head: bool = False
    quantised_input: int = 0
    upcasts: str = "all"
    double_quant: bool = False
    shards_root: bool = False
    flattens: bool = False
    syncs_late: bool = False
    copies_gradients: bool = True
    foreach: bool = False
    masters: bool = False
    gradients_fp32: bool = False
    sequence_parallel: bool = True
    keeps_matmuls: bool = True
    holds_gradients: bool = False
    offloads_gradients: bool = True
    shards_experts: bool = True
    loops_experts: str = "never"
    reduces_fp32: bool = False
    gathered: int = overheads.GATHERED_LAYERS
    keeps_gathered: bool = False
    copies_reduced: bool = False
    fuses_head: bool = True
    widens_frozen: bool = False
    narrows_quantised: bool = False
    context: int = overheads.CONTEXT_BYTES
    slack: float = overheads.SLACK_SHARE
    slack_gathered: float = overheads.SLACK_SHARE_GATHERED


# transformers 5.23, peft 0.21 read with tools/faketensor.py, 2026-11. PEFT: autocast_adapter_dtype=True makes adapters
# fp32, prepare_model_for_kbit_training makes embeddings, norms and head fp32. accelerate's fsdp_version is 1 unless stated.
# transformers 5 (2025-12) computes experts in one grouped product; before it, MixtralSparseMoeBlock and its like loop.
# Its expert parallelism (DistributedConfig) takes experts out of FSDP: a rank holds its experts whole, with their states.
HF = FrameworkTraits(
    shards_experts=False,
    loops_experts="hooked",
    gathered=overheads.GATHERED_LAYERS_FSDP1,
    slack_gathered=overheads.SLACK_SHARE_FSDP1,
)
# The same modules under FSDP2, which gathers and sums as torchtitan's does.
HF_FSDP2 = replace(HF, gathered=overheads.GATHERED_LAYERS, slack_gathered=overheads.SLACK_SHARE_GATHERED, copies_reduced=True)
# axolotl 0.19, monkeypatch/peft/utils.py: its copy of PEFT's preparation leaves out embed_tokens and lm_head; the residual
# stream then begins in 16 bits, and a norm whose weight is fp32 makes it fp32 only until the next matrix.
AXOLOTL = replace(HF, upcasts="norms")
# trl 1.16, trainer/sft_trainer.py (since 0.26, 2025-12): PEFT's preparation is not called; adapters of quantised models become
# bf16. llamafactory 0.9.5, model/adapter.py, and ms-swift 4.6 do not call it either; their adapters stay fp32.
TRL = replace(HF, upcasts="none", narrows_quantised=True)
UNPREPARED = replace(HF, upcasts="none")
# transformers before 4.45 (October 2024): modeling_llama.py returns whole fp32 logits, which a training loop holds through
# the backward pass beside the log-softmax and two gradients. AdamW runs over all weights at once: torch's default since 2.0
# (March 2023), and Hugging Face's until torch 2.8 (August 2025), from which training_args.py takes the fused one.
HF_2024 = replace(HF, loops_experts="always", loss_copies=4, loss_copies_split=4, foreach=True)
# torch 1.x (until March 2023): all of CUDA's kernels are loaded at start, and the allocator holds more than it hands out.
HF_2022 = replace(
    HF_2024, loss_copies=3, foreach=False, context=overheads.CONTEXT_BYTES_EAGER, slack=overheads.SLACK_SHARE_TORCH1
)
# litgpt 0.5, run on fake tensors 2026-11: lora.py packs q, k, v; utils.chunked_cross_entropy stays in bf16; its GPT ties
# nothing; finetune/lora.py accumulates under no_backward_sync (FSDP1, pytorch issue 91165). bitsandbytes < 0.43 (which it
# pins) kept MatMul4Bit's input; its config hub's six QLoRA rows hold that input and the dequantised matrix at 4 bytes.
LITGPT = FrameworkTraits(
    pads=False,
    packs_qkv=True,
    ties=False,
    kernels=True,
    adapters_fp32=False,
    loss_fp32=False,
    logits_whole=True,
    quantises_head=True,
    quantised_input=4,
    upcasts="none",
    flattens=True,
    syncs_late=True,
    foreach=True,
    gathered=overheads.GATHERED_LAYERS_FSDP1,
)
# torchtitan, models/llama/model.py: repeat_kv, nn.RMSNorm, logits.float() in the loss, which is compiled since 2025.
# torch/distributed/tensor/parallel/loss.py: log-softmax, its exponential, a gradient and their sum at once.
# distributed/fsdp (torch 2.5, _fsdp_collectives.py): foreach_reduce copies a unit's gradients into an fp32 buffer,
# foreach_all_gather gathers in a stream of its own.
TORCHTITAN = FrameworkTraits(
    reduces_fp32=True,
    pads=False,
    upcasts="none",
    shards_root=True,
    kernels=True,
    loss_compiled=True,
    loss_copies_split=4,
    copies_reduced=True,
)
# Megatron-LM with Transformer Engine: fused norms and SwiGLU, grouped keys in the attention kernel, a vocabulary-parallel
# loss whose softmax and gradient are the fp32 logits themselves (core/tensor_parallel/cross_entropy.py).
MEGATRON = FrameworkTraits(
    repeats_kv=False,
    pads=False,
    fuses=True,
    kernels=True,
    loss_copies=1,
    loss_copies_split=1,
    upcasts="none",
    copies_gradients=False,
    masters=True,
    gradients_fp32=True,
    reduces_fp32=True,
    keeps_matmuls=False,
    fuses_head=False,  # core/fusions/fused_cross_entropy.py works on the vocabulary-parallel logits
    holds_gradients=True,  # core/distributed/param_and_grad_buffer.py: allocated once, zeroed after each step
    offloads_gradients=False,
)

FRAMEWORK_TRAITS = {
    "hf": HF,
    # accelerate (commit 00b1b18), utils/fsdp_utils.py, fsdp2_prepare_model: mixed precision makes each weight fp32, also
    # frozen ones. Axolotl's copy of the function (0.19, monkeypatch/accelerate/fsdp2.py) leaves them as they are.
    "hf-fsdp2": replace(HF_FSDP2, widens_frozen=True),
    "trl": TRL,
    "axolotl": AXOLOTL,
    "llamafactory": UNPREPARED,
    "ms-swift": UNPREPARED,
    # diffusers 0.42, examples/: torch.optim.AdamW in a loop of their own, whose default runs over all weights at once.
    "diffusers": replace(HF, upcasts="none", foreach=True),
    "hf-2024": HF_2024,
    "hf-2022": HF_2022,
    # The same modules under DeepSpeed's engine, which keeps fp32 masters.
    "deepspeed": replace(HF, masters=True),
    # Before transformers 4.31 (July 2023) modeling_llama.py clamped scores with torch.max, which keeps its input.
    "deepspeed-2023": replace(HF_2024, foreach=False, loss_copies=3, loss_copies_split=3, masters=True, clamps_scores=True),
    # Halo (github.com/whitecircle/halo, agent-docs/parallelism/data-parallelism.md, 2026): Hugging Face's modules under FSDP2
    # without resharding after the forward pass; expert parallelism takes experts out of FSDP. Its QLoRA is TRL's: since 0.26
    # (2025-12) trl/trainer/sft_trainer.py makes adapters bf16 and leaves out PEFT's preparation of quantised models.
    "halo": replace(HF_FSDP2, upcasts="none", keeps_gathered=True, narrows_quantised=True),
    # torchtune 0.6: modules/attention.py expands k and v; modules/peft/lora.py follows the model's dtype;
    # modules/loss/ce_chunked_output_loss.py cuts whole logits into 8 chunks; torchao's NF4Tensor has int8 scales.
    "torchtune": FrameworkTraits(
        loss="chunked",
        pads=False,
        kernels=True,
        adapters_fp32=False,
        logits_whole=True,
        upcasts="none",
        double_quant=True,
        shards_root=True,
        copies_reduced=True,
    ),
    "litgpt": LITGPT,
    # Its resource tables, measured with bitsandbytes 0.41: the input is kept as it is.
    "litgpt-2023": replace(LITGPT, quantised_input=2),
    "torchtitan": TORCHTITAN,
    # Until February 2025 parallelisms/parallelize_llama.py sharded embedding, norm and head as one unit with the root, which
    # FSDP2 gathers once a step and whose gradients are all summed at the end.
    "torchtitan-2024": replace(TORCHTITAN, loss_compiled=False, shards_root=False),
    "megatron": MEGATRON,
    # Before sequence parallelism (Korthikanti et al., arXiv 2205.05198, May 2022: 10 of 34 sbh stay whole on every rank);
    # its fused softmax kernel works in 16 bits. Under DeepSpeed (Megatron-DeepSpeed), as most ran it, with ZeRO's buckets.
    "megatron-2021": replace(
        MEGATRON,
        copies_gradients=True,
        sequence_parallel=False,
        softmax_fp32=False,
        context=overheads.CONTEXT_BYTES_EAGER,
        slack=overheads.SLACK_SHARE_TORCH1,
    ),
    # NeMo AutoModel 26.04 (NVIDIA-NeMo/Automodel, docs/performance-summary.md): FSDP2 as torchtitan uses it, with Transformer
    # Engine's fused norms and linears, grouped experts and DeepEP. Nothing was measured of its memory: taken as torchtitan's.
    "automodel": replace(TORCHTITAN, fuses=True),
    # Unsloth: Triton norms, rotary and SwiGLU, native grouped keys; base weights outside the layers stay 16-bit;
    # kernels/fast_lora.py multiplies adapters in the input's own precision.
    "unsloth": FrameworkTraits(
        loss="fused", repeats_kv=False, pads=False, fuses=True, kernels=True, upcasts="none", casts_adapters=True
    ),
}


def get_framework(recipe: Recipe) -> FrameworkTraits:
    """Return the traits of the recipe's library."""
    return FRAMEWORK_TRAITS[recipe.framework]


def has_fused_kernels(recipe: Recipe) -> bool:
    """Return whether norms and activations are fused: by the library, torch.compile or Liger (with the fused loss)."""
    traits = get_framework(recipe)
    return traits.fuses or recipe.compiled or choose_loss(recipe) in {"fused", "in-place"}


BITSANDBYTES = ("nf4", "int8")
"""What PEFT's preparation upcasts beside: it leaves alone what GPTQ, AQLM, HQQ, EETQ and torchao quantised (peft 0.21.2,
utils/other.py, prepare_model_for_kbit_training)."""


def choose_upcast(recipe: Recipe, parallel: Parallelism) -> str:
    """Return which of the weights that are not quantised become fp32: "all", "norms" or "none".

    No trainer prepares a model so that ZeRO-3 or FSDP shards, since both flatten weights of one precision.
    """
    prepared = recipe.method == "qlora" and recipe.quant in BITSANDBYTES and parallel.stage < 3  # noqa: PLR2004 - ZeRO's last
    return get_framework(recipe).upcasts if prepared else "none"


def is_layer_recomputed(recipe: Recipe) -> bool:
    """Return whether checkpointing drops a layer's tensors and computes them again, and not only attention's scores."""
    return recipe.checkpointing == "full" or (recipe.checkpointing == "selective" and get_framework(recipe).keeps_matmuls)


def choose_loss(recipe: Recipe) -> str:
    """Return how the loss is computed: as stated, else as the library does. One of `LOSSES` without "auto"."""
    if recipe.loss != "auto":
        return recipe.loss
    traits = get_framework(recipe)
    if recipe.fused_loss and (traits.logits_whole or traits.fuses_head):
        return "chunked" if traits.logits_whole else "fused"
    return traits.loss


FP32 = 4
HALF = 2

OPTIMIZER_MOMENTS = {
    "adamw": 2,
    "paged-adamw": 2,
    "adamw-8bit": 2,
    "paged-adamw-8bit": 2,
    "lion": 1,
    "lion-8bit": 1,
    "sgd-momentum": 1,
    "adafactor": 0,
    "sgd": 0,
}
"""Numbers kept per trained parameter. Adafactor keeps sums of rows and columns: under 0.1% of a matrix, taken as nothing."""

FP8_COPIES = 2
"""Transformer Engine keeps each matrix and its transpose in fp8 beside the 16-bit weight (te.Linear's weight cache)."""

MOMENT_8BIT = 1 + 4 / 256
"""An 8-bit moment: one byte, and an fp32 scale for each block of 256 (bitsandbytes 0.43+ blockwise optimizers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Bytes of one number of each kind.

    - `master`: an fp32 copy stored with the optimizer; 0 if the weights are the master. `compute`: operands and results
        of matrix products.
    - `residual`: the stream between layers. `module_io`: what the modules of a layer hand on; as `compute`, but fp32 where
        PEFT made embeddings and norms fp32: a matrix of bitsandbytes returns the precision of its input (bitsandbytes,
        nn/modules.py, Linear4bit.forward). `autocast`: weights are cast to `compute` on each use.
    - `operand`: the kept input of a product. `copies`: fp8 copies of a matrix's weight, besides the weight itself.
    - `accumulator`: an fp32 sum of gradients besides the 16-bit ones (DeepSpeed's BF16_Optimizer).
    """

    weight: int
    frozen: int
    gradient: int
    moment: float
    master: int
    compute: int
    residual: int
    module_io: int
    operand: int
    copies: int
    accumulator: int
    autocast: bool


def choose_numerics(recipe: Recipe, parallel: Parallelism) -> Numerics:
    """Return the bytes of each kind of number for this recipe under this sharding."""
    wide, traits = recipe.precision == "fp32", get_framework(recipe)
    compute = FP32 if wide else HALF
    sharded = parallel.stage > 0
    mixed = recipe.amp or _keeps_masters(recipe)
    master = mixed and (traits.masters or (sharded and not parallel.fsdp))
    fp32_weights = wide or (mixed and not master)
    autocast = recipe.amp and not master and not parallel.fsdp and recipe.trains
    wide_adapters = recipe.adapters and traits.adapters_fp32 and not (traits.narrows_quantised and recipe.quant != "none")
    trained = FP32 if fp32_weights or wide_adapters else HALF
    streamed = choose_upcast(recipe, parallel) == "all"
    widened = parallel.fsdp and traits.widens_frozen and recipe.method == "lora"
    return Numerics(
        weight=trained,
        frozen=FP32 if (fp32_weights and recipe.trains) or widened else compute,
        gradient=FP32 if traits.gradients_fp32 and master else trained,
        moment=_compute_moment_bytes(recipe, FP32 if master else trained),
        master=FP32 if master else 0,
        compute=compute,
        residual=FP32 if wide or autocast or streamed else HALF,
        module_io=FP32 if streamed else compute,
        operand=1 if recipe.precision in ("fp8", "fp4") else compute,
        accumulator=FP32 if master and recipe.framework.startswith("deepspeed") and recipe.gradient_accumulation > 1 else 0,
        copies=FP8_COPIES if recipe.precision in ("fp8", "fp4") and recipe.trains else 0,
        autocast=autocast,
    )


def _keeps_masters(recipe: Recipe) -> bool:
    """Return whether weights that are multiplied in 8 or 4 bits have fp32 masters, although only matrices are narrow.

    Pretraining keeps them everywhere. Megatron's and DeepSpeed's optimizers keep them (and Megatron's fp32 main gradients)
    whatever the matrices compute in (Megatron-LM, core/optimizer/optimizer.py, Float16OptimizerWithFloat16Params). A fine-tune
    by others has the 16-bit weights that were loaded.
    """
    reduced = recipe.precision in ("fp8", "fp4") and recipe.trains and not recipe.adapters
    return reduced and (recipe.method == "pretrain" or get_framework(recipe).masters)


def _compute_moment_bytes(recipe: Recipe, each: int) -> float:
    stored = {"auto": each, "fp32": FP32, "bf16": HALF}[recipe.moments]
    return OPTIMIZER_MOMENTS[recipe.optimizer] * (MOMENT_8BIT if recipe.optimizer.endswith("8bit") else stored)


LONGEST_PADDED = 16_384
"""Tokens: a single sequence longer than that is taken to be a stream, which needs no mask (ml-engineering's runs of 32k to
256k tokens have none: it would be 137 GB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStyle:
    """The properties of a layer's modules that decide which tensors it keeps.

    - `trained`: the base weights need gradients. `targets`, `rank`, `dora`: those of the adapters.
    - `seq`: tokens that a query can attend to; `cross_seq`: those of the encoder that a decoder's cross-attention reads.
        `batch`: number of sequences.
    - `flash`: full scores never exist. `masked`: each layer keeps a mask with one number per score, shared by all
        heads.
    - `dropout`: of the model. `adapter_dropout`: of the adapters, which PEFT leaves at 0 unless it is stated.
    - `wide_autocast`: autocast computes powers and every softmax in fp32, as it does on a GPU.
    - `clamped`: see `FrameworkTraits.clamps_scores`. `biased`: attention adds a learned bias to scores (T5).
        `wide_softmax`: eager attention's softmax is fp32 and then
        cast.
    - `repeats_kv`, `packs_qkv`, `kernels`, `casts_adapters`: see `FrameworkTraits`. `fused`: norms and activations are
        one kernel.
    - `quantised_input`: bytes per number of the input that a frozen quantised matrix keeps.
    - `released`: the modules are transformers' own, as described by `written`; otherwise they are like Llama's.
    """

    numerics: Numerics
    trained: bool
    targets: frozenset[str]
    rank: int
    dora: bool
    flash: bool
    masked: bool
    repeats_kv: bool
    packs_qkv: bool
    quantised_input: int
    kernels: bool
    casts_adapters: bool
    fused: bool
    wide_softmax: bool
    clamped: bool
    biased: bool
    dropout: bool
    adapter_dropout: bool
    wide_autocast: bool
    seq: int
    cross_seq: int
    batch: int
    released: bool
    written: LayerImplementation

    def has_mask(self, block: LayerBlock) -> bool:
        """Return whether each layer of `block` keeps a mask; a layer that attends to all tokens needs none."""
        return self.masked and self.written.masked and (block.causal or block.attention.window is not None)


def choose_layer_style(recipe: Recipe, block: LayerBlock, numerics: Numerics, targets: frozenset[str], seq: int) -> LayerStyle:
    """Return how the recipe's framework implements the modules of `block`.

    Hugging Face makes a mask if a batch may contain padding, that is, if its sequences are not cut from one stream. A single
    sequence may be padded to a fixed length; a long one is not. (On fake tensors, a single sequence of any length has a mask.)
    """
    traits, fused = get_framework(recipe), has_fused_kernels(recipe)
    written = block.written if traits.pads else LIKE_LLAMA  # whoever pads is transformers
    return LayerStyle(
        numerics=numerics,
        trained=not recipe.adapters,
        targets=targets,
        rank=recipe.lora.rank,
        dora=recipe.adapters and recipe.lora.dora,
        flash=recipe.attention != "eager",
        masked=_is_masked(recipe, seq),
        # torch.compile keeps repeated keys: the attention kernel reads them in both passes (_functorch/partitioners.py,
        # ban_if_materialized_backward, torch 2.5).
        repeats_kv=traits.repeats_kv and (recipe.compiled or not fused),
        packs_qkv=traits.packs_qkv,
        quantised_input=traits.quantised_input if recipe.quant != "none" else 0,
        kernels=traits.kernels,
        casts_adapters=traits.casts_adapters,
        fused=fused,
        wide_softmax=traits.softmax_fp32 and written.wide_softmax,
        clamped=traits.clamps_scores and block.written == LIKE_LLAMA,
        biased=block.written.biased,
        dropout=traits.pads and block.written.drops if recipe.dropout is None else recipe.dropout,
        adapter_dropout=bool(recipe.dropout),
        wide_autocast=numerics.autocast and recipe.autocast_rules == "cuda",
        seq=seq,
        cross_seq=block.cross_tokens or recipe.seq_len,
        batch=recipe.micro_batch,
        released=traits.pads,
        written=written,
    )


def _is_masked(recipe: Recipe, seq: int) -> bool:
    may_pad = get_framework(recipe).pads and recipe.method != "pretrain" and not recipe.compiled
    return may_pad and (recipe.micro_batch > 1 or seq <= LONGEST_PADDED)
