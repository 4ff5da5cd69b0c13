"""Stop and terminate: one instance, one request that changes something, after a look at what the instance is now.

Nothing is forced, no protection is lifted, and no request is sent twice. What would be replaced at once (a member of a group, a
persistent spot machine) is refused with whom to ask instead; a plain auto-scaling group is asked to end its member and want
one less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.etree.ElementTree import Element

from costguard.errors import ForbiddenError, InputError, InvalidAnswerError, MissingError, ProviderError, UnreachableError
from costguard.values.acting import ACCEPTED, ALREADY, MISSING, REFUSED, UNCLEAR, ActionResponse
from costguard.values.resource import ResourceKey
from costguard_aws.api import Ec2
from costguard_aws.controllers import Controller, controller_of
from costguard_aws.ec2_xml import flag_of, tags_of, text_of
from costguard_aws.translation import local_loss
from costguard_aws.types import GpuType

GONE = ("shutting-down", "terminated")
OFF = ("stopping", "stopped")

Kind = Callable[[Element, str], GpuType | None]
"""The type of an instance that stands in a region."""


class Actor:
    """Acts of one account. Nothing here raises."""

    def __init__(self, ec2: Ec2, kind: Kind) -> None:
        self._ec2, self._kind = ec2, kind

    def stop(self, key: ResourceKey, lose: frozenset[str]) -> ActionResponse:
        """Stop one instance, unless more than `lose` would be lost."""
        return _received(lambda: self._no_stop(key, lose), lambda: self._stopped(key))

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """End one instance."""
        found: dict[str, Element] = {}
        return _received(lambda: self._no_end(key, found), lambda: self._ended(key, found[key.id]))

    def _no_stop(self, key: ResourceKey, lose: frozenset[str]) -> ActionResponse | None:
        """Why the request is not to be sent; None: it is."""
        item = self._ec2.instance(key.region, key.id)
        if item is None:
            return ActionResponse(said=MISSING)
        state = text_of(item, "instanceState/name")
        if state in GONE:
            return ActionResponse(said=MISSING, why=f"it is {state}")
        if state in OFF:
            return ActionResponse(said=ALREADY, why=f"it is {state}")
        unsaved = [loss for loss in local_loss(self._kind(item, key.region)) if loss not in lose]
        if unsaved:
            return _no(f"a stop would lose {', '.join(unsaved)}")
        return self._kept_up(item) or self._spot_stop(item, key) or self._protected(key, "stop")

    def _no_end(self, key: ResourceKey, found: dict[str, Element]) -> ActionResponse | None:
        item = self._ec2.instance(key.region, key.id)
        if item is None:
            return ActionResponse(said=MISSING)
        if text_of(item, "instanceState/name") in GONE:
            return ActionResponse(said=ALREADY, why=f"it is {text_of(item, 'instanceState/name')}")
        found[key.id] = item
        controller = _controller(item)
        if controller is not None and not controller.group:
            return _no(f"{controller.name} would replace it: {controller.ask}")
        return self._spot_end(item, key) or self._protected(key, "terminate")

    def _kept_up(self, item: Element) -> ActionResponse | None:
        """The refusal to stop what somebody would replace."""
        controller = _controller(item)
        return _no(f"{controller.name} would terminate and replace it: {controller.ask}") if controller else None

    def _spot_stop(self, item: Element, key: ResourceKey) -> ActionResponse | None:
        request = text_of(item, "spotInstanceRequestId")
        if not request or self._ec2.spot_request(key.region, request) == "persistent":
            return None
        return _no(f"the one-time spot request {request} cannot be stopped: terminate it, or let it run")

    def _spot_end(self, item: Element, key: ResourceKey) -> ActionResponse | None:
        request = text_of(item, "spotInstanceRequestId")
        if not request or self._ec2.spot_request(key.region, request) != "persistent":
            return None
        first = f"aws ec2 cancel-spot-instance-requests --region {key.region} --spot-instance-request-ids {request}"
        return _no(f"its persistent spot request would launch another: {first}")

    def _protected(self, key: ResourceKey, act: str) -> ActionResponse | None:
        """The refusal where it is protected. A key that may not ask is no reason: EC2 itself honours the protection."""
        try:
            protected = act in self._ec2.protected(key.region, key.id)
        except ForbiddenError:
            return None
        return _no(f"it is protected against {act}, and costguard lifts no protection") if protected else None

    def _stopped(self, key: ResourceKey) -> ActionResponse:
        before, now = self._ec2.stop(key.region, key.id)
        return _changed(before, now, OFF)

    def _ended(self, key: ResourceKey, item: Element) -> ActionResponse:
        controller = _controller(item)
        if controller is None:
            before, now = self._ec2.terminate(key.region, key.id)
            return _changed(before, now, GONE)
        status = self._ec2.terminate_member(key.region, key.id)
        if status in ("Failed", "Cancelled", ""):
            return ActionResponse(said=UNCLEAR, why=f"{controller.name} says of it: {status or 'nothing'}")
        return ActionResponse(said=ACCEPTED, why=f"{controller.name} ends it and wants one less")


def _received(refusal: Callable[[], ActionResponse | None], act: Callable[[], ActionResponse]) -> ActionResponse:
    """What came of looking, and of acting if nothing speaks against it."""
    try:
        refused = refusal()
    except (ProviderError, InputError) as broken:
        return _no(f"it could not be looked at first, so nothing was sent: {broken.what}")
    if refused is not None:
        return refused
    try:
        return act()
    except (UnreachableError, InvalidAnswerError) as broken:
        return ActionResponse(said=UNCLEAR, why=broken.what)
    except MissingError as broken:
        return ActionResponse(said=MISSING, why=broken.what)
    except (ProviderError, InputError) as broken:
        return _no(broken.what)


def _changed(before: str, now: str, wanted: tuple[str, str]) -> ActionResponse:
    """What the states before and after the act say."""
    if before in wanted:
        return ActionResponse(said=ALREADY, why=f"it was {before}")
    if now in wanted:
        return ActionResponse(said=ACCEPTED)
    return ActionResponse(said=UNCLEAR, why=f"it was {before or 'unknown'} and is {now or 'unknown'}")


def _controller(item: Element) -> Controller | None:
    tags: Mapping[str, str] = dict(tags_of(item.find("tagSet")))
    operator = item.find("operator")
    return controller_of(tags, managed=flag_of(operator, "managed"), principal=text_of(operator, "principal"))


def _no(why: str) -> ActionResponse:
    return ActionResponse(said=REFUSED, why=why)
