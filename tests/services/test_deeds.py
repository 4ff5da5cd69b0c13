"""Right before a request everything is asked anew: each thing that may change after the plan was made holds the act back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from costguard.errors import LedgerError, UnreachableError
from costguard.guard.action_intents import EXECUTING, READY, Intent
from costguard.guard.action_plan import RunConstraints, build_action_plan
from costguard.guard.context import GuardConfig
from costguard.guard.limits import Breaker, Headroom
from costguard.guard.overrides import APPROVE, ARM, FREEZE, LEASE, PHASE, PROTECT, Override
from costguard.guard.policy import (
    NOTIFY,
    SCHEDULE_RULE,
    STOP,
    EscalationState,
    OffWindow,
    Policy,
    PolicyStep,
    PolicyTarget,
    Rails,
    Schedule,
)
from costguard.guard.run_facts import FirstSighting
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Handling, Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.providers.ports import InstanceSource
from costguard.services.guarding.act.executor import ActionExecutor
from costguard.testing import FakeClock
from costguard.values.provider import ACCEPTED, ActionResponse
from costguard.values.resource import ResourceKey
from tests.blank import blank_evaluation, blank_sight
from tests.books import live, unpriced
from tests.guard.cases import A100, H100, POD, STOPS, case, idle, machine, policy

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIN = timedelta(minutes=1)
NIGHTS = Schedule(zone=UTC, off=(OffWindow(start=time(11), end=time(13)),))
RULE = policy(when={"provider": "aws"}, rule=SCHEDULE_RULE, hold=timedelta())
"""Not of work: what is measured at that moment is asked elsewhere."""


@dataclass
class Moment:
    """All that bears on one stop, at the moment before it is sent."""

    book: GuardStore
    live: LiveResource = field(default_factory=lambda: machine(created_at=NOW - timedelta(days=1)))
    rules: GuardConfig = field(default_factory=lambda: GuardConfig(admin_route=True, policies=(RULE,)))
    breaker: Breaker | None = None
    polls: int = 100
    listed: bool = True
    seen: Observation | None = None

    @property
    def intent(self) -> Intent:
        return Intent(
            id="one",
            life=identify_incarnation(self.live.observation),
            act=STOP,
            policy=RULE.name,
            rule=RULE.rule,
            why="",
            evidence="{}",
            state=READY,
            created_at=NOW,
            moved_at=NOW,
            epoch=1,
        )

    def wish(self, what: str, **of: Any) -> None:  # noqa: ANN401 - any field
        life = None if "subject" in of and what == ARM else identify_incarnation(self.live.observation)
        key = self.live.observation.key if life and what == PROTECT else None
        usual = {"id": what, "who": "ada", "why": "", "at": NOW - MIN, "until": NOW + timedelta(hours=1)}
        usual |= {"key": key, "life": None if what in (FREEZE, PROTECT) else life}
        self.book.add_override(Override(what=what, **{**usual, **of}))

    def sees(self, **changes: Any) -> None:  # noqa: ANN401 - any field
        self.seen = replace(self.live.observation, **changes)

    def why_not(self) -> str:
        """What is said against it by the very function that is asked twice before each request."""
        key = self.live.observation.key
        sight = blank_sight(
            NOW,
            (self.live,) if self.listed else (),
            known={key: FirstSighting(at=self.live.first_seen_at, polls=self.polls)},
            breaker=self.breaker,
        )
        deeds = ActionExecutor(
            book=self.book,
            rules=self.rules,
            source_of=lambda _key: None,
            clock=FakeClock(NOW),
            seconds=lambda: 0.0,
            epoch=1,
            sight=sight,
        )
        return deeds._build_objection_check(self.intent)(self.seen or self.live.observation)


@pytest.fixture
def moment(tmp_path: Path) -> Iterator[Moment]:
    with GuardStore(f"sqlite:///{tmp_path / 'ledger.db'}", rails=Rails()) as book:
        assert book.acquire_leader_lease("me", NOW - MIN, timedelta(hours=1)) == 1
        made = Moment(book)
        made.wish(ARM, subject=RULE.name, value=STOP, id="armed")
        yield made


def rules(moment: Moment, **changes: Any) -> None:  # noqa: ANN401 - any field
    moment.rules = replace(moment.rules, **changes)


def of_policy(moment: Moment, **changes: Any) -> None:  # noqa: ANN401 - any field
    rules(moment, policies=(replace(RULE, **changes),))


def of_nobody(moment: Moment) -> None:
    rules(moment, claims=())
    moment.sees(owner="")


def by_hand(moment: Moment) -> None:
    """Started an hour into the time in which a schedule wants it off."""
    other: Policy = replace(RULE, name="nights", schedule=NIGHTS, then=(PolicyStep(do=NOTIFY),))
    rules(moment, policies=(RULE, other))
    began = NOW - 30 * MIN
    moment.live = replace(moment.live, observation=replace(moment.live.observation, started_at=began))


def in_doubt(moment: Moment) -> None:
    other = replace(moment.intent, id="other", act="terminate")
    assert moment.book.plan_intent(other)
    moment.book.set_rails(replace(Rails(), acts_per_run=10))
    assert moment.book.move_intent(other, EXECUTING, NOW, fleet=10)


CHANGES: list[tuple[str, Callable[[Moment], None], str]] = [
    ("a freeze", lambda m: m.wish(FREEZE), "ada froze all acts"),
    ("a lease", lambda m: m.wish(LEASE), "ada keeps it until"),
    ("a machine started by hand", by_hand, "the person who started it keeps it until"),
    ("a phase", lambda m: m.wish(PHASE, subject="download"), "ada declared download"),
    ("a wish to protect it", lambda m: m.wish(PROTECT), "ada protects it"),
    ("a label that protects it", lambda m: m.sees(labels=(("costguard", "never"),)), "its label costguard=never protects it"),
    (
        "its provider's protection",
        lambda m: m.sees(handling=replace(STOPS, protected=("stop",))),
        "its provider refuses to stop it",
    ),
    ("a lower arming", lambda m: m.wish(ARM, subject=RULE.name, value=NOTIFY, id="lower", at=NOW), "armed for notify"),
    ("that nobody owns it", of_nobody, "it has no owner, and [watch] claims does not name its account"),
    ("a controller", lambda m: m.sees(handling=replace(STOPS, controller="group a")), "group a would start it again"),
    ("that it has no stop", lambda m: m.sees(handling=Handling(stops=False, terminates=True)), "has no stop for it"),
    (
        "what a stop would lose",
        lambda m: m.sees(handling=replace(STOPS, stop_loses=("its disk",))),
        "would permanently lose its disk",
    ),
    ("a listing that began to know it just now", lambda m: setattr(m, "polls", 2), "in 2 listings"),
    ("another act that is not settled", in_doubt, "its terminate is executing"),
    (
        "a policy that no longer matches it",
        lambda m: of_policy(m, target=PolicyTarget(ids=("i-2",))),
        "no longer matches it",
    ),
    ("a policy that is no more", lambda m: rules(m, policies=()), "its policy no longer exists"),
    ("a machine that is not listed", lambda m: setattr(m, "listed", False), "it is no longer listed"),
]


@pytest.mark.parametrize(("change", "says"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_an_act_is_held_back_at_the_last_moment_by(moment: Moment, change: Callable[[Moment], None], says: str) -> None:
    change(moment)
    assert says in moment.why_not()


def test_an_open_breaker_holds_idle_acts_only(moment: Moment) -> None:
    moment.breaker = Breaker(opened_at=NOW, keys=(moment.live.observation.key,), shared="region us-east-1")
    assert moment.why_not() == ""
    of_policy(moment, rule="idle")
    assert "1 machines became idle or unknown at once (region us-east-1)" in moment.why_not()


def test_an_approval_lets_a_stop_lose_what_it_loses(moment: Moment) -> None:
    moment.sees(handling=replace(STOPS, stop_loses=("its disk",)))
    moment.wish(APPROVE, subject=STOP)
    assert moment.why_not() == ""


class Rack:
    """Where all machines run. `labelled`: protected since they were listed; `asked`: whom it was asked to stop.

    `dark`: those that cannot be looked up.
    """

    def __init__(self, *machines: LiveResource, labelled: tuple[str, ...] = (), dark: tuple[str, ...] = ()) -> None:
        self.seen = {one.observation.key: one.observation for one in machines}
        self.labelled, self.dark, self.asked, self.looked = labelled, dark, list[str](), list[str]()

    def look_up(self, key: ResourceKey) -> Observation:
        self.looked.append(key.id)
        if key.id in self.dark:
            raise UnreachableError("does not answer", provider="aws")
        return replace(self.seen[key], labels=(("costguard", "never"),) if key.id in self.labelled else ())

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        assert not lose
        self.asked.append(key.id)
        return ActionResponse(said=ACCEPTED)


def deeds_of(book: GuardStore, rack: Rack, machines: list[LiveResource], at: datetime) -> ActionExecutor:
    """Those of a run that sees `machines`."""
    known = {one.observation.key: FirstSighting(at=one.first_seen_at, polls=100) for one in machines}
    sight = blank_sight(at, tuple(machines), known=known, intents=tuple(book.load_intents_since(at - timedelta(days=1))))
    assert book.acquire_leader_lease("me", at, timedelta(hours=1)) == 1
    return ActionExecutor(
        book=book,
        rules=GuardConfig(admin_route=True, policies=(RULE,)),
        source_of=lambda _key: cast("InstanceSource", rack),
        clock=FakeClock(at),
        seconds=lambda: 0.0,
        epoch=1,
        sight=sight,
    )


def goes(
    book: GuardStore,
    rack: Rack,
    machines: list[LiveResource],
    at: datetime,
    *,
    first: str = "i-1",
    acts: int = 1,
    **stated: object,
) -> ActionExecutor:
    """A run in which the stop of each is due, the `first` of them first, and [rails] allows `acts`."""
    done = cast("tuple[int, ...]", stated.pop("done", (0,)))
    cases = [case(one, RULE, idle(at - 60 * MIN), at, replace(_climb(one, at), done=done), **stated) for one in machines]
    around = RunConstraints(now=at, interval=MIN, room=Headroom(acts=acts, irreversible=1, why=f"at most {acts} in a run"))
    proposals = build_action_plan(cases, around)
    assert [p.verdict.life.key.id for p in proposals if p.step.do == STOP and p.is_ready(at)][:1] == [first] * bool(first)
    evaluation = blank_evaluation(at, cases, proposals, fleet=40)
    deeds = deeds_of(book, rack, machines, at)
    deeds.execute_plan(evaluation, deeds.sight)
    return deeds


def _climb(one: LiveResource, at: datetime) -> EscalationState:
    return EscalationState(
        policy=RULE.name,
        life=identify_incarnation(one.observation),
        since=at - 60 * MIN,
        started_at=at - 60 * MIN,
        done=(0,),
        delivered_at=at - 60 * MIN,
    )


def test_of_many_that_are_refused_each_has_its_turn(moment: Moment) -> None:
    machines = [machine(f"i-{n}", created_at=NOW - timedelta(days=1)) for n in range(1, 9)]
    rack = Rack(*machines, dark=tuple(f"i-{n}" for n in range(1, 8)))
    for minute in range(2):
        deeds = goes(moment.book, rack, machines, NOW + minute * MIN)
        assert rack.asked == []
        assert deeds.notes[-1].startswith("aws/123: 5 more wait for the next run, because 3 in a row failed: it cannot be")
    goes(moment.book, rack, machines, NOW + 2 * MIN)
    assert rack.asked == ["i-8"]


def test_machines_that_are_kept_take_no_turn_of_another(moment: Moment) -> None:
    machines = [machine(f"i-{n}", created_at=NOW - timedelta(days=1)) for n in range(1, 9)]
    rack = Rack(*machines, labelled=tuple(f"i-{n}" for n in range(1, 8)))
    goes(moment.book, rack, machines, NOW)
    assert rack.asked == ["i-8"]


def test_the_most_expensive_of_those_that_are_due_is_stopped_first(moment: Moment) -> None:
    prices = {"i-1": POD, "i-2": H100, "i-4": A100}
    machines = [machine(id_, nano, created_at=NOW - timedelta(days=1)) for id_, nano in prices.items()]
    machines.append(live("i-3", unpriced(2 * H100), handling=STOPS, created_at=NOW - timedelta(days=1)))
    share = Fraction(10**6)
    moment.book.set_rails(Rails(acts_per_run=10, acts_per_10m=10, fleet_share_10m=share, fleet_share_day=share))
    rack = Rack(*machines)
    goes(moment.book, rack, machines, NOW, acts=4)
    assert rack.asked == ["i-2", "i-4", "i-1", "i-3"]


def three() -> list[LiveResource]:
    return [machine(f"i-{n}", created_at=NOW - timedelta(days=1)) for n in range(1, 4)]


def states(book: GuardStore) -> dict[str, str]:
    return {one.life.key.id: one.state for one in book.load_intents_since(NOW)}


def test_what_waits_for_room_goes_on_waiting_and_is_cancelled_once_its_reason_is_gone(moment: Moment) -> None:
    machines = three()
    rack = Rack(*machines)
    goes(moment.book, rack, machines, NOW)
    assert states(moment.book) == {"i-1": "verifying", "i-2": "ready", "i-3": "ready"}
    goes(moment.book, rack, machines[1:2], NOW + MIN, first="i-2", acts=1)
    assert states(moment.book)["i-3"] == "cancelled"
    (gone,) = [one for one in moment.book.load_intents_since(NOW) if one.life.key.id == "i-3"]
    assert gone.outcome == "its condition no longer holds"
    assert states(moment.book)["i-2"] != "cancelled"


def test_what_holds_one_policy_cancels_no_act_of_another(moment: Moment) -> None:
    machines, other = three()[:1], replace(RULE, name="others")
    goes(moment.book, Rack(*machines), machines, NOW - MIN, acts=0, first="")
    (waiting,) = moment.book.load_open_intents()
    unarmed = case(machines[0], other, idle(NOW), NOW, replace(_climb(machines[0], NOW), policy="others"), level="observe")
    wanted = case(machines[0], RULE, idle(NOW - 60 * MIN), NOW, _climb(machines[0], NOW))
    around = RunConstraints(now=NOW, interval=MIN, room=Headroom(acts=0, irreversible=1, why="full"))
    plan = build_action_plan([unarmed, wanted], around)
    assert {p.verdict.policy.name for p in plan if p.step.do == STOP} == {RULE.name, "others"}
    deeds_of(moment.book, Rack(*machines), machines, NOW)._cancel_unwanted([waiting], [p for p in plan if p.step.do == STOP])
    assert [one.state for one in moment.book.load_open_intents()] == [waiting.state]


class FullBook(GuardStore):
    """One whose disk is full for whatever is to be sent; `tried`: how often it was to write that."""

    tried = 0

    def move_intent(self, intent: Intent, state: str, now: datetime, **of: Any) -> Intent | None:  # noqa: ANN401 - any field
        if state == EXECUTING:
            self.tried += 1
            raise LedgerError("cannot be written: the disk is full", field="ledger.db")
        return super().move_intent(intent, state, now, **of)


def test_where_the_ledger_cannot_be_written_once_nothing_else_is_tried_in_that_run(tmp_path: Path) -> None:
    machines = three()
    rack = Rack(*machines)
    with FullBook(f"sqlite:///{tmp_path / 'full.db'}", rails=Rails()) as book:
        assert book.acquire_leader_lease("me", NOW - MIN, timedelta(hours=1)) == 1
        book.add_override(
            Override(
                id="armed",
                what=ARM,
                who="ada",
                why="",
                at=NOW - MIN,
                until=NOW + timedelta(hours=1),
                subject=RULE.name,
                value=STOP,
            )
        )
        deeds = goes(book, rack, machines, NOW, acts=3)
        assert "the disk is full" in deeds.broken
        assert (book.tried, rack.asked) == (1, [])


def test_a_stop_that_a_later_listing_shows_is_done_without_asking(moment: Moment) -> None:
    machines = three()[:1]
    rack = Rack(*machines)
    goes(moment.book, rack, machines, NOW)
    sent = len(rack.looked)
    rested = replace(machines[0].observation, state="stopped", stopped_at=NOW + MIN)
    rack.seen[rested.key] = rested
    later = replace(machines[0], observation=rested, seen_at=NOW + 2 * MIN)
    deeds = deeds_of(moment.book, rack, [later], NOW + 2 * MIN)
    assert deeds.confirm_all(moment.book.load_intents_since(NOW), [later])
    assert states(moment.book) == {"i-1": "done"}
    assert len(rack.looked) == sent
