"""Run two training steps on fake tensors; the memory of the second step is that of a running job.

Every storage is tracked from creation to release, in the sizes that the CUDA caching allocator allocates.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import peft
import torch
import transformers
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from costguard.errors import InputError, shorten
from costguard.services.quote.exact_step.models import build_model, move_to_fake_cpu
from costguard.sizing.exact_memory import LEAVE_OUT_HINT, ExactMemory, count_passes
from costguard.sizing.job import Job
from costguard.sizing.recipe import Recipe

MADE_WITH = f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"
IMAGE = 224
"""Pixels of a side where a vision model's config does not say."""


def measure_second_step(config: Mapping[str, object], job: Job) -> ExactMemory:
    """Return the memory of `job`'s second step."""
    transformers.logging.set_verbosity_error()
    on_meta = build_model(config, job)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = move_to_fake_cpu(on_meta)
        batch = _build_batch(model.config, job)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = _build_optimizer(job.recipe, trained)
        try:
            marks = _run_two_steps(model, batch, optimizer, job.recipe)
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as refused:
            why = f"{model.config.model_type} cannot be run on fake tensors: {shorten(str(refused).splitlines()[0], 160)}"
            raise InputError(why, field="model", hint=LEAVE_OUT_HINT) from refused
    return ExactMemory(
        parameters=sum(p.numel() for p in model.parameters()),
        trained=sum(p.numel() for p in trained),
        made_with=MADE_WITH,
        **marks,
    )


def _run_two_steps(model: Any, batch: Mapping[str, Any], optimizer: Any, recipe: Recipe) -> dict[str, int]:  # noqa: ANN401 - torch's
    storages = StorageTracker()
    storages.follow((*model.parameters(), *model.buffers(), *batch.values()))
    marks: dict[str, int] = {}
    with storages:
        for _ in range(2):
            storages.take_peak()
            marks = _run_step(model, batch, optimizer, recipe, storages)
    return marks


def _run_step(
    model: Any,  # noqa: ANN401 - a PreTrainedModel
    batch: Mapping[str, Any],
    optimizer: Any,  # noqa: ANN401 - a torch.optim.Optimizer
    recipe: Recipe,
    storages: StorageTracker,
) -> dict[str, int]:
    """Return the bytes at points of one step; only the weights and the optimizer's states remain after it."""
    forward, old_peak = 0, 0
    for _ in range(count_passes(recipe)):
        with torch.autocast("cpu", dtype=torch.bfloat16) if recipe.amp else nullcontext():
            loss = _compute_loss(model(**batch))
        forward, end = storages.take_peak(), storages.now
        loss.backward()
        del loss
        old_peak = max(old_peak, forward, storages.take_peak())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"forward": forward, "forward_end": end, "forward_backward": old_peak, "step": storages.take_peak()}


def _compute_loss(output: Any) -> Any:  # noqa: ANN401 - a ModelOutput, a tensor
    """Return the loss that the model computed; of an encoder without a head, a sum that keeps no tensor of its own."""
    if "loss" in output and output.loss is not None:
        return output.loss
    hidden = getattr(output, "last_hidden_state", None)
    if hidden is None:
        what = f"{type(output).__name__} has neither a loss nor hidden states"
        raise InputError(what, field="architectures", hint="name a class with a head")
    return hidden.sum()


def _build_batch(config: Any, job: Job) -> dict[str, Any]:  # noqa: ANN401 - a PretrainedConfig
    """Build inputs and labels of one micro-batch, in the dtypes of a data loader."""
    count, length = job.recipe.micro_batch, job.recipe.seq_len
    if job.architecture.sample_tokens is not None:
        side = getattr(config, "image_size", IMAGE)
        pixels = torch.empty(count, getattr(config, "num_channels", 3), side, side)
        return {"pixel_values": pixels, "labels": torch.zeros(count, dtype=torch.long)}
    ids = torch.zeros(count, length, dtype=torch.long)
    if not job.architecture.has_head:
        return {"input_ids": ids}
    written = job.recipe.decoder_len if config.is_encoder_decoder and job.recipe.decoder_len else length
    return {"input_ids": ids, "labels": torch.zeros(count, written, dtype=torch.long)}


def _build_optimizer(recipe: Recipe, parameters: list[Any]) -> Any:  # noqa: ANN401 - a torch.optim.Optimizer
    makers: dict[str, Callable[[], Any]] = {
        "adamw": lambda: torch.optim.AdamW(parameters, fused=True),
        "sgd": lambda: torch.optim.SGD(parameters, lr=0.01, foreach=True),
        "sgd-momentum": lambda: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=True),
    }
    return makers[recipe.optimizer]()


ALLOCATION_GRAIN = 512
"""Bytes: the CUDA caching allocator rounds every request up to a multiple of it (c10/cuda, kMinBlockSize)."""


class StorageTracker(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where types are checked: its classes are Any
    """Tracks every tensor that an operator returns while it is entered. `now` and `peak` are bytes.

    torch keeps one Python object for a storage as long as the storage lives, so a weak reference dies when the memory is
    released.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def follow(self, tensors: Iterable[Tensor]) -> None:
        """Count the storages of `tensors` that are not counted yet; views share one."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if id(storage) not in self._alive:
                self._add_storage(storage)

    def take_peak(self) -> int:
        """Return the peak since the last call, and begin a new one."""
        peak, self.peak = self.peak, self.now
        return peak

    def _add_storage(self, storage: Any) -> None:  # noqa: ANN401 - a torch.UntypedStorage
        key, size = id(storage), -(-storage.nbytes() // ALLOCATION_GRAIN) * ALLOCATION_GRAIN

        def died(_: object) -> None:
            del self._alive[key]
            self.now -= size

        self._alive[key] = weakref.ref(storage, died)
        self.now += size
        self.peak = max(self.peak, self.now)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        result = func(*args, **(kwargs or {}))
        self.follow(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        return result
