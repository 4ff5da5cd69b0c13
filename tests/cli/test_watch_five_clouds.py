"""The real `costguard watch` against five fake clouds, every two seconds: the right machines stop, once, and nothing else does.

The process begins beside a watchdog that watched for twenty minutes (see `watched`), and only observes; then it has the turn,
with the policies armed, and acts. What happened is read from the fakes' own logs.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.action_intents import DONE
from costguard.guard.overrides import FREEZE, Override
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from tests.cli.watched import LONGEST_S, Before, Five, Watching, five_clouds, time_goes_on, until

MINUTE = timedelta(minutes=1)
ACTING, OBSERVING = " an hour, acting", " an hour, observing"
"""In the line that a watchdog says where it was otherwise before."""
STOPPABLE = ("runpod", "vast")
"""Not AWS: its measures come every five minutes and ten minutes late, so that ten minutes hold none of them. Not GCP, which no
policy concerns here: what it publishes each minute, four minutes late, leaves no room for a process that starts slowly beside
another one's samples. Both are tried moment by moment in tests/guard/test_late_measures.py."""
RAILS = """
[watch]
interval = "2s"
jitter = "0s"
[rails]
first_seen = "5s"
acts = { per_10m = 10, fleet_percent = 100, fleet_percent_day = 100 }
"""
IDLE = """
[[policy]]
name = "idle-gpu"
arm = "ARM"
match = { gpu = true, providers = ["aws", "lambda", "runpod"] }
when = 'state == "idle"'
for = "10m"
allow_irreversible = true
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
[[policy]]
name = "off"
arm = "ARM"
match = { ids = ["@lambda", "@vast"] }
when = 'power == "running"'
for = "1m"
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
"""
OFF = """
[[policy]]
name = "off"
arm = "ARM"
match = { ids = ["@runpod"] }
when = 'power == "running"'
for = "2s"
allow_irreversible = true
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
"""
MORE = """
[[policy]]
name = "told-after-reload"
arm = "notify"
match = { ids = ["@lambda"] }
when = 'power == "running"'
for = "2s"
then = [{ do = "notify" }]
"""


@pytest.fixture
def born() -> datetime:
    """When the watchdog before began to watch."""
    return datetime.now(UTC) - 20 * MINUTE


@pytest.fixture
def five(tmp_path: Path, born: datetime) -> Iterator[Five]:
    with five_clouds(tmp_path, born) as made:
        yield made


def intents(five: Five) -> dict[str, str]:
    """Machine -> how the act on it stands."""
    with GuardStore(five.ledger, rails=Rails()) as book:
        found = book.load_intents_since(datetime.now(UTC) - 60 * MINUTE)
    assert len({one.life.key for one in found}) == len(found)
    return {one.life.key.id: one.state for one in found}


@pytest.mark.proof
def test_what_idles_or_is_unwanted_stops_once_and_nothing_else_does(five: Five, born: datetime) -> None:
    victims = {(name, five.victim(name)) for name in STOPPABLE}
    with ExitStack() as stack:
        before = Before(five, five.write((RAILS + IDLE).replace("ARM", "notify")), born, MINUTE, stack)
        before.watch_until(datetime.now(UTC))
        assert five.stops() == {}
        five.write((RAILS + IDLE).replace("ARM", "stop"))
        stack.enter_context(time_goes_on(five))
        first = Watching.started(five)
        stack.callback(first.close)
        while not first.said(OBSERVING):  # another has the turn, and stays in force until this one has seen all
            assert first.process.poll() is None, first.tail()
            before.judge(datetime.now(UTC))
        assert five.stops() == {}
        before.judge(datetime.now(UTC))
        before.give_turn()
        until(lambda: list(intents(five).values()) == [DONE] * len(victims), first)
        assert five.resting() == victims
        assert five.stops() == dict.fromkeys(STOPPABLE, 1)
        assert first.said("Terminate train-i-00001"), first.tail()

        assert first.ended(signal.SIGTERM) == 0, first.tail()
        turn = before.book.load_leader_lease()
        assert turn is not None
        assert not turn.holder

        second = Watching.started(five)
        stack.callback(second.close)
        until(lambda: second.said(ACTING), second)
        (five.folder / "costguard.toml").write_text("polcy = 1\n")
        second.process.send_signal(signal.SIGHUP)
        until(lambda: second.said("reload_refused"), second)
        five.write((RAILS + IDLE + MORE).replace("ARM", "stop"))
        second.process.send_signal(signal.SIGHUP)
        until(lambda: second.said('"reloaded"') and second.said("told-after-reload"), second)
        assert second.ended(signal.SIGTERM) == 0, second.tail()
        assert five.stops() == dict.fromkeys(STOPPABLE, 1)
        assert five.resting() == victims
        assert set(intents(five)) == {one for _, one in victims}


@pytest.mark.proof
def test_of_two_watchdogs_one_acts_and_the_other_goes_on_where_it_is_no_more(five: Five) -> None:
    with ExitStack() as stack:
        began = datetime.now(UTC) - 8 * MINUTE
        before = Before(five, five.write((RAILS + OFF).replace("ARM", "notify")), began, 2 * MINUTE, stack)
        before.watch_until(datetime.now(UTC))
        before.book.add_override(
            Override(id="hold it", what=FREEZE, who="the test", why="until one is gone", at=datetime.now(UTC))
        )
        five.write((RAILS + OFF).replace("ARM", "stop"))
        stack.enter_context(time_goes_on(five))
        both = [Watching.started(five) for _ in range(2)]
        for one in both:
            stack.callback(one.close)
        while not all(one.said(OBSERVING) for one in both):
            assert all(one.process.poll() is None for one in both), "\n".join(one.tail() for one in both)
            before.judge(datetime.now(UTC))
        before.give_turn()
        until(lambda: any(one.said(ACTING) for one in both), *both)
        asleep, other = sorted(both, key=lambda one: not one.said(ACTING))
        assert not other.said(ACTING)

        asleep.process.send_signal(signal.SIGSTOP)
        before.book.lift_override("hold it", who="the test", now=datetime.now(UTC))
        asked = five.asked("runpod")
        until(lambda: five.asked("runpod") > asked + 1, other)
        assert five.stops() == {}  # its turn goes on although it is gone
        before.give_turn()  # as a minute does, which nobody wants to wait for
        until(lambda: intents(five) == {five.victim("runpod"): DONE}, other)
        assert five.stops() == {"runpod": 1}

        times = asleep.count(OBSERVING)
        asleep.process.send_signal(signal.SIGCONT)
        until(lambda: asleep.count(OBSERVING) > times, asleep)
        times = asleep.count(ACTING)
        other.process.send_signal(signal.SIGKILL)
        other.process.wait(LONGEST_S)
        before.give_turn()
        until(lambda: asleep.count(ACTING) > times, asleep)
        assert asleep.ended(signal.SIGTERM) == 0, asleep.tail()
        assert five.stops() == {"runpod": 1}
        assert five.resting() == {("runpod", five.victim("runpod"))}
