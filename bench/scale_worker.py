"""One `costguard watch` with accounts that lie in memory, for `bench.scale` and the campaign of kills.

    python -m bench.scale_worker SETTINGS LOG ACCOUNTS INSTANCES POLL_S DEAD_AFTER_S [ignore-epoch] [act] [ignore-turn]

Everything is the real watchdog, but for the clouds. Each call to one, and each poll that is in the ledger, is a line of LOG:

    call 1795219200.123 17 4711     account 17, by the process 4711
    kept 1795219200.456 17 3 4711   account 17, by the third job

`DEAD_AFTER_S`: as in `poll_jobs`. `ignore-epoch`: a control. It records whether its job is running or not. `act`: some machines
are meant by a policy that stops them (`bench.scale_machines`). `ignore-turn`: a control. It sends whoever plans by now, and
however old its last look is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bench import fleet
from bench.scale_machines import NAMED, TARGETS, Machines, name_machine, shorten_grace, write_look, write_sent
from costguard.ledger import duties
from costguard.ledger.duties import DutyStore
from costguard.ledger.duty_records import Lease, require_lease
from costguard.ledger.guard import send_gate
from costguard.ledger.spans import writer
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Handling, Observation, Price
from costguard.services.guarding import guard, watchdog_context
from costguard.services.guarding.act import send_action
from costguard.services.poll import poll_jobs
from costguard.services.watch_loop.watch import run_watch
from costguard.values.money import Rate
from costguard.values.provider import ACCEPTED, ActionResponse
from costguard.values.resource import ResourceKey, ScopeKey


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
    machines: Machines | None = None

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
        items = list_machines(scope, self.instances, int(time.time()) // 60)
        return Poll(scope=scope, at=asked_at, inventory=Complete((*items, *self._list_targets(asked_at))))

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return one of the machines that a policy means."""
        found = next((one for one in self._list_targets(datetime.now(UTC)) if one.key == key), None)
        write_look(self.log.file, self.number)
        return found

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Stop it at once."""
        assert self.machines is not None  # noqa: S101 - else none is listed
        assert not lose  # noqa: S101 - it keeps its disk
        place = int(key.id.rpartition("-")[2])
        run = self.machines.stop(self.number, place, datetime.now(UTC))
        write_sent(self.log.file, self.number, place, run)
        return ActionResponse(said=ACCEPTED)

    def _list_targets(self, at: datetime) -> Iterator[Observation]:
        if self.machines is None:
            return
        for place in range(TARGETS):
            run = self.machines.find_run(self.number, place, at)
            one = fleet.Machine("aws", place)
            yield one.seen(
                key=one.key._replace(account=self.scope.account, id=name_machine(self.number, place)),
                name=NAMED,
                state="stopped" if run.ends else "running",
                created_at=self.machines.began - timedelta(days=1),
                started_at=run.since,
                stopped_at=run.ends,
                handling=Handling(stops=True),
            )


def list_machines(scope: ScopeKey, instances: int, changes: int) -> tuple[Observation, ...]:
    """Return the machines of an account after so many `changes`, each of the price of one machine."""
    items = []
    for place in range(instances):
        one = fleet.Machine(scope.provider, place)
        dearer = changes // instances + (1 if place <= changes % instances else 0)
        price = Price(Rate(nano_per_hour=1_000_000_000 + dearer % 1_000_000))
        items.append(one.seen(key=one.key._replace(account=scope.account), prices=(price,)))
    return tuple(items)


@contextmanager
def ignore_turn() -> Iterator[None]:
    """Let acts go whoever has the turn, and send them however long ago they were let go."""
    with (
        patch.object(send_gate, "is_leader", lambda *_: True),
        patch.object(send_action, "LOOK_AGE_MAX_S", 1e9),
        patch.object(send_action, "SEND_LIMIT_S", 1e9),
    ):
        plain = send_action._execute  # noqa: SLF001 - the control takes one check out of it

        def execute(deed: Any, before: Observation) -> Any:  # noqa: ANN401 - as the original
            at = deed.clock.now()
            return plain(replace(deed, clock=SimpleNamespace(now=lambda: at), seconds=lambda: 0.0), before)

        with patch.object(send_action, "_execute", execute):
            yield


def main() -> int:
    """Run until a signal ends it."""
    settings, log_path, accounts, instances, poll_s, dead_after_s, *more = sys.argv[1:]
    log = Log(os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    machines = Machines.open(Path(log_path).parent / "machines") if "act" in more else None
    sources = tuple(MemoryAccount(number, int(instances), float(poll_s), log, machines) for number in range(int(accounts)))
    trusting = (lambda _ask, _lease: datetime.now(UTC)) if "ignore-epoch" in more else require_lease
    finish = DutyStore.finish_poll

    def finish_and_tell(self: DutyStore, lease: Lease, *, every: timedelta, at: datetime, body: str) -> None:
        finish(self, lease, every=every, at=at, body=body)
        log.write("kept", time.time(), int(lease.account.rpartition(" ")[2]) - 1, lease.job, os.getpid())

    with (
        patch.object(watchdog_context, "list_sources", lambda _clouds: sources),
        patch.object(DutyStore, "finish_poll", finish_and_tell),
        patch.multiple(
            poll_jobs,
            HEARTBEAT_S=float(dead_after_s) / 3,
            DEAD_AFTER_S=float(dead_after_s),
            SWEEP_EVERY_S=float(dead_after_s),
        ),
        patch.object(duties, "require_lease", trusting),
        patch.object(writer, "require_lease", trusting),
        patch.object(guard, "LEADER_LEASE_MIN", timedelta(seconds=1)),
        shorten_grace(),
        ignore_turn() if "ignore-turn" in more else nullcontext(),
    ):
        return run_watch(
            once=False, interval=None, dry_run=False, show=lambda _view: None, config=settings, json_log=True, offline=False
        )


if __name__ == "__main__":
    sys.exit(main())
