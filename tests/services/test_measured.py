"""Measuring: samples of what runs, from whoever measures; what cannot be measured is said and never zero."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from costguard.errors import ProviderError
from costguard.metering.inventory import Complete, Failed, Inventory, Poll
from costguard.metering.observation import Observation
from costguard.metering.scope_state import AccrualResult
from costguard.providers.ports import InstanceSource
from costguard.services.poll.poll import MEASURE_LOOKBACK, ScopePoll, measure_activity
from costguard.values.calendar import Period
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import Sample, UtilizationSamples

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCOPE = ScopeKey("acme", "main", "all")


def box(name: str, state: str = "running") -> Observation:
    return Observation(key=ResourceKey("acme", "main", "r", name), state=state)


class Kept:
    """A ledger that keeps samples in a list."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def record_polls(self, polls: Sequence[Poll]) -> Sequence[AccrualResult]:  # noqa: ARG002 - the port's
        return ()

    def find_suspects(self, poll: Poll) -> Sequence[ResourceKey]:  # noqa: ARG002 - the port's
        return ()

    def list_scopes_of(self, provider: str) -> Sequence[ScopeKey]:  # noqa: ARG002 - the port's
        return ()

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        self.samples += samples
        return frozenset()


class Listed:
    """An account that only lists."""

    providers = ("acme",)

    def list_scopes(self) -> Sequence[ScopeKey]:
        return (SCOPE,)

    def poll(self, scope: ScopeKey) -> Poll:
        return Poll(scope=scope, at=NOW, inventory=Complete(()))


class Measures(Listed):
    """An account that measures; `broken`: what it raises instead."""

    def __init__(self, broken: Exception | None = None, blind: tuple[tuple[ResourceKey, str], ...] = ()) -> None:
        self.broken, self.blind = broken, blind
        self.asked: list[tuple[tuple[str, ...], Period]] = []

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        self.asked.append((tuple(one.key.id for one in observations), period))
        if self.broken:
            raise self.broken
        taken = tuple(Sample(key=one.key, signal="gpu_util", at=NOW - timedelta(minutes=1), value=3.0) for one in observations)
        return UtilizationSamples(samples=taken, blind=self.blind)


def seen(source: InstanceSource, inventory: Inventory) -> ScopePoll:
    return ScopePoll(source=source, poll=Poll(scope=SCOPE, at=NOW, inventory=inventory))


def test_only_what_runs_is_measured_and_far_enough_back_for_late_series() -> None:
    source, ledger = Measures(), Kept()
    found = measure_activity([seen(source, Complete((box("a"), box("b", "stopped"))))], ledger, NOW)
    assert source.asked == [(("a",), Period(start=NOW - MEASURE_LOOKBACK, end=NOW))]
    assert (found.samples, [sample.key.id for sample in ledger.samples]) == (1, ["a"])


def test_an_account_that_does_not_measure_or_was_not_seen_is_not_asked() -> None:
    source = Measures()
    found = measure_activity([seen(Listed(), Complete((box("a"),))), seen(source, Failed("500"))], Kept(), NOW)
    assert (found.samples, found.notes, source.asked) == (0, (), [])


def test_one_that_breaks_is_a_note_and_stops_no_other() -> None:
    broken, sound, ledger = Measures(ProviderError("no rights", provider="acme")), Measures(), Kept()
    found = measure_activity([seen(broken, Complete((box("a"),))), seen(sound, Complete((box("b"),)))], ledger, NOW)
    assert [sample.key.id for sample in ledger.samples] == ["b"]
    assert len(found.notes) == 1
    assert "no rights" in found.notes[0]


def test_what_the_provider_cannot_measure_is_said_once() -> None:
    boxes = (box("a"), box("b"))
    source = Measures(blind=tuple((one.key, "no agent is installed") for one in boxes))
    found = measure_activity([seen(source, Complete(boxes))], Kept(), NOW)
    assert found.notes == ("acme: no agent is installed",)
