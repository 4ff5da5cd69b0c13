"""`costguard quote` over a small market: the contract of DESIGN section 7, its marks, its filters, its money."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests import shop
from tests.conftest import Command
from tests.shop import QLORA, STATED

RATE = re.compile(r"\d+\.\d{4,}")
TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")
ENDS = ["low", "expected", "high"]


@pytest.fixture
def data(costguard: Command, market: str) -> dict[str, Any]:
    ran = costguard("quote", *STATED, "--market", market, "--json")
    assert (ran.code, ran.err) == (0, "")
    return ran.data


def test_low_is_at_most_expected_at_most_high(data: dict[str, Any]) -> None:
    for option in data["options"]:
        for name in ("hours", "tokens_per_s_per_gpu", "usd"):
            low, expected, high = (Decimal(str(option[name][end])) for end in ENDS)
            assert 0 < low <= expected <= high


def test_terms_add_up_to_the_peak_and_the_reserved_memory_decides_whether_it_fits(data: dict[str, Any]) -> None:
    for option in data["options"]:
        memory = option["memory_gib"]
        assert sum(memory[term] for term in TERMS) == pytest.approx(memory["peak"], abs=0.005)
        assert memory["peak"] + memory["context"] <= memory["reserved"] + 0.001
        assert option["fits"] is True
        assert memory["reserved"] <= option["gpu_memory_gib"]


def test_what_was_refused_for_memory_needs_more_than_there_is(costguard: Command, market: str) -> None:
    large = costguard("quote", *STATED, "--method", "full", "--market", market, "--json").data
    short = [r for r in large["refused"] if r["needs_gib"] is not None]
    assert {r["gpu"] for r in short} >= {"T4", "A10", "RTX-4090"}
    assert all(r["needs_gib"] > r["has_gib"] for r in short)
    assert {o["gpu"] for o in large["options"]}.isdisjoint({"T4", "A10"})


def test_an_unknown_price_is_refused_with_its_reason_and_never_ranked(data: dict[str, Any]) -> None:
    assert not any(o["gpu"] == "L4" for o in data["options"])
    (l4,) = [r for r in data["refused"] if r["gpu"] == "L4"]
    assert l4["reason"] == "no offer with a known price"


def test_an_old_price_is_marked_stale_with_its_age(data: dict[str, Any], costguard: Command, market: str) -> None:
    prices = {(o["provider"], o["gpu"]): o["price"] for o in data["options"]}
    assert prices["lambda", "H100-SXM"]["stale"] is True
    assert prices["lambda", "H100-SXM"]["observed_at"] == "2026-10-11"
    assert prices["gcp", "A100-80GB-SXM"]["age_days"] == 41
    assert prices["gcp", "A100-80GB-SXM"]["stale"] is False  # a hyperscaler's list holds for a year
    assert prices["runpod", "RTX-4090"]["stale"] is False
    assert any("older than their time to live (lambda)" in w for w in data["warnings"])
    rows = costguard("quote", *QLORA, "--market", market, "--all").out.splitlines()
    assert all("seen 41d ago" in row for row in rows if " lambda " in row and "H100" in row and "%" not in row)
    assert all("1d old" in row for row in rows if " runpod " in row and not row.startswith("Take: "))


def test_the_cost_is_the_rate_times_the_hours_and_the_disk(data: dict[str, Any]) -> None:
    disks = {o["provider"]: o["storage_usd"] for o in data["options"]}
    assert disks["aws"] is not None
    assert disks["runpod"] is not None
    for option in data["options"]:
        disk = Decimal(option["storage_usd"]["expected"]) if option["storage_usd"] else Decimal(0)
        machines = Decimal(option["price"]["usd_per_hour_today"]["expected"]) * Decimal(str(option["hours"]["expected"]))
        assert Decimal(option["usd"]["expected"]) == pytest.approx(machines + disk, rel=Decimal("0.002"), abs=Decimal("0.006"))


def test_json_shows_every_option_and_the_table_says_how_many_it_hides(costguard: Command, tmp_path: Path) -> None:
    many = [shop.offer("aws", "T4", f"0.{n}", count=n, name=f"t{n}") for n in range(1, 31)]
    path = shop.market(tmp_path, many)
    assert len(costguard("quote", *QLORA, "--market", path, "--json").data["options"]) == 30
    table = costguard("quote", *QLORA, "--market", path).out
    drawn = len(re.findall(r"^ *\d+  aws ", table, re.MULTILINE))
    assert 1 <= drawn <= 5
    assert f"--all shows {30 - drawn} more options (1 provider)" in table
    every = costguard("quote", *QLORA, "--market", path, "--all").out
    assert len(re.findall(r"^ *\d+  aws ", every, re.MULTILINE)) == 30


@pytest.mark.parametrize(
    ("flags", "field", "left"),
    [
        (("--provider", "aws"), "provider", {"aws"}),
        (("--provider", "aws", "--provider", "lambda"), "provider", {"aws", "lambda"}),
        (("--region", "us-east-1"), "region", {"us-east-1"}),
        (("--tier", "spot"), "tier", {"spot"}),
        (("--tier", "spot", "--tier", "secure"), "tier", {"spot", "secure"}),
        (("--gpu", "T4"), "gpu", {"T4"}),
        (("--gpu", "H100", "--gpu", "A10"), "gpu", {"H100-SXM", "A10"}),
        (("--count", "8"), "gpu_count", {8}),
        (("--max-gpus", "1"), "gpu_count", {1}),
    ],
)
def test_a_filter_leaves_only_what_it_names(
    costguard: Command, market: str, flags: tuple[str, ...], field: str, left: set[object]
) -> None:
    options = costguard("quote", *QLORA, "--market", market, "--json", *flags).data["options"]
    assert {o[field] for o in options} == left


def test_a_cap_on_money_counts_what_is_expected(costguard: Command, market: str) -> None:
    every = costguard("quote", *QLORA, "--market", market, "--json").data["options"]
    middle = sorted(Decimal(o["usd"]["expected"]) for o in every)[len(every) // 2]
    capped = costguard("quote", *QLORA, "--market", market, "--json", "--max-usd", str(middle + Decimal("0.01")))
    kept = capped.data["options"]
    assert capped.code == 0
    assert [o["instance_type"] for o in kept] == [
        o["instance_type"] for o in every if Decimal(o["usd"]["expected"]) <= middle + Decimal("0.01")
    ]
    over = [r for r in capped.data["refused"] if r["reason"].startswith("over the cap")]
    assert len(over) == len(every) - len(kept)
    assert any("may pass max_usd" in note for o in kept for note in o["notes"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--max-usd", "0.01"), "the cheapest that fits is"),
        (("--max-hours", "0.01"), "the fastest that fits is"),
        (("--max-usd", "0.01", "--max-hours", "0.01"), "the fastest that fits is"),
    ],
)
def test_where_everything_is_over_the_cap_the_answer_is_no(
    costguard: Command, market: str, flags: tuple[str, ...], said: str
) -> None:
    ran = costguard("quote", *STATED, "--market", market, "--json", *flags)
    assert ran.code == 3
    assert ran.data["options"] == []
    assert "are over the cap" in ran.err
    assert said in ran.err
    ran.is_clean()


CHANGES = {
    "method = qlora": ("--method", "qlora"), "method = lora": ("--method", "lora"),
    "checkpointing = full": ("--checkpointing", "full"), "micro_batch = 1": ("--micro-batch", "1"),
    "optimizer = adamw-8bit": ("--optimizer", "adamw-8bit"), "parallel.offload = optimizer": ("--offload", "optimizer"),
    "parallel.offload = all": ("--offload", "all"), "parallel.fsdp = true": ("--fsdp",), "seq_len = ": ("--seq-len",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("job", "sold"),
    [
        (("--model", "llama-3.1-8b", "--method", "full"), "RTX-4090"),
        (("--model", "llama-3.1-8b", "--method", "lora", "--micro-batch", "8", "--checkpointing", "none"), "RTX-4090"),
        (("--model", "llama-3.1-70b", "--method", "lora"), "H100-SXM"),
        (("--model", "llama-3.1-8b", "--method", "qlora", "--seq-len", "4000000"), "RTX-4090"),
        (("--model", "mistral-7b", "--method", "full", "--micro-batch", "64", "--checkpointing", "none"), "A100-80GB-SXM"),
    ],
)
def test_where_nothing_fits_following_the_advice_makes_it_fit(
    costguard: Command, tmp_path: Path, job: tuple[str, ...], sold: str
) -> None:
    common = (*job, "--tokens", "1e6", "--market", shop.market(tmp_path, [shop.offer("runpod", sold, "2")]))
    ran = costguard("quote", *common)
    assert ran.code == 3
    assert "nothing fits: 1 refused" in ran.err
    advice = ran.err.splitlines()[-1].removeprefix("hint: ").split("; ")[0]
    changes, _, where = advice.partition(" would fit on ")
    assert where == f"{sold} x1", ran.err
    followed: list[str] = []
    for change in changes.split(" and "):
        name, value = next((name, value) for name, value in CHANGES.items() if change.startswith(name))
        followed += (*value, change.split()[2]) if name == "seq_len = " else value
    assert costguard("quote", *common, *followed).code == 0, advice


def test_the_plain_question_is_the_rate_times_the_hours_to_the_cent(costguard: Command, market: str) -> None:
    data = costguard("quote", "--gpu", "H100", "--count", "8", "--hours", "12", "--market", market, "--json").data
    assert [(o["provider"], o["tier"]) for o in data["options"]] == [
        ("aws", "spot"),
        ("runpod", "secure"),
        ("lambda", "on-demand"),
        ("aws", "on-demand"),
    ]
    for option in data["options"]:
        cost = Decimal(option["usd_per_hour"]) * 12
        if option["provider"] == "lambda" or option["tier"] == "spot":  # 41 days old, and of yesterday: they may have moved
            assert Decimal(option["usd"]["low"]) < cost < Decimal(option["usd"]["high"])
        else:
            assert option["usd"] == dict.fromkeys(ENDS, f"{cost:.2f}")
        assert option["hours"] == dict.fromkeys(ENDS, 12.0)


def test_given_hardware_is_timed_whatever_the_market_offers(costguard: Command, market: str) -> None:
    data = costguard("quote", *STATED, "--on", "H200-SXM:4", "--market", market, "--json").data
    (option,) = data["options"]
    assert (option["gpu"], option["gpu_count"], option["provider"]) == ("H200-SXM", 4, None)
    assert (option["usd_per_hour"], option["usd"]) == (None, None)
    assert option["hours"]["expected"] > 0
    assert option["notes"] == ["no selected offer of this hardware has a known price"]


def test_without_tokens_there_are_no_hours_and_no_money_and_a_warning_says_so(costguard: Command, market: str) -> None:
    ran = costguard("quote", "--model", "llama-3.1-8b", "--method", "qlora", "--market", market, "--json")
    assert ran.code == 0
    assert all(o["hours"] is None and o["usd"] is None for o in ran.data["options"])
    rates = [Decimal(o["usd_per_hour"]) for o in ran.data["options"]]
    assert rates == sorted(rates)
    assert "tokens was not stated" in ran.err


def test_the_first_line_says_what_to_take_and_the_last_one_what_was_assumed(costguard: Command, market: str) -> None:
    lines = costguard("quote", *QLORA, "--market", market).out.splitlines()
    assert re.fullmatch(
        r"Take: runpod RTX-4090 \(community\), \$\d+\.\d\d \(\d+\.\d\d-\d+\.\d\d\), about \d+\.\d h, price 1 d old\.", lines[0]
    )
    caveats = [line for line in lines if line.startswith("Assumed, because not given: ")]
    assert caveats == lines[-1:]
    for assumed in ("micro_batch 2", "precision bf16", "checkpointing full"):
        assert assumed in lines[-1]


def test_why_says_what_each_assumption_changes(costguard: Command, market: str) -> None:
    brief, full = costguard("quote", *QLORA, "--market", market), costguard("quote", *QLORA, "--market", market, "--why")
    assert "x the memory" not in brief.out
    assert "x the memory" in full.out
    assert brief.out.splitlines()[:4] == full.out.splitlines()[:4]


@pytest.mark.parametrize(("command", "some"), [("quote", "--lora-rank"), ("size", "--kv-cache"), ("run", "--notices")])
def test_a_help_has_at_most_40_lines_in_groups_and_help_all_every_option(costguard: Command, command: str, some: str) -> None:
    brief, full = costguard(command, "--help").out, costguard(command, "--help-all").out
    assert len(brief.splitlines()) <= 40
    assert some not in brief
    assert some in full
    for answer in (brief, full):
        assert [line for line in answer.splitlines() if re.fullmatch("[A-Z][a-z]+:", line)] == [
            one for one in ("Job:", "Hardware:", "Market:", "Answer:") if one in answer
        ]
    assert set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", brief, re.MULTILINE)) < set(
        re.findall(r"^  (?:-\w, )?(--[a-z-]+)", full, re.MULTILINE)
    )
