"""Reads a model's shape from its Hugging Face `config.json`, with one reader function for each `model_type`.

    build_architecture_from_config({"model_type": "llama", "hidden_size": 4096, ...}, name="llama-2-7b").parameters
    6738415616

Only the keys that decide the shape are read. Unknown keys and quantisation keys are ignored, because a shape has no precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.architecture import Architecture
from costguard.sizing.huggingface import decoders, encoders, experts, vision
from costguard.sizing.huggingface import decoders as classics
from costguard.sizing.huggingface.config import ModelConfig
from costguard.values.checks import describe_value, find_nearest_names

ShapeReader = Callable[[ModelConfig, str], Architecture]


def _read_resnet(config: ModelConfig, name: str) -> Architecture:
    from costguard.sizing.huggingface.convolutions import read_resnet

    return read_resnet(config, name)


def _read_unet(config: ModelConfig, name: str) -> Architecture:
    from costguard.sizing.huggingface.convolutions import read_unet

    return read_unet(config, name)


def _read_dit(config: ModelConfig, name: str) -> Architecture:
    from costguard.sizing.huggingface.vision import read_dit

    return read_dit(config, name)


READERS: dict[str, ShapeReader] = {
    "UNet2DConditionModel": _read_unet,
    "bert": encoders.read_bert,
    "bloom": classics.read_bloom,
    "camembert": encoders.read_roberta,
    "clip": vision.read_clip,
    "cohere": decoders.read_cohere,
    "cohere2": decoders.read_cohere2,
    "deepseek_v2": experts.read_deepseek,
    "deepseek_v3": experts.read_deepseek,
    "dit": _read_dit,
    "distilbert": encoders.read_distilbert,
    "falcon": classics.read_falcon,
    "gemma": decoders.read_gemma,
    "gemma2": decoders.read_gemma2,
    "gemma3": vision.read_gemma3_multimodal,
    "gemma3_text": decoders.read_gemma3,
    "glm4_moe": experts.read_glm4_moe,
    "gpt2": classics.read_gpt2,
    "gpt_bigcode": classics.read_gpt_bigcode,
    "gpt_neo": classics.read_gpt_neo,
    "gpt_neox": classics.read_gpt_neox,
    "gpt_oss": experts.read_gpt_oss,
    "gptj": classics.read_gptj,
    "granite": decoders.read_llama,
    "kimi_k2": experts.read_deepseek,
    "llama": decoders.read_llama,
    "llama4": vision.read_llama4_multimodal,
    "llama4_text": experts.read_llama4,
    "ministral": decoders.read_mistral,
    "mistral": decoders.read_mistral,
    "mistral3": vision.read_mistral3,
    "mixtral": experts.read_mixtral,
    "modernbert": encoders.read_modernbert,
    "mpt": classics.read_mpt,
    "mt5": encoders.read_t5,
    "nemotron": decoders.read_nemotron,
    "olmo": decoders.read_olmo,
    "olmo2": decoders.read_olmo2,
    "olmo3": decoders.read_olmo3,
    "olmoe": experts.read_olmoe,
    "opt": classics.read_opt,
    "phi": classics.read_phi,
    "phi3": decoders.read_phi3,
    "phimoe": experts.read_phimoe,
    "qwen2": decoders.read_qwen2,
    "qwen2_5_vl_text": decoders.read_qwen2,
    "qwen2_moe": experts.read_qwen2_moe,
    "qwen2_vl_text": decoders.read_qwen2,
    "qwen3": decoders.read_qwen3,
    "qwen3_moe": experts.read_qwen3_moe,
    "qwen3_vl_moe_text": experts.read_qwen3_moe,
    "qwen3_vl_text": decoders.read_qwen3,
    "RefinedWeb": classics.read_falcon,
    "RefinedWebModel": classics.read_falcon,
    "resnet": _read_resnet,
    "roberta": encoders.read_roberta,
    "smollm3": decoders.read_smollm3,
    "stablelm": decoders.read_stablelm,
    "starcoder2": decoders.read_starcoder2,
    "t5": encoders.read_t5,
    "umt5": encoders.read_umt5,
    "vit": vision.read_vit,
    "xlm-roberta": encoders.read_roberta,
}


def build_architecture_from_config(config: Mapping[str, object], *, name: str) -> Architecture:
    """Return the shape that `config` (a parsed config.json) describes; raise InputError if it is not one."""
    if not isinstance(config, Mapping):
        raise InputError(
            f"must be an object, not {describe_value(config)}", field="config.json", hint='write {"model_type": ...}'
        )
    found = _read_shape(ModelConfig(config), config, name)
    return replace(found, released_precision=_read_released_precision(config))


def _read_released_precision(config: Mapping[str, object]) -> str | None:
    """Return what the weights were released in: fp8 (DeepSeek-V3) and mxfp4 (gpt-oss) if quantised so, else their dtype.

    Other quantisations are optional and do not count.
    """
    stated = config.get("quantization_config")
    method = stated.get("quant_method") if isinstance(stated, Mapping) else None
    if method in ("fp8", "mxfp4"):
        return str(method)
    return DTYPES.get(str(config.get("torch_dtype") or config.get("dtype")))


DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _read_shape(whole: ModelConfig, config: Mapping[str, object], name: str) -> Architecture:
    model_type = whole.read_word("model_type", "_class_name", default="")  # diffusers names the class
    if model_type in READERS:
        return READERS[model_type](whole, name)
    if not isinstance(config.get("text_config"), Mapping):
        raise _build_unknown_type_error(model_type)
    inner = whole.get_part("text_config").read_word("model_type", default="")
    if inner not in READERS:
        raise _build_unknown_type_error(model_type or inner)
    return vision.read_text_model(whole, name, READERS[inner])


def _build_unknown_type_error(model_type: str) -> InputError:
    """Return the error for a model type without a reader, or for a missing model type."""
    instead = "or state the model's numbers in an [architecture] table (layers, hidden, heads, vocab, ...)"
    if not model_type:
        return InputError("is missing", field="model_type", hint=f'write "model_type": "llama" or what it is, {instead}')
    return UnknownNameError(
        "model type", model_type, field="model_type", nearest=find_nearest_names(model_type, READERS), hint=instead
    )
