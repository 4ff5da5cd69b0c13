"""The callback in a real Lightning Trainer: a tiny model on the CPU. Skipped where torch and lightning are not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

torch = pytest.importorskip("torch", reason="torch is not installed (extra exact)")
lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

from costguard.integrations.lightning import CHECKPOINT, CostguardCallback  # noqa: E402 - needs lightning

pytestmark = pytest.mark.filterwarnings("ignore")


class TinyModule(lightning.LightningModule):  # type: ignore[misc, name-defined]  # not installed where types are checked
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, _index: int) -> Any:  # noqa: ANN401 - tensors
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch: Any, _index: int) -> None:  # noqa: ANN401 - tensors
        self.layer(batch[0])

    def configure_optimizers(self) -> Any:  # noqa: ANN401 - an optimizer
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.fixture(autouse=True)
def home(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    del costguard
    monkeypatch.setattr("costguard.services.run_jobs.terms._list_local_gpus", list)
    monkeypatch.setattr("costguard.services.run_jobs.tracked_run.list_hint_sockets", list)


def fit(folder: Path, callback: CostguardCallback, steps: int, resume: str | None = None, **more: object) -> Any:  # noqa: ANN401 - a Trainer
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=4)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    stated = {**quiet, **more}
    trainer = lightning.Trainer(accelerator="cpu", max_steps=steps, default_root_dir=folder, callbacks=[callback], **stated)
    trainer.fit(TinyModule(), rows, rows, ckpt_path=resume)
    return trainer


def test_it_reports_at_the_start_at_each_validation_and_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = fit(tmp_path, CostguardCallback(rate="2", look_every_s=0.0), steps=48)
    err = capsys.readouterr().err
    assert trainer.global_step == 48
    assert "costguard: job training, attempt 1, at $2.0000/h (--rate)" in err
    assert err.count(" of 48 after ") == 3, "sixteen batches an epoch, three validations"
    assert "ended at step 48" in err


def test_accumulated_gradients_are_stated_to_the_run(tmp_path: Path) -> None:
    class Kept(CostguardCallback):
        def on_train_batch_end(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - Lightning's signature
            super().on_train_batch_end(*given, **named)
            kept.append(self.run)

    kept: list[Any] = []
    trainer = fit(tmp_path, Kept(), steps=3, accumulate_grad_batches=4)
    assert (trainer.global_step, len(kept)) == (3, 12)
    assert (kept[0].steps, kept[0].passes_per_step) == (3, 4)


def test_the_cap_ends_the_training_with_a_checkpoint_that_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = fit(tmp_path, CostguardCallback(max_usd=0.0001, rate="3", look_every_s=0.01), steps=100_000)
    stopped = trainer.global_step
    assert 0 < stopped < 100_000
    assert "the cap is reached" in capsys.readouterr().err
    resumed = fit(tmp_path, CostguardCallback(), steps=stopped + 5, resume=str(tmp_path / CHECKPOINT))
    assert resumed.global_step == stopped + 5
    assert f"ended at step {stopped + 5}" in capsys.readouterr().err
