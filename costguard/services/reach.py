"""What the policies can do on the machines of the ledger, and whose these are: for `lint`, `plan`, `arm` and `doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.guard.evaluation import is_claimed
from costguard.guard.overrides import find_owner
from costguard.guard.policy import Policy
from costguard.guard.policy_evaluation import matches_target
from costguard.guard.reach import compute_reach, describe_reach
from costguard.ledger.agents.records import load_agents
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.spending import LiveResource
from costguard.providers import plugins
from costguard.services import overrides
from costguard.services.guard_inputs import build_guard_config
from costguard.settings import Settings, resolve_ledger_url
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey

NAMES_SHOWN = 20


def list_reach(settings: Settings, policies: Sequence[Policy]) -> list[str]:
    """Sentences about each policy that acts: on how many of the running machines it can, and what limits it on the others."""
    live, agents = load_machines(settings)
    return describe_machines(settings, policies, live, agents)


def describe_machines(
    settings: Settings, policies: Sequence[Policy], live: Iterable[LiveResource], agents: frozenset[ResourceKey]
) -> list[str]:
    """The same for the machines `live`, of which those in `agents` have one."""
    measures = {name: one.manifest.measures for name, one in plugins.load_providers().found.items()}
    owner_from, machines = settings.defaults.owner_from, list(live)
    return [
        sentence
        for policy in policies
        for sentence in describe_reach(
            policy, compute_reach(policy, machines, measures=measures, agents=agents, owner_from=owner_from)
        )
    ]


def list_unowned(settings: Settings, policy: Policy) -> list[str]:
    """Sentences for whoever arms `policy`: per account whether it is claimed, and the machines without an owner by name."""
    rules = build_guard_config(settings)
    found: dict[tuple[str, str], list[LiveResource]] = {}
    for one in load_machines(settings)[0]:
        seen = one.observation
        owner = find_owner(seen, rules.owner_from)
        if matches_target(policy.target, seen, owner) and seen.kind == INSTANCE and seen.state == RUNNING and not owner:
            found.setdefault((seen.key.provider, seen.key.account), []).append(one)
    lines = []
    for (provider, account), machines in sorted(found.items()):
        names = [one.observation.name or one.observation.key.id for one in machines]
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        shown = ", ".join(names[:NAMES_SHOWN]) + more
        if is_claimed(rules, machines[0], policy):
            stated = "claimed in [watch] claims" if rules.claims is not None else "counted as ours"
            lines.append(f"{provider}/{account} is {stated}: {len(names)} without an owner may be acted on: {shown}")
        else:
            cure = f'[watch] claims = ["{provider}/{account}"] claims it'
            lines.append(f"{provider}/{account} is not claimed: {len(names)} without an owner are left alone: {shown}; {cure}")
    return lines


def load_machines(settings: Settings) -> tuple[list[LiveResource], frozenset[ResourceKey]]:
    """What the ledger lists now, and the machines with an agent; nothing where there is no ledger yet."""
    url = resolve_ledger_url(settings)
    try:
        with SpendingReader(url, rules=ShippedFacts().get_billing_rules()) as books:
            live = books.load_live(overrides.get_now())
        with LedgerReader(url) as reader, reader.snapshot() as ask:
            agents = frozenset(one.key for one in load_agents(ask))
    except InputError as none_yet:
        if "no ledger here yet" in none_yet.what:
            return [], frozenset()
        raise
    return live, agents
