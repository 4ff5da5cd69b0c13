"""What no plug-in is believed, whatever it answers: other shapes, and other providers' things."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from typing import Any, cast

import pytest

from costguard.errors import CostguardError
from costguard.metering.inventory import Complete, Failed, Poll
from costguard.quoting.offer import OfferListing
from costguard.services.poll.listing_validation import NOT_A_LISTING, check_own_scopes, validate_listing
from costguard.services.poll.poll import poll_sources
from costguard.services.quote.offers import ask_live_offers
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import GPU_UTIL, Sample
from tests.cli.acme import Account
from tests.metering.stories import SCOPE, machine, minute
from tests.services.test_poll import ALL, Cloud, Hands, Looking, Memory

WHOLE = Poll(scope=SCOPE, at=minute(1), inventory=ALL)
AWS = ResourceKey("aws", "1", "us-east-1", "i-1")
SAMPLE = Sample(key=AWS, signal=GPU_UTIL, at=datetime(2026, 11, 1, tzinfo=UTC), value=0)


@pytest.mark.parametrize(
    "change",
    [
        {"inventory": None},
        {"inventory": Complete(cast("Any", None))},
        {"inventory": Complete(cast("Any", ("i-1",)))},
        {"inventory": Failed(cast("Any", None))},
        {"notes": None},
        {"notes": (7,)},
        {"samples": None},
        {"samples": ("x",)},
        {"gone": None},
    ],
)
def test_what_has_another_shape_is_no_listing(change: dict[str, Any]) -> None:
    assert validate_listing(replace(WHOLE, **change), SCOPE) == NOT_A_LISTING


@pytest.mark.parametrize(
    "change",
    [
        {"inventory": Complete((replace(machine(), key=AWS),))},
        {"gone": frozenset({AWS})},
        {"samples": (SAMPLE,)},
    ],
)
def test_what_lies_with_another_provider_is_not_believed(change: dict[str, Any]) -> None:
    assert validate_listing(replace(WHOLE, **change), SCOPE) == "it lists a resource of another provider: aws"


def test_what_lies_in_another_account_is_not_believed() -> None:
    """An account is what writers lock: its resources are written by nobody else."""
    theirs = machine()
    theirs = replace(theirs, key=theirs.key._replace(account="theirs"))
    assert (
        validate_listing(replace(WHOLE, inventory=Complete((theirs,))), SCOPE)
        == "it lists a resource of another account: theirs"
    )


@pytest.mark.parametrize("stated", [["cloud/lab/here"], [None], [("cloud", "lab", "here")], [ScopeKey("cloud", "", "x")]])
def test_what_is_no_scope_is_said(stated: list[object]) -> None:
    with pytest.raises(CostguardError, match="did not return scopes"):
        check_own_scopes(stated, ("cloud",))


def test_a_source_that_lists_anothers_scope_takes_nothing_from_it() -> None:
    ledger = Memory()
    poll_sources([Cloud([ALL])], ledger, Hands())
    thief = Cloud([Complete(())], scope=SCOPE)
    thief.__class__ = type("Thief", (Cloud,), {"providers": ("thief",)})
    done = poll_sources([thief, Cloud([ALL, ALL], number=1)], ledger, Hands())
    assert [one.outcome for one in done.accrued] == ["complete"]
    assert done.refused == ("thief: its accounts cannot be listed: it lists a scope of another provider: cloud/lab/here",)
    assert all(known.open for known in ledger.states[SCOPE].resources.values())


def test_a_single_look_up_that_answers_with_another_thing_settles_nothing() -> None:
    class Odd(Looking):
        def look_up(self, key: ResourceKey) -> Any:  # noqa: ANN401
            return machine("another") if key.id == "i-1" else "here"

    ledger, cloud = Memory(), Odd([ALL, Complete(())])
    poll_sources([cloud], ledger, Hands())
    poll_sources([cloud], ledger, Hands())
    assert sorted(key.id for key in ledger.states[SCOPE].resources) == ["i-1", "i-2", "i-3"]
    assert all(known.open for known in ledger.states[SCOPE].resources.values())


def test_the_polls_of_an_account_are_recorded_in_the_order_of_its_scopes() -> None:
    names = [ScopeKey("aws", "1", name) for name in "abc"]
    answered = {name: Event() for name in names}

    class Backwards(Cloud):
        def list_scopes(self) -> list[ScopeKey]:
            return names

        def poll(self, scope: ScopeKey) -> Poll:
            for later in names[names.index(scope) + 1 :]:
                answered[later].wait(10)
            answered[scope].set()
            return Poll(scope=scope, at=minute(1), inventory=Complete(()))

    done = poll_sources([Backwards([], scope=names[0])], Memory(), Hands())
    assert [one.state.scope.name for one in done.accrued] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "said", [None, OfferListing(offers=cast("Any", ("x",))), OfferListing(offers=(), why=cast("Any", None))]
)
def test_what_is_no_list_of_offers_is_named_and_hides_no_other(said: object) -> None:
    class Odd(Account):
        def list_live_offers(self, gpus: object) -> Any:  # noqa: ANN401, ARG002
            return said

    found = ask_live_offers({"odd": [Odd("odd")], "fine": [Account("fine")]}, None)
    assert (set(found.listings), dict(found.failed)) == ({"fine"}, {"odd": "it did not return offers"})
