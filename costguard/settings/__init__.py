"""What a person wrote: the settings file, checked for keys nobody knows. Job files and tables of runs are read by `files`.

    [quote]                                         # QuoteSettings
    market = "prices.sqlite"
    [ledger]                                        # LedgerSettings
    url = "sqlite:///ledger.db"
    [defaults]                                      # DefaultSettings
    timezone = "Europe/Berlin"
    [network]                                       # NetworkSettings
    ca_file = "company.pem"
    [[budget]]                                      # `budgets`: any number of them
    name = "vision"
    match = { labels = { team = "vision" } }
    cap = "3000 USD"
    [providers.runpod]                              # the provider's own keys
    base_url = "http://127.0.0.1:8080"

Order of precedence: flags, then `COSTGUARD_SECTION__FIELD` in the environment, then the file, then the defaults here.
The file is `--config`, else `$COSTGUARD_CONFIG`, else `./costguard.toml`, else `costguard.toml` in the platform's config
folder. Read without pydantic-settings: `quote` needs this, and importing that library costs more than the whole quote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.core.checks import described, nearest_names
from costguard.errors import InputError, UnknownNameError
from costguard.settings.files import FILE_NAME, LARGEST_FILE, cache_file, data_file, path_of, read_rows, read_table
from costguard.settings.zones import zone_named

if TYPE_CHECKING:  # a type and no more: without a [[budget]] nobody pays for importing it
    from costguard.core.budget import Budget

__all__ = [
    "CONFIG",
    "FILE_NAME",
    "LARGEST_FILE",
    "DefaultSettings",
    "LedgerSettings",
    "NetworkSettings",
    "QuoteSettings",
    "Settings",
    "cache_file",
    "check_settings",
    "data_file",
    "ledger_url",
    "path_of",
    "read_rows",
    "read_settings",
    "read_table",
    "zone_named",
]

PREFIX = "COSTGUARD_"
CONFIG = f"{PREFIX}CONFIG"
NOT_OURS = (f"{PREFIX}API_KEY", f"{PREFIX}API_URL", CONFIG)
"""Another product's two variables, and the one that names the file itself."""

ALIKE = 0.8
"""How much of two names must agree (`difflib`, 0 to 1) for one to be the other mistyped: COSTGUARD__URL just is."""

SQLITE = "sqlite:///"
BUDGET, PROVIDERS = "budget", "providers"
"""The two keys of the file that are no section of plain fields."""


def _placed_path(text: str, folder: Path) -> str:
    return str(folder / path_of(text))


def _placed_url(text: str, folder: Path) -> str:
    """A file's URL made to start at `folder`; a server's as it is, and one that names nothing."""
    name = text.removeprefix(SQLITE)
    return text if name in (text, "", ":memory:") else SQLITE + _placed_path(name, folder)


Place = Callable[[str, Path], str]
PATH: dict[str, Place] = {"place": _placed_path}
"""Marks a field that names a file: in the settings file it starts at that file's folder, elsewhere at the working folder."""
URL: dict[str, Place] = {"place": _placed_url}
"""Marks a field that holds a URL which may name a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteSettings:
    """`[quote]`. `market`: a market file to use instead of the shipped snapshot (see `scripts/build_market.py`).

    `calibration`: what observed runs say (`costguard calibrate`), instead of `calibration.json` in the platform's data folder.
    """

    market: str | None = field(default=None, metadata=PATH)
    calibration: str | None = field(default=None, metadata=PATH)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """`[ledger]`. `url`: `sqlite:///PATH`, or `postgresql+psycopg://...` of a server; None: see `ledger_url`."""

    url: str | None = field(default=None, metadata=URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultSettings:
    """`[defaults]`. `timezone`: the IANA zone whose days and months budgets and reports go by, where they state no other."""

    timezone: str = "UTC"

    @property
    def zone(self) -> tzinfo:
        """The zone that `timezone` names."""
        return zone_named(self.timezone, "defaults.timezone")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """`[network]`. `ca_file`: a PEM file of the authorities to trust instead of the system's; None: the system's.

    `proxy`: http(s)://HOST:PORT through which providers are asked; None: directly. That certificates are checked cannot be
    turned off.
    """

    ca_file: str | None = field(default=None, metadata=PATH)
    proxy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole file. `budgets`: the `[[budget]]` tables in their order.

    `providers`: the table `[providers.NAME]` of each name, whose keys are the provider's business.
    """

    quote: QuoteSettings = field(default_factory=QuoteSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    defaults: DefaultSettings = field(default_factory=DefaultSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    budgets: tuple[Budget, ...] = ()
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


SECTIONS = {f.name: f.default_factory for f in fields(Settings) if is_dataclass(f.default_factory)}
"""The sections of plain fields, each with the dataclass it makes."""


def read_settings(stated: str | None) -> Settings:
    """Settings from the file that applies, with the environment laid over it. `stated`: the value of `--config`."""
    path = _settings_file(stated)
    table = _beside(read_table(path), path.parent) if path is not None else {}
    where = str(path) if path is not None else "the environment"
    return _settings(_with_environment(table), where)


def check_settings(text: str, where: str) -> Settings:
    """The settings that `text` would state as the file `where`; an error where it would be refused."""
    import tomllib

    return _settings(tomllib.loads(text), where)


def ledger_url(settings: Settings) -> str:
    """Where the ledger is: as stated, else `ledger.db` in the platform's data folder."""
    return settings.ledger.url or f"{SQLITE}{data_file('ledger.db')}"


def _beside(table: dict[str, object], folder: Path) -> dict[str, object]:
    """`table` with every path in it made to start at `folder`."""
    placed = dict(table)
    for section, make in SECTIONS.items():
        inner = table.get(section)
        if isinstance(inner, Mapping):
            places: dict[str, Place] = {f.name: f.metadata["place"] for f in _fields_of(make) if f.metadata}
            placed[section] = {k: places[k](v, folder) if k in places and isinstance(v, str) else v for k, v in inner.items()}
    return placed


def _settings_file(stated: str | None) -> Path | None:
    chosen = stated or os.environ.get(CONFIG)
    if chosen:
        return path_of(chosen)
    here = Path(FILE_NAME)
    if here.is_file():
        return here
    shared = _config_folder() / FILE_NAME
    return shared if shared.is_file() else None


def _config_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("costguard", appauthor=False))


def _with_environment(table: dict[str, object]) -> dict[str, object]:
    """`table` with COSTGUARD_SECTION__FIELD laid over it."""
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in table.items()}
    for name, value in sorted(os.environ.items()):
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if not name.startswith(PREFIX) or name in NOT_OURS:
            continue
        if not separator:
            _no_slip(name)
        else:
            _known_variable(name, section, key)
            inner = merged.setdefault(section, {})
            if isinstance(inner, dict):
                inner[key] = value
    return merged


def _known_variable(name: str, section: str, key: str) -> None:
    """UnknownNameError that names the variable, unless it stands for a field."""
    if (section, key) not in _places():
        known = _variables()
        near = nearest_names(name, known)
        raise UnknownNameError("variable", name, field="the environment", nearest=near, hint=f"known: {', '.join(known)}")


def _no_slip(name: str) -> None:
    """UnknownNameError for a variable that names no section, but nearly is one of ours: COSTGUARD_LEDGER_URL, with one `_`.

    Whatever resembles none of ours belongs to another program.
    """
    from difflib import SequenceMatcher

    near = {known: SequenceMatcher(None, name.upper(), known).ratio() for known in (*_variables(), CONFIG)}
    best = max(near, key=near.__getitem__)
    if near[best] >= ALIKE:
        raise UnknownNameError("variable", name, field="the environment", nearest=(best,))


def _places() -> list[tuple[str, str]]:
    return [(section, inner.name) for section, make in SECTIONS.items() for inner in _fields_of(make)]


def _variables() -> list[str]:
    """The variable of every field."""
    return [f"{PREFIX}{section}__{key}".upper() for section, key in _places()]


def _fields_of(make: object) -> tuple[Field[object], ...]:
    assert is_dataclass(make)  # noqa: S101 - true of every value of SECTIONS, seen by the type checker
    return fields(make)


def _settings(table: Mapping[str, object], where: str) -> Settings:
    _known(table, (*SECTIONS, BUDGET, PROVIDERS), where)
    made = {name: _section(name, make, table[name], where) for name, make in SECTIONS.items() if name in table}
    settings = Settings(**made)  # type: ignore[arg-type]  # each made by its own field's factory
    zone = zone_named(settings.defaults.timezone, _origin("defaults", "timezone", where))
    budgets: tuple[Budget, ...] = ()
    if BUDGET in table:
        from costguard.settings.budgets import read_budgets

        budgets = read_budgets(table[BUDGET], where, zone)
    providers: Mapping[str, Mapping[str, object]] = {}
    if PROVIDERS in table:
        from costguard.settings.provider_tables import read_provider_tables

        providers = read_provider_tables(table[PROVIDERS], where)
    return replace(settings, budgets=budgets, providers=providers)


def _section(name: str, make: object, stated: object, where: str) -> object:
    if not isinstance(stated, Mapping):
        raise InputError(
            f"must be a table, not {described(stated)}", field=f"{where}: {name}", hint=f"write a [{name}] section"
        )
    _known(stated, tuple(f.name for f in _fields_of(make)), f"{where}: [{name}]")
    for key, value in stated.items():
        if not isinstance(value, str):
            raise InputError(
                f"must be text, not {described(value)}", field=f"{where}: {name}.{key}", hint='write it in "quotes"'
            )
    return make(**stated)  # type: ignore[operator]  # a dataclass type, and its keys have been checked


def _origin(section: str, key: str, where: str) -> str:
    """What to call a field in a message: the variable that states it, else its place in the file."""
    variable = f"{PREFIX}{section}__{key}".upper()
    return variable if variable in os.environ else f"{where}: {section}.{key}"


def _known(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UnknownNameError(
                "key", str(key), field=where, nearest=nearest_names(str(key), known), hint=f"known: {', '.join(known)}"
            )
