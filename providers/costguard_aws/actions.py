"""Stop, terminate and start: one instance, one changing request, after a check of the instance's current state.

Nothing is forced, no protection is lifted, and no request is sent twice. An instance that would be replaced at once (a member
of a group, a persistent spot machine) is refused, with the place to change instead. A plain auto-scaling group is asked to
terminate its member and reduce its desired capacity by one.
"""

from __future__ import annotations

from collections.abc import Callable

from costguard.errors import ForbiddenError, InputError, MissingError, ProviderError
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, UNCLEAR, ActionResponse, interpret_act_error
from costguard.values.resource import ResourceKey
from costguard_aws.api import Ec2Api, Ec2Item
from costguard_aws.instance_types import GpuInstanceType
from costguard_aws.translation import find_item_controller, list_local_losses

GONE = ("shutting-down", "terminated")
OFF = ("stopping", "stopped")
ON = ("pending", "running")

TypeLookup = Callable[[Ec2Item, str], GpuInstanceType | None]
"""The type of an instance that stands in a region."""


class InstanceActions:
    """Acts of one account.

    No method raises.
    """

    def __init__(self, ec2: Ec2Api, kind: TypeLookup) -> None:
        self._ec2, self._kind = ec2, kind

    def stop(self, key: ResourceKey, lose: frozenset[str]) -> ActionResponse:
        """Stop one instance, unless more than `lose` would be lost."""
        return _receive_act(lambda: self._explain_no_stop(key, lose), lambda: self._send_stop(key))

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Terminate one instance."""
        items: dict[str, Ec2Item] = {}
        return _receive_act(lambda: self._explain_no_end(key, items), lambda: self._send_terminate(key, items[key.id]))

    def start(self, key: ResourceKey) -> ActionResponse:
        """Start one stopped instance."""
        return _receive_act(lambda: self._explain_no_start(key), lambda: self._send_start(key))

    def _explain_no_start(self, key: ResourceKey) -> ActionResponse | None:
        """Return why the start must not be sent; None if it may be."""
        item = self._ec2.find_instance(key.region, key.id)
        if item is None:
            return ActionResponse(said=MISSING)
        state = _read_state(item)
        if state in GONE:
            return ActionResponse(said=MISSING, why=f"it is {state}")
        if state in ON:
            return ActionResponse(said=ALREADY, why=f"it is {state}")
        if state != "stopped":
            return _refuse(f"it is {state or 'in no known state'}: only a stopped instance is started")
        return self._explain_kept_up(item)

    def _explain_no_stop(self, key: ResourceKey, lose: frozenset[str]) -> ActionResponse | None:
        """Return why the stop must not be sent; None if it may be."""
        item = self._ec2.find_instance(key.region, key.id)
        if item is None:
            return ActionResponse(said=MISSING)
        state = _read_state(item)
        if state in GONE:
            return ActionResponse(said=MISSING, why=f"it is {state}")
        if state in OFF:
            return ActionResponse(said=ALREADY, why=f"it is {state}")
        unsaved = [loss for loss in list_local_losses(self._kind(item, key.region)) if loss not in lose]
        if unsaved:
            return _refuse(f"a stop would lose {', '.join(unsaved)}")
        return self._explain_kept_up(item) or self._explain_spot_stop(item, key) or self._explain_protection(key, "stop")

    def _explain_no_end(self, key: ResourceKey, items: dict[str, Ec2Item]) -> ActionResponse | None:
        item = self._ec2.find_instance(key.region, key.id)
        if item is None:
            return ActionResponse(said=MISSING)
        if _read_state(item) in GONE:
            return ActionResponse(said=ALREADY, why=f"it is {_read_state(item)}")
        items[key.id] = item
        controller = find_item_controller(item)
        if controller is not None and not controller.group:
            return _refuse(f"{controller.name} would replace it: {controller.ask}")
        return self._explain_spot_end(item, key) or self._explain_protection(key, "terminate")

    def _explain_kept_up(self, item: Ec2Item) -> ActionResponse | None:
        """Return the refusal to stop an instance that a controller would replace; None if there is no controller."""
        controller = find_item_controller(item)
        return _refuse(f"{controller.name} would terminate and replace it: {controller.ask}") if controller else None

    def _explain_spot_stop(self, item: Ec2Item, key: ResourceKey) -> ActionResponse | None:
        request = item.get("SpotInstanceRequestId", "")
        if not request or self._ec2.read_spot_request_type(key.region, request) == "persistent":
            return None
        return _refuse(f"the one-time spot request {request} cannot be stopped: terminate it, or let it run")

    def _explain_spot_end(self, item: Ec2Item, key: ResourceKey) -> ActionResponse | None:
        request = item.get("SpotInstanceRequestId", "")
        if not request or self._ec2.read_spot_request_type(key.region, request) != "persistent":
            return None
        first = f"aws ec2 cancel-spot-instance-requests --region {key.region} --spot-instance-request-ids {request}"
        return _refuse(f"its persistent spot request would launch another: {first}")

    def _explain_protection(self, key: ResourceKey, act: str) -> ActionResponse | None:
        """Return the refusal for a protected instance, else None.

        A key that may not read the protection is no reason to refuse: EC2 enforces the protection.
        """
        try:
            protected = act in self._ec2.list_protections(key.region, key.id)
        except ForbiddenError:
            return None
        return _refuse(f"it is protected against {act}; costguard does not lift protections") if protected else None

    def _send_stop(self, key: ResourceKey) -> ActionResponse:
        old_state, new_state = self._ec2.stop(key.region, key.id)
        return _judge_state_change(old_state, new_state, OFF)

    def _send_start(self, key: ResourceKey) -> ActionResponse:
        old_state, new_state = self._ec2.start(key.region, key.id)
        return _judge_state_change(old_state, new_state, ON)

    def _send_terminate(self, key: ResourceKey, item: Ec2Item) -> ActionResponse:
        controller = find_item_controller(item)
        if controller is None:
            old_state, new_state = self._ec2.terminate(key.region, key.id)
            return _judge_state_change(old_state, new_state, GONE)
        status = self._ec2.terminate_member(key.region, key.id)
        if status in ("Failed", "Cancelled", ""):
            return ActionResponse(said=UNCLEAR, why=f"{controller.name} reports: {status or 'nothing'}")
        return ActionResponse(said=ACCEPTED, why=f"{controller.name} terminates it and reduces its size by one")


def _receive_act(refusal: Callable[[], ActionResponse | None], act: Callable[[], ActionResponse]) -> ActionResponse:
    """Run the check and, if it refuses nothing, the act; return the result."""
    try:
        refused = refusal()
    except (MissingError, InputError) as broken:
        return _refuse(f"its state could not be checked, so nothing was sent: {broken.what}")
    except ProviderError as broken:
        return interpret_act_error(broken, sent=False)
    if refused is not None:
        return refused
    try:
        return act()
    except InputError as broken:
        return _refuse(broken.what)
    except ProviderError as broken:
        return interpret_act_error(broken)


def _judge_state_change(old_state: str, new_state: str, target_states: tuple[str, str]) -> ActionResponse:
    """Return the result of an act from the states before and after it."""
    if old_state in target_states:
        return ActionResponse(said=ALREADY, why=f"it was {old_state}")
    if new_state in target_states:
        return ActionResponse(said=ACCEPTED)
    return ActionResponse(said=UNCLEAR, why=f"it was {old_state or 'unknown'} and is {new_state or 'unknown'}")


def _read_state(item: Ec2Item) -> str:
    return str(item.get("State", {}).get("Name", ""))


def _refuse(why: str) -> ActionResponse:
    return ActionResponse(said=REFUSED, why=why)
