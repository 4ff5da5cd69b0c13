"""`costguard stop` of a machine whose start waits at Vast, against its fake: the start is withdrawn, and a look proves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.errors import CostguardError
from costguard.guard.action_intents import DONE, FAILED, Intent
from costguard.guard.policy import START, STOP, Rails
from costguard.ledger.guard.store import GuardStore
from costguard.services.guarding.act import by_hand
from tests.conftest import Command
from tests.fakes.server import serving
from tests.providers.vast.rig import VastRig

Intents = Callable[[], list[Intent]]


@pytest.fixture
def waiting(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[VastRig, str, Intents]]:
    """A contract that was stopped and started by hand, whose GPU is rented away; and what the ledger says of acts."""
    rig = VastRig()
    rig.clock.at = datetime.now(UTC)
    (machine,) = rig.put(1)
    for name, value in rig.environ().items():
        monkeypatch.setenv(name, value)

    monkeypatch.setattr(by_hand, "LOOK_EVERY_S", 0.5)  # real seconds: the client of Vast keeps a pace
    monkeypatch.setattr(by_hand, "PROVE_WITHIN_S", 8.0)
    ledger = f"sqlite:///{tmp_path}/ledger.db"

    def load() -> list[Intent]:
        with GuardStore(ledger, rails=Rails()) as book:
            return book.load_intents_since(datetime.now(UTC) - timedelta(minutes=5))

    with serving(rig.fake) as base:
        table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in rig.table(base).items())
        (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{ledger}"\n[providers.vast]\n{table}')
        assert costguard("status").code == 0
        assert costguard("stop", machine, "--yes").code == 0
        rig.fake.taken.add(machine)
        monkeypatch.setattr(by_hand, "PROVE_WITHIN_S", 1.0)
        started = costguard("start", machine, "--yes")
        assert (started.code, "is not verified" in started.err) == (4, True), started.err
        monkeypatch.setattr(by_hand, "PROVE_WITHIN_S", 8.0)
        yield rig, machine, load


def test_a_stop_withdraws_a_start_that_waits_and_a_look_proves_it(
    costguard: Command, waiting: tuple[VastRig, str, Intents]
) -> None:
    rig, machine, load = waiting
    before = rig.fake.calls("^PUT")
    ran = costguard("stop", machine, "--yes")
    assert ran.code == 0, ran.err
    assert "this cancels the start" in ran.out
    assert "done; verified after" in ran.out
    assert rig.fake.calls("^PUT") == before + 1
    rig.fake.taken.clear()
    assert rig.state_of(machine) == "stopped", "the GPU is free, and nothing starts"
    ends = {(one.act, one.state, "cancelled it" in one.outcome) for one in load()}
    assert ends == {(STOP, DONE, False), (START, FAILED, True)}
    again = costguard("stop", machine, "--yes")
    assert (again.code, "it is stopped already; nothing was sent" in again.err) == (3, True)
    assert costguard("start", machine, "--yes").code == 0, "nothing is left open"


@pytest.mark.proof  # the client of Vast keeps a pace
def test_a_withdrawal_that_vast_ignores_is_not_told_as_done(
    costguard: Command, waiting: tuple[VastRig, str, Intents], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, machine, load = waiting
    rig.fake.deaf = True
    monkeypatch.setattr(by_hand, "PROVE_WITHIN_S", 1.0)
    ran = costguard("stop", machine, "--yes")
    assert (ran.code, "the stop was sent, but its effect is not verified" in ran.err) == (4, True), ran.err
    assert {one.act for one in load() if one.state not in (DONE, FAILED)} == {START, STOP}


@pytest.mark.proof  # the client of Vast keeps a pace
def test_a_machine_that_starts_while_the_person_reads_is_not_stopped(
    waiting: tuple[VastRig, str, Intents], tmp_path: Path
) -> None:
    rig, machine, _ = waiting

    def start_meanwhile(_: str) -> bool:
        rig.fake.taken.clear()
        rig.fake.extra.get(machine, {}).pop("intended_status", None)
        rig.let(machine, "running")
        return True

    before = rig.fake.calls("^PUT")
    with pytest.raises(CostguardError, match="in the meantime"):
        by_hand.act_on_resource(machine, "stop", config=str(tmp_path / "costguard.toml"), ask=start_meanwhile)
    assert rig.fake.calls("^PUT") == before
