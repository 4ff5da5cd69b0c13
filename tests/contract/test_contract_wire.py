"""The contract of the wire and of the other ports: TLS, looking up, examining, and that one broken cloud hurts no other."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from costguard.errors import CostguardError, CredentialsError, InputError, ProviderError
from costguard.metering.inventory import Complete, Failed
from costguard.providers.ports import (
    BalanceSource,
    ChargeSource,
    Examiner,
    IdentitySource,
    Inspector,
    LiveOfferSource,
    UtilizationSource,
)
from costguard.providers.transport import Transport
from costguard.values.calendar import Period
from costguard.values.provider import CHECK_BAD, CHECK_OUTCOMES, CLOCK_CHECK, CREDENTIALS_CHECK
from tests.contract.case import Case, instances, is_complete, said
from tests.fakes.server import Answer

BREAKS: dict[str, tuple[str, dict[str, Any]]] = {
    "500": ("status", {"status": 500}),
    "401": ("status", {"status": 401}),
    "403": ("status", {"status": 403}),
    "429": ("status", {"status": 429}),
    "reset": ("reset", {}),
    "html": ("html", {"status": 200}),
    "null": ("body", {"body": b"null"}),
    "array": ("body", {"body": b"[]"}),
    "deep": ("deep", {}),
}


def test_a_cloud_that_is_not_there_is_failed(case: Case, tmp_path: Path) -> None:
    transport = Transport()
    case.stack.callback(transport.close)
    source = case.rig.accounts("http://127.0.0.1:9", transport, tmp_path, timeout_s=2)[0]
    try:
        scopes = source.list_scopes()
    except ProviderError as unknown:
        case.keep(unknown)
        return
    assert isinstance(case.poll(source, scopes[0]).inventory, Failed)


def test_plain_http_to_another_machine_is_refused(case: Case, tmp_path: Path) -> None:
    transport = Transport()
    case.stack.callback(transport.close)
    case.broken(lambda: case.rig.accounts("http://192.0.2.1:80", transport, tmp_path), InputError)


def test_a_broken_cloud_neither_delays_nor_hides_another(case: Case, tmp_path: Path) -> None:
    other = type(case.rig)()
    there = other.put(2)
    case.rig.put(2)
    case.rig.fake.fault(case.rig.lists, "delay", seconds=60)
    transport = Transport()
    case.stack.callback(transport.close)
    broken = case.open(transport=transport, timeout_s=5)
    healthy = case.stack.enter_context(other.opened(tmp_path, transport=transport))
    waiting = threading.Thread(target=case.poll, args=(broken,))
    waiting.start()
    while not case.rig.fake.calls(case.rig.lists):
        time.sleep(0.001)
    poll = case.poll(healthy)
    assert waiting.is_alive()
    case.rig.fake.closing.set()
    waiting.join()
    assert is_complete(poll)
    assert {item.key.id for item in instances(poll)} == set(there)


def test_many_polls_at_once_agree(case: Case) -> None:
    case.rig.put(5)
    polls = list[object]()
    threads = [threading.Thread(target=lambda: polls.append(case.poll().inventory)) for _ in range(8)]
    _ = case.source
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(polls) == len(threads)
    assert all(isinstance(one, Complete) and set(one.items) == set(polls[0].items) for one in polls)  # type: ignore[attr-defined]


def test_without_a_key_the_account_is_refused_and_the_places_are_named(case: Case, tmp_path: Path) -> None:
    transport = Transport()
    case.stack.callback(transport.close)
    case.rig.fake.fault(".*", "status", status=401)
    with suppress(CredentialsError, InputError):
        source: Any = case.rig.accounts("http://127.0.0.1:9", transport, tmp_path / "empty", {}, timeout_s=2)[0]
        checks = case.keep(source.examine())
        assert any(
            check.subject.startswith(CREDENTIALS_CHECK) and check.outcome == CHECK_BAD and check.fix for check in checks
        ), checks
        return
    refused = case.broken(lambda: case.rig.accounts("http://127.0.0.1:9", transport, tmp_path / "empty", {}), CostguardError)
    assert refused.hint


def test_a_looked_up_machine_is_what_the_listing_says(case: Case) -> None:
    seen = case.machine()
    assert isinstance(case.source, Inspector)
    found = case.keep(case.source.look_up(seen.key))
    assert found is not None
    assert (found.key, found.state, found.gpu, found.gpu_count) == (seen.key, seen.state, seen.gpu, seen.gpu_count)


def test_a_missing_machine_is_looked_up_as_none(case: Case) -> None:
    assert isinstance(case.source, Inspector)
    missing = case.rig.missing()
    (there,) = instances(case.poll())
    assert case.source.look_up(there.key._replace(id=missing)) is None


def test_an_ended_machine_is_looked_up_as_none_or_ended(case: Case) -> None:
    seen = case.machine()
    case.rig.let(seen.key.id, "ended")
    found = case.source.look_up(seen.key)
    assert found is None or found.state == "ended"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", BREAKS)
def test_a_look_that_cannot_be_answered_is_an_error_and_never_none(case: Case, how: str) -> None:
    seen = case.machine()
    kind, more = BREAKS[how]
    case.rig.fake.fault(case.rig.one, kind, **more)
    case.broken(lambda: case.source.look_up(seen.key))
    assert case.rig.fake.calls(case.rig.one), "Rig.one matches no request"


def test_a_look_with_a_wrong_key_is_an_error_and_never_none(case: Case) -> None:
    seen = case.machine()
    wrong = case.rig.wrong_environ()
    if wrong == case.rig.environ():
        pytest.skip("its key lies in no variable")
    case.broken(lambda: case.open(environ=wrong).look_up(seen.key))


def test_an_examination_of_a_healthy_cloud_finds_nothing_bad(case: Case) -> None:
    assert isinstance(case.source, Examiner)
    checks = case.keep(case.source.examine())
    assert checks
    assert all(check.outcome in CHECK_OUTCOMES for check in checks)
    assert [check for check in checks if check.outcome == CHECK_BAD] == []


def test_an_examination_with_a_wrong_key_says_so_with_the_fix(case: Case) -> None:
    wrong = case.rig.wrong_environ()
    if wrong == case.rig.environ():
        case.rig.fake.fault(".*", "status", status=401)
    checks = case.keep(case.open(environ=wrong).examine())
    bad = [check for check in checks if check.subject.startswith(CREDENTIALS_CHECK) and check.outcome == CHECK_BAD]
    assert bad, checks
    assert all(check.fix for check in bad)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", BREAKS)
def test_an_examination_raises_nothing_and_every_bad_finding_has_a_fix(case: Case, how: str) -> None:
    source = case.source
    kind, more = BREAKS[how]
    case.rig.fake.fault(".*", kind, **more)
    checks = case.keep(source.examine())
    assert any(check.outcome == CHECK_BAD for check in checks), checks
    assert all(check.fix for check in checks if check.outcome == CHECK_BAD), checks


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_examination_finds_a_wrong_clock(case: Case, hours: int) -> None:
    def skewed(right: Answer) -> Answer:
        then = case.rig.clock.now() + timedelta(hours=hours)
        return replace(right, headers={**right.headers, "Date": format_datetime(then, usegmt=True)})

    case.rig.fake.fault(".*", "edit", edit=skewed)
    checks = case.keep(case.source.examine())
    assert any(check.subject.startswith(CLOCK_CHECK) and check.outcome == CHECK_BAD for check in checks), checks


def test_an_identity_stays_the_same_and_says_no_secret(case: Case) -> None:
    if not isinstance(case.source, IdentitySource):
        pytest.skip(f"{case.rig.provider} does not say who it is")
    first = case.keep(case.source.fetch_identity())
    assert first is None or first
    assert case.source.fetch_identity() == first
    assert case.open().fetch_identity() == first


def test_a_balance_is_known_or_unknown_with_a_reason_and_never_zero_for_want_of_an_answer(case: Case) -> None:
    if not isinstance(case.source, BalanceSource):
        pytest.skip(f"{case.rig.provider} is not paid in advance")
    assert case.keep(case.source.fetch_balance()).provider == case.rig.provider
    for kind, more in BREAKS.values():
        case.rig.fake.faults.clear()
        case.rig.fake.fault(".*", kind, **more)
        balance = case.keep(case.source.fetch_balance())
        assert balance.amount is None
        assert balance.why


def test_live_offers_have_prices_or_none_and_a_broken_answer_is_an_error(case: Case) -> None:
    if not isinstance(case.source, LiveOfferSource):
        pytest.skip(f"{case.rig.provider} says no live offers")
    listing = case.keep(case.source.list_live_offers(None))
    assert all(offer.rate is None or offer.rate.nano_per_hour > 0 for offer in listing.offers)
    for kind, more in BREAKS.values():
        case.rig.fake.faults.clear()
        case.rig.fake.fault(".*", kind, **more)
        try:
            offers = case.keep(case.open().list_live_offers(None))
        except ProviderError as broken:
            case.keep(broken)
        else:
            assert offers.why, "a broken answer without a word"


def test_bill_lines_of_a_broken_cloud_are_an_error_or_say_what_is_missing(case: Case) -> None:
    if not isinstance(case.source, ChargeSource):
        pytest.skip(f"{case.rig.provider} says no bill")
    period = Period(start=case.rig.clock.now() - timedelta(days=2), end=case.rig.clock.now())
    case.keep(case.source.fetch_bill_lines(period))
    for kind, more in BREAKS.values():
        case.rig.fake.faults.clear()
        case.rig.fake.fault(".*", kind, **more)
        try:
            billed = case.keep(case.source.fetch_bill_lines(period))
        except ProviderError as broken:
            case.keep(broken)
        else:
            assert billed.why
            assert not billed.lines


def test_measures_of_a_broken_cloud_are_missing_and_never_zero(case: Case) -> None:
    if not isinstance(case.source, UtilizationSource):
        pytest.skip(f"{case.rig.provider} puts its measures into the listing")
    seen = [case.machine()]
    period = Period(start=case.rig.clock.now() - timedelta(hours=1), end=case.rig.clock.now())
    case.keep(case.source.fetch_utilization(seen, period))
    for kind, more in BREAKS.values():
        case.rig.fake.faults.clear()
        case.rig.fake.fault(".*", kind, **more)
        measured = case.keep(case.source.fetch_utilization(seen, period))
        assert measured.samples == ()
        assert [key for key, _ in measured.blind] == [seen[0].key]
        assert all(why for _, why in measured.blind)


def test_a_key_that_the_cloud_echoes_in_its_error_is_told_to_nobody(case: Case) -> None:
    seen = case.machine()
    echo = f'{{"error": "bad key {case.rig.secret}", "message": "{case.rig.secret}", "code": "{case.rig.secret}"}}'.encode()
    headers = {"Content-Type": "application/json", "X-Echo": case.rig.secret, "WWW-Authenticate": f"Bearer {case.rig.secret}"}
    for status in (400, 401, 403, 409, 429, 500):
        case.rig.fake.faults.clear()
        case.rig.fake.fault(".*", "status", status=status, headers=headers, body=echo)
        poll = case.poll()
        assert isinstance(poll.inventory, Failed), said(poll)
        case.broken(lambda: case.source.look_up(seen.key))
        if case.rig.terminates:
            case.act("terminate", seen)
        case.keep(case.source.examine())


def test_nothing_of_the_account_shows_its_key(case: Case) -> None:
    case.keep(case.source)
    case.keep(vars(case.source) if hasattr(case.source, "__dict__") else case.source)
    case.keep(case.rig.plugin())
