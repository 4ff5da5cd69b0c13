"""Memory of a job whose models take turns: at each moment one works, and what the others keep is there too.

    a moment = a phase of the model at work + weights and optimizer of each of the others

Example: PPO on Llama-2-7B, all four models on one GPU: while the policy goes through its loss, the value model's weights
and optimizer (39.9 GB), the reference (13.5) and the reward model (13.2) rest beside it. While the policy writes, its
keys and values take the place of activations: a phase of its own, since 32 sequences of 1024 tokens are 17.2 GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.companions import Beside, Companion
from costguard.sizing.memory.explanation import Explained, explained, slack_formula
from costguard.sizing.memory.footprint import Footprint, footprint
from costguard.sizing.memory.phases import Phase, phase
from costguard.sizing.recipe import Parallel, Recipe

RESTS = "kept while another model works"
KEPT = ("weights", "optimizer")
GATHERING_STAGE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One of the models: its moments at work (by name), and the bytes it keeps while another works."""

    name: str
    footprint: Footprint
    phases: tuple[Phase, ...]
    rest: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Together(Footprint):
    """The footprint of all. `own`: the worst moment's bytes of the model at work; `resting`: (name, bytes) of the others."""

    own: Phase
    resting: tuple[tuple[str, int], ...]

    def explain(self) -> tuple[Explained, ...]:
        """The terms of the model at work, then what the others keep."""
        *terms, context, slack = explained(self.basis, self.own, self.context, self.slack)
        working = [e for e in terms if e.bytes]
        others = [Explained(name, size, RESTS, "its own footprint: weights and optimizer") for name, size in self.resting]
        of_all = replace(slack, formula=slack_formula(self.basis, self.worst))
        return (*working, *others, context, of_all)


def footprint_together(
    architecture: Architecture, recipe: Recipe, beside: Beside, parallel: Parallel, *, gpus: int
) -> Footprint:
    """The footprint of a policy of `architecture` on each of `gpus` GPUs, with those `beside` it."""
    return _joined(tuple(_workers(architecture, recipe, beside, parallel, gpus)))


def _joined(workers: tuple[Worker, ...]) -> Together:
    moments = [(worker, own, _with_the_rest(worker, own, workers)) for worker in workers for own in worker.phases]
    worker, own, worst = max(moments, key=lambda m: m[2].total)
    policy = workers[0].footprint
    shared = {f.name: getattr(policy, f.name) for f in fields(Footprint)}
    return Together(
        **shared
        | {
            "phases": tuple(phase for _, _, phase in moments),
            "worst": worst,
            "host_bytes": sum(w.footprint.host_bytes for w in workers if w.rest.total or w is workers[0]),
            "basis": worker.footprint.basis,
        },
        own=own,
        resting=tuple((w.name, w.rest.total) for w in workers if w is not worker and w.rest.total),
    )


def _with_the_rest(worker: Worker, own: Phase, workers: tuple[Worker, ...]) -> Phase:
    others = [w.rest.terms for w in workers if w is not worker]
    terms = {term: size + sum(rest[term] for rest in others) for term, size in own.terms.items()}
    return replace(own, terms=terms, total=sum(terms.values()))


def _workers(architecture: Architecture, recipe: Recipe, beside: Beside, parallel: Parallel, gpus: int) -> Iterator[Worker]:
    """The policy, each companion, and the policy once more as a writer."""
    policy = replace(recipe, micro_batch=recipe.micro_batch * beside.sequences)
    own = footprint(architecture, policy, parallel, gpus=gpus)
    kept = _kept(own)
    yield Worker(name="policy", footprint=own, phases=own.phases, rest=kept)
    for companion in beside.companions:
        yield _companion(companion, policy, parallel, gpus)
    if beside.generates:
        yield _writer(architecture, policy, beside, parallel, gpus)


def _companion(companion: Companion, policy: Recipe, parallel: Parallel, gpus: int) -> Worker:
    need = footprint(companion.architecture, companion.recipe(policy), parallel, gpus=gpus)
    if companion.trained:
        moments = tuple(_named(p, f"{companion.role}: {p.name}") for p in need.phases if p.name != "load")
        return Worker(name=companion.role, footprint=need, phases=moments, rest=_kept(need))
    shared = companion.shared(policy)
    moments = (_scoring(companion.role, need, shared=shared),)
    rest = phase("rest", weights=0.0) if shared else _kept(need)
    return Worker(name=companion.role, footprint=need, phases=moments, rest=rest)


def _scoring(role: str, need: Footprint, *, shared: bool) -> Phase:
    """A forward pass that keeps nothing but its logits: 16-bit, and their log-softmax one sequence at a time."""
    basis = need.basis
    m, split = basis.measure, basis.stage.parallel
    tokens = m.tokens / (split.tp * split.cp)
    return phase(
        role,
        weights=0.0 if shared else basis.states.weights,
        activations=tokens * m.layer.passing,
        logits=m.numbers.compute * tokens * m.vocab,
        buffers=basis.buffers.standing + basis.buffers.head,
    )


def _writer(architecture: Architecture, policy: Recipe, beside: Beside, parallel: Parallel, gpus: int) -> Worker:
    """The policy writing completions: its own weights where they lie whole, or a gathered copy beside the shards.

    TRL gathers all weights to generate (`ds3_gather_for_generation`), since gathering them for each token would take hours.
    """
    serving = replace(
        policy, method="inference", micro_batch=beside.generation_batch, seq_len=beside.prompt_len + beside.completion_len
    )
    whole = Parallel(tp=parallel.tp, pp=parallel.pp, ep=parallel.ep)
    need = footprint(architecture, serving, whole, gpus=gpus)
    gathers = parallel.stage == GATHERING_STAGE or parallel.offload == "all"
    moments = tuple(_generating(p, gathers=gathers) for p in need.phases if p.name != "load")
    return Worker(name="generation", footprint=need, phases=moments, rest=phase("rest", weights=0.0))


def _generating(moment: Phase, *, gathers: bool) -> Phase:
    terms = dict(moment.terms) if gathers else {**moment.terms, "weights": 0}
    return replace(moment, name=f"generation: {moment.name}", terms=terms, total=sum(terms.values()))


def _kept(need: Footprint) -> Phase:
    """Weights and optimizer, which are there at every moment."""
    terms = {term: size if term in KEPT else 0 for term, size in need.phases[-1].terms.items()}
    return replace(need.phases[-1], name="rest", terms=terms, total=sum(terms.values()))


def _named(moment: Phase, name: str) -> Phase:
    return replace(moment, name=name)
