"""Vast.ai: a market of hosts' machines, rented by prepaid contracts.

Importing this module sends no request and loads no network library; `open` makes one source for each account of the settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from costguard.values.provider import (
    CONTAINERS,
    FLAG_SETTING,
    TABLES_SETTING,
    WHOLE_SETTING,
    MachineTraits,
    ProviderManifest,
    ProviderSetting,
    SavingAct,
    Seller,
)

if TYPE_CHECKING:  # a type and no more: costguard can say what Vast is without loading it
    from costguard.bills.bill_files import BillFiles
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext

BASE_URL = "https://console.vast.ai"

_ACCOUNT = ProviderSetting(name="account", told="the user id of the account; the key must be of this one", example="123456")
_KEY_ENV = ProviderSetting(name="key_env", told="the environment variable that holds the key", example="VAST_API_KEY_LAB")
_KEY_FILE = ProviderSetting(name="key_file", told="the file that holds the key and nothing else", example="/run/secrets/vast")

MANIFEST = ProviderManifest(
    measures=("duty", "cpu"),
    names_owners=False,
    name="vast",
    title="Vast.ai",
    seller=Seller(
        name="Vast.ai", account="Vast.ai account", compute="Vast.ai Instances", storage="Vast.ai Storage", runs=CONTAINERS
    ),
    # SIGTERM comes some five seconds before the end (vast.md, 2026-11).
    machine=MachineTraits(variables=("CONTAINER_ID", "VAST_CONTAINERLABEL"), sigterm_grace=timedelta(seconds=5)),
    credentials=(
        "the environment variable that key_env names, or the file that key_file names",
        "VAST_API_KEY",
        "$XDG_CONFIG_HOME/vastai/vast_api_key (~/.config/vastai/vast_api_key)",
        "~/.vast_api_key",
    ),
    saving_act=SavingAct(
        kind="stop", bills_on=("the instance's disk", "volumes"), loses=("memory", "its GPU, which others may rent")
    ),
    abilities={
        "list": "GET /api/v1/instances/, 25 a page, one call a page and at most one a second",
        "volumes": "GET /api/v0/volumes/, one call a poll",
        "offers": "POST /api/v0/bundles/, by GPU; ten searches a minute and a daily quota",
        "utilization": "gpu_util, gpu_temp, cpu_util and main memory, as the listing has them: one number for the instance",
        "balance": "the credit that the console shows",
        "bill": "GET /api/v0/charges/, a call a day of the period",
        "stop": "PUT state stopped: the disk is kept and goes on billing, the GPU may be rented away",
        "terminate": "DELETE: the contract and its disk are gone, volumes stay",
        "start": "PUT state running: it waits if its GPU is rented away, and then bills by itself",
        "permissions": "every right to read, by reading; instance_write cannot be tested without acting",
    },
    settings=(
        ProviderSetting(name="base_url", told="address of the API", example=BASE_URL),
        _ACCOUNT,
        _KEY_ENV,
        _KEY_FILE,
        ProviderSetting(
            name="accounts",
            told="several accounts, each with its key",
            kind=TABLES_SETTING,
            inner=(_ACCOUNT, _KEY_ENV, _KEY_FILE),
        ),
        ProviderSetting(
            name="traffic_unit",
            told="unit of inet_*_billed, GB or MB, which Vast does not document; without it traffic is not counted",
            example="GB",
        ),
        ProviderSetting(
            name="unverified", told="true: also show offers of unverified hosts", kind=FLAG_SETTING, example="false"
        ),
        ProviderSetting(
            name="timeout_s", told="seconds for one poll of the account, 1 to 600", kind=WHOLE_SETTING, example="60"
        ),
    ),
    key_at="https://cloud.vast.ai/manage-keys/",
    not_seen=(
        "traffic, which is billed in every state, unless traffic_unit says what the counters count",
        "serverless endpoints and their workers, but for the instances that they rent",
        "the discount and the fee of prepaid reservations",
        "what a host takes for the disk of a stopped instance beyond what the API shows",
    ),
)


class VastPlugin:
    """The plug-in named by the entry point."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    @property
    def bill_files(self) -> BillFiles:
        """Return the readers of Vast's charges and invoices stored as files."""
        from costguard.bills.bill_files import BillFiles
        from costguard_vast.charges import CHARGES_FORMAT, INVOICES_FORMAT

        return BillFiles(formats=(CHARGES_FORMAT, INVOICES_FORMAT))

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return one source for each account in `table`."""
        from costguard_vast.account import open_accounts

        return open_accounts(table, around)


provider = VastPlugin()
