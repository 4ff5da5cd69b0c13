"""A hold ends with the last machine that names it by its label, through a real ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.budgets.hold import Hold, describe_token
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.holds import load_open_holds
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Failed, Partial, Poll
from costguard.metering.observation import Observation
from costguard.services.run_jobs.admit import open_holds
from costguard.services.run_jobs.hold_duty import GONE_FOR, HoldDuty
from costguard.settings import Settings, check_settings, resolve_ledger_url
from costguard.values.money import Money
from costguard.values.resource import ENDED
from tests.metering.stories import SCOPE, machine

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
MIN = timedelta(minutes=1)


class World:
    """A ledger with two holds, and machines as they are listed."""

    def __init__(self, folder: Path) -> None:
        self.settings: Settings = check_settings(f'[ledger]\nurl = "sqlite:///{folder}/ledger.db"\n', "costguard.toml")
        self.now = NOON
        self.leads = True
        self.duty = HoldDuty(settings=lambda: self.settings, clock=lambda: self.now, leads=lambda: self.leads)
        with open_holds(self.settings) as holds:
            for name in ("hold-a", "hold-b"):
                wanted = Hold(
                    id=name,
                    money=Money.parse("5"),
                    who="ada",
                    why="run",
                    taken_at=NOON,
                    expires_at=NOON + timedelta(hours=9),
                )
                assert holds.take(wanted, [], NOON).admitted

    def list_machines(self, *states: str, label: str = "hold-a", after: timedelta = MIN) -> list[str]:
        """The ids of the holds that are open after a poll that lists machines in these states, and the duty."""
        seen: list[Observation] = []
        for number, state in enumerate(states):
            one = machine(f"i-{number}", started_at=NOON - MIN)
            seen.append(replace(one, state=state, labels=(("costguard-hold", label),)))
        return self.poll(Complete(items=tuple(seen)), after=after)

    def poll(self, inventory: Complete | Failed | Partial, *, after: timedelta) -> list[str]:
        """The same after a poll with this inventory."""
        self.now += after
        with LedgerWriter(resolve_ledger_url(self.settings), rules={}, ceilings={}) as ledger:
            ledger.record_polls([Poll(scope=SCOPE, at=self.now, asked_at=self.now, inventory=inventory)])
        self.duty.run()
        with LedgerReader(resolve_ledger_url(self.settings)) as reader, reader.snapshot() as ask:
            return [hold.id for hold in load_open_holds(ask, self.now)]


def test_a_hold_ends_with_the_last_of_its_machines_and_no_other_does(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.list_machines() == ["hold-a", "hold-b"], "its machine has yet to come"
    assert world.list_machines("running", "running") == ["hold-a", "hold-b"]
    assert world.list_machines("running", "stopped") == ["hold-a", "hold-b"]
    assert world.list_machines(ENDED, "stopped") == ["hold-a", "hold-b"]
    assert world.list_machines(ENDED, ENDED) == ["hold-a", "hold-b"], "a spot machine may be replaced"
    assert world.list_machines("running", after=GONE_FOR) == ["hold-a", "hold-b"]
    assert world.list_machines(ENDED, ENDED, after=GONE_FOR) == ["hold-b"]
    assert world.list_machines() == ["hold-b"]


def test_a_label_that_is_the_id_of_two_tokens_holds_ends_neither(tmp_path: Path) -> None:
    world = World(tmp_path)
    with open_holds(world.settings) as holds:
        mine = replace(holds.open_holds(NOON)[0], id="same")
        for token in ("kube", "slurm"):
            assert holds.take(replace(mine, who=describe_token(token), scope=token), [], NOON).admitted
    world.list_machines("running", label="same")
    assert world.list_machines(ENDED, label="same", after=GONE_FOR).count("same") == 2


def test_a_watchdog_that_does_not_lead_ends_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.list_machines("running")
    world.leads = False
    assert world.list_machines(ENDED, after=GONE_FOR) == ["hold-a", "hold-b"]
    world.leads = True
    assert world.list_machines(ENDED) == ["hold-b"]


def test_a_machine_somewhere_else_does_not_count_as_one_of_the_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    with open_holds(world.settings) as holds:
        there = Hold(
            id="hold-c",
            money=Money.parse("5"),
            who="ada",
            why="run",
            taken_at=NOON,
            expires_at=NOON + timedelta(hours=9),
            account="another",
        )
        assert holds.take(there, [], NOON).admitted
    assert "hold-c" in world.list_machines("running", label="hold-c")
    assert "hold-c" in world.list_machines(ENDED, label="hold-c", after=GONE_FOR)


@pytest.mark.parametrize(
    "inventory", [Failed(why="503"), Partial(items=(), why="page 2 of 3 failed")], ids=["failed", "partial"]
)
def test_a_listing_that_does_not_show_that_a_machine_is_gone_ends_no_hold(tmp_path: Path, inventory: Failed | Partial) -> None:
    world = World(tmp_path)
    assert world.list_machines("running") == ["hold-a", "hold-b"]
    assert world.poll(inventory, after=2 * GONE_FOR) == ["hold-a", "hold-b"]
