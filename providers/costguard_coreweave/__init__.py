"""CoreWeave (CKS): the manifest and settings that are needed before any request.

Importing this module imports no network code and no decoder; `open` imports both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from costguard.values.provider import (
    CONTAINERS,
    TABLES_SETTING,
    WHOLE_SETTING,
    ProviderManifest,
    ProviderSetting,
    SavingAct,
    Seller,
)

if TYPE_CHECKING:
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext

_ONE_ACCOUNT = (
    ProviderSetting(name="account", told="name of this organization in the ledger; never change it", example="default"),
    ProviderSetting(name="key_env", told="the environment variable that holds its token", example="COREWEAVE_API_TOKEN"),
    ProviderSetting(name="key_file", told="the file that holds its token", example="~/.coreweave/token"),
)

MANIFEST = ProviderManifest(
    name="coreweave",
    title="CoreWeave",
    seller=Seller(
        name="CoreWeave",
        account="CoreWeave Organization",
        compute="CoreWeave Kubernetes Service",
        storage="CoreWeave Storage",
        runs=CONTAINERS,
    ),
    credentials=("COREWEAVE_API_TOKEN", "the file named by COREWEAVE_API_TOKEN_FILE"),
    saving_act=SavingAct(kind="none"),
    abilities={
        "list": "every node of every cluster of the organization; a cluster is a scope",
        "permissions": "by listing clusters, nodes and node pools",
    },
    settings=(
        *_ONE_ACCOUNT,
        ProviderSetting(name="accounts", told="several organizations, a table each", kind=TABLES_SETTING, inner=_ONE_ACCOUNT),
        ProviderSetting(name="base_url", told="where its API is", example="https://api.coreweave.com"),
        ProviderSetting(
            name="timeout_s", told="seconds that one poll may take, from 1 to 600", kind=WHOLE_SETTING, example="60"
        ),
    ),
    key_at="https://console.coreweave.com/tokens",
    not_seen=(
        "storage: distributed file systems and object storage",
        "public IP addresses",
        "reserved capacity that no node uses",
    ),
)


class CoreWeavePlugin:
    """The provider `coreweave`."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return one source per organization.

        Raises InputError and CredentialsError, which name the setting or the searched places.
        """
        from costguard_coreweave.account import open_accounts

        return open_accounts(table, around)


provider = CoreWeavePlugin()
