"""Places a job on given GPUs: how it is split, how much memory each GPU needs, and whether it fits.

Example: a full fine-tune of Llama-2-7B in bf16 needs about 50 GiB on one GPU. On 4 x RTX 4090 (24 GiB each), full copies and
sharded optimizer states (ZeRO-2) do not fit, but fully sharded weights (FSDP) do, so FSDP is chosen. If the user states no
split, the lightest one that fits is chosen, because each further shard costs communication.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from costguard.errors import InputError
from costguard.sizing.gpu_precision import adapt_recipe, choose_precision, explain_missing_precision, list_precision_notes
from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.recipe import USUAL_NETWORK, NetworkSpeeds, Parallelism, Recipe
from costguard.values.gpu import GIB, Gpu

FABRIC_GPUS = 8
"""Machines with this many GPUs on a fabric of their own are sold with a network made for several; others are not joined."""

MOST_JOINED = 4
"""Machines that one copy of a served model is split over at most: a token passes all of them in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The GPUs that the user states with `--on`, independent of market offers."""

    gpu: Gpu
    gpu_count: int
    nodes: int = 1


FITS = ("yes", "maybe", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job on `nodes` machines with `gpu_count` GPUs each.

    `recipe`: the job's recipe with its gradient accumulation filled in, in the precision in which it runs on this GPU.
    """

    gpu: Gpu
    gpu_count: int
    nodes: int
    parallel: Parallelism
    recipe: Recipe
    footprint: Footprint
    network: NetworkSpeeds = USUAL_NETWORK
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of all machines."""
        return self.gpu_count * self.nodes

    @property
    def needs_gib(self) -> float:
        """Return the GiB that each GPU needs: the footprint's `reserved`."""
        return self.footprint.reserved / GIB

    @property
    def fit(self) -> str:
        """Return whether each GPU holds its part, by the 80 % interval of what it needs: one of FITS.

        Host memory is checked with the offer instead.
        """
        needs = self.footprint.reserved_interval.scale(1 / GIB)
        return "yes" if needs.high <= self.gpu.memory_gib else "maybe" if needs.low <= self.gpu.memory_gib else "no"

    @property
    def fits(self) -> bool:
        """Return whether the job may fit: `fit` is yes or maybe."""
        return self.fit != "no"

    @property
    def is_expected_to_fit(self) -> bool:
        """Return whether the expected need fits: by this, hardware and a split are chosen where they are not stated."""
        return self.needs_gib <= self.gpu.memory_gib

    def explain_fit(self) -> str:
        """Return why the job may not fit, in GiB; "" if it fits or does not."""
        needs = self.footprint.reserved_interval.scale(1 / GIB)
        doubt = f"may not fit: needs {needs.low:.0f} to {needs.high:.0f} of {self.gpu.memory_gib:.1f} GiB a GPU"
        return doubt if self.fit == "maybe" else ""

    @property
    def host_gib(self) -> float:
        """Return the GiB of host memory that one machine needs for offloaded tensors."""
        return self.footprint.host_bytes * self.gpu_count / GIB


TRAINING_SPLITS = (Parallelism(), Parallelism(zero=2), Parallelism(fsdp=True))
"""What is tried where no split is stated: full copies first, then ever more of the states sharded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpossiblePlacement:
    """The reason why a job cannot be split over these GPUs."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedSplit:
    """One split of a job over a number of GPUs, and the memory that each GPU needs.

    `reserved`: the footprint's, in bytes; a search compares it with the memory of many GPUs.
    """

    parallel: Parallelism
    recipe: Recipe
    footprint: Footprint
    reserved: int


@dataclass(slots=True)
class Placer:
    """Places one job on many kinds of GPU.

    Memory depends on the split and the precision, and otherwise not on the kind of GPU, so each split is sized once for each,
    with one recipe for each precision.
    """

    job: Job
    _recipes: dict[str, Recipe] = field(default_factory=dict)
    _sized: dict[tuple[str, int, int, bool], tuple[SizedSplit, ...] | ImpossiblePlacement] = field(default_factory=dict)
    _batches: dict[tuple[Recipe, Parallelism, int, int], SizedSplit | None] = field(default_factory=dict)

    def place(self, gpu: Gpu, gpu_count: int, nodes: int = 1) -> Placement | ImpossiblePlacement:
        """Return the lightest split that fits; if none fits, the one that needs the least memory.

        Return ImpossiblePlacement if no split exists.
        """
        ways = self.list_splits(gpu, gpu_count, nodes)
        if isinstance(ways, ImpossiblePlacement):
            return ways
        chosen = _find_lightest_fit(ways, gpu) or min(ways, key=lambda w: w.reserved)
        if self.job.batch_open:
            chosen = self._enlarge_batch(chosen, gpu, gpu_count * nodes)
        return Placement(
            gpu=gpu,
            gpu_count=gpu_count,
            nodes=nodes,
            parallel=chosen.parallel,
            recipe=chosen.recipe,
            footprint=chosen.footprint,
            network=self.job.network,
            notes=(
                *(self.job.calibration.list_notes(chosen.footprint) if self.job.calibration else ()),
                *list_precision_notes(self.job.recipe, gpu),
            ),
        )

    def _enlarge_batch(self, split: SizedSplit, gpu: Gpu, gpus: int) -> SizedSplit:
        """Return the split with the largest micro_batch whose high end fits: a power of two, at most the global batch.

        Where that is not stated, a step has at most MOST_SEQUENCES.
        """
        ranks, has = split.parallel.count_data_ranks(gpus), gpu.memory_gib * GIB
        most = MOST_SEQUENCES // ranks if self.job.global_batch_tokens is None else MOST_BATCH
        sized, batch = split, 2
        while batch <= most:
            key = (split.recipe, split.parallel, gpus, batch)
            if key not in self._batches:
                larger = _size_split(self.job, replace(split.recipe, micro_batch=batch), split.parallel, gpus)
                self._batches[key] = larger if isinstance(larger, SizedSplit) else None
            enlarged = self._batches[key]
            if enlarged is None or enlarged.footprint.reserved_interval.high > has:
                break
            sized, batch = enlarged, 2 * batch
        return sized

    def place_on_enough(self, gpu: Gpu, gpu_count: int) -> Placement | ImpossiblePlacement:
        """Return the placement on one machine if it fits there, else on the fewest machines that hold the job.

        Several machines are tried only if such machines can be connected. If none fits, return the placement on one machine.
        """
        placement = self.place(gpu, gpu_count)
        nodes = 1
        joined = gpu.nvlink and gpu_count >= FABRIC_GPUS
        while joined and not can_hold(placement) and 2 * nodes * gpu_count <= self.job.limits.max_gpus:
            nodes *= 2
            wider = self.place(gpu, gpu_count, nodes)
            if can_hold(wider):
                return wider
        return placement

    def list_splits(
        self, gpu: Gpu, gpu_count: int, nodes: int = 1, *, sharded: bool = False
    ) -> tuple[SizedSplit, ...] | ImpossiblePlacement:
        """Return every split worth trying on this hardware, lightest first and sized; ImpossiblePlacement if there is none.

        There is none if the GPU does not compute in the precision of a training job. `sharded`: leave out full copies if
        another split exists.
        """
        lacking = explain_missing_precision(self.job.recipe, gpu)
        if lacking:
            return ImpossiblePlacement(reason=lacking)
        precision = choose_precision(self.job.recipe, gpu)
        key = (precision, gpu_count, nodes, sharded)
        if key not in self._sized:
            if precision not in self._recipes:
                self._recipes[precision] = adapt_recipe(self.job.recipe, gpu)
            recipe = self._recipes[precision]
            worth = _list_worthwhile_splits(self.job, gpu_count, nodes)
            chosen = worth[1:] if sharded and len(worth) > 1 else worth
            tried = [_size_split(self.job, recipe, parallel, gpu_count * nodes) for parallel in chosen]
            ways = tuple(t for t in tried if isinstance(t, SizedSplit))
            self._sized[key] = ways or next(t for t in tried if isinstance(t, ImpossiblePlacement))
        return self._sized[key]


MOST_SEQUENCES, MOST_BATCH = 256, 65_536
"""Sequences of a step where no global batch is stated: 256 of 2,048 tokens are the half million tokens with which GPT-3's small
models were trained (arXiv 2005.14165, table 2.1). And the most that one pass may have where one is."""


def fix_batch(job: Job, placement: Placement) -> Job:
    """Return `job` with the micro_batch that `placement` was given, where none is stated: as if it had been written."""
    if not job.batch_open:
        return job
    batch = placement.recipe.micro_batch
    assumed = tuple((field, str(batch) if field == "micro_batch" else value) for field, value in job.assumed)
    return replace(job, recipe=replace(job.recipe, micro_batch=batch), assumed=assumed, batch_open=False)


def can_hold(placement: Placement | ImpossiblePlacement) -> bool:
    """Return whether the job could be placed and is expected to fit."""
    return isinstance(placement, Placement) and placement.is_expected_to_fit


def _find_lightest_fit(ways: tuple[SizedSplit, ...], gpu: Gpu) -> SizedSplit | None:
    """Return the first of `ways` that fits on `gpu`; None if none does."""
    has = gpu.memory_gib * GIB
    return next((w for w in ways if w.reserved <= has), None)


def _size_split(job: Job, recipe: Recipe, parallel: Parallelism, gpus: int) -> SizedSplit | ImpossiblePlacement:
    accumulated = _compute_accumulation(job, recipe, parallel, gpus)
    if isinstance(accumulated, ImpossiblePlacement):
        return accumulated
    if accumulated != recipe.gradient_accumulation:
        recipe = replace(recipe, gradient_accumulation=accumulated)
    try:
        footprint = compute_job_footprint(job, recipe, parallel, gpus)
    except InputError as impossible:
        # A stated split that suits no number of GPUs was refused before (services/quote/quote.py, check_split); here it
        # is a fact about this number of GPUs.
        return ImpossiblePlacement(reason=impossible.what)
    return SizedSplit(parallel=parallel, recipe=recipe, footprint=footprint, reserved=footprint.reserved)


def compute_job_footprint(job: Job, recipe: Recipe, parallel: Parallelism, gpus: int) -> Footprint:
    """Return the footprint of the job and its companions, shifted by the calibration from observed runs."""
    if job.beside is None:
        computed = compute_footprint(job.architecture, recipe, parallel, gpus=gpus)
    else:
        from costguard.sizing.memory.preference import compute_combined_footprint

        computed = compute_combined_footprint(job.architecture, recipe, job.beside, parallel, gpus=gpus)
    return job.calibration.calibrate_memory(computed, job) if job.calibration else computed


def _list_worthwhile_splits(job: Job, gpu_count: int, nodes: int) -> tuple[Parallelism, ...]:
    """Return the stated split, or else the splits worth trying on `nodes` machines of `gpu_count` GPUs, lightest first."""
    if job.parallel is not None:
        return (job.parallel,)
    if gpu_count * nodes == 1:
        return TRAINING_SPLITS[:1]
    if job.recipe.trains:
        return TRAINING_SPLITS
    return tuple(Parallelism(tp=tp, pp=pp) for pp, tp in _list_serving_splits(gpu_count, nodes))


def _compute_accumulation(job: Job, recipe: Recipe, parallel: Parallelism, gpus: int) -> int | ImpossiblePlacement:
    """Return the passes per optimizer step: the recipe's, or the number that `global_batch_tokens` needs, rounded up.

    Return ImpossiblePlacement if one pass exceeds `global_batch_tokens` or the ranks do not divide `gpus`.
    """
    if gpus % parallel.model_ranks:
        return ImpossiblePlacement(reason=f"tp x pp x cp = {parallel.model_ranks} ranks do not divide {gpus} GPUs")
    if job.global_batch_tokens is None:
        return job.recipe.gradient_accumulation
    one_pass = job.example_sequences * recipe.micro_tokens * parallel.count_data_ranks(gpus)
    if one_pass > job.global_batch_tokens:
        return ImpossiblePlacement(
            reason=f"a pass over {gpus} GPUs is {one_pass:,} tokens, over global_batch_tokens = {job.global_batch_tokens:,}"
        )
    return -(-job.global_batch_tokens // one_pass)


def _list_serving_splits(gpu_count: int, nodes: int) -> list[tuple[int, int]]:
    """Return (pp, tp) pairs for serving, lightest first.

    The order is full copies, then increasing tensor parallelism inside a machine, then pipeline stages across machines.
    """
    inside = [(1, tp) for tp in range(1, gpu_count + 1) if gpu_count % tp == 0]
    return inside if nodes == 1 else [*inside, (nodes, gpu_count)]
