"""The settings file, checked for unknown keys. Job files and tables of runs are read by `files`.

    [quote]                                         # QuoteSettings
    market = "prices.sqlite"
    [prices]                                        # PricesSettings
    refresh = "daily"
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
    [[policy]]                                      # `policies`: any number of them; [[hook]]: commands that they may run
    name = "idle-gpu"
    when = 'state == "idle"'
    then = [{ do = "notify" }]
    [rails]                                         # `rails`: limits that apply to every policy
    [[notify.route]]                                # `notify`: where messages are sent
    to = "console"
    [[report]]                                      # `reports`: sent once a day, week or month
    name = "month"
    to = ["lead@lab.org"]
    [watch]                                         # WatchSettings
    interval = "60s"
    [scale]                                         # ScaleSettings
    workers = "share"
    [reconcile]                                     # ReconcileSettings
    tolerance = "1%, 0.10"
    [display]                                       # DisplaySettings
    currency = "EUR"
    [web]                                           # WebSettings
    listen = "127.0.0.1:8470"
    [telemetry]                                     # TelemetrySettings
    traces = "http://127.0.0.1:4318/v1/traces"
    [providers.runpod]                              # keys that the provider defines
    base_url = "http://127.0.0.1:8080"

Order of precedence: flags, then `COSTGUARD_SECTION__FIELD` in the environment, then the file, then the defaults here. The file
is `--config`, else `$COSTGUARD_CONFIG`, else `./costguard.toml`, else one in a folder above, up to your home, else
`costguard.toml` in the platform's config folder. The file is read without pydantic-settings: `quote` reads the settings, and
importing that library takes longer than the whole quote.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path

from costguard.errors import InputError, UnknownNameError
from costguard.settings.files import FILE_NAME, LARGEST_FILE, expand_path, get_cache_path, get_data_path, read_rows, read_table
from costguard.settings.sections import (
    CONFIG_VARIABLE,
    NESTED,
    SECTIONS,
    SQLITE_PREFIX,
    DefaultSettings,
    LedgerSettings,
    NetworkSettings,
    PricesSettings,
    QuoteSettings,
    ReconcileSettings,
    Settings,
    WatchSettings,
    WebSettings,
    describe_origin,
    list_fields,
    load_zone,
    overlay_environment,
    refuse_gone_section,
)
from costguard.values.checks import find_nearest_names

__all__ = [
    "CONFIG_VARIABLE",
    "FILE_NAME",
    "LARGEST_FILE",
    "SECTIONS",
    "DefaultSettings",
    "LedgerSettings",
    "NetworkSettings",
    "PricesSettings",
    "QuoteSettings",
    "ReconcileSettings",
    "Settings",
    "WatchSettings",
    "WebSettings",
    "check_settings",
    "expand_path",
    "get_cache_path",
    "get_data_path",
    "load_tables",
    "load_zone",
    "read_rows",
    "read_settings",
    "read_table",
    "resolve_ledger_url",
]

BUDGET_KEY, PROVIDERS_KEY, POLICY_KEY, HOOK_KEY, RAILS_KEY, NOTIFY_KEY, REPORT_KEY = (
    "budget",
    "providers",
    "policy",
    "hook",
    "rails",
    "notify",
    "report",
)
"""The keys of the file that are no section of plain fields."""


def read_settings(stated: str | None) -> Settings:
    """Return the settings from the file that applies, overridden by the environment.

    `stated`: the value of `--config`; None if it was not given.
    """
    path = _find_settings_file(stated)
    table = _resolve_paths(read_table(path), path.parent) if path is not None else {}
    where = str(path) if path is not None else "the environment"
    return _build_settings(overlay_environment(table), where)


def load_tables(stated: str | None, key: str) -> list[Mapping[str, object]]:
    """Return the tables `[[key]]` of the settings file that applies, as they are written; none without a file.

    `stated`: the value of `--config`; None if it was not given.
    """
    path = _find_settings_file(stated)
    found = read_table(path).get(key, []) if path is not None else []
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def check_settings(text: str, where: str) -> Settings:
    """Return the settings that `text` would give as the content of the file `where`; raise InputError if it is invalid."""
    import tomllib

    return _build_settings(tomllib.loads(text), where)


def resolve_ledger_url(settings: Settings) -> str:
    """Return the URL of the ledger: as stated, else `ledger.db` in the platform's data folder."""
    return f"{SQLITE_PREFIX}{get_data_path('ledger.db')}" if settings.ledger.url is None else settings.ledger.url


def _resolve_paths(table: dict[str, object], folder: Path) -> dict[str, object]:
    """Return `table` with its relative paths resolved against `folder`."""
    placed = dict(table)
    for section, make in SECTIONS.items():
        inner = table.get(section)
        if isinstance(inner, Mapping):
            places = {f.name: f.metadata["place"] for f in list_fields(make) if "place" in f.metadata}
            placed[section] = {k: places[k](v, folder) if k in places and isinstance(v, str) else v for k, v in inner.items()}
    return placed


def _find_settings_file(stated: str | None) -> Path | None:
    chosen = stated or os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return expand_path(chosen)
    here = Path(FILE_NAME)
    if here.is_file():
        _require_own_file(here)
        return here
    above = _find_above(Path.cwd())
    if above is not None:
        return above
    shared = _get_config_folder() / FILE_NAME
    return shared if shared.is_file() else None


def _find_above(folder: Path) -> Path | None:
    """Return the settings file of the nearest folder above `folder`, up to the home folder; another user's is passed by."""
    from costguard.system.file_security import describe_foreign_owner, describe_foreign_writers

    home = Path.home()
    if folder == home or not folder.is_relative_to(home):
        return None
    for parent in folder.parents:
        file = parent / FILE_NAME
        if file.is_file() and not describe_foreign_writers(file) and not describe_foreign_owner(file):
            return file
        if parent == home:
            return None
    return None


def _require_own_file(here: Path) -> None:
    """Raise InputError if another user owns or could have written the settings file in the working folder.

    The settings decide where keys are sent, so a file that the user did not name must be the user's own.
    """
    from costguard.system.file_security import describe_foreign_owner, describe_foreign_writers

    why = describe_foreign_writers(here) or describe_foreign_owner(here)
    if why:
        hint = f"if you trust it, run costguard --config {FILE_NAME} ...; otherwise change to another folder"
        raise InputError(f"is not loaded from here: {why}", field=str(here.absolute()), hint=hint)


def _get_config_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("costguard", appauthor=False))


def _build_settings(table: Mapping[str, object], where: str) -> Settings:
    for section in table:
        refuse_gone_section(section, where)
    _require_known_keys(
        table, (*SECTIONS, BUDGET_KEY, POLICY_KEY, HOOK_KEY, RAILS_KEY, NOTIFY_KEY, REPORT_KEY, PROVIDERS_KEY), where
    )
    made = {name: _build_section(name, make, table[name], where) for name, make in SECTIONS.items() if name in table}
    settings = Settings(**made)  # type: ignore[arg-type]  # each made by its own field's factory
    zone = load_zone(settings.defaults.timezone, describe_origin("defaults", "timezone", where))
    if {"watch", "scale", "defaults", "network", "ledger", "display", "reconcile", "web", "prices", "telemetry"} & set(made):
        from costguard.settings.checks import check_sections

        check_sections(settings, where)
    if BUDGET_KEY in table:
        from costguard.settings.budgets import read_budgets

        settings = replace(settings, budgets=read_budgets(table[BUDGET_KEY], where, zone))
    if PROVIDERS_KEY in table:
        from costguard.settings.checks import read_provider_tables

        settings = replace(settings, providers=read_provider_tables(table[PROVIDERS_KEY], where))
    settings = _read_guard_tables(settings, table, where, zone)
    if settings.defaults.tenant_labels:
        from costguard.settings.checks import check_tenant_labels

        check_tenant_labels(settings, where)
    return settings


def _read_guard_tables(settings: Settings, table: Mapping[str, object], where: str, zone: tzinfo) -> Settings:
    """Return `settings` with the tables of the guard; a module is imported only if its table is stated."""
    if HOOK_KEY in table:
        from costguard.settings.guard import read_hooks

        settings = replace(settings, hooks=read_hooks(table[HOOK_KEY], where))
    if POLICY_KEY in table:
        from costguard.settings.policies import read_policies

        hooks = tuple(hook.name for hook in settings.hooks)
        policies = read_policies(table[POLICY_KEY], where, zone=zone, poll=settings.watch.every, hooks=hooks)
        settings = replace(settings, policies=policies)
    if RAILS_KEY in table:
        from costguard.settings.guard import read_rails

        settings = replace(settings, rails=read_rails(table[RAILS_KEY], where))
    if NOTIFY_KEY in table:
        from costguard.settings.notify import read_notify

        told = read_notify(table[NOTIFY_KEY], where, policies=tuple(one.name for one in settings.policies))
        settings = replace(
            settings,
            routes=told.routes,
            signed_with=told.signed_with,
            mail=told.mail,
            console_is_delivery=told.console_is_delivery,
        )
    if REPORT_KEY in table:
        from costguard.settings.notify import read_reports

        settings = replace(settings, reports=read_reports(table[REPORT_KEY], where, routes=settings.routes, mail=settings.mail))
    return settings


def _build_section(name: str, make: object, stated: object, where: str) -> object:
    if not isinstance(stated, Mapping):
        from costguard.settings.fields import describe_unlike

        told = f"must be a table, not {describe_unlike(stated)}"
        raise InputError(told, field=f"{where}: {name}", hint=f"write a [{name}] section")
    kinds = {one.name: one.metadata for one in list_fields(make)}
    _require_known_keys(stated, tuple(kinds), f"{where}: [{name}]")
    return make(**{key: _read_field(value, where, f"{name}.{key}", kinds[key]) for key, value in stated.items()})  # type: ignore[operator]  # a dataclass type, and its keys have been checked


def _read_field(value: object, where: str, name: str, marks: Mapping[str, object]) -> object:
    from costguard.settings.fields import read_endpoints, read_text, read_texts

    field = f"{where}: {name}"
    if NESTED in marks:
        return _build_section(name, marks[NESTED], value, where)
    if "tables" in marks:
        return read_endpoints(value, field)
    return read_texts(value, field) if "list" in marks else read_text(value, field)


def _require_known_keys(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UnknownNameError(
                "key", str(key), field=where, nearest=find_nearest_names(str(key), known), hint=f"known: {', '.join(known)}"
            )
