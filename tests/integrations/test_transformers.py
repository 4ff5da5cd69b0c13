"""The callback in a real Trainer: a tiny GPT-2 on the CPU. Skipped where torch and transformers are not installed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

torch = pytest.importorskip("torch", reason="torch is not installed (extra exact)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra exact)")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from costguard.integrations.transformers import CostguardCallback  # noqa: E402 - needs transformers

pytestmark = pytest.mark.filterwarnings("ignore")
SEQ_LEN, BATCH, STEPS = 16, 2, 90
JOB: dict[str, object] = {
    # There is no CPU among the GPUs that are quoted: for a T4 a step of this model is quoted at twice what the tiny one takes.
    "architecture": {"layers": 24, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 1000},
    "method": "pretrain",
    "precision": "fp32",
    "tokens": SEQ_LEN * BATCH * STEPS,
    "seq_len": SEQ_LEN,
    "micro_batch": BATCH,
    "global_batch_tokens": SEQ_LEN * BATCH,
}


@pytest.fixture(autouse=True)
def home(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    del costguard
    monkeypatch.setattr("costguard.services.run_jobs.terms._list_local_gpus", list)
    monkeypatch.setattr("costguard.services.run_jobs.tracked_run.list_hint_sockets", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


class SteadyStep(transformers.TrainerCallback):  # type: ignore[misc, name-defined]  # not installed for mypy
    """Makes each step last at least 40 ms: cores are shared here, and only a steady speed is learnt."""

    def on_step_begin(self, *_given: Any, **_named: Any) -> None:  # noqa: ANN401 - the Trainer's
        time.sleep(0.04)


def train(
    folder: Path, callback: CostguardCallback, *beside: object, steps: int = STEPS, resume: str | None = None, **more: object
) -> Any:  # noqa: ANN401 - a Trainer
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = transformers.GPT2Config(n_layer=2, n_embd=128, n_head=2, vocab_size=1000, n_positions=SEQ_LEN)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 1000, (32, SEQ_LEN))]
    stated = {
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_strategy": "no",
        **more,
    }
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=BATCH, **stated
    )
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows[:4],
        callbacks=[callback, *beside],
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_a_second_quote_is_closer_than_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quoted, took = [], []
    for _ in range(2):
        callback = CostguardCallback(JOB, on="T4:1", rate="0.5", look_every_s=0.05)
        train(tmp_path, callback, SteadyStep(), eval_strategy="steps", eval_steps=30)
        assert callback.run is not None
        took.append((callback.run._last_step_s - callback.run._began_s - callback.run._paused_s) / 3600)
        assert callback.run.terms.hours is not None
        quoted.append(callback.run.terms.hours.expected)
    err = capsys.readouterr().err
    assert "costguard: expected end: " in err
    assert err.count(f"of {STEPS} after ") == 6, "three evaluations a run"
    assert f"ended at step {STEPS}" in err
    if "calibrated with" not in err.partition("next quote")[0]:
        pytest.skip("this machine is too busy for a steady speed: nothing was learnt, as the run says")
    assert abs(quoted[1] - took[1]) < abs(quoted[0] - took[1])


def test_accumulated_gradients_are_stated_to_the_run(tmp_path: Path) -> None:
    callback = CostguardCallback(JOB, on="T4:1", rate="0.5")
    train(tmp_path, callback, steps=3, gradient_accumulation_steps=4)
    assert callback.run is not None
    assert (callback.run.steps, callback.run.passes_per_step, callback.run.batch_size) == (3, 4, BATCH)


def test_the_cap_ends_the_training_with_a_checkpoint_that_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = CostguardCallback(max_usd=0.0001, rate="3", look_every_s=0.01)  # reached after 0.12 s
    trainer = train(tmp_path, callback, steps=5000)
    stopped = trainer.state.global_step
    assert 0 < stopped < 5000
    assert (tmp_path / f"checkpoint-{stopped}" / "trainer_state.json").is_file()
    assert "the cap is reached" in capsys.readouterr().err
    again = CostguardCallback()
    resumed = train(tmp_path, again, steps=stopped + 5, resume=str(tmp_path / f"checkpoint-{stopped}"))
    assert resumed.state.global_step == stopped + 5
    assert again.run is not None
    assert again.run._log.first_step == stopped
    assert not again.run.should_stop
