"""Readers of encoders (BERT and similar models) and of encoder-decoders: T5 and Whisper.

Every encoder token attends to every other, so no encoder layer is causal.

The head depends on the first of `architectures`: a masked-word head, a pooler or a classifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.sizing.architecture import NORMS, Architecture, Attention, FeedForward, LayerBlock, group_blocks
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.layers import ExtraTensors, drop_empty_extras, read_plain_attention, read_windows
from costguard.sizing.layer_implementation import LIKE_BERT, LIKE_T5, LayerImplementation
from costguard.values.checks import require

EMBEDS = LayerImplementation(normed_embedding=True)

WORDS = ("ForMaskedLM", "ForCausalLM", "LMHeadModel")
"""Tasks that predict words, whether masked or next."""


def read_bert(config: ModelConfig, name: str) -> Architecture:
    """BERT: learned positions and segments, norms after each half; a pooler unless the task only predicts words."""
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    pooler = ("pooler", _count_dense_parameters(hidden))
    heads: dict[str, ExtraTensors] = {
        **dict.fromkeys(WORDS, (_count_masked_head(config),)),
        "ForPreTraining": (_count_masked_head(config), pooler, ("next_sentence", 2 * hidden + 2)),
        "ForSequenceClassification": (pooler, ("classifier", classifier)),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    return _build_encoder(
        config, name, segments=config.read_size("type_vocab_size", default=2, least=0), head=heads.get(config.task, (pooler,))
    )


def read_roberta(config: ModelConfig, name: str) -> Architecture:
    """RoBERTa: BERT with a dense layer in the classifier instead of the pooler."""
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    heads: dict[str, ExtraTensors] = {
        **dict.fromkeys(WORDS, (_count_masked_head(config),)),
        "ForSequenceClassification": (("classifier", _count_dense_parameters(hidden) + classifier),),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    pooler: ExtraTensors = (("pooler", _count_dense_parameters(hidden)),)
    return _build_encoder(
        config, name, segments=config.read_size("type_vocab_size", default=2, least=0), head=heads.get(config.task, pooler)
    )


def read_distilbert(config: ModelConfig, name: str) -> Architecture:
    """DistilBERT: BERT without segments and without a pooler."""
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    heads: dict[str, ExtraTensors] = {
        **dict.fromkeys(WORDS, (_count_masked_head(config),)),
        "ForSequenceClassification": (("classifier", _count_dense_parameters(hidden) + classifier),),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    return _build_encoder(config, name, segments=0, head=heads.get(config.task, ()))


def read_mpnet(config: ModelConfig, name: str) -> Architecture:
    """MPNet: RoBERTa with one learned bias per distance and head, shared by all layers."""
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    biases = ("position_biases", config.read_size("relative_attention_num_buckets", default=32) * config.heads)
    heads: dict[str, ExtraTensors] = {
        **dict.fromkeys(WORDS, (_count_masked_head(config),)),
        "ForSequenceClassification": (("classifier", _count_dense_parameters(hidden) + classifier),),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    pooler: ExtraTensors = (("pooler", _count_dense_parameters(hidden)),)
    return _build_encoder(config, name, segments=0, head=(biases, *heads.get(config.task, pooler)))


def read_deberta(config: ModelConfig, name: str) -> Architecture:
    """DeBERTa v2 and v3: scores of content and of distance, so that full scores are always kept; no flash kernel.

    Distances have an embedding of `2 x position_buckets` rows, which goes through the query and key matrices (or through its
    own unless `share_att_key`). The XL and XXL models of v2 add a convolution after the first layer.
    """
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    heads: dict[str, ExtraTensors] = {
        **dict.fromkeys(WORDS, (_count_masked_head(config),)),
        "ForSequenceClassification": (("pooler", _count_dense_parameters(hidden)), ("classifier", classifier)),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    extras = (*_list_distance_tensors(config), *heads.get(config.task, ()))
    learned = config.read_flag("position_biased_input", default=True)
    segments = config.read_size("type_vocab_size", default=0, least=0)
    model = _build_encoder(config, name, segments=segments, head=extras)
    rows = _count_distances(config) * len(_list_distance_kinds(config)) * config.read_flag("relative_attention")
    block = replace(model.main, written=replace(LIKE_BERT, distance_rows=rows))
    kept_extras = tuple((key, n) for key, n in model.extras if learned or key != "positions")
    return replace(model, blocks=(block,), extras=kept_extras, positions=model.positions if learned else None)


def _list_distance_tensors(config: ModelConfig) -> ExtraTensors:
    """Return the tensors of DeBERTa's relative positions and of its convolution."""
    hidden, rows = config.hidden, _count_distances(config)
    apart = config.layers * len(_list_distance_kinds(config)) * _count_dense_parameters(hidden)
    kernel = config.read_size("conv_kernel_size", default=0, least=0)
    normed = "layer_norm" in config.read_word("norm_rel_ebd", default="none")
    relative = config.read_flag("relative_attention")
    return (
        ("distances", rows * hidden if relative else 0),
        ("distance_norm", 2 * hidden if normed else 0),
        ("distance_projections", apart if relative and not config.read_flag("share_att_key") else 0),
        ("convolution", kernel * hidden * hidden + 3 * hidden if kernel else 0),
    )


def _count_distances(config: ModelConfig) -> int:
    """Return the rows of the embedding of distances."""
    buckets = config.read_size("position_buckets", default=0, least=-1)
    max_positions = config.read_size("max_relative_positions", default=0, least=-1)
    return 2 * (buckets if buckets > 0 else max_positions if max_positions > 0 else config.read_positions(512))


def _list_distance_kinds(config: ModelConfig) -> list[str]:
    """Return what is compared with distances: queries (c2p), keys (p2c) or both."""
    kinds = config.values.get("pos_att_type")
    return kinds.split("|") if isinstance(kinds, str) else [str(kind) for kind in config.read_items("pos_att_type") or []]


def read_modernbert(config: ModelConfig, name: str) -> Architecture:
    """ModernBERT: rotary positions, a gated feed-forward, no norm before the first layer.

    Two of three layers attend to 128 tokens only.
    """
    hidden, norm = config.hidden, "layernorm" if config.read_flag("norm_bias") else "layernorm-no-bias"
    bias = config.read_flag("attention_bias")
    attention = replace(read_plain_attention(config, qkv_bias=bias, out_bias=bias, fused=True), packed=True)
    feed_forward = FeedForward(
        ffn=config.read_ffn(), bias=config.read_flag("mlp_bias"), activation=config.read_activation("gelu"), fused=True
    )
    layer = LayerBlock(
        layers=1, hidden=hidden, attention=attention, feed_forward=feed_forward, norm=norm, causal=False, written=EMBEDS
    )
    local = config.read_size("local_attention", default=128)
    every = config.read_size("global_attn_every_n_layers", default=3)
    listed = read_windows(config, local, every=0)
    windows = listed if config.read_items("layer_types") else [None if i % every == 0 else local for i in range(config.layers)]
    dense = hidden * hidden + hidden * config.read_flag("classifier_bias") + hidden * NORMS[norm]
    heads: dict[str, int] = {
        "ForMaskedLM": dense + config.vocab * config.read_flag("decoder_bias", default=True),
        "ForSequenceClassification": dense + config.labels * (hidden + 1),
        "ForTokenClassification": dense + config.labels * (hidden + 1),
    }
    return Architecture(
        name=name,
        kind="encoder",
        blocks=group_blocks(
            replace(layer, attention=replace(attention, window=window), norms=2 if i else 1) for i, window in enumerate(windows)
        ),
        vocab=config.vocab,
        tied_embeddings=config.read_flag("tie_word_embeddings", default=True),
        has_head=config.task == "ForMaskedLM",
        extras=drop_empty_extras((("norms", 2 * hidden * NORMS[norm]), ("head", heads.get(config.task, 0)))),
    )


def read_t5(config: ModelConfig, name: str) -> Architecture:
    """T5, Flan-T5 (gated, not tied) and mT5: the heads need not divide the width; positions are a bias per head."""
    return _build_t5(config, name, biased_layers=1)


def read_umt5(config: ModelConfig, name: str) -> Architecture:
    """UMT5: T5 with a separate position bias in every layer."""
    return _build_t5(config, name, biased_layers=None)


WHISPER_SECONDS = 30
"""Of sound that the encoder reads at once (arXiv 2212.04356); shorter sounds are padded to it."""
WHISPER_DEFAULTS: Mapping[str, object] = {
    "vocab_size": 51_865,
    "num_mel_bins": 80,
    "max_source_positions": 1500,
    "max_target_positions": 448,
}


def read_whisper(config: ModelConfig, name: str) -> Architecture:
    """Whisper: 30 s of sound are 1,500 positions of the encoder, and at most 448 words of the decoder; keys have no bias."""
    c = config.fill_defaults(WHISPER_DEFAULTS)
    hidden, sound_positions = c.hidden, c.read_size("max_source_positions")
    words, bands = c.read_size("max_target_positions"), c.read_size("num_mel_bins")
    activation = c.read_activation("gelu")

    def build(stack: str, tokens: int) -> LayerBlock:
        heads, ffn = c.read_size(f"{stack}_attention_heads"), c.read_size(f"{stack}_ffn_dim")
        field = f"{stack}_attention_heads"
        require(hidden % heads == 0, field, f"{heads} do not divide {hidden}", f"write a divisor of {hidden}")
        return LayerBlock(
            layers=c.read_size(f"{stack}_layers", most=10_000),
            hidden=hidden,
            attention=Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, out_bias=True),
            feed_forward=FeedForward(ffn=ffn, gated=False, bias=True, activation=activation),
            norm="layernorm",
            causal=False,
            tokens=tokens,
            written=LayerImplementation(rotated=False, wide_softmax=False),
        )

    encoder = build("encoder", sound_positions)
    decoder = replace(build("decoder", words), norms=3, causal=True, cross_attention=True, cross_tokens=sound_positions)
    return Architecture(
        name=name,
        kind="encoder-decoder",
        blocks=(encoder, decoder),
        vocab=c.vocab,
        tied_embeddings=c.read_flag("tie_word_embeddings", default=True),
        has_head=c.task != "Model",
        extras=(
            ("sound", 3 * bands * hidden + 3 * hidden * hidden + 2 * hidden),
            ("positions", (sound_positions + words) * hidden),
            ("query_and_value_biases", 2 * hidden * (encoder.layers + 2 * decoder.layers)),
            ("final_norms", 4 * hidden),
        ),
        sample_tokens=sound_positions,
        positions=words,
        sample_unit="audio_seconds",
        units_per_sample=WHISPER_SECONDS,
    )


def _build_encoder(config: ModelConfig, name: str, *, segments: int, head: ExtraTensors) -> Architecture:
    hidden, positions = config.hidden, config.read_positions(512)
    feed_forward = FeedForward(
        ffn=config.read_ffn(4 * hidden), gated=False, bias=True, activation=config.read_activation("gelu")
    )
    block = LayerBlock(
        layers=config.layers,
        hidden=hidden,
        attention=read_plain_attention(config),
        feed_forward=feed_forward,
        norm="layernorm",
        causal=False,
        written=LIKE_BERT,
    )
    embeddings = (("positions", positions * hidden), ("segments", segments * hidden), ("embedding_norm", 2 * hidden))
    return Architecture(
        name=name,
        kind="encoder",
        blocks=(block,),
        vocab=config.vocab,
        tied_embeddings=config.read_flag("tie_word_embeddings", default=True),
        has_head=config.task in (*WORDS, "ForPreTraining"),
        extras=drop_empty_extras((*embeddings, *head)),
        positions=positions,
    )


def _count_dense_parameters(hidden: int) -> int:
    """Return the parameters of a dense layer as wide as the model, including its bias."""
    return hidden * hidden + hidden


def _count_masked_head(config: ModelConfig) -> tuple[str, int]:
    """Return the name and parameters of the masked-word head: a dense layer, a norm and a bias per word.

    Its output matrix is the embedding, which is counted elsewhere.
    """
    return "masked_head", _count_dense_parameters(config.hidden) + 2 * config.hidden + config.vocab


def _build_t5(config: ModelConfig, name: str, *, biased_layers: int | None) -> Architecture:
    hidden, heads = config.hidden, config.heads
    encoders = config.layers
    decoders = config.read_size("num_decoder_layers", default=encoders, most=10_000)
    style = config.read_word("feed_forward_proj", default="relu")
    gated, activation = style.startswith("gated-"), style.removeprefix("gated-")
    width = config.read_size("d_kv", default=64)
    encoder = LayerBlock(
        layers=encoders,
        hidden=hidden,
        attention=Attention(heads=heads, kv_heads=heads, head_dim=width),
        feed_forward=FeedForward(
            ffn=config.read_ffn(), gated=gated, activation="gelu_new" if style == "gated-gelu" else activation
        ),
        causal=False,
        written=LIKE_T5,
    )
    decoder = replace(encoder, layers=decoders, norms=3, causal=True, cross_attention=True)
    biases = config.read_size("relative_attention_num_buckets", default=32) * heads
    classifies = config.task == "ForSequenceClassification"
    classifier = (("classifier", _count_dense_parameters(hidden) + config.labels * (hidden + 1)),) if classifies else ()
    stacks = encoders + decoders if biased_layers is None else 2 * biased_layers
    return Architecture(
        name=name,
        kind="encoder-decoder",
        blocks=(encoder, decoder),
        vocab=config.vocab,
        tied_embeddings=config.read_flag("tie_word_embeddings", default=True),
        has_head=config.task != "Model" and not classifies,
        extras=(("position_biases", stacks * biases), ("final_norms", 2 * hidden), *classifier),
    )
