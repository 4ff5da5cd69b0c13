"""`costguard lake`: months that are closed as FOCUS Parquet, whose sums are the report's to the nano-dollar."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.ledger.guard.audit_log import RollbackMarker
from costguard.testing import demo
from tests.conftest import Command

fsspec, duckdb = pytest.importorskip("fsspec"), pytest.importorskip("duckdb")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a ledger with machines from 29 September to 3 October 2026, and where its lake is to be."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    demo.play_world(url, seed=41, end=datetime(2026, 10, 3, tzinfo=UTC), days=4, size=10)
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{url}"\n[lake]\nurl = "lake"\n')
    return tmp_path / "lake"


def reported(costguard: Command, month: str, by: str) -> dict[tuple[str, ...], list[Decimal]]:
    """What `report` says of a month in UTC."""
    ran = costguard("report", "--month", month, "--zone", "UTC", "--by", by, "--json")
    assert ran.code == 0, ran.err
    return {
        tuple(value or "" for value in one["by"].values()): [Decimal(one["usd"][end]) for end in ("low", "expected", "high")]
        for one in ran.data["groups"]
    }


def test_sums_of_the_lake_are_those_of_the_report(costguard: Command, lake: Path) -> None:
    ran = costguard("lake", "write", "--json")
    assert (ran.code, ran.data["removed"], ran.data["unchanged"]) == (0, [], []), ran.err
    assert {path.split("/")[0] for path in ran.data["written"]} == {"billing_period=2026-09", "billing_period=2026-10"}
    assert all((lake / path).is_file() for path in ran.data["written"])
    for month in ("2026-09", "2026-10"):
        found = costguard(
            "lake", "report", "--from", month, "--to", month, "--by", "provider,account,gpu,charge", "--json"
        ).data
        told = {
            tuple(one[key] for key in ("provider", "account", "gpu", "charge")): [
                Decimal(one[end]) for end in ("low", "expected", "high")
            ]
            for one in found["groups"]
        }
        assert told == reported(costguard, month, "provider,account,gpu,charge")
        assert any(sum(sums) for sums in told.values())


def test_a_month_is_written_again_only_where_the_ledger_says_otherwise(costguard: Command, lake: Path) -> None:
    first = costguard("lake", "write", "--json").data["written"]
    again = costguard("lake", "write", "--json").data
    assert (again["written"], again["unchanged"]) == ([], first)
    broken, gone = sorted(lake.glob("*/*/*.parquet"))[:2]
    broken.write_bytes(b"PAR1 half a file")
    gone.unlink()
    stranger = lake / "billing_period=2026-09/provider=nobody/costguard.parquet"  # of this ledger, which has no such item
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(max(lake.glob("*/*/*.parquet")).read_bytes())
    mended = costguard("lake", "write", "--json").data
    assert mended["written"] == [str(one.relative_to(lake)) for one in (broken, gone)]
    assert (mended["removed"], stranger.exists()) == (["billing_period=2026-09/provider=nobody/costguard.parquet"], False)


def test_an_object_store_is_written_and_read_by_its_url(costguard: Command, lake: Path) -> None:
    costguard("lake", "write")
    assert costguard("lake", "write", "--url", "memory://bucket/costguard").code == 0
    store = costguard("lake", "report", "--url", "memory://bucket/costguard", "--by", "month,team", "--json")
    folder = costguard("lake", "report", "--by", "month,team", "--json")
    assert lake.is_dir()
    assert store.data["groups"] == folder.data["groups"]
    assert len(store.data["groups"]) > 2


def test_a_month_that_is_not_closed_is_not_written(costguard: Command, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costguard.services.lake._get_now", lambda: datetime(2026, 10, 5, 23, 59, tzinfo=UTC))
    ran = costguard("lake", "write")
    assert (ran.code, "No month is closed yet" in ran.out, lake.exists()) == (0, True, False)
    refused = costguard("lake", "write", "--to", "2026-09")
    assert (refused.code, "2026-09 is not closed yet" in refused.err, "2026-08" in refused.err) == (2, True, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("lake", "report", "--from", "2026-13"), "--from: '2026-13' is not a month"),
        (("lake", "report", "--from", "2026-10", "--to", "2026-09"), "2026-10 is after 2026-09"),
        (("lake", "report", "--by", "colour"), "'colour' is no key of the lake"),
        (("lake", "write", "--by", "team"), "--by: belongs to report"),
        (("lake", "drain"), "ACTION"),
        (("lake", "report", "--url", "nosuch://bucket"), "cannot be opened"),
    ],
)
def test_a_mistake_is_named(costguard: Command, lake: Path, words: tuple[str, ...], says: str) -> None:
    ran = costguard(*words)
    assert (ran.code, says in ran.err, lake.exists()) == (2, True, False), ran.err


def test_a_lake_that_is_not_ours_is_said_to_be_unreadable(costguard: Command, lake: Path) -> None:
    (lake / "billing_period=2026-09/provider=x").mkdir(parents=True)
    (lake / "billing_period=2026-09/provider=x/data.parquet").write_bytes(b"nothing")
    ran = costguard("lake", "report")
    assert (ran.code, "the lake cannot be read" in ran.err) == (1, True)


def test_an_empty_lake_and_a_ledger_without_charges_say_so(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "costguard.toml").write_text('[lake]\nurl = "lake"\n')
    ran = costguard("lake", "report")
    assert (ran.code, "no month" in ran.out) == (0, True), ran.err


def test_files_of_another_ledger_are_neither_replaced_nor_removed(costguard: Command, lake: Path, tmp_path: Path) -> None:
    assert costguard("lake", "write").code == 0
    before = {path: path.read_bytes() for path in lake.glob("*/*/*.parquet")}
    other = f"sqlite:///{tmp_path / 'other.db'}"
    demo.play_world(other, seed=7, end=datetime(2026, 10, 3, tzinfo=UTC), days=4, size=4)
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{other}"\n[lake]\nurl = "lake"\n')
    ran = costguard("lake", "write")
    assert (ran.code, "of another ledger" in ran.err) == (2, True), ran.err
    assert {path: path.read_bytes() for path in before} == before


def test_a_ledger_that_is_older_than_what_was_seen_writes_nothing(
    costguard: Command, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RollbackMarker, "describe_doubt", lambda _: "this ledger is older than the one used last")
    ran = costguard("lake", "write")
    assert (ran.code, "older than the one used last" in ran.err, lake.exists()) == (3, True, False)
