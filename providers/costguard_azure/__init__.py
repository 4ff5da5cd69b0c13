"""Azure: the virtual machines, scale sets, managed disks and public addresses of subscriptions, and the Retail Prices API.

Importing this module imports no SDK and no network code. Azure's own login is imported before the first token that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from costguard.values.provider import (
    FLAG_SETTING,
    TEXTS_SETTING,
    WHOLE_SETTING,
    ProviderManifest,
    ProviderSetting,
    SavingAct,
    Seller,
    check_provider_table,
)

if TYPE_CHECKING:
    from costguard.bills.bill_files import BillFiles
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext

MANIFEST = ProviderManifest(
    measures=("cpu", "io"),
    name="azure",
    title="Azure",
    seller=Seller(name="Microsoft", account="Azure subscription", compute="Virtual Machines", storage="Managed Disks"),
    credentials=(
        "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
        "azure-identity: workload identity, managed identity, az login",
    ),
    saving_act=SavingAct(
        kind="deallocate",
        bills_on=("managed disks", "static public addresses"),
        loses=("local disks (/mnt, NVMe)", "memory", "a dynamic public address"),
    ),
    abilities={
        "list": "every region of each subscription; members of scale sets too; list prices from the Retail Prices API",
        "volumes": "managed disks by their size tier, and public IPv4 addresses",
        "utilization": "Azure Monitor: processors, network and disk by the host; no GPU",
        "stop": "deallocates, which ends the compute rate; local disks are lost, and only with consent",
        "terminate": "deletes the machine, with the disks that are set to go with it; never against a lock",
        "start": "deallocated machines; the region may have no capacity",
        "permissions": "lists what the credentials may do in each subscription",
    },
    settings=(
        ProviderSetting(
            name="subscriptions",
            kind=TEXTS_SETTING,
            told="ids of the subscriptions to watch",
            example='["00000000-0000-0000-0000-000000000000"]',
        ),
        ProviderSetting(
            name="discover", kind=FLAG_SETTING, told="watch every enabled subscription that the credentials see", example="true"
        ),
        ProviderSetting(name="timeout_s", kind=WHOLE_SETTING, told="seconds for one poll of a subscription", example="60"),
        ProviderSetting(name="endpoint", told="base address of the Azure Resource Manager"),
        ProviderSetting(name="login_endpoint", told="base address of Entra ID"),
        ProviderSetting(name="prices_endpoint", told="base address of the Retail Prices API"),
    ),
    extra="azure",
    key_at="https://learn.microsoft.com/entra/identity-platform/howto-create-service-principal-portal",
    # Platform metrics come every minute, and are to be seen some minutes later (from memory, 2026-12).
    measures_late=timedelta(minutes=5),
    measures_every=timedelta(minutes=1),
    not_seen=(
        "snapshots, images, load balancers, gateways and network traffic",
        "Azure Machine Learning, Batch and other services that keep their machines in Microsoft's own subscriptions",
        "reservations, savings plans, credits and agreed prices, which change the bill and no listing",
        "reserved capacity that no machine uses; dedicated hosts",
    ),
)


class AzurePlugin:
    """The plug-in named by the entry point."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    @property
    def bill_files(self) -> BillFiles:
        """Return Azure's names in FOCUS files, and how they name its resources."""
        from costguard.bills.bill_files import BillFiles
        from costguard_azure.wire import parse_resource_id, parse_subscription_id

        called = ("Microsoft", "Azure", "Microsoft Azure", "Microsoft Corporation")
        return BillFiles(called=called, resource=parse_resource_id, account=parse_subscription_id)

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return one source for the one login, with all its subscriptions."""
        checked = check_provider_table(table, MANIFEST.settings, "providers.azure")
        from costguard_azure.account import AzureAccount
        from costguard_azure.credentials import find_login
        from costguard_azure.settings import parse_settings

        return [AzureAccount(parse_settings(checked, around.environ), find_login(around.environ), around)]


provider = AzurePlugin()
