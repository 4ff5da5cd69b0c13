"""Unsloth: notebooks and scripts, whose literal arguments are read from the syntax tree (unsloth.ai/docs, read 2026-11).

    model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Meta-Llama-3.1-8B", max_seq_length=2048,
                                                         load_in_4bit=True)
    model = FastLanguageModel.get_peft_model(model, r=16, target_modules=[...], use_gradient_checkpointing="unsloth")
    trainer = SFTTrainer(args=SFTConfig(per_device_train_batch_size=2, max_steps=60, optim="adamw_8bit"))

Defaults of `from_pretrained`: 2,048 tokens, 4-bit weights; of `get_peft_model`: rank 16, all linear layers.
"""

from __future__ import annotations

from costguard.formats import training_arguments, trl
from costguard.formats.literals import COMPUTED, PythonSource
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft
from costguard.formats.vocabulary import state_model, state_targets

LABEL = "Unsloth"
KINDS = ("python",)

CLASSES = ("FastLanguageModel", "FastModel", "FastVisionModel", "FastLlamaModel")
ARGUMENTS = ("SFTConfig", "TrainingArguments", "UnslothTrainingArguments", "DPOConfig", "GRPOConfig", "ORPOConfig", "KTOConfig")
PREFERENCES = {"DPOTrainer": "dpo", "GRPOTrainer": "grpo", "ORPOTrainer": "dpo"}
UNSIZED = ("KTOTrainer", "RewardTrainer", "CPOTrainer", "PPOTrainer")
NO_EFFECT = (
    *(
        "model.dtype",
        "model.token",
        "model.full_finetuning",
        "model.fast_inference",
        "model.gpu_memory_utilization",
        "model.device_map",
    ),
    *("peft.0", "peft.lora_*", "peft.bias", "peft.random_state", "peft.use_rslora", "peft.loftq_config", "peft.finetune_*"),
    *("dataset*", "packing", "beta", "max_prompt_length", "max_completion_length", "temperature", "epsilon*", "loss_type"),
    *("model.max_lora_rank", "top_p", "top_k", "min_p"),
)


def recognise(file: ConfigFile) -> bool:
    """Return whether the source loads a model with Unsloth; a Modal app must name it, else only its machines are known."""
    if "unsloth" not in file.text or not any(f"{name}.from_pretrained" in file.text for name in CLASSES):
        return False
    loads = PythonSource(file).list_full_calls(*(f"{name}.from_pretrained" for name in CLASSES))
    has_model_name = any(COMPUTED not in (one.get("model_name"), one.get("0")) for one in loads)
    return has_model_name or "modal" not in file.text


def read(draft: ConfigDraft) -> None:
    """Take the model, the adapters and the trainer's arguments."""
    source = PythonSource(draft.file)
    loads = list(source.list_full_calls(*(f"{name}.from_pretrained" for name in CLASSES)))
    adapters = list(source.list_full_calls(*(f"{name}.get_peft_model" for name in CLASSES)))
    arguments = list(source.list_calls(*ARGUMENTS))
    loaded = loads[0] if loads else {}
    if "0" in loaded:
        loaded = {"model_name": loaded["0"], **loaded}
    draft.values = {"model": loaded, "peft": adapters[0] if adapters else {}, **(arguments[0] if arguments else {})}
    if any(one != arguments[0] for one in arguments):
        draft.leave("args", f"{len(arguments)} trainers with different arguments: the first is read")
    draft.state("framework", "unsloth", "from_pretrained")
    state_model(draft, "model.model_name")
    _read_method(draft, adapters=bool(adapters))
    length = draft.take_count("model.max_seq_length")
    if length is not None:
        draft.state("seq_len", length, "max_seq_length")
    elif draft.values["model"] and "max_seq_length" not in loaded:
        draft.assume("seq_len", 2048)
    training_arguments.read_batch(draft)
    training_arguments.read_trainer(draft, checkpointing=None)
    _read_preference(draft, source)
    half = draft.values.get("fp16") is True
    draft.ignore("fp16", "bf16")  # usually `not is_bfloat16_supported()`: bf16 on every GPU that has it
    if half:
        draft.state("precision", "fp16", "fp16")
    elif draft.get("method") != "full":
        draft.assume("precision", "bf16")
    draft.ignore("max_length", "max_seq_length", "model.model_name", "model.0", *NO_EFFECT)


def _read_preference(draft: ConfigDraft, source: PythonSource) -> None:
    """Take the algorithm from the trainer that is called: `PatchDPOTrainer()` stands beside every kind."""
    trainer = next((name for name in PREFERENCES if any(source.list_calls(name))), None)
    if trainer == "GRPOTrainer":
        trl.state_grpo(draft, trainer)
    elif trainer is not None:
        draft.state("preference.algorithm", PREFERENCES[trainer], trainer)
    if trainer == "ORPOTrainer":
        draft.state("preference.reference", value=False, key="ORPOTrainer")
        draft.notes.append("ORPOTrainer: sized as DPO without a reference model")
    for name in UNSIZED:
        if name in draft.file.text:
            draft.leave(name, "not sized; sized as supervised training")


def _read_method(draft: ConfigDraft, *, adapters: bool) -> None:
    four, eight = draft.take_flag("model.load_in_4bit"), draft.take_flag("model.load_in_8bit")
    if not adapters:
        draft.state("method", "full", "no get_peft_model")
        return
    quantised = four is not False or bool(eight)
    draft.state("method", "qlora" if quantised else "lora", "load_in_4bit" if four is not None else "get_peft_model")
    if quantised:
        draft.state("quant", "int8" if eight and not four else "nf4", "load_in_4bit")
    rank = draft.take_count("peft.r")
    draft.assume("lora.rank", 16) if rank is None else draft.state("lora.rank", rank, "r")
    state_targets(draft, "peft.target_modules")
    mode = draft.take("peft.use_gradient_checkpointing")
    if mode is None and not draft.is_computed("peft.use_gradient_checkpointing"):
        mode = draft.take("model.use_gradient_checkpointing") or "unsloth"  # the default of both functions
    draft.ignore("model.use_gradient_checkpointing")
    if mode == "unsloth":
        draft.state("checkpointing", "full", "use_gradient_checkpointing")
        draft.state("offload_activations", value=True, key="use_gradient_checkpointing")
    elif isinstance(mode, bool):
        draft.state("checkpointing", "full" if mode else "none", "use_gradient_checkpointing")
