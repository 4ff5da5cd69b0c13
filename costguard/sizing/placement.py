"""How a job sits on given GPUs: how it is split, what each GPU must hold, and whether that fits.

Example: a full fine-tune of Llama-2-7B in bf16 needs about 50 GiB on one GPU. On 4 x RTX 4090 (24 GiB each) whole
copies do not fit, sharded optimizer states (ZeRO-2) do not, fully sharded weights (FSDP) do: FSDP is the placement.
Where nobody stated a split, the lightest one that fits is taken, because every further shard costs communication.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from costguard.errors import InputError
from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.values.gpu import GIB, Gpu

FABRIC_GPUS = 8
"""Machines with this many GPUs on a fabric of their own are sold with a network made for several; others are not joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Given GPUs (`--on`), whatever the market offers."""

    gpu: Gpu
    gpu_count: int
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job on `nodes` machines of `gpu_count` GPUs. `recipe`: the job's, with its gradient accumulation filled in."""

    gpu: Gpu
    gpu_count: int
    nodes: int
    parallel: Parallelism
    recipe: Recipe
    footprint: Footprint
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.gpu_count * self.nodes

    @property
    def needs_gib(self) -> float:
        """GiB that must be free on each GPU: `reserved`."""
        return self.footprint.reserved / GIB

    @property
    def fits(self) -> bool:
        """Whether each GPU holds its part. Host memory is the machine's, and checked with the offer."""
        return self.needs_gib <= self.gpu.memory_gib

    @property
    def host_gib(self) -> float:
        """GiB of host memory one machine must have for what is offloaded."""
        return self.footprint.host_bytes * self.gpu_count / GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpossiblePlacement:
    """Why a job cannot be split over these GPUs at all."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedSplit:
    """One split of a job over some number of GPUs, and what each of them must hold."""

    parallel: Parallelism
    recipe: Recipe
    footprint: Footprint


@dataclass(slots=True)
class Placer:
    """Places one job on many kinds of GPU. Memory depends on the split and not on the kind, so each split is sized once."""

    job: Job
    _sized: dict[tuple[int, int, bool], tuple[SizedSplit, ...] | ImpossiblePlacement] = field(default_factory=dict)

    def place(self, gpu: Gpu, gpu_count: int, nodes: int = 1) -> Placement | ImpossiblePlacement:
        """The lightest split that fits; where none fits, the one that needs least; Impossible where none exists."""
        ways = self.list_splits(gpu_count, nodes)
        if isinstance(ways, ImpossiblePlacement):
            return ways
        chosen = _find_lightest_fit(ways, gpu) or min(ways, key=lambda w: w.footprint.reserved)
        return Placement(
            gpu=gpu,
            gpu_count=gpu_count,
            nodes=nodes,
            parallel=chosen.parallel,
            recipe=chosen.recipe,
            footprint=chosen.footprint,
            notes=self.job.calibration.list_notes(chosen.footprint) if self.job.calibration else (),
        )

    def place_on_enough(self, gpu: Gpu, gpu_count: int) -> Placement | ImpossiblePlacement:
        """One machine if it holds the job; else as few as hold it, where such machines can be joined."""
        placed = self.place(gpu, gpu_count)
        nodes = 1
        joined = gpu.nvlink and gpu_count >= FABRIC_GPUS
        while joined and not can_hold(placed) and 2 * nodes * gpu_count <= self.job.limits.max_gpus:
            nodes *= 2
            wider = self.place(gpu, gpu_count, nodes)
            if can_hold(wider):
                return wider
        return placed

    def list_splits(
        self, gpu_count: int, nodes: int = 1, *, sharded: bool = False
    ) -> tuple[SizedSplit, ...] | ImpossiblePlacement:
        """Every split worth trying on so many GPUs, lightest first, sized; Impossible where there is none.

        `sharded`: without whole copies, where there is another way.
        """
        key = (gpu_count, nodes, sharded)
        if key not in self._sized:
            worth = _list_worthwhile_splits(self.job, gpu_count, nodes)
            chosen = worth[1:] if sharded and len(worth) > 1 else worth
            tried = [_size_split(self.job, parallel, gpu_count * nodes) for parallel in chosen]
            ways = tuple(t for t in tried if isinstance(t, SizedSplit))
            self._sized[key] = ways or next(t for t in tried if isinstance(t, ImpossiblePlacement))
        return self._sized[key]


def can_hold(placed: Placement | ImpossiblePlacement) -> bool:
    """Whether the job could be placed, and fits."""
    return isinstance(placed, Placement) and placed.fits


def _find_lightest_fit(ways: tuple[SizedSplit, ...], gpu: Gpu) -> SizedSplit | None:
    """The first of `ways` that each GPU holds; None where it holds none."""
    has = gpu.memory_gib * GIB
    return next((w for w in ways if w.footprint.reserved <= has), None)


def _size_split(job: Job, parallel: Parallelism, gpus: int) -> SizedSplit | ImpossiblePlacement:
    accumulated = _compute_accumulation(job, parallel, gpus)
    if isinstance(accumulated, ImpossiblePlacement):
        return accumulated
    recipe = job.recipe
    if accumulated != recipe.gradient_accumulation:
        recipe = replace(recipe, gradient_accumulation=accumulated)
    try:
        return SizedSplit(parallel=parallel, recipe=recipe, footprint=compute_job_footprint(job, recipe, parallel, gpus))
    except InputError as impossible:
        # A stated split that suits no number of GPUs was refused before (services/quote.py, check_split); here it
        # is a fact about this number of GPUs.
        return ImpossiblePlacement(reason=impossible.what)


def compute_job_footprint(job: Job, recipe: Recipe, parallel: Parallelism, gpus: int) -> Footprint:
    """The footprint, companions' beside it, shifted by what observed runs say."""
    if job.beside is None:
        computed = compute_footprint(job.architecture, recipe, parallel, gpus=gpus)
    else:
        from costguard.sizing.memory.preference import compute_combined_footprint

        computed = compute_combined_footprint(job.architecture, recipe, job.beside, parallel, gpus=gpus)
    return job.calibration.calibrate_memory(computed, job) if job.calibration else computed


def _list_worthwhile_splits(job: Job, gpu_count: int, nodes: int) -> tuple[Parallelism, ...]:
    """The stated split, or the ones worth trying on `nodes` machines of `gpu_count` GPUs, lightest first."""
    if job.parallel is not None:
        return (job.parallel,)
    if gpu_count * nodes == 1:
        return (Parallelism(),)
    if job.recipe.trains:
        return (Parallelism(), Parallelism(zero=2), Parallelism(fsdp=True))
    return tuple(Parallelism(tp=tp, pp=pp) for pp, tp in _list_serving_splits(gpu_count, nodes))


def _compute_accumulation(job: Job, parallel: Parallelism, gpus: int) -> int | ImpossiblePlacement:
    """Passes per optimizer step: 1, or what `global_batch_tokens` asks for, rounded up."""
    if gpus % parallel.model_ranks:
        return ImpossiblePlacement(reason=f"tp x pp x cp = {parallel.model_ranks} ranks do not divide {gpus} GPUs")
    if job.global_batch_tokens is None:
        return job.recipe.gradient_accumulation
    one_pass = job.example_sequences * job.recipe.micro_tokens * parallel.count_data_ranks(gpus)
    if one_pass > job.global_batch_tokens:
        return ImpossiblePlacement(
            reason=f"a pass over {gpus} GPUs is {one_pass:,} tokens, over global_batch_tokens = {job.global_batch_tokens:,}"
        )
    return -(-job.global_batch_tokens // one_pass)


def _list_serving_splits(gpu_count: int, nodes: int) -> list[tuple[int, int]]:
    """(pp, tp) for serving: whole copies first, then ever wider tensor parallelism inside a machine, then across."""
    inside = [(1, tp) for tp in range(1, gpu_count + 1) if gpu_count % tp == 0]
    return inside if nodes == 1 else [*inside, (nodes, gpu_count)]
