"""Providers that are asked with one key: where keys are looked for, and the accounts that a table states.

    [providers.runpod]                      # one account, its key in its usual place
    [[providers.runpod.accounts]]           # or several, each with a place of its own
    account = "lab"
    key_env = "RUNPOD_KEY_LAB"

A key is never in the settings: `key_env` and `key_file` say where it is. A place that is named is the only one looked at, so
that no account is ever asked with another's key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costguard.errors import CredentialsError, ExposedError, InputError
from costguard.metering.inventory import Failed, Poll
from costguard.providers.context import ProviderContext
from costguard.providers.ports import InstanceSource
from costguard.system.clock import Clock
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import read_input_file
from costguard.system.secret import Secret
from costguard.values.checks import require, require_whole_number
from costguard.values.provider import CHECK_BAD, CREDENTIALS_CHECK, HealthCheck, ProviderManifest, check_provider_table
from costguard.values.resource import ScopeKey, is_storable

LONGEST_KEY_FILE = 64 * 1024
"""Bytes of a file that is read for a key: a larger one is another file."""
LONGEST_KEY = 4096
LONGEST_POLL_TIMEOUT_S = 600
POLL_TIMEOUT_S = 60
DEFAULT_ACCOUNT = "default"
SINGLE_ACCOUNT_KEYS = ("account", "key_env", "key_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLocations:
    """Where a provider's own tools keep its key: the variable, then files below the home folder.

    `files`: each with what finds the key in its text. `<env>_FILE`, the custom of containers, is looked at in between.
    """

    env: str
    files: Sequence[tuple[Path, Callable[[str], str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedAccount:
    """One account as it was stated: `account` "" where no name was, its key, and where that was found, in words."""

    account: str
    key: Secret
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedAccount:
    """Stands for one of several accounts whose key cannot be had: it fails with the reason, and the others go on."""

    provider: str
    account: str
    error: CredentialsError
    clock: Clock

    @property
    def providers(self) -> Sequence[str]:
        """Its provider."""
        return (self.provider,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Nothing but the reason."""
        raise self.error

    def poll(self, scope: ScopeKey) -> Poll:
        """Nothing but the reason."""
        return Poll(scope=scope, at=self.clock.now(), inventory=Failed(self.error.what))

    def examine(self) -> Sequence[HealthCheck]:
        """The reason, and what mends it."""
        return (HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=self.error.what, fix=self.error.hint or ""),)


def open_keyed_accounts(
    table: Mapping[str, object],
    manifest: ProviderManifest,
    places: KeyLocations,
    around: ProviderContext,
    make: Callable[[KeyedAccount], InstanceSource],
    *,
    nameless: str = DEFAULT_ACCOUNT,
) -> tuple[InstanceSource, ...]:
    """The accounts of `table`, which has been checked, each as `make` makes it. Of several, one without a key is Locked.

    `nameless`: what one that states no name is called; "" where the provider says it, so that several may state none.
    """
    accounts = list_accounts(table, manifest, places, around, nameless=nameless)
    return tuple(make(one) if isinstance(one, KeyedAccount) else one for one in accounts)


def list_accounts(
    table: Mapping[str, object],
    manifest: ProviderManifest,
    places: KeyLocations,
    around: ProviderContext,
    *,
    nameless: str = DEFAULT_ACCOUNT,
) -> tuple[KeyedAccount | LockedAccount, ...]:
    """The accounts of `table`, each with its key; two with one name or one key are refused.

    CredentialsError where there is one account alone, and no key of it.
    """
    where = f"providers.{manifest.name}"
    several = table.get("accounts")
    if not isinstance(several, list):
        return (_open_account(table, manifest, places, around),)
    require(bool(several), f"{where}.accounts", "contains no account", f"write [[{where}.accounts]], or leave it out")
    if keys := [name for name in SINGLE_ACCOUNT_KEYS if name in table]:
        raise InputError("cannot be set together with accounts", field=f"{where}.{keys[0]}", hint="set it in each account")
    for i, one in enumerate(several):
        hint = "each account has a key of its own"
        require(bool(one.keys() & {"key_env", "key_file"}), f"{where}.accounts[{i}]", "names no key_env or key_file", hint)
    accounts = tuple(_open_or_lock(one, manifest, places, around) for one in several)
    _require_distinct(accounts, f"{where}.accounts", nameless)
    return accounts


def read_timeout(table: Mapping[str, object], manifest: ProviderManifest) -> int:
    """Seconds that one poll may take."""
    field = f"providers.{manifest.name}.timeout_s"
    return require_whole_number(table.get("timeout_s", POLL_TIMEOUT_S), field, least=1, most=LONGEST_POLL_TIMEOUT_S)


def check_account_table(table: Mapping[str, object], manifest: ProviderManifest) -> dict[str, object]:
    """`table` if every key of it is one of the manifest's settings."""
    return check_provider_table(table, manifest.settings, f"providers.{manifest.name}")


def read_plain_key(text: str) -> str:
    """The key of a file that holds nothing else."""
    return text.strip()


def _open_or_lock(
    one: Mapping[str, object], manifest: ProviderManifest, places: KeyLocations, around: ProviderContext
) -> KeyedAccount | LockedAccount:
    try:
        return _open_account(one, manifest, places, around)
    except CredentialsError as error:
        return LockedAccount(provider=manifest.name, account=str(one.get("account", "")), error=error, clock=around.clock)


def _open_account(
    one: Mapping[str, object], manifest: ProviderManifest, places: KeyLocations, around: ProviderContext
) -> KeyedAccount:
    name = str(one.get("account", "")).strip()
    field = f"providers.{manifest.name}.account"
    require(is_storable(name), field, "contains a NUL character", "write text without NUL")
    looked = list[str]()
    for source, text, file in _list_key_sources(one, places, around):
        looked.append(source)
        value = text.strip()
        if not value:
            continue
        if file and (others := describe_exposure(file)):
            hint = f"chmod 600 '{file}'; if others may have read it, create a new key at {manifest.key_at}"
            raise ExposedError(f"{source} {others}", provider=manifest.name, account=name, hint=hint)
        hint = _build_hint(manifest, places)
        if len(value) > LONGEST_KEY or not all("!" <= letter <= "~" for letter in value):
            raise CredentialsError(f"{source} does not contain a key", provider=manifest.name, account=name, hint=hint)
        return KeyedAccount(account=name, key=Secret(value), source=source)
    what = f"has no key; looked at {', '.join(looked)}"
    raise CredentialsError(what, provider=manifest.name, account=name, hint=_build_hint(manifest, places))


def _list_key_sources(
    one: Mapping[str, object], places: KeyLocations, around: ProviderContext
) -> list[tuple[str, str, Path | None]]:
    """(where, what stands there, its file) in the order in which they count; of a variable the file is None."""
    env, file = one.get("key_env"), one.get("key_file")
    sources: list[tuple[str, str, Path | None]] = []
    if env:
        sources.append((f"the variable {env}", around.environ.get(str(env), ""), None))
    if file:
        place = _resolve_path(str(file), around.home)
        sources.append((f"the file {file}", read_small_file(place), place))
    if sources:
        return sources
    key_file = around.environ.get(f"{places.env}_FILE", "").strip()
    place = _resolve_path(key_file, around.home)
    return [
        (f"the variable {places.env}", around.environ.get(places.env, ""), None),
        (f"the file that {places.env}_FILE names", read_small_file(place) if key_file else "", place),
        *(
            (f"the file {_shorten_path(path, around.home)}", key_in(read_small_file(path)), path)
            for path, key_in in places.files
        ),
    ]


def _require_distinct(accounts: Sequence[KeyedAccount | LockedAccount], where: str, nameless: str) -> None:
    names, keys = set[str](), dict[Secret, str]()
    for one in accounts:
        name = one.account or nameless
        require(
            not name or name not in names,
            where,
            f"two accounts have the name '{name}'",
            'give each a name of its own: account = "..."',
        )
        names.add(name)
        if isinstance(one, KeyedAccount):
            hint = "remove one of them: a key is one account, whose costs would count twice"
            require(one.key not in keys, where, f"two accounts have the same key ('{keys.get(one.key)}', '{name}')", hint)
            keys[one.key] = name


def _build_hint(manifest: ProviderManifest, places: KeyLocations) -> str:
    return f"make a key at {manifest.key_at}, then export {places.env}=..."


def _resolve_path(file: str, home: Path) -> Path:
    return home / file[2:] if file.startswith("~/") else Path(file)


def _shorten_path(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def read_small_file(path: Path) -> str:
    """What a small text file holds; "" where it cannot be read."""
    try:
        return read_input_file(path, LONGEST_KEY_FILE).decode()
    except (OSError, ValueError):
        return ""
