"""Lambda Cloud on demand: the manifest and settings that are needed before any request.

Importing this module imports no network code and no decoder; `open` imports both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from costguard.values.provider import TABLES_SETTING, WHOLE_SETTING, ProviderManifest, ProviderSetting, SavingAct, Seller

if TYPE_CHECKING:
    from costguard.bills.bill_files import BillFiles
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext

PER_S = 1.0
"""Requests a second that Lambda allows an account: "about one" (OpenAPI 1.10.0, 2026-08)."""
PAUSE_S = 10.0
"""Seconds of silence after a 429, which Lambda sends without a Retry-After: what SkyPilot begins with, 2026-11."""

_ONE_ACCOUNT = (
    ProviderSetting(name="account", told="name of this account in the ledger; never change it", example="default"),
    ProviderSetting(name="key_env", told="the environment variable that holds its key", example="LAMBDA_API_KEY"),
    ProviderSetting(name="key_file", told="the file that holds its key", example="~/.lambda_cloud/lambda_keys"),
)

MANIFEST = ProviderManifest(
    names_owners=False,
    name="lambda",
    title="Lambda Cloud",
    seller=Seller(name="Lambda", account="Lambda account", compute="Lambda On-Demand Cloud", storage="Lambda Storage"),
    credentials=("LAMBDA_API_KEY", "the file named by LAMBDA_API_KEY_FILE", "~/.lambda_cloud/lambda_keys"),
    saving_act=SavingAct(kind="terminate", bills_on=("filesystems",), loses=("the whole machine with its disk",)),
    abilities={
        "list": "every instance of the account, in one call; launch times from the audit log",
        "volumes": "filesystems, by the bytes that they hold",
        "offers": "on-demand types, where there is capacity now",
        "terminate": "deletes an instance permanently; there is no stop",
    },
    settings=(
        *_ONE_ACCOUNT,
        ProviderSetting(name="accounts", told="several accounts, a table each", kind=TABLES_SETTING, inner=_ONE_ACCOUNT),
        ProviderSetting(name="base_url", told="where its API is", example="https://cloud.lambda.ai/api/v1"),
        ProviderSetting(
            name="timeout_s", told="seconds that one poll may take, from 1 to 600", kind=WHOLE_SETTING, example="60"
        ),
    ),
    key_at="https://cloud.lambda.ai/api-keys",
    not_seen=(
        "sales tax: Lambda states prices without it",
        "reserved 1-Click Clusters, which are invoiced weekly whether they run or not",
    ),
)


class LambdaPlugin:
    """The provider `lambda`.

    `per_s` and `pause_s`: Lambda's rate limits; only tests use other values.
    """

    def __init__(self, per_s: float = PER_S, pause_s: float = PAUSE_S) -> None:
        self._per_s, self._pause_s = per_s, pause_s

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    @property
    def bill_files(self) -> BillFiles:
        """Return the reader of tables of Lambda's usage."""
        from costguard.bills.bill_files import BillFiles
        from costguard_lambda.usage_table import USAGE_FORMAT

        return BillFiles(formats=(USAGE_FORMAT,))

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return one source per account.

        Raises InputError and CredentialsError, which name the setting or the searched places.
        """
        from costguard_lambda.account import open_accounts

        return open_accounts(table, around, per_s=self._per_s, pause_s=self._pause_s)


provider = LambdaPlugin()
