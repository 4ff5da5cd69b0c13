"""What a person wrote: the settings file and job files, read from disk and checked for keys nobody knows.

Order of precedence: flags, then `COSTGUARD_SECTION__FIELD` in the environment, then the file, then the defaults here.
The file is `--config`, else `$COSTGUARD_CONFIG`, else `./costguard.toml`, else `costguard.toml` in the platform's config
folder. Read without pydantic-settings: `quote` needs this, and importing that library costs more than the whole quote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from pathlib import Path

from costguard.core.checks import described, nearest_names
from costguard.errors import InputError, UnknownNameError, shortened

FILE_NAME = "costguard.toml"
PREFIX = "COSTGUARD_"
NOT_OURS = ("COSTGUARD_API_KEY", "COSTGUARD_API_URL", "COSTGUARD_CONFIG")
"""Another product's two variables, and the one that names the file itself."""

LARGEST_FILE = 8 * 2**20
"""Bytes. No settings, job or config.json is near it; a weights file given by mistake is far over."""


PATH = {"path": True}
"""Marks a field that names a file: in the settings file it starts at that file's folder, elsewhere at the working folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteSettings:
    """`[quote]`. `market`: a market file to use instead of the shipped snapshot (see `scripts/build_market.py`).

    `calibration`: what observed runs say (`costguard calibrate`), instead of `calibration.json` in the platform's data folder.
    """

    market: str | None = field(default=None, metadata=PATH)
    calibration: str | None = field(default=None, metadata=PATH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole file, a field a section."""

    quote: QuoteSettings = field(default_factory=QuoteSettings)


def read_settings(stated: str | None) -> Settings:
    """Settings from the file that applies, with the environment laid over it. `stated`: the value of `--config`."""
    path = _settings_file(stated)
    table = _beside(read_table(path), path.parent) if path is not None else {}
    where = str(path) if path is not None else "the environment"
    return _settings(_with_environment(table), where)


def _beside(table: dict[str, object], folder: Path) -> dict[str, object]:
    """`table` with every path in it made to start at `folder`."""
    placed = dict(table)
    for section in fields(Settings):
        inner = table.get(section.name)
        if isinstance(inner, Mapping) and is_dataclass(section.default_factory):
            paths = {f.name for f in fields(section.default_factory) if f.metadata == PATH}
            placed[section.name] = {
                k: str(folder / path_of(v)) if k in paths and isinstance(v, str) else v for k, v in inner.items()
            }
    return placed


def read_table(path: Path) -> dict[str, object]:
    """The table in a TOML or JSON file; InputError names the file, and the line where the syntax is wrong."""
    text = _text(path)
    parse = _json if path.suffix == ".json" or text.lstrip().startswith("{") else _toml
    table = parse(text, path)
    if not isinstance(table, dict):
        raise InputError(
            f"holds {described(table)}, not a table of keys", field=str(path), hint='start it with "{" or key = value'
        )
    return table


def read_rows(path: Path) -> list[tuple[str, dict[str, object]]]:
    """(file and line, table) of every run in a CSV file, or in `[[runs]]` of a TOML or JSON file."""
    if path.suffix.lower() not in (".toml", ".json"):
        return _csv_rows(path)
    runs = read_table(path).get("runs")
    if not isinstance(runs, list) or not all(isinstance(r, dict) for r in runs):
        raise InputError("holds no list of runs", field=str(path), hint='write [[runs]] tables, or {"runs": [{...}]}')
    return [(f"{path} run {number}", run) for number, run in enumerate(runs, 1)]


def _csv_rows(path: Path) -> list[tuple[str, dict[str, object]]]:
    import csv
    import io

    reader = csv.DictReader(io.StringIO(_text(path)), skipinitialspace=True, strict=True)
    rows = []
    try:
        for cells in reader:
            where = f"{path} line {reader.line_num}"
            if None in cells:
                raise InputError("holds more cells than there are columns", field=where, hint='"quote" cells with commas')
            rows.append((where, {k: _cell(v) for k, v in cells.items() if v is not None and v.strip()}))
    except csv.Error as broken:
        where = f"{path} line {reader.line_num}"
        raise InputError(f"is not valid CSV: {broken}", field=where, hint="check the quotes") from None
    return [(where, row) for where, row in rows if row]


def _cell(text: str) -> object:
    """A number where it is written as one (50e6, 50_000_000), true or false, else text."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError("is a folder, not a file", field=str(path), hint=_inside(path))
        with path.open("rb") as file:  # its stated size proves nothing: /dev/zero has none
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise InputError(
                f"is larger than {LARGEST_FILE // 2**20} MiB", field=str(path), hint="give a text file, not weights"
            )
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise InputError("no such file", field=str(path), hint=f"looked from {Path.cwd()}") from None
    except UnicodeDecodeError:
        raise InputError("is not text in UTF-8", field=str(path), hint="save it as UTF-8") from None
    except (OSError, ValueError) as broken:
        raise InputError(f"cannot be read: {shortened(str(broken))}", field=str(path)) from None


def _inside(folder: Path) -> str:
    """A config.json or job file in the folder is probably what was meant."""
    found = [name for name in ("config.json", "job.toml", "job.json", FILE_NAME) if (folder / name).is_file()]
    return f"write {folder / found[0]}" if found else "give the path of a file"


def _toml(text: str, path: Path) -> object:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as broken:  # ValueError: bad syntax, or an integer of thousands of digits
        raise InputError(
            f"is not valid TOML: {shortened(str(broken))}", field=str(path), hint='write key = "value" lines'
        ) from None


def _json(text: str, path: Path) -> object:
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as broken:
        raise InputError(
            f"is not valid JSON: {shortened(str(broken))}", field=str(path), hint="check commas and quotes"
        ) from None


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The pairs as a dict; JSON that states a key twice means two things, and TOML refuses it too."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key '{shortened(twice, 40)}' stands there twice")
    return table


def path_of(text: str) -> Path:
    """The path that somebody wrote, with its `~` filled in; InputError where nobody's home is meant."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError("names the home of a user who is not known", field=text, hint="write the whole path") from None


def _settings_file(stated: str | None) -> Path | None:
    chosen = stated or os.environ.get("COSTGUARD_CONFIG")
    if chosen:
        return path_of(chosen)
    here = Path(FILE_NAME)
    if here.is_file():
        return here
    shared = _config_folder() / FILE_NAME
    return shared if shared.is_file() else None


def data_file(name: str) -> Path:
    """Where the platform wants `name`, which costguard keeps for this person."""
    import platformdirs

    return Path(platformdirs.user_data_dir("costguard", appauthor=False)) / name


def _config_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("costguard", appauthor=False))


def _with_environment(table: dict[str, object]) -> dict[str, object]:
    """`table` with COSTGUARD_SECTION__FIELD laid over it."""
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in table.items()}
    for name, value in sorted(os.environ.items()):
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if name.startswith(PREFIX) and separator and name not in NOT_OURS:
            _known_variable(name, section, key)
            inner = merged.setdefault(section, {})
            if isinstance(inner, dict):
                inner[key] = value
    return merged


def _known_variable(name: str, section: str, key: str) -> None:
    """UnknownNameError that names the variable, unless it stands for a field."""
    places = [(f.name, inner.name) for f in fields(Settings) for inner in _fields_of(f.default_factory)]
    known = [f"{PREFIX}{a_section}__{a_key}".upper() for a_section, a_key in places]
    if (section, key) not in places:
        near = nearest_names(name, known)
        raise UnknownNameError("variable", name, field="the environment", nearest=near, hint=f"known: {', '.join(known)}")


def _fields_of(make: object) -> tuple[Field[object], ...]:
    assert is_dataclass(make)  # noqa: S101 - true of every field of Settings, seen by the type checker
    return fields(make)


def _settings(table: Mapping[str, object], where: str) -> Settings:
    sections = {f.name: f.default_factory for f in fields(Settings)}
    _known(table, tuple(sections), where)
    return Settings(**{name: _section(name, make, table[name], where) for name, make in sections.items() if name in table})  # type: ignore[arg-type]  # each made by its own field's factory


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


def _known(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UnknownNameError(
                "key", str(key), field=where, nearest=nearest_names(str(key), known), hint=f"known: {', '.join(known)}"
            )
