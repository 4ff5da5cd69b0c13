"""Hardware of your own: the machines that `[[providers.local.machines]]` names, and what their power and wear cost.

Importing this module imports no network code; no request is ever sent: the machines are those that their owner names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from costguard.values.provider import TABLES_SETTING, WHOLE_SETTING, ProviderManifest, ProviderSetting, Seller

if TYPE_CHECKING:
    from costguard.providers.ports import InstanceSource
    from costguard.providers.transport import ProviderContext

MANIFEST = ProviderManifest(
    name="local",
    title="Hardware of your own",
    seller=Seller(name="Own hardware", account="Owner", compute="Own machines", storage="Own storage"),
    credentials=(),
    abilities={"list": "the machines that [[providers.local.machines]] names; their power by costguard's agent"},
    settings=(
        ProviderSetting(
            name="machines",
            told="the machines that costguard watches, a table each; what one does not state is as in [providers.local]",
            kind=TABLES_SETTING,
            inner=(
                ProviderSetting(name="name", told="its name in the ledger; never change it", example="box"),
                ProviderSetting(name="gpu", told="its GPU", example="RTX-4090"),
                ProviderSetting(name="gpus", told="how many", kind=WHOLE_SETTING, example="1"),
                ProviderSetting(name="owner", told="whose it is", example="ada"),
                ProviderSetting(name="watts", told="of the whole machine under load", kind=WHOLE_SETTING, example="450"),
                ProviderSetting(name="idle_watts", told="what it draws at least", kind=WHOLE_SETTING, example="60"),
                ProviderSetting(name="host_watts", told="what it draws beside its GPUs", kind=WHOLE_SETTING, example="90"),
                ProviderSetting(name="price", told="of the whole machine", kind=WHOLE_SETTING, example="1600"),
                ProviderSetting(name="years", told="until it is worth nothing", kind=WHOLE_SETTING, example="3"),
            ),
        ),
    ),
    not_seen=(
        "storage, cooling and rent of own hardware",
        "a machine that is off: without its agent it counts as on, and its cost as an interval",
    ),
)


class LocalPlugin:
    """The provider `local`."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """Return the one account of own machines; raise InputError, which names the field, for a table without machines."""
        from costguard_local.account import open_account

        return (open_account(table, around),)


provider = LocalPlugin()
