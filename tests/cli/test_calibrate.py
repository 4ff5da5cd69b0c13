"""`costguard calibrate`, end to end: quotes change, say so, and are what they were after --reset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

JOB = ["--model", "llama-3.1-8b", "--method", "lora", "--seq-len", "2048", "--tokens", "50e6"]
RUNS = """\
name,model,method,seq_len,micro_batch,gpu,tokens_per_s,hours,tokens,peak_gib
mon,llama-3.1-8b,lora,2048,1,H100,5300,,,21.5
tue,llama-3.1-8b,lora,2048,2,H100,9300,,,
wed,llama-3.1-8b,lora,2048,4,H100,11_500,,,
thu,mistral-7b,lora,2048,1,H100,,5.2,100e6,
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    file = tmp_path / "runs.csv"
    file.write_text(RUNS, encoding="utf-8")
    return file


def kept(tmp_path: Path) -> Path:
    return tmp_path / "data" / "costguard" / "calibration.json"


def option(costguard: Command, *more: str) -> dict[str, Any]:
    found = costguard("quote", *JOB, "--on", "H100:1", "--json", *more).data["options"][0]
    assert isinstance(found, dict)
    return found


def test_quotes_change_say_so_and_come_back(costguard: Command, runs: Path, tmp_path: Path) -> None:
    before = option(costguard)
    answer = costguard("calibrate", str(runs))
    assert answer.code == 0
    assert "4 observed runs, 4 of them new" in answer.out
    after = option(costguard)
    speed, was = after["tokens_per_s_per_gpu"], before["tokens_per_s_per_gpu"]
    assert speed["expected"] != was["expected"]
    assert speed["high"] / speed["low"] < was["high"] / was["low"]
    assert any(n.startswith("calibrated on 4 runs: speed x ") for n in after["notes"])
    assert any(n.startswith("memory calibrated on 1 run: peak x ") for n in after["notes"])
    assert after["memory_gib"]["peak"] != before["memory_gib"]["peak"]
    assert costguard("calibrate", "--reset").code == 0
    assert not kept(tmp_path).exists()
    assert option(costguard) == before


def test_one_run_far_outside_the_interval_moves_quotes_towards_it_and_widens_them(costguard: Command, tmp_path: Path) -> None:
    before = option(costguard)["tokens_per_s_per_gpu"]
    observed = before["expected"] / 3
    assert observed < before["low"]
    rows = f"model,method,seq_len,micro_batch,gpu,tokens_per_s\nllama-3.1-8b,lora,2048,1,H100,{observed:.0f}\n"
    (tmp_path / "far.csv").write_text(rows, encoding="utf-8")
    assert costguard("calibrate", str(tmp_path / "far.csv")).code == 0
    after = option(costguard)["tokens_per_s_per_gpu"]
    assert observed < after["expected"] < before["expected"]
    assert after["high"] / after["low"] > before["high"] / before["low"]


def test_show_writes_nothing(costguard: Command, runs: Path, tmp_path: Path) -> None:
    assert costguard("calibrate", str(runs), "--show", "--json").data["new"] == 4
    assert not kept(tmp_path).exists()
    assert costguard("calibrate", "--show", "--json").data["runs"] == 0


def test_odd_and_contradicting_rows_are_named_and_left_out(costguard: Command, runs: Path) -> None:
    lines = [
        "odd,llama-3.1-8b,lora,1024,1,H100,90,,,2600",
        "one,llama-3.1-8b,lora,512,1,H100,9000,,,",
        "two,llama-3.1-8b,lora,512,1,H100,3000,,,",
        "both,llama-3.1-8b,lora,256,1,H100,9000,30,50e6,",
        "warp,llama-3.1-8b,lora,4096,1,H100,60000,,,",
    ]
    runs.write_text(RUNS + "\n".join(lines) + "\n", encoding="utf-8")
    answer = costguard("calibrate", str(runs), "--json")
    assert answer.code == 0
    left = {(o["run"], o["measure"]): o["why"] for o in answer.data["left_out"]}
    assert set(left) == {
        ("odd", "speed"), ("odd", "memory"), ("one", "speed"), ("two", "speed"), ("both", "speed"), ("warp", "speed"),
    }  # fmt: skip
    assert "check the units" in left["odd", "speed"]
    assert "more than the" in left["odd", "memory"]
    assert "contradicts two" in left["one", "speed"]
    assert "hours contradict" in left["both", "speed"]
    assert "arithmetic" in left["warp", "speed"]
    assert next(f for f in answer.data["families"] if f["measure"] == "speed")["runs"] == 4
    assert "odd: its speed was left out" in answer.err


def test_a_damaged_calibration_is_named_and_reset_removes_it(costguard: Command, runs: Path, tmp_path: Path) -> None:
    costguard("calibrate", str(runs))
    for text in ("{", "[]", '{"schema": "other"}', '{"schema": "costguard.calibration-file/1", "beliefs": [{"family": 1}]}'):
        kept(tmp_path).write_text(text, encoding="utf-8")
        costguard("quote", *JOB).says(str(kept(tmp_path)), "--reset")
    assert costguard("calibrate", "--reset").code == 0
    assert costguard("quote", *JOB).code == 0


def test_another_file_by_flag_or_by_settings(costguard: Command, runs: Path, tmp_path: Path) -> None:
    assert costguard("calibrate", str(runs), "--calibration", "mine.json").code == 0
    assert not kept(tmp_path).exists()
    assert not any("calibrated" in n for n in option(costguard)["notes"])
    assert any("calibrated on 4 runs" in n for n in option(costguard, "--calibration", "mine.json")["notes"])
    costguard("quote", *JOB, "--calibration", "none.json").says("none.json", "no such file", "costguard calibrate")
    (tmp_path / "costguard.toml").write_text('[quote]\ncalibration = "mine.json"\n', encoding="utf-8")
    assert any("calibrated on 4 runs" in n for n in option(costguard)["notes"])


def test_a_folder_that_cannot_be_written_leaves_what_was_there(
    costguard: Command, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costguard("calibrate", str(runs))
    before = kept(tmp_path).read_text(encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    runs.write_text(RUNS + "fri,llama-3.1-8b,lora,2048,16,H100,9600,,,\n", encoding="utf-8")
    answer = costguard("calibrate", str(runs))
    assert answer.code == 1
    assert "No space left on device" in answer.err
    assert kept(tmp_path).read_text(encoding="utf-8") == before
    assert [p.name for p in kept(tmp_path).parent.iterdir()] == ["calibration.json"]
