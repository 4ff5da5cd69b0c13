"""Accepting: whether settings that never ran may act, or somebody has to read their plan first (GUARD 6, H25).

The first run of settings is over once its plan can be judged: what is not measured yet may still turn out to be more acts than
the rails allow. It is over in any case when the longest wait of a policy and an hour have gone by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from costguard.guard.context import GuardConfig
from costguard.guard.evaluation import GuardEvaluation, build_cap_policies
from costguard.guard.limits import explain_config_excess, is_config_undecided
from costguard.guard.overrides import ACCEPT, Override, is_override_open
from costguard.guard.policy import Policy
from costguard.services.carried import decode_instant

FIRST_RUN_EXTRA = timedelta(hours=1)
"""How long first runs go on beyond the longest wait of a policy."""
ACCEPTED_SETTINGS_FACT, FIRST_SETTINGS_FACT = "settings", "settings_first"
"""What the ledger remembers: the settings that may act, and since when others ask to."""


def explain_unaccepted(
    found: GuardEvaluation,
    rules: GuardConfig,
    wishes: Iterable[Override],
    facts: dict[str, str],
    *,
    digest: Callable[[bytes], str],
    plan_hash: str,
) -> str:
    """Why these settings wait for a yes; "" where they ran before, mean little, or their plan was accepted.

    `facts`: of the run, changed where that is settled. `digest`: sha256 in hex.
    """
    now, acting = found.at, (*rules.policies, *build_cap_policies(rules.budgets))
    mark = digest("\n".join(map(_describe_policy, acting)).encode())[:16]
    if facts.get(ACCEPTED_SETTINGS_FACT) == mark:
        return ""
    known, _, since = facts.get(FIRST_SETTINGS_FACT, "").partition(" ")
    first_at = (decode_instant(since) if known == mark else None) or now
    facts[FIRST_SETTINGS_FACT] = f"{mark} {first_at.isoformat()}"
    accepted = any(
        w.what == ACCEPT and plan_hash.startswith(w.subject) and is_override_open(w, now) for w in wishes if w.subject
    )
    why = "" if accepted else explain_config_excess(found.proposals, found.fleet, rules.rails, now)
    lasts = max((policy.hold for policy in acting), default=timedelta()) + FIRST_RUN_EXTRA
    waits = not accepted and now - first_at < lasts and is_config_undecided(found.proposals, found.fleet, rules.rails, now)
    if not why and not waits:
        facts[ACCEPTED_SETTINGS_FACT] = mark
        del facts[FIRST_SETTINGS_FACT]
    return why


def _describe_policy(policy: Policy) -> str:
    """Everything in `policy` that bears on acts, as a text."""
    parts = (policy.name, policy.arm, policy.when.text, policy.target, policy.hold, policy.then, policy.needs, policy.rule)
    return "\x1f".join(map(repr, (*parts, policy.allow_irreversible, policy.schedule)))
