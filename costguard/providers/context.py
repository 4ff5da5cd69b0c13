"""What a provider is, and what it is handed when it is opened: the network, the time, GPU names, where keys are looked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from costguard.providers.bills import BillReader
from costguard.providers.ports import Cache, InstanceSource
from costguard.system.clock import Clock
from costguard.values.gpu_names import GpuNames
from costguard.values.provider import ProviderManifest

if TYPE_CHECKING:  # types and no more
    from costguard.providers.transport.client import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """`environ` and `home`: where credentials are looked for. `cache`: for what is dear to ask and changes slowly (prices).

    `bills`: who reads bills from files.
    """

    transport: Transport
    clock: Clock
    gpus: GpuNames
    cache: Cache
    environ: Mapping[str, str]
    home: Path
    bills: BillReader


class ProviderPlugin(Protocol):
    """What an entry point of `costguard.providers` names. Importing it must not import an SDK or a network library."""

    @property
    def manifest(self) -> ProviderManifest:
        """What it says of itself before it is asked anything."""

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """One source for each account that `table`, its `[providers.NAME]`, states; nothing is asked of the provider yet.

        InputError for a key that is not known; CredentialsError, which names where it was looked for, where there is no key.
        """
