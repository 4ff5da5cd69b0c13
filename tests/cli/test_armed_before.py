"""What was accepted before conditions, kinds and until labels were extended stays armed where its text did not change."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from costguard.guard.overrides import ARM, ARMED_FOR, Override, join_arming
from costguard.guard.policy import STOP, Rails
from costguard.ledger.guard.store import GuardStore
from tests.cli.test_wishes import NOON, fleet  # noqa: F401 - a fixture
from tests.conftest import Command

SETTINGS = """
[[policy]]
name = "unleased"
arm = "stop"
when = '!leased'
then = [{ do = "notify" }, { after = "15m", do = "stop" }]

[[policy]]
name = "old"
rule = "limit"
arm = "stop"
when = 'age > duration("72h")'
then = [{ do = "notify" }, { after = "30m", do = "stop" }]

[[policy]]
name = "idle-gpu"
arm = "stop"
match = { gpu = true }
when = 'state == "idle" && confidence >= 0.9'
for = "45m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]

[[policy]]
name = "nights"
arm = "stop"
match = { labels = { team = "dev" } }
schedule = { timezone = "Europe/Berlin", off = ["20:00-08:00", "sat-sun"], start = true }
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
"""
BEFORE = {
    "unleased": ("idle", "f1830768358db2f2"),
    "old": ("limit", "9039de12b0cd7706"),
    "idle-gpu": ("idle", "c1c1f84ef33aecb6"),
    "nights": ("schedule", "bdcdaeb33ce9858e"),
}
"""Kind and digest of each as `costguard policy lint` of 2026-11-28 printed them (bebcdfa0)."""


def test_policies_accepted_by_an_earlier_version_keep_their_kind_and_stay_armed(
    fleet: Command,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    (tmp_path / "costguard.toml").write_text(SETTINGS)
    with GuardStore(f"sqlite:///{tmp_path}/ledger.db", rails=Rails()) as book:
        for name, (_, digest) in BEFORE.items():
            value, made = join_arming(STOP, digest), NOON - timedelta(days=3)
            book.add_override(
                Override(id=name, what=ARM, who="ada", why="", at=made, until=made + ARMED_FOR, subject=name, value=value)
            )
    explained = fleet("policy", "explain", "--json").data["policies"]
    assert {one["name"]: (one["rule"], one["digest"]) for one in explained} == BEFORE
    assert {one["level"] for one in explained} == {STOP}
    text = fleet("policy", "lint").out
    assert "unleased: idle: in doubt the machine keeps running" in text
    assert "old: limit: a limit, which acts on busy machines too" in text
    linted = fleet("policy", "lint", "--json").data["policies"]
    assert {one["policy"]: one["rule"] for one in linted} == {name: rule for name, (rule, _) in BEFORE.items()}
