"""A watchdog asks for bills by itself where they could settle a doubt, seldom, and whatever happens polls go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.world import Run, to_us

from costguard.bills.bill_schedule import FIRST, LAST, DoubtfulCharge, choose_daily_question, choose_question
from costguard.ledger.db.maintenance import check_ledger
from costguard.metering.billing import BillTerms
from costguard.services import watch
from costguard.services.bill_duty import BillDuty
from costguard.services.watchdog_context import open_watchdog_context
from costguard.settings import check_settings
from tests.fakes.server import START
from tests.ledger.found_late import RULES, PlayedAccount, playing
from tests.providers.runpod.rig import RunpodRig, plain

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOURLY = BillTerms(asked="doubt", step_s=3600, settles_s=3600)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SINCE_NOON = DoubtfulCharge(7, to_us(NOON), to_us(NOON + 380 * MINUTE))


class Told:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def _keep(self, event: str, /, **facts: object) -> None:
        self.said.append((event, facts))

    info = warning = error = _keep


def test_a_bill_is_asked_for_at_once_and_again_when_its_last_line_is_final() -> None:
    ask = partial(choose_question, [SINCE_NOON], HOURLY)
    first = ask(now=NOON + 381 * MINUTE, asked_at=None)
    assert first is not None
    assert (first.period.start, first.occasions) == (NOON, frozenset({(7, FIRST)}))
    later = partial(ask, asked_at=NOON + 381 * MINUTE, settled=first.occasions)
    assert later(now=NOON + 7 * HOUR + 59 * MINUTE) is None
    last = later(now=NOON + 8 * HOUR)
    assert last is not None
    assert ask(now=NOON + 30 * HOUR, asked_at=NOON + 8 * HOUR, settled=last.occasions | {(7, LAST)}) is None


def test_new_doubts_wait_for_an_hour_after_the_last_question() -> None:
    ask = partial(choose_question, [SINCE_NOON], HOURLY, asked_at=NOON + 10 * HOUR)
    assert ask(now=NOON + 10 * HOUR + 59 * MINUTE) is None
    assert ask(now=NOON + 11 * HOUR) is not None
    assert ask(now=NOON + 9 * HOUR) is not None, "a question that a wrong clock dated ahead holds nothing back"


def test_a_daily_bill_is_read_once_a_day_with_what_may_be_restated() -> None:
    second = datetime(2026, 12, 2, 9, tzinfo=UTC)
    period = choose_daily_question(now=second, asked_at=second - 24 * HOUR)
    assert period is not None
    assert period.start == datetime(2026, 11, 1, tzinfo=UTC)
    assert choose_daily_question(now=second, asked_at=second - HOUR) is None
    assert choose_daily_question(now=second, asked_at=second - 12 * HOUR) is None


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedAccount]:
    """A pod that was created 40 hours ago and restarted 50 minutes ago."""
    rig, born = RunpodRig(), to_us(START - 40 * HOUR)
    pod = plain("k3v9x2m0000000", to_us(START), runs=(Run(start_us=to_us(START - 50 * MINUTE)),))
    rig.fake.resources.append(replace(pod, created_us=born))
    with playing(rig, tmp_path, f"sqlite:///{tmp_path}/ledger.db") as found:
        yield found


def make_duty(played: PlayedAccount, log: Told, *, leads: bool = True) -> BillDuty:
    (scope,) = played.source.list_scopes()
    return BillDuty(
        played.url,
        rules=RULES,
        sources=lambda: {scope: played.source},
        leads=lambda: leads,
        clock=played.rig.clock,
        log=log,
    )


def count_questions(played: PlayedAccount) -> int:
    return sum(asked.path.startswith("/v2/billing/pods") for asked in played.rig.fake.asked)


def test_a_restarted_pod_is_settled_without_anybody_asking(played: PlayedAccount) -> None:
    log = Told()
    duty = make_duty(played, log)
    played.poll()
    doubt = played.compute_spent().width
    duty.run()
    assert count_questions(played) == 1
    assert played.compute_spent().width < 0.05 * doubt, "but for the last hours, which are not final"
    for _ in range(11):
        played.poll(minutes=5)
        duty.run()
    assert count_questions(played) == 1
    played.poll(hours=2)
    duty.run()
    assert count_questions(played) == 2
    assert played.compute_spent().width < 0.002 * doubt
    assert {event for event, _ in log.said} == {"bill_read"}
    assert check_ledger(played.url) == []


def test_a_bill_that_fails_is_told_once_and_tried_again_while_polls_go_on(played: PlayedAccount) -> None:
    log = Told()
    duty = make_duty(played, log)
    played.poll()
    played.rig.fake.fault("/v2/billing", "html", status=503)
    before = played.compute_spent()
    for _ in range(4):
        duty.run()
        played.poll(minutes=4)
    assert [event for event, _ in log.said] == ["bill_not_read"]
    assert played.compute_spent().width >= before.width
    played.rig.fake.faults.clear()
    played.poll(hours=1)
    duty.run()
    assert log.said[-1][0] == "bill_read"


def test_a_watchdog_that_does_not_lead_asks_nothing(played: PlayedAccount) -> None:
    played.poll()
    make_duty(played, Told(), leads=False).run()
    assert count_questions(played) == 0


def test_the_duty_is_there_and_not_offline(tmp_path: Path) -> None:
    settings = check_settings(f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n', "costguard.toml")
    for offline in (False, True):
        with open_watchdog_context(settings, offline=offline) as made:
            duties = watch._build_duties(made, partial(print), timedelta(minutes=1))
        assert ("bills" in [duty.name for duty in duties.others]) == (not offline)
