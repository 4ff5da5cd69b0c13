"""Guards with one rule taken out of them, to see that the judge would notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from costguard.guard import action_plan, activity, context, evaluation, limits
from costguard.guard.action_intents import Intent, explain_refusal
from costguard.guard.alerts import rules
from costguard.guard.limits import Headroom
from costguard.guard.overrides import UNPROTECTED, ArmedLevel
from costguard.guard.policy import STOP
from costguard.ledger.guard import send_gate
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans import books
from costguard.metering import accrual
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.span import KnownUntil, compute_known_until
from costguard.services.guarding.act import executor, send_action

Patch = pytest.MonkeyPatch


def _says(answer: Any) -> Callable[..., Any]:  # noqa: ANN401 - whatever the rule would say
    return lambda *_args, **_named: answer


def no_second_look(patch: Patch) -> None:
    """What the plan found is believed: nothing that happened since is asked for."""
    patch.setattr(send_action, "explain_refusal", _says(""))
    patch.setattr(send_action, "describe_difference", _says(""))
    patch.setattr(executor.ActionExecutor, "_build_objection_check", _says(_says("")))
    patch.setattr(send_gate, "_find_override", _says(None))


def missing_is_idle(patch: Patch) -> None:
    """A sample that is missing hides no work."""
    doubts = activity._list_doubts

    def sure(tracks: Any, *around: Any, **named: Any) -> list[str]:  # noqa: ANN401 - as it is there
        return doubts(tracks, *around, **named) if all(one.fresh for one in tracks) else []

    patch.setattr(activity, "_list_doubts", sure)
    patch.setattr(activity, "get_confidence_cap", _says((0.99, "")))
    patch.setattr(action_plan, "EVIDENCE_COVERAGE_MIN", 0)
    patch.setattr(executor.ActionExecutor, "_find_activity", _says(""))


def leases_ignored(patch: Patch) -> None:
    """Nobody keeps anything."""
    patch.setattr(context, "find_lease", _says(None))
    patch.setattr(send_gate, "_find_override", _says(None))


def rails_off(patch: Patch) -> None:
    """There is always room, in the plan and in the gate."""
    patch.setattr(limits, "compute_headroom", _says(Headroom(acts=100, irreversible=100, why="")))
    patch.setattr(send_gate, "_find_exceeded_limit", _says(None))


def any_life_will_do(patch: Patch) -> None:
    """An act for one life is done to the next."""

    def blind(intent: Intent, seen: Observation) -> str:
        return explain_refusal(replace(intent, life=identify_incarnation(seen)), seen)

    patch.setattr(send_action, "explain_refusal", blind)


def arming_ignored(patch: Patch) -> None:
    """Every policy may stop."""
    patch.setattr(evaluation, "find_armed_level", _says(ArmedLevel(STOP)))


def labels_ignored(patch: Patch) -> None:
    """No label protects."""
    patch.setattr(context, "find_protection", _says(UNPROTECTED))


def protection_forgotten(patch: Patch) -> None:
    """A label that vanished protects no more."""
    patch.setattr(GuardStore, "load_protections", _says({}))


def recorded_too_late(patch: Patch) -> None:
    """The request goes out before anything of it is committed."""
    whole = send_action._execute

    def hasty(deed: Any, before: Observation) -> Any:  # noqa: ANN401 - as it is there
        deed.send()
        return whole(deed, before)

    patch.setattr(send_action, "_execute", hasty)


def too_sure(patch: Patch) -> None:
    """What is still open is taken to end where it was last seen."""

    def sure(**known: Any) -> KnownUntil:  # noqa: ANN401 - as it is there
        low = compute_known_until(**known).low
        return KnownUntil(low=low, expected=low, high=low)

    patch.setattr(books, "compute_known_until", sure)


def deaf_to_silence(patch: Patch) -> None:
    """What was off stays off for as long as nobody looks."""
    patch.setattr(books, "find_unobserved_usage", _says(()))


def empty_believed(patch: Patch) -> None:
    """A list of one or two machines that is empty is right."""
    missing = accrual._find_missing

    def few(*asked: Any) -> Any:  # noqa: ANN401 - as it is there
        found, many = missing(*asked)
        return (found, many) if many else ((), False)

    patch.setattr(accrual, "_find_missing", few)


def nothing_sent(patch: Patch) -> None:
    """What is due is planned, and never requested, and nobody is told."""
    patch.setattr(executor.ActionExecutor, "_execute_due", _says(None))
    patch.setattr(rules, "list_held_alerts", _says(()))


SEEN_BY = {
    "a-stopped-machine-runs-again-in-an-outage": deaf_to_silence,
    "a-small-account-lists-nothing-for-a-while": empty_believed,
}
"""Kept plans, and ledgers with a rule taken out that each of them shows."""

MUTANTS: dict[str, Callable[[Patch], None]] = {
    one.__name__: one
    for one in (
        no_second_look,
        missing_is_idle,
        leases_ignored,
        rails_off,
        any_life_will_do,
        arming_ignored,
        labels_ignored,
        protection_forgotten,
        recorded_too_late,
        nothing_sent,
    )
}
