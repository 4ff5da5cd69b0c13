"""The shape of a model: runs of equal layers (`LayerBlock`) between an embedding and an output head.

Example: Llama-2-7B is one LayerBlock of 32 layers with hidden size 4096, attention with 32 heads of 128 and a gated
feed-forward of 11008. A layer has 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096 = 202,383,360 parameters. 32 layers, two
embeddings of 32,000 x 4096 and a final norm of 4096 give 6,738,415,616 parameters, the number in Meta's checkpoint.

A model with different kinds of layers (dense layers before expert layers, local and global attention, encoder and decoder) has
one LayerBlock for each kind. `group_blocks` merges alternating layers by kind, because no count depends on their order.
Parameters outside the layers and the two vocabulary matrices are named entries in `extras`.

Multi-head latent attention (MLA, DeepSeek-V2) compresses keys and values into a narrow latent, and the cache stores only that.
Linear attention (`LinearState`: Qwen3-Next's gated delta net, Mamba 2) keeps a state of fixed size instead of keys and values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from costguard.sizing.layer_implementation import LIKE_LLAMA, LayerImplementation
from costguard.values.checks import require, require_one_of, require_whole_number

if TYPE_CHECKING:  # a type and no more: few models are walked
    from costguard.sizing.convnet import LayerWalk


KINDS = ("decoder", "encoder", "encoder-decoder", "vit", "clip", "dit", "convnet", "unet")
NORMS = {"rmsnorm": 1, "layernorm": 2, "layernorm-no-bias": 1, "layernorm-no-parameters": 0}
"""Parameters per hidden unit of each kind of norm: a scale, a scale and a shift, or nothing."""

QK_NORMS = ("none", "per-head", "full")
LINEAR_CHUNK = 64
"""Tokens whose pairs linear attention scores directly, while the rest goes through its state (flash-linear-attention's
kernels)."""

KEY_VALUES = ("own", "shared", "earlier")
RELEASED_BYTES = {
    "fp32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "mxfp4": 0.56,
    **dict.fromkeys(("nf4", "int4", "nvfp4"), 0.56),
} | {"int8": 1.0}
"""gpt-oss-120b: 65.2 GB of 116.8 billion weights, of which its experts alone are in 4 bits (safetensors index, 2026-11)."""
DENOISERS = ("dit", "unet")
SAMPLE_UNITS = ("images", "audio_seconds", "frames")
"""What people count instead of tokens, where a model is not fed words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Self-attention of one layer.

    `window`: the most tokens that one query attends to; None: all tokens before it. `fused`: query, key and value are one
    matrix. `packed`: the result of that matrix stays in memory together with the rotated query and key. `output_gate`: the
    query matrix also makes a gate for the result. `key_value`: "shared" if one matrix makes keys and values, "earlier" if those
    of an earlier layer are read. `query_norm`: the kind of norm that `qk_norm` puts over queries and keys. `state`: linear
    attention, with `head_dim` of its values; None: of every pair of tokens. `query_rank`: width through which queries are
    projected, `output_rank`: summed width of the groups through which the result is (`output_groups`); 0: directly. `cached`:
    numbers that a KV cache stores per token; None: keys and values.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: str = "none"
    query_norm: str = "rmsnorm"
    sinks: bool = False
    fused: bool = False
    packed: bool = False
    window: int | None = None
    latent: LatentAttention | None = None
    output_gate: bool = False
    key_value: str = "own"
    state: LinearState | None = None
    query_rank: int = 0
    output_rank: int = 0
    output_groups: int = 1
    cached: int | None = None

    def __post_init__(self) -> None:
        require_one_of(self.key_value, KEY_VALUES, "key_value")
        require_whole_number(self.heads, "heads")
        require_whole_number(self.kv_heads, "kv_heads")
        require_whole_number(self.head_dim, "head_dim")
        require_whole_number(1 if self.window is None else self.window, "window")
        require_one_of(self.qk_norm, QK_NORMS, "qk_norm")
        require(
            self.heads % self.kv_heads == 0,
            "kv_heads",
            f"{self.kv_heads} does not divide heads ({self.heads})",
            "each group of query heads shares one key head: write a divisor of heads",
        )

    @property
    def query_width(self) -> int:
        """Return heads x head_dim; with MLA, heads x (un-rotated part + rotated part of a head)."""
        per_head = self.head_dim if self.latent is None else self.latent.nope_dim + self.latent.rope_dim
        return self.heads * per_head

    @property
    def kv_width(self) -> int:
        """Return the width of the keys of all key heads together."""
        return self.kv_heads * self.head_dim

    @property
    def cached_width(self) -> int:
        """Return the numbers that a KV cache stores per token and layer.

        These are the keys and values; with MLA, the latent and the rotated key; none where an earlier layer's are read, or
        where a state of fixed size takes their place (`state_numbers`).
        """
        if self.state is not None or self.key_value == "earlier":
            return 0
        if self.cached is not None:
            return self.cached
        return 2 * self.kv_width if self.latent is None else self.latent.kv_rank + self.latent.rope_dim

    @property
    def state_numbers(self) -> int:
        """Return the numbers that linear attention stores per sequence and layer; 0 for all other attention."""
        return 0 if self.state is None else self.state.size

    def list_matrices(self, hidden: int) -> dict[str, tuple[int, int]]:
        """Return the (inputs, outputs) of each linear layer by name."""
        q, kv = self.query_width, self.kv_width
        if self.state is not None:
            return {"in_proj": (hidden, self.state.in_width), "o_proj": (q, hidden)}
        if self.latent is None:
            names = {"own": ("k_proj", "v_proj"), "shared": ("k_proj",), "earlier": ()}[self.key_value]
            rank, out = self.query_rank, self.output_rank
            queries = {"q_a_proj": (hidden, rank), "q_b_proj": (rank, q)}
            outputs = {"o_a_proj": (q // self.output_groups, out), "o_b_proj": (out, hidden)}
            return (
                (queries if rank else {"q_proj": (hidden, (1 + self.output_gate) * q)})
                | dict.fromkeys(names, (hidden, kv))
                | (outputs if out else {"o_proj": (q, hidden)})
            )
        m = self.latent
        query = (
            {"q_a_proj": (hidden, m.q_rank), "q_b_proj": (m.q_rank, self.query_width)}
            if m.q_rank
            else {"q_proj": (hidden, self.query_width)}
        )
        return query | {
            "kv_a_proj": (hidden, m.kv_rank + m.rope_dim),
            "kv_b_proj": (m.kv_rank, self.heads * (m.nope_dim + m.value_dim)),
            "o_proj": (self.heads * m.value_dim, hidden),
        }

    def count_small_parameters(self, hidden: int) -> int:
        """Return the number of parameters that are not in a matrix: biases, query and key norms, sinks, a state's own."""
        if self.state is not None:
            return self.state.small
        biases = self.qkv_bias * self._biased_width + self.out_bias * hidden
        keys = self.key_value != "earlier"
        norms = {
            "none": 0,
            "per-head": (1 + keys) * self.head_dim,
            "full": self.query_width + keys * self.kv_width,
        }[self.qk_norm]
        latent_norms = 0 if self.latent is None else self.latent.q_rank + self.latent.kv_rank
        return biases + norms + latent_norms + self.sinks * self.heads + self.query_rank

    @property
    def _biased_width(self) -> int:
        """Return the number of outputs that get a bias from `qkv_bias`.

        With MLA these are the two projections into a latent; the projections out of it have no bias.
        """
        if self.latent is None:
            return sum(outputs for name, (_, outputs) in self.list_matrices(0).items() if name != "o_proj")
        return self.latent.q_rank + self.latent.kv_rank + self.latent.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """The feed-forward of one layer, or its experts.

    `ffn`: the width; 0 if the layer has none; with `experts`, the width of one expert. `shared_ffn`: the summed width of the
    experts that process every token. `fused`: gate and up are one matrix. `activation`: its Hugging Face name; `gelu_new`
    keeps the most memory. `latent`: the width that the routed experts read, projected from and to the model's; 0: the model's.
    """

    ffn: int
    gated: bool = True
    bias: bool = False
    activation: str = "silu"
    experts: int = 0
    experts_per_token: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    fused: bool = False
    latent: int = 0

    def __post_init__(self) -> None:
        require_whole_number(self.ffn, "ffn", least=0)
        require_whole_number(self.experts, "experts", least=0)
        require_whole_number(self.shared_ffn, "shared_ffn", least=0)
        require_whole_number(self.experts_per_token, "experts_per_token", least=1 if self.experts else 0)
        require(
            self.experts_per_token <= self.experts,
            "experts_per_token",
            f"{self.experts_per_token} is more than experts ({self.experts})",
            "write how many of the experts one token passes",
        )

    def list_matrices(self, hidden: int) -> dict[str, tuple[int, int]]:
        """Return the (inputs, outputs) of each linear layer of one expert, or of the only feed-forward, by name."""
        if not self.ffn:
            return {}
        names, width = ("gate_proj", "up_proj") if self.gated else ("up_proj",), self.latent or hidden
        return dict.fromkeys(names, (width, self.ffn)) | {"down_proj": (self.ffn, width)}

    def count_parameters_each(self, hidden: int) -> int:
        """Parameters of one expert, or of the only feed-forward."""
        if not self.ffn:
            return 0
        widths, width = (self.gated + 1) * self.ffn, self.latent or hidden
        return (self.gated + 2) * width * self.ffn + self.bias * (widths + width)

    def count_parameters(self, hidden: int) -> int:
        """Return the parameters of all experts, the router and the shared experts."""
        if not self.experts:
            return self.count_parameters_each(hidden)
        router = self.experts * (hidden + self.router_bias)
        return router + self.experts * self.count_parameters_each(hidden) + self._count_shared_parameters(hidden)

    def count_active_parameters(self, hidden: int) -> int:
        """Return the parameters that process one token: the router, its selected experts and the shared experts."""
        if not self.experts:
            return self.count_parameters_each(hidden)
        router = self.experts * (hidden + self.router_bias)
        return router + self.experts_per_token * self.count_parameters_each(hidden) + self._count_shared_parameters(hidden)

    def _count_shared_parameters(self, hidden: int) -> int:
        return (self.gated + 2) * hidden * self.shared_ffn + self.shared_gate * hidden + 2 * hidden * self.latent


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBlock:
    """A run of `layers` equal layers.

    `norms`: number of norms in one layer. `tokens`: tokens per sample; None: the job's seq_len. `cross_tokens`: tokens of the
    encoder that cross-attention reads; None: the job's seq_len.
    """

    layers: int
    hidden: int
    attention: Attention
    feed_forward: FeedForward
    norm: str = "rmsnorm"
    norms: int = 2
    causal: bool = True
    cross_attention: bool = False
    tokens: int | None = None
    cross_tokens: int | None = None
    written: LayerImplementation = LIKE_LLAMA

    def __post_init__(self) -> None:
        require_whole_number(self.layers, "layers")
        require_whole_number(self.hidden, "hidden")
        require_whole_number(self.norms, "norms", least=0)
        require_one_of(self.norm, NORMS, "norm")

    def count_tokens(self, seq_len: int, decoder_len: int | None = None) -> int:
        """Return the tokens of one sample that this block processes.

        A decoder beside an encoder processes `decoder_len` if that is stated.
        """
        if self.cross_attention and decoder_len is not None:
            return decoder_len
        return self.tokens or seq_len

    @property
    def small_parameters(self) -> int:
        """Return the norm and attention bias parameters of one layer, which quantisers and adapters leave unchanged.

        Biases of the feed-forward are not included.
        """
        return self.norms * self.hidden * NORMS[self.norm] + self._attentions * self.attention.count_small_parameters(
            self.hidden
        )

    @property
    def attention_parameters(self) -> int:
        """Return the matrix parameters of one layer's attention, including cross-attention."""
        return self._attentions * sum(i * o for i, o in self.attention.list_matrices(self.hidden).values())

    @property
    def parameters_each(self) -> int:
        """Parameters of one layer."""
        return self.small_parameters + self.attention_parameters + self.feed_forward.count_parameters(self.hidden)

    @property
    def active_parameters_each(self) -> int:
        """Return the parameters of one layer that process one token."""
        return self.small_parameters + self.attention_parameters + self.feed_forward.count_active_parameters(self.hidden)

    @property
    def _attentions(self) -> int:
        return 2 if self.cross_attention else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The shape of a model.

    - `extras`: (name, parameters) of tensors outside the layers and the vocabulary matrices: positions, norms, heads.
    - `companions`: (name, parameters) of frozen models that training holds beside this one: a VAE, text encoders. They are not
        counted in `parameters`.
    - `stated_params`: replaces the computed parameter count where the shape is not fully known.
    - `sample_tokens`: the fixed number of tokens of a sample (an image's patches). None: the job states it.
    - `sample_unit`: what a sample is counted in (`SAMPLE_UNITS`), and `units_per_sample`: how many of them it has. None: a
        sample is words.
    - `positions`: the longest sequence that learned positions allow. None: no limit.
    - `context`: the longest sequence that the config says the model reads. None: it does not say.
    - `vocab_width`: width of the vocabulary matrices. None: `hidden`. It differs where a text tower is narrower than
        the vision tower.
    - `shape_of`: the shipped model whose shape stands for this one's, of which no source is known. None: the shape is its own.
    - `notes`: remarks about the count for the user: a tower that was left out, a number that was assumed.
    - `released_precision`: what the weights are stored in: bf16, fp16, fp32, fp8, mxfp4, or nf4, int4, int8, nvfp4 of a copy in
        fewer bits. None: not known. Serving and QLoRA start from it unless stated otherwise.
    - `walk`: the whole model layer by layer, where layers differ in size and there are no LayerBlocks
        (`sizing/convnet.py`).
    - `denoising_steps`: steps in which a diffusion model makes an image where its release or pipeline states them; None: not
        known. `guided`: each step is two passes under classifier-free guidance; a distilled model needs one.
    """

    name: str
    kind: str
    blocks: tuple[LayerBlock, ...]
    vocab: int = 0
    tied_embeddings: bool = False
    has_head: bool = True
    extras: tuple[tuple[str, int], ...] = ()
    sample_tokens: int | None = None
    positions: int | None = None
    stated_params: int | None = None
    vocab_width: int | None = None
    notes: tuple[str, ...] = ()
    walk: LayerWalk | None = None
    released_precision: str | None = None
    sample_unit: str | None = None
    units_per_sample: float = 1.0
    context: int | None = None
    companions: tuple[tuple[str, int], ...] = ()
    denoising_steps: int | None = None
    guided: bool = True
    shape_of: str | None = None

    def __post_init__(self) -> None:
        require_one_of(self.kind, KINDS, "kind")
        require(
            self.sample_unit is None or self.sample_unit in SAMPLE_UNITS, "sample_unit", f"'{self.sample_unit}' is not known"
        )
        require(
            bool(self.blocks) or self.walk is not None,
            "layers",
            "an architecture needs at least one layer",
            "write layers = 32",
        )
        require_whole_number(self.vocab, "vocab", least=0)
        if self.stated_params is not None:
            require_whole_number(self.stated_params, "params")

    @property
    def released_bytes(self) -> float:
        """Return the bytes that a released weight takes on disk, on average; two where the precision is not known."""
        return RELEASED_BYTES.get(self.released_precision or "", 2.0)

    @property
    def writes(self) -> bool:
        """Return whether words are generated one after another; an encoder, an embedding model or an image tower does not."""
        return self.has_head and any(block.causal for block in self.blocks)

    @property
    def denoises(self) -> bool:
        """Return whether the model is the network of a diffusion model, which passes one image many times."""
        return self.kind in DENOISERS

    @property
    def main(self) -> LayerBlock:
        """Return the LayerBlock with the most parameters, which defines the model's width."""
        return max(self.blocks, key=lambda b: b.layers * b.parameters_each)

    @property
    def layers(self) -> int:
        """Return the number of layers of all LayerBlocks."""
        return sum(b.layers for b in self.blocks)

    @property
    def hidden(self) -> int:
        """Return the width of the main LayerBlock."""
        return self.main.hidden

    @property
    def embedding_parameters(self) -> int:
        """The input embedding: vocab x its width."""
        return self.vocab * (self.vocab_width or self.hidden)

    @property
    def head_parameters(self) -> int:
        """Return the parameters of the output matrix; 0 if it is tied to the embedding or absent."""
        return self.embedding_parameters if self.has_head and not self.tied_embeddings else 0

    @property
    def computed_parameters(self) -> int:
        """Every parameter, counted from the shape."""
        layers = sum(b.layers * b.parameters_each for b in self.blocks)
        walked = self.walk.parameters if self.walk else 0
        return self.embedding_parameters + layers + walked + self.head_parameters + sum(n for _, n in self.extras)

    @property
    def parameters(self) -> int:
        """Return `stated_params` if stated, else the computed count."""
        return self.stated_params or self.computed_parameters

    @property
    def active_parameters(self) -> int:
        """Return the parameters that process one token; without experts, all parameters.

        A stated count is scaled by the active share of the computed count.
        """
        idle = sum(b.layers * (b.parameters_each - b.active_parameters_each) for b in self.blocks)
        return self.parameters * (self.computed_parameters - idle) // self.computed_parameters

    def compute_predicted_share(self, seq_len: int, decoder_len: int | None = None) -> float:
        """Return for which share of a sample's tokens words are predicted: of an encoder-decoder, those of the decoder."""
        sample = self.sample_tokens or seq_len
        decoders = [b for b in self.blocks if b.cross_attention]
        return decoders[0].count_tokens(sample, decoder_len) / sample if decoders else 1.0


def group_blocks(layers: Iterable[LayerBlock]) -> tuple[LayerBlock, ...]:
    """Return one LayerBlock for each kind of layer in `layers`, in order of first appearance."""
    alike = Counter[LayerBlock]()
    for block in layers:
        alike[replace(block, layers=1)] += block.layers
    return tuple(replace(block, layers=count) for block, count in alike.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearState:
    """What linear attention has instead of keys and values.

    `in_width`: outputs of the projections that make queries, keys, values, gates and decays. `small`: parameters of one layer
    outside its matrices: convolution, decay, norm. `size`: numbers of the state of one sequence, with the convolution's.
    """

    in_width: int
    small: int
    size: int

    def __post_init__(self) -> None:
        for name in ("in_width", "small", "size"):
            require_whole_number(getattr(self, name), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Dimensions of multi-head latent attention.

    Keys and values are projected through a latent of width `kv_rank`, queries through one of width `q_rank` (0: no latent).
    """

    q_rank: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        require_whole_number(self.q_rank, "q_rank", least=0)
        for name in ("kv_rank", "rope_dim", "nope_dim", "value_dim"):
            require_whole_number(getattr(self, name), name)
