"""`ProviderPlugin` and `ProviderContext`: what a plug-in provides, and what it is handed when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costguard.providers.ports import Cache, InstanceSource
from costguard.system.clock import Clock
from costguard.values.gpu import GpuNames
from costguard.values.provider import ProviderManifest
from costguard.values.resource import ResourceKey
from costguard.values.sample import Sample

if TYPE_CHECKING:  # types and no more
    from costguard.bills.bill_files import BillFiles
    from costguard.bills.bill_line import BillLines
    from costguard.providers.transport.client import Transport
    from costguard.values.calendar import Period


SampleReader = Callable[[Collection[ResourceKey], datetime], Mapping[ResourceKey, Sequence[Sample]]]


def _load_no_samples(keys: Collection[ResourceKey], since: datetime) -> Mapping[ResourceKey, Sequence[Sample]]:  # noqa: ARG001 - of a `SampleReader`
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """`environ` and `home`: where credentials are looked for. `cache`: for what is dear to ask and changes slowly (prices).

    `bills`: who reads bills from files. `load_samples`: returns the ledger's samples of machines since a time, by
    signal and in order of time; LedgerError where it cannot be read.
    """

    transport: Transport
    clock: Clock
    gpus: GpuNames
    cache: Cache
    environ: Mapping[str, str]
    home: Path
    bills: BillReader
    load_samples: SampleReader = _load_no_samples


class ProviderPlugin(Protocol):
    """What an entry point of `costguard.providers` names. Importing it must not import an SDK or a network library."""

    @property
    def manifest(self) -> ProviderManifest:
        """What it says of itself before it is asked anything."""

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
        """One source for each account that `table`, its `[providers.NAME]`, states; nothing is asked of the provider yet.

        InputError for a key that is not known; CredentialsError, which names where it was looked for, where there is no key.
        """


@runtime_checkable
class BillFilePlugin(Protocol):
    """A provider's plug-in that can read its bill from files."""

    @property
    def bill_files(self) -> BillFiles:
        """How they are recognised and read; importing it brings no SDK and no network."""


class BillReader(Protocol):
    """Reads bills from files as `costguard reconcile --file` does: a provider says where they stand, and no more."""

    def find_pieces(self, where: str) -> Sequence[BillFilePiece]:
        """The files that a path, a folder or a pattern (`/exports/**/*.csv.gz`) names. InputError where there are none."""

    def read_bill(self, provider: str, pieces: Sequence[BillFilePiece], period: Period, now: datetime) -> BillLines:
        """The lines of `period` in `pieces`, which together are one bill of `provider`. InputError names file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFilePiece:
    """One file of a bill, wherever it stands. `name`: for people. `made_at`: None where nothing says. `opened`: its bytes."""

    name: str
    opened: Callable[[], AbstractContextManager[BufferedReader]]
    made_at: datetime | None = None
