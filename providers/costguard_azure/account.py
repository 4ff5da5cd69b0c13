"""One Azure login and the subscriptions it watches: all provider ports of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from costguard.errors import InvalidAnswerError, ProviderError, RefusedError, to_one_line
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, ProviderContext
from costguard.values.calendar import Period
from costguard.values.provider import ActionResponse, HealthCheck, interpret_act_error
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import UtilizationSamples
from costguard_azure import actions
from costguard_azure.api import COMPUTE_VERSION, DISK_VERSION, NETWORK_VERSION, AzureApi, make_item_path
from costguard_azure.credentials import Login, TokenSource
from costguard_azure.prices import PriceList
from costguard_azure.settings import AzureSettings
from costguard_azure.translation import (
    ListingContext,
    ListingResult,
    add_address,
    add_disk,
    add_machine,
    add_unreadable,
    find_size_name,
    normalize_region,
)
from costguard_azure.wire import (
    Listing,
    Machine,
    ManagedDisk,
    PublicAddress,
    ScaleSet,
    Text,
    find_subscription,
    parse_resource_id,
)

T = TypeVar("T")

SCOPE = "subscription"
MACHINES = "Microsoft.Compute/virtualMachines"
SETS = "Microsoft.Compute/virtualMachineScaleSets"
DISKS = "Microsoft.Compute/disks"
ADDRESSES = "Microsoft.Network/publicIPAddresses"
STATUS = {"api-version": COMPUTE_VERSION, "statusOnly": "true"}
PLAIN = {"api-version": COMPUTE_VERSION}
VIEW = {"api-version": COMPUTE_VERSION, "$expand": "instanceView"}
MOST_TOLD = 3
"""Faults of a listing that are told in full."""
MOST_SETS = 100
"""Uniform scale sets of a subscription whose members are listed: one request each."""


class AzureAccount:
    """The subscriptions of one login."""

    key_name: str = ""
    """Subscriptions have ids of their own, and Azure lists nothing of another one under them."""
    providers: Sequence[str] = ("azure",)

    def __init__(self, settings: AzureSettings, login: Login, around: ProviderContext) -> None:
        self.settings, self.clock, self._gpus = settings, around.clock, around.gpus
        self.tokens = TokenSource(login, around.transport, settings.login)
        self.api = AzureApi(around.transport, settings.endpoint, self.tokens)
        self.prices = PriceList(around.transport, settings.prices, around.clock)
        self._discovered = frozenset[str]()

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return the subscriptions of the settings and, with `discover`, every enabled one that the credentials see."""
        subscriptions = dict.fromkeys(self.settings.subscriptions)
        if self.settings.discover:
            listed = self.api.list_subscriptions(Deadline(self.settings.timeout_s))
            if listed.why or listed.odd:
                raise InvalidAnswerError(
                    f"the list of subscriptions is incomplete: {listed.why or listed.odd[0][2]}", provider="azure"
                )
            enabled = {one.subscription_id.lower() for one in listed.items if (one.state or "Enabled") != "Deleted"}
            self._discovered = frozenset(enabled)
            subscriptions |= dict.fromkeys(sorted(enabled))
        return [ScopeKey("azure", one, SCOPE) for one in subscriptions]

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll machines, scale sets, disks and addresses of one subscription, and prices once a day."""
        asked_at, listing = self.clock.now(), ListingResult()
        inventory = self._read_inventory(scope.account, Deadline(self.settings.timeout_s), listing)
        notes = () if isinstance(inventory, Failed) else tuple(dict.fromkeys(listing.notes))
        return Poll(scope=scope, asked_at=asked_at, at=max(asked_at, self.clock.now()), inventory=inventory, notes=notes)

    def _read_inventory(self, subscription: str, deadline: Deadline, listing: ListingResult) -> Inventory:
        try:
            machines = self._list_machines(subscription, deadline)
        except ProviderError as broken:
            return Failed(_format_reason(broken))
        members = self._list_members(subscription, deadline, listing)
        disks = self._try_list(subscription, (DISKS, DISK_VERSION), ManagedDisk, deadline, listing)
        addresses = self._try_list(subscription, (ADDRESSES, NETWORK_VERSION), PublicAddress, deadline, listing)
        self._learn_prices([*machines.items, *(one for one, _ in members)], disks.items, deadline, listing)
        context = self._make_context(subscription)
        for machine in machines.items:
            add_machine(listing, machine, context)
        for member, group in members:
            add_machine(listing, member, context, group)
        for disk in disks.items:
            add_disk(listing, disk, context)
        for address in addresses.items:
            add_address(listing, address, context)
        unread = (("machine", machines.odd), ("disk", disks.odd), ("address", addresses.odd))
        for what, odd in unread:
            for one in odd:
                add_unreadable(listing, one, context, what)
        if machines.why:
            listing.faults.insert(0, f"the list of machines is incomplete: {machines.why}")
        if not listing.faults:
            return Complete(tuple(listing.items))
        more = f"; and {len(listing.faults) - MOST_TOLD} more" if len(listing.faults) > MOST_TOLD else ""
        return Partial(tuple(listing.items), "; ".join(listing.faults[:MOST_TOLD]) + more)

    def _list_machines(self, subscription: str, deadline: Deadline) -> Listing[Machine]:
        """Return all machines with their power states.

        Whether `statusOnly` leaves out sizes and tags is not documented: where it does, the plain list is joined by id.
        """
        path = f"/subscriptions/{subscription}/providers/{MACHINES}"
        with_states = self.api.list_items(subscription, path, Machine, deadline, STATUS)
        if not with_states.items or any(find_size_name(one) for one in with_states.items):
            return with_states
        plain = self.api.list_items(subscription, path, Machine, deadline, PLAIN)
        return Listing(
            items=tuple(_join_states(plain.items, with_states.items)),
            odd=(*with_states.odd, *plain.odd),
            why=with_states.why or plain.why,
        )

    def _list_members(self, subscription: str, deadline: Deadline, listing: ListingResult) -> list[tuple[Machine, ScaleSet]]:
        """Return the members of uniform scale sets, which the list of machines leaves out; those of flexible ones it has."""
        sets = self._try_list(subscription, (SETS, COMPUTE_VERSION), ScaleSet, deadline, listing)
        listing.faults.extend(f"a scale set cannot be read: {why}" for _, _, why in sets.odd)
        members = list[tuple[Machine, ScaleSet]]()
        uniform = [one for one in sets.items if _is_uniform(one) and not (one.sku and one.sku.capacity == 0)]
        if len(uniform) > MOST_SETS:
            listing.faults.append(f"there are {len(uniform)} scale sets, of which {MOST_SETS} are listed")
        for one in uniform[:MOST_SETS]:
            path = f"{one.id.rstrip('/')}/virtualMachines"
            if find_subscription(one.id) != subscription or not path.startswith("/") or ".." in path or not path.isascii():
                listing.faults.append("a scale set has an id that is not of this subscription")
                continue
            try:
                listed = self.api.list_items(subscription, path, Machine, deadline, VIEW)
            except ProviderError as broken:
                listing.faults.append(f"scale set {parse_resource_id(one.id)}: {_format_reason(broken)}")
                continue
            members += [(member, one) for member in listed.items]
            listing.faults.extend(f"a member of {parse_resource_id(one.id)} cannot be read: {why}" for _, _, why in listed.odd)
            listing.faults.extend([f"scale set {parse_resource_id(one.id)}: {listed.why}"] if listed.why else ())
        return members

    def _try_list(
        self,
        subscription: str,
        what: tuple[str, str],
        kind: type[T],
        deadline: Deadline,
        listing: ListingResult,
    ) -> Listing[T]:
        """Return a list beside that of the machines; without it the inventory is partial."""
        kind_name, version = what
        name = kind_name.rpartition("/")[2]
        try:
            path = f"/subscriptions/{subscription}/providers/{kind_name}"
            listed = self.api.list_items(subscription, path, kind, deadline, {"api-version": version})
        except ProviderError as broken:
            listing.faults.append(f"{name} cannot be listed: {_format_reason(broken)}")
            return Listing()
        if listed.why:
            listing.faults.append(f"the list of {name} is incomplete: {listed.why}")
        return listed

    def _learn_prices(
        self, machines: Sequence[Machine], disks: Sequence[ManagedDisk], deadline: Deadline, listing: ListingResult
    ) -> None:
        sizes: dict[str, set[str]] = {normalize_region(one.location): set() for one in disks}
        for machine in machines:
            name = find_size_name(machine)
            sizes.setdefault(normalize_region(machine.location), set()).update((name,) if name else ())
        for region, names in sorted(sizes.items()):
            why = self.prices.learn(region, names, deadline)
            listing.notes.extend((why,) if why else ())

    def _make_context(self, subscription: str) -> ListingContext:
        return ListingContext(subscription=subscription, gpus=self._gpus, prices=self.prices.get)

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return the machine, disk or address of `key`; None if Azure says that it does not exist."""
        self._check_ours(key)
        deadline, listing = Deadline(self.settings.timeout_s), ListingResult()
        parts = key.id.split("/")
        if len(parts) == 2:  # noqa: PLR2004 - group and name
            machine = self.find_machine(key, deadline)
            if machine is None:
                return None
            self._learn_prices([machine], [], deadline, listing)
            add_machine(listing, machine, self._make_context(key.account))
        else:
            self._look_up_other(key, parts, deadline, listing)
            if not listing.items and not listing.faults:
                return None
        if not listing.items:
            what = to_one_line(listing.faults[0]) if listing.faults else "it cannot be read"
            raise InvalidAnswerError(what, provider="azure", account=key.account)
        return listing.items[0]

    def _look_up_other(self, key: ResourceKey, parts: list[str], deadline: Deadline, listing: ListingResult) -> None:
        """Add a disk, an address or the member of a scale set to `listing`; nothing if it does not exist."""
        context = self._make_context(key.account)
        match parts:
            case [group, "disks", name] if actions.is_plain(group, name):
                path = make_item_path(key.account, group, DISKS, name)
                disk = self.api.fetch_item(key.account, path, ManagedDisk, deadline, {"api-version": DISK_VERSION})
                if disk is not None:
                    self._learn_prices([], [disk], deadline, listing)
                    add_disk(listing, disk, context)
            case [group, "addresses", name] if actions.is_plain(group, name):
                path = make_item_path(key.account, group, ADDRESSES, name)
                address = self.api.fetch_item(key.account, path, PublicAddress, deadline, {"api-version": NETWORK_VERSION})
                if address is not None:
                    add_address(listing, address, context)
            case [group, "sets", name, number] if actions.is_plain(group, name) and number.isalnum():
                path = make_item_path(key.account, group, SETS, name)
                scale_set = self.api.fetch_item(key.account, path, ScaleSet, deadline, PLAIN)
                member_path = f"{path}/virtualMachines/{number}"
                member = self.api.fetch_item(key.account, member_path, Machine, deadline, VIEW) if scale_set else None
                if member is not None:
                    self._learn_prices([member], [], deadline, listing)
                    add_machine(listing, member, context, scale_set)
            case _:
                pass

    def find_machine(self, key: ResourceKey, deadline: Deadline) -> Machine | None:
        """Return the machine of `key` with its power state; None if Azure says that it does not exist."""
        path = actions.make_machine_path(key)
        machine = self.api.fetch_item(key.account, path, Machine, deadline, VIEW) if path else None
        if machine is not None and parse_resource_id(machine.id) != key.id:
            raise InvalidAnswerError("it answered with another machine", provider="azure", account=key.account)
        return machine

    def fetch_identity(self) -> str | None:
        """Return the subscriptions of the settings, whose ids are unique at Azure; None if all of them are discovered."""
        return ", ".join(sorted(self.settings.subscriptions)) or None

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return samples from Azure Monitor, with one request a region for any number of machines."""
        from costguard_azure.monitoring import fetch_utilization

        return fetch_utilization(self.api, observations, period, self.settings.timeout_s)

    def examine(self) -> Sequence[HealthCheck]:
        """Check credentials, reachability and rights of each subscription without acting."""
        from costguard_azure.examination import examine_account

        return examine_account(self)

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Deallocate the machine; its managed disks stay. Refused if it would lose anything that is not in `lose`."""
        return self._act(key, lambda machine: actions.refuse_stop(machine, lose), ("POST", "/deallocate"))

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Delete the machine, with the disks that are set to be deleted with it."""
        return self._act(key, actions.refuse_terminate, ("DELETE", ""))

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Start the machine, if it is deallocated."""
        return self._act(key, actions.refuse_start, ("POST", "/start"))

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """Return the present list price of its size and tier."""
        observation = self.look_up(key)
        return observation.prices[-1] if observation is not None and observation.prices else Price(None)

    def _act(self, key: ResourceKey, refuse: actions.Refuse, request: tuple[str, str]) -> ActionResponse:
        """Look once, and send one request unless `refuse` gives a response."""
        try:
            self._check_ours(key)
            machine = self.find_machine(key, Deadline(actions.LOOK_S))
        except ProviderError as broken:
            return interpret_act_error(broken, sent=False, why=_format_reason(broken))
        return actions.send_act(self.api, key, machine, refuse, request)

    def _check_ours(self, key: ResourceKey) -> None:
        """Raise RefusedError for a key of another provider or of a subscription that this login does not watch."""
        if key.provider != "azure" or (key.account not in self.settings.subscriptions and key.account not in self._discovered):
            raise RefusedError("is not watched by this login", provider="azure", account=key.account)


def _join_states(plain: Sequence[Machine], with_states: Sequence[Machine]) -> list[Machine]:
    """Return `plain` with the power states of the other list, and what only that has; ids are compared without case."""
    import msgspec

    states = {parse_resource_id(one.id): one for one in with_states}
    joined = list[Machine]()
    for machine in plain:
        state = states.pop(parse_resource_id(machine.id), None)
        view = state.properties.instance_view if state and state.properties else None
        properties = machine.properties and msgspec.structs.replace(
            machine.properties, instance_view=view or machine.properties.instance_view
        )
        joined.append(msgspec.structs.replace(machine, properties=properties))
    return [*joined, *states.values()]


def _is_uniform(one: ScaleSet) -> bool:
    mode: Text = one.properties.orchestration_mode if one.properties else None
    return (mode or "Uniform").lower() != "flexible"


def _format_reason(broken: ProviderError) -> str:
    """Return the error in one line, without the provider's name, which the scope has."""
    return to_one_line(broken.what if broken.hint is None else f"{broken.what} ({broken.hint})")
