"""Measure training steps on the GPU in front of it: the most memory that PyTorch allocated, and tokens a second.

    python bench/card_steps.py --out FILE [--only NAME ...]      on a machine with a GPU, PyTorch, transformers and peft

Models are built with random weights from the shapes in `costguard/data/architectures.json`, so nothing is downloaded. A case
is plain Hugging Face code: the model's own loss, PyTorch's AdamW, one GPU. It runs three steps to warm up and eight that are
timed; memory is the most that PyTorch allocated since the process was clean. Each case runs in a process of its own.
What was measured so far is `bench/card.csv`; `python -m bench.card` compares it with what a quote says.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WARM_UP, TIMED = 3, 8
DEVICE = "cuda"
CASE_LIMIT_S = 75
"""A case that takes longer, model and all, is ended and named."""


@dataclass(frozen=True, kw_only=True)
class CardCase:
    """One job. `dtype`: bf16 (weights and all), bf16-amp (fp32 weights, autocast) or fp32. `targets`: "" for full training."""

    model: str
    dtype: str
    batch: int
    seq: int
    checkpointing: bool = False
    rank: int = 0
    targets: str = ""
    foreach: bool = False
    compiled: bool = False
    decoder_len: int = 0

    @property
    def name(self) -> str:
        """What the case is called: its model and all that changes its figures."""
        parts = (
            self.model,
            f"lora{self.rank}-{self.targets}" if self.rank else "full",
            self.dtype,
            f"b{self.batch}",
            f"s{self.seq}",
        )
        flags = [
            flag for flag, on in (("ckpt", self.checkpointing), ("foreach", self.foreach), ("compile", self.compiled)) if on
        ]
        return "-".join((*parts, *flags))


ATTENTION, ALL = "attention", "all-linear"
CASES = (
    CardCase(model="qwen2.5-0.5b", dtype="bf16-amp", batch=4, seq=2048),
    CardCase(model="qwen2.5-0.5b", dtype="bf16", batch=8, seq=1024),
    CardCase(model="llama-3.2-1b", dtype="bf16-amp", batch=2, seq=2048),
    CardCase(model="llama-3.2-1b", dtype="bf16-amp", batch=8, seq=2048, checkpointing=True),
    CardCase(model="llama-3.2-1b", dtype="bf16", batch=4, seq=4096, checkpointing=True),
    CardCase(model="llama-3.2-1b", dtype="bf16", batch=4, seq=2048, foreach=True),
    CardCase(model="qwen2.5-1.5b", dtype="bf16", batch=4, seq=2048, checkpointing=True),
    CardCase(model="llama-3.2-3b", dtype="bf16", batch=2, seq=2048, checkpointing=True),
    CardCase(model="qwen3-4b", dtype="bf16", batch=1, seq=4096, checkpointing=True),
    CardCase(model="llama-3.1-8b", dtype="bf16", batch=1, seq=2048, checkpointing=True, rank=16, targets=ALL),
    CardCase(model="llama-3.1-8b", dtype="bf16", batch=2, seq=4096, checkpointing=True, rank=16, targets=ATTENTION),
    CardCase(model="llama-3.1-8b", dtype="bf16", batch=4, seq=1024, rank=64, targets=ALL),
    CardCase(model="mistral-7b", dtype="bf16", batch=1, seq=4096, checkpointing=True, rank=8, targets=ATTENTION),
    CardCase(model="gemma-2b", dtype="bf16", batch=2, seq=2048, checkpointing=True, rank=16, targets=ALL),
    CardCase(model="gpt2-medium", dtype="bf16-amp", batch=8, seq=1024),
    CardCase(model="gpt2", dtype="fp32", batch=8, seq=1024),
    CardCase(model="bert-large", dtype="bf16-amp", batch=16, seq=512),
    CardCase(model="roberta-large", dtype="bf16-amp", batch=32, seq=128),
    CardCase(model="pythia-1.4b", dtype="bf16", batch=4, seq=2048),
    CardCase(model="opt-1.3b", dtype="bf16-amp", batch=4, seq=2048, checkpointing=True),
    CardCase(model="phi-2", dtype="bf16", batch=2, seq=2048, checkpointing=True, rank=16, targets=ATTENTION),
    CardCase(model="smollm2-1.7b", dtype="bf16", batch=4, seq=2048),
    CardCase(model="smollm2-1.7b", dtype="bf16", batch=4, seq=2048, compiled=True),
    CardCase(model="olmoe-1b-7b", dtype="bf16", batch=1, seq=2048, checkpointing=True),
    CardCase(model="qwen3-30b-a3b", dtype="bf16", batch=1, seq=2048, checkpointing=True, rank=16, targets=ATTENTION),
    CardCase(model="qwen2.5-7b", dtype="bf16", batch=1, seq=16384, checkpointing=True, rank=16, targets=ALL),
    CardCase(model="qwen2.5-14b", dtype="bf16", batch=1, seq=2048, checkpointing=True, rank=16, targets=ALL),
    CardCase(model="qwen2.5-32b", dtype="bf16", batch=1, seq=1024, checkpointing=True, rank=16, targets=ALL),
    CardCase(model="t5-large", dtype="bf16", batch=8, seq=512, decoder_len=128),
    CardCase(model="tinyllama-1.1b", dtype="fp32", batch=2, seq=2048, checkpointing=True),
    CardCase(model="pythia-160m", dtype="bf16-amp", batch=1, seq=512),
    CardCase(model="qwen3-0.6b", dtype="bf16", batch=1, seq=512),
)

COLUMNS = (
    *(field.name for field in fields(CardCase)),
    *("parameters", "card", "day", "versions", "allocated", "reserved", "used", "step_s", "slowest_s", "tokens_per_s"),
)


def main() -> int:
    """0 when every case was measured, 1 when one was not."""
    asked = arguments()
    if asked.case:
        print(json.dumps(measure(CardCase(**json.loads(asked.case)))))
        return 0
    cases = [case for case in CASES if not asked.only or case.name in asked.only]
    missed = 0
    for case in cases:
        found = run_alone(case)
        missed += "error" in found
        if "error" not in found:
            write_line(asked.out, case, found)
    return int(missed > 0)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, help="append what was measured to this CSV file")
    where.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", help="names of cases")
    return parser.parse_args()


def run_alone(case: CardCase) -> dict[str, Any]:
    """What `measure` found in a process of its own; {"error": why} where it failed."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--case", json.dumps(asdict(case))],
            capture_output=True, text=True, timeout=CASE_LIMIT_S, check=False,
        )  # fmt: skip
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": done.stderr.strip()[-400:]}
    except subprocess.TimeoutExpired:
        found = {"error": f"took over {CASE_LIMIT_S} s"}
    print(f"{case.name}: {found} ({time.monotonic() - begun:.0f} s)", flush=True)
    return found


def measure(case: CardCase) -> dict[str, Any]:
    """Peak bytes and tokens a second of `case` on GPU 0."""
    import torch

    torch.manual_seed(1)
    model, batch, tokens = build(case)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = (
        torch.optim.AdamW(trained, lr=1e-5, foreach=True) if case.foreach else torch.optim.AdamW(trained, lr=1e-5, fused=True)
    )
    stepped = torch.compile(model) if case.compiled else model
    autocast = case.dtype == "bf16-amp" or case.rank > 0
    torch.cuda.synchronize()
    times = []
    for _ in range(WARM_UP + TIMED):
        begun = time.perf_counter()
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=autocast):
            loss = stepped(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    free, total = torch.cuda.mem_get_info()
    median = sorted(times[WARM_UP:])[TIMED // 2]
    import peft
    import transformers

    return {
        "card": torch.cuda.get_device_name(0),
        "parameters": sum(parameter.numel() for parameter in model.parameters() if not (case.rank and parameter.requires_grad)),
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "used": total - free,
        "step_s": median,
        "slowest_s": max(times[WARM_UP:]),
        "tokens_per_s": tokens / median,
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}",
    }


def build(case: CardCase) -> tuple[Any, dict[str, Any], int]:
    """The model on the GPU, one batch, and how many tokens count."""
    import torch
    import transformers
    from transformers import initialization

    known = json.loads((ROOT / "costguard/data/architectures.json").read_text(encoding="utf-8"))["models"][case.model]["config"]
    given = {key: value for key, value in known.items() if key not in ("model_type", "architectures")}
    config = transformers.AutoConfig.for_model(known["model_type"], **given)
    config.use_cache = False
    if case.decoder_len:
        config.decoder_start_token_id = 0
    kind = getattr(transformers, known["architectures"][0])
    weights = torch.float32 if case.dtype in ("fp32", "bf16-amp") else torch.bfloat16
    torch.set_default_dtype(weights)
    with torch.device(DEVICE), initialization.no_init_weights():
        model = kind._from_config(config, attn_implementation="sdpa")  # noqa: SLF001 - the public one takes no class of a head
    model.tie_weights()
    torch.set_default_dtype(torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    if case.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if case.rank:
        import peft

        model.enable_input_require_grads()
        model = peft.get_peft_model(
            model,
            peft.LoraConfig(
                r=case.rank,
                lora_alpha=32,
                target_modules=choose_adapter_targets(case, dict(model.named_modules())),
                task_type="CAUSAL_LM",
            ),
        )
    model.train()
    shape = (case.batch, case.seq)
    ids = torch.randint(5, 1000, shape, device=DEVICE)
    labels = torch.randint(5, 1000, (case.batch, case.decoder_len), device=DEVICE) if case.decoder_len else ids
    return model, {"input_ids": ids, "labels": labels}, case.batch * case.seq


def choose_adapter_targets(case: CardCase, modules: Iterable[str]) -> str | list[str]:
    """What the adapters stand on: every linear layer, or the four projections of attention."""
    if case.targets == ALL:
        return "all-linear"
    names = {name.rsplit(".", 1)[-1] for name in modules}
    return [name for name in ("q_proj", "k_proj", "v_proj", "o_proj", "dense") if name in names]


def write_line(path: Path, case: CardCase, found: dict[str, Any]) -> None:
    """Append the case and what was measured of it."""
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow({**asdict(case), "day": time.strftime("%Y-%m-%d", time.gmtime()), **found})


if __name__ == "__main__":
    sys.exit(main())
