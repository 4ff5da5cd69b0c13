"""Hardware of one's own: its row in a quote, what is assumed of it, and `[providers.local]` with slips."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.shop import STATED

WHOLE = "[providers.local]\nusd_per_kwh = 0.30\nwatts = 450\nprice = 1600\nyears = 3\n"


def write(folder: Path, text: str) -> str:
    (folder / "own.toml").write_text(text)
    return str(folder / "own.toml")


def quote(costguard: Command, folder: Path, market: str, text: str, on: str = "RTX-4090") -> list[dict[str, Any]]:
    ran = costguard("--config", write(folder, text), "quote", *STATED, "--on", on, "--market", market, "--json")
    assert ran.code == 0, ran.err
    options: list[dict[str, Any]] = ran.data["options"]
    return options


def test_a_machine_of_ones_own_costs_power_and_wear_beside_rented_ones(costguard: Command, market: str, tmp_path: Path) -> None:
    options = quote(costguard, tmp_path, market, WHOLE)
    assert [(o["provider"], o["tier"]) for o in options] == [("local", "own"), ("runpod", "community")]
    own = options[0]
    assert own["usd_per_hour"] == "0.1959"  # 0.450 x 0.30 = 0.135, and 1600 / (3 x 8,760) = 0.0609
    assert float(own["usd"]["expected"]) == pytest.approx(0.19589 * own["hours"]["expected"], abs=0.006)
    assert any("own hardware: 450 W at $0.30 per kWh, and $1600.00 over 3 years" in note for note in own["notes"])
    assert not any("assumed" in note for note in own["notes"])


def test_what_is_not_stated_is_the_datasheets_and_said(costguard: Command, market: str, tmp_path: Path) -> None:
    (note,) = [
        note
        for note in quote(costguard, tmp_path, market, "[providers.local]\nusd_per_kwh = 0.3\n", on="RTX-4090:2")[0]["notes"]
        if note.startswith("own hardware")
    ]
    assert "assumed: 900 W, without the host; $3200.00 of the GPUs' list price; 3 years" in note


def test_without_the_table_nothing_is_ones_own(costguard: Command, market: str, tmp_path: Path) -> None:
    assert {o["provider"] for o in quote(costguard, tmp_path, market, "")} == {"runpod"}


def test_local_as_the_provider_is_ones_own_and_nothing_else(costguard: Command, market: str, tmp_path: Path) -> None:
    settings, asked = write(tmp_path, WHOLE), ("quote", *STATED, "--market", market, "-p", "local")
    ran = costguard("--config", settings, *asked, "--on", "RTX-4090", "--json")
    assert [o["provider"] for o in ran.data["options"]] == ["local"]
    others = costguard("--config", settings, "quote", *STATED, "--market", market, "-p", "runpod", "--on", "RTX-4090", "--json")
    assert [o["provider"] for o in others.data["options"]] == ["runpod"]
    costguard("--config", settings, *asked).says("-p: local is hardware of your own", "--on RTX-4090")
    bare = costguard("--config", write(tmp_path, ""), *asked, "--on", "RTX-4090")
    bare.says("-p: local has no costs", "[providers.local]")


def test_a_seller_of_plans_as_the_provider_is_answered_by_its_plans(costguard: Command) -> None:
    asked = ("quote", "--model", "llama-2-7b", "--method", "qlora", "--tokens", "1M")
    alone = costguard(*asked, "-p", "colab")
    assert alone.code == 0, alone.err
    assert "free, sessions of 12 h" in alone.out
    assert "Take:" not in alone.out
    both = costguard(*asked, "-p", "colab,runpod", "--json")
    assert {o["provider"] for o in both.data["options"]} == {"runpod"}
    none = costguard("quote", "--model", "llama-3-70b", "--method", "lora", "--tokens", "1M", "-p", "colab")
    assert none.code == 3
    assert "no plan of colab can run it" in none.err


def test_hardware_with_a_stated_size_is_quoted(costguard: Command, market: str, tmp_path: Path) -> None:
    assert quote(costguard, tmp_path, market, WHOLE, on="4090 48GB")[0]["gpu"] == "RTX-4090-48GB"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("watts = 450", ("providers.local.usd_per_kwh: is missing", "write usd_per_kwh = 0.3")),
        ("usd_per_kwh = -1", ("providers.local.usd_per_kwh: is below zero",)),
        ("usd_per_kwh = 0.3\nwatts = 0", ("providers.local.watts: must be between 1",)),
        ("usd_per_kwh = 0.3\nyears = 3", ("providers.local.years: is the life of no price", "write price = 1600")),
        ("usd_per_kwh = 0.3\nprice = 9\nyears = 0", ("providers.local.years: must be between",)),
        ("usd_per_kwh = 0.3\nvolts = 2", ("unknown key 'volts'", "usd_per_kwh, watts, price, years")),
    ],
)
def test_a_slip_in_the_table_names_the_key_and_what_to_write(
    costguard: Command, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    costguard("--config", write(tmp_path, f"[providers.local]\n{text}\n"), "quote", *STATED, "--on", "T4").says(*words)


def test_a_machine_of_which_nothing_is_known_asks_for_watts(costguard: Command, tmp_path: Path, market: str) -> None:
    config = write(tmp_path, "[providers.local]\nusd_per_kwh = 0.3\n")
    costguard("--config", config, "quote", *STATED, "--on", "M4-Max", "--market", market).says("write watts = 60", "M4-Max")


def test_a_job_is_bought_for_after_so_many_runs(costguard: Command, tmp_path: Path, market: str) -> None:
    (tmp_path / "job.toml").write_text('model = "llama-3.1-8b"\nmethod = "qlora"\ntokens = 50_000_000\n')
    flags = (str(tmp_path / "job.toml"), "--gpu", "RTX-4090", "--market", market, "--json")
    data = costguard("--config", write(tmp_path, WHOLE), "breakeven", *flags).data
    job = data["job"]
    assert (data["price_usd"], data["power_w"]) == ("1600.00", 450)
    assert job["rented_as"] == "runpod RTX-4090 x1 (community)"
    saved = float(job["rented_usd"]) - 0.135 * job["hours"]["expected"]
    assert job["runs"] == pytest.approx(1600 / saved, rel=0.02)


def test_breakeven_of_a_job_names_what_is_missing(costguard: Command, tmp_path: Path, market: str) -> None:
    (tmp_path / "job.toml").write_text('model = "llama-3.1-8b"\nmethod = "qlora"\n')
    costguard("breakeven", str(tmp_path / "job.toml"), "--market", market).says("--gpu", "which hardware is bought")
    ran = costguard("breakeven", str(tmp_path / "job.toml"), "--gpu", "RTX-4090", "--market", market)
    assert "has no hours on RTX-4090 x1: tokens is not stated" in ran.err


def test_host_memory_disk_and_checkpoints_of_a_spot_run_stand_in_the_answer(costguard: Command, market: str) -> None:
    flags = ("quote", *STATED, "--market", market)
    options = costguard(*flags, "--json").data["options"]
    assert all(o["host_gib"] > 4 and o["disk_gb"] > 50 for o in options)
    spot = next(o for o in options if o["tier"] == "spot")
    assert spot["checkpoints"]["store"] == "S3 Standard"
    assert float(spot["checkpoints"]["lost_usd"]) <= float(spot["checkpoints"]["stated_lost_usd"])
    assert all(o["checkpoints"] is None for o in options if o["tier"] != "spot")
    told = costguard(*flags, "--tier", "spot", "--explain").out
    assert "Checkpoints of an interruptible run" in told
    assert "GiB of host memory" in told


def test_splits_stand_side_by_side(costguard: Command, market: str) -> None:
    flags = ("quote", *STATED, "--on", "H100:8", "--market", market, "--compare", "parallel")
    data = costguard(*flags, "--json").data
    assert [one["split"] for one in data["splits"]][:5] == ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP"]
    assert "The same GPUs, split in other ways" in costguard(*flags).out
    costguard("quote", *STATED, "--on", "H100", "--compare", "parallel").says("--compare", "write --on H100:8")
    costguard("quote", *STATED, "--compare", "serial").says("--compare", "parallel")


def test_a_pilot_is_quoted_beside_the_whole(costguard: Command, market: str) -> None:
    flags = ("quote", *STATED, "--market", market)
    data = costguard(*flags, "--pilot", "1 %", "--json").data
    runs = {one["run"]: one for one in data["pilot"]["runs"]}
    cheapest, whole = runs["1 %, cheapest"], runs["the whole"]
    assert whole["hours"]["expected"] > 10 * cheapest["hours"]["expected"]
    assert Decimal(data["pilot"]["total_usd"]) == pytest.approx(
        Decimal(cheapest["usd"]) + Decimal(whole["usd"]), abs=Decimal("0.02")
    )
    assert "Pilot of 1 % on " in costguard(*flags, "--pilot", "1").out
    assert "pilot" not in costguard(*flags, "--json").data
    for text, why in (
        ("0", "above 0 %"),
        ("60%", "between 0 and 50"),
        ("0.0000001%", "less than one sequence"),
        ("some", "a number"),
    ):
        costguard(*flags, "--pilot", text).says("--pilot", why)
    costguard("quote", "--gpu", "H100", "--hours", "2", "--market", market, "--pilot", "1").says("--pilot", "a part of a job")


def test_the_effective_batch_of_a_plain_quote_is_stated(costguard: Command, market: str) -> None:
    flags = ("quote", *STATED, "--on", "H100:8", "--global-batch-tokens", "524288", "--market", market, "--why")
    stated = "a step has 256 examples, the effective batch: 2 (micro_batch) x 8 (GPUs over tp x pp x cp) x 16 (accumulation)"
    assert stated in costguard(*flags).out
