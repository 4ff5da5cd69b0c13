"""`costguard policy lint` says what a policy will not do although somebody may have meant it to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command

POLICY = """
[[policy]]
name = "one"
arm = "stop"
{more}
when = '{when}'
for = "{hold}"
then = [{{ do = "notify" }}, {{ after = "15m", do = "stop" }}]
"""
SPARES = "one may match active machines, but does not stop them"
FEW = "fewer than 3 of them are in"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def remarks(costguard: Command, when: str, hold: str = "45m", more: str = "", providers: tuple[str, ...] = ()) -> str:
    tables = "".join(f"[providers.{name}]\n" for name in providers)
    Path("costguard.toml").write_text(POLICY.format(when=when, hold=hold, more=more) + tables)
    ran = costguard("policy", "lint", "--json")
    assert ran.code == 0, ran.err
    return "\n".join(ran.data["remarks"])


@pytest.mark.parametrize("when", ["spent_day >= usd(50)", 'age > duration("720h")', 'state == "idle" || spent_day >= usd(50)'])
def test_a_stop_that_may_concern_a_machine_at_work_is_said_to_spare_it(costguard: Command, when: str) -> None:
    said = remarks(costguard, when)
    assert f'{SPARES}, nor unmeasured ones: rule = "limit", a [[budget]] with hard = true or a schedule does.' in said


@pytest.mark.parametrize(
    "when", ['state == "idle"', 'state == "hung" && rate >= usd_per_hour(1)', 'power == "stopped" && age > duration("720h")']
)
def test_a_condition_that_no_machine_at_work_meets_needs_no_remark(costguard: Command, when: str) -> None:
    assert "will never" not in remarks(costguard, when)


@pytest.mark.parametrize(("off", "times"), [('"mon-fri 20:00-08:00", "sat-sun"', 1), ('"20:00-08:00", "sat-sun"', 0)])
def test_a_start_at_midnight_after_a_day_off_is_remarked(costguard: Command, off: str, times: int) -> None:
    scheduled = f'schedule = {{ timezone = "Europe/Berlin", off = [{off}], start = true }}'
    found = remarks(costguard, 'scheduled_on == false && power == "running"', more=scheduled)
    assert found.count("one starts machines at 00:00 on Monday") == times


def test_a_wait_too_short_for_measures_that_come_late_is_said_for_each_provider(costguard: Command) -> None:
    said = remarks(costguard, 'state == "idle"', "20m", providers=("aws", "gcp", "runpod"))
    assert (
        f"one: samples of aws arrive every 5 min and 10 min late, so {FEW} 20 min: "
        'write for = "25m" or more, or its machines may never be classified as idle.'
    ) in said
    assert said.count(FEW) == 1


@pytest.mark.parametrize(
    ("when", "hold", "more", "providers"),
    [
        ('state == "idle"', "25m", "", ("aws",)),
        ('state == "idle"', "20m", 'match = { providers = ["runpod"] }', ("aws", "runpod")),
        ('state == "idle"', "20m", "", ("runpod",)),
        ('power == "stopped"', "20m", "", ("aws",)),
        ("spent_day >= usd(50)", "20m", "", ("aws",)),
        ('state == "hung"', "10m", "", ("aws",)),
    ],
    ids=["long enough", "not of it", "not configured", "of what is stopped", "of money", "of a hang"],
)
def test_and_it_is_not_said_where_nothing_late_is_waited_for(
    costguard: Command, when: str, hold: str, more: str, providers: tuple[str, ...]
) -> None:
    assert FEW not in remarks(costguard, when, hold, more, providers)
