"""A replay under no limit: a limit that is added to Rails cannot be forgotten there."""

from __future__ import annotations

from dataclasses import fields

from costguard.guard.policy import Rails

KEPT = {
    *(
        "breaker_share",
        "breaker_window",
        "breaker_recovery",
        "breaker_asks",
        "breaker_lasts",
        "clock_limit",
        "gap_polls",
        "caps",
    ),
}
"""Fields that hold nothing back by themselves in a replay: the breaker never opens, and no gap or clock jump is recorded."""


def test_every_limit_is_lifted_in_a_replay_without_limits() -> None:
    usual, free = Rails(), Rails.unlimited()
    same = {field.name for field in fields(Rails) if getattr(usual, field.name) == getattr(free, field.name)}
    assert same == KEPT


def test_a_replay_without_limits_asks_nobody_to_wait() -> None:
    free = Rails.unlimited()
    assert (free.first_polls, free.first_seen.total_seconds()) == (0, 0)
    assert min(free.acts_per_run, free.acts_per_10m, free.irreversible_per_h, free.breaker_least) >= 10**9
    assert min(free.fleet_share_10m, free.fleet_share_day) >= 1
