"""Predictions rest on what a row states and on nothing that was measured; odd rows get a reason; peers say what they say."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import accuracy, peers, predictions, published, scores, speeds
from bench.cases import memory_case
from bench.page import page
from bench.published import Row, read_rows
from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from tests.campaign import examples

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "data" / "accuracy"
ROWS = {kind: read_rows(HERE / f"{kind}.csv") for kind in accuracy.KINDS}
PREDICT: dict[str, Callable[[Row], Row]] = {
    "memory": predictions.memory_line,
    "runs": predictions.run_line,
    "faketensor": predictions.faketensor_line,
}
ALLOWED = {"memory": published.MEMORY, "runs": published.RUNS, "faketensor": published.FAKETENSOR}
MEASURED = {
    "memory": {"reported_value", "reported_unit", "reported_peak_gb"},
    "runs": {
        "mfu_pct",
        "hfu_pct",
        "tflops_per_gpu",
        "tflops_kind",
        "tokens_per_s_per_gpu",
        "gpu_hours",
        "wall_days",
        "cost_usd",
    },
    "faketensor": {
        "fwd_end_bytes",
        "activation_bytes_at_fwd_end",
        "peak_fwd_bwd_bytes",
        "peak_bytes",
        "state_bytes",
        "seconds",
    },
}
GIVEN = accuracy.GIVEN
ALL = [(kind, row) for kind, rows in ROWS.items() for row in rows]


@pytest.mark.parametrize("kind", accuracy.KINDS)
def test_no_measured_column_is_among_the_inputs(kind: str) -> None:
    columns = set(ROWS[kind][0])
    assert columns >= MEASURED[kind]
    assert not MEASURED[kind] & set(ALLOWED[kind])


def test_figures_in_remarks_are_struck_out() -> None:
    row = {
        "note": "4 accumulation steps; reserved mean 34.34 GB, 12.6 GiB floor, 49% over, 45 minutes, $20; rank32, chunked CE"
    }
    note = published.stated(row, published.MEMORY)["note"]
    for figure in ("34.34", "12.6", "49", "45", "20"):
        assert figure not in note
    assert "4 accumulation steps" in note
    assert "rank32, chunked CE" in note


@pytest.mark.parametrize("kind", accuracy.KINDS)
def test_every_row_gets_one_line_with_its_id(kind: str, tmp_path: Path) -> None:
    predictions.write(tmp_path, **{name: rows if name == kind else None for name, rows in ROWS.items()})
    with (tmp_path / f"{kind}.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == [row["id"] for row in ROWS[kind]]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{kind}.csv"]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chosen=st.sampled_from(ALL), data=st.data())
def test_odd_rows_get_a_figure_or_a_reason(chosen: tuple[str, Row], data: st.DataObject) -> None:
    kind, row = chosen
    damaged = data.draw(st.sets(st.sampled_from(sorted(set(row) - {"id"})), max_size=8))
    cell = st.sampled_from(["", "", "", "nan", "-1", "0", "many", "1e400", "7.5", "{", "512x512", "y", "zero-9"])
    changed = row | {column: data.draw(cell) for column in damaged}
    dropped = data.draw(st.sets(st.sampled_from(sorted(set(row) - {"id"})), max_size=4))
    line = PREDICT[kind]({column: text for column, text in changed.items() if column not in dropped})
    figures = [text for column, text in line.items() if column not in ("id", "reason")]
    assert line["id"] == row["id"]
    assert figures or line["reason"]
    assert all(float(text) > 0 for text in figures)


def test_a_row_is_answered_in_its_own_metric() -> None:
    row = next(row for row in ROWS["memory"] if row["metric"] == "active")
    metrics = ("allocated", "reserved", "nvidia-smi")
    said = {metric: predictions.memory_gb(row | {"metric": metric}).expected for metric in metrics}
    assert said["allocated"] < said["reserved"] < said["nvidia-smi"]
    whole = predictions.memory_gb(row | {"zero_or_fsdp": "fsdp-full", "gpu_count": "8", "per": "total"})
    one = predictions.memory_gb(row | {"zero_or_fsdp": "fsdp-full", "gpu_count": "8", "per": "gpu"})
    assert whole.expected == pytest.approx(8 * one.expected)
    assert whole.low < whole.expected < whole.high


def test_hours_need_tokens_and_an_interval_holds_its_middle() -> None:
    for row in ROWS["runs"]:
        line = predictions.run_line(row)
        assert float(line["tokens_per_s_per_gpu_low"]) <= float(line["tokens_per_s_per_gpu"])
        assert float(line["tokens_per_s_per_gpu"]) <= float(line["tokens_per_s_per_gpu_high"])
        assert ("gpu_hours" in line) == bool(row["tokens_trained"])
        assert bool(line["reason"]) != bool(row["tokens_trained"])


def model(billions: float, *, layers: int = 32, hidden: int = 4096) -> Architecture:
    attention = Attention(heads=hidden // 128, kv_heads=hidden // 128, head_dim=128)
    block = LayerBlock(layers=layers, hidden=hidden, attention=attention, feed_forward=FeedForward(ffn=4 * hidden, gated=False))
    return Architecture(name="m", kind="decoder", blocks=(block,), vocab=32_000, stated_params=round(billions * 1e9))


def test_the_page_names_targets_worst_rows_and_reasons() -> None:
    unread = ROWS["memory"][0] | {"id": "by-muon", "optimizer": "muon+adam"}
    told = page(accuracy.scored({**ROWS, "memory": [*ROWS["memory"], unread]}))
    for heading in ("## Against the target", "### Worst ten", "### Not answered", "## What falls short", "## How to read"):
        assert heading in told
    assert "| `by-muon` " in told


def change_memory_row(**cells: str) -> Row:
    """A published full fine-tune of Llama-3.2-3B with these cells written otherwise."""
    return ROWS["memory"][0] | cells


@pytest.mark.parametrize(
    "cells",
    [
        {"optimizer": "muon"},
        {"optimizer": "adam-mini"},
        {"optimizer": "galore adamw"},
        {"zero_or_fsdp": "fsdp-quarter"},
        {"zero_or_fsdp": "hsdp", "gpu_count": "16"},
        {"method": "lora", "lora_targets": "q_proj+z_proj"},
        {"attention": "ring"},
        {"dropout_rate": "0.1"},
    ],
)
def test_a_word_or_column_nobody_knows_makes_a_row_unanswered(cells: dict[str, str]) -> None:
    line = predictions.memory_line(change_memory_row(**cells))
    assert "predicted_gb" not in line
    assert line["reason"]


def test_stable_diffusion_rows_are_walked_with_text_encoder_class_images_and_whole_scores() -> None:
    """15.5 GB allocated for a LoRA in fp32 with an image and its class image (PEFT's README, 2023-03)."""
    row = next(row for row in ROWS["memory"] if row["model"] == "Stable-Diffusion-v1-4")
    assert float(predictions.memory_line(row)["predicted_gb"]) == pytest.approx(15.5, rel=0.1)
    case = memory_case(row)
    assert case.recipe.micro_batch == 2
    assert case.recipe.attention == "eager"
    wider = predictions.memory_line(row | {"seq_len": "768x768"})
    assert float(wider["predicted_gb"]) > float(predictions.memory_line(row)["predicted_gb"])
    assert "square" in predictions.memory_line(row | {"seq_len": "512x768"})["reason"]


def test_out_of_memory_rows_are_decisions_and_not_errors() -> None:
    decided = [d for d in scores.decisions(ROWS["memory"]) if not d.ran]
    assert [d.id for d in decided] == ["litgpt-llama-2-13b-lora-bf16-b2-s1304-a100-40gb-sxm-x1"]
    assert decided[0].id not in {s.id for s in scores.memory_scored(ROWS["memory"])}


@pytest.mark.skipif(not GIVEN.exists(), reason=f"the published rows are not here: {GIVEN}")
def test_nearly_every_given_row_is_answered() -> None:
    for kind, column in (("memory", "predicted_gb"), ("runs", "tokens_per_s_per_gpu"), ("faketensor", "peak_bytes")):
        lines = [PREDICT[kind](row) for row in read_rows(GIVEN / f"{kind}_dev.csv")]
        assert sum(column in line for line in lines) >= 0.97 * len(lines)


@pytest.mark.proof
@pytest.mark.skipif(not GIVEN.exists(), reason=f"the published rows are not here: {GIVEN}")
def test_peers_score_as_sizing_says() -> None:
    """SIZING.md: 16 B a parameter 65 / 107 %, accelerate 22 / 63 %, class-median speed 18 / 85 %."""
    memory = read_rows(GIVEN / "memory_dev.csv")
    for peer, median, p90 in ((peers.s1, 0.65, 1.07), (peers.accelerate, 0.22, 0.63)):
        found = scores.score([s for s in scores.memory_scored(memory, peer) if s.enough], by_row=True)
        assert found is not None
        assert found.median == pytest.approx(median, abs=0.03)
        assert found.p90 == pytest.approx(p90, abs=0.1)  # a LOMO row is read as pure 16 bits now, which is kinder to accelerate
    runs = speeds.measured(read_rows(GIVEN / "runs_dev.csv"))
    classes = scores.score(speeds.by_peers(runs)["class-median efficiency, fitted on these rows"], by_row=True)
    assert classes is not None
    # FLOPs are counted better than when SIZING.md was written (mixtures by their shapes, kernels), which is kinder to peers.
    assert classes.median == pytest.approx(0.18, abs=0.03)
    assert classes.p90 == pytest.approx(0.85, abs=0.06)
