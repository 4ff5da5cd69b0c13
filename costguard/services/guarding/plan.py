"""`plan`: run the guard without acting, and show what it would do."""

from __future__ import annotations

from secrets import token_hex

from costguard.errors import LedgerError
from costguard.guard.cap_acceptance import list_cap_acceptances
from costguard.guard.overrides import ACCEPT, Override
from costguard.services import CommandAnswer
from costguard.services.guarding.guard_inputs import describe_machines
from costguard.services.guarding.overrides import make_override
from costguard.services.guarding.plan_view import build_plan_view, list_unarmed
from costguard.services.guarding.watchdog_context import open_watchdog_context
from costguard.settings import read_settings
from costguard.values.checks import require
from costguard.views.plan import build_plan_document

PLAN_HASH_LENGTH_MIN = 8
"""Characters of a plan's hash that are enough to accept it by."""


def answer_plan(
    *, config: str | None, accept: str | None, offline: bool = False, supposed: tuple[Override, ...] = ()
) -> CommandAnswer:
    """Answer `costguard plan`: the plan for the present fleet. `accept`: approve the plan with this hash.

    `supposed`: overrides assumed to be recorded.
    """
    settings = read_settings(config)
    with open_watchdog_context(settings, dry_run=True, offline=offline) as context:
        context.guard.supposed = supposed
        polled = context.poll() if context.sources else None
        guarded = context.run_guard()
        if guarded.broken or guarded.survey is None:
            raise LedgerError(guarded.broken or "it cannot be read", field="the ledger")
        notes = (*polled.refused, *polled.notes) if polled else ()
        snapshot = guarded.sight
        agents = frozenset(one.key for one in snapshot.agents if one.revoked_at is None) if snapshot else frozenset()
        notes = (*notes, *describe_machines(settings, settings.policies, snapshot.live if snapshot else (), agents))
        notes = (*notes, *list_unarmed(context.guard.rules))
        view = build_plan_view(guarded, context.guard.rules, notes)
        if accept is not None:
            matches = guarded.plan_hash.startswith(accept) and len(accept) >= PLAN_HASH_LENGTH_MIN
            hint = f"read the plan, then run: costguard plan --accept {guarded.plan_hash[:12]}"
            require(matches, "--accept", "is not the hash of the current plan", hint)
            acceptance = make_override(ACCEPT, "the plan was read", guarded.at, subject=accept)
            overrides = snapshot.wishes if snapshot else ()
            for one in (acceptance, *list_cap_acceptances(settings.budgets, overrides, acceptance, lambda: token_hex(8))):
                context.guard.book.add_override(one)
            view = build_plan_view(guarded, context.guard.rules, (*notes, f"accepted: {guarded.plan_hash[:12]}"))
    return CommandAnswer(document=build_plan_document(view), warnings=tuple(notes))
