"""Open the configured providers with their context: transport, clock, cache, reader of bill files.

A provider without its key or SDK does not affect the others: it is replaced by a source that fails with the reason, so that its
known resources count as not seen. An error in the settings is an InputError. Cached files are readable by this user only and
written atomically.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

from costguard.errors import CostguardError, InputError, ProviderError
from costguard.metering.inventory import Failed, Poll
from costguard.providers import plugins
from costguard.providers.plugins import DiscoveredProvider, ProviderRegistry, find_missing_packages
from costguard.providers.ports import InstanceSource
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.listing_validation import may_speak_for
from costguard.settings import Settings, expand_path, get_cache_path, resolve_ledger_url
from costguard.system.atomic_file import write_file_atomically
from costguard.system.file_security import disable_memory_dumps
from costguard.system.input_file import read_input_file
from costguard.values.provider import ProviderManifest
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import Sample

if TYPE_CHECKING:  # the network is imported when a provider is opened
    from costguard.bills.bill_line import BillLines
    from costguard.providers.context import BillFilePiece
    from costguard.providers.transport import ProviderContext, ProviderPlugin, Transport
    from costguard.values.calendar import Period


OPEN_LIMIT_S = 20.0
"""How long all may take to be opened: they read files and import SDKs, and ask nobody. An assumption, 2026-11."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the current instant, in UTC."""
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredProvider:
    """One configured provider; `sources` are its accounts. `error`: why it could not be opened; None: it was opened."""

    name: str
    manifest: ProviderManifest | None
    sources: tuple[InstanceSource, ...]
    error: CostguardError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableProvider:
    """Replaces a provider that could not be opened: every request fails with the reason."""

    name: str
    error: CostguardError

    @property
    def providers(self) -> Sequence[str]:
        """Return its name."""
        return (self.name,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Raise the reason."""
        raise self.error

    def poll(self, scope: ScopeKey) -> Poll:
        """Return a failed poll with the reason."""
        return Poll(scope=scope, at=SystemClock().now(), inventory=Failed(str(self.error)))


def check_provider_tables(settings: Settings, installed: ProviderRegistry) -> Mapping[str, Mapping[str, object]]:
    """Return the `[providers.NAME]` tables; raise UnknownNameError with the nearest for an unknown NAME."""
    for name in settings.providers:
        if name not in installed.broken:
            installed.get(name, field="providers")
    return settings.providers


@contextmanager
def open_providers(
    settings: Settings, *, only: Collection[str] | None = None, found_too: bool = False
) -> Iterator[tuple[ConfiguredProvider, ...]]:
    """Open every configured provider, or `only` these.

    `found_too`: also those without a table whose credentials are found. If such a provider needs a setting, it is returned with
    that InputError.
    """
    installed = plugins.load_providers()
    tables = dict(check_provider_tables(settings, installed))
    for name in only or ():
        if name not in installed.broken:
            installed.get(name)
        tables.setdefault(name, {})
    chosen = {name: table for name, table in tables.items() if only is None or name in only}
    unasked = [name for name in installed.found if found_too and name not in tables and only is None]
    if not chosen and not unasked:  # then no HTTP client is needed, which takes a twentieth of a second to import
        yield ()
        return
    with open_provider_context(settings) as around:
        clouds = _open_all(chosen, installed, around)
        for cloud in clouds:
            if isinstance(cloud.error, InputError):
                raise cloud.error
        tried = _open_all({name: {} for name in unasked if installed.found[name].manifest.credentials}, installed, around)
        yield (*clouds, *(cloud for cloud in tried if cloud.error is None or isinstance(cloud.error, InputError)))


def list_sources(clouds: Sequence[ConfiguredProvider]) -> tuple[InstanceSource, ...]:
    """Return the accounts of all providers, with an UnavailableProvider for each that could not be opened."""
    sources = list[InstanceSource]()
    for cloud in clouds:
        sources += cloud.sources if cloud.error is None else (UnavailableProvider(name=cloud.name, error=cloud.error),)
    return tuple(sources)


@contextmanager
def open_provider_context(settings: Settings) -> Iterator[ProviderContext]:
    """Open the context shared by all providers; connections are closed when the block ends."""
    import os

    from costguard.data import ShippedFacts
    from costguard.providers.transport import ProviderContext

    disable_memory_dumps()
    transport = open_transport(settings)
    try:
        yield ProviderContext(
            transport=transport,
            clock=SystemClock(),
            gpus=ShippedFacts().get_gpu_names(),
            cache=FileCache(get_cache_path("providers")),
            environ=dict(os.environ),
            home=find_home(),
            bills=BillExportReader(),
            load_samples=partial(load_ledger_samples, settings),
        )
    finally:
        transport.close()


def load_ledger_samples(
    settings: Settings, keys: Collection[ResourceKey], since: datetime
) -> Mapping[ResourceKey, Sequence[Sample]]:
    """Return the samples of `keys` in the ledger at or after `since`; none if there is no ledger yet."""
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.spans.observations import load_samples_since

    with LedgerReader(resolve_ledger_url(settings)) as ledger, ledger.snapshot() as ask:
        return load_samples_since(ask, since, keys)


def open_transport(settings: Settings) -> Transport:
    """Return a new HTTP client configured by `[network]`. The caller closes it."""
    from costguard.providers.transport import Transport

    ca_file, proxy = settings.network.ca_file, settings.network.proxy
    try:
        return Transport(ca_file=None if ca_file is None else expand_path(ca_file), proxy=proxy)
    except ValueError:
        raise InputError("cannot be read", field="network.proxy", hint='write "http://proxy.example:3128"') from None


def find_home() -> Path:
    """Return this user's home folder; one that does not exist for a user without any."""
    try:
        return Path.home()
    except RuntimeError:  # a user without a home: a service. Nothing is found there
        return Path("/nonexistent")


def _open_all(
    tables: Mapping[str, Mapping[str, object]], installed: ProviderRegistry, around: ProviderContext
) -> tuple[ConfiguredProvider, ...]:
    """Open each of `tables`; a provider that fails or hangs is returned with the reason."""
    questions = {name: partial(_open_provider, name, table, installed, around) for name, table in tables.items()}
    answers = run_all(questions, limit_s=OPEN_LIMIT_S, doing="opening accounts")
    return tuple(_to_configured_provider(name, answer, installed) for name, answer in answers.items())


def _to_configured_provider(
    name: str, answer: ConfiguredProvider | BaseException, installed: ProviderRegistry
) -> ConfiguredProvider:
    """Return `answer`, or convert an exception to an error.

    The text of an unexpected exception is dropped: it may hold a secret.
    """
    if isinstance(answer, ConfiguredProvider):
        return answer
    plugin = installed.found.get(name)
    why = answer if isinstance(answer, TimeoutError) else f"unexpected {type(answer).__name__}"
    error = answer if isinstance(answer, CostguardError) else ProviderError(f"it cannot be opened: {why}", provider=name)
    return ConfiguredProvider(name=name, manifest=plugin.manifest if plugin else None, sources=(), error=error)


def _open_provider(
    name: str, table: Mapping[str, object], installed: ProviderRegistry, around: ProviderContext
) -> ConfiguredProvider:
    """Open `name`; exceptions of its plug-in are not caught."""
    plugin = installed.found.get(name)
    if plugin is None:
        what = f"its plug-in failed to load: {installed.broken[name]}"
        raise ProviderError(what, provider=name, hint="reinstall or remove the package that brings it")
    return ConfiguredProvider(name=name, manifest=plugin.manifest, sources=_open_sources(plugin, table, around))


def _open_sources(
    plugin: DiscoveredProvider, table: Mapping[str, object], around: ProviderContext
) -> tuple[InstanceSource, ...]:
    manifest = plugin.manifest
    missing = find_missing_packages(manifest)
    if missing:
        hint = f"in a clone of costguard: pip install '.[{manifest.extra}]'"
        raise ProviderError(f"its SDK is not installed ({', '.join(missing)})", provider=manifest.name, hint=hint)
    sources = tuple(cast("ProviderPlugin", plugin).open(table, around))
    if not sources:
        raise ProviderError("it opened no account", provider=manifest.name, hint=f"see [providers.{manifest.name}]")
    for source in sources:
        names = tuple(source.providers)
        if not names or not all(may_speak_for(manifest.name, name) for name in names):
            others = ", ".join(map(str, names)) or "nobody"
            raise ProviderError(f"its plug-in returns data of other providers: {others}", provider=manifest.name)
    return sources


CACHE_NAME_LENGTH_MAX = 60
CACHE_BYTES_MAX = 64 * 2**20
"""Bytes. A larger file is no price list, and is not read."""


class FileCache:
    """A `Cache` in `folder`, which is created with the first entry. The age of an entry is the file's modification time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, youngest: datetime) -> bytes | None:
        """Return the entry `name` if written at or after `youngest`; None if there is none or it is unreadable."""
        path = self.folder / _make_file_name(name)
        with suppress(OSError, OverflowError, ValueError):
            status = path.stat()
            if datetime.fromtimestamp(status.st_mtime, UTC) >= youngest and status.st_size <= CACHE_BYTES_MAX:
                return read_input_file(path, CACHE_BYTES_MAX)
        return None

    def put(self, name: str, data: bytes) -> None:
        """Store `data`; a failure to store it is ignored."""
        with suppress(OSError):
            write_file_atomically(self.folder / _make_file_name(name), data)


def _make_file_name(name: str) -> str:
    """Return a file name that is valid in every file system and unique for `name`."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:CACHE_NAME_LENGTH_MAX]
    return f"{plain}-{sha256(name.encode()).hexdigest()[:16]}"


class BillExportReader:
    """Reads bill files. See `ports.bills.BillReader`."""

    def find_pieces(self, where: str) -> Sequence[BillFilePiece]:
        """Return the files that a path, a folder or a pattern names."""
        from costguard.files.records import find_pieces

        return find_pieces(where)

    def read_bill(self, provider: str, pieces: Sequence[BillFilePiece], period: Period, now: datetime) -> BillLines:
        """Return the lines of `period` in `pieces`: rows of `provider`, and rows that name no other installed provider."""
        from costguard.bills.bill_files import sum_bill_lines
        from costguard.services.poll.bill_files import list_installed_kinds, open_bill_pieces

        kinds = list_installed_kinds(provider, "", lambda _: ())
        name = pieces[0].name if len(pieces) == 1 else f"{pieces[0].name} and {len(pieces) - 1} more files"
        bill = open_bill_pieces(name, pieces, kinds, now)
        bill_lines = sum_bill_lines(bill.parts, period, sums=bill.sums)
        return replace(bill_lines, made_at=bill.stated_at, left_out=tuple(sorted(kinds.left_out.items())))
