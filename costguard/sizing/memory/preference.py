"""Memory of a job whose models take turns: in each phase one model computes, and the others keep their weights.

    phase = phase of the active model + weights and optimizer of each other model

Example: PPO on Llama-2-7B, all four models on one GPU. While the policy computes its loss, the value model's weights and
optimizer (39.9 GB), the reference (13.5) and the reward model (13.2) stay in memory. While the policy generates, it holds keys
and values instead of activations; this is a separate phase, since 32 sequences of 1024 tokens are 17.2 GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from costguard.sizing.architecture import Architecture
from costguard.sizing.memory.footprint import (
    Footprint,
    TermExplanation,
    compute_footprint,
    explain_footprint,
    format_slack_formula,
)
from costguard.sizing.memory.phases import MemoryPhase, build_phase
from costguard.sizing.preference import Companion, PreferenceTraining
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.values.checks import require

RESTING_FORMULA = "kept while another model works"
KEPT_TERMS = ("weights", "optimizer")
GATHERING_STAGE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveModel:
    """One of the models: its phases (by name), and the bytes that it keeps while another model computes."""

    name: str
    footprint: Footprint
    phases: tuple[MemoryPhase, ...]
    rest: MemoryPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedFootprint(Footprint):
    """The footprint of all models together.

    `own`: bytes of the active model in the worst phase. `resting`: (name, bytes) of the others.
    """

    own: MemoryPhase
    resting: tuple[tuple[str, int], ...]

    def explain(self) -> tuple[TermExplanation, ...]:
        """Return the terms of the active model, then the bytes that the others keep."""
        *terms, context, slack = explain_footprint(self.basis, self.own, self.context, self.slack)
        working = [e for e in terms if e.bytes]
        others = [
            TermExplanation(name, size, RESTING_FORMULA, "its own footprint: weights and optimizer")
            for name, size in self.resting
        ]
        of_all = replace(slack, formula=format_slack_formula(self.basis, self.worst))
        return (*working, *others, context, of_all)


def compute_combined_footprint(
    architecture: Architecture, recipe: Recipe, training: PreferenceTraining, parallel: Parallelism, *, gpus: int
) -> Footprint:
    """Return the footprint of a policy of `architecture` and its companions in `training` on each of `gpus` GPUs."""
    return _combine_models(tuple(_list_models(architecture, recipe, training, parallel, gpus)))


def _combine_models(workers: tuple[ActiveModel, ...]) -> CombinedFootprint:
    moments = [(worker, own, _add_resting(worker, own, workers)) for worker in workers for own in worker.phases]
    worker, own, worst = max(moments, key=lambda m: m[2].total)
    policy = workers[0].footprint
    shared = {f.name: getattr(policy, f.name) for f in fields(Footprint)}
    return CombinedFootprint(
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


def _add_resting(worker: ActiveModel, own: MemoryPhase, workers: tuple[ActiveModel, ...]) -> MemoryPhase:
    others = [w.rest.terms for w in workers if w is not worker]
    terms = {term: size + sum(rest[term] for rest in others) for term, size in own.terms.items()}
    return build_phase(own.name, **terms)


def _list_models(
    architecture: Architecture, recipe: Recipe, training: PreferenceTraining, parallel: Parallelism, gpus: int
) -> Iterator[ActiveModel]:
    """Yield the policy, each companion, and the policy again as the generating model."""
    policy = replace(recipe, micro_batch=recipe.micro_batch * training.sequences)
    own = compute_footprint(architecture, policy, parallel, gpus=gpus)
    rest = _build_resting_phase(own)
    yield ActiveModel(name="policy", footprint=own, phases=own.phases, rest=rest)
    for companion in training.companions:
        yield _build_companion(companion, policy, parallel, gpus)
    if training.generates:
        yield _build_generation(architecture, policy, training, parallel, gpus)


def _build_companion(companion: Companion, policy: Recipe, parallel: Parallelism, gpus: int) -> ActiveModel:
    need = compute_footprint(companion.architecture, companion.build_recipe(policy), parallel, gpus=gpus)
    if companion.trained:
        moments = tuple(_rename_phase(p, f"{companion.role}: {p.name}") for p in need.phases if p.name != "load")
        return ActiveModel(name=companion.role, footprint=need, phases=moments, rest=_build_resting_phase(need))
    shared = companion.is_shared_with(policy)
    moments = (_build_scoring_phase(companion.role, need, shared=shared),)
    rest = build_phase("rest", weights=0.0) if shared else _build_resting_phase(need)
    return ActiveModel(name=companion.role, footprint=need, phases=moments, rest=rest)


def _build_scoring_phase(role: str, need: Footprint, *, shared: bool) -> MemoryPhase:
    """Return the phase of a forward pass that keeps only its logits.

    The logits are 16-bit; their log-softmax is computed one sequence at a time.
    """
    basis = need.basis
    m, split = basis.measure, basis.stage.parallel
    tokens = m.tokens / (split.tp * split.cp)
    return build_phase(
        role,
        weights=0.0 if shared else basis.states.weights,
        activations=tokens * m.layer.passing,
        logits=m.numbers.compute * tokens * m.predicted * m.vocab,
        buffers=basis.buffers.standing + basis.buffers.head,
    )


def _build_generation(
    architecture: Architecture, policy: Recipe, training: PreferenceTraining, parallel: Parallelism, gpus: int
) -> ActiveModel:
    """Return the policy as the generating model.

    It uses the policy's own weights if they are complete on the GPU, else a gathered copy besides the shards. TRL gathers all
    weights to generate (`ds3_gather_for_generation`), because gathering them for each token would take hours. An engine has a
    copy of its own, which it frees while the policy trains (vLLM's sleep, SGLang's release_memory_occupation).
    """
    serving = replace(
        policy, method="inference", micro_batch=training.generation_batch, seq_len=training.prompt_len + training.completion_len
    )
    ranks = max(training.rollout_tp, 1)
    require(gpus % ranks == 0, "preference.rollout_tp", f"{ranks} does not divide {gpus} GPUs", f"write a divisor of {gpus}")
    need = compute_footprint(architecture, serving, training.split_generation(parallel), gpus=gpus)
    gathers = bool(training.rollout_tp) or parallel.stage == GATHERING_STAGE or parallel.offload == "all"
    moments = tuple(_build_generation_phase(p, gathers=gathers) for p in need.phases if p.name != "load")
    return ActiveModel(name="generation", footprint=need, phases=moments, rest=build_phase("rest", weights=0.0))


def _build_generation_phase(moment: MemoryPhase, *, gathers: bool) -> MemoryPhase:
    terms = dict(moment.terms) if gathers else {**moment.terms, "weights": 0}
    return build_phase(f"generation: {moment.name}", **terms)


def _build_resting_phase(need: Footprint) -> MemoryPhase:
    """Return the weights and optimizer states, which exist in every phase."""
    terms = {term: size if term in KEPT_TERMS else 0 for term, size in need.phases[-1].terms.items()}
    return build_phase("rest", **terms)


def _rename_phase(moment: MemoryPhase, name: str) -> MemoryPhase:
    return moment._replace(name=name)
