"""What agents claim and what it comes to: a lie of idleness stops nothing, a lie of work outlasts no cap, silence is blind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from costguard.agents.samples import drop_contradicted_samples
from costguard.guard.activity import classify_activity, probe_activity
from costguard.guard.alerts.blind import find_silent_agents, get_agent_state
from costguard.guard.context import estimate_interval_of_samples
from costguard.guard.policy import Rails
from costguard.guard.signals import ACTIVE, IDLE, UNKNOWN
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Observation
from costguard.services.guarding.act.recheck import recheck_activity
from costguard.values.calendar import Period
from costguard.values.sample import AGENT_ALIVE, CPU_CORES, CPU_UTIL, DISK, GPU_UTIL, NETWORK, Sample
from tests.metering.stories import machine
from tests.web.desks import MIN, NOON, Rig, S, beat, envelope, keys, ledger_at, record, rig

ONE, TWO = keys()
QUIET: Mapping[str, float] = {GPU_UTIL: 0.0, CPU_CORES: 0.0, NETWORK: 0.0, DISK: 0.0, AGENT_ALIVE: 1.0}
HOUR = timedelta(hours=1)


def seen() -> Observation:
    return machine("i-0", started_at=NOON - 3 * HOUR)


def reported(desk: Rig, agent: str, minutes: int, signals: Mapping[str, float], measured: Mapping[int, float]) -> None:
    """Beats of so many minutes; at some of them the provider measures GPU duty."""
    for number in range(1, 4 * minutes + 1):
        at = desk.clock.advance(15 * S)
        if number % 4 == 0 and number // 4 in measured:
            sample = Sample(key=ONE, signal=GPU_UTIL, at=at - 5 * S, value=measured[number // 4])
            desk.heard.add_provider_samples([sample])
            with desk.book.begin_transaction() as page:
                page.record_samples([sample])
        desk.send(envelope(agent, desk.agent(agent).seq + 1, at, beat(record(at, **signals))))


def judged(desk: Rig) -> tuple[str, Sequence[Sample]]:
    samples, now = desk.samples(ONE), desk.clock.now()
    work = classify_activity(
        seen(),
        samples,
        now=now,
        since=NOON - 3 * HOUR,
        poll=estimate_interval_of_samples(samples, MIN),
        window=20 * MIN,
        warmup_max=MIN,
    )
    return work.state, samples


def test_a_quiet_machine_that_says_so_is_idle(tmp_path: Path) -> None:
    with rig(ledger_at(tmp_path)) as desk:
        agent = desk.joined(ONE)
        reported(desk, agent, 24, QUIET, {})
        assert judged(desk)[0] == IDLE


def test_an_agent_that_claims_idleness_while_its_provider_measures_work_is_not_believed(tmp_path: Path) -> None:
    for every, expected in ((1, {ACTIVE}), (5, {ACTIVE, UNKNOWN})):
        folder = tmp_path / str(every)
        folder.mkdir()
        with rig(ledger_at(folder)) as desk:
            agent = desk.joined(ONE)
            reported(desk, agent, 24, QUIET, dict.fromkeys(range(1, 25, every), 90.0))
            assert judged(desk)[0] in expected


def test_a_rare_measure_of_the_provider_leaves_doubt_and_not_idleness(tmp_path: Path) -> None:
    """Two of five measures show work, fewer than would be work by themselves among so many of the agent's."""
    with rig(ledger_at(tmp_path)) as desk:
        agent = desk.joined(ONE)
        reported(desk, agent, 24, QUIET, {5: 90.0, 10: 0.0, 15: 90.0, 20: 0.0})
        assert judged(desk)[0] != IDLE


def test_what_the_agent_sees_and_the_provider_does_not_is_work(tmp_path: Path) -> None:
    with rig(ledger_at(tmp_path)) as desk:
        agent = desk.joined(ONE)
        reported(desk, agent, 24, {**QUIET, CPU_CORES: 3.0}, dict.fromkeys(range(1, 25), 0.0))
        assert judged(desk)[0] == ACTIVE


def test_only_a_claim_of_quiet_is_held_against_the_provider() -> None:
    def sample(signal: str, value: float, at: timedelta = timedelta()) -> Sample:
        return Sample(key=ONE, signal=signal, at=NOON + at, value=value)

    latest = {GPU_UTIL: sample(GPU_UTIL, 80.0), CPU_UTIL: sample(CPU_UTIL, 0.2), "gpu_power_w": sample("gpu_power_w", 500.0)}
    kept = [(GPU_UTIL, 90.0), (CPU_UTIL, 50.0), (CPU_UTIL, 0.0), (CPU_CORES, 0.0), ("gpu_power_w", 450.0)]
    assert drop_contradicted_samples([sample(*one) for one in kept], latest) == tuple(sample(*one) for one in kept)
    assert drop_contradicted_samples([sample(GPU_UTIL, 0.0), sample("gpu_power_w", 70.0)], latest) == ()
    late = sample(GPU_UTIL, 0.0, 16 * MIN)
    assert drop_contradicted_samples([late], latest) == (late,)


def test_a_probe_hears_the_agent_of_this_very_moment(tmp_path: Path) -> None:
    """The ledger knows nothing of the last quarter of a minute yet: the desk does."""
    with rig(ledger_at(tmp_path)) as desk, GuardStore(desk.url, rails=Rails()) as book:
        agent = desk.joined(ONE)
        reported(desk, agent, 20, QUIET, {})

        def why() -> str:
            now = desk.clock.now()
            return recheck_activity(
                seen(), None, (), book=book, source_of=lambda _: None, interval=MIN, lags={}, now=now, also=(desk.heard,)
            )

        assert why() == ""
        at = desk.clock.advance(15 * S)
        desk.send(envelope(agent, 1000, at, beat(record(at, **{**QUIET, CPU_CORES: 2.0}))))
        assert why() == "it is active: CPU 2 cores just now"
        period = Period(start=at - MIN, end=at)
        fresh = desk.heard.fetch_utilization([seen()], period).samples
        assert probe_activity(fresh, at, MIN, seen()) == "CPU 2 cores just now"
        assert desk.heard.fetch_utilization([machine("i-9")], period).samples == ()


def test_silence_is_blind_and_never_idle(tmp_path: Path) -> None:
    with rig(ledger_at(tmp_path)) as desk:
        agent = desk.joined(ONE)
        reported(desk, agent, 24, QUIET, {})
        assert judged(desk)[0] == IDLE
        desk.clock.advance(4 * MIN)
        assert judged(desk)[0] == UNKNOWN
        assert get_agent_state(desk.agent(agent), None, desk.clock.now()) == "silent"
        with_no_machine = find_silent_agents([desk.agent(agent)], [], desk.clock.now())
        assert with_no_machine == {}
