"""Which machines of a status are shown, and in which order: `status -p aws --owner vision --state idle --sort spent`.

Example: `--state idle` keeps machines whose work is idle, `--state stopped` those that are stopped. Names are compared without
regard to case. The sums of a status stay those of the whole fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from costguard.errors import InputError
from costguard.guard.signals import ACTIVITY_STATES
from costguard.reporting.status import ABSENT_STATE, FleetStatus, ResourceBurn
from costguard.values.checks import require_one_of
from costguard.values.resource import STATES

SORTS: Mapping[str, Callable[[ResourceBurn], object]] = {
    "usd_per_hour": lambda _: 0,  # as a status is ordered anyway
    "spent": lambda one: -one.live.spent.expected.nano,
    "name": lambda one: (one.live.observation.name or one.live.observation.key.id).casefold(),
    "owner": lambda one: (not one.owner, one.owner.casefold()),
    "provider": lambda one: tuple(one.live.observation.key),
    "up": lambda one: one.live.observation.started_at or one.live.first_seen_at,
}
STATES_SHOWN = (*ACTIVITY_STATES, *(one for one in STATES if one not in ACTIVITY_STATES), ABSENT_STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFilter:
    """What was asked for; empty: all. `states`: of the machine or of its work. `sort`: of SORTS."""

    providers: Collection[str] = ()
    owners: Collection[str] = ()
    states: Collection[str] = ()
    sort: str = "usd_per_hour"

    def __post_init__(self) -> None:
        """Check the words that have a list; raises InputError."""
        require_one_of(self.sort, SORTS, "--sort")
        for state in self.states:
            require_one_of(state, STATES_SHOWN, "--state")

    def select_machines(self, status: FleetStatus) -> tuple[ResourceBurn, ...]:
        """Return the machines of `status` that fit, in order; raises InputError for a provider or owner that none has."""
        _require_known(self.providers, {one.live.observation.key.provider for one in status.resources}, "--provider")
        _require_known(self.owners, {one.owner for one in status.resources if one.owner}, "--owner")
        owners = {one.casefold() for one in self.owners}
        chosen = [
            one
            for one in status.resources
            if (not self.providers or one.live.observation.key.provider in self.providers)
            and (not owners or one.owner.casefold() in owners)
            and (not self.states or one.state in self.states or one.work.state in self.states)
        ]
        return tuple(sorted(chosen, key=SORTS[self.sort]))  # type: ignore[arg-type]  # each key orders its own column


def _require_known(words: Collection[str], names: Collection[str], field: str) -> None:
    folded = {one.casefold() for one in names}
    for word in words:
        if word.casefold() not in folded:
            hint = f"there are: {', '.join(sorted(names)[:10])}" if names else "the ledger has no machine yet"
            raise InputError(f"no machine is of '{word}'", field=field, hint=hint)
