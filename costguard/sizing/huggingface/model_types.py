"""Model types that are shaped like another, and what classes assume: written by `scripts/build_model_types.py`.

transformers 5.24.0, torch 2.14.1. Nothing here is written by hand.
"""

from collections.abc import Mapping

LIKE: Mapping[str, str] = {
    "biogpt": "opt",
    "codegen": "gptj",
    "cwm": "llama",
    "ernie4_5": "llama",
    "glm4_moe_lite": "deepseek_v3",
    "gpt-sw3": "gpt2",
    "internlm3": "llama",
    "mellum": "qwen3_moe",
    "ministral3": "llama",
    "sarvam_mla": "deepseek_v3",
    "sarvam_moe": "glm4_moe",
    "vaultgemma": "llama",
}
"""Model type -> the type whose reader counts every parameter of its class."""

DEFAULTS_TABLE = """
biogpt hidden_act=gelu hidden_size=1024 intermediate_size=4096 max_position_embeddings=1024 num_attention_heads=16
  num_hidden_layers=24 tie_word_embeddings=True vocab_size=42384
codegen activation_function=gelu_new n_embd=4096 n_head=16 n_layer=28 n_positions=2048 tie_word_embeddings=False
  vocab_size=50400
cwm head_dim=128 hidden_act=silu hidden_size=6144 intermediate_size=21504 max_position_embeddings=131072 mlp_bias=False
  num_attention_heads=48 num_hidden_layers=64 num_key_value_heads=8 sliding_window=8192 tie_word_embeddings=False
  vocab_size=128256
deepseek_v3 attention_bias=False first_k_dense_replace=3 head_dim=64 hidden_act=silu hidden_size=7168
  intermediate_size=18432 kv_lora_rank=512 max_position_embeddings=4096 moe_intermediate_size=2048 n_routed_experts=256
  n_shared_experts=1 num_attention_heads=128 num_experts_per_tok=8 num_hidden_layers=61 num_key_value_heads=128
  q_lora_rank=1536 qk_nope_head_dim=128 qk_rope_head_dim=64 tie_word_embeddings=False v_head_dim=128 vocab_size=129280
ernie4_5 head_dim=128 hidden_act=silu hidden_size=1024 intermediate_size=3072 max_position_embeddings=131072
  num_attention_heads=16 num_hidden_layers=18 num_key_value_heads=2 tie_word_embeddings=True use_bias=False
  vocab_size=103424
gemma attention_bias=False head_dim=256 hidden_act=gelu_pytorch_tanh hidden_size=3072 intermediate_size=24576
  max_position_embeddings=8192 num_attention_heads=16 num_hidden_layers=28 num_key_value_heads=16
  tie_word_embeddings=True vocab_size=256000
gemma2 attention_bias=False head_dim=256 hidden_activation=gelu_pytorch_tanh hidden_size=2304 intermediate_size=9216
  max_position_embeddings=8192 num_attention_heads=8 num_hidden_layers=26 num_key_value_heads=4 sliding_window=4096
  tie_word_embeddings=True vocab_size=256000
gemma3_text _sliding_window_pattern=6 attention_bias=False head_dim=256 hidden_activation=gelu_pytorch_tanh
  hidden_size=2304 intermediate_size=9216 max_position_embeddings=131072 num_attention_heads=8 num_hidden_layers=26
  num_key_value_heads=4 sliding_window=4096 tie_word_embeddings=True vocab_size=262208
gemma4_unified_text attention_bias=False attention_k_eq_v=False head_dim=256 hidden_activation=gelu_pytorch_tanh
  hidden_size=2304 intermediate_size=9216 max_position_embeddings=262144 num_attention_heads=8 num_hidden_layers=30
  num_key_value_heads=4 num_kv_shared_layers=0 sliding_window=1024 tie_word_embeddings=True use_double_wide_mlp=False
  vocab_size=262144
glm4_moe_lite attention_bias=False hidden_act=silu hidden_size=2048 intermediate_size=10240 kv_lora_rank=512
  max_position_embeddings=202752 moe_intermediate_size=1536 n_routed_experts=64 n_shared_experts=1
  num_attention_heads=20 num_experts_per_tok=4 num_hidden_layers=47 num_key_value_heads=20 q_lora_rank=768
  qk_nope_head_dim=192 qk_rope_head_dim=64 tie_word_embeddings=False v_head_dim=256 vocab_size=154880
gpt-sw3 activation_function=gelu_new n_embd=768 n_head=12 n_layer=12 n_positions=1024 tie_word_embeddings=True
  vocab_size=50257
gpt_oss attention_bias=True head_dim=64 hidden_act=silu hidden_size=2880 intermediate_size=2880
  max_position_embeddings=131072 num_attention_heads=64 num_experts_per_tok=4 num_hidden_layers=36 num_key_value_heads=8
  num_local_experts=128 sliding_window=128 tie_word_embeddings=False vocab_size=201088
internlm3 attention_bias=False head_dim=128 hidden_act=silu hidden_size=4096 intermediate_size=10240
  max_position_embeddings=32768 mlp_bias=False num_attention_heads=32 num_hidden_layers=48 num_key_value_heads=2
  tie_word_embeddings=False vocab_size=128512
llama attention_bias=False hidden_act=silu hidden_size=4096 intermediate_size=11008 max_position_embeddings=2048
  mlp_bias=False num_attention_heads=32 num_hidden_layers=32 tie_word_embeddings=False vocab_size=32000
mellum attention_bias=False head_dim=128 hidden_act=silu hidden_size=2304 intermediate_size=7168
  max_position_embeddings=131072 moe_intermediate_size=896 num_attention_heads=32 num_experts_per_tok=8
  num_hidden_layers=28 num_key_value_heads=4 num_local_experts=64 sliding_window=1024 tie_word_embeddings=False
  vocab_size=98304
ministral3 head_dim=128 hidden_act=silu hidden_size=4096 intermediate_size=14336 max_position_embeddings=262144
  num_attention_heads=32 num_hidden_layers=34 num_key_value_heads=8 tie_word_embeddings=False vocab_size=131072
mistral hidden_act=silu hidden_size=4096 intermediate_size=14336 max_position_embeddings=131072 num_attention_heads=32
  num_hidden_layers=32 num_key_value_heads=8 sliding_window=4096 tie_word_embeddings=False vocab_size=32000
phi3 hidden_act=silu hidden_size=3072 intermediate_size=8192 max_position_embeddings=4096 num_attention_heads=32
  num_hidden_layers=32 original_max_position_embeddings=4096 tie_word_embeddings=False vocab_size=32064
qwen2 hidden_act=silu hidden_size=4096 intermediate_size=22016 max_position_embeddings=32768 max_window_layers=28
  num_attention_heads=32 num_hidden_layers=32 num_key_value_heads=32 tie_word_embeddings=False use_sliding_window=False
  vocab_size=151936
qwen2_5_vl_text hidden_act=silu hidden_size=8192 intermediate_size=29568 max_position_embeddings=32768
  max_window_layers=80 num_attention_heads=64 num_hidden_layers=80 num_key_value_heads=8 use_sliding_window=False
  vocab_size=152064
qwen2_moe decoder_sparse_step=1 hidden_act=silu hidden_size=2048 intermediate_size=5632 max_position_embeddings=32768
  max_window_layers=28 moe_intermediate_size=1408 num_attention_heads=16 num_experts=60 num_experts_per_tok=4
  num_hidden_layers=24 num_key_value_heads=16 qkv_bias=True shared_expert_intermediate_size=5632 sliding_window=0
  tie_word_embeddings=False use_sliding_window=False vocab_size=151936
qwen2_vl_text hidden_act=silu hidden_size=8192 intermediate_size=29568 max_position_embeddings=32768
  max_window_layers=80 num_attention_heads=64 num_hidden_layers=80 num_key_value_heads=8 use_sliding_window=False
  vocab_size=152064
qwen3 attention_bias=False head_dim=128 hidden_act=silu hidden_size=4096 intermediate_size=22016
  max_position_embeddings=32768 max_window_layers=28 num_attention_heads=32 num_hidden_layers=32 num_key_value_heads=32
  tie_word_embeddings=False use_sliding_window=False vocab_size=151936
qwen3_5_moe_text attention_bias=False head_dim=256 hidden_act=silu hidden_size=2048 linear_conv_kernel_dim=4
  linear_key_head_dim=128 linear_num_key_heads=16 linear_num_value_heads=32 linear_value_head_dim=128
  max_position_embeddings=32768 moe_intermediate_size=512 num_attention_heads=16 num_experts=256 num_experts_per_tok=8
  num_hidden_layers=40 num_key_value_heads=2 shared_expert_intermediate_size=512 tie_word_embeddings=False
  vocab_size=248320
qwen3_5_text attention_bias=False head_dim=256 hidden_act=silu hidden_size=4096 intermediate_size=12288
  linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_num_key_heads=16 linear_num_value_heads=32
  linear_value_head_dim=128 max_position_embeddings=32768 num_attention_heads=16 num_hidden_layers=32
  num_key_value_heads=4 tie_word_embeddings=False vocab_size=248320
qwen3_moe attention_bias=False decoder_sparse_step=1 hidden_act=silu hidden_size=2048 intermediate_size=6144
  max_position_embeddings=32768 moe_intermediate_size=768 num_attention_heads=32 num_experts_per_tok=8
  num_hidden_layers=24 num_key_value_heads=4 num_local_experts=128 tie_word_embeddings=False use_sliding_window=False
  vocab_size=151936
qwen3_vl_moe_text attention_bias=False decoder_sparse_step=1 hidden_act=silu hidden_size=2048 intermediate_size=5632
  max_position_embeddings=128000 moe_intermediate_size=1408 num_attention_heads=16 num_experts_per_tok=4
  num_hidden_layers=24 num_key_value_heads=16 num_local_experts=60 tie_word_embeddings=True vocab_size=151936
qwen3_vl_text attention_bias=False head_dim=128 hidden_act=silu hidden_size=4096 intermediate_size=22016
  max_position_embeddings=128000 num_attention_heads=32 num_hidden_layers=32 num_key_value_heads=32 vocab_size=151936
sarvam_mla attention_bias=False first_k_dense_replace=1 head_dim=64 hidden_act=silu hidden_size=4096
  intermediate_size=16384 kv_lora_rank=512 max_position_embeddings=4096 moe_intermediate_size=2048 n_routed_experts=128
  n_shared_experts=1 num_attention_heads=64 num_experts_per_tok=8 num_hidden_layers=32 qk_nope_head_dim=128
  qk_rope_head_dim=64 tie_word_embeddings=False v_head_dim=128 vocab_size=262144
sarvam_moe attention_bias=False first_k_dense_replace=1 head_dim=64 hidden_act=silu hidden_size=4096
  intermediate_size=8192 max_position_embeddings=131072 moe_intermediate_size=1024 n_routed_experts=128
  n_shared_experts=1 num_attention_heads=64 num_experts_per_tok=6 num_hidden_layers=19 num_key_value_heads=4
  tie_word_embeddings=False use_qk_norm=True vocab_size=262144
vaultgemma attention_bias=False head_dim=256 hidden_activation=gelu_pytorch_tanh hidden_size=2304 intermediate_size=9216
  max_position_embeddings=8192 num_attention_heads=8 num_hidden_layers=26 num_key_value_heads=4 sliding_window=4096
  tie_word_embeddings=True vocab_size=256000
"""


def _read_value(text: str) -> object:
    return {"True": True, "False": False}.get(text, int(text) if text.isdigit() else text)


def _read_table(text: str) -> dict[str, dict[str, object]]:
    table = dict[str, dict[str, object]]()
    for word in text.split():
        key, sign, value = word.partition("=")
        if sign:
            next(reversed(table.values()))[key] = _read_value(value)
        else:
            table[word] = {}
    return table


DEFAULTS = _read_table(DEFAULTS_TABLE)
"""Model type -> the defaults of its class, which a nested table of a config.json leaves out."""
