"""A callback for Hugging Face's Trainer, and for those built on it (TRL, Axolotl, LLaMA-Factory, Unsloth).

    Trainer(..., callbacks=[CostguardCallback("job.toml", max_usd=20)])

It reports steps, prints the expected end and cost at the start and at each evaluation, records speed and peak memory for later
quotes, and at the cap has the Trainer save a checkpoint and stop (docs/CALLBACKS.md).
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from costguard.services.run_jobs.tracked_run import TrackedRun
from costguard.sizing.job import Table

AGREE_EVERY = 10
"""Steps between two questions among several processes whether to stop: all must stop at the same step, or the rest waits."""
PARALLELISM_FLAG = "ACCELERATE_USE_PARALLELISM_CONFIG"
"""Set by `accelerate launch` where ranks share batches (tensor, context or sequence parallelism)."""


class CostguardCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not installed where types are checked
    """Tracks a Trainer's run. `job`: a job file of `costguard quote`, or its table; options: those of `TrackedRun`.

    `run`: the tracked run, once training began.
    """

    def __init__(self, job: str | os.PathLike[str] | Table | None = None, **options: Any) -> None:  # noqa: ANN401 - TrackedRun's
        self._job, self._options = job, options
        self.run: TrackedRun | None = None
        self._stops = False

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:  # noqa: ANN401, ARG002 - the Trainer's
        """Quote the run, and print what is expected. Raises InputError for a job that cannot be used."""
        options = {"steps": state.max_steps or None, **read_step(args, state, more.get("model")), **self._options}
        self.run = TrackedRun(job=self._job, quiet=not state.is_world_process_zero, **options)
        self._stops = False
        self.run.__enter__()
        self.run.begin_at(state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_more: Any) -> None:  # noqa: ANN401 - the Trainer's
        """Count the step; at the cap, have a checkpoint saved and the training stopped."""
        if self.run is None:
            return
        stops = self.run.step(state.global_step)
        if args.world_size > 1:
            stops = self._agree(stops, state.global_step)
        if stops and not self._stops:
            self._stops = True
            control.should_save = control.should_training_stop = True

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_more: Any) -> None:  # noqa: ANN401, ARG002 - the Trainer's
        """Leave the evaluation out of the speed, and print what is expected now."""
        if self.run is not None:
            self.run.exclude_pause()
            self.run.report()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_more: Any) -> None:  # noqa: ANN401, ARG002 - the Trainer's
        """Leave the checkpoint out of the speed."""
        if self.run is not None:
            self.run.exclude_pause()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_more: Any) -> None:  # noqa: ANN401, ARG002 - the Trainer's
        """Print the end beside the quote, and record what the run teaches."""
        if self.run is not None:
            self.run.__exit__(None, None, None)

    @staticmethod
    def _agree(stops: bool, step: int) -> bool:  # noqa: FBT001 - one of two answers
        """Return whether any process wants to stop; asked of all every AGREE_EVERY steps, so that all stop at one step."""
        if step % AGREE_EVERY:
            return False
        import torch

        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        flag = torch.tensor(int(stops), device=device)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
        return bool(flag.item())


def read_step(args: TrainingArguments, state: TrainerState, model: object = None) -> dict[str, int | None]:
    """Return the passes of one step over all ranks, and the sequences of one pass; nothing where ranks share batches."""
    shares = (
        getattr(args, "parallelism_config", None) is not None
        or os.environ.get(PARALLELISM_FLAG, "").lower() in ("1", "true", "yes", "y", "t", "on")
        or getattr(getattr(args, "accelerator_config", None), "split_batches", False)
        or (getattr(model, "_tp_size", None) or getattr(model, "tp_size", None) or 1) > 1
        or "tensor_parallel" in getattr(getattr(args, "hf_deepspeed_config", None), "config", {})
    )
    if shares:
        return {}
    devices = max(1, args.n_gpu)  # of this process: more than one where it replicates the model by itself
    finds = getattr(args, "auto_find_batch_size", False)  # else the state's is that of the checkpoint which is resumed
    batch = (getattr(state, "train_batch_size", None) if finds else None) or args.train_batch_size
    return {
        "passes_per_step": args.gradient_accumulation_steps * args.world_size * devices,
        "batch_size": max(1, batch // devices),
    }
