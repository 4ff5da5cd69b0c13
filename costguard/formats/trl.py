"""TRL and plain Trainer scripts: arguments as YAML or JSON (huggingface.co/docs/trl, and docs/transformers TrainingArguments).

    model_name_or_path: mistralai/Mistral-7B-v0.1
    torch_dtype: bfloat16
    use_peft: true
    lora_r: 16
    max_length: 2048
    per_device_train_batch_size: 4

The alignment handbook's recipes are such files. `training_args.bin` is a pickle and is refused (formats/loading.py).
"""

from __future__ import annotations

from costguard.formats import training_arguments
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft
from costguard.formats.vocabulary import is_quantised, state_model, state_targets

LABEL = "TRL or Transformers"
KINDS = ("yaml", "json")

MARKS = frozenset(
    "per_device_train_batch_size num_train_epochs gradient_accumulation_steps gradient_checkpointing lr_scheduler_type".split()  # noqa: SIM905
)
NO_EFFECT = (
    *("model_revision", "tokenizer_*", "chat_template*", "dataset*", "test_split_size", "text_column", "script_args"),
    *("preprocessing_num_workers", "auto_insert_empty_system_msg", "lora_alpha", "lora_dropout", "lora_bias", "lora_task_type"),
    *(
        "beta",
        "loss_type",
        "max_prompt_length",
        "max_completion_length",
        "num_generations",
        "generate_during_eval",
        "eos_token",
    ),
    *(
        "pad_token",
        "padding_free",
        "packing_strategy",
        "eval_packing",
        "use_bnb_nested_quant",
        "bnb_4bit_quant_type",
        "bnb_4bit_compute_dtype",
    ),
    *(
        "system_prompt",
        "reward_*",
        "temperature",
        "top_p",
        "top_k",
        "log_completions",
        "completion_only_loss",
        "assistant_only_loss",
    ),
    *(
        "neftune_noise_alpha",
        "ignore_bias_buffers",
        "callbacks",
        "benchmarks",
        "config",
        "scale_rewards",
        "num_proc",
        "subset*",
    ),
)
LENGTHS = ("max_length", "max_seq_length", "model_max_length", "block_size", "max_source_length")


def recognise(file: ConfigFile) -> bool:
    """Return whether there are arguments of the Trainer, or of TRL's model."""
    keys = file.table.keys()
    return len(MARKS & keys) > 1 or ("model_name_or_path" in keys and bool(MARKS & keys))


def read(draft: ConfigDraft) -> None:
    """Take the model, the method, lengths, batches and sharding."""
    state_named_model(draft)
    read_arguments(draft)


def state_named_model(draft: ConfigDraft) -> None:
    """State the model: `model_name_or_path`, or `model_name` where a script's own arguments call it so."""
    state_model(draft, _find_model_key(draft))


def _find_model_key(draft: ConfigDraft) -> str:
    return "model_name" if draft.take("model_name_or_path") is None else "model_name_or_path"


def read_arguments(draft: ConfigDraft, *, trains_fully: bool = True) -> None:
    """Take everything but the model. `trains_fully`: all weights are trained where no argument speaks of adapters."""
    adapters = _read_method(draft, trains_fully=trains_fully)
    _read_preference(draft)
    key = next((one for one in LENGTHS if draft.take_count(one) is not None), None)
    if key is not None:
        draft.state("seq_len", draft.take_count(key), key)
    training_arguments.read_batch(draft)
    training_arguments.read_precision(draft, dtype_keys=("torch_dtype", "dtype"), adapters=adapters)
    training_arguments.read_trainer(draft, checkpointing=None)
    if draft.take_flag("use_flash_attention_2"):
        draft.state("attention", "flash", "use_flash_attention_2")
    draft.take_flag("packing")
    if draft.take_flag("use_vllm"):
        draft.leave("use_vllm", "GPUs that only generate are not counted")
    draft.ignore(*NO_EFFECT)


def _read_method(draft: ConfigDraft, *, trains_fully: bool) -> bool:
    """State the method; return whether only adapters are trained."""
    peft, rank = draft.take_flag("use_peft"), draft.take_count("lora_r")
    four, eight = draft.take_flag("load_in_4bit"), draft.take_flag("load_in_8bit")
    if not (peft or (peft is None and rank is not None)):
        if four or eight:
            draft.leave("load_in_4bit" if four else "load_in_8bit", "quantised weights are trained only with use_peft: true")
        if peft is not None:
            draft.state("method", "full", "use_peft")
        elif trains_fully:
            draft.assume("method", "full")
        is_quantised(draft, _find_model_key(draft), adapters=False)
        draft.ignore("lora_*")
        return False
    stored = is_quantised(draft, _find_model_key(draft), adapters=True)
    draft.state("method", "qlora" if four or eight or stored else "lora", "use_peft" if peft else "lora_r")
    if four or eight:
        draft.state("quant", "nf4" if four else "int8", "load_in_4bit" if four else "load_in_8bit")
    elif stored:
        draft.state("quant", "nf4", _find_model_key(draft))
    draft.assume("lora.rank", 16) if rank is None else draft.state("lora.rank", rank, "lora_r")
    state_targets(draft, "lora_target_modules")
    if draft.take_flag("use_dora"):
        draft.state("lora.dora", value=True, key="use_dora")
    if draft.take_flag("use_bnb_nested_quant"):
        draft.state("double_quant", value=True, key="use_bnb_nested_quant")
    return True


def state_grpo(draft: ConfigDraft, key: str) -> None:
    """State GRPO, as `key` says it: its completions, the two lengths, and that there is no reference without a KL penalty."""
    prompt, completion = draft.take_count("max_prompt_length"), draft.take_count("max_completion_length")
    generations = draft.take_count("num_generations")
    draft.state("preference.algorithm", "grpo", key)
    if generations is not None:
        draft.state("preference.completions", generations, "num_generations")
    if prompt is not None and completion is not None:
        draft.state("preference.prompt_len", prompt, "max_prompt_length")
        draft.state("preference.completion_len", completion, "max_completion_length")
    if draft.take_number("beta") == 0:
        draft.state("preference.reference", value=False, key="beta")


def _read_preference(draft: ConfigDraft) -> None:
    """Take DPO or GRPO from the arguments that only their trainers have; DPO's and ORPO's have a length of the whole."""
    completion, generations = draft.take_count("max_completion_length"), draft.take_count("num_generations")
    if generations is not None or (completion is not None and "max_length" not in draft.values):
        state_grpo(draft, "num_generations" if generations else "max_completion_length")
    elif draft.take_number("beta") is not None or completion is not None:
        key = "beta" if draft.take_number("beta") is not None else "max_completion_length"
        draft.state("preference.algorithm", "dpo", key)
        run_names = " ".join(str(draft.values.get(key, "")) for key in ("hub_model_id", "output_dir", "run_name"))
        if "orpo" in f"{run_names} {draft.file.path}".lower():
            draft.state("preference.reference", value=False, key="orpo")
        else:
            draft.notes.append(f"{key}: taken as DPO; ORPO has the same argument and no reference model")
