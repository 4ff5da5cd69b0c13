"""The rules of all worlds: what machines do, what the policies say, and what must never be touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

from costguard.budgets.budget import ResourceFilter
from costguard.guard.policy import NOTIFY, STOP, Policy, PolicyStep, PolicyTarget, Rails
from costguard.settings.conditions import read_condition
from costguard.testing.machine import SILENT, SampleRule, make_busy_rule, make_cpu_rule, make_quiet_rule, make_transfer_rule
from costguard.values.sample import AGENT_ALIVE, CPU_CORES, GPU_UTIL, NETWORK
from tests.simulation.plans import Plan

HOLD, GRACE = timedelta(minutes=10), timedelta(minutes=5)
IDLE = read_condition('state == "idle" && confidence >= 0.9', "the simulation")
FEW = (GPU_UTIL, CPU_CORES, NETWORK, AGENT_ALIVE)
"""So many signals prove idleness with 0.97, and more would only take time."""


def _few(rule: SampleRule) -> SampleRule:
    return replace(rule, values={signal: value for signal, value in rule.values.items() if signal in FEW})


DOES = {
    "busy": _few(make_busy_rule()),
    "quiet": _few(make_quiet_rule()),
    "io": _few(make_transfer_rule(6.1e6)),
    "cpu": _few(make_cpu_rule(2.0, cores=32)),
    "silent": SILENT,
}
WHY_NOT = {
    "controller": "a controller has it",
    "handling": "its provider protects it",
    "unstoppable": "it cannot be stopped",
    "unarmed": "its policy is not armed",
    "label": "its label protects it",
    "slip": "its label nearly protects it",
    "wish": "somebody protects it",
    "loses": "a stop would lose its disk",
}


def policies() -> tuple[Policy, ...]:
    """One that may stop what is labelled so, and one that may only tell."""
    return (_policy("idle-gpu", STOP, "yes"), _policy("watched", NOTIFY, "no"))


def _policy(name: str, arm: str, mark: str) -> Policy:
    steps = (PolicyStep(do=NOTIFY), PolicyStep(do=STOP, after=GRACE))
    target = PolicyTarget(match=ResourceFilter(labels=(("arm", (mark,)),)))
    return Policy(name=name, when=IDLE, then=steps, arm=arm, hold=HOLD, target=target)


def rails_of(plan: Plan) -> Rails:
    """As the plan states them; one act a run where it states none, and no least number a day, as the judge has it."""
    stated: dict[str, Any] = {"acts_per_run": 1, "acts_least_day": 1} | {
        name: Fraction(value).limit_denominator(100) if "share" in name else value for name, value in plan.rails.items()
    }
    return Rails(**stated)
