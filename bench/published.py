"""Rows of `data/sizing` as inputs: only columns that state what was run, never what was measured.

A row passes through an allow-list (`MEMORY`, `RUNS`, `FAKETENSOR`), so a measured column cannot reach a prediction: it is
not there. Remarks lose every figure that carries a unit of memory, time, money or speed. What is blank or spelled in
another way is then put into the words that the readers in `scripts/` know, by one rule for each column and none for a row.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from costguard.data import ShippedFacts
from scripts.published_runs import USUAL_VOCAB, usual_shape

Row = dict[str, str]

FACTS = ShippedFacts()

SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
MEMORY = (
    *("model", "params", *SHAPE, "tied_embeddings", "method", "weight_dtype", "amp", "quant", "lora_rank", "lora_targets"),
    *("optimizer", "batch", "seq_len", "act_ckpt", "attention", "zero_or_fsdp", "tp", "pp", "gpu_count", "offload", "gpu"),
    *("metric", "per", "source_group", "source", "note"),
    *("grad_accum", "cp", "ep", "decoder_len"),
)
RUNS = (
    *("model", "total_params", "active_params", *SHAPE, "seq_len", "global_batch_tokens", "micro_batch", "tokens_trained"),
    *("gpu", "gpu_count", "precision", "technique", "sharding", "tp", "pp", "cp", "ep", "act_ckpt", "method", "note"),
)
FAKETENSOR = (
    *("model", "hf_config", "method", "precision", "optimizer", "batch", "seq", "ckpt", "attn", "lora_r", "targets"),
    *("lora_dropout", "grad_accum", "inputs", "decoder_len"),
)
MEASURED = {
    "memory": (
        "id",
        "reported_value",
        "reported_unit",
        "reported_peak_gb",
        "trainable_params",
        "verified",
        "usable_for_formula",
    ),
    "runs": (
        *("id", "tokens_per_s_per_gpu", "gpu_hours", "wall_days", "cost_usd", "mfu_pct", "hfu_pct", "tflops_per_gpu"),
        *("tflops_kind", "source_group", "source", "verified"),
    ),
    "faketensor": (
        *("id", "params_total", "params_trainable", "param_bytes", "grad_bytes", "optimizer_state_bytes", "state_bytes"),
        *("fwd_end_bytes", "activation_bytes_at_fwd_end", "bwd_end_bytes", "peak_fwd_bwd_bytes", "peak_opt_step_bytes"),
        *("peak_bytes", "device", "tracker", "torch", "transformers", "seconds", "error"),
    ),
}
"""Columns that no prediction reads: what was measured, and where the row comes from."""
KNOWN_WORDS = {
    "method": r"|full|full-ft|finetune|sft|pretrain|lora|qlora|inference|kv-cache|load-only|peft-[\w-]+",
    "weight_dtype": r"|bf16|fp16|fp32|mixed|gguf|bfloat16|b?float16|float32|half",
    "amp": r"|y|n|yes|no|true|false",
    "quant": r"|none|nf4|nf4-dq|fp4|int8|int4|(bnb[-_ ])?[48][-_ ]?bit|gptq|awq|gguf-\w+|null|nan|n/a|na|-|\?",
    "act_ckpt": r"|y|n|yes|no|true|false|full|none|selective( .*)?|recompute-gelu|y \(.*\)",
    "attention": r"|sdpa([- _](flash|efficient|cudnn|math))?|flash[-_ ]?(att(entio)?n[-_ ]?)?[234]?|fa[234]?|eager|math"
    r"|fused-softmax|xformers|(memory|mem)[-_ ]?efficient|cudnn|flex([-_ ]?att(entio)?n)?",
    "zero_or_fsdp": r"|none|n|ddp|(deepspeed[- ]?)?zero[-_ ]?(stage[-_ ]?)?[0-3]"
    r"|fsdp[12]?([-_ ]?(full([-_ ]?shard)?|(no[-_ ])?reshard|shard[-_ ]grad[-_ ]op|hybrid([-_ ]shard)?))?|hsdp|distopt"
    r"|distributed[- ]optimizer|n/a|-",
    "offload": r"|n|none|activations?|optimizer|params?|cpu|all|DeepSpeed CPU",
    "metric": r"|unknown|.*(active|allocated|reserved|smi|computed|file size|capacity|memory|cache).*",
    "per": r"|gpu|total",
    "precision": r"|bf16|bf16-pure|bf16-amp|fp16|fp16-amp|fp32|fp8|mxfp8|nvfp4|fp4|tf32|amp",
    "sharding": r"|none|ddp|fsdp\d?|fsdp-full|fsdp-full_shard|hsdp|distopt|zero[1-3]",
}
"""Words of a column that a reader knows, as a pattern; any other makes the row unanswered."""
MEASURES_ELSEWHERE = re.compile(r"params?\s*\+|weights?\s*\+|without activations|states only", re.IGNORECASE)
"""Words of `metric` that count a part of the memory which no figure here is."""
REMARKS = ("source", "note", "technique")
NUMBERS = frozenset(
    (
        *("params", "total_params", "active_params", *SHAPE, "batch", "seq", "seq_len", "lora_rank", "lora_r", "grad_accum"),
        *("tp", "pp", "cp", "ep", "gpu_count", "global_batch_tokens", "micro_batch", "tokens_trained", "decoder_len"),
    )
)
FIGURE = re.compile(
    r"[~$]?\d[\d.,]*\s*(?:[KMGT]i?B|%|ms|seconds?|minutes?|hours?|days?|/h|TFLOPS?|tok\w*/s)\b|\$\d[\d.,]*|\d[\d.]*%",
    re.IGNORECASE,
)
IMAGE = re.compile(r"(\d+)x(\d+)")
TEXT_TO_IMAGE = re.compile(r"flux|sd-?3|diffusion-3|pixart|sana|lumina|hidream|auraflow|chroma|qwen-image", re.IGNORECASE)
TEXT_TOKENS = 512
"""Tokens of the prompt that such a model attends to beside the image's (max_sequence_length of diffusers' FLUX pipelines)."""
PATCH = 16
"""Pixels a side of one token of a latent diffusion transformer: the VAE's 8 times a patch of 2."""
WIDTH = re.compile(r"\bh ?= ?(\d{3,6})\b")
CONVOLUTIONAL = re.compile(r"stable-diffusion-?(v?1|v?2|xl)|sdxl|unet|resnet", re.IGNORECASE)
NAMED_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([mbt])(?![a-z0-9])", re.IGNORECASE)
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
WHOLE_SCORES = ("math", "sdpa-math", "sdpa math", "sdpa_math")
"""Attention that makes scores whole, as eager attention does."""
MACHINE = 8
"""GPUs of one machine, inside which a hybrid split shards."""
OPTIMIZER_WORDS = frozenset(
    (
        *(
            "adam",
            "adamw",
            "adam8bit",
            "adamw8bit",
            "pagedadamw8bit",
            "pagedadam8bit",
            "pagedadamw",
            "adafactor",
            "sgd",
            "lomo",
        ),
        *(
            "lion",
            "lion8bit",
            "paged",
            "8bit",
            "32bit",
            "bnb",
            "torch",
            "apex",
            "hf",
            "fused",
            "foreach",
            "bitsandbytes",
            "momentum",
        ),
        *("step", "in", "backward", "cpu", "deepspeed", "torchao", "bf16", "fp32", "and", "with", "no", "class"),
    )
)
"""Words of an optimizer's column that are read, or that change no byte which is not read elsewhere."""
OFFLOADS = ("n", "activations", "optimizer", "params", "DeepSpeed CPU")
"""The words of the `offload` column that `scripts.published_memory` knows."""
BLANKS = frozenset(("", "none", "null", "nan", "n/a", "na", "-", "?"))


INPUTS = {
    "input_ids": "seq",
    "tokens": "seq",
    "decoder_input_ids": "decoder_len",
    "decoder_ids": "decoder_len",
    **dict.fromkeys(("labels", "attention_mask", "decoder_attention_mask", "pixel_values", "images", "ids"), ""),
}
"""Names in the column `inputs` of fake-tensor rows -> the column that their last size fills; "": none."""
INPUT_SHAPE = re.compile(r"[\"']?([a-z_]+)[\"']?\s*[:=]\s*([\[(]?\s*\d+(?:\s*[x,]\s*\d+)*\s*[\])]?)")
NO_DROPOUT = ("", "0", "0.0", "none", "nan")


ROWS_OF = "rows of"
"""The key under which a row that was read holds the name of its file; no column has this name."""


SAMPLE = "sample"
"""The key under which an image's size stays beside the tokens that it became."""


ADAPTER = "adapter"
"""The key under which the kind of an adapter stays that is sized as LoRA."""


class UnreadableRowError(ValueError):
    """The row states too little, or not in numbers."""


def read_rows(path: Path) -> list[Row]:
    """Every row of a CSV file; absent cells are blank, cells beyond the header are dropped."""
    csv.field_size_limit(sys.maxsize)
    with path.open(newline="", encoding="utf-8-sig") as lines:
        return [
            {k.strip(): (v or "").strip() for k, v in row.items() if isinstance(k, str)} | {ROWS_OF: path.name}
            for row in csv.DictReader(lines)
        ]


def check_known(row: Row, columns: tuple[str, ...], kind: str) -> None:
    """Raise UnreadableRowError for a column or a word that no reader knows: what it changes is not guessed."""
    for name, cell in row.items():
        if cell and name not in columns and name not in MEASURED[kind] and name not in {ROWS_OF, SAMPLE, ADAPTER}:
            raise UnreadableRowError(f"column '{name}' is not known, and this row states '{cell[:40]}'")
        known = KNOWN_WORDS.get(name)
        if known and name in columns and not re.fullmatch(known, cell.strip(), re.IGNORECASE):
            raise UnreadableRowError(f"{name}: '{cell[:40]}' is not known")
    if MEASURES_ELSEWHERE.search(row.get("metric", "")):
        raise UnreadableRowError(f"metric: '{row['metric'][:40]}' is a part of the memory that is not told apart here")


def stated(row: Row, columns: tuple[str, ...]) -> Row:
    """`row` with these columns and no others: numbers in plain digits, remarks without figures."""
    return {column: _cell(column, row.get(column, "")) for column in columns}


def memory_inputs(row: Row) -> Row:
    """What a row of memory_dev.csv states, in the words of `scripts.published_memory`."""
    check_known(row, MEMORY, "memory")
    inputs = with_shape(_sample(stated(row, MEMORY)), "params")
    method = inputs["method"].lower()
    quant = _quant(inputs["quant"].lower(), method)
    lomo = inputs["optimizer"].lower() == "lomo"  # it steps in the backward pass and keeps neither states nor a master copy
    unnamed = method.startswith("peft-") and not inputs["lora_targets"]  # prompts and prefixes adapt no matrix: next to nothing
    return inputs | {
        "method": _method(method, quant),
        "quant": quant,
        ADAPTER: method.removeprefix("peft-") if method.startswith("peft-") else "",
        "optimizer": "sgd, step in backward" if lomo else _optimizer(inputs["optimizer"]),
        "weight_dtype": DTYPES.get(inputs["weight_dtype"].lower(), inputs["weight_dtype"].lower()),
        "attention": "eager" if inputs["attention"].lower() in WHOLE_SCORES else inputs["attention"],
        "lora_rank": inputs["lora_rank"] or ("1" if unnamed else ""),
        "lora_targets": inputs["lora_targets"] or ("v" if unnamed else ""),
        "act_ckpt": _checkpointing(inputs["act_ckpt"]),
        "zero_or_fsdp": _sharding(inputs["zero_or_fsdp"].lower(), int(inputs["gpu_count"] or 1)),
        "offload": _offload(inputs["offload"]),
        "tied_embeddings": inputs["tied_embeddings"].lower()[:1],
        "amp": "n" if lomo else inputs["amp"].lower()[:1].replace("t", "y"),
    }


def run_inputs(row: Row) -> Row:
    """What a row of runs_dev.csv states, in the words of `scripts.published_runs`."""
    check_known(row, RUNS, "runs")
    inputs = stated(row, RUNS)
    size = inputs["total_params"] or _named_size(inputs["model"])
    inputs = with_shape(inputs | {"total_params": size}, "total_params")
    checkpointing = inputs["act_ckpt"].lower()
    return inputs | {
        "total_params": inputs["total_params"] or str(_counted(inputs)),
        "precision": inputs["precision"].lower() or "bf16",
        "method": inputs["method"].lower() or "pretrain",
        "act_ckpt": {"true": "y", "yes": "y", "full": "y", "false": "n", "no": "n", "none": "n"}.get(
            checkpointing, checkpointing
        ),
    }


def faketensor_inputs(row: Row) -> Row:
    """What a row of faketensor_dev.csv states, in the words of `tools/faketensor.py`."""
    check_known(row, FAKETENSOR, "faketensor")
    row = _read_input_shapes(row)
    if row.get("lora_dropout", "").lower() not in NO_DROPOUT:
        raise UnreadableRowError(
            f"lora_dropout: '{row['lora_dropout'][:20]}' keeps masks that only a GPU's kernels keep in bytes"
        )
    inputs = stated(row, FAKETENSOR)
    for column in ("batch", "seq", *(("lora_r", "targets") if inputs["method"] == "lora" else ())):
        if not inputs[column]:
            raise UnreadableRowError(f"{column} is not stated")
    return inputs | {
        "method": inputs["method"] or "full",
        "precision": inputs["precision"] or "bf16",
        "optimizer": inputs["optimizer"] or "adamw_fused",
        "ckpt": str(inputs["ckpt"].lower() in ("true", "1", "y", "yes")),
    }


def _read_input_shapes(row: Row) -> Row:
    """`row` with the lengths that its column `inputs` tells: names with shapes, or the names alone, which tell nothing new.

    `{"input_ids": [2, 512], "decoder_input_ids": [2, 128]}` and `input_ids=2x512 decoder_input_ids=2x128` say the same.
    """
    said = row.get("inputs", "").strip()
    if said.lower() in BLANKS:
        return row | {"inputs": ""}
    told = INPUT_SHAPE.findall(said)
    left = INPUT_SHAPE.sub("", said)
    names = {name for name, _ in told} | set(re.findall(r"[a-z_]+", left.lower()))
    if not names or names - set(INPUTS) or re.search(r"\d", left):
        raise UnreadableRowError(f"inputs: '{said[:60]}' are not read: {', '.join(INPUTS)} with their shapes are")
    lengths = {}
    for name, shape in told:
        sizes = [int(size) for size in re.findall(r"\d+", shape)]
        if INPUTS[name] and len(sizes) not in (1, 2):
            raise UnreadableRowError(f"inputs: '{name}' has {len(sizes)} sizes, and [batch, tokens] are read")
        if INPUTS[name] and len(sizes) == 2:
            lengths["batch"] = str(sizes[0])
        if INPUTS[name]:
            lengths[INPUTS[name]] = str(sizes[-1])
    return row | {"inputs": ""} | lengths


def with_shape(row: Row, size: str) -> Row:
    """`row` with the blanks of its shape filled from its parameters (column `size`) and the usual proportions."""
    if all(row[name] for name in ("layers", "hidden", "heads", "ffn")):
        return row | {"kv_heads": row["kv_heads"] or row["heads"]}
    if not row[size] and not (row["layers"] and row["hidden"]) and not _named_size(row["model"]):
        raise UnreadableRowError(f"neither the shape nor {size} is stated, and '{row['model']}' names none that is known")
    parameters = float(row.get("active_params") or row[size] or _named_size(row["model"]) or 12)
    usual = usual_shape(parameters)
    width = WIDTH.search(f"{row.get('note', '')} {row.get('source', '')}")
    hidden = int(row["hidden"] or (width[1] if width else usual["hidden"]))
    layers = int(row["layers"] or usual["layers"])
    if not row["layers"] and hidden != int(usual["hidden"]):
        stages = int(row["pp"] or 1)
        layers = stages * max(1, round(parameters / (12 * hidden**2) / stages))
    heads = row["heads"] or str(max(1, hidden // 128))
    image = IMAGE.fullmatch(row.get(SAMPLE, ""))
    vocab = row["vocab"] or ("0" if image else str(USUAL_VOCAB))
    filled = {"layers": str(layers), "hidden": str(hidden), "heads": heads, "kv_heads": row["kv_heads"] or heads}
    return row | filled | {"ffn": row["ffn"] or str(4 * hidden), "vocab": vocab}


def _sample(row: Row) -> Row:
    """A sample given as an image becomes tokens; of a model that is walked layer by layer, one sample of that size."""
    image = IMAGE.fullmatch(row["seq_len"])
    if _is_walked(row["model"]):
        ones = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn"), "1")
        return row | ones | {"vocab": "0", "seq_len": "1", SAMPLE: row["seq_len"] if image else ""}
    if CONVOLUTIONAL.search(row["model"]) and not row["layers"]:
        raise UnreadableRowError(
            f"'{row['model']}' is made of convolutions and no shipped model: its activations need a layer walk"
        )
    if not image:
        return row | {SAMPLE: ""}
    tokens = int(image[1]) * int(image[2]) // PATCH**2 + TEXT_TOKENS * bool(TEXT_TO_IMAGE.search(row["model"]))
    return row | {"seq_len": str(tokens), SAMPLE: row["seq_len"]}


def _is_walked(model: str) -> bool:
    shipped = FACTS.get_shipped_architecture(model.lower())
    return shipped is not None and shipped.walk is not None


def _cell(column: str, text: str) -> str:
    if column in REMARKS:
        return FIGURE.sub("", text)
    if column not in NUMBERS:
        return text.strip()
    cell = text.strip().replace(",", "").replace("_", "")
    if cell.lower() in BLANKS:
        return ""
    if column == "seq_len" and IMAGE.fullmatch(cell):
        return cell
    try:
        return str(int(float(cell)))
    except (ValueError, OverflowError):
        raise UnreadableRowError(f"{column}: '{text[:40]}' is not a number") from None


def _quant(quant: str, method: str) -> str:
    if quant in BLANKS:
        return "nf4" if method == "qlora" else "none"
    return {"fp4": "nf4", "4bit": "nf4", "8bit": "int8", "gptq": "int4", "awq": "int4"}.get(quant, quant)


def _method(method: str, quant: str) -> str:
    """Other low-rank and prompt methods are sized as LoRA on the same matrices, the nearest there is."""
    if method.startswith("peft-") or method == "lora":
        return "qlora" if quant != "none" else "lora"
    return {"full-ft": "full", "finetune": "full", "sft": "full", "": "full"}.get(method, method)


def _checkpointing(text: str) -> str:
    first = text.lower().split(" ")[0]
    return {"true": "y", "yes": "y", "full": "y"}.get(first, first if first in ("y", "selective") else "n")


def _sharding(text: str, gpus: int) -> str:
    """The split in one spelling: none, ddp, zero1 to zero3, fsdp-full, distopt.

    SHARD_GRAD_OP and FSDP without resharding keep full weights and shard the rest, as ZeRO-2 does. A hybrid split shards
    inside a machine, of eight GPUs at the most.
    """
    if "grad" in text or "reshard" in text:
        return "zero2"
    if text.startswith("hsdp") or "hybrid" in text:
        if gpus > MACHINE:
            raise UnreadableRowError(f"zero_or_fsdp: '{text}' does not say over how many of {gpus} GPUs it shards")
        return "fsdp-full"
    if text.startswith("fsdp"):
        return "fsdp-full"
    stage = re.search(r"zero[-_ ]?(?:stage[-_ ]?)?(\d)", text)
    if stage:
        return f"zero{stage[1]}"
    return {"distopt": "zero1", "distributed optimizer": "zero1", "distributed-optimizer": "zero1", "ddp": "ddp"}.get(
        text, "none"
    )


def _optimizer(text: str) -> str:
    """The optimizer in the words of `scripts.published_memory`; a kind that is not known is refused, not taken for AdamW."""
    said = re.sub(r"\(.*?\)", "", text.lower()).replace("8-bit", "8bit").replace("32-bit", "32bit")
    words = {word for word in re.split(r"[^a-z0-9]+", said) if word}
    if not words or words <= {"n", "a", "none"}:
        return ""
    strange = words - OPTIMIZER_WORDS
    if strange:
        raise UnreadableRowError(f"optimizer: '{text[:40]}' is not known ('{min(strange)}')")
    return said


def _offload(text: str) -> str:
    if text in OFFLOADS:
        return text
    words = {"activ": "activations", "optim": "optimizer", "param": "params", "cpu": "params", "all": "params"}
    return next((known for word, known in words.items() if word in text.lower()), "n")


def _named_size(model: str) -> str:
    """Parameters of a shipped model, else the size its name says ("GPT-124M"), else blank."""
    shipped = FACTS.get_shipped_architecture(model.lower())
    if shipped is not None:
        return str(shipped.parameters)
    said = NAMED_SIZE.search(model)
    return str(int(float(said[1]) * {"m": 1e6, "b": 1e9, "t": 1e12}[said[2].lower()])) if said else ""


def _counted(row: Row) -> int:
    """Parameters of a decoder of this shape whose count nobody stated: gated where that is narrower than usual."""
    hidden, layers, ffn = int(row["hidden"]), int(row["layers"]), int(row["ffn"])
    keys = 2 * hidden**2 * (1 + int(row["kv_heads"]) / int(row["heads"]))
    matrices = 2 if ffn >= 4 * hidden else 3
    return int(layers * (keys + matrices * hidden * ffn) + 2 * int(row["vocab"] or USUAL_VOCAB) * hidden)
