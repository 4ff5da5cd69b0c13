"""The command line with one operation on its files failing: a process that has everything imported, and forks a life for each.

    python -m tests.disks.commands          under the shim, with a Life as JSON on each line of stdin
    python -m tests.disks.commands LIFE     this one life, with nothing failing by itself

Each life runs in `folder`, with its stdout in a file there (so that writing the answer may fail, too) and its stderr out of the
shim's sight. Its cloud stands outside: what it was asked to stop stays in `log`. A line on stdout says the exit code, how many
operations there were, and of which kind the one was that failed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from costguard.cli import run_cli
from costguard.errors import LedgerError
from costguard.guard.action_intents import EXECUTING, SEND_WITHIN, Intent
from costguard.guard.overrides import Override
from costguard.ledger.guard.store import GuardStore
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Handling, Observation
from costguard.providers import plugins
from costguard.quoting.offer import OfferListing
from costguard.services.guarding import overrides
from costguard.services.poll import configured_providers
from costguard.services.report import ledger_answers
from costguard.values.calendar import Period
from costguard.values.provider import ACCEPTED, ActionResponse
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL, Sample, UtilizationSamples
from tests import shop
from tests.cli.acme import Acme, installed, machine
from tests.disks.trace import shimmed

BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCOPE = ScopeKey("acme", "lab", "here")
IDLE, KEPT = "m-1", "m-2"
SETTINGS = """
[watch]
jitter = "0s"
[rails]
first_seen = "5s"
acts = { per_10m = 10, fleet_percent = 100, fleet_percent_day = 100 }
[[policy]]
name = "off"
arm = "stop"
match = { ids = ["m-1", "m-2"] }
when = 'power == "running"'
for = "1m"
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
[notify]
console_is_delivery = true
[providers.acme]
"""


@dataclass(frozen=True, slots=True)
class Cloud:
    """One account with two machines, of which somebody keeps the second. What it was asked to do stands in the file `log`."""

    log: Path
    now: Callable[[], datetime]

    @property
    def providers(self) -> Sequence[str]:
        return ("acme",)

    def list_scopes(self) -> Sequence[ScopeKey]:
        return (SCOPE,)

    def poll(self, scope: ScopeKey) -> Poll:
        return Poll(scope=scope, at=self.now(), inventory=Complete((self._seen(IDLE), self._seen(KEPT))))

    def look_up(self, key: ResourceKey) -> Observation | None:
        return self._seen(key.id)

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        assert not lose
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{key.id}\n".encode())
        os.close(file)
        return ActionResponse(said=ACCEPTED)

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        minutes = range(int((period.end - period.start) / MINUTE))
        samples = [
            Sample(key=one.key, signal=signal, at=period.start + n * MINUTE, value=0.0)
            for one in observations
            for signal in (GPU_UTIL, CPU_UTIL)
            for n in minutes
        ]
        return UtilizationSamples(samples=tuple(samples))

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        assert gpus is None
        offer = shop.offer("acme", "H100-SXM", "1.5", seen=self.now().date())
        return OfferListing(offers=(replace(offer, source="live"),), why="")

    def _seen(self, name: str) -> Observation:
        stopped = f"{name}\n" in self.log.read_text()
        labels = (("costguard", "never"),) if name == KEPT else ()
        told = replace(
            machine("acme", name), labels=labels, handling=Handling(stops=True), started_at=BEGIN - timedelta(days=1)
        )
        return replace(told, state="stopped" if stopped else "running")


@dataclass(slots=True)
class Life:
    """What one life is to do. `minute`: how many have gone by since the story began. `deaf`: it is broken on purpose."""

    words: list[str]
    folder: str
    log: str
    minute: float
    nth: int
    how: int
    deaf: bool


class Deaf:
    """A guard's book that is broken on purpose: it does not hear that the disk failed, and says that all is well."""

    plain_move, plain_wish = GuardStore.move_intent, GuardStore.add_override

    def add_override(self: GuardStore, wish: Override) -> None:  # type: ignore[misc]  # it stands in another class
        with suppress(LedgerError):
            Deaf.plain_wish(self, wish)

    def move_intent(self: GuardStore, intent: Intent, state: str, now: datetime, **more: Any) -> Intent | None:  # type: ignore[misc]  # noqa: ANN401 - the same
        try:
            return Deaf.plain_move(self, intent, state, now, **more)
        except LedgerError:
            expires_at = now + SEND_WITHIN if state == EXECUTING else None
            return replace(intent, state=state, moved_at=now, sends=intent.sends + 1, sent_at=now, expires_at=expires_at)


@contextmanager
def around(life: Life) -> Iterator[None]:
    """The folder, the clock and the cloud of a life."""
    folder = Path(life.folder)
    os.chdir(folder)
    places = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    os.environ |= places | {"HOME": str(folder), "COSTGUARD_LEDGER__URL": f"sqlite:///{folder}/data/ledger.db", "TZ": "UTC"}
    began = datetime.now(UTC)

    def now() -> datetime:
        return BEGIN + timedelta(minutes=life.minute) + (datetime.now(UTC) - began)

    if life.deaf:
        patch.multiple(GuardStore, add_override=Deaf.add_override, move_intent=Deaf.move_intent).start()
    cloud = Acme(accounts=[Cloud(Path(life.log), now)])  # type: ignore[list-item]  # any account
    with (
        patch.object(configured_providers.SystemClock, "now", lambda _: now()),
        patch.object(overrides, "get_now", now),
        patch.object(ledger_answers, "get_now", now),
        patch.object(plugins, "load_providers", installed(cloud)),
    ):
        yield


def live(life: Life, told: int) -> None:
    """One life, to the end of its process."""
    folder, shim = Path(life.folder), shimmed()
    for number, path in ((1, folder / "out"), (2, folder.parent.parent / "err")):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    with around(life):
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 - as a process begins
        shim.disks_arm(life.nth, life.how)
        code = run_cli(life.words)
        try:
            sys.stdout.flush()  # as a process does when it ends
        except OSError:
            code = 120
    count, hit = shim.disks_count(), shim.disks_hit()
    shim.disks_arm(0, 0)
    sys.stderr.flush()
    os.write(told, f"{code} {count} {chr(hit) if hit else '-'}\n".encode())


def main() -> None:
    """Serve lives."""
    import alembic.command  # noqa: F401 - the slowest import, once for all lives

    from costguard.services.quote import offers  # noqa: F401 - the same
    from costguard.services.watch_loop import watch  # noqa: F401 - the same

    gc.freeze()  # what all lives share is not looked through
    told = os.dup(1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                live(Life(**json.loads(line)), told)
            finally:
                os._exit(0 if threading.active_count() else 1)
        os.waitpid(child, 0)
        os.write(told, b"over\n")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        alone = Life(**json.loads(sys.argv[1]))
        with around(alone):
            sys.exit(run_cli(alone.words))
