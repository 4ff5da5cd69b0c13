"""Reads a model's shape from its Hugging Face `config.json`, with one reader function for each `model_type`.

    build_architecture_from_config({"model_type": "llama", "hidden_size": 4096, ...}, name="llama-2-7b").parameters
    6738415616

Only the keys that decide the shape are read. Unknown keys and quantisation keys are ignored, because a shape has no precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.architecture import Architecture
from costguard.sizing.huggingface import convolutions, decoders, diffusion, encoders, experts, hybrids, vision
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.model_types import DEFAULTS, LIKE
from costguard.sizing.huggingface.towers import TOWERS, Tower
from costguard.values.checks import describe_value, find_nearest_names

ShapeReader = Callable[[ModelConfig, str], Architecture]


READERS: dict[str, ShapeReader] = {
    "apertus": decoders.read_apertus,
    "arcee": decoders.read_arcee,
    "bailing_moe_v2": experts.read_bailing_moe,
    "deepseek_v32": experts.read_deepseek_sparse,
    "deepseek_v4": experts.read_deepseek_v4,
    "ernie4_5_moe": experts.read_ernie_moe,
    "glm_moe_dsa": experts.read_deepseek_sparse,
    "granitemoehybrid": hybrids.read_granite_hybrid,
    "kimi_linear": hybrids.read_kimi_linear,
    "lfm2": hybrids.read_lfm2,
    "lfm2_moe": hybrids.read_lfm2,
    "longcat_flash": experts.read_longcat,
    "baichuan": decoders.read_baichuan,
    "bert": encoders.read_bert,
    "bloom": decoders.read_bloom,
    "camembert": encoders.read_roberta,
    "clip": vision.read_clip,
    "CogVideoXTransformer3DModel": diffusion.read_cogvideox,
    "cohere": decoders.read_cohere,
    "cohere2": decoders.read_cohere2,
    "deberta-v2": encoders.read_deberta,
    "deepseek_v2": experts.read_deepseek,
    "deepseek_v3": experts.read_deepseek,
    "distilbert": encoders.read_distilbert,
    "dit": diffusion.read_dit,
    "exaone": decoders.read_exaone,
    "exaone4": decoders.read_exaone4,
    "falcon": decoders.read_falcon,
    "Flux2Transformer2DModel": diffusion.read_flux2,
    "FluxTransformer2DModel": diffusion.read_flux,
    "gemma": decoders.read_gemma,
    "gemma2": decoders.read_gemma2,
    "gemma3": vision.read_gemma3_multimodal,
    "gemma3_text": decoders.read_gemma3,
    "gemma3n_text": hybrids.read_gemma3n,
    "gemma4": hybrids.read_gemma4_multimodal,
    "gemma4_text": hybrids.read_gemma4,
    "gemma4_unified_text": hybrids.read_gemma4_unified,
    "glm": decoders.read_glm,
    "glm4": decoders.read_glm4,
    "glm4_moe": experts.read_glm4_moe,
    "gpt2": decoders.read_gpt2,
    "gpt_bigcode": decoders.read_gpt_bigcode,
    "gpt_neo": decoders.read_gpt_neo,
    "gpt_neox": decoders.read_gpt_neox,
    "gpt_oss": experts.read_gpt_oss,
    "gptj": decoders.read_gptj,
    "granite": decoders.read_llama,
    "granitemoe": experts.read_granitemoe,
    "internlm2": decoders.read_internlm2,
    "kimi_k2": experts.read_deepseek,
    "llama": decoders.read_llama,
    "llama4": vision.read_llama4_multimodal,
    "llama4_text": experts.read_llama4,
    "minimax_m2": experts.read_minimax_m2,
    "ministral": decoders.read_mistral,
    "mistral": decoders.read_mistral,
    "mimo": decoders.read_qwen2,
    "mistral4": experts.read_deepseek,
    "mixtral": experts.read_mixtral,
    "modernbert": encoders.read_modernbert,
    "mpnet": encoders.read_mpnet,
    "mpt": decoders.read_mpt,
    "mt5": encoders.read_t5,
    "nemotron": decoders.read_nemotron,
    "nemotron_h": hybrids.read_nemotron_h,
    "olmo": decoders.read_olmo,
    "olmo2": decoders.read_olmo2,
    "olmo3": decoders.read_olmo3,
    "olmoe": experts.read_olmoe,
    "opt": decoders.read_opt,
    "phi": decoders.read_phi,
    "phi3": decoders.read_phi3,
    "phimoe": experts.read_phimoe,
    "qwen2": decoders.read_qwen2,
    "qwen2_5_vl_text": decoders.read_qwen2,
    "qwen2_moe": experts.read_qwen2_moe,
    "qwen2_vl_text": decoders.read_qwen2,
    "qwen3": decoders.read_qwen3,
    "qwen3_5_moe_text": hybrids.read_qwen3_next,
    "qwen3_5_text": hybrids.read_qwen3_next,
    "qwen3_moe": experts.read_qwen3_moe,
    "qwen3_next": hybrids.read_qwen3_next,
    "qwen3_vl_moe_text": experts.read_qwen3_moe,
    "qwen3_vl_text": decoders.read_qwen3,
    "QwenImageTransformer2DModel": diffusion.read_qwen_image,
    "RefinedWeb": decoders.read_falcon,
    "RefinedWebModel": decoders.read_falcon,
    "resnet": convolutions.read_resnet,
    "roberta": encoders.read_roberta,
    "SD3Transformer2DModel": diffusion.read_sd3,
    "seed_oss": decoders.read_seed_oss,
    "smollm3": decoders.read_smollm3,
    "stablelm": decoders.read_stablelm,
    "starcoder2": decoders.read_starcoder2,
    "t5": encoders.read_t5,
    "umt5": encoders.read_umt5,
    "UNet2DConditionModel": convolutions.read_unet,
    "vit": vision.read_vit,
    "WanTransformer3DModel": diffusion.read_wan,
    "whisper": encoders.read_whisper,
    "xlm-roberta": encoders.read_roberta,
    "ZImageTransformer2DModel": diffusion.read_z_image,
}


def _read_with_tower(inner: str, tower: Tower, config: ModelConfig, name: str) -> Architecture:
    """Return the language model and its image tower; the first releases of Qwen2-VL state the language model outside."""
    return tower(config, _read_language_model(config, name, inner))


def _read_language_model(config: ModelConfig, name: str, usual: str) -> Architecture:
    key = next((key for key in ("text_config", "llm_config") if config.values.get(key) is not None), "")
    text = (
        vision.read_text_config(config, {}, key) if key else ModelConfig({**config.values, "model_type": usual}, config.where)
    )
    inner = text.read_word("model_type", default=usual)
    if inner not in READERS:
        raise _build_unknown_type_error(inner)
    return READERS[inner](text.fill_defaults(DEFAULTS.get(inner, {})), name)


READERS |= {name: READERS[reader] for name, reader in LIKE.items()}
READERS |= {name: partial(_read_with_tower, *tower) for name, tower in TOWERS.items()}


def build_architecture_from_config(config: Mapping[str, object], *, name: str) -> Architecture:
    """Return the shape that `config` (a parsed config.json) describes; raise InputError if it is not one."""
    if not isinstance(config, Mapping):
        raise InputError(
            f"must be an object, not {describe_value(config)}", field="config.json", hint='write {"model_type": ...}'
        )
    architecture = _read_shape(ModelConfig(config), config, name)
    return replace(architecture, released_precision=_read_released_precision(config), context=_read_context(config))


def _read_context(config: Mapping[str, object]) -> int | None:
    """Return the tokens that the config says the model reads, with the factor of YaRN; None if it does not say."""
    text = config.get("text_config")
    inner: Mapping[str, object] = text if isinstance(text, Mapping) else config
    context = inner.get("max_position_embeddings", config.get("max_position_embeddings"))
    scaling = inner.get("rope_scaling") or inner.get("rope_parameters")
    scaled = 0.0
    if isinstance(scaling, Mapping):
        first, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
        if isinstance(first, int) and isinstance(factor, int | float) and 0 < first * factor < LARGEST_CONTEXT:
            scaled = first * factor
    if isinstance(context, bool) or not isinstance(context, int) or not 0 < context < LARGEST_CONTEXT:
        return round(scaled) or None
    return max(context, round(scaled))


LARGEST_CONTEXT = 10**9
"""More is how some configs write "no limit"."""


def _read_released_precision(config: Mapping[str, object]) -> str | None:
    """Return what the weights were released in: fp8 (DeepSeek-V3) and mxfp4 (gpt-oss) if quantised so, else their dtype.

    Other quantisations are optional and do not count.
    """
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    if method in ("fp8", "mxfp4"):
        return str(method)
    return DTYPES.get(str(config.get("torch_dtype") or config.get("dtype")))


DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _read_shape(model_config: ModelConfig, config: Mapping[str, object], name: str) -> Architecture:
    model_type = model_config.read_word("model_type", "_class_name", default="")  # diffusers names the class
    if model_type in READERS:
        return READERS[model_type](model_config, name)
    if not isinstance(config.get("text_config"), Mapping):
        raise _build_unknown_type_error(model_type)
    if model_config.get_part("text_config").read_word("model_type", default="") not in READERS:
        raise _build_unknown_type_error(model_type)
    model = _read_language_model(model_config, name, "")
    return replace(model, notes=(*model.notes, LANGUAGE_ONLY))


LANGUAGE_ONLY = "only the language model is counted: image and sound encoders are excluded"


def _build_unknown_type_error(model_type: str) -> InputError:
    """Return the error for a model type without a reader, or for a missing model type."""
    instead = "or state the model's numbers in an [architecture] table (layers, hidden, heads, vocab, ...)"
    if not model_type:
        return InputError("is missing", field="model_type", hint=f'write "model_type": "llama" or what it is, {instead}')
    return UnknownNameError(
        "model type", model_type, field="model_type", nearest=find_nearest_names(model_type, READERS), hint=instead
    )
