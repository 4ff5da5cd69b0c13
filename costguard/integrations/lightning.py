"""A callback for Lightning's Trainer (the package `lightning`, or `pytorch_lightning`).

    Trainer(..., callbacks=[CostguardCallback("job.toml", max_usd=20)])

It reports steps, prints the expected end and cost at the start and after each validation, records speed and peak memory for
later quotes, and at the cap saves a checkpoint and stops (docs/CALLBACKS.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    from pytorch_lightning import Callback

from costguard.services.run_jobs.tracked_run import TrackedRun
from costguard.sizing.job import Table

AGREE_EVERY = 10
"""Steps between two questions among several processes whether to stop: all must stop at the same step, or the rest waits."""
CHECKPOINT = "costguard-cap.ckpt"


class CostguardCallback(Callback):  # type: ignore[misc]  # lightning is not installed where types are checked
    """Tracks a Trainer's run. `job`: a job file of `costguard quote`, or its table; options: those of `TrackedRun`.

    `checkpoint`: where the checkpoint is written at the cap; None: CHECKPOINT in the trainer's `default_root_dir`.
    `run`: the tracked run, once training began.
    """

    def __init__(
        self,
        job: str | os.PathLike[str] | Table | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        **options: Any,  # noqa: ANN401 - those of TrackedRun
    ) -> None:
        super().__init__()
        self._job, self._options, self._checkpoint = job, options, checkpoint
        self.run: TrackedRun | None = None
        self._stops = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401 - Lightning's signature
        """Quote the run, and print what is expected. Raises InputError for a job that cannot be used."""
        options = {**read_steps(trainer, pl_module), **self._options}
        self.run = TrackedRun(job=self._job, quiet=not trainer.is_global_zero, **options)
        self._stops = False
        self.run.__enter__()
        self.run.begin_at(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, *_more: Any, **_named: Any) -> None:  # noqa: ANN401 - Lightning's signature
        """Count the step; at the cap, save a checkpoint and stop."""
        if self.run is None:
            return
        stops = self.run.step(trainer.global_step)
        if trainer.world_size > 1:
            asks = trainer.fit_loop.total_batch_idx % AGREE_EVERY == 0
            stops = asks and bool(trainer.strategy.reduce_boolean_decision(stops, all=False))
        if stops and not self._stops:
            self._stops = True
            trainer.save_checkpoint(self._checkpoint or Path(trainer.default_root_dir) / CHECKPOINT)
            trainer.should_stop = True

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 - Lightning's signature
        """Leave the validation out of the speed, and print what is expected now."""
        if self.run is not None and not trainer.sanity_checking:
            self.run.exclude_pause()
            self.run.report()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 - Lightning's signature
        """Print the end beside the quote, and record what the run teaches."""
        self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401, ARG002 - Lightning's
        """Print the end; a run that failed teaches nothing."""
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        run, self.run = self.run, None
        if run is not None:
            run.__exit__(None if error is None else type(error), error, None)


def read_steps(trainer: Any, pl_module: Any) -> dict[str, int | None]:  # noqa: ANN401 - of Lightning
    """Return the optimizer steps of the run, and the passes of one step over all ranks with batches of their own.

    A module that steps its optimizers by itself accumulates as it likes: there only a stated number of steps is known.
    """
    if not getattr(pl_module, "automatic_optimization", True):
        return {"steps": trainer.max_steps if trainer.max_steps > 0 else None}
    steps = trainer.estimated_stepping_batches
    ranks = (trainer.distributed_sampler_kwargs or {}).get("num_replicas", 1)  # None: one device
    return {
        "steps": int(steps) if steps not in (None, float("inf"), -1) else None,
        "passes_per_step": max(1, trainer.accumulate_grad_batches * ranks),
    }
