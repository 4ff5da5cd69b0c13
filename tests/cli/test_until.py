"""`costguard until`, end to end: typed, recorded in a real ledger, and read back from it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.mcp.server import name_renter
from costguard.mcp.tools import McpContext, call_tool
from costguard.metering.inventory import Complete, Poll
from tests.cli.test_wishes import NOON, SCOPE, SETTINGS, at, fleet, machine, recorded  # noqa: F401 - a fixture
from tests.conftest import Command

POLICY = """
[[policy]]
name = "end-date"
arm = "stop"
match = { until_label = "passed" }
until_max = "2d"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]
"""


@pytest.fixture
def dated(fleet: Command, tmp_path: Path) -> Command:  # noqa: F811 - the fixture
    """`costguard` with a policy for passed dates, and a pod whose label has one."""
    (tmp_path / "costguard.toml").write_text(SETTINGS + POLICY)
    return fleet


def list_pods(tmp_path: Path, *labels: tuple[str, str]) -> None:
    """The next listing: train-1 with these labels."""
    with LedgerWriter(f"sqlite:///{tmp_path}/ledger.db", rules=ShippedFacts().get_billing_rules(), ceilings={}) as ledger:
        pods = (machine("pod-a1", "train-1", labels=labels), machine("pod-a2", "train-2"))
        ledger.record_polls([Poll(scope=SCOPE, at=NOON + timedelta(minutes=1), inventory=Complete(pods))])


@pytest.mark.parametrize("time", ["4h", "2026-11-02T16:00Z", "2026-11-02T21:30+05:30"])
def test_a_date_is_recorded_for_this_run_and_shown(dated: Command, tmp_path: Path, time: str) -> None:
    ran = dated("until", "set", "train-1", time, "--why", "the task ends then")
    assert "ends at 2026-11-02 16:00 UTC (in 4 h)" in ran.out, ran.err
    assert "WARNING" not in ran.out
    (wish,) = recorded(tmp_path)
    assert (wish.what, wish.who, wish.subject, wish.until) == ("until", "ada@lab", "2026-11-02T16:00:00Z", None)
    assert wish.life is not None
    rows = {row["machine"]: row for row in dated("until", "show", "--json").data["machines"]}
    assert (rows["train-1"]["until"], rows["train-1"]["state"]) == ("2026-11-02T16:00:00Z", "ahead")
    assert (rows["train-2"]["until"], rows["train-2"]["state"]) == (None, "missing")
    assert "1 of 3 running machines have a date" in dated("until", "show").out


def test_a_second_date_replaces_the_first_and_a_changed_label_replaces_both(dated: Command, tmp_path: Path) -> None:
    for time in ("4h", "2h"):
        assert dated("until", "set", "train-1", time).code == 0
    assert [one.subject for one in recorded(tmp_path)] == ["2026-11-02T14:00:00Z"]
    list_pods(tmp_path, ("costguard:until", "2026-11-02T13:00Z"))
    (row,) = [one for one in dated("until", "show", "--json").data["machines"] if one["machine"] == "train-1"]
    assert row["until"] == "2026-11-02T13:00:00Z"


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("3d", ("TIME", "2026-11-04 12:00 UTC, the last date that end-date allows", "write 2d")),
        ("31d", ("TIME", "at most 30d")),
        ("2099-01-01T00:00Z", ("TIME", "more than 30 d ahead")),
        ("2026-11-02T11:00Z", ("TIME", "in the past", "costguard stop")),
        ("2026-11-02T16:00", ("TIME", "has no time zone", "2026-12-01T18:00Z")),
        ("tomorrow", ("TIME", "must be a duration")),
        ("0m", ("TIME", "at least 1m")),
    ],
)
def test_a_date_that_would_not_count_is_refused(dated: Command, tmp_path: Path, time: str, words: tuple[str, ...]) -> None:
    dated("until", "set", "train-1", time).says(*words)
    assert recorded(tmp_path) == []


def test_without_a_policy_it_says_that_nothing_ends_the_machine(fleet: Command) -> None:  # noqa: F811 - the fixture
    assert "WARNING: no policy ends it by its date" in fleet("until", "set", "train-1", "4h").out


@pytest.mark.parametrize(
    ("labels", "allowed"),
    [
        ((("costguard:rented-by", name_renter("mine")),), True),
        ((("costguard-rented-by", name_renter("mine")),), True),
        ((("costguard:rented-by", name_renter("other")),), False),
        ((("costguard:rented-by", name_renter("mine")), ("costguard-rented-by", name_renter("other"))), False),
        ((("costguard:rented-by", ""),), False),
        ((), False),
    ],
)
def test_an_agent_sets_the_date_of_what_its_token_rented_and_of_nothing_else(
    dated: Command,
    tmp_path: Path,
    labels: tuple[tuple[str, str], ...],
    allowed: bool,  # noqa: FBT001 - a case
) -> None:
    del dated
    list_pods(tmp_path, *labels)
    arguments = {"machine": "runpod/me/EU-SE-1/pod-a1", "time": "4h"}
    reply = call_tool("until", arguments, McpContext(renter=name_renter("mine")))
    assert reply.is_error is not allowed, reply.more
    assert [one.what for one in recorded(tmp_path, NOON + timedelta(minutes=2))] == ["until"] * allowed
    assert call_tool("until", arguments, McpContext()).is_error
