"""One `costguard watch` with accounts that lie in memory, for `bench.scale` and the campaign of kills.

    python -m bench.scale_worker SETTINGS LOG ACCOUNTS INSTANCES POLL_S LEASE_MIN_S [ignore-epoch]

Everything is the real watchdog, but for the clouds. Each call to one, and each poll that is in the ledger, is a line of LOG:

    call 1795219200.123 17 4711     account 17, by the process 4711
    kept 1795219200.456 17 3 4711   account 17, under the lease that was taken the third time

`ignore-epoch`: the control. It records whatever lease it has.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from bench import fleet
from costguard.ledger import duties
from costguard.ledger.duties import DutyStore
from costguard.ledger.duty_records import Lease, require_lease
from costguard.ledger.spans import writer
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation, Price
from costguard.services import shared_polls, watchdog_context
from costguard.services.watch import run_watch
from costguard.values.money import Rate
from costguard.values.resource import ScopeKey


@dataclass(frozen=True, slots=True)
class Log:
    """An append-only file; each line is written at once."""

    file: int

    def write(self, *words: object) -> None:
        """Write a line."""
        os.write(self.file, f"{' '.join(map(str, words))}\n".encode())


@dataclass(frozen=True, slots=True, eq=False)
class MemoryAccount:
    """An account with `instances` machines, of which the price of one changes every minute."""

    number: int
    instances: int
    poll_s: float
    log: Log

    @property
    def providers(self) -> Sequence[str]:
        """Its cloud."""
        return ("aws",)

    @property
    def scope(self) -> ScopeKey:
        """Its only scope."""
        return ScopeKey("aws", f"{self.number:012}", "us-east-1")

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return the one scope."""
        return (self.scope,)

    def poll(self, scope: ScopeKey) -> Poll:
        """List all machines."""
        self.log.write("call", time.time(), self.number, os.getpid())
        asked_at = datetime.now(UTC)
        time.sleep(self.poll_s)
        return Poll(scope=scope, at=asked_at, inventory=Complete(list_machines(scope, self.instances, int(time.time()) // 60)))


def list_machines(scope: ScopeKey, instances: int, changes: int) -> tuple[Observation, ...]:
    """Return the machines of an account after so many `changes`, each of the price of one machine."""
    items = []
    for place in range(instances):
        one = fleet.Machine(scope.provider, place)
        dearer = changes // instances + (1 if place <= changes % instances else 0)
        price = Price(Rate(nano_per_hour=1_000_000_000 + dearer % 1_000_000))
        items.append(one.seen(key=one.key._replace(account=scope.account), prices=(price,)))
    return tuple(items)


def main() -> int:
    """Run until a signal ends it."""
    settings, log_path, accounts, instances, poll_s, lease_min_s, *more = sys.argv[1:]
    log = Log(os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    sources = tuple(MemoryAccount(number, int(instances), float(poll_s), log) for number in range(int(accounts)))
    finish = DutyStore.finish_poll

    def finish_and_tell(self: DutyStore, lease: Lease, *, next_in: timedelta, at: datetime, body: str) -> None:
        finish(self, lease, next_in=next_in, at=at, body=body)
        log.write("kept", time.time(), int(lease.account.rpartition(" ")[2]) - 1, lease.epoch, os.getpid())

    with (
        patch.object(watchdog_context, "list_sources", lambda _clouds: sources),
        patch.object(DutyStore, "finish_poll", finish_and_tell),
        patch.object(shared_polls, "LEASE_MIN_S", float(lease_min_s)),
        patch.object(duties, "require_lease", (lambda _ask, _lease: None) if more else require_lease),
        patch.object(writer, "require_lease", (lambda _ask, _lease: None) if more else require_lease),
    ):
        return run_watch(
            once=False, interval=None, dry_run=False, show=lambda _view: None, config=settings, json_log=True, offline=False
        )


if __name__ == "__main__":
    sys.exit(main())
