"""Scaleway Instances: the manifest and settings that are needed before any request.

`account.py` finds keys and holds the account with its ports; `api.py` and `wire.py` send requests and decode answers;
`translation.py` translates them and is pure; `actions.py` archives, terminates and starts; `examination.py` runs the checks of
doctor. Importing this module imports no network code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from costguard.values.provider import (
    TABLES_SETTING,
    TEXTS_SETTING,
    WHOLE_SETTING,
    ProviderManifest,
    ProviderSetting,
    SavingAct,
    Seller,
)

if TYPE_CHECKING:
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext

NAME = "scaleway"

_ONE_ACCOUNT = (
    ProviderSetting(name="account", told="name of this account in the ledger; never change it", example="default"),
    ProviderSetting(name="key_env", told="the environment variable that holds its secret key", example="SCW_SECRET_KEY"),
    ProviderSetting(name="key_file", told="the file that holds its secret key", example="~/scaleway.key"),
)

MANIFEST = ProviderManifest(
    name=NAME,
    title="Scaleway",
    seller=Seller(name="Scaleway", account="Scaleway Organization", compute="Instances", storage="Block Storage"),
    credentials=("SCW_SECRET_KEY", "the file named by SCW_SECRET_KEY_FILE", "~/.config/scw/config.yaml"),
    saving_act=SavingAct(
        kind="archive",
        bills_on=("volumes", "flexible IPs"),
        loses=("scratch storage", "memory", "its GPU, which others may rent"),
    ),
    abilities={
        "list": "every Instance of each zone; one that its guest shut down is listed as paused, because it is billed",
        "volumes": "block and local volumes, flexible IPv4 addresses; their prices are a range",
        "offers": "GPU types that are not in shortage, by zone; prices in euros are converted",
        "stop": "poweroff: releases the machine; volumes and addresses go on billing; scratch storage is lost",
        "terminate": "deletes an Instance with its local volumes; block volumes and addresses stay, and bill",
        "start": "an archived Instance, where its zone has a GPU for it",
        "permissions": "a question for each right to read; acts cannot be tested without acting",
    },
    settings=(
        *_ONE_ACCOUNT,
        ProviderSetting(name="accounts", told="several accounts, a table each", kind=TABLES_SETTING, inner=_ONE_ACCOUNT),
        ProviderSetting(name="zones", told="zones to watch (default: all)", kind=TEXTS_SETTING, example='["fr-par-2"]'),
        ProviderSetting(
            name="exchange_rate",
            told="the rate at which prices in euros become dollars; without it they are a range",
            example="1 USD = 0.92 EUR on 2026-11-01 (ECB)",
        ),
        ProviderSetting(name="base_url", told="where its API is", example="https://api.scaleway.com"),
        ProviderSetting(
            name="timeout_s", told="seconds that one poll may take, from 1 to 600", kind=WHOLE_SETTING, example="60"
        ),
    ),
    key_at="https://console.scaleway.com/iam/api-keys",
    not_seen=(
        "Scaleway: taxes, savings plans, snapshots, images and traffic",
        "Scaleway: Elastic Metal, Kapsule control planes, managed inference, serverless and every other product",
    ),
)


class ScalewayPlugin:
    """The plug-in: its manifest and its accounts."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return Scaleway's settings, credentials and features."""
        return MANIFEST

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return one source for each account of `table`, without a request.

        Raises InputError and CredentialsError, which name the setting or the searched places.
        """
        from costguard_scaleway.account import open_accounts

        return open_accounts(table, around)


provider = ScalewayPlugin()
