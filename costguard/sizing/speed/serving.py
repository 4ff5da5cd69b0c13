"""How many copies of a model serve a stated load of requests, and how long a request takes.

A server with continuous batching does two things in turn: it reads the prompts of new requests (prefill, bound by arithmetic)
and gives every running sequence one more token (a decode step, bound by memory bandwidth). With `l` requests per second on one
copy, prompts of `P` tokens and answers of `N`, prompts take the share l P / R of the time, at R prompt tokens per second. What
is left must give l N tokens per second:

    l N = (1 - l P / R) B / t(B)        B: sequences in a step of t(B) seconds

B is solved for; it is limited by the keys and values that fit beside the weights, which gives the capacity

    l_max = 1 / (P / R + N t(B_max) / B_max)

Example: Llama-3.1-8B in bf16 on one H100-SXM, prompts of 1,000 tokens and answers of 300. R is 31,000 tokens per second and
B_max 256 sequences: l_max = 1 / (0.032 + 0.030) = 16 requests per second. At 5 requests per second prompts take 16 % of the
time, and a token takes 10 ms.

The low end of the speed's interval must carry the load with MOST_UTILISATION to spare, so that the plan holds where the
estimate is too fast. Waiting for the first token grows as 1 / (1 - utilisation).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.job import ServingLoad
from costguard.sizing.memory.footprint import compute_cache_capacity
from costguard.sizing.placement import SizedSplit
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.flops import count_work, find_peak_rate
from costguard.sizing.speed.step_time import StepSetting, compute_links
from costguard.sizing.speed.throughput import compute_decode_step, compute_prefill_rate, is_generative
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval

MOST_UTILISATION = 0.9
"""Share of the capacity at the low end of its interval that a plan uses: requests do not come evenly. Assumed."""
MOST_SEQUENCES = 256
"""Sequences in one step: vLLM's default max_num_seqs for online serving (V1 engine, 2026-11)."""
HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """Copies of a model that carry a load.

    - `copies`, `gpus_per_copy`: copies of the model and the GPUs that hold one. `batch`: sequences that one copy runs at a
        time under the load.
    - `capacity`: requests per second that all copies can carry. `utilisation`: the load over the expected capacity, 0..1.
    - `first_token_s`: seconds to the first token. `token_s`: seconds for each further one. `request_s`: for the whole answer.
    """

    load: ServingLoad
    copies: int
    gpus_per_copy: int
    batch: int
    capacity: Interval
    utilisation: float
    first_token_s: Interval
    token_s: Interval
    request_s: Interval

    @property
    def output_tokens_per_s(self) -> float:
        """Return the generated tokens per second of the load, over all copies."""
        return self.load.requests_per_second * self.load.output_len

    @property
    def tokens_per_s(self) -> float:
        """Return the prompt and generated tokens per second of the load, over all copies."""
        return self.load.requests_per_second * (self.load.prompt_len + self.load.output_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySpeed:
    """One copy of the model on its GPUs.

    `prompt_s`: seconds to read one prompt. `step_s`: seconds of a decode step by the sequences in it. `most`: sequences whose
    keys and values fit.
    """

    prompt_s: float
    step_s: Callable[[int], float]
    most: int

    def compute_capacity(self, load: ServingLoad) -> float:
        """Return the requests per second that the copy can carry."""
        return 1 / (self.prompt_s + load.output_len * self.step_s(self.most) / self.most)

    def find_batch(self, load: ServingLoad, requests_per_s: float) -> int:
        """Return the fewest sequences per step that keep up with `requests_per_s`; `most` if none does."""
        left = 1 - requests_per_s * self.prompt_s
        low, high = 1, self.most
        for _ in range(HALVINGS):
            if low >= high:
                break
            middle = (low + high) // 2
            if left > 0 and left * middle / self.step_s(middle) >= requests_per_s * load.output_len:
                high = middle
            else:
                low = middle + 1
        return low

    def compute_token_seconds(self, requests_per_s: float, batch: int) -> float:
        """Return the seconds of each further token: its step, and the prompts that are read in between."""
        return self.step_s(batch) / max(1 - requests_per_s * self.prompt_s, 1 - MOST_UTILISATION)


def measure_copy(
    architecture: Architecture, way: SizedSplit, gpu: Gpu, load: ServingLoad, efficiency: Efficiency
) -> CopySpeed | None:
    """Return the speed of one copy; None if the GPU's rates are unknown, nothing is generated, or no sequence fits.

    `way`: the split, and the footprint of one sequence.
    """
    recipe, parallel = way.recipe, way.parallel
    top, ranks = find_peak_rate(recipe, gpu), parallel.model_ranks
    room = compute_cache_capacity(way.footprint, gpu, parallel, gpus=ranks)
    if top is None or room is None or not is_generative(architecture):
        return None
    most = min(MOST_SEQUENCES, room // (load.prompt_len + load.output_len))
    if most < 1:
        return None

    def compute_step(batch: int) -> float:
        # The average sequence has its prompt and half of its answer behind it.
        filled = replace(recipe, micro_batch=batch, seq_len=load.prompt_len + max(1, load.output_len // 2))
        setting = StepSetting(
            work=count_work(architecture, filled), recipe=filled, parallel=parallel, gpu=gpu, gpus=ranks, nodes=1, top=top
        )
        links = compute_links(setting, efficiency.physics)
        return compute_decode_step(architecture, setting, links=links, serving=efficiency.serving).seconds

    prompt = replace(recipe, seq_len=load.prompt_len)
    rate = compute_prefill_rate(count_work(architecture, prompt), top, efficiency.serving) * ranks
    return CopySpeed(prompt_s=load.prompt_len / rate, step_s=compute_step, most=most)


def plan_serving(
    copy: CopySpeed,
    load: ServingLoad,
    *,
    gpus_per_copy: int,
    copies_per_machine: int,
    factor: float,
    machines: int | None = None,
) -> tuple[ServingPlan, int]:
    """Return the plan and its number of machines.

    `factor`: half-width of the speed's 80 % interval. `machines`: stated; None: the fewest whose low end carries the load.
    """
    each = copy.compute_capacity(load)
    needed = math.ceil(load.requests_per_second * factor / each / MOST_UTILISATION / copies_per_machine)
    count = machines or max(1, needed)
    copies = count * copies_per_machine
    share = load.requests_per_second / copies
    batch = copy.find_batch(load, share)
    capacity = Interval.around(each * copies, factor)
    used = load.requests_per_second / capacity.expected
    first = Interval(*(_compute_first_token(copy, speed, used / speed) for speed in (factor, 1.0, 1 / factor)))
    token = Interval.around(copy.compute_token_seconds(share, batch), factor)
    return ServingPlan(
        load=load,
        copies=copies,
        gpus_per_copy=gpus_per_copy,
        batch=batch,
        capacity=capacity,
        utilisation=used,
        first_token_s=first,
        token_s=token,
        request_s=first.add(token.scale(load.output_len)),
    ), count


def _compute_first_token(copy: CopySpeed, speed: float, used: float) -> float:
    """Return the seconds to the first token at `speed` times the expected one: one step, the prompt, and waiting."""
    return (copy.prompt_s + copy.step_s(1)) / speed / max(1 - used, 1 - MOST_UTILISATION)
