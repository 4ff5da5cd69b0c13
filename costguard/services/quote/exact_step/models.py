"""Build a Hugging Face model from its config, without data: first on the meta device, then on a fake CPU.

The meta device has shapes and no data, so weights are neither initialized nor copied: 70B parameters take a second. PEFT moves
its adapters between devices, which fake tensors refuse and meta tensors allow; so adapters are added before the model leaves
the meta device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import peft
import torch
import transformers
from torch import nn

from costguard.errors import InputError, shorten
from costguard.sizing.exact_memory import LEAVE_OUT_HINT
from costguard.sizing.job import Job
from costguard.sizing.recipe import Recipe

DTYPES = {"bf16": torch.bfloat16, "bf16-amp": torch.float32, "fp32": torch.float32}
IMPLEMENTATIONS = {"flash": "sdpa", "flash3": "sdpa", "eager": "eager"}
WEIGHTS_OF_LINEAR = 2
"""Dimensions of a matrix: what an adapter can sit on."""


def build_model(config: Mapping[str, object], job: Job) -> Any:  # noqa: ANN401 - a PreTrainedModel, or PEFT's wrapper
    """Build the model of `config` as `job` trains it, on the meta device."""
    recipe = job.recipe
    model_config = _read_config(config)
    with torch.device("meta"):
        model = _instantiate_model(model_config, recipe)
    model.train()
    if recipe.checkpointing == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if recipe.adapters:
        model = _add_adapters(model, recipe)
    return model


def move_to_fake_cpu(model: Any) -> Any:  # noqa: ANN401 - a model on the meta device, and the same on a fake CPU
    """Recreate every tensor once on the CPU, so that tied tensors stay tied; call it under FakeTensorMode.

    `Module.to_empty` would swap each parameter in place, which fake tensors refuse.
    """
    fake_tensors: dict[int, Any] = {}
    for module in model.modules():
        parameters = module.named_parameters(recurse=False, remove_duplicate=False)
        buffers = module.named_buffers(recurse=False, remove_duplicate=False)
        plain = [(n, v) for n, v in vars(module).items() if isinstance(v, torch.Tensor)]
        for name, tensor in (*parameters, *buffers, *plain):
            if id(tensor) not in fake_tensors:
                fake_tensors[id(tensor)] = tensor, _make_cpu_tensor(tensor)
            setattr(module, name, fake_tensors[id(tensor)][1])
    return model


def _read_config(config: Mapping[str, object]) -> Any:  # noqa: ANN401 - a PretrainedConfig
    """Parse `config` with transformers and turn off dropout, because a CPU keeps wider masks than a GPU."""
    if "text_config" in config:
        raise InputError("has a tower for images or sound, and --exact runs only text", field="model", hint=LEAVE_OUT_HINT)
    table = dict(config)
    model_type = str(table.pop("model_type", ""))
    try:
        model_config = transformers.AutoConfig.for_model(model_type, **table)
    except (ValueError, TypeError, KeyError) as refused:
        why = f"transformers {transformers.__version__} cannot read it: {shorten(str(refused).splitlines()[0], 120)}"
        raise InputError(why, field="model", hint=f"upgrade transformers, or {LEAVE_OUT_HINT}") from None
    for name, value in list(vars(model_config).items()):
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, float):
            setattr(model_config, name, 0.0)
    model_config.use_cache = False
    if model_config.is_encoder_decoder and getattr(model_config, "decoder_start_token_id", None) is None:
        model_config.decoder_start_token_id = 0  # which word it is decides no byte, but labels are shifted behind it
    return model_config


def _instantiate_model(config: Any, recipe: Recipe) -> Any:  # noqa: ANN401 - a PretrainedConfig, a PreTrainedModel
    """Instantiate the class that the config names, else the causal model of its type.

    A class that only has eager attention (DeBERTa) runs with that.
    """
    class_name = (config.architectures or [""])[0]
    maker: Any = getattr(transformers, class_name, None) if class_name else None
    maker = maker if getattr(maker, "config_class", None) is type(config) else transformers.AutoModelForCausalLM
    attention = IMPLEMENTATIONS[recipe.attention] if getattr(maker, "_supports_sdpa", True) else "eager"
    options = {"attn_implementation": attention, "dtype": DTYPES[recipe.precision]}
    make = getattr(maker, "_from_config", None) or maker.from_config
    try:
        return make(config, **options)
    except (ValueError, ImportError, AttributeError) as refused:
        why = f"transformers {transformers.__version__} cannot build it: {shorten(str(refused).splitlines()[0], 160)}"
        raise InputError(why, field="model", hint=f"try attention = 'eager', or {LEAVE_OUT_HINT}") from None


def _add_adapters(model: Any, recipe: Recipe) -> Any:  # noqa: ANN401 - a PreTrainedModel, PEFT's wrapper
    lora = recipe.lora
    targets = _list_attention_matrices(model) if lora.targets == "attention" else lora.targets
    chosen = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.rank,
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    try:
        adapted = peft.get_peft_model(model, chosen)
    except ValueError as refused:
        why = f"peft {peft.__version__} refuses them: {shorten(str(refused).splitlines()[0], 160)}"
        raise InputError(why, field="lora.targets", hint="write 'all-linear', or names of this model's modules") from None
    if recipe.checkpointing == "full":
        adapted.enable_input_require_grads()
    return adapted


def _list_attention_matrices(model: Any) -> tuple[str, ...]:  # noqa: ANN401 - a PreTrainedModel
    """Return the full names of the matrices inside attention.

    The whole path is checked, because BERT's feed-forward has a `dense` too.
    """
    matrices = (n for n, m in model.named_modules() if getattr(getattr(m, "weight", None), "ndim", 0) == WEIGHTS_OF_LINEAR)
    return tuple(n for n in matrices if ("attn" in n or "attention" in n.lower()) and not n.endswith("attention_bias"))


def _make_cpu_tensor(tensor: Any) -> Any:  # noqa: ANN401 - a tensor or a parameter
    fresh = torch.empty_like(tensor, device="cpu", requires_grad=False)
    return nn.Parameter(fresh, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fresh
