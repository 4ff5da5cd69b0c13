"""What a policy can do on the listed machines: which confidence the evidence allows, and what happens to a stop.

Example: RunPod measures GPU duty and CPU, so without an agent a pod idles with a confidence of 0.8 at most. A policy that
requires 0.9 never stops it: people are notified and asked. With an agent the pod reaches 0.97; a stop would wipe its container
disk, so a person is asked as well, unless the policy allows the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from costguard.guard.activity import get_confidence_cap
from costguard.guard.facts import select_measured
from costguard.guard.overrides import find_owner
from costguard.guard.policy import IDLE_RULE, STOP, TERMINATE, Policy, PolicyTarget
from costguard.guard.policy_evaluation import NOTICE_CONFIDENCE, allows_weak_evidence, find_needed_confidence, matches_target
from costguard.guard.signals import AGENT, CPU, DUTY, IO, SIGNAL_FAMILIES
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey

AGENT_FAMILIES = frozenset((DUTY, CPU, IO, AGENT))
"""What costguard's agent measures on a machine with NVML; a job's progress comes on top where the job reports it."""
ACTS, ASKS, TELLS, BLIND = "acts", "asks", "tells", "blind"
OUTCOMES = {
    ACTS: "it can be stopped",
    ASKS: "a person is asked before it is stopped",
    TELLS: "people are notified; no act follows",
    BLIND: "its activity is not measured: people are notified, unless another policy can judge it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What one policy can do on one machine. `outcome`: of OUTCOMES. `why`: what limits it; "" for nothing."""

    key: ResourceKey
    outcome: str
    why: str = ""


def compute_reach(
    policy: Policy,
    machines: Iterable[LiveResource],
    *,
    measures: Mapping[str, Collection[str]],
    agents: Collection[ResourceKey],
    owner_from: Sequence[str],
    is_ours: Callable[[LiveResource, Policy], bool] = lambda _live, _policy: True,
) -> list[Reach]:
    """Return what `policy` can do on each running machine that it targets.

    `measures`: provider -> families of signals without an agent. `agents`: the machines that have one. `is_ours`: whether the
    policy may act on a machine without an owner.
    """
    reaches = []
    for live in machines:
        observation = live.observation
        owner = find_owner(observation, owner_from)
        is_target = matches_target(policy.target, observation, owner)
        if is_target and observation.kind == INSTANCE and observation.state == RUNNING and live.absent_at is None:
            families = frozenset(measures.get(observation.key.provider, ())) | (
                AGENT_FAMILIES if observation.key in agents else frozenset()
            )
            outcome, why = _find_outcome(policy, observation, families, with_agent=observation.key in agents)
            if outcome in (ACTS, ASKS) and not owner and not is_ours(live, policy):
                account = f"{observation.key.provider}/{observation.key.account}"
                outcome, why = TELLS, f'it has no owner, and the account is not claimed: [watch] claims = ["{account}"]'
            reaches.append(Reach(key=observation.key, outcome=outcome, why=why))
    return reaches


def describe_reach(policy: Policy, reaches: Sequence[Reach]) -> Iterator[str]:
    """Yield one sentence per limit: "idle-gpu can act on 0 of 4 machines: 4 are asked about: runpod without an agent ..."."""
    if not reaches or not any(step.do in (STOP, TERMINATE) for step in policy.then):
        return
    acts = sum(one.outcome == ACTS for one in reaches)
    machines = "machine" if len(reaches) == 1 else "machines"
    yield f"{policy.name} can act by itself on {acts} of {len(reaches)} running {machines}."
    for (outcome, why), count in sorted(Counter((one.outcome, one.why) for one in reaches if one.outcome != ACTS).items()):
        yield f"{policy.name}: {count} of {len(reaches)}: {OUTCOMES[outcome]}: {why}"


def describe_provider_reach(policy: Policy, provider: str, families: Collection[str]) -> str:
    """Explain what `policy` cannot do on a provider that measures `families`; "" if the evidence limits nothing."""
    needed = _get_needed(policy)
    cap, missing = get_confidence_cap(frozenset(families))
    providers = policy.target.match.providers
    is_target = providers is None or provider in providers
    if needed is None or not is_target or not any(step.do == STOP for step in policy.then):
        return ""
    if not families:
        return f"{policy.name}: {provider} measures nothing: without an agent activity is unknown, and people are notified"
    if lacks := _describe_lack(policy, families):
        return f"{policy.name}: {provider} without an agent does not measure {lacks}: this policy judges machines with an agent"
    if cap >= needed and _is_enough(policy, frozenset(families)):
        return ""
    lacks = f"{SIGNAL_FAMILIES[missing]} is not measured" if missing else "a higher confidence cannot be measured"
    return (
        f"{policy.name}: {provider} without an agent reaches a confidence of {cap:g} ({lacks}), and this policy acts from "
        f"{needed:g} on: people are notified and asked, and its machines are not stopped"
    )


def is_explicit(target: PolicyTarget) -> bool:
    """Return whether `target` names machines, accounts, owners or labels, and so claims machines without an owner."""
    selectors = (target.ids, target.names, target.match.accounts, target.match.owners, target.match.labels)
    return any(one is not None for one in selectors)


def _get_needed(policy: Policy) -> float | None:
    """Return the confidence that an act needs; None for a policy that does not depend on activity."""
    if policy.rule != IDLE_RULE or not select_measured(policy.when.names):
        return None
    return find_needed_confidence(policy)


def _describe_lack(policy: Policy, families: Collection[str]) -> str:
    """Return the families that `policy` needs and that are not among `families`, in words; "" for none."""
    return " and ".join(SIGNAL_FAMILIES[family] for family in policy.needs if family not in families)


def _is_enough(policy: Policy, families: frozenset[str]) -> bool:
    """Return whether `families` hold what an act needs besides confidence: a GPU's, or the weaker ones that `policy` names."""
    return not {DUTY, AGENT}.isdisjoint(families) or (allows_weak_evidence(policy) and {CPU, IO} <= families)


def _find_outcome(policy: Policy, observation: Observation, families: frozenset[str], *, with_agent: bool) -> tuple[str, str]:
    needed, (cap, missing) = _get_needed(policy), get_confidence_cap(families)
    where = f"{observation.key.provider} with{'' if with_agent else 'out'} an agent"
    if needed is not None and (not families or cap < NOTICE_CONFIDENCE):
        return BLIND, f"{where} measures {'too little' if families else 'nothing'}"
    if needed is not None and (lacks := _describe_lack(policy, families)):
        return BLIND, f"{where} does not measure {lacks}, which this policy needs"
    if needed is not None and (cap < needed or not _is_enough(policy, families)):
        lacks = f", as {SIGNAL_FAMILIES[missing]} is not measured" if missing else ""
        return ASKS, f"{where} reaches {cap:g}{lacks}; this policy acts from {needed:g} on"
    return _find_handling_outcome(policy, observation)


def _find_handling_outcome(policy: Policy, observation: Observation) -> tuple[str, str]:
    """Return the outcome of a stop that the evidence allows."""
    if observation.handling.controller:
        return TELLS, f"{observation.handling.controller} would start it again"
    if observation.handling.stops is False and observation.handling.terminates is False:
        return TELLS, f"{observation.key.provider} has no act for it"
    if observation.handling.stops is False:
        return ASKS, f"{observation.key.provider} has no stop"
    if observation.handling.stop_loses and not policy.allow_irreversible:
        return ASKS, f"a stop would lose {', '.join(observation.handling.stop_loses)}"
    return ACTS, ""
