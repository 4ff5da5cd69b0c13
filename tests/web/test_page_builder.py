"""What pages, status and metrics are made of."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from costguard.services.serving.page_builder import PageBuilder
from tests.web.stations import station

POLICY = """
[[policy]]
name = "dear"
arm = "notify"
when = 'power == "running" && rate > usd_per_hour(0.01)'
then = [{ do = "notify" }]
"""


def test_the_fleet_has_each_machine_with_its_verdicts_and_finds_it_by_its_key(tmp_path: Path) -> None:
    with station(tmp_path, machines=30, more=POLICY) as made:
        made.room.run_guard()
        config = tmp_path / "costguard.toml"
        config.write_text(f'[ledger]\nurl = "{made.url}"\n{POLICY}')
    built = PageBuilder(str(config))
    fleet = built.build_fleet(datetime.now(UTC))
    assert len(fleet.rows) == 30
    for row in (fleet.rows[0], fleet.rows[29]):
        assert fleet.find_row(row.path) == row
        facts = fleet.load_facts(row.path)
        assert facts is not None
        assert "/".join(facts.one.live.observation.key) == row.path
        assert facts.verdicts[0]["policy"] == "dear"
    assert fleet.load_facts("a/b/c/d") is None
    assert b"costguard.status/1" in built.build_status()
    assert b"costguard_machines" in built.build_metrics()
