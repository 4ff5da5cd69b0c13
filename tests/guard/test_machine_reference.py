"""Which machine is meant: a full key is one machine, and a name never takes the place of another machine's key or id."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costguard.errors import InputError
from costguard.guard.machine_reference import MachineReference, format_resource, require_machine, resolve_resource
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.resource import ENDED, Incarnation, ResourceKey, format_life
from tests.guard.cases import friday, machine

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


def test_a_name_or_prefix_that_was_the_id_of_a_machine_that_is_gone_is_refused() -> None:
    other = named("i-2", "i-gone")
    with pytest.raises(InputError, match="'i-gone' matches 2 resources") as told:
        resolve_resource("i-gone", [other], former=[GONE])
    assert GONE.path in str(told.value)
    with pytest.raises(InputError, match="'i-gone' is the id of a machine that is gone"):
        resolve_resource("i-gone", [named("i-2", "i-gone-2")], former=[GONE, OTHER])


@pytest.mark.parametrize("stated", ["i-1", "train", "tra"])
def test_a_person_may_write_an_id_a_name_or_a_prefix(stated: str) -> None:
    own = named("i-1", "train")
    assert resolve_resource(stated, [own, named("i-2", "serve")]) is own


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
