"""Speed of a job whose models take turns: the seconds of every pass that a token needs, added up.

    seconds per token = sum over passes of (number of times) / (tokens per second of that pass)

Example: a token of PPO's experience is generated once (completions only: 60 us on an 80 GB A100 at 32 sequences), scored once
by each of policy, reference, reward and value model (4 x 90 us), and used in training by policy and value model (2 x 360 us).
The time of a forward pass is its share of the FLOPs of a training step of the same model, because speeds are fitted on
published training runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from costguard.sizing.architecture import Architecture
from costguard.sizing.placement import Placement
from costguard.sizing.preference import PreferenceTraining
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.flops import count_work
from costguard.sizing.speed.step_time import TERA
from costguard.sizing.speed.throughput import Throughput, compute_throughput
from costguard.values.interval import Interval

MICRO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPass:
    """One kind of pass.

    `times`: passes per token. `speed`: tokens per second per GPU. `flops`: FLOPs per token.
    """

    name: str
    times: float
    speed: Interval
    flops: float

    @property
    def seconds(self) -> Interval:
        """Return the seconds of this pass for each token of the job, on one GPU."""
        return self.speed.invert().scale(self.times)


def compute_preference_speed(
    architecture: Architecture, training: PreferenceTraining, placement: Placement, efficiency: Efficiency
) -> Throughput | None:
    """Return the tokens of the job per second per GPU, including the passes of every model.

    Return None if no arithmetic rate of the GPU is known.
    """
    clock = _PlacementSpeeds(placement, efficiency)
    policy = replace(placement.recipe, micro_batch=placement.recipe.micro_batch * training.sequences)
    own = clock.compute_speed(architecture, policy, placement.parallel)
    return None if own is None else _sum_passes(own, list(_list_passes(architecture, training, policy, own, clock)))


@dataclass(frozen=True, slots=True)
class _PlacementSpeeds:
    """Computes speeds on the GPUs of one placement."""

    placed: Placement
    efficiency: Efficiency

    def compute_speed(self, architecture: Architecture, recipe: Recipe, parallel: Parallelism) -> Throughput | None:
        p = self.placed
        return compute_throughput(
            architecture, recipe, parallel, p.gpu, gpus=p.gpus, nodes=p.nodes, efficiency=self.efficiency, network=p.network
        )


def _list_passes(
    architecture: Architecture, training: PreferenceTraining, policy: Recipe, own: Throughput, clock: _PlacementSpeeds
) -> Iterator[ModelPass]:
    parallel = clock.placed.parallel
    yield ModelPass(
        name="policy, training",
        times=training.updates,
        speed=own.tokens_per_s_per_gpu,
        flops=count_work(architecture, policy).flops.hardware,
    )
    if training.generates:
        yield _build_scoring_pass("policy, scoring", architecture, policy, own)
        yield from _list_generation_passes(architecture, training, policy, clock)
    for c in training.companions:
        shape = c.architecture
        trained = clock.compute_speed(shape, policy, parallel)
        if trained is None:
            continue
        yield _build_scoring_pass(f"{c.role}, scoring", shape, policy, trained)
        if c.trained:
            flops = count_work(shape, policy).flops.hardware
            yield ModelPass(name=f"{c.role}, training", times=training.updates, speed=trained.tokens_per_s_per_gpu, flops=flops)


def _build_scoring_pass(name: str, architecture: Architecture, recipe: Recipe, trained: Throughput) -> ModelPass:
    flops = count_work(architecture, recipe).flops
    speed = trained.tokens_per_s_per_gpu.scale(flops.hardware / flops.forward)
    return ModelPass(name=name, times=1.0, speed=speed, flops=flops.forward)


def _list_generation_passes(
    architecture: Architecture, training: PreferenceTraining, policy: Recipe, clock: _PlacementSpeeds
) -> Iterator[ModelPass]:
    """Yield the passes of generation: prompts are processed at once, completions token by token.

    The average token of a completion has the prompt and half of the completion before it.
    """
    parallel = training.split_generation(clock.placed.parallel)
    behind = training.prompt_len + training.completion_len // 2
    recipe = replace(policy, method="inference", micro_batch=training.generation_batch, seq_len=behind, gradient_accumulation=1)
    written = clock.compute_speed(architecture, recipe, parallel)
    if written is None or not written.prefill_tokens_per_s_per_gpu:
        return
    share = training.completion_len / (training.prompt_len + training.completion_len)
    flops, rate = count_work(architecture, recipe).flops.forward, written.tokens_per_s_per_gpu
    prompts = rate.scale(written.prefill_tokens_per_s_per_gpu / rate.expected)
    yield ModelPass(name="policy, reading prompts", times=1 - share, speed=prompts, flops=flops)
    yield ModelPass(name="policy, writing", times=share, speed=rate, flops=flops)


def _sum_passes(own: Throughput, passes: list[ModelPass]) -> Throughput:
    """Return the policy's own speed, reduced by the time of all other passes of its tokens."""
    seconds = reduce(Interval.add, (p.seconds for p in passes))
    rate = seconds.invert()
    flops = sum(p.times * p.flops for p in passes)
    return replace(
        own,
        tokens_per_s_per_gpu=rate,
        efficiency=rate.expected * flops / (own.peak_tflops * TERA),
        reasons=(*own.reasons, ("passes besides one training pass of the policy", _compute_share(own, rate))),
        explain=(*own.explain, *(_format_pass(p, seconds.expected) for p in passes)),
    )


def _compute_share(own: Throughput, rate: Interval) -> float:
    return rate.expected / own.tokens_per_s_per_gpu.expected


def _format_pass(p: ModelPass, total_seconds: float) -> str:
    share = p.seconds.expected / total_seconds
    return f"{p.name}: {p.times:g} x {MICRO / p.speed.expected:.1f} us a token = {share:.0%} of the time"
