"""RunPod: pods, cluster members and network volumes over REST v2; GraphQL for the balance only, until it is retired.

`account.py` finds keys and holds the account with its ports; `api.py`, `pagination.py` and `wire.py` send requests and decode
answers; `translation.py` and `billing.py` translate them and are pure; `actions.py` stops and terminates, `examination.py` runs
the checks of doctor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from costguard.values.provider import (
    CONTAINERS,
    TABLES_SETTING,
    WHOLE_SETTING,
    MachineTraits,
    ProviderManifest,
    ProviderSetting,
    SavingAct,
    Seller,
)

if TYPE_CHECKING:  # importing a plug-in imports no network library
    from costguard.bills.bill_files import BillFiles
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext

ACCOUNT_SETTINGS = (
    ProviderSetting(name="account", told='name of this account in the ledger; default: "default"', example='"main"'),
    ProviderSetting(name="key_env", told="the environment variable that holds the key", example='"RUNPOD_KEY_TEAM"'),
    ProviderSetting(name="key_file", told="a file that holds the key and nothing else", example='"/run/secrets/runpod"'),
)

MANIFEST = ProviderManifest(
    measures=("duty", "cpu"),
    names_owners=False,
    name="runpod",
    title="RunPod",
    seller=Seller(name="RunPod", account="RunPod account", compute="RunPod Pods", storage="RunPod Storage", runs=CONTAINERS),
    # SIGTERM comes five seconds before the end of a spot pod (runpod.md, 2026-11).
    machine=MachineTraits(variables=("RUNPOD_POD_ID",), sigterm_grace=timedelta(seconds=5)),
    credentials=("key_env or key_file of the settings", "RUNPOD_API_KEY", "RUNPOD_API_KEY_FILE", "~/.runpod/config.toml"),
    saving_act=SavingAct(
        kind="stop",
        bills_on=("the volume disk", "network volumes"),
        loses=("the container disk", "memory", "its GPU, which others may rent"),
    ),
    abilities={
        "list": "REST v2: pods, members of clusters, network volumes; no serverless workers",
        "volumes": "container, volume and network disks; of high-performance volumes the price is a range",
        "offers": "REST v2 catalogue: list prices of both clouds, stock for one GPU; negotiated prices are not shown",
        "utilization": "one sample with each listing, of pods whose agent reports; no history, no power",
        "balance": "GraphQL, which RunPod retires early in 2027; then unknown",
        "bill": "REST v2, by the hour; about an hour late",
        "stop": "keeps the volume disk, wipes the container disk; the GPU may be taken on restart",
        "terminate": "ends pod, container and volume disk; network volumes stay",
        "start": "a stopped pod on its own host; its GPU may be taken",
        "permissions": "a question for each right to read; stop and terminate cannot be tested without acting",
    },
    settings=(
        *ACCOUNT_SETTINGS,
        ProviderSetting(
            name="accounts", told="several accounts, each with its key", kind=TABLES_SETTING, inner=ACCOUNT_SETTINGS
        ),
        ProviderSetting(name="base_url", told="address of REST v2", example='"https://api.runpod.io"'),
        ProviderSetting(name="graphql_url", told="address for the balance", example='"https://api.runpod.io/graphql"'),
        ProviderSetting(
            name="requests_per_minute", told="requests per minute of the account (60)", kind=WHOLE_SETTING, example="60"
        ),
        ProviderSetting(name="timeout_s", told="seconds that one poll may take", kind=WHOLE_SETTING, example="60"),
    ),
    key_at="https://console.runpod.io/user/settings",
    not_seen=(
        "RunPod: serverless workers, public endpoints and a cluster's network are only in the bill",
        "RunPod: savings plans are not in REST v2: stopping a pod with one saves nothing",
    ),
)


class RunpodPlugin:
    """The plug-in: its manifest and its accounts."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return RunPod's settings, credentials and features."""
        return MANIFEST

    @property
    def bill_files(self) -> BillFiles:
        """Return the reader of RunPod's billing answers stored as JSON."""
        from costguard.bills.bill_files import BillFiles
        from costguard_runpod.billing import BILL_FORMAT, OLD_FORMAT, SUMMED_FORMAT

        return BillFiles(formats=(BILL_FORMAT, SUMMED_FORMAT, OLD_FORMAT))

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return one source for each account of `table`, without a request."""
        from costguard_runpod.account import open_accounts

        return open_accounts(table, around)


provider = RunpodPlugin()
