"""A guard over two simulated machines that can be interrupted at any round, and goes on in whatever ledger it is given.

`train` idles from 16:10 and is stopped by its policy an hour later; `keep` idles as well, and somebody protected it. The clouds
are built anew by each call, so that two watches that go on from the same ledger can be compared.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from costguard.guard.overrides import PROTECT, Override
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Handling
from costguard.settings import check_settings
from costguard.testing.cloud import SimulatedCloud
from costguard.testing.doubles import FakeClock, RecordingNotifier
from costguard.testing.guarding import GuardedClouds
from costguard.testing.machine import make_busy_rule, make_quiet_rule

BEGIN = datetime(2026, 11, 20, 16, tzinfo=UTC)
EVERY = timedelta(minutes=5)
INTERRUPTED, ACT_ROUND = 13, 14
"""The round before which the frozen ledger was interrupted, in the grace of the stop, and that in which it is sent then."""
SETTINGS = """
[[policy]]
name = "idle-gpu"
arm = "stop"
when = "state == 'idle' && confidence >= 0.9"
for = "45m"
match = { gpu = true }
then = [{ do = "notify" }, { after = "15m", do = "stop" }]

[rails]
acts = { fleet_percent_day = 100 }
"""


class Watched(NamedTuple):
    """What rounds did: (round, act, machine, whether done), (round, title of a message), and (machine, state, requests)."""

    acts: list[tuple[int, str, str, bool]]
    messages: list[tuple[int, str]]
    intents: list[tuple[str, str, int]]


def watch_rounds(url: str, first: int, end: int) -> Watched:
    """Play the rounds `first` to `end` (excluded) with a watchdog that starts now, on the ledger at `url`."""
    clock = FakeClock(BEGIN)
    cloud = SimulatedCloud("aws", clock)
    for name in ("train", "keep", "busy"):
        box = cloud.add(
            name,
            rate="32.77",
            gpu="A100-80GB-SXM",
            gpus=8,
            at=BEGIN,
            handling=Handling(stops=True, terminates=True),
            owner="ada",
        )
        box.families = frozenset(("duty", "cpu", "io"))
        cloud.measures(name, make_busy_rule(gpus=8), at=BEGIN)
        if name != "busy":
            cloud.measures(name, make_quiet_rule(gpus=8), at=BEGIN + 2 * EVERY)
    clock.advance(first * EVERY)
    told = RecordingNotifier(clock)
    if first == 0:
        with GuardStore(url, rails=Rails()) as book:
            key = cloud.machines["keep"].key
            book.add_override(Override(id="kept", what=PROTECT, who="ada", why="the demo of Monday", at=BEGIN, key=key))
    watch = GuardedClouds(
        {"aws": cloud},
        check_settings(SETTINGS, "a test"),
        clock=clock,
        notifier=told,
        ledger_url=url,
        interval=EVERY,
    )
    try:
        for _ in range(first, end):
            watch.poll()
            watch.guard()
            clock.advance(EVERY)
    finally:
        watch.close()
    assert watch.run is not None
    return Watched(
        acts=[(_find_round(one.at), one.act, one.name, one.done) for one in cloud.acts],
        messages=[(_find_round(one.at), one.title) for one in told.messages],
        intents=sorted((one.life.key.id, one.state, one.sends) for one in watch.run.intents),
    )


def _find_round(at: datetime) -> int:
    return (at - BEGIN) // EVERY
