"""The sample of `costguard.simulate/1`, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from costguard.services.guarding import simulate
from tests.cli.recorded import END, POLICY, RAILS, record
from tests.conftest import Command

SAMPLE = Path(__file__).parent / "simulate.json"


def test_the_json_of_a_simulation_is_the_sample_to_the_letter(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    record(url)
    (tmp_path / "costguard.toml").write_text(POLICY + RAILS + f'[ledger]\nurl = "{url}"\n')
    monkeypatch.setattr(simulate, "_get_now", lambda: END)
    ran = costguard("simulate", "--since", "4h", "--json")
    assert ran.code == 0, ran.err
    if request.config.getoption("--write-golden"):
        SAMPLE.write_text(ran.out)
    assert ran.out == SAMPLE.read_text()
