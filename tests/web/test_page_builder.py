"""What pages, status and metrics are made of is built in a process of its own: the same as in this one, and it may die."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costguard.errors import CostguardError
from costguard.services.page_builder import BuilderProcess, PageBuilder
from costguard.services.web_pages import PageServices
from tests.web.stations import station

POLICY = """
[[policy]]
name = "dear"
arm = "notify"
when = 'power == "running" && rate > usd_per_hour(0.01)'
then = [{ do = "notify" }]
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("builder")
    with station(folder, machines=130, more=POLICY) as made:
        made.room.run_guard()
        (folder / "costguard.toml").write_text(f'[ledger]\nurl = "{made.url}"\n{POLICY}')
        yield str(folder / "costguard.toml")


@pytest.fixture(scope="module")
def builder(config: str) -> Iterator[BuilderProcess]:
    made = BuilderProcess(config)
    yield made
    made.end()


def test_it_builds_what_this_process_builds(config: str, builder: BuilderProcess) -> None:
    now, here = datetime.now(UTC), PageBuilder(config)
    one, other = builder.build_fleet(now), here.build_fleet(now)
    assert one.rows == other.rows
    assert len(one.rows) == 130
    assert one.head == other.head
    for row in (one.rows[0], one.rows[99], one.rows[100], one.rows[129]):
        assert one.find_row(row.path) == row
        assert one.load_facts(row.path) == other.load_facts(row.path)
        facts = one.load_facts(row.path)
        assert facts is not None
        assert "/".join(facts.one.live.observation.key) == row.path
        assert facts.verdicts[0]["policy"] == "dear"
    assert one.load_facts("a/b/c/d") is None
    untimed = re.compile(rb'"20\d\d-[^"]*"|-?\d+\.\d+')
    assert untimed.sub(b"", builder.build_status()) == untimed.sub(b"", here.build_status())
    assert b"costguard_machines" in builder.build_metrics()


def test_after_its_end_the_next_question_starts_another_one(builder: BuilderProcess) -> None:
    builder.build_status()
    first = builder._process
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert builder.build_status()
    assert builder._process is not first


def test_one_that_hangs_fails_its_question_and_is_replaced(builder: BuilderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.build_status()
    hung = builder._process
    assert hung is not None
    os.kill(hung.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr("costguard.services.page_builder.BUILD_MOST_S", 0.2)
        with pytest.raises(CostguardError, match="the next question starts another"):
            builder.build_status()
    assert hung.poll() is not None
    assert builder.build_status()


def test_a_mistake_in_the_settings_is_told_as_here(tmp_path: Path) -> None:
    file = tmp_path / "costguard.toml"
    file.write_text('[ledger]\nurl = "sqlite:////nowhere/at/all.db"\n')
    made = BuilderProcess(str(file))
    try:
        with pytest.raises(CostguardError) as there:
            made.build_status()
        with pytest.raises(CostguardError) as here:
            PageBuilder(str(file)).build_status()
        assert (type(there.value), str(there.value)) == (type(here.value), str(here.value))
    finally:
        made.end()


def test_pages_with_a_builder_show_its_fleet_and_this_interpreter_goes_on_meanwhile(
    config: str, builder: BuilderProcess
) -> None:
    services = PageServices(config=config, builder=builder)
    began = time.thread_time()
    fleet = services.load_fleet()
    assert len(fleet.rows) == 130
    assert time.thread_time() - began < 0.05
    assert services.load_machine(fleet.rows[3].path).one is not None
