"""The suite itself: an adapter with one fault, of the kinds that cost money, must fail the case that is meant for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from costguard.errors import MissingError, ProviderError
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, HttpResponse, ProviderChannel
from costguard.values.money import Rate
from costguard.values.provider import ACCEPTED, CHECK_GOOD, MISSING, ActionResponse, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from tests.contract import test_contract as listing
from tests.contract import test_contract_acts as acts
from tests.contract import test_contract_values as values
from tests.contract import test_contract_wire as wire
from tests.contract.case import Case
from tests.contract.toy import CANARY, Page, ToyAccount, ToyPlugin, ToyRig

Mutant = type[ToyAccount]


class BelievesAnEmptyList(ToyAccount):
    def _listed(self, deadline: Deadline, notes: list[str]) -> Inventory:
        found = super()._listed(deadline, notes)
        return Complete(()) if isinstance(found, Failed) else found


class CallsAPartComplete(ToyAccount):
    def _listed(self, deadline: Deadline, notes: list[str]) -> Inventory:
        found = super()._listed(deadline, notes)
        return Complete(found.items) if isinstance(found, Partial) else found


class DropsWhatCameBefore(ToyAccount):
    def _listed(self, deadline: Deadline, notes: list[str]) -> Inventory:
        found = super()._listed(deadline, notes)
        return Failed(found.why) if isinstance(found, Partial) else found


class ReadsOnePage(ToyAccount):
    def _listed(self, deadline: Deadline, notes: list[str]) -> Inventory:
        found = super()._listed(deadline, notes)
        return Complete(found.items[:2]) if isinstance(found, Complete) else found


class Raises(ToyAccount):
    def _listed(self, deadline: Deadline, notes: list[str]) -> Inventory:
        self.channel.read("/machines", deadline=deadline)
        return super()._listed(deadline, notes)


class ReadsNullAsZero(ToyAccount):
    def translate(self, raw: msgspec.Raw, notes: list[str]) -> Observation:
        seen = super().translate(raw, notes)
        return seen if seen.prices[0].rate else replace(seen, prices=(Price(Rate(nano_per_hour=1)),))


class CallsTheUnknownStopped(ToyAccount):
    def translate(self, raw: msgspec.Raw, notes: list[str]) -> Observation:
        seen = super().translate(raw, notes)
        return replace(seen, state="stopped") if seen.state == "unknown" else seen


class SkipsWhatItCannotRead(ToyAccount):
    def _take(self, raws: Sequence[msgspec.Raw], items: list[Observation], notes: list[str], odd: list[str]) -> None:  # noqa: ARG002
        super()._take(raws, items, notes, [])


class KeepsQuietAboutPrices(ToyAccount):
    def poll(self, scope: ScopeKey) -> Poll:
        return replace(super().poll(scope), notes=())


class ActsTwice(ToyAccount):
    def _acted(self, key: ResourceKey, method: str, verb: str) -> ActionResponse:
        first = super()._acted(key, method, verb)
        return first if first.said == ACCEPTED else super()._acted(key, method, verb)


class BelievesEveryYes(ToyAccount):
    def _acted(self, key: ResourceKey, method: str, verb: str) -> ActionResponse:
        try:
            self.channel.act(method, f"/machines/{key.id}{verb}")
        except MissingError:
            return ActionResponse(said=MISSING, why="gone")
        except ProviderError as broken:
            return ActionResponse(said="unclear", why=broken.what)
        return ActionResponse(said=ACCEPTED)


class CallsABrokenActDone(ToyAccount):
    def _acted(self, key: ResourceKey, method: str, verb: str) -> ActionResponse:
        found = super()._acted(key, method, verb)
        return ActionResponse(said=ACCEPTED) if found.said == "unclear" else found


class RefusesTheMissing(ToyAccount):
    def _acted(self, key: ResourceKey, method: str, verb: str) -> ActionResponse:
        found = super()._acted(key, method, verb)
        return ActionResponse(said="refused", why="no") if found.said == MISSING else found


class LooksAndSeesNothing(ToyAccount):
    def look_up(self, key: ResourceKey) -> Observation | None:
        try:
            return super().look_up(key)
        except ProviderError:
            return None


class FindsAllWell(ToyAccount):
    def examine(self) -> Sequence[HealthCheck]:
        return tuple(replace(check, outcome=CHECK_GOOD) for check in super().examine())


class TellsItsKey(ToyAccount):
    def poll(self, scope: ScopeKey) -> Poll:
        return replace(super().poll(scope), notes=(f"asked with {CANARY}",))


class ShowsItsKey(ToyAccount):
    def __repr__(self) -> str:
        return f"ToyAccount({CANARY})"


class FollowsACircle(ToyAccount):
    def _listed(self, deadline: Deadline, notes: list[str]) -> Inventory:
        items, after = list[Observation](), ""
        for _ in range(20):
            got = self._page(after, deadline)
            self._take(got.machines, items, notes, [])
            if got.next is None:
                return Complete(tuple(items))
            after = got.next
        return Complete(tuple(items))

    def _page(self, after: str, deadline: Deadline) -> Page:
        reply: HttpResponse = self.channel.read("/machines", {"after": after} if after else None, deadline=deadline)
        return self.channel.decode(reply, Page, "the list")


class KnowsNoTimeLimit(ToyAccount):
    def __init__(self, channel: ProviderChannel, around: Any, timeout_s: int) -> None:  # noqa: ANN401, ARG002
        super().__init__(channel, around, 50)


CASES: Mapping[Mutant, Sequence[tuple[Callable[..., None], Mapping[str, Any]]]] = {
    BelievesAnEmptyList: [
        (listing.test_an_error_is_failed_and_never_empty, {"status": 500}),
        (listing.test_an_odd_body_is_failed_and_never_empty, {"body": "object"}),
        (listing.test_a_web_page_is_failed, {"status": 200}),
        (listing.test_a_listing_under_another_name_is_failed, {}),
        (listing.test_a_redirect_is_not_followed, {"status": 302}),
    ],
    CallsAPartComplete: [
        (listing.test_a_broken_later_page_is_partial_and_keeps_what_came_before, {"how": "500"}),
        (listing.test_a_page_token_that_leads_in_a_circle_ends_and_is_partial, {}),
        (listing.test_more_machines_than_the_cap_are_partial, {}),
    ],
    DropsWhatCameBefore: [(listing.test_a_broken_later_page_is_partial_and_keeps_what_came_before, {"how": "reset"})],
    ReadsOnePage: [(listing.test_pages_in_any_split_give_every_machine_once, {"size": 2})],
    Raises: [(listing.test_an_error_is_failed_and_never_empty, {"status": 403})],
    ReadsNullAsZero: [(values.test_a_price_out_of_bounds_is_unknown_and_said, {"price": None})],
    CallsTheUnknownStopped: [
        (values.test_a_state_that_nobody_knows_is_unknown_with_its_word, {"word": "QUANTUM"}),
        (values.test_every_field_null_or_left_out_one_by_one_invents_nothing, {}),
    ],
    SkipsWhatItCannotRead: [(values.test_every_field_null_or_left_out_one_by_one_invents_nothing, {})],
    KeepsQuietAboutPrices: [(values.test_a_price_out_of_bounds_is_unknown_and_said, {"price": "NaN"})],
    ActsTwice: [
        (acts.test_an_act_is_sent_once_and_a_bare_error_is_never_a_yes, {"verb": "stop", "status": 500}),
        (acts.test_a_throttled_act_is_sent_once_and_postponed, {"verb": "stop", "after": "0"}),
    ],
    BelievesEveryYes: [
        (acts.test_a_yes_in_other_words_is_not_believed, {"verb": "stop", "body": b"[]"}),
        (acts.test_a_machine_of_another_account_is_not_asked_for, {"verb": "terminate"}),
    ],
    CallsABrokenActDone: [
        (acts.test_an_act_that_works_and_breaks_off_is_unclear_and_the_next_listing_knows, {"verb": "stop"}),
        (acts.test_an_act_is_sent_once_and_a_bare_error_is_never_a_yes, {"verb": "terminate", "status": 503}),
    ],
    RefusesTheMissing: [(acts.test_a_missing_machine_is_missing, {"verb": "terminate"})],
    LooksAndSeesNothing: [(wire.test_a_look_that_cannot_be_answered_is_an_error_and_never_none, {"how": "500"})],
    FindsAllWell: [(wire.test_an_examination_with_a_wrong_key_says_so_with_the_fix, {})],
    TellsItsKey: [(listing.test_a_listing_holds_every_machine_once, {})],
    ShowsItsKey: [(wire.test_nothing_of_the_account_shows_its_key, {})],
    FollowsACircle: [(listing.test_a_page_token_that_leads_in_a_circle_ends_and_is_partial, {})],
    KnowsNoTimeLimit: [(listing.test_a_page_that_never_comes_is_partial_within_the_deadline, {})],
}


@dataclass(frozen=True)
class Tried:
    """What came of one case with one account class."""

    passed: bool
    why: str = ""


def tried(account: Mutant, test: Callable[..., None], more: Mapping[str, Any], home: Path) -> Tried:
    """Whether the toy with this account passes the case, its secrets being looked for as the suite does."""
    plugin = type("Plugin", (ToyPlugin,), {"account": account})
    rig = type("Rig", (ToyRig,), {"plugin": lambda _self: plugin()})()
    with ExitStack() as stack:
        case = Case(rig, home, stack)
        try:
            test(case, **more)
        except (AssertionError, ProviderError, pytest.fail.Exception) as caught:
            return Tried(passed=False, why=str(caught))
        return Tried(passed=not any(case.found_secrets(text) for text in case.heard))


LONG = dict.fromkeys(
    (
        listing.test_more_machines_than_the_cap_are_partial,
        listing.test_a_page_that_never_comes_is_partial_within_the_deadline,
    ),
    pytest.mark.proof,
)
"""Cases that take seconds."""
ALL = [
    pytest.param(account, test, more, id=f"{account.__name__}-{test.__name__}", marks=LONG.get(test, ()))
    for account, found in CASES.items()
    for test, more in found
]


@pytest.mark.parametrize(("account", "test", "more"), ALL)
def test_an_adapter_with_this_fault_fails_its_case(
    account: Mutant, test: Callable[..., None], more: Mapping[str, Any], tmp_path: Path
) -> None:
    assert tried(ToyAccount, test, more, tmp_path).passed, "the right adapter fails it as well"
    assert not tried(account, test, more, tmp_path).passed
