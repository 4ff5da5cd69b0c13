"""Readers of encoders (BERT and its kin) and of T5: every token sees every other, so no layer is causal.

What stands on top depends on the first of `architectures`: a masked-word head, a pooler, a classifier.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.sizing.architecture import NORMS, Architecture, Attention, Block, FeedForward, gathered
from costguard.sizing.huggingface.config import Config
from costguard.sizing.huggingface.layers import Extras, plain_attention, stated, windows_of
from costguard.sizing.layer_implementation import LIKE_BERT, LIKE_T5, Written

EMBEDS = Written(normed_embedding=True)

WORDS = ("ForMaskedLM", "ForCausalLM", "LMHeadModel")
"""Tasks that predict words, whether masked or next."""


def bert(config: Config, name: str) -> Architecture:
    """BERT: learned positions and segments, norms after each half; a pooler unless only words are predicted."""
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    pooler = ("pooler", _square(hidden))
    heads: dict[str, Extras] = {
        **dict.fromkeys(WORDS, (_masked_head(config),)),
        "ForPreTraining": (_masked_head(config), pooler, ("next_sentence", 2 * hidden + 2)),
        "ForSequenceClassification": (pooler, ("classifier", classifier)),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    return _encoder(
        config, name, segments=config.size("type_vocab_size", default=2, least=0), head=heads.get(config.task, (pooler,))
    )


def roberta(config: Config, name: str) -> Architecture:
    """RoBERTa: BERT whose classifier has a dense layer of its own instead of the pooler."""
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    heads: dict[str, Extras] = {
        **dict.fromkeys(WORDS, (_masked_head(config),)),
        "ForSequenceClassification": (("classifier", _square(hidden) + classifier),),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    pooler: Extras = (("pooler", _square(hidden)),)
    return _encoder(
        config, name, segments=config.size("type_vocab_size", default=2, least=0), head=heads.get(config.task, pooler)
    )


def distilbert(config: Config, name: str) -> Architecture:
    """DistilBERT: BERT without segments and pooler."""
    hidden, classifier = config.hidden, config.labels * (config.hidden + 1)
    heads: dict[str, Extras] = {
        **dict.fromkeys(WORDS, (_masked_head(config),)),
        "ForSequenceClassification": (("classifier", _square(hidden) + classifier),),
        "ForTokenClassification": (("classifier", classifier),),
        "ForQuestionAnswering": (("classifier", classifier),),
    }
    return _encoder(config, name, segments=0, head=heads.get(config.task, ()))


def modernbert(config: Config, name: str) -> Architecture:
    """ModernBERT: rotary positions, a gated feed-forward, two layers in three see 128 tokens, no norm before the first."""
    hidden, norm = config.hidden, "layernorm" if config.flag("norm_bias") else "layernorm-no-bias"
    bias = config.flag("attention_bias")
    attention = replace(plain_attention(config, qkv_bias=bias, out_bias=bias, fused=True), packed=True)
    feed_forward = FeedForward(ffn=config.ffn(), bias=config.flag("mlp_bias"), activation=config.activation("gelu"), fused=True)
    layer = Block(
        layers=1, hidden=hidden, attention=attention, feed_forward=feed_forward, norm=norm, causal=False, written=EMBEDS
    )
    local = config.size("local_attention", default=128)
    every = config.size("global_attn_every_n_layers", default=3)
    listed = windows_of(config, local, every=0)
    windows = listed if config.items("layer_types") else [None if i % every == 0 else local for i in range(config.layers)]
    dense = hidden * hidden + hidden * config.flag("classifier_bias") + hidden * NORMS[norm]
    heads: dict[str, int] = {
        "ForMaskedLM": dense + config.vocab * config.flag("decoder_bias", default=True),
        "ForSequenceClassification": dense + config.labels * (hidden + 1),
        "ForTokenClassification": dense + config.labels * (hidden + 1),
    }
    return Architecture(
        name=name,
        kind="encoder",
        blocks=gathered(
            replace(layer, attention=replace(attention, window=window), norms=2 if i else 1) for i, window in enumerate(windows)
        ),
        vocab=config.vocab,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        has_head=config.task == "ForMaskedLM",
        extras=stated((("norms", 2 * hidden * NORMS[norm]), ("head", heads.get(config.task, 0)))),
    )


def t5(config: Config, name: str) -> Architecture:
    """T5, Flan-T5 (gated, not tied) and mT5: heads need not divide the width, positions are a bias for each head."""
    return _t5(config, name, biased_layers=1)


def umt5(config: Config, name: str) -> Architecture:
    """UMT5: T5 whose every layer has its own position bias."""
    return _t5(config, name, biased_layers=None)


def _encoder(config: Config, name: str, *, segments: int, head: Extras) -> Architecture:
    hidden, positions = config.hidden, config.positions(512)
    feed_forward = FeedForward(ffn=config.ffn(4 * hidden), gated=False, bias=True, activation=config.activation("gelu"))
    block = Block(
        layers=config.layers,
        hidden=hidden,
        attention=plain_attention(config),
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
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        has_head=config.task in (*WORDS, "ForPreTraining"),
        extras=stated((*embeddings, *head)),
        positions=positions,
    )


def _square(hidden: int) -> int:
    """A dense layer as wide as the model, with its bias."""
    return hidden * hidden + hidden


def _masked_head(config: Config) -> tuple[str, int]:
    """Dense layer, norm, and a bias for each word; its matrix is the embedding."""
    return "masked_head", _square(config.hidden) + 2 * config.hidden + config.vocab


def _t5(config: Config, name: str, *, biased_layers: int | None) -> Architecture:
    hidden, heads = config.hidden, config.heads
    encoders = config.layers
    decoders = config.size("num_decoder_layers", default=encoders, most=10_000)
    style = config.word("feed_forward_proj", default="relu")
    gated, activation = style.startswith("gated-"), style.removeprefix("gated-")
    width = config.size("d_kv", default=64)
    encoder = Block(
        layers=encoders,
        hidden=hidden,
        attention=Attention(heads=heads, kv_heads=heads, head_dim=width),
        feed_forward=FeedForward(ffn=config.ffn(), gated=gated, activation="gelu_new" if style == "gated-gelu" else activation),
        causal=False,
        written=LIKE_T5,
    )
    decoder = replace(encoder, layers=decoders, norms=3, causal=True, cross_attention=True)
    biases = config.size("relative_attention_num_buckets", default=32) * heads
    classifies = config.task == "ForSequenceClassification"
    classifier = (("classifier", _square(hidden) + config.labels * (hidden + 1)),) if classifies else ()
    stacks = encoders + decoders if biased_layers is None else 2 * biased_layers
    return Architecture(
        name=name,
        kind="encoder-decoder",
        blocks=(encoder, decoder),
        vocab=config.vocab,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        has_head=config.task != "Model" and not classifies,
        extras=(("position_biases", stacks * biases), ("final_norms", 2 * hidden), *classifier),
    )
