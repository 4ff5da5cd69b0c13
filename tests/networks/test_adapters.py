"""Every adapter behind a wire on which things go wrong: what it says is so, and no act arrives twice. And the judge can say no.

Here a part of the matrix is played, drawn by seed; `python -m tests.networks` plays all of it and prints a table.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from unittest.mock import patch

import pytest
from costguard_vast.account import VastAccount as Account

from costguard.errors import UnreachableError
from costguard.metering.inventory import Complete, Failed, Partial
from costguard.providers.ports import Stopper
from costguard.providers.transport import ProviderChannel
from costguard.values.provider import ACCEPTED, REFUSED, ActionResponse
from tests.networks import matrix
from tests.networks.cells import RIGS, Cell, cells, played, unhurried
from tests.providers.aws.rig import AwsRig

SEED = os.environ.get("COSTGUARD_NETWORKS_SEED", "7")
SHARE = {"aws": 6, "gcp": 6}
"""Of these every sixth cell is played, as each opens an SDK; of the others every third."""


@pytest.mark.sampled(5, first=3)
@pytest.mark.parametrize("provider", RIGS)
def test_no_fault_of_the_wire_makes_an_adapter_say_what_is_not_so_or_act_twice(provider: str) -> None:
    whole = list(cells(SEED, [provider]))
    came = matrix.play(random.Random(SEED).sample(whole, len(whole) // SHARE.get(provider, 3)))  # noqa: S311 - no secret
    assert [(one.wrong, one.said, matrix.replay_line(one.cell)) for one in came if one.wrong] == []
    struck = [one for one in came if one.struck]
    assert len(struck) > len(came) * 0.6, "most of the faults must have happened"
    assert sum(one.cut_short for one in came) > 0, "no cut request ever reached the fake"
    assert not any(one.unknowable for one in came if one.cell.tls)


def test_a_poll_of_aws_ends_in_time_where_nobody_says_who_asks(tmp_path: Path) -> None:
    with unhurried():
        came = played(Cell(provider="aws", phase="connect", kind="hole", at=0), tmp_path)
    assert came.wrong == []
    assert came.said.startswith("failed: POST http://127.0.0.1")


@pytest.mark.parametrize(
    ("phase", "kind", "words"),
    [
        ("connect", "refuse", "no connection (ConnectError)"),
        ("connect", "fill", "no connection in time"),
        ("connect", "hole", "no complete answer in time"),
        ("connect", "garbage", "did not answer in HTTP"),
        ("header", "cut", "closed the connection without an answer"),
        ("body", "cut", "closed the connection in the middle of its answer"),
        ("body", "half", "closed the connection in the middle of its answer"),
        ("body", "reset", "the connection broke"),
        ("body", "drip", "no complete answer in time"),
    ],
)
def test_what_went_wrong_on_the_wire_is_said_as_it_was(tmp_path: Path, phase: str, kind: str, words: str) -> None:
    with unhurried():
        came = played(Cell(provider="vast", phase=phase, kind=kind, at=20), tmp_path)
    assert came.wrong == []
    assert words in came.said
    assert "http://127.0.0.1" in came.said


@pytest.mark.parametrize("late_s", [0.0, 0.7])
def test_an_act_on_aws_is_not_sent_after_looks_that_took_until_its_intent_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """Each answer before it comes in time; all of them together do not, unless they come at once (the control)."""
    monkeypatch.setattr("costguard_aws.account.LOOK_S", 1.0)
    rig = AwsRig()
    id_ = rig.put(1)[0]
    with unhurried(), rig.opened(tmp_path) as source:
        key = next(iter(source.poll(source.list_scopes()[0]).inventory.items)).key  # type: ignore[union-attr]
        for one in (rig.one, "DescribeInstanceAttribute"):
            rig.fake.fault(one, "delay", seconds=late_s)
        assert isinstance(source, Stopper)
        reception = source.stop(key, lose=frozenset(("250 GB of local disk",)))
    assert rig.fake.calls(str(rig.stops)) == (not late_s), reception
    assert (rig.state_of(id_) == "running") == bool(late_s)


def wrongs(cell: Cell, home: Path) -> str:
    with unhurried():
        came = played(cell, home)
    assert came.struck, "the control's fault never happened"
    return "; ".join(came.wrong)


POLLED = Cell(provider="vast", phase="body", kind="cut", at=40)
ACTED = Cell(provider="vast", phase="act answer", kind="cut", at=5)
PLAIN_POLL, PLAIN_STOP = Account.poll, Account.stop


def test_the_judge_catches_an_adapter_that_takes_what_it_did_not_hear_for_nothing(tmp_path: Path) -> None:
    def poll(self: Account, scope: object) -> object:
        found = PLAIN_POLL(self, scope)  # type: ignore[arg-type]
        return (
            type(found)(scope=found.scope, at=found.at, inventory=Complete(()))
            if isinstance(found.inventory, Failed)
            else found
        )

    with patch.object(Account, "poll", poll):
        assert "complete without" in wrongs(POLLED, tmp_path)


def test_the_judge_catches_an_adapter_that_takes_some_for_all(tmp_path: Path) -> None:
    def poll(self: Account, scope: object) -> object:
        found = PLAIN_POLL(self, scope)  # type: ignore[arg-type]
        if not isinstance(found.inventory, Partial):
            return found
        return type(found)(scope=found.scope, at=found.at, inventory=Complete(found.inventory.items))

    with patch.object(Account, "poll", poll):
        assert "complete without" in wrongs(Cell(provider="vast", phase="pages", kind="reset", at=0), tmp_path)


def test_the_judge_catches_an_act_that_is_sent_again(tmp_path: Path) -> None:
    plain = ProviderChannel.act

    def act(self: ProviderChannel, *words: object, **more: object) -> object:
        try:
            return plain(self, *words, **more)  # type: ignore[arg-type]
        except UnreachableError:
            return plain(self, *words, **more)  # type: ignore[arg-type]

    with patch.object(ProviderChannel, "act", act):
        assert "it arrived 2 times" in wrongs(ACTED, tmp_path)


@pytest.mark.parametrize("said", [ACCEPTED, REFUSED])
def test_the_judge_catches_an_answer_that_is_made_up(tmp_path: Path, said: str) -> None:
    def stop(self: Account, key: object, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        PLAIN_STOP(self, key, lose=lose)  # type: ignore[arg-type]
        return ActionResponse(said=said, why="as I say")

    cell = ACTED if said == REFUSED else Cell(provider="vast", phase="act request", kind="cut", at=20)
    with patch.object(Account, "stop", stop):
        assert f"it says {said}" in wrongs(cell, tmp_path)


def test_the_judge_catches_an_act_that_hits_another(tmp_path: Path) -> None:
    def stop(self: Account, key: object, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        for number in ("24815377", "24815387"):
            PLAIN_STOP(self, key._replace(id=number), lose=lose)  # type: ignore[attr-defined]
        return PLAIN_STOP(self, key, lose=lose)  # type: ignore[arg-type]

    with patch.object(Account, "stop", stop):
        assert "it hit 24815377, too" in wrongs(ACTED, tmp_path)
