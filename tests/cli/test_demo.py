"""`costguard demo`: the main job on the shipped market, as `make demo` runs it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from costguard.cli.demo import AS_TYPED
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Poll
from costguard.testing import demo as showing
from costguard.testing import weekend
from costguard.testing.guarding import GuardedClouds
from tests.conftest import Command
from tests.played import FORTNIGHT, NOW, WEEKEND, played, tell_again


@pytest.fixture(autouse=True)
def _told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_again(monkeypatch)


def test_the_demo_ends_with_a_ranked_quote_of_the_main_job(costguard: Command) -> None:
    ran = costguard("demo")
    assert ran.code == 0
    lead, job = ran.out.splitlines()[:2]
    assert lead.startswith("Take: runpod ")
    assert job == "llama-3.1-8b (8.03B), qlora, bf16, nf4, seq 2048, batch 2, 50,000,000 tokens"
    assert len(re.findall(r"^ *\d+  \w+ ", ran.out, re.MULTILINE)) >= 5


def test_what_the_demo_says_it_runs_gives_the_same_quote(costguard: Command) -> None:
    demo = costguard("demo", "--json")
    assert demo.err.startswith(f"$ {AS_TYPED}\n")
    typed = costguard(*AS_TYPED.split()[1:], "--json")
    assert demo.data["options"] == typed.data["options"]


@pytest.mark.proof
def test_the_fortnight_stands_beside_its_bill_and_is_right(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "play_fortnight", FORTNIGHT)
    ran = costguard("demo", "--json")
    fortnight = ran.data["fortnight"]
    assert ran.data["schema"] == "costguard.demo/2"
    assert [cloud["provider"] for cloud in fortnight["clouds"]] == [
        "sim-aws", "sim-gcp", "sim-lambda", "sim-runpod", "sim-vast",
    ]  # fmt: skip
    for cloud in fortnight["clouds"]:
        low, high, billed = (Fraction(text) for text in (cloud["usd"]["low"], cloud["usd"]["high"], cloud["bill_usd"]))
        assert low - Fraction(1, 10**6) <= billed <= high + Fraction(1, 10**6)
        assert cloud["wrong"] == []
    assert sum(cloud["exact"] for cloud in fortnight["clouds"]) >= 5
    assert {"answered 429", "returned an empty list"} <= set(fortnight["faults"])


@pytest.mark.proof
def test_the_ledger_of_a_demo_can_be_kept_and_asked(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weekend, "play_weekend", WEEKEND)
    assert costguard("demo", "--ledger", "demo.db").code == 0
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", f"sqlite:///{Path('demo.db').absolute()}")
    assert costguard("db", "check").code == 0
    assert costguard("report", "--json").data["schema"] == "costguard.report/1"
    assert len(costguard("status", "--json").data["scopes"]) >= 5
    again = costguard("demo", "--ledger", "demo.db")
    assert again.code == 2
    assert "must not be mixed with real costs" in again.err


@pytest.mark.parametrize(("name", "words"), [("folder", "is a folder"), ("text", "is not a ledger"), ("text/demo.db", "")])
def test_a_file_that_cannot_keep_a_demo_is_refused_before_anything_is_printed(
    costguard: Command, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello")
    ran = costguard("demo", "--ledger", str(tmp_path / name))
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
    assert ran.err.startswith("costguard: ") or ran.err.startswith("error: ")


@pytest.mark.proof
def test_a_ledger_that_forgets_is_found_out(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    record = LedgerWriter.record_polls

    def forgetful(self: LedgerWriter, polls: list[Poll], **stated: Any) -> object:  # noqa: ANN401 - a lease
        kept = polls[: len(polls) // 2] if len(polls) > 1 else polls  # the weekend before it records one poll at a time
        return record(self, kept, **stated)

    monkeypatch.setattr(LedgerWriter, "record_polls", forgetful)
    monkeypatch.setattr(showing, "play_fortnight", FORTNIGHT)
    ran = costguard("demo")
    assert ran.code == 1
    assert "the bill is outside the interval" in ran.out


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(6))
def test_other_fortnights_are_right_too(tmp_path: Path, seed: int) -> None:
    played = showing.play_world(f"sqlite:///{tmp_path}/ledger.db", seed=seed, end=showing._find_midnight(), days=5, size=20)
    assert played.wrong == ()


def test_the_weekend_is_printed_between_the_quote_and_the_fortnight(costguard: Command) -> None:
    ran = costguard("demo")
    places = [ran.out.index(text) for text in ("llama-3.1-8b", "A simulated weekend", "Saved until Monday", "the bill $")]
    assert places == sorted(places)
    assert "UTC" not in "".join(line for line in ran.out.splitlines() if line.startswith("Fri 06 Nov"))


def test_the_weekend_is_part_of_the_demo_as_data(costguard: Command) -> None:
    data = costguard("demo", "--json").data["weekend"]
    assert (data["start"], data["end"]) == ("2026-11-06T16:00:00Z", "2026-11-09T09:00:00Z")
    assert data["wrong"] == []
    assert data["report"]["schema"] == "costguard.report/1"


def test_what_was_saved_is_net_of_disks_and_adds_up() -> None:
    data = played().document.data
    savings = data["savings"]
    assert isinstance(savings, list)
    train = next(one for one in savings if one["machine"] == "train")
    hours = Fraction(
        (datetime(2026, 11, 9, 9, tzinfo=UTC) - datetime.fromisoformat(train["proven_at"])) // timedelta(seconds=1), 3600
    )
    assert abs(Fraction(train["avoided_usd"]) - hours * Fraction("32.77")) < Fraction(1, 10**8)
    assert abs(Fraction(train["disks_usd"]) - hours * 500 * Fraction("0.08") / 730) < Fraction(1, 10**8)
    assert sum(Fraction(one["saved_usd"]) for one in savings) == Fraction(str(data["saved_usd"]))


def test_the_report_of_the_weekend_holds_what_every_machine_truly_cost() -> None:
    machines = played().document.data["machines"]
    assert isinstance(machines, list)
    assert [one["right"] for one in machines] == [True] * 5


def test_the_report_of_the_weekend_shows_the_idle_time_of_its_story() -> None:
    """To the sample: `train` is quiet from Fri 18:00 to its stop at 19:20, `notebook` from Sat 15:00 to its end at 17:20."""
    report = played().document.data["report"]
    assert isinstance(report, dict)
    idle = {group["by"]["name"]: (group["idle_hours"], group["idle_usd"]) for group in report["groups"]}
    assert idle["train"] == (1.3333, "43.693333333")
    assert idle["notebook"] == (2.3333, "55.813333333")
    assert {name for name, (hours, _) in idle.items() if hours} == {"train", "notebook"}, (
        "a download and a hang are no idleness"
    )


def test_the_timeline_is_in_the_order_of_time_and_dates_are_local() -> None:
    times = [str(one["at"]) for one in played().document.records]
    assert all(first <= later for first, later in pairwise(times))
    assert played().document.tables[0].rows[0][0] == "Fri 06 Nov 16:00"


@pytest.mark.proof
def test_the_weekend_that_is_over_is_played_where_the_clocks_go_back(tmp_path: Path) -> None:
    settings = tmp_path / "costguard.toml"
    settings.write_text('[defaults]\ntimezone = "Europe/Berlin"\n')
    answer = WEEKEND(config=str(settings), now=datetime(2026, 10, 27, 12, tzinfo=UTC))
    assert answer.refusal is None
    assert answer.document.data["start"] == "2026-10-23T14:00:00Z"
    assert answer.document.data["end"] == "2026-10-26T08:00:00Z"


@pytest.mark.proof
def test_a_weekend_that_nobody_guards_is_found_out(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedClouds, "guard", lambda _: None)
    unguarded = WEEKEND(now=NOW)
    monkeypatch.setattr(weekend, "play_weekend", lambda **_: unguarded)
    ran = costguard("demo")
    assert ran.code == 1
    assert "WRONG: " in ran.out
    assert "this is a bug in costguard" in ran.err
    assert ran.out.count("sim-aws") == 0
