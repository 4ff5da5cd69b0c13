"""What people tell the guard, end to end: typed, recorded in a real ledger, and read back from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.guard.overrides import Override, split_arming
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation, Price
from costguard.services.guarding import overrides
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.conftest import Command

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
SCOPE = ScopeKey("runpod", "me", "all")
SETTINGS = """
[[policy]]
name = "idle-gpu"
arm = "notify"
match = { gpu = true }
when = 'state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)'
for = "45m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]
lease = { max = "4h", renewals = 1 }
"""


def machine(id_: str, name: str, **stated: object) -> Observation:
    usual: dict[str, object] = {"gpu": "H100-SXM", "gpu_count": 1, "prices": (Price(Rate.parse("2.99")),)}
    return Observation(
        key=ResourceKey("runpod", "me", "EU-SE-1", id_),
        state="running",
        name=name,
        started_at=NOON - timedelta(hours=2),
        **{**usual, **stated},  # type: ignore[arg-type]  # a test's own fields
    )


@pytest.fixture
def fleet(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`costguard` with three pods at noon, and a policy that concerns those with a GPU."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    guarded = machine("pod-c", "api", labels=(("costguard", "never"),), gpu="", gpu_count=0)
    pods = (machine("pod-a1", "train-1"), machine("pod-a2", "train-2"), guarded)
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=SCOPE, at=NOON, inventory=Complete(pods))])
    (tmp_path / "costguard.toml").write_text(SETTINGS)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    at(monkeypatch, NOON)
    monkeypatch.setattr(overrides, "describe_user", lambda: "ada@lab")
    return costguard


def at(monkeypatch: pytest.MonkeyPatch, when: datetime) -> None:
    monkeypatch.setattr(overrides, "get_now", lambda: when)


def recorded(tmp_path: Path, when: datetime = NOON) -> list[Override]:
    with GuardStore(f"sqlite:///{tmp_path}/ledger.db", rails=Rails()) as book:
        return book.load_open_overrides(when)


def test_a_lease_says_what_it_costs_at_most_and_is_recorded_for_this_life(fleet: Command, tmp_path: Path) -> None:
    ran = fleet("keep", "train-1", "--for", "4h", "--why", "evaluation")
    assert ran.code == 0, ran.err
    assert "costs up to $11.96" in ran.out
    assert "until 2026-11-02 16:00 UTC" in ran.out
    assert "Renewals left: 1." in ran.out
    (wish,) = recorded(tmp_path)
    assert (wish.what, wish.who, wish.why, wish.until) == ("lease", "ada@lab", "evaluation", NOON + timedelta(hours=4))
    assert wish.life is not None
    assert (wish.life.key.id, wish.life.started_at) == ("pod-a1", NOON - timedelta(hours=2))
    assert recorded(tmp_path, NOON + timedelta(hours=4)) == []


def test_a_lease_longer_than_its_policy_allows_is_refused(fleet: Command, tmp_path: Path) -> None:
    ran = fleet("keep", "train-1", "--for", "5h", "--why", "x")
    assert ran.code == 3
    assert "at most 4 h" in ran.err
    assert recorded(tmp_path) == []


def test_the_renewal_after_the_last_one_is_refused(fleet: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = []
    for hour in (0, 3, 6):
        at(monkeypatch, NOON + timedelta(hours=hour))
        codes.append(fleet("keep", "train-1", "--for", "4h", "--why", "x").code)
    assert codes == [0, 0, 3]
    assert len(recorded(tmp_path, NOON + timedelta(hours=3.5))) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("keep", "train", "--for", "4h", "--why", "x"), ("matches 2 resources", "runpod/me/EU-SE-1/pod-a1", "pod-a2")),
        (("keep", "nothing", "--for", "4h", "--why", "x"), ("no machine has the name", "costguard status")),
        (("keep", "train-1", "--why", "x"), ("--for",)),
        (("keep", "train-1", "--for", "-4h", "--why", "x"), ("--for", "45m")),
        (("keep", "train-1", "--for", "4h"), ("--why", "is missing")),
        (("phase", "download", "--for", "3h"), ("--id",)),
        (("approve", "train-1", "terminat"), ("ACT", "terminate")),
        (("policy", "arm", "idle-gpu"), ("LEVEL", "policy arm --help")),
        (("policy", "arm", "idle-gpo", "stop", "--why", "x"), ("did you mean idle-gpu",)),
        (("policy", "test", "idle-gpu", "--fact", "stat=idle"), ("--fact", "did you mean state")),
        (("policy", "test", "idle-gpu", "--fact", "confidence=high"), ("must be a number",)),
        (("policy", "explain", "--fact", "state=idle"), ("--fact: is not used by costguard policy explain",)),
        (("policy", "lnt"), ("did you mean lint",)),
    ],
    ids=lambda value: "-".join(value[:3]) if isinstance(value, tuple) and value and value[0].isalpha() else "",
)
def test_slips_of_the_pen_are_named(fleet: Command, tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    fleet(*arguments).says(*words)
    assert recorded(tmp_path) == []


def test_an_id_is_not_taken_for_the_beginning_of_another_one(fleet: Command) -> None:
    assert "pod-a1" in fleet("keep", "runpod/me/EU-SE-1/pod-a1", "--for", "1h", "--why", "x").out
    assert "pod-a2" in fleet("keep", "pod-a2", "--for", "1h", "--why", "x").out


def test_a_protection_is_for_every_life_until_it_is_lifted(fleet: Command, tmp_path: Path) -> None:
    assert fleet("protect", "train-1", "--why", "serves").code == 0
    (wish,) = recorded(tmp_path)
    assert (wish.what, wish.life, wish.until, wish.key and wish.key.id) == ("protect", None, None, "pod-a1")
    assert fleet("protect", "train-1", "--lift", "--json").data["action"] == "lifted"
    assert recorded(tmp_path) == []
    assert "nothing to lift" in fleet("protect", "train-1", "--lift").out


def test_lifting_says_what_still_protects(fleet: Command) -> None:
    assert "stays protected: its label costguard=never protects it" in fleet("protect", "api", "--lift").out


def test_a_policy_and_a_machine_can_be_snoozed(fleet: Command, tmp_path: Path) -> None:
    assert "Policy idle-gpu is snoozed until" in fleet("snooze", "idle-gpu", "--for", "7d").out
    assert "train-2" in fleet("snooze", "train-2", "--for", "2h").out
    first, second = recorded(tmp_path)
    assert {(w.subject, w.key and w.key.id) for w in (first, second)} == {("idle-gpu", None), ("", "pod-a2")}


def test_a_freeze_holds_until_it_is_lifted(fleet: Command, tmp_path: Path) -> None:
    assert "All acts are frozen" in fleet("freeze", "--why", "metrics are wrong").out
    assert [w.what for w in recorded(tmp_path, NOON + timedelta(days=400))] == ["freeze"]
    assert "no longer frozen" in fleet("freeze", "--lift").out
    assert "Nothing was frozen" in fleet("freeze", "--lift").out
    assert recorded(tmp_path) == []


def test_a_phase_and_an_approval_are_bound_to_this_life_and_end(fleet: Command, tmp_path: Path) -> None:
    assert "counts as working (download)" in fleet("phase", "download", "--id", "train-1", "--for", "3h").out
    assert "Approved: stop" in fleet("approve", "train-1", "stop").out
    ends = {w.what: (w.subject, w.until, w.life and w.life.started_at) for w in recorded(tmp_path)}
    started = NOON - timedelta(hours=2)
    assert ends == {
        "phase": ("download", NOON + timedelta(hours=3), started),
        "approve": ("stop", NOON + timedelta(days=1), started),
    }


def test_lowering_a_policy_counts_at_once_and_needs_no_plan(fleet: Command, tmp_path: Path) -> None:
    ran = fleet("policy", "arm", "idle-gpu", "observe")
    assert ran.code == 0, ran.err
    assert "idle-gpu is armed for observe until 2027-01-31 12:00 UTC; it was notify." in ran.out
    (wish,) = recorded(tmp_path)
    level, digest = split_arming(wish.value)
    assert (wish.what, wish.subject, level, len(digest)) == ("arm", "idle-gpu", "observe", 16)
    assert "armed for: observe" in fleet("policy", "explain").out


def test_a_hard_budget_is_lowered_and_armed_again_by_its_name(fleet: Command, tmp_path: Path) -> None:
    (tmp_path / "costguard.toml").write_text(f'{SETTINGS}[[budget]]\nname = "all"\ncap = "500 USD"\nhard = true\n')
    assert (
        "budget:all is armed for observe" in fleet("policy", "arm", "budget:all", "observe", "--why", "its rate is wrong").out
    )
    ran = fleet("policy", "arm", "budget:all", "stop", "--why", "corrected", "--json")
    assert (ran.data["before"], ran.data["level"], ran.data["plan"]["schema"]) == ("observe", "stop", "costguard.plan/1")
    assert sorted((w.subject, w.value) for w in recorded(tmp_path)) == [("budget:all", "observe"), ("budget:all", "stop")]
    fleet("policy", "arm", "budget:all", "terminate").says("LEVEL", "stop")
    fleet("policy", "arm", "budget:al", "stop").says("did you mean budget:all")


def test_an_arming_runs_out_back_to_notify(fleet: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "costguard.toml").write_text(SETTINGS.replace('arm = "notify"', 'arm = "stop"'))
    assert fleet("policy", "arm", "idle-gpu", "observe").code == 0
    at(monkeypatch, NOON + timedelta(days=91))
    assert "armed for: notify: its arming has expired: costguard policy accept " in fleet("policy", "explain").out


def test_what_is_kept_or_protected_is_listed_with_who_why_and_how_long(fleet: Command) -> None:
    assert fleet("keep", "--list").out.startswith("0 kept or protected by hand.")
    assert fleet("protect", "train-2", "--why", "the paper").code == 0
    assert fleet("keep", "train-1", "--for", "4h", "--why", "evaluation").code == 0
    listed = fleet("keep", "--list").out.splitlines()
    assert [line.split() for line in listed[-2:]] == [
        ["runpod/me/EU-SE-1/pod-a1", "kept", "4", "h", "ada@lab", "evaluation"],
        ["runpod/me/EU-SE-1/pod-a2", "protected", "until", "lifted", "ada@lab", "the", "paper"],
    ]
    assert "--for 4h" in fleet("keep").err
