"""Facts of public reports are scored the way the commands answer; a missing file is said, an odd fact has a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import accuracy, facts
from bench.facts import FitFact

ROW: dict[str, object] = {
    "src": "a-report",
    "on": "A100-80GB-SXM:1",
    "job": {"model": "llama-3.1-8b", "method": "lora", "seq_len": 2048, "micro_batch": 1},
    "mem": 20.0,
    "metric": "alloc",
    "tps": 3000.0,
    "imgs": None,
    "fits": True,
    "era": {},
}


def write_facts(folder: Path, *rows: Mapping[str, object]) -> Path:
    path = folder / "facts.jsonl"
    path.write_text("\n".join(json.dumps({**ROW, **row}) for row in rows), encoding="utf-8")
    return path


def test_memory_is_compared_in_the_metric_of_the_report(tmp_path: Path) -> None:
    path = write_facts(tmp_path, *({"id": metric, "metric": metric} for metric in ("alloc", "reserved", "smi")))
    peak, reserved, seen = (s.found for s in facts.score_facts(facts.read_facts(path)).memory)
    assert peak < reserved < seen


def test_measured_values_do_not_change_what_is_said(tmp_path: Path) -> None:
    path = write_facts(tmp_path, {"id": "a"}, {"id": "b", "mem": 1.0, "tps": 1.0})
    scored = facts.score_facts(facts.read_facts(path))
    assert scored.memory[0].found == scored.memory[1].found
    assert scored.speed[0].found == scored.speed[1].found


def test_maybe_counts_half() -> None:
    points = [
        FitFact(id="", source="", ran=ran, fit=fit, gib=1, has=1).points
        for ran, fit in ((True, "yes"), (True, "maybe"), (True, "no"), (False, "no"), (False, "yes"))
    ]
    assert points == [1, 0.5, 0, 1, 0]


def test_the_part_has_sources_mechanisms_fits_and_what_is_not_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tpu = {"id": "tpu", "on": "TPU-v5p:4"}
    path = write_facts(tmp_path, {"id": "lora"}, {"id": "oom", "mem": None, "tps": None, "fits": False}, tpu)
    assert accuracy.main(["--facts", str(path)]) == 0
    page = capsys.readouterr().out
    for text in ("| a-report", "| LoRA", "| ran out of memory | 1 ", "`tpu`", "its compiler decides the memory"):
        assert text in page


def test_without_the_facts_the_page_says_so(tmp_path: Path) -> None:
    heading, told = facts.build_sections(tmp_path / "facts.jsonl")
    assert heading.startswith("## ")
    assert told == "Not scored: the facts (facts.jsonl) are not on this machine."
