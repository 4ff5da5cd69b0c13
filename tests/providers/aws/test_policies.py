from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "config" / "iam"
POLICIES = sorted(FOLDER.glob("aws-*.json"))
CREATES = re.compile(
    r"(Run|Create|Start|Modify|Put|Update|Delete|Attach|Detach|Pass|Set|Associate|Request|Purchase|Cancel)\w*$"
)
START = "ec2:StartInstances"
ACTS = {"ec2:StopInstances", START, "ec2:TerminateInstances", "autoscaling:TerminateInstanceInAutoScalingGroup"}


def statements(path: Path, effect: str) -> list[dict[str, Any]]:
    return [one for one in json.loads(path.read_text())["Statement"] if one["Effect"] == effect]


def actions(statement: dict[str, Any]) -> list[str]:
    stated = statement["Action"]
    return [stated] if isinstance(stated, str) else stated


def test_there_are_five_policies() -> None:
    assert [path.stem.removeprefix("aws-") for path in POLICIES] == [
        "actor-start",
        "actor-stop",
        "actor-terminate",
        "bills",
        "reader",
    ]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_no_policy_allows_a_star_or_makes_or_changes_anything(path: Path) -> None:
    assert json.loads(path.read_text())["Version"] == "2012-10-17"
    for statement in statements(path, "Allow"):
        assert "NotAction" not in statement
        for action in actions(statement):
            assert "*" not in action
            assert re.fullmatch(r"[a-z0-9]+:[A-Z]\w+", action)
            assert action == START or not CREATES.fullmatch(action.partition(":")[2])


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_whatever_acts_needs_the_opt_in_tag_and_names_its_kind_of_resource(path: Path) -> None:
    for statement in statements(path, "Allow"):
        if ACTS.intersection(actions(statement)):
            assert ACTS.issuperset(actions(statement))
            tag = statement["Condition"]["StringEquals"]["aws:ResourceTag/costguard"]
            assert {"allow-stop", "allow-terminate"}.issuperset([tag] if isinstance(tag, str) else tag)
            assert statement["Resource"] != "*"


def test_the_readers_cannot_act_and_stopping_does_not_bring_terminating() -> None:
    allowed = {path.stem: {a for s in statements(path, "Allow") for a in actions(s)} & ACTS for path in POLICIES}
    assert allowed["aws-reader"] == allowed["aws-bills"] == set()
    assert allowed["aws-actor-stop"] == {"ec2:StopInstances"}
    assert allowed["aws-actor-start"] == {START}
    assert START not in allowed["aws-actor-terminate"]


def test_the_actor_is_denied_to_lift_a_protection() -> None:
    denied = {a for s in statements(FOLDER / "aws-actor-stop.json", "Deny") for a in actions(s)}
    assert {"ec2:ModifyInstanceAttribute", "ec2:RunInstances", "ec2:CreateTags"} <= denied
    assert START not in denied, "a denial would beat the policy that allows it"
