"""Whose turn it is to act: one row with an epoch that only rises. Whoever lost the turn is refused by its old epoch.

Example: A takes epoch 1 until 12:03 and is suspended. At 12:04 B takes epoch 2. When A wakes up, its intents are not let go.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from costguard.ledger.db.asking import Execute, Query
from costguard.values.checks import require
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import make_storable

LEASE_MAX = timedelta(hours=6)
"""A turn that seems to go on for longer was taken by a clock that was wrong: it is free."""


class LeaderLease(NamedTuple):
    """The turn as it stands. `rounds`: how often it was taken or renewed: the number of the present guard run."""

    epoch: int
    rounds: int
    holder: str
    until: datetime

    def is_held(self, now: datetime) -> bool:
        """Whether anybody has it at `now`."""
        return bool(self.holder) and now < self.until <= now + LEASE_MAX


def load_leader_lease(ask: Query) -> LeaderLease | None:
    """The turn; None before the first one."""
    rows = ask("SELECT epoch, rounds, holder, until_us FROM turn", ())
    for epoch, rounds, holder, until_us in rows:
        return LeaderLease(epoch, rounds, holder, from_micros(until_us))
    return None


def is_leader(turn: LeaderLease | None, epoch: int, now: datetime) -> bool:
    """Whether `epoch` may act at `now`."""
    return turn is not None and turn.epoch == epoch and turn.is_held(now)


def acquire_leader_lease(ask: Query, tell: Execute, holder: str, now: datetime, lasts: timedelta) -> int | None:
    """The epoch of the turn that `holder` has until `now + lasts`; None while another one has it.

    `holder` names one process, never a machine: its own turn it renews, with the same epoch.
    """
    require(bool(holder), "holder", "is empty", "name the process")
    require(timedelta() < lasts <= LEASE_MAX, "turn", f"cannot last {lasts}", "three guard runs are enough")
    turn, until_us = load_leader_lease(ask), to_micros(now + lasts)
    holder = make_storable(holder)
    if turn is None:
        tell("INSERT INTO turn (id, epoch, rounds, holder, until_us) VALUES (1, 1, 1, ?, ?)", [(holder, until_us)])
        return 1
    own = turn.holder == holder
    if turn.is_held(now) and not own:
        return None
    epoch = turn.epoch if own else turn.epoch + 1
    tell("UPDATE turn SET epoch = ?, rounds = rounds + 1, holder = ?, until_us = ? WHERE id = 1", [(epoch, holder, until_us)])
    return epoch


def release_leader_lease(tell: Execute, epoch: int) -> None:
    """Give the turn of `epoch` back; nothing where another one has it by now."""
    tell("UPDATE turn SET holder = '', until_us = 0 WHERE id = 1 AND epoch = ?", [(epoch,)])
