"""How many copies of a model serve a stated load of requests, and how long a request takes.

A server with continuous batching gives every running sequence one more token in each step, and reads a part of the prompts of
new requests in the same step (`decoding.py`). With `l` requests per second on one copy, prompts of `P` tokens and answers of
`N`, a step of `B` sequences reads B P / N tokens of prompts, takes t(B) seconds, and must give l N tokens per second:

    l N = B / t(B)

B is solved for. It is limited by the keys and values that fit beside the weights and by the sequences a server runs at a time,
which gives the capacity B_max / (N t(B_max)). A sequence holds P + N / 2 tokens of the cache on average, because servers
allocate it page by page.

Example: Llama-3.1-8B in bf16 on one H100-SXM, prompts of 1,000 tokens and answers of 300. 448,000 tokens fit beside the
weights: 389 sequences of 1,150. Their step computes 1,686 tokens in 47 ms, while the 15 GB of weights are read, then reads 59
GB of caches in 21 ms: 71 ms with the launches, 5,500 tokens or 18 requests per second. At 5 requests per second 14 sequences
run, and a step takes 9 ms.

The low end of the speed's interval must carry the load with MOST_UTILISATION to spare, so that the plan holds where the
estimate is too fast. Waiting for the first token grows as 1 / (1 - utilisation).

Money: machines are whole, and a plan of so many machines costs what they cost. What is uncertain is how many the load needs:
the plan's count is that of the speed's low end, and the high end would need fewer (`ServingPlan.machines`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.memory.footprint import compute_cache_capacity
from costguard.sizing.placement import SizedSplit
from costguard.sizing.serving_load import ServingLoad, format_requests
from costguard.sizing.speed.decoding import DecodeStep, compute_decode_step, compute_prefill_rate
from costguard.sizing.speed.efficiency import Efficiency
from costguard.sizing.speed.flops import count_work, find_peak_rate
from costguard.sizing.speed.step_time import StepSetting, compute_links
from costguard.values.gpu import Gpu
from costguard.values.interval import Interval

MOST_UTILISATION = 0.9
"""Share of the capacity at the low end of its interval that a plan uses: requests do not come evenly. Assumed."""
MOST_SEQUENCES, MOST_SEQUENCES_LARGE = 256, 1024
"""Sequences in one step: vLLM's defaults of max_num_seqs for online serving (engine/arg_utils.py, get_batch_defaults, 2026-11).
The larger one is of cards of 70 GiB or more that are no A100."""
LARGE_CARD_GIB = 70
HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """Copies of a model that carry a load.

    - `copies`, `gpus_per_copy`: copies of the model and the GPUs that hold one. `batch`: sequences that one copy runs at a
        time under the load. `most`: sequences that one copy can run at a time.
    - `machines`: machines, or groups of them that hold a copy together. The low figure would do at the high end of the speed;
        the others are those of the plan.
    - `capacity`: requests per second that all copies can carry. `utilisation`: the load over the expected capacity, 0..1.
    - `first_token_s`: seconds to the first token. `token_s`: seconds for each further one. `request_s`: for the whole answer.
    - `explain`: (name, value, how) of each figure.
    """

    load: ServingLoad
    copies: int
    gpus_per_copy: int
    batch: int
    most: int
    machines: Interval
    capacity: Interval
    utilisation: float
    first_token_s: Interval
    token_s: Interval
    request_s: Interval
    explain: tuple[tuple[str, str, str], ...] = ()

    def count_machines(self, requests_per_s: float) -> int:
        """Return the machines, at the speed's low end, that carry `requests_per_s`."""
        each = self.capacity.low / self.machines.expected
        return max(1, math.ceil(requests_per_s / each / MOST_UTILISATION))

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

    `prompt_s`: seconds to read one prompt with nothing else to do. `step`: a step of so many sequences, with the prompts that
    are read in it under a full load. `most`: sequences that run at a time. `room`: tokens that the cache holds.
    """

    prompt_s: float
    step: Callable[[int], DecodeStep]
    most: int
    room: int

    def compute_capacity(self, load: ServingLoad) -> float:
        """Return the requests per second that the copy can carry."""
        return self.most / self.step(self.most).seconds / load.output_len

    def find_batch(self, load: ServingLoad, requests_per_s: float) -> int:
        """Return the fewest sequences per step that keep up with `requests_per_s`; `most` if none does."""
        low, high = 1, self.most
        for _ in range(HALVINGS):
            if low >= high:
                break
            middle = (low + high) // 2
            if middle / self.step(middle).seconds >= requests_per_s * load.output_len:
                high = middle
            else:
                low = middle + 1
        return low


def measure_copy(
    architecture: Architecture, way: SizedSplit, gpu: Gpu, load: ServingLoad, efficiency: Efficiency
) -> CopySpeed | None:
    """Return the speed of one copy; None if the GPU's rates are unknown, nothing is generated, or no sequence fits.

    `way`: the split, and the footprint of one sequence.
    """
    recipe, parallel = way.recipe, way.parallel
    top, ranks = find_peak_rate(recipe, gpu), parallel.model_ranks
    room = compute_cache_capacity(way.footprint, gpu, parallel, gpus=ranks)
    if top is None or room is None or not architecture.writes or room < load.prompt_len + load.output_len:
        return None
    tokens = load.prompt_len + max(1, load.output_len // 2)

    def compute_step(batch: int) -> DecodeStep:
        filled = replace(recipe, micro_batch=batch, seq_len=tokens)
        setting = StepSetting(
            work=count_work(architecture, filled), recipe=filled, parallel=parallel, gpu=gpu, gpus=ranks, nodes=1, top=top
        )
        return compute_decode_step(
            architecture,
            setting,
            links=compute_links(setting, efficiency.physics),
            serving=efficiency.serving,
            prompts=batch * load.prompt_len / load.output_len,
            prompt_len=load.prompt_len,
        )

    prompt = count_work(architecture, replace(recipe, seq_len=load.prompt_len))
    rate = compute_prefill_rate(prompt, top, efficiency.serving) * ranks
    most = min(count_most_sequences(gpu), room // tokens)
    return CopySpeed(prompt_s=load.prompt_len / rate, step=compute_step, most=most, room=room)


def count_most_sequences(gpu: Gpu) -> int:
    """Return the sequences that a server runs at a time on `gpu` unless it is told otherwise."""
    large = gpu.memory_gib >= LARGE_CARD_GIB and not gpu.name.startswith("A100")
    return MOST_SEQUENCES_LARGE if large else MOST_SEQUENCES


def plan_serving(
    copy: CopySpeed,
    load: ServingLoad,
    *,
    gpus_per_copy: int,
    copies_per_machine: int,
    factor: float,
    machines: int | None = None,
) -> ServingPlan:
    """Return the plan of a load.

    `factor`: half-width of the speed's 80 % interval. `machines`: stated; None: the fewest whose low end carries the load.
    """
    each = copy.compute_capacity(load)

    def count_machines(speed: float) -> int:
        return max(1, math.ceil(load.requests_per_second / (each * speed) / MOST_UTILISATION / copies_per_machine))

    count = machines or count_machines(1 / factor)
    copies = count * copies_per_machine
    batch = copy.find_batch(load, load.requests_per_second / copies)
    capacity = Interval.around(each * copies, factor)
    used = load.requests_per_second / capacity.expected
    first = Interval(*(_compute_first_token(copy, speed, used / speed) for speed in (factor, 1.0, 1 / factor)))
    token = Interval.around(copy.step(batch).seconds, factor)
    fewest = machines or min(count, count_machines(factor))
    return ServingPlan(
        load=load,
        copies=copies,
        gpus_per_copy=gpus_per_copy,
        batch=batch,
        most=copy.most,
        machines=Interval(fewest, count, count),
        capacity=capacity,
        utilisation=used,
        first_token_s=first,
        token_s=token,
        request_s=first.add(token.scale(load.output_len)),
        explain=_explain_plan(copy, load, batch, each, factor),
    )


def _compute_first_token(copy: CopySpeed, speed: float, used: float) -> float:
    """Return the seconds to the first token at `speed` times the expected one: one step, the prompt, and waiting."""
    return (copy.prompt_s + copy.step(1).seconds) / speed / max(1 - used, 1 - MOST_UTILISATION)


def _explain_plan(
    copy: CopySpeed, load: ServingLoad, batch: int, each: float, factor: float
) -> tuple[tuple[str, str, str], ...]:
    """Return (name, value, how) of the figures of one copy."""
    tokens, full, now = load.prompt_len + load.output_len // 2, copy.step(copy.most), copy.step(batch)
    return (
        ("cache", f"{copy.room:,}", "tokens whose keys and values fit beside the weights of one copy"),
        ("sequences at most", f"{copy.most:,}", f"{tokens:,} cached tokens each on average, and at most as many as vLLM runs"),
        ("prompt", f"{copy.prompt_s * 1000:,.0f} ms", f"{load.prompt_len:,} tokens read with nothing else to do"),
        ("full step", f"{full.seconds * 1000:,.1f} ms", _explain_step(full, copy.most, load)),
        (
            "capacity",
            f"{format_requests(each)} requests/s",
            f"of one copy; {format_requests(each / factor)} to {format_requests(each * factor)}",
        ),
        ("step at this load", f"{now.seconds * 1000:,.1f} ms", _explain_step(now, batch, load)),
    )


def _explain_step(step: DecodeStep, batch: int, load: ServingLoad) -> str:
    parts = {
        "reading weights" if step.weights > step.computing else "computing": max(step.weights, step.computing),
        "reading caches": step.caches,
        "sums between GPUs": step.summing,
        "launches": step.launching,
    }
    breakdown = ", ".join(f"{name} {seconds * 1000:,.1f}" for name, seconds in parts.items() if seconds)
    return f"{batch:,} sequences and {batch * load.prompt_len / load.output_len:,.0f} tokens of prompts: {breakdown}"
