"""What `costguard stop` says goes on billing, at each cloud's fake with and without disks; and what it says of a locked pod."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costguard.errors import NoAnswerError
from costguard.guard.policy import STOP, TERMINATE
from costguard.services.guarding.act.by_hand import act_on_resource
from tests.cli.watched import RIGS
from tests.conftest import Command
from tests.contract.rig import Rig
from tests.fakes.gcp import account_file
from tests.fakes.server import serving
from tests.providers.runpod.rig import RunpodRig

WITHOUT_STOP, DISKS_APART = ("lambda",), ("aws", "gcp")
"""Clouds that cannot stop, and clouds whose disks are resources of their own."""


def refuse_all(asked: list[str]) -> Callable[[str], bool]:
    """Say no to every question, and note it in `asked`."""

    def ask(question: str) -> bool:
        asked.append(question)
        return False

    return ask


def list_questions(rig: Rig, act: str, costguard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a person is asked about the rig's only machine, and answers no to."""
    rig.clock.at = datetime.now(UTC)
    for name, value in rig.environ().items():
        monkeypatch.setenv(name, value)
    asked = list[str]()
    with serving(rig.fake) as base:
        if rig.provider == "gcp":
            (folder / "key.json").write_text(account_file(base))
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "key.json"))
        rows = "".join(f"{name} = {json.dumps(value)}\n" for name, value in rig.table(base).items())
        ledger = f'[ledger]\nurl = "sqlite:///{folder}/ledger.db"\n'
        (folder / "costguard.toml").write_text(f"{ledger}[providers.{rig.provider}]\n{rows}")
        ran = costguard("status", "--json")
        assert ran.code == 0, ran.err
        (one,) = [one for one in json.loads(ran.out)["resources"] if one["kind"] == "instance"]
        path = "/".join(one[part] for part in ("provider", "account", "region", "id"))
        answer = act_on_resource(path, act, ask=refuse_all(asked))
        assert answer.document.data["result"] == "not done"
    return asked


@pytest.mark.sampled(2)
@pytest.mark.parametrize("disks", [True, False], ids=["disks", "no-disks"])
@pytest.mark.parametrize("cloud", RIGS, ids=lambda rig: rig.provider)
def test_a_stop_says_what_goes_on_billing(
    cloud: type[Rig],
    disks: bool,  # noqa: FBT001 - a case
    costguard: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = cloud()
    (id_,) = rig.put(1)
    if not disks:
        rig.fake.resources[:] = [replace(one, disks=()) for one in rig.fake.resources]  # type: ignore[attr-defined]
    if not disks and isinstance(rig, RunpodRig):  # which states two disks of every pod
        rig.fake.manners.spoilt[id_] = {("mounts",): None, ("disk",): 0}
    act = TERMINATE if rig.provider in WITHOUT_STOP else STOP
    if act == TERMINATE:
        with pytest.raises(NoAnswerError, match="has no stop for it"):
            list_questions(rig, STOP, costguard, tmp_path, monkeypatch)
    (asked,) = list_questions(rig, act, costguard, tmp_path, monkeypatch)
    assert "Saves $" in asked
    own = disks and rig.provider not in DISKS_APART
    assert ("Still billed: $" in asked) == (act == STOP and own)
    assert ("Nothing is billed afterwards, except disks and addresses that" in asked) == (act == STOP and not own)


def test_a_locked_pod_is_refused_and_its_end_is_not_advised(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = RunpodRig()
    (id_,) = rig.put(1)
    rig.fake.manners.locked.add(id_)
    with pytest.raises(NoAnswerError, match="runpod protects it against stop") as told:
        list_questions(rig, STOP, costguard, tmp_path, monkeypatch)
    assert "terminate" not in str(told.value)
