"""Right before an act a whole group is measured: one that works or cannot be measured is against it, and nothing is raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from costguard.errors import UnreachableError
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.providers.ports import InstanceSource
from costguard.services.guarding.act.recheck import find_group_members, recheck_activity
from costguard.values.calendar import Period
from costguard.values.resource import ResourceKey
from costguard.values.sample import GPU_UTIL, Sample, UtilizationSamples
from tests.guard.cases import machine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIN = timedelta(minutes=1)
FROM = ("label:cluster",)


@dataclass
class Account:
    """An account that is asked for measures: GPU duty by id, a sample a minute; one that is not there is not measured."""

    duty: dict[str, float]
    broken: str = ""
    asked: list[list[str]] = field(default_factory=list)

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        self.asked.append([one.key.id for one in observations])
        if self.broken:
            raise UnreachableError(self.broken, provider="aws")
        ats = [period.end - n * MIN for n in range(10)]
        of = [one for one in observations if one.key.id in self.duty]
        return UtilizationSamples(
            samples=tuple(Sample(key=o.key, signal=GPU_UTIL, at=at, value=self.duty[o.key.id]) for o in of for at in ats)
        )


def node(id_: str, group: str = "exp-7", **stated: Any) -> LiveResource:  # noqa: ANN401 - any field
    return machine(id_, labels=(("cluster", group),), **stated)


NODES = (node("i-0"), node("i-1"), node("i-2"), node("i-3", "exp-8"), node("i-4", state="stopped"))


@pytest.fixture
def book(tmp_path: Path) -> Iterator[GuardStore]:
    with GuardStore(f"sqlite:///{tmp_path / 'ledger.db'}", rails=Rails()) as made:
        assert made.acquire_leader_lease("me", NOW - MIN, timedelta(hours=1)) == 1
        yield made


def against(book: GuardStore, account: Account, *, elsewhere: Account | None = None) -> str:
    """What speaks against an act on i-0. `elsewhere`: who is asked about i-2."""
    seen = NODES[0].observation
    group, others = find_group_members(seen, NODES, FROM)

    def source_of(key: ResourceKey) -> InstanceSource:
        return cast("InstanceSource", elsewhere if elsewhere and key.id == "i-2" else account)

    return recheck_activity(seen, group, others, book=book, source_of=source_of, interval=MIN, lags={}, now=NOW)


def test_the_others_of_a_group_are_those_that_run_in_any_region() -> None:
    far = replace(NODES[2].observation, key=NODES[2].observation.key._replace(region="us-west-2"))
    listed = (*NODES[:2], replace(NODES[2], observation=far), *NODES[3:], replace(node("i-5"), absent_at=NOW))
    group, others = find_group_members(NODES[0].observation, listed, FROM)
    assert group is not None
    assert [one.key.id for one in others] == ["i-1", "i-2"]
    assert find_group_members(machine("i-9").observation, listed, FROM) == (None, [])


def test_a_quiet_group_is_asked_for_in_one_question_and_nothing_speaks_against_the_act(book: GuardStore) -> None:
    account = Account({"i-0": 0.0, "i-1": 0.0, "i-2": 0.0})
    assert against(book, account) == ""
    assert account.asked == [["i-0", "i-1", "i-2"]]


def test_a_member_that_works_now_speaks_against_it(book: GuardStore) -> None:
    told = against(book, Account({"i-0": 0.0, "i-1": 0.0, "i-2": 90.0}))
    assert told == "i-2 of its group exp-7 is active: GPU duty 90 % just now"


def test_its_own_work_is_told_first(book: GuardStore) -> None:
    assert against(book, Account({"i-0": 90.0, "i-1": 90.0})).startswith("it is active: GPU duty")


def test_a_member_that_nothing_measures_now_speaks_against_it(book: GuardStore) -> None:
    assert against(book, Account({"i-0": 0.0, "i-2": 0.0})) == "i-1 of its group exp-7 is not measured now"


def test_a_cloud_that_cannot_be_asked_speaks_against_it_and_raises_nothing(book: GuardStore) -> None:
    quiet = {"i-0": 0.0, "i-1": 0.0, "i-2": 0.0}
    told = against(book, Account(quiet), elsewhere=Account(quiet, broken="the provider answered 503"))
    assert told.startswith("i-2 of its group exp-7 cannot be measured now: ")
    assert "503" in told
    assert against(book, Account(quiet, broken="no answer")).startswith("it cannot be measured now")
