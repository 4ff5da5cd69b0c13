"""The installed watchdog over a ledger whose server goes away for a while."""

from __future__ import annotations

import signal
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from tests.cli.watched import Watching, five_clouds, time_goes_on, until
from tests.networks.test_postgres import through


@pytest.mark.proof
def test_while_its_server_is_away_the_watchdog_observes_only_and_says_so(tmp_path: Path, postgres_url: str) -> None:
    def runs() -> int:
        with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as other:
            (count,) = other.execute("SELECT count(*) FROM guard_run").fetchone() or (0,)
        return int(count)

    with five_clouds(tmp_path, datetime.now(UTC)) as five, time_goes_on(five), through(postgres_url) as (url, proxy):
        five.rigs = {"lambda": five.rigs["lambda"]}
        five.write('[watch]\ninterval = "2s"\njitter = "0s"\n')
        five.environ["COSTGUARD_LEDGER__URL"] = url
        with closing(Watching.started(five, module="tests.networks.child")) as process:
            until(lambda: process.said(" an hour, acting"), process)
            proxy.refuse()
            proxy._do(proxy._drop())
            until(lambda: process.said("observing_only"), process)
            before = runs()
            asked = five.asked("lambda")
            until(lambda: five.asked("lambda") > asked, process)
            assert runs() == before
            assert process.said("the ledger's server"), process.tail()
            proxy.heal()
            until(lambda: runs() > before + 1, process)
            assert process.ended(signal.SIGTERM) == 0, process.tail()
        assert not process.said("Traceback"), process.tail()
        assert not process.said("a bug in costguard"), process.tail()
