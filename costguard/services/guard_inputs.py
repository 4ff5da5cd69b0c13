"""What the settings say to the guard."""

from __future__ import annotations

from datetime import timedelta

from costguard.guard.context import GuardConfig
from costguard.guard.policy import Rails
from costguard.settings import Settings


def build_guard_config(settings: Settings, interval: timedelta | None = None) -> GuardConfig:
    """What the settings say to the guard."""
    return GuardConfig(
        policies=settings.policies,
        budgets=settings.budgets,
        rails=settings.rails or Rails(),
        owner_from=settings.defaults.owner_from,
        group_from=settings.defaults.group_from,
        protect=settings.defaults.protect,
        zone=settings.defaults.zone,
        interval=interval or settings.watch.every,
        claims=settings.watch.claims,
        hooks=settings.hooks,
    )
