"""Whose a resource is, what protects it, and how long it is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costguard.errors import InputError
from costguard.guard.machine_reference import MachineReference, format_resource, require_machine, resolve_resource
from costguard.guard.overrides import (
    APPROVE,
    ARM,
    FREEZE,
    LEASE,
    PROTECT,
    SNOOZE,
    STOP_AT,
    Override,
    decide_lease,
    find_armed_level,
    find_freeze,
    find_lease,
    find_lease_end,
    find_owner,
    find_protection,
    find_snooze,
    list_approved_acts,
)
from costguard.guard.policy import NOTIFY, OBSERVE, STOP, TERMINATE
from costguard.guard.timed_stops import (
    find_timed_stop,
    get_due_time,
    index_timed_stops,
    list_due_policies,
    list_ended_stops,
)
from costguard.metering.burn import list_burns
from costguard.metering.observation import Handling, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.services.guarding.status import list_planned_stops
from costguard.values.money import Money, Rate
from costguard.values.resource import ENDED, STOPPED, Incarnation, ResourceKey, format_life, list_short_ids
from tests.books import NOW
from tests.guard.cases import friday, machine, minutes, policy, wish

NEVER = ("label:costguard=never",)
ONE = machine()
LIFE = identify_incarnation(ONE.observation)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ((("Owner", "bob"), ("owner", "eve")), "eve"),
        ((("OWNER", "bob"),), "bob"),
        ((("owner", " "),), "ada"),
        ((), "ada"),
    ],
)
def test_an_owner_comes_from_its_labels_and_else_from_its_provider(labels: tuple[tuple[str, str], ...], owner: str) -> None:
    assert find_owner(machine(labels=labels).observation, ["label:owner", "tag:Owner"]) == owner


@pytest.mark.parametrize(
    ("key", "value", "protects", "warned"),
    [
        ("costguard", "never", True, False),
        ("costguard", "Never", True, True),
        ("costgaurd", "never", True, True),
        ("costguard", "nevr", True, True),
        ("costguard", "protcted", True, True),
        ("protected", "true", True, True),
        ("protcted", "yes", True, True),
        ("protected", "false", False, False),
        ("costguard", "always", False, False),
        ("project", "llm", False, False),
        ("costguard", "x" * 10_000, False, False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_label_protects_and_a_slip_of_the_pen_does_too(key: str, value: str, protects: bool, warned: bool) -> None:  # noqa: FBT001 - a case
    found = find_protection(machine(labels=((key, value),)).observation, [], NEVER, None, NOW)
    assert (found.protected, bool(found.warning)) == (protects, warned)


def test_a_protection_that_vanished_goes_on_for_24_h_with_a_warning() -> None:
    bare = ONE.observation
    assert find_protection(bare, [], NEVER, NOW - DAY + minutes(1), NOW).warning
    assert not find_protection(bare, [], NEVER, NOW - DAY, NOW).protected


def test_a_wish_and_the_provider_protect_as_well() -> None:
    held = wish(PROTECT, ONE, NOW, life=None, key=LIFE.key)
    assert find_protection(ONE.observation, [held], NEVER, None, NOW).protected
    assert not find_protection(ONE.observation, [replace(held, lifted_at=NOW)], NEVER, None, NOW).protected
    locked = machine(handling=Handling(protected=("terminate",))).observation
    assert find_protection(locked, [], (), None, NOW).why == "its provider protects it against terminate"


def test_a_lease_is_of_one_life_and_ends_at_its_end() -> None:
    lease = wish(LEASE, ONE, NOW, NOW + HOUR)
    assert find_lease(LIFE, [lease], NOW + HOUR - minutes(1)) == lease
    assert find_lease(LIFE, [lease], NOW + HOUR) is None
    assert find_lease_end(LIFE, [lease], NOW + HOUR) == NOW + HOUR
    assert find_lease_end(LIFE, [lease], NOW) is None
    restarted = LIFE._replace(started_at=NOW)
    assert find_lease(restarted, [lease], NOW) is None


def test_story_4_two_hours_cost_up_to_5_98_and_the_fourth_renewal_is_refused() -> None:
    rate, taken = Rate.parse("2.99"), list[Override]()
    for number in range(4):
        at = NOW + 2 * HOUR * number
        answer = decide_lease(LIFE, taken, [policy()], 2 * HOUR, at, rate=rate)
        assert (answer.allowed, answer.renewals, answer.costs) == (True, number, Money.parse("5.98"))
        taken.append(wish(LEASE, ONE, at, at + 2 * HOUR))
    refused = decide_lease(LIFE, taken, [policy()], 2 * HOUR, NOW + 8 * HOUR, rate=rate)
    assert (refused.allowed, refused.why) == (False, "idle-gpu allows 3 renewals; this would be number 4")
    assert decide_lease(LIFE, taken, [policy()], 2 * HOUR, NOW + 32 * HOUR).allowed


@pytest.mark.parametrize(
    ("hours", "why"), [(25, "idle-gpu allows leases of at most 24 h"), (0, "above zero"), (-1, "above zero")]
)
def test_a_lease_that_is_too_long_or_negative_is_refused(hours: int, why: str) -> None:
    answer = decide_lease(LIFE, [], [policy()], hours * HOUR, NOW)
    assert not answer.allowed
    assert why in answer.why


def arming(level: str, at: timedelta, until: timedelta = 90 * DAY) -> Override:
    return wish(ARM, ONE, NOW + at, NOW + at + until, subject="idle-gpu", value=level, life=None)


@pytest.mark.parametrize(
    ("file", "wishes", "level"),
    [
        (STOP, [arming(STOP, -DAY)], STOP),
        (STOP, [arming(STOP, -90 * DAY)], NOTIFY),
        (STOP, [], NOTIFY),
        (OBSERVE, [arming(TERMINATE, -DAY)], OBSERVE),
        (STOP, [arming(TERMINATE, -DAY)], STOP),
        (TERMINATE, [arming(TERMINATE, -2 * DAY), arming(NOTIFY, -DAY)], NOTIFY),
        (STOP, [replace(arming(STOP, -DAY), subject="another")], NOTIFY),
        (STOP, [replace(arming(STOP, -DAY), value="everything")], NOTIFY),
    ],
)
def test_a_policy_goes_as_far_as_both_its_file_and_its_newest_arming_allow(
    file: str, wishes: list[Override], level: str
) -> None:
    assert find_armed_level(policy(arm=file), wishes, NOW).level == level


@pytest.mark.parametrize(
    ("value", "level", "why"),
    [
        ("stop abcd", STOP, ""),
        ("stop 9999", OBSERVE, "it was edited since ada armed it, so it only observes: costguard policy accept abcd"),
        ("notify 9999", NOTIFY, "ada armed it for notify"),
        ("stop", NOTIFY, "it was armed without a digest, by an older version: costguard policy accept abcd"),
    ],
)
def test_an_arming_belongs_to_what_the_policy_meant(value: str, level: str, why: str) -> None:
    found = find_armed_level(policy(arm=STOP, digest="abcd"), [arming(value, -DAY)], NOW)
    assert (found.level, found.explain()) == (level, why)


def test_a_freeze_holds_all_and_one_of_a_machine_holds_that() -> None:
    all_of_it = wish(FREEZE, ONE, NOW, life=None)
    one = replace(all_of_it, key=LIFE.key)
    other = machine("other").observation.key
    assert find_freeze([all_of_it], other, NOW) == all_of_it
    assert (find_freeze([one], LIFE.key, NOW), find_freeze([one], other, NOW)) == (one, None)


def test_a_snooze_quiets_its_policy_or_its_machine() -> None:
    of_policy = wish(SNOOZE, ONE, NOW, NOW + HOUR, life=None, subject="idle-gpu")
    assert find_snooze(LIFE, "idle-gpu", [of_policy], NOW) == of_policy
    assert find_snooze(LIFE, "other", [of_policy], NOW) is None
    assert find_snooze(LIFE, "other", [wish(SNOOZE, ONE, NOW, NOW + HOUR)], NOW) is not None


def test_a_yes_binds_to_one_life() -> None:
    yes = wish(APPROVE, ONE, NOW, NOW + HOUR, subject=TERMINATE)
    assert list_approved_acts(LIFE, [yes], NOW) == {TERMINATE}
    assert list_approved_acts(LIFE._replace(started_at=NOW), [yes], NOW) == frozenset()
    assert list_approved_acts(LIFE, [replace(yes, life=None, key=LIFE.key)], NOW) == frozenset()


PLANNED, DUE = friday(16), friday(22)
BOX = machine(started_at=friday(9), created_at=friday(9))


def plan(at: datetime = PLANNED, due: datetime = DUE, **stated: Any) -> Override:  # noqa: ANN401 - any field
    return wish(STOP_AT, BOX, at, **{"subject": due.isoformat(), "value": "", **stated})


def test_the_newest_plan_stands_and_says_its_time() -> None:
    first, second = plan(), plan(at=friday(17), due=friday(20))
    found = find_timed_stop(BOX.observation, (second, first), friday(18))
    assert found == second
    assert get_due_time(second) == friday(20)


@pytest.mark.parametrize("lease_at", [PLANNED, friday(18)])
def test_a_lease_made_after_it_ends_it_for_good_even_once_that_is_lifted(lease_at: datetime) -> None:
    lease = replace(wish(LEASE, BOX, lease_at, friday(19)), lifted_at=friday(18, 30))
    assert find_timed_stop(BOX.observation, (plan(), lease), friday(21)) is None
    assert list_ended_stops((plan(), lease), (BOX,), friday(21)) == [plan()]


def test_a_lease_made_before_it_does_not_end_it() -> None:
    assert find_timed_stop(BOX.observation, (wish(LEASE, BOX, friday(12), friday(18)), plan()), friday(21)) == plan()


def test_a_plan_that_was_lifted_or_is_not_made_yet_does_not_count() -> None:
    lifted = replace(plan(), lifted_at=friday(17))
    assert not index_timed_stops((lifted, plan(at=friday(23))), friday(18))


def test_a_forecast_counts_the_planned_stop_of_this_run_alone() -> None:
    again = replace(BOX, observation=replace(BOX.observation, started_at=friday(17)))
    assert list_planned_stops((BOX,), (plan(),), friday(18)) == {BOX.observation.key: DUE}
    assert list_planned_stops((again,), (plan(),), friday(18)) == {}
    (line, *_) = list_burns((BOX,), friday(18), {BOX.observation.key: DUE})
    assert line.until == DUE


def test_a_new_run_of_the_machine_is_not_stopped_and_the_plan_is_over() -> None:
    again = replace(BOX, observation=replace(BOX.observation, started_at=friday(19)))
    assert find_timed_stop(again.observation, (plan(),), DUE) is None
    assert not list(list_due_policies(again.observation, (plan(),), DUE))
    assert list_ended_stops((plan(),), (again,), DUE) == [plan()]


@pytest.mark.parametrize("state", [STOPPED, ENDED])
def test_a_stopped_machine_ends_its_plan_so_that_it_is_done_once(state: str) -> None:
    there = replace(BOX, observation=replace(BOX.observation, state=state))
    assert list_ended_stops((plan(),), (there,), DUE) == [plan()]


def test_a_machine_that_is_gone_ends_its_plan_and_one_that_stops_does_not() -> None:
    stopping = replace(BOX, observation=replace(BOX.observation, state="stopping"))
    assert list_ended_stops((plan(),), (), DUE) == [plan()]
    assert list_ended_stops((plan(),), (stopping,), DUE) == []


@pytest.mark.parametrize(
    ("consented", "allowed"),
    [("", False), ("50 GB of container disk", True), ("60 GB of container disk\nlocal SSD", False)],
)
def test_consent_covers_exactly_the_losses_that_were_listed(consented: str, allowed: bool) -> None:  # noqa: FBT001 - a case
    loses = Handling(stops=True, terminates=True, stop_loses=("50 GB of container disk",))
    there = replace(BOX.observation, handling=loses)
    (due,) = list_due_policies(there, (plan(value=consented),), DUE)
    assert due.allow_irreversible is allowed


GONE = ResourceKey("aws", "1", "us-east-1", "i-gone")
OTHER = ResourceKey("gcp", "p", "us", "i-gone")


def named(id_: str, name: str) -> LiveResource:
    return machine(id_, name=name)


def path_of(one: LiveResource) -> str:
    return one.observation.key.path


@pytest.mark.parametrize("stated", [GONE, GONE.path, f" {GONE.path} ", Incarnation(GONE, None)])
def test_a_key_whose_machine_is_gone_is_never_the_machine_of_that_name(stated: MachineReference) -> None:
    lives = [named("i-1", GONE.path), named("i-2", f"{GONE.path}-2")]
    with pytest.raises(InputError, match=r"'aws/1/us-east-1/i-gone' has ended; nothing was done"):
        resolve_resource(stated, lives, former=[GONE])
    with pytest.raises(InputError, match="no machine has the key 'aws/1/us-east-1/i-gone'"):
        resolve_resource(stated, lives)


def test_a_key_finds_its_machine_although_another_has_that_name() -> None:
    own = named("i-1", "train")
    lives = [named("i-2", path_of(own)), own]
    for stated in (path_of(own), own.observation.key, identify_incarnation(own.observation)):
        assert resolve_resource(stated, lives) is own


def test_a_key_of_an_ended_machine_is_refused() -> None:
    one = named("i-1", "train")
    ended = replace(one, observation=replace(one.observation, state=ENDED))
    with pytest.raises(InputError, match="has ended"):
        resolve_resource(path_of(one), [ended], former=[one.observation.key])


def test_a_name_that_is_another_machines_id_is_refused_with_both_keys() -> None:
    own, other = named("i-1", "train"), named("i-2", "i-1")
    with pytest.raises(InputError, match="'i-1' matches 2 resources") as told:
        resolve_resource("i-1", [own, other])
    assert path_of(own) in str(told.value)
    assert path_of(other) in str(told.value)


def test_a_short_id_names_its_machine_alone_or_after_the_cut_name_and_is_refused_where_two_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives = [machine("i-1", name="train-a"), machine("i-2", name="train-b")]
    for own, short in zip(lives, list_short_ids([one.observation.key for one in lives]), strict=True):
        assert len(short) == 6
        for stated in (short, f"tra\u2026 {short}", f"{own.observation.key.id} {short}"):
            assert resolve_resource(stated, lives) is own
    monkeypatch.setattr("costguard.guard.machine_reference.compute_key_digest", lambda _: "4f2c9a" * 10)
    with pytest.raises(InputError, match="'4f2c9a' matches 2 resources"):
        resolve_resource("4f2c9a", lives)


def test_short_ids_are_longer_where_two_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [ResourceKey("acme", "me", "", "a"), ResourceKey("acme", "me", "", "b")]
    monkeypatch.setattr("costguard.values.resource.compute_key_digest", lambda key: f"4f2c9a0{key.id}" + "0" * 56)
    assert list_short_ids(keys) == ("4f2c9a0a", "4f2c9a0b")
    assert list_short_ids([]) == ()


def test_a_name_or_prefix_that_was_the_id_of_a_machine_that_is_gone_is_refused() -> None:
    other = named("i-2", "i-gone")
    with pytest.raises(InputError, match="'i-gone' matches 2 resources") as told:
        resolve_resource("i-gone", [other], former=[GONE])
    assert GONE.path in str(told.value)
    with pytest.raises(InputError, match="'i-gone' is the id of a machine that no longer exists"):
        resolve_resource("i-gone", [named("i-2", "i-gone-2")], former=[GONE, OTHER])


@pytest.mark.parametrize("stated", ["i-1", "train", "tra"])
def test_a_person_may_write_an_id_a_name_or_a_prefix(stated: str) -> None:
    own = named("i-1", "train")
    assert resolve_resource(stated, [own, named("i-2", "serve")]) is own


@pytest.mark.parametrize(
    "printed",
    [
        *("train \u2026b2c3d4", "train (i-0a1b2c3d4)", "train (PATH)", "\u2026b2c3d4"),
        *("i-0a\u2026c3d4", "tra...3d4", "tra\u2026 (i-0a1b2c3d4)"),
    ],
)
def test_what_tables_and_messages_print_of_a_machine_names_it(printed: str) -> None:
    own, twin = named("i-0a1b2c3d4", "train"), named("i-0a1b2c3ff", "train")
    assert resolve_resource(printed.replace("PATH", path_of(own)), [twin, own]) is own


def test_a_name_that_looks_like_what_is_printed_of_another_is_refused() -> None:
    own = named("i-1", "train")
    eve = named("i-2", f"train ({path_of(own)})")
    for stated in (f"train ({path_of(own)})", "\u2026", "train\u2026"):
        for lives in ([own, eve], [eve]) if "(" in stated else ([own, eve],):
            with pytest.raises(InputError):
                resolve_resource(stated, lives, former=[own.observation.key])


def test_a_run_that_has_ended_is_not_the_present_one() -> None:
    now = machine("i-1", started_at=friday(9), created_at=friday(8))
    life = identify_incarnation(now.observation)
    assert resolve_resource(require_machine(path_of(now), format_life(life)), [now]) is now
    before = Incarnation(life.key, friday(9) - timedelta(hours=1), life.created_at)
    with pytest.raises(InputError, match="was restarted, and this was for its earlier run; nothing was done"):
        resolve_resource(require_machine(path_of(now), format_life(before)), [now])


@pytest.mark.parametrize(
    ("path", "life", "why"),
    [("train", "", "is not the full key"), ("a/b/c", "", "is not the full key"), ("a/b/c/d", "soon", "is not a run")],
)
def test_a_form_without_a_key_or_with_another_life_is_refused(path: str, life: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        require_machine(path, life)


def test_an_unknown_start_is_written_and_read_back() -> None:
    life = Incarnation(GONE, None, friday(8))
    assert require_machine(GONE.path, format_life(life)) == life
    assert format_resource(named("i-1", "train").observation).startswith("train (")
