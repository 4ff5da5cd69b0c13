"""The settings file. Each section is a model of its own (`sections`, `budgets`, `policies`, `guard`, `notify`).

Order of precedence: flags, then `COSTGUARD_SECTION__FIELD` in the environment, then the file, then the defaults here. The file
is `--config`, else `$COSTGUARD_CONFIG`, else `./costguard.toml`, else one in a folder above, up to your home, else
`costguard.toml` in the platform's config folder. All errors of the file are raised at once, each with its line.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from costguard.errors import InputError, UnknownNameError, collect_errors, raise_errors
from costguard.settings.environment import CONFIG_VARIABLE, format_variable, overlay_environment, refuse_gone_section
from costguard.settings.fields import read_section
from costguard.settings.files import (
    FILE_NAME,
    LARGEST_FILE,
    expand_path,
    get_cache_path,
    get_data_path,
    parse_table,
    read_rows,
    read_table,
    read_text,
)
from costguard.settings.lines import add_lines
from costguard.settings.model import find_reader, read_model
from costguard.settings.section_values import SQLITE_PREFIX, load_zone
from costguard.settings.sections import SECTIONS, Settings, WebSettings
from costguard.system.progress import clear_progress, report_progress
from costguard.values.checks import make_unknown_key_error

__all__ = [
    "CONFIG_VARIABLE",
    "FILE_NAME",
    "LARGEST_FILE",
    "SECTIONS",
    "Settings",
    "WebSettings",
    "check_settings",
    "expand_path",
    "find_settings_file",
    "get_cache_path",
    "get_data_path",
    "load_settings",
    "load_tables",
    "load_zone",
    "read_rows",
    "read_settings",
    "read_table",
    "resolve_ledger_url",
]

TABLE_KEYS = ("budget", "agreement", "policy", "hook", "rails", "notify", "report", "providers")
"""The keys of the file that are no section of plain fields."""


def read_settings(file_name: str | None) -> Settings:
    """Return the settings from the file that applies, overridden by the environment.

    `file_name`: the value of `--config`; None if it was not given.
    """
    path = find_settings_file(file_name)
    if path is None:
        settings = _build_settings(overlay_environment({}), "the environment", "")
    else:
        settings = load_settings(read_text(path), path)
    ledger = re.sub(r"//[^/@]*@", "//", resolve_ledger_url(settings))
    report_progress(f"settings: {settings.file or 'no file'}; ledger: {ledger}")
    return settings


def load_settings(text: str, path: Path) -> Settings:
    """Return the settings that `text` gives as the content of the file `path`, overridden by the environment."""
    table = _resolve_paths(parse_table(text, path), path.parent)
    return replace(_build_settings(overlay_environment(table), str(path), text), file=str(path.absolute()))


def load_tables(file_name: str | None, key: str) -> list[Mapping[str, object]]:
    """Return the tables `[[key]]` of the settings file that applies, as they are written; none without a file.

    `file_name`: the value of `--config`; None if it was not given.
    """
    path = find_settings_file(file_name)
    tables = read_table(path).get(key, []) if path is not None else []
    return [one for one in tables if isinstance(one, Mapping)] if isinstance(tables, list) else []


def check_settings(text: str, where: str) -> Settings:
    """Return the settings that `text` would give as the content of the file `where`; raise InputError if it is invalid."""
    import tomllib

    return _build_settings(tomllib.loads(text), where, text)


def resolve_ledger_url(settings: Settings) -> str:
    """Return the URL of the ledger: as stated, else `ledger.db` in the platform's data folder."""
    return f"{SQLITE_PREFIX}{get_data_path('ledger.db')}" if settings.ledger.url is None else settings.ledger.url


def _resolve_paths(table: dict[str, object], folder: Path) -> dict[str, object]:
    """Return `table` with its relative paths resolved against `folder`."""
    resolved = dict(table)
    for section, model in SECTIONS.items():
        inner = table.get(section)
        if isinstance(inner, Mapping):
            readers = {name: find_reader(field) for name, field in model.model_fields.items()}
            places = {name: reader.place for name, reader in readers.items() if reader and reader.place}
            resolved[section] = {k: places[k](v, folder) if k in places and isinstance(v, str) else v for k, v in inner.items()}
    return resolved


def find_settings_file(file_name: str | None) -> Path | None:
    """Return the settings file that applies; None: none does. `file_name`: the value of `--config`."""
    chosen = file_name or os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return expand_path(chosen)
    local_file = Path(FILE_NAME)
    if local_file.is_file():
        _require_own_file(local_file)
        return local_file
    above = _find_above(Path.cwd())
    if above is not None:
        return above
    shared = _get_config_folder() / FILE_NAME
    return shared if shared.is_file() else None


def _find_above(folder: Path) -> Path | None:
    """Return the settings file of the nearest folder above `folder`, up to the home folder; others' are named and skipped."""
    from costguard.system.file_security import describe_foreign_owner, describe_foreign_writers

    home = Path.home()
    if folder == home or not folder.is_relative_to(home):
        return None
    for parent in folder.parents:
        file = parent / FILE_NAME
        if file.is_file():
            why = describe_foreign_writers(file) or describe_foreign_owner(file)
            if not why:
                return file
            _warn_once(f"{file} is not loaded: {why}")
        if parent == home:
            return None
    return None


@cache
def _warn_once(text: str) -> None:
    """Write a warning to standard error, once: commands read the settings several times."""
    clear_progress()
    sys.stderr.write(f"warning: {text}\n")


def _require_own_file(file: Path) -> None:
    """Raise InputError if another user owns or could have written the settings file in the working folder.

    The settings decide where keys are sent, so a file that the user did not name must be the user's own.
    """
    from costguard.system.file_security import describe_foreign_owner, describe_foreign_writers

    why = describe_foreign_writers(file) or describe_foreign_owner(file)
    if why:
        hint = f"if you trust it, run costguard --config {FILE_NAME} ...; otherwise change to another folder"
        raise InputError(f"is not loaded from here: {why}", field=str(file.absolute()), hint=hint)


def _get_config_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("costguard", appauthor=False))


def _build_settings(table: Mapping[str, object], where: str, text: str) -> Settings:
    """Return the settings that `table` states; raise everything that is wrong in it, with the lines of `text`."""
    errors: list[InputError] = []
    known_keys = (*SECTIONS, *TABLE_KEYS)
    for key in [key for key in table if key not in known_keys]:
        with collect_errors(errors, (key,)):
            refuse_gone_section(key, where)
            raise make_unknown_key_error(key, known_keys, where)
    settings = Settings(**_read_sections(table, where, errors))  # type: ignore[arg-type]  # each made by its own model
    settings = _read_guard_tables(settings, table, where, errors)
    if not errors:
        from costguard.settings.checks import check_whole_file

        with collect_errors(errors):
            check_whole_file(settings, where)
    add_lines(errors, text)
    raise_errors(errors)
    return settings


def _read_sections(table: Mapping[str, object], where: str, errors: list[InputError]) -> dict[str, object]:
    """Return the sections of plain fields that `table` states; what is wrong in them is added to `errors`."""
    sections = dict[str, object]()
    for name, model in SECTIONS.items():
        if name not in table:
            continue
        wrong: list[InputError] = []
        with collect_errors(wrong, (name,)):
            section = read_section(table[name], f"{where}: {name}", f"a [{name}] section")
            sections[name] = read_model(model, section, f"{where}: {name}", (name,))
        for error in wrong:
            if isinstance(error, UnknownNameError) and error.what.startswith("unknown key"):
                error.field = f"{where}: [{'.'.join(map(str, error.path[:-1]))}]"
            elif error.path[1:] and (variable := format_variable(name, str(error.path[1]))) in os.environ:
                error.field = variable
        errors += wrong
    return sections


def _read_guard_tables(settings: Settings, table: Mapping[str, object], where: str, errors: list[InputError]) -> Settings:
    """Return `settings` with the tables of the guard; a module is imported only if its table is stated."""
    zone = settings.defaults.timezone
    tables = dict[str, object]()
    if "budget" in table:
        from costguard.settings.budgets import read_budgets

        with collect_errors(errors, ("budget",)):
            tables["budgets"] = read_budgets(table["budget"], where, zone, settings.display)
    if "agreement" in table:
        from costguard.settings.agreements import read_agreements

        with collect_errors(errors, ("agreement",)):
            tables["agreements"] = read_agreements(table["agreement"], where, zone)
    if "providers" in table:
        from costguard.settings.checks import read_provider_tables

        with collect_errors(errors, ("providers",)):
            clouds = dict(read_provider_tables(table["providers"], where))
            if "local" in clouds:
                from costguard.settings.local import split_local

                tables["local"], clouds = split_local(clouds, where)
            tables["providers"] = clouds
    if "hook" in table:
        from costguard.settings.guard import read_hooks

        with collect_errors(errors, ("hook",)):
            tables["hooks"] = read_hooks(table["hook"], where)
    if "policy" in table:
        from costguard.settings.policies import read_policies

        hooks = tuple(list_names(table.get("hook")))
        with collect_errors(errors, ("policy",)):
            tables["policies"] = read_policies(table["policy"], where, zone=zone, poll=settings.watch.interval, hooks=hooks)
    if "rails" in table:
        from costguard.settings.guard import read_rails

        with collect_errors(errors, ("rails",)):
            tables["rails"] = read_rails(table["rails"], where)
    if "notify" in table:
        from costguard.settings.notify import read_notify

        with collect_errors(errors, ("notify",)):
            tables |= read_notify(table["notify"], where, policies=tuple(list_names(table.get("policy"))))
    settings = replace(settings, **tables)  # type: ignore[arg-type]  # each made by its own reader
    if "report" in table and not any(error.path[:1] == ("notify",) for error in errors):
        from costguard.settings.notify import read_reports

        with collect_errors(errors, ("report",)):
            reports = read_reports(table["report"], where, routes=settings.routes, mail=settings.mail)
            settings = replace(settings, reports=reports)
    return settings


def list_names(tables: object) -> Iterator[str]:
    """Yield the names that a list of tables states, also of those that are wrong otherwise."""
    for one in tables if isinstance(tables, list) else []:
        if isinstance(one, Mapping) and isinstance(one.get("name"), str):
            yield one["name"].strip()
