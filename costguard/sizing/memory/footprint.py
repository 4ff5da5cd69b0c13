"""Memory that a job needs on each GPU at its peak, term by term; the formulas; and the serving capacity.

Example: a full fine-tune of Llama-2-7B in bf16, 8 sequences of 2048, no checkpointing, AdamW, one GPU. At the end of the
forward pass, weights (13.5 GB), optimizer (27.0) and the tensors kept by the layers (about 100) are alive. The backward pass
through the loss adds the logits' fp32 gradients twice: 147.2 GB. Gradients (13.5) are created later, when activations are
freed. So the peak is the largest of several phases, and the sum of all terms would be too high.

Each term is explained with its formula, the numbers filled in, and the source of the formula. Example: `logits`, 6,291,456,000
B, `16,384 tokens x 32,000 words x 4 B x 3 (log-softmax and two gradients)`, `torch ...`. The numbers are those of the
footprint; nothing is computed twice.

The serving capacity is the number of KV-cache tokens that fit in the memory left free by weights and activations:

    tokens per copy = (share x memory - all that is not cache) / bytes of cache per token on one GPU

Example: Llama-3-8B in bf16 on one A100-80GB: 0.9 x 79.2 GiB less 17.3 GiB of weights, activations and context leaves 54 GiB; at
128 KiB per token that is 442,000 tokens, or 53 sequences of 8192. A server (vLLM) allocates that share at start and assigns
blocks of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from costguard.sizing.architecture import Architecture
from costguard.sizing.memory import overheads
from costguard.sizing.memory.frameworks import OPTIMIZER_MOMENTS, choose_loss, get_framework
from costguard.sizing.memory.interval import RunKind, compute_peak_interval, describe_kind, explain_distance, find_nearest_run
from costguard.sizing.memory.measure import measure_model
from costguard.sizing.memory.model_measure import ModelMeasure
from costguard.sizing.memory.phases import (
    TERMS,
    MemoryPhase,
    compute_kv_cache_bytes,
    has_waiting_gradients,
    list_serving_phases,
    list_training_phases,
)
from costguard.sizing.memory.sharding import (
    MemoryBuffers,
    ModelStates,
    PipelineStage,
    check_parallel,
    choose_weight_bytes,
    compute_buffers,
    compute_model_states,
    count_gpu_parameters,
    list_stages,
)
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.values.gpu import GIB, Gpu
from costguard.values.interval import Interval

__all__ = ["TERMS", "Footprint", "MemoryPhase", "TermExplanation", "check_parallel", "compute_footprint"]


TOTAL = attrgetter("total")


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes that one GPU must hold.

    - `worst`: the phase with the most bytes. `context`: bytes of the CUDA context.
    - `host_bytes`: host memory per GPU (offload, paged optimizer). `basis`: the inputs of the computation.
    """

    phases: tuple[MemoryPhase, ...]
    worst: MemoryPhase
    context: int
    host_bytes: int
    basis: FootprintBasis

    @property
    def peak(self) -> int:
        """Return the bytes that the allocator hands out in the worst phase, without context and slack."""
        return self.worst.total

    @property
    def peak_interval(self) -> Interval:
        """Return the 80 % interval of the peak, in bytes."""
        distance = find_nearest_run(self.kind).distance
        return compute_peak_interval(self.peak, sharded=self.basis.gpus > 1, mixture=self.is_mixture, distance=distance)

    @property
    def is_mixture(self) -> bool:
        """Return whether experts are trained; served, a mixture is its weights, which are known."""
        return self.basis.measure.experts > 0 and self.basis.recipe.trains

    @property
    def kind(self) -> RunKind:
        """Return the kind of run, by which measured ones are compared with it."""
        basis = self.basis
        return describe_kind(basis.measure.content, basis.recipe, basis.stage.parallel, basis.gpus)

    def list_distance_notes(self) -> tuple[str, ...]:
        """Return which measured run is the nearest, if none is like this one."""
        note = explain_distance(self.kind)
        return (note,) if note else ()

    @property
    def reserved_interval(self) -> Interval:
        """Return the 80 % interval of what must fit, in bytes, around `reserved`.

        The low end is the peak's with the context, because the allocator frees what it only cached before it fails; the high
        end has the least slack that is published.
        """
        peak = self.peak_interval
        high = self.context + peak.high * (1 + overheads.SLACK_LEAST)
        return Interval(self.context + peak.low, self.reserved, max(self.reserved, high))

    @property
    def peak_phase(self) -> str:
        """Return the name of the worst phase."""
        return self.worst.name

    @property
    def at_peak(self) -> Mapping[str, int]:
        """Return the bytes of each term in the worst phase; they sum to `peak`."""
        return self.worst.terms

    @property
    def fragments(self) -> int:
        """Return the estimated bytes that the allocator holds but cannot hand out; `nvidia-smi` shows them as used."""
        return int(self.basis.compute_moving_bytes(self.worst) * self.basis.slack_share + self.basis.buffers.pool)

    @property
    def slack(self) -> int:
        """Return the bytes that a plan reserves for fragmentation.

        This is `fragments`, but at least SLACK_LEAST and at most SLACK_MOST of the peak: the allocator frees cached memory
        before it fails.
        """
        peak = self.peak
        least, most = int(overheads.SLACK_LEAST * peak), int(overheads.SLACK_MOST * peak)
        return min(max(self.fragments, least), most)

    @property
    def reserved(self) -> int:
        """Return the bytes that must fit on the GPU: peak, context and slack."""
        return self.peak + self.context + self.slack

    def explain(self) -> tuple[TermExplanation, ...]:
        """Return every term with its formula and source; computed only on request."""
        return explain_footprint(self.basis, self.worst, self.context, self.slack)


def compute_footprint(architecture: Architecture, recipe: Recipe, parallel: Parallelism, *, gpus: int = 1) -> Footprint:
    """Return the footprint of `recipe` on each of `gpus` GPUs; raise InputError if the split `parallel` is invalid."""
    check_parallel(architecture, parallel, gpus, recipe.seq_len)
    parts = list_stages(architecture.layers, recipe, parallel, gpus)
    if len(parts) == 1:
        return _compute_stage_footprint(architecture, recipe, parallel, gpus, parts[0])
    return max((_compute_stage_footprint(architecture, recipe, parallel, gpus, part) for part in parts), key=lambda f: f.peak)


def _compute_stage_footprint(
    architecture: Architecture, recipe: Recipe, parallel: Parallelism, gpus: int, stage: PipelineStage
) -> Footprint:
    measured = measure_model(architecture, recipe, 2 if parallel.fsdp else min(parallel.zero, 1))
    parts = count_gpu_parameters(measured, stage)
    states = compute_model_states(measured, recipe, stage, parts)
    buffers = compute_buffers(measured, recipe, stage, parts, states)
    moments = (list_training_phases if recipe.trains else list_serving_phases)(measured, recipe, stage, states, buffers)
    return Footprint(
        phases=moments,
        worst=max(moments, key=TOTAL),
        context=get_framework(recipe).context + (overheads.NCCL_BYTES if gpus > 1 else 0),
        host_bytes=int(states.host),
        basis=FootprintBasis(measured, recipe, stage, states, buffers, gpus),
    )


AUTOGRAD = "autograd's saved tensors in transformers 5.23 with torch 2.13 (tools/faketensor.py, 2026-11)"
ZERO = "ZeRO, arXiv 1910.02054, section 3; docs.deepspeed.ai, pytorch.org/docs/stable/fsdp"
STATES = "the optimizer's state and the dtype of its parameters, torch.optim and bitsandbytes (SIZING.md section 1)"


@dataclass(frozen=True, slots=True)
class TermExplanation:
    """One term of a footprint: its bytes on one GPU, the formula with its numbers, and the formula's source."""

    term: str
    bytes: int
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class FootprintBasis:
    """The inputs from which a footprint was computed."""

    measure: ModelMeasure
    recipe: Recipe
    stage: PipelineStage
    states: ModelStates
    buffers: MemoryBuffers
    gpus: int

    @property
    def slack_share(self) -> float:
        """Return the fragmentation as a share of the temporary bytes; it is larger where FSDP gathers weights."""
        traits = get_framework(self.recipe)
        return traits.slack_gathered if self.buffers.gathered and self.stage.parallel.fsdp else traits.slack

    def compute_moving_bytes(self, worst: MemoryPhase) -> int:
        """Return the temporary bytes in the worst phase.

        These are all terms but weights, optimizer states, and gradients that are kept over several passes.
        """
        waits = has_waiting_gradients(self.recipe, self.stage.parallel)
        return worst.total - worst.weights - worst.optimizer - worst.gradients * waits


def explain_footprint(basis: FootprintBasis, worst: MemoryPhase, context: int, slack: int) -> tuple[TermExplanation, ...]:
    """Return every term in the worst phase, then context and slack."""
    formulas = {
        "weights": (_format_weights(basis), STATES),
        "gradients": (_format_gradients(basis, worst), STATES),
        "optimizer": (_format_optimizer(basis), STATES),
        "activations": (_format_activations(basis, worst), AUTOGRAD),
        "logits": (_format_logits(basis, worst), AUTOGRAD),
        "buffers": (_format_buffers(basis), ZERO),
    }
    terms = tuple(TermExplanation(term, worst.terms[term], *formulas[term]) for term in worst.terms)
    ranks = " + NCCL" if basis.gpus > 1 else ""
    return (
        *terms,
        TermExplanation(
            "context", context, f"CUDA context and kernels{ranks}", "sizing/memory/overheads.py: measured, dated there"
        ),
        TermExplanation("slack", slack, format_slack_formula(basis, worst), "sizing/memory/overheads.py: from published pairs"),
    )


def format_slack_formula(basis: FootprintBasis, worst: MemoryPhase) -> str:
    """Return the formula of the slack as text."""
    share = f"{basis.slack_share:.0%} of {basis.compute_moving_bytes(worst):,} B that come and go"
    return f"{share}, but {overheads.SLACK_LEAST:.0%}-{overheads.SLACK_MOST:.0%} of {worst.total:,} B"


def _format_divisors(basis: FootprintBasis, from_stage: int) -> str:
    """Return the divisors of a state that is sharded from ZeRO stage `from_stage` on, as text."""
    p, s = basis.stage.parallel, basis.stage
    parts = [f"/ {p.tp} tensor-parallel"] * (p.tp > 1)
    parts += [f"x {s.share:.3g} of the layers"] * (p.pp > 1)
    parts += [f"/ {p.ep} expert-parallel"] * (p.ep > 1)
    parts += [f"/ {s.shards} shards"] * (p.stage >= from_stage and s.shards > 1)
    return " ".join(["", *parts])


def _format_weights(basis: FootprintBasis) -> str:
    m, r = basis.measure, basis.recipe
    if basis.stage.parallel.offload == "all":
        return "in host memory"
    matrix, other = choose_weight_bytes(m, r)
    rest = m.small + m.embedding + m.head
    others = f"+ {rest:,} others" if rest >= 0 else f"- {-rest:,} that the stated size lacks"
    base = f"({m.matrices:,} in matrices x {matrix:.4g} B {others} x {other:.4g} B)" + _format_divisors(basis, 3)
    companion_text = f" + {m.beside:,} of VAE and text encoders x {m.numbers.compute} B" if m.beside else ""
    return base + (f" + {m.adapters:,} in adapters x {m.numbers.weight} B" if r.adapters else "") + companion_text


def _count_trained(basis: FootprintBasis) -> int:
    m, r = basis.measure, basis.recipe
    if not r.trains:
        return 0
    return m.adapters if r.adapters else m.matrices + m.small + m.embedding + m.head


def _format_gradients(basis: FootprintBasis, worst: MemoryPhase) -> str:
    trained = _count_trained(basis)
    if not trained:
        return "nothing is trained"
    if basis.states.gradients == 0:
        return "in host memory"
    formula = f"{trained:,} trained x {basis.measure.numbers.gradient} B" + _format_divisors(basis, 2)
    return formula + f"; those that exist at '{worst.name}'"


def _format_optimizer(basis: FootprintBasis) -> str:
    n, r = basis.measure.numbers, basis.recipe
    if not _count_trained(basis):
        return "nothing is trained"
    if basis.states.optimizer == 0 and basis.states.host:
        return "in host memory"
    master = f" + {n.master} B master" if n.master else ""
    each = f"{OPTIMIZER_MOMENTS[r.optimizer]} moments, {n.moment:.4g} B{master}"
    return f"{_count_trained(basis):,} trained x ({each})" + _format_divisors(basis, 1)


def _format_activations(basis: FootprintBasis, worst: MemoryPhase) -> str:
    m, s, p = basis.measure, basis.stage, basis.stage.parallel
    tokens, what = m.tokens / (p.tp * p.cp), "image" if m.hidden == 1 else "token"  # of a walk of convolutions
    if not basis.recipe.trains:
        return f"tokens in flight x {m.layer.passing:,.0f} B at '{worst.name}'"
    share = f" x {s.share:.3g} of the layers x {s.in_flight} in flight" if p.pp > 1 else ""
    waiting = (
        f"{tokens:,.0f} {what}s x {m.waiting:,.0f} B kept by all layers (checkpointing {basis.recipe.checkpointing}){share}"
    )
    work = f"a layer at work {m.layer.whole:,.0f} B a{'n' * (m.hidden == 1)} {what}, outside the layers {m.outside:,.0f}"
    return f"{waiting}; {work}; at '{worst.name}'"


def _format_logits(basis: FootprintBasis, worst: MemoryPhase) -> str:
    m, p = basis.measure, basis.stage.parallel
    kind, numbers = choose_loss(basis.recipe), f"{m.predicted * m.tokens / (p.tp * p.cp):,.0f} tokens x {m.vocab:,} words"
    if not m.vocab:
        return "no vocabulary"
    if kind in {"chunked", "fused"}:
        return "cross-entropy in " + (f"{overheads.LOSS_CHUNKS} chunks" if kind == "chunked" else "chunks, with the head")
    if not worst.terms["logits"]:
        return f"gone at '{worst.name}'"
    return f"{numbers}, {worst.name}" if worst.name != "loss" else f"{numbers} x {_format_loss(basis, kind)}"


def _format_loss(basis: FootprintBasis, kind: str) -> str:
    """Return the tensors of the logits' size that are alive in the backward pass of the loss."""
    m, traits = basis.measure, get_framework(basis.recipe)
    if kind == "in-place":
        return f"{m.numbers.compute} B x 3 (logits, their shifted copy that becomes its gradient, and theirs)"
    if traits.loss_compiled and basis.recipe.compiled:
        return f"{m.numbers.compute} B x 2 (logits and their gradient)"
    copies = traits.loss_copies if basis.stage.parallel.tp == 1 else traits.loss_copies_split
    what = {1: "in place", 3: "log-softmax and two gradients"}.get(copies, "log-softmax, gradients and what the library holds")
    return f"{m.loss_number} B x {copies} ({what})"


def _format_buffers(basis: FootprintBasis) -> str:
    """Return every kind of buffer with its bytes as text; autocast's copies exist only in some phases."""
    m, b, r = basis.measure, basis.buffers, basis.recipe
    parts = {
        f"gathered ({get_framework(r).gathered} layers or DeepSpeed's live parameters, embedding and head)": b.gathered
        + b.head,
        "gradient buckets": b.bucket,
        "embeddings, head and norms in fp32": b.upcast,
        "one matrix dequantised, or copied for DoRA": b.dequantised,
        "fp8 copies of the weights": b.copies,
        "autocast's copies of the weights": b.casts + b.cast_head,
        "keys and values": 0.0 if basis.recipe.trains else compute_kv_cache_bytes(m, basis.stage),
    }
    return " + ".join(f"{name} {value:,.0f} B" for name, value in parts.items() if value) or "none"


SERVER_SHARE = 0.9
"""Share of a GPU's memory a server takes: vLLM's default `gpu_memory_utilization` (engine arguments, 2026-11)."""


def compute_cache_capacity(need: Footprint, gpu: Gpu, parallel: Parallelism, *, gpus: int) -> int | None:
    """Return the tokens that fit in the caches of all model copies on `gpus` GPUs; None if the model has no cache."""
    measured, stage = need.basis.measure, need.basis.stage
    cache = compute_kv_cache_bytes(measured, stage)
    if not cache:
        return None
    share = 1.0 if gpu.unified_memory else SERVER_SHARE  # of unified memory `memory_gib` is a share already
    other = need.reserved - cache * (1 + need.basis.slack_share)
    left = share * gpu.memory_gib * GIB - other
    copies = gpus // parallel.model_ranks
    return max(0, int(left / (cache / measured.tokens))) * copies
