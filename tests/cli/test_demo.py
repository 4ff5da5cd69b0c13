"""`costguard demo`: the main job on the shipped market, as `make demo` runs it."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from costguard.app import showing
from costguard.cli.demo import AS_TYPED
from costguard.core.metering.inventory import Poll
from costguard.ledger.writing import Ledger
from tests.conftest import Command


def test_the_demo_ends_with_a_ranked_quote_of_the_main_job(costguard: Command) -> None:
    ran = costguard("demo")
    assert ran.code == 0
    assert ran.out.startswith("llama-3.1-8b (8.03B), qlora, bf16, nf4, seq 2048, batch 2, 50,000,000 tokens")
    assert len(re.findall(r"^ *\d+  \w+ ", ran.out, re.MULTILINE)) >= 10


def test_what_the_demo_says_it_runs_gives_the_same_quote(costguard: Command) -> None:
    demo = costguard("demo", "--json")
    assert demo.err.startswith(f"$ {AS_TYPED}\n")
    typed = costguard(*AS_TYPED.split()[1:], "--json")
    assert demo.data["options"] == typed.data["options"]


def test_nothing_is_left_to_assume_in_the_demo(costguard: Command) -> None:
    assert costguard("demo", "--json").data["job"]["assumed"] == {}


def test_the_fortnight_stands_beside_its_bill_and_is_right(costguard: Command) -> None:
    ran = costguard("demo", "--json")
    fortnight = ran.data["fortnight"]
    assert ran.data["schema"] == "costguard.demo/1"
    assert [cloud["provider"] for cloud in fortnight["clouds"]] == [
        "sim-aws",
        "sim-gcp",
        "sim-lambda",
        "sim-runpod",
        "sim-vast",
    ]
    for cloud in fortnight["clouds"]:
        low, high, billed = (Fraction(text) for text in (cloud["usd"]["low"], cloud["usd"]["high"], cloud["bill_usd"]))
        assert low - Fraction(1, 10**6) <= billed <= high + Fraction(1, 10**6)
        assert cloud["wrong"] == []
    assert sum(cloud["exact"] for cloud in fortnight["clouds"]) >= 5
    assert {"answered 429", "lied that there is nothing"} <= set(fortnight["faults"])


def test_the_ledger_of_a_demo_can_be_kept_and_asked(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert costguard("demo", "--ledger", "demo.db").code == 0
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", f"sqlite:///{Path('demo.db').absolute()}")
    assert costguard("db", "check").code == 0
    assert costguard("report", "--json").data["schema"] == "costguard.report/1"
    assert len(costguard("status", "--json").data["scopes"]) >= 5
    again = costguard("demo", "--ledger", "demo.db")
    assert again.code == 2
    assert "never mixed with real spending" in again.err


@pytest.mark.parametrize(("name", "words"), [("folder", "is a folder"), ("text", "is no ledger"), ("text/demo.db", "")])
def test_a_file_that_cannot_keep_a_demo_is_refused_before_anything_is_printed(
    costguard: Command, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello")
    ran = costguard("demo", "--ledger", str(tmp_path / name))
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
    assert ran.err.startswith("costguard: ") or ran.err.startswith("error: ")


def test_a_ledger_that_forgets_is_found_out(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Ledger.record

    def forgetful(self: Ledger, polls: list[Poll]) -> object:
        return record(self, polls[: len(polls) // 2])

    monkeypatch.setattr(Ledger, "record", forgetful)
    ran = costguard("demo")
    assert ran.code == 1
    assert "the bill lies outside the interval" in ran.out


@pytest.mark.parametrize("seed", range(6))
def test_other_fortnights_are_right_too(tmp_path: Path, seed: int) -> None:
    played = showing.play(f"sqlite:///{tmp_path}/ledger.db", seed=seed, end=showing._midnight(), days=5, size=20)
    assert played.wrong == ()
