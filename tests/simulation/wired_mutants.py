"""Adapters and transport with one rule taken out of them, to see that the judge of wired worlds would notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from costguard_aws.account import AwsAccount
from costguard_gcp import inventory as gcp_listing
from costguard_gcp.account import GcpAccount
from costguard_gcp.inventory import ProjectLister
from costguard_runpod import pagination as runpod_pages
from costguard_runpod.account import RunpodAccount
from costguard_vast.account import VastAccount

from costguard.errors import InvalidAnswerError, UnreachableError
from costguard.guard import action_intents
from costguard.guard.action_intents import DONE
from costguard.metering.inventory import Complete, Partial, Poll
from costguard.metering.observation import Observation
from costguard.providers.transport import ProviderChannel
from costguard.values.resource import ScopeKey

Patch = pytest.MonkeyPatch


def next_page_ignored(patch: Patch) -> None:
    """The first page is all there is (RunPod, Google Cloud)."""
    patch.setattr(runpod_pages, "_find_next_cursor", lambda _page, _limit: ("", ""))
    check = gcp_listing.check_page

    def alone(page: Any, what: str) -> None:  # noqa: ANN401 - a page
        check(page, what)
        page.next_page_token = ""

    patch.setattr(gcp_listing, "check_page", alone)


def lost_page_is_the_end(patch: Patch) -> None:
    """A page that failed ends the list, and what was read is taken for whole (all with pages)."""
    listed = RunpodAccount.poll

    def poll(self: RunpodAccount, scope: ScopeKey) -> Poll:
        found = listed(self, scope)
        if isinstance(found.inventory, Partial):
            return replace(found, inventory=Complete(found.inventory.items))
        return found

    patch.setattr(RunpodAccount, "poll", poll)
    whole = ProjectLister.list_project

    def google(self: ProjectLister, project: str, deadline: Any) -> Any:  # noqa: ANN401 - as it is there
        inventory, notes = whole(self, project, deadline)
        return (Complete(inventory.items) if isinstance(inventory, Partial) else inventory), notes

    patch.setattr(ProjectLister, "list_project", google)


def acts_are_tried_again(patch: Patch) -> None:
    """An act without an answer is sent again, as a read is."""
    asked = ProviderChannel.ask

    def ask(self: ProviderChannel, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - as it is there
        try:
            return asked(self, *args, **named)
        except (UnreachableError, InvalidAnswerError):
            if not named.get("act"):
                raise
            return asked(self, *args, **named)

    patch.setattr(ProviderChannel, "ask", ask)


def not_found_is_done(patch: Patch) -> None:
    """What a listing lacks was stopped."""
    patch.setattr(action_intents, "_resolve_absent", lambda *_: action_intents.IntentUpdate(state=DONE, why="it is not there"))


def looks_are_old(patch: Patch) -> None:
    """A look answers with what the last listing said."""
    for account in (RunpodAccount, VastAccount, GcpAccount, AwsAccount):
        seen: dict[object, Observation] = {}
        patch.setattr(account, "poll", _kept(account.poll, seen))
        patch.setattr(account, "look_up", lambda _self, key, seen=seen: seen.get(key))


def _kept(polled: Callable[..., Poll], seen: dict[object, Observation]) -> Callable[..., Poll]:
    def poll(self: Any, scope: ScopeKey) -> Poll:  # noqa: ANN401 - an account
        found = polled(self, scope)
        if isinstance(found.inventory, Complete | Partial):
            seen.update({one.key: one for one in found.inventory.items})
        return found

    return poll


def unmeasured_is_rest(patch: Patch) -> None:
    """A GPU that says nothing rests (RunPod)."""
    from costguard_runpod import translation

    patch.setattr(translation, "_find_highest", lambda values: max((one for one in values if one is not None), default=0.0))


WIRED_MUTANTS: Mapping[str, Callable[[Patch], None]] = {
    one.__name__: one
    for one in (
        next_page_ignored,
        lost_page_is_the_end,
        acts_are_tried_again,
        not_found_is_done,
        looks_are_old,
        unmeasured_is_rest,
    )
}
