"""An account is who it says it is: a key of another account ends nothing of the first one, on every cloud."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import COMPLETE, FAILED, SHARES_NOTHING
from costguard.metering.scope_state import AccrualResult
from costguard.services.poll.account_identity import IdentityCache
from costguard.services.poll.poll import poll_sources
from costguard.values.resource import ENDED
from tests.contract.case import Case

RULES = ShippedFacts().get_billing_rules()


def poll_again(case: Case, url: str, times: int = 1) -> list[AccrualResult]:
    """The results of `times` polls a minute apart, each by a process of its own, whose key is read anew."""
    results = list[AccrualResult]()
    for _ in range(times):
        with LedgerWriter(url, rules=RULES, ceilings={}) as ledger:
            results += poll_sources([case.open()], ledger, case.rig.clock, identities=IdentityCache()).accrued
        case.rig.clock.at += timedelta(seconds=61)
    return results


def list_ended(results: list[AccrualResult]) -> list[str]:
    return [row.key.id for one in results for row in one.logged if row.observation and row.observation.state == ENDED]


@pytest.mark.parametrize(("count", "said"), [(2, True), (0, True), (2, False)])
def test_a_swapped_key_ends_no_machine_and_is_told(case: Case, tmp_path: Path, count: int, *, said: bool) -> None:
    if case.rig.provider in ("azure", "gcp") or (case.rig.identity is None and not count):
        pytest.skip(
            "Google and Azure list nothing of another project; where nobody says whose a key is, look-ups settle an empty list"
        )
    if type(case.rig).__name__ == "MotoRig":
        pytest.skip("moto's server has one account")
    url = f"sqlite:///{tmp_path}/ledger.db"
    case.rig.put(3)
    assert {one.outcome for one in poll_again(case, url, 2)} == {COMPLETE}
    case.rig.become_another(count, said=said)
    swapped = poll_again(case, url, 3)
    assert list_ended(swapped) == []
    assert all(one.outcome != COMPLETE and one.why for one in swapped), [one.why for one in swapped]
    if case.rig.identity and said:
        assert {one.outcome for one in poll_again(case, url, 3)} == {FAILED}
    elif case.rig.provider != "aws":  # which lists nothing without it
        assert all(one.why == SHARES_NOTHING for one in swapped)
        assert {one.outcome for one in poll_again(case, url, 2)} == {COMPLETE}


def test_an_account_that_is_not_named_again_is_polled_as_before(case: Case, tmp_path: Path) -> None:
    """The provider says no more whose the key is: 403, 404, a page in HTML, another field; the machines are the same."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    case.rig.put(2)
    poll_again(case, url)
    if not case.rig.identity or case.rig.provider == "aws":
        pytest.skip("there is no such request, or nothing is listed without it")
    for status in (400, 403, 404, 410, 500):
        case.rig.fake.faults.clear()
        case.rig.fake.fault(case.rig.identity[0], "status", status=status)
        assert {one.outcome for one in poll_again(case, url)} == {COMPLETE}, status
