"""The shape of a model from its Hugging Face `config.json`: one reader function a family, one table from `model_type` to it.

    architecture_from_config({"model_type": "llama", "hidden_size": 4096, ...}, name="llama-2-7b").parameters
    6738415616

Only the keys that decide the shape are read; keys nobody here knows are Hugging Face's affair and pass, as do those of
quantisation: a shape has no precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from costguard.errors import InputError, UnknownNameError
from costguard.sizing.architecture import Architecture
from costguard.sizing.huggingface import classics, decoders, encoders, experts, vision
from costguard.sizing.huggingface.config import Config
from costguard.values.checks import describe_value, find_nearest_names

Reader = Callable[[Config, str], Architecture]


def _resnet(config: Config, name: str) -> Architecture:
    from costguard.sizing.huggingface.convolutions import resnet

    return resnet(config, name)


def _unet(config: Config, name: str) -> Architecture:
    from costguard.sizing.huggingface.convolutions import unet

    return unet(config, name)


def _dit(config: Config, name: str) -> Architecture:
    from costguard.sizing.huggingface.diffusion import dit

    return dit(config, name)


READERS: dict[str, Reader] = {
    "UNet2DConditionModel": _unet,
    "bert": encoders.bert,
    "bloom": classics.bloom,
    "camembert": encoders.roberta,
    "clip": vision.clip,
    "cohere": decoders.cohere,
    "cohere2": decoders.cohere2,
    "deepseek_v2": experts.deepseek,
    "deepseek_v3": experts.deepseek,
    "dit": _dit,
    "distilbert": encoders.distilbert,
    "falcon": classics.falcon,
    "gemma": decoders.gemma,
    "gemma2": decoders.gemma2,
    "gemma3": vision.gemma3_multimodal,
    "gemma3_text": decoders.gemma3,
    "glm4_moe": experts.glm4_moe,
    "gpt2": classics.gpt2,
    "gpt_bigcode": classics.gpt_bigcode,
    "gpt_neo": classics.gpt_neo,
    "gpt_neox": classics.gpt_neox,
    "gpt_oss": experts.gpt_oss,
    "gptj": classics.gptj,
    "granite": decoders.llama,
    "kimi_k2": experts.deepseek,
    "llama": decoders.llama,
    "llama4": vision.llama4_multimodal,
    "llama4_text": experts.llama4,
    "ministral": decoders.mistral,
    "mistral": decoders.mistral,
    "mistral3": vision.mistral3,
    "mixtral": experts.mixtral,
    "modernbert": encoders.modernbert,
    "mpt": classics.mpt,
    "mt5": encoders.t5,
    "nemotron": decoders.nemotron,
    "olmo": decoders.olmo,
    "olmo2": decoders.olmo2,
    "olmo3": decoders.olmo3,
    "olmoe": experts.olmoe,
    "opt": classics.opt,
    "phi": classics.phi,
    "phi3": decoders.phi3,
    "phimoe": experts.phimoe,
    "qwen2": decoders.qwen2,
    "qwen2_5_vl_text": decoders.qwen2,
    "qwen2_moe": experts.qwen2_moe,
    "qwen2_vl_text": decoders.qwen2,
    "qwen3": decoders.qwen3,
    "qwen3_moe": experts.qwen3_moe,
    "qwen3_vl_moe_text": experts.qwen3_moe,
    "qwen3_vl_text": decoders.qwen3,
    "RefinedWeb": classics.falcon,
    "RefinedWebModel": classics.falcon,
    "resnet": _resnet,
    "roberta": encoders.roberta,
    "smollm3": decoders.smollm3,
    "stablelm": decoders.stablelm,
    "starcoder2": decoders.starcoder2,
    "t5": encoders.t5,
    "umt5": encoders.umt5,
    "vit": vision.vit,
    "xlm-roberta": encoders.roberta,
}


def architecture_from_config(config: Mapping[str, object], *, name: str) -> Architecture:
    """The shape that `config` (a parsed config.json) describes; InputError for anything that is not one."""
    if not isinstance(config, Mapping):
        raise InputError(
            f"must be an object, not {describe_value(config)}", field="config.json", hint='write {"model_type": ...}'
        )
    found = _read(Config(config), config, name)
    return replace(found, released_precision="fp8") if _released_in_fp8(config) else found


def _released_in_fp8(config: Mapping[str, object]) -> bool:
    """Whether the weights were released in 8 bits, to be computed with so (DeepSeek-V3); other quantisations are a choice."""
    stated = config.get("quantization_config")
    return isinstance(stated, Mapping) and stated.get("quant_method") == "fp8"


def _read(whole: Config, config: Mapping[str, object], name: str) -> Architecture:
    model_type = whole.word("model_type", "_class_name", default="")  # diffusers names the class
    if model_type in READERS:
        return READERS[model_type](whole, name)
    if not isinstance(config.get("text_config"), Mapping):
        raise _unknown(model_type)
    inner = whole.part("text_config").word("model_type", default="")
    if inner not in READERS:
        raise _unknown(model_type or inner)
    return vision.text_model(whole, name, READERS[inner])


def _unknown(model_type: str) -> InputError:
    """Two errors in one place: a type that nobody here reads, and none at all."""
    instead = "or state the model's numbers in an [architecture] table (layers, hidden, heads, vocab, ...)"
    if not model_type:
        return InputError("is missing", field="model_type", hint=f'write "model_type": "llama" or what it is, {instead}')
    return UnknownNameError(
        "model type", model_type, field="model_type", nearest=find_nearest_names(model_type, READERS), hint=instead
    )
