"""Predictions rest on what a row states and on nothing that was measured; odd rows get a reason; peers say what they say."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import accuracy, peers, predictions, published, scores, speeds
from bench.cases import Case, memory_case, run_case
from bench.page import page
from bench.published import Row, read_rows
from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.recipe import Parallelism, Recipe
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


@pytest.mark.parametrize("kind", accuracy.KINDS)
@pytest.mark.parametrize("said", ["", "1e9", "nonsense"])
def test_measured_columns_never_feed_a_prediction(kind: str, said: str) -> None:
    hidden = [row | dict.fromkeys(set(row) - set(ALLOWED[kind]) - {"id", "source_group"}, said) for row in ROWS[kind]]
    assert [PREDICT[kind](row) for row in hidden] == [PREDICT[kind](row) for row in ROWS[kind]]


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


def test_an_unheard_of_kind_of_row_is_told_why() -> None:
    cases = {
        "memory": ({"id": "a", "model": "unheard-of"}, "neither the shape nor params is stated"),
        "runs": ({"id": "b", "total_params": "7e9", "gpu": "ABACUS"}, "unknown GPU"),
        "faketensor": ({"id": "c", "model": "gpt2"}, "batch is not stated"),
    }
    for kind, (row, reason) in cases.items():
        assert reason in PREDICT[kind](row)["reason"]


def test_a_config_in_a_cell_is_as_good_as_a_shipped_name() -> None:
    lines = {row["id"]: predictions.faketensor_line(row) for row in ROWS["faketensor"]}
    assert lines["named-by-its-config"]["peak_bytes"] == lines["llama2-7b-bf16-b1-ckpt"]["peak_bytes"]


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


def asked(
    architecture: Architecture, recipe: Recipe | None = None, parallel: Parallelism | None = None, *, gpus: int = 1
) -> Case:
    return Case(
        architecture=architecture,
        recipe=recipe or Recipe(micro_batch=8, seq_len=2048),
        parallel=parallel or Parallelism(),
        gpus=gpus,
        inputs={},
    )


SMALL = asked(model(0.35, layers=24, hidden=1024))
SEVEN = asked(model(7))


@pytest.mark.parametrize(
    ("peer", "case", "gb"),
    [
        pytest.param(peers.s0, SMALL, 5.41 * 1.073741824, id="M2: 350M is 5.41 GiB by S0's own code"),
        pytest.param(peers.s1, asked(model(3)), 48.0, id="M6: 3B is 48 GB by S1"),
        pytest.param(peers.s2_quick, SEVEN, 88.3, id="M10: S2 prints 88.3"),
        pytest.param(peers.s2_code, SEVEN, 168.0, id="M12: mixed 7B is 168 GB by S2's code"),
        pytest.param(peers.s2_code, asked(model(7), Recipe(precision="fp32")), 224.0, id="M12: and 224 in fp32"),
        pytest.param(peers.s3, SEVEN, 56.0 + 8.6, id="M16, M17: 56 GB and 8.6 GB of activations by S3"),
        pytest.param(peers.eighteen, SEVEN, 126.0, id="M13: 18 B a parameter"),
        pytest.param(peers.accelerate, SEVEN, 56.0, id="accelerate: 16 bits show half of fp32's figure"),
        pytest.param(peers.accelerate, asked(model(7), Recipe(precision="fp32")), 112.0, id="accelerate: 4 x the fp32 size"),
        pytest.param(peers.accelerate, asked(model(7), Recipe(method="inference")), 14.0, id="M28: 7B inference is 14 GB"),
        pytest.param(
            peers.llama_factory, asked(model(7), Recipe(method="qlora", quant="nf4")), 3.5, id="LLaMA-Factory: x/2 in 4 bits"
        ),
        pytest.param(peers.llama_factory, asked(model(7), Recipe(precision="bf16-amp")), 126.0, id="LLaMA-Factory: 18x AMP"),
    ],
)
def test_peers_give_the_figures_their_documents_give(peer: peers.Peer, case: Case, gb: float) -> None:
    found = peer(case)
    assert found is not None
    assert found / 1e9 == pytest.approx(gb, rel=0.005)


@pytest.mark.parametrize(("stage", "gb"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_shares_states_as_its_paper_says(stage: int, gb: float) -> None:
    """M22: 7.5B on 64 GPUs."""
    case = asked(model(7.5), parallel=Parallelism(zero=stage), gpus=64)
    assert peers.states(case, 2, 2, 12) / 1e9 == pytest.approx(gb, abs=0.06)


def test_deepspeed_leaves_four_largest_layers_when_all_is_offloaded() -> None:
    case = asked(model(7), parallel=Parallelism(zero=3, offload="all"), gpus=8)
    assert peers.deepspeed(case) == 4 * max(32_000 * 4096, 4 * 4096 * 4096)


def test_eleuther_keeps_half_the_kv_cache_of_full_attention() -> None:
    cache = replace(asked(model(7), Recipe(method="inference", seq_len=2048)), inputs={"method": "kv-cache"})
    assert peers.eleuther(cache) == 2 * 2048 * 4096 * 32


def test_peers_are_silent_where_their_authors_are() -> None:
    lora = asked(model(7), Recipe(method="lora"))
    silent = {"S0: 12 B/param + 4bshL", "S1, S4: 16 B/param", "Megatron theoretical report", "DeepSpeed ZeRO-3 estimator"}
    assert all(peers.PEERS[name](lora) is None for name in silent)


def test_rule_of_thumb_is_20_800_tokens_for_1b_on_an_a100() -> None:
    """C2: at 40 % of 312 TFLOPS a 1B model runs 20 800 tokens a second."""
    run = run_case({"id": "x", "total_params": "1e9", "gpu": "A100-80GB-SXM", "gpu_count": "4"})
    assert speeds.thumb(run) * run.architecture.active_parameters / 1e9 == pytest.approx(20_800, rel=0.001)


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


@pytest.mark.parametrize(
    ("said", "usual"),
    [
        ({"optimizer": "8-bit AdamW"}, {"optimizer": "adamw8bit"}),
        ({"optimizer": "paged_adamw_8bit"}, {"optimizer": "paged"}),
        ({"attention": "flash_attention_2"}, {"attention": "fa2"}),
        ({"attention": "sdpa_math"}, {"attention": "eager"}),
        ({"zero_or_fsdp": "fsdp2", "gpu_count": "8"}, {"zero_or_fsdp": "fsdp-full", "gpu_count": "8"}),
        ({"zero_or_fsdp": "hsdp", "gpu_count": "8"}, {"zero_or_fsdp": "fsdp-full", "gpu_count": "8"}),
        ({"zero_or_fsdp": "ZeRO-3", "gpu_count": "8"}, {"zero_or_fsdp": "zero3", "gpu_count": "8"}),
        ({"method": "lora", "lora_targets": "q,v"}, {"method": "lora", "lora_targets": "q_proj+v_proj"}),
        ({"weight_dtype": "bfloat16"}, {"weight_dtype": "bf16"}),
        ({"grad_accum": "4"}, {"note": "packed, 4 accumulation steps"}),
    ],
)
def test_other_spellings_say_the_same(said: dict[str, str], usual: dict[str, str]) -> None:
    lines = [predictions.memory_line(change_memory_row(**cells)) for cells in (said, usual)]
    assert lines[0]["predicted_gb"] == lines[1]["predicted_gb"]


def test_an_optimizer_that_is_read_is_not_taken_for_adamw() -> None:
    peaks = {
        name: float(predictions.memory_line(change_memory_row(optimizer=name))["predicted_gb"])
        for name in ("lion", "sgd", "adamw")
    }
    assert peaks["sgd"] <= peaks["lion"] <= peaks["adamw"]
    assert peaks["sgd"] < peaks["adamw"]


def test_expert_and_context_parallelism_have_columns() -> None:
    row = change_memory_row(zero_or_fsdp="fsdp-full", gpu_count="8")
    alone, spread = (float(predictions.memory_line(row | {"cp": cp})["predicted_gb"]) for cp in ("", "4"))
    assert spread < alone


def test_fake_tensor_rows_read_accumulation_and_input_shapes() -> None:
    row = ROWS["faketensor"][0]
    usual = predictions.faketensor_line(row)["peak_bytes"]
    shape = f'{{"input_ids": [{row["batch"]}, {row["seq"]}], "labels": [{row["batch"]}, {row["seq"]}]}}'
    for inputs in ("input_ids+labels", shape, f"input_ids={row['batch']}x{row['seq']}"):
        assert predictions.faketensor_line(row | {"inputs": inputs, "grad_accum": "1"})["peak_bytes"] == usual
    assert int(predictions.faketensor_line(row | {"grad_accum": "4"})["peak_bytes"]) > int(usual)
    shorter = predictions.faketensor_line(row | {"inputs": f"input_ids={row['batch']}x{int(row['seq']) // 2}"})["peak_bytes"]
    assert int(shorter) < int(usual)
    assert "inputs" in predictions.faketensor_line(row | {"inputs": "spectrogram=2x80x3000"})["reason"]


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


def test_a_page_of_one_kind_of_rows_has_no_other_tables() -> None:
    told = page(accuracy.scored({"faketensor": ROWS["faketensor"]}))
    assert "## Fake tensors" in told
    assert "## Memory" not in told
    assert "## Speed" not in told


def test_out_of_memory_rows_are_decisions_and_not_errors() -> None:
    decided = [d for d in scores.decisions(ROWS["memory"]) if not d.ran]
    assert [d.id for d in decided] == ["litgpt-llama-2-13b-lora-bf16-b2-s1304-a100-40gb-sxm-x1"]
    assert decided[0].id not in {s.id for s in scores.memory_scored(ROWS["memory"])}


def test_bench_runs_as_a_file_and_as_a_module(tmp_path: Path) -> None:
    asked_for = ["--memory", str(HERE / "memory.csv"), "--predictions", str(tmp_path)]
    for start in (["bench/accuracy.py"], ["-m", "bench.accuracy"]):
        done = subprocess.run([sys.executable, *start, *asked_for], cwd=ROOT, check=True, capture_output=True, text=True)
        assert done.stdout == ""
        assert (tmp_path / "memory.csv").read_text(encoding="utf-8").count("\n") == len(ROWS["memory"]) + 1


def test_a_missing_file_is_told_kindly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main(["--memory", str(tmp_path / "none.csv")]) == 2
    assert "Give --memory" in capsys.readouterr().err


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


def test_a_case_holds_no_measured_column() -> None:
    for row in ROWS["memory"]:
        if (
            predictions.memory_line(row)["reason" if "reason" in predictions.memory_line(row) else "predicted_gb"]
            and row["layers"]
        ):
            assert not MEASURED["memory"] & set(memory_case(row).inputs)
