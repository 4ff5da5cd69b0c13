"""Memory a job needs on each GPU, term by term, at its worst moment.

Example: a full fine-tune of Llama-2-7B in bf16, 8 sequences of 2048, no checkpointing, AdamW, one GPU. At the end of
the forward pass weights (13.5 GB), optimizer (27.0) and what the layers keep (about 100) are alive. Going back through the
loss adds the logits' fp32 gradients twice: 147.2 GB. Gradients (13.5) come later, when activations are gone: so
a peak is the largest of several moments, and adding everything up would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from costguard.core import overheads
from costguard.core.architecture import Architecture
from costguard.core.checks import require
from costguard.core.measure import Measure, measure
from costguard.core.numerics import FP32
from costguard.core.recipe import Parallel, Recipe
from costguard.core.states import weight_bytes

TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


@dataclass(frozen=True, slots=True)
class Phase:
    """A moment of the job: what is alive then on one GPU, bytes a term."""

    name: str
    terms: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes alive."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes one GPU must hold. `context`: CUDA's own. `host_bytes`: host memory for each GPU (offload, paged optimizer)."""

    phases: tuple[Phase, ...]
    context: int
    host_bytes: int

    @property
    def worst(self) -> Phase:
        """The phase with the most alive."""
        return max(self.phases, key=lambda p: p.total)

    @property
    def peak(self) -> int:
        """Bytes the allocator hands out at the worst moment, nothing else."""
        return self.worst.total

    @property
    def peak_phase(self) -> str:
        """The name of that moment."""
        return self.worst.name

    @property
    def at_peak(self) -> Mapping[str, int]:
        """Bytes a term at that moment; they sum to `peak`."""
        return self.worst.terms

    @property
    def slack(self) -> int:
        """Bytes the allocator holds but cannot hand out."""
        return int(self.peak * overheads.SLACK_SHARE)

    @property
    def reserved(self) -> int:
        """What must fit: peak, context and slack."""
        return self.peak + self.context + self.slack


def footprint(architecture: Architecture, recipe: Recipe, parallel: Parallel, *, gpus: int = 1) -> Footprint:
    """The footprint of `recipe` on each of `gpus` GPUs split by `parallel`."""
    check_parallel(architecture, parallel, gpus, recipe.seq_len)
    m = measure(architecture, recipe, 2 if parallel.fsdp else min(parallel.zero, 1))
    data = gpus // parallel.model_ranks * parallel.cp
    stages = _stages(m, recipe, parallel, data)
    context = overheads.CONTEXT_BYTES + (overheads.NCCL_BYTES if gpus > 1 else 0)
    found = [Footprint(phases=s.phases(), context=context, host_bytes=s.host_bytes()) for s in stages]
    return found[0] if len(found) == 1 else max(found, key=lambda f: f.peak)


def check_parallel(architecture: Architecture, parallel: Parallel, gpus: int, seq_len: int) -> None:
    """InputError unless the model can be split so: heads, layers, experts and tokens divide."""
    parallel.data_ranks(gpus)
    positions = architecture.positions
    require(
        positions is None or architecture.sample_tokens is not None or seq_len <= positions,
        "seq_len",
        f"{architecture.name} has learned positions for {positions} tokens, not {seq_len}",
        f"write seq_len = {positions} or less",
    )
    tp, pp, cp, ep = parallel.tp, parallel.pp, parallel.cp, parallel.ep
    if tp > 1:
        for block in architecture.blocks:
            heads, kv = block.attention.heads, block.attention.kv_heads
            require(
                heads % tp == 0 and (kv % tp == 0 or tp % kv == 0),
                "parallel.tp",
                f"{tp} does not divide {heads} heads and {kv} key heads",
                "write a divisor of heads that divides kv_heads or is a multiple of it",
            )
    require(
        pp <= architecture.layers,
        "parallel.pp",
        f"{pp} stages are more than {architecture.layers} layers",
        f"write {architecture.layers} or less",
    )
    require(seq_len % cp == 0, "parallel.cp", f"{cp} does not divide seq_len ({seq_len})", "write a divisor of seq_len")
    if ep > 1:
        _check_experts(architecture, parallel, gpus)


def _check_experts(architecture: Architecture, parallel: Parallel, gpus: int) -> None:
    experts = [b.feed_forward.experts for b in architecture.blocks if b.feed_forward.experts]
    require(bool(experts), "parallel.ep", f"{architecture.name} has no experts", "leave ep out")
    ep, data = parallel.ep, gpus // parallel.model_ranks * parallel.cp
    require(all(e % ep == 0 for e in experts), "parallel.ep", f"{ep} does not divide {experts[0]} experts", "write a divisor")
    require(data % ep == 0, "parallel.ep", f"{ep} does not divide {data} data-parallel ranks", f"write a divisor of {data}")


def _stages(m: Measure, recipe: Recipe, parallel: Parallel, data: int) -> list[Stage]:
    """The whole model, or the first and last stage of a pipeline: one of them holds the most."""
    if parallel.pp == 1:
        return [Stage(m, recipe, parallel, data, 1.0, first=True, last=True, in_flight=1)]
    share = ceil(m.layers / parallel.pp) / m.layers
    in_flight = min(parallel.pp, recipe.gradient_accumulation) if recipe.trains else 1
    return [
        Stage(m, recipe, parallel, data, share, first=True, last=False, in_flight=in_flight),
        Stage(m, recipe, parallel, data, share, first=False, last=True, in_flight=1),
    ]


@dataclass(frozen=True, slots=True)
class Stage:
    """What one pipeline stage's GPU holds: `share` of the layers, the embedding where `first`, head and loss where `last`."""

    m: Measure
    recipe: Recipe
    parallel: Parallel
    data: int
    share: float
    first: bool
    last: bool
    in_flight: int

    def phases(self) -> tuple[Phase, ...]:
        """Every moment that can be the worst."""
        return _training(self) if self.recipe.trains else _serving(self)

    def host_bytes(self) -> int:
        """Host memory for each GPU."""
        states = _states(self)
        paged = states.optimizer_all if self.recipe.optimizer.startswith("paged") else 0.0
        if self.parallel.offload == "none":
            return int(paged)
        moved = states.optimizer_all + states.gradients_all
        return int(moved + (states.weights_all if self.parallel.offload == "all" else 0.0))


@dataclass(slots=True)
class States:
    """Bytes on this GPU, and (`_all`) what would be there without offload."""

    weights: float
    gradients: float
    optimizer: float
    weights_all: float
    gradients_all: float
    optimizer_all: float
    gathered: float
    trained: float
    head_gradient: float
    embedding_gradient: float


def _states(s: Stage) -> States:
    m, n, p, r = s.m, s.m.numbers, s.parallel, s.recipe
    zero, tp = p.stage, p.tp
    dense = s.share * (m.matrices - m.experts) / tp
    experts = s.share * m.experts / (tp * p.ep)
    embedding = m.embedding / tp if s.first or m.tied else 0.0
    head = m.head / tp if s.last else 0.0
    rest = s.share * m.small + embedding + head
    by_dense, by_expert = s.data, max(s.data // p.ep, 1)
    stored = weight_bytes(r, n, dense, rest), weight_bytes(r, n, experts, 0.0)
    adapters = s.share * m.adapters / tp if r.adapters else 0.0
    weights = sum(stored) + n.weight * adapters
    if zero >= 3:
        weights = stored[0] / by_dense + stored[1] / by_expert + n.weight * adapters / by_dense
    trained = (adapters, 0.0) if r.adapters else (dense + rest, experts)
    if not r.trains:
        trained = (0.0, 0.0)
    all_trained = sum(trained)
    split = trained[0] / by_dense + trained[1] / by_expert
    gradients = n.gradient * (split if zero >= 2 else all_trained)
    optimizer = (n.moment + n.master) * (split if zero >= 1 else all_trained)
    if r.optimizer_in_backward:
        gradients = n.gradient * (s.share * m.largest_layer / tp if not r.adapters else all_trained / max(m.layers, 1))
    paged = r.optimizer.startswith("paged")
    offload = p.offload
    gathered = 0.0
    if zero >= 3 or offload == "all":
        layer = weight_bytes(r, n, m.largest_layer / tp, 0.0) * n.gathered / (n.frozen if r.adapters else n.weight)
        gathered = overheads.GATHERED_LAYERS * layer + n.gathered * (embedding + head)
    return States(
        weights=0.0 if offload == "all" else weights,
        gradients=0.0 if offload != "none" and zero >= 1 else gradients,
        optimizer=0.0 if offload != "none" or paged else optimizer,
        weights_all=weights,
        gradients_all=gradients,
        optimizer_all=optimizer,
        gathered=gathered,
        trained=all_trained,
        head_gradient=0.0 if r.adapters else n.gradient * (embedding if m.tied else head) / (by_dense if zero >= 2 else 1),
        embedding_gradient=0.0 if r.adapters else n.gradient * embedding / (by_dense if zero >= 2 else 1),
    )


def _buffers(s: Stage, st: States) -> float:
    """Buckets, gathered shards and dequantised matrices alive all through a pass."""
    r, n, zero = s.recipe, s.m.numbers, s.parallel.stage
    bucket = 0.0
    if s.data > 1 and r.trains:
        each = n.gradient if zero == 0 else n.compute
        bucket = each * (st.trained if zero == 0 else min(st.trained, overheads.BUCKET_ELEMENTS) if zero < 3 else 0.0)
    dequantised = n.compute * s.m.largest_matrix / s.parallel.tp if r.quant != "none" else 0.0
    return bucket + st.gathered + dequantised


def _training(s: Stage) -> tuple[Phase, ...]:
    m, r, p, n = s.m, s.recipe, s.parallel, s.m.numbers
    st = _states(s)
    tokens = m.tokens / (p.tp * p.cp)
    none = r.checkpointing == "none"
    kept = tokens * s.share * _kept(m, r)
    waiting = kept * s.in_flight
    base = tokens * (m.mask + (m.outside if s.last else 0.0)) + waiting - (tokens * m.idle_entry if none and s.first else 0.0)
    left = kept * (s.in_flight - 1) + tokens * (m.mask + m.stem)
    worst = m.worst
    feed = tokens * (worst.feed_forward_work + (0.0 if none else worst.layer) - (m.outside - m.stem if s.last else 0.0))
    attend = tokens * (worst.attention_work + (-worst.feed_forward if none else worst.attention) - (m.outside - m.stem if s.last else 0.0))
    feed_last = tokens * (worst.layer + worst.feed_forward_work)
    attend_last = tokens * (worst.attention + worst.attention_work)
    casts = m.casts * s.share / p.tp
    one_cast = casts / max(m.layers * s.share, 1)
    head_cast = n.compute * (m.embedding if m.tied else m.head) / p.tp if n.autocast and s.last else 0.0
    buffers = _buffers(s, st)
    held = buffers + (casts if none else one_cast)
    acc = st.gradients if r.gradient_accumulation > 1 else 0.0
    inside, logits, back = _loss(s, tokens)
    back = max(0.0, back - head) + (head_cast if head else 0.0) if n.autocast else back
    w, o = st.weights, st.optimizer
    g = st.gradients
    late = g - (0.0 if m.tied else st.embedding_gradient)
    per = g / max(st.trained, 1) / p.tp
    rest_ff = 0.0 if r.adapters else per * (m.layer_parameters - m.down_parameters)
    rest_at = 0.0 if r.adapters else per * m.attention_parameters
    done_ff = 0.0 if r.adapters else per * (m.layer_parameters - m.attention_parameters)
    down = 0.0 if r.adapters else per * m.down_parameters
    head = st.head_gradient
    return (
        _phase("forward", w, acc, o, base, inside, buffers + (one_cast if r.adapters and not none else casts) + head_cast),
        _phase("loss", w, acc, o, base, logits, buffers + head_cast + (casts if none else 0.0)),
        _phase("head", w, max(acc, head), o, base, back, buffers + head_cast + (casts if none else 0.0)),
        _phase("backward, last layer", w, max(acc, head + down), o, base + feed, 0.0, held),
        _phase("backward, last attention", w, max(acc, head + done_ff), o, base + attend, 0.0, held),
        _phase("backward, first layer", w, max(acc, late - rest_ff), o, left + feed_last, 0.0, buffers + one_cast),
        _phase("backward, first attention", w, max(acc, late - rest_at), o, left + attend_last, 0.0, buffers + one_cast),
        _phase(
            "backward, embedding",
            w,
            g + (2 * st.embedding_gradient if m.tied else 0.0),
            o,
            left + tokens * worst.entry,
            0.0,
            buffers,
        ),
        _phase("step", w, g, o, 0.0, 0.0, buffers + _step(s, st)),
    )


def _kept(m: Measure, r: Recipe) -> float:
    """Bytes a token that all layers keep until their backward pass."""
    if r.checkpointing == "none":
        return m.kept
    entries = 0.0 if r.offload_activations else m.entries
    return entries if r.checkpointing == "full" else entries + (m.kept - m.entries) * SELECTIVE_SHARE


def _step(s: Stage, st: States) -> float:
    """Temporary of the optimizer's step: one copy of the weights where it runs over all of them at once (foreach)."""
    return 0.0


SELECTIVE_SHARE = 0.5


def _loss(s: Stage, tokens: float) -> tuple[float, float, float]:
    """Bytes of logits alive inside the loss, going back through it, and going back through the head.

    Logits, their copy in the loss's precision and its log-softmax; then log-softmax and two gradients; then one as computed.
    """
    if not s.last or not s.m.vocab:
        return 0.0, 0.0, 0.0
    m = s.m
    logits = tokens * m.vocab / (1 if s.recipe.checkpointing else 1)
    loss, compute = m.loss_number, m.numbers.compute
    if s.recipe.fused_loss:
        return 0.0, 3 * loss * logits / overheads.LOSS_CHUNKS, 0.0
    copies = loss + (loss if loss != compute else 0) + compute
    return copies * logits, 3 * loss * logits, compute * logits


def _serving(s: Stage) -> tuple[Phase, ...]:
    m, r, p, n = s.m, s.recipe, s.parallel, s.m.numbers
    st = _states(s)
    split = p.tp * p.cp
    cache = n.compute * m.cached * s.share * m.tokens / split
    chunk = min(r.prefill_chunk or r.seq_len, r.seq_len) * r.micro_batch / split
    live = chunk * (m.worst.entry * 2 + m.worst.feed_forward_work * 2)
    logits = n.compute * m.vocab * r.micro_batch / p.tp + FP32 * m.vocab * r.micro_batch / p.tp if s.last else 0.0
    step = r.micro_batch * (m.worst.entry * 2 + m.worst.feed_forward_work * 2)
    buffers = _buffers(s, st)
    return (
        _phase("load", st.weights, 0.0, 0.0, 0.0, 0.0, 0.0),
        _phase("prefill", st.weights, 0.0, 0.0, live, logits, buffers + cache),
        _phase("decode", st.weights, 0.0, 0.0, step, logits, buffers + cache),
    )


def _phase(name: str, w: float, g: float, o: float, a: float, logits: float, b: float) -> Phase:
    return Phase(
        name,
        {
            "weights": int(w),
            "gradients": int(g),
            "optimizer": int(o),
            "activations": int(a),
            "logits": int(logits),
            "buffers": int(b),
        },
    )
