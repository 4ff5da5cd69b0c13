"""Simulating: over a ledger that a played story filled, the replay finds what the real guard did, at the same minute.

A look at every interval and a look only where something may have changed must come to the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.context import GuardConfig
from costguard.guard.policy import Rails
from costguard.guard.replay.simulation import NO, NOT_KNOWN, YES, SimulatedStop, Simulation, sum_cost_intervals
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.observations import HistoryReader
from costguard.metering.observation import Handling
from costguard.services.guarding.simulate import SimulationFacts, simulate_policies
from costguard.settings import check_settings
from costguard.values.calendar import Period
from tests.stories import parse_story, play_story
from tests.stories.guard_player import GuardPlayer
from tests.stories.player import PollPlayer, StoryOutcome

HEAD = """
title: {title}
hazard: GUARD 8
start: 2026-11-06 16:00
end: {end}
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
policies
  idle-gpu  arm stop, gpu, when idle, for 20m, notify, +10m stop
events
  16:00  box busy
"""
QUIET = "  16:10  box quiet\n"


def played(tmp_path: Path, events: str, *, end: str = "18:30", guarded: bool = False) -> StoryOutcome:
    story = parse_story(HEAD.format(title="history", end=end).lstrip() + events)
    return play_story(story, GuardPlayer if guarded else PollPlayer, tmp_path)


def simulated(outcome: StoryOutcome, *, policies: str | None = None, every_step: bool = False) -> Simulation:
    story = outcome.stage.story
    settings = check_settings(policies or story.config, "story")
    rules = GuardConfig(
        admin_route=True,
        policies=settings.policies,
        budgets=settings.budgets,
        rails=settings.rails or Rails(),
        owner_from=settings.defaults.owner_from,
        group_from=settings.defaults.group_from,
        interval=story.poll,
    )
    acts = Handling(stops=True, terminates=True)
    known = SimulationFacts(lags={}, handling=dict.fromkeys(outcome.stage.clouds, acts), billing=outcome.stage.rules)
    period = Period(start=story.start, end=story.end + story.poll)
    with LedgerReader(outcome.stage.ledger_url) as reader, reader.snapshot() as ask:
        return simulate_policies(HistoryReader(ask), rules, period, story.end + story.poll, known, every_step=every_step)


def only(found: Simulation) -> SimulatedStop:
    (stop,) = found.stops
    return stop


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-06T{text}:00").replace(tzinfo=UTC)


def test_a_replay_of_what_the_guard_did_stops_at_the_same_minute(tmp_path: Path) -> None:
    outcome = played(tmp_path, QUIET, guarded=True, end="17:00")
    (act,) = outcome.acts
    stop = only(simulated(outcome))
    assert (stop.at, stop.name, stop.act) == (act.at, "box", "stop")
    assert stop.because == "stopped"
    assert stop.false_stop == NOT_KNOWN  # it was really stopped, so nobody can say whether it would have worked


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> StoryOutcome:
    """An idle machine that nobody guards."""
    return played(tmp_path_factory.mktemp("quiet"), QUIET)


def test_an_idle_machine_that_nobody_stopped_is_saved_net_of_its_disk(quiet: StoryOutcome) -> None:
    found = simulated(quiet)
    stop = only(found)
    assert (stop.since, stop.told_at, stop.at) == (at("16:10"), at("16:30"), at("16:40"))
    assert (stop.until, stop.false_stop) == (at("18:30"), NO)
    (avoided,), (rest,), (saved,) = stop.avoided, stop.at_rest, stop.saved
    assert avoided.expected.format() == "60.08"  # 110 min at 32.77
    assert rest.expected.format(4) == "0.1005"  # 500 GB at 0.08 a month of 730 h
    assert saved.expected == avoided.expected - rest.expected
    assert (found.policies[0].notices, found.policies[0].questions) == (1, 0)


def test_work_within_the_hour_after_is_a_suspected_false_stop(tmp_path: Path) -> None:
    stop = only(simulated(played(tmp_path, QUIET + "  17:00  box busy\n", end="17:30")))
    assert (stop.at, stop.false_stop, stop.because) == (at("16:40"), YES, "worked")
    assert stop.worked_at is not None
    assert abs(stop.worked_at - at("17:00")) <= timedelta(minutes=1)
    assert stop.until == stop.worked_at


def test_a_machine_that_idles_again_after_it_worked_is_wanted_again_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    found = simulated(played(tmp_path, QUIET + "  17:00  box busy\n  17:20  box quiet\n"))
    stop, again = found.policies[0].stops
    assert (stop.until, again.at) == (at("17:00"), at("17:50"))
    assert found.saved == sum_cost_intervals([stop.saved, again.saved])
    assert found.policies[0].notices == 2


def test_what_was_kept_or_protected_is_held_back_and_by_whom(tmp_path: Path) -> None:
    outcome = played(tmp_path, QUIET + "  16:20  protect box\n", guarded=True, end="16:50")
    found = simulated(outcome)
    assert found.stops == ()
    (held,) = found.policies[0].held
    assert [reason for reason, _ in held.reasons] == ["protected"]
    assert not held.rails


def test_a_machine_that_nobody_measures_is_blind_and_never_stopped(tmp_path: Path) -> None:
    found = simulated(played(tmp_path, "  16:10  box no signal\n", end="17:00"))
    assert found.stops == ()
    assert found.policies[0].blind.total > timedelta(minutes=30)
    assert found.policies[0].blind.reasons


def test_a_fact_that_history_lacks_is_unknown_and_said(quiet: StoryOutcome) -> None:
    asks = """
[[policy]]
name = "poor"
when = 'runway < duration("6h")'
then = [{ do = "notify" }, { after = "10m", do = "stop" }]
"""
    found = simulated(quiet, policies=asks)
    assert found.stops == ()
    assert any("runway" in told for told in found.not_replayed)


CHANGES = (
    QUIET + "  17:00  box busy\n",
    QUIET + "  16:45  box busy\n  17:00  box quiet\n",
    "  16:10  box no signal\n  16:40  box quiet\n",
)


@pytest.mark.parametrize("events", CHANGES)
def test_looking_only_where_something_may_change_comes_to_what_every_step_does(tmp_path: Path, events: str) -> None:
    outcome = played(tmp_path, events, end="17:20")
    seldom, always = simulated(outcome), simulated(outcome, every_step=True)
    assert seldom == always
