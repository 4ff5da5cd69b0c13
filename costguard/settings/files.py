"""Reads TOML, JSON and CSV files that users write; errors name the file and the line."""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from pathlib import Path

from costguard.errors import InputError, shorten
from costguard.system.input_file import InputFileError, read_input_file
from costguard.values.checks import describe_value

FILE_NAME = "costguard.toml"
YAML_ENDINGS = (".yaml", ".yml")

JSON_TOKENS = re.compile(r'"((?:[^"\\]|\\.)*+)"?(\s*+:)?|[{}]')
"""A text, which is a key if a colon follows, or a bracket of a table."""
TOML_LONGEST, KEYS_DEEPEST = 2**20, 60
"""Characters of a TOML file, and parts of a key: `tomllib` takes a time in proportion to the third power of the parts."""
LARGEST_FILE = 8 * 2**20
"""Bytes. No settings, job or config.json is near it; a weights file given by mistake is far over."""


def read_table(path: Path) -> dict[str, object]:
    """Return the table in a TOML or JSON file; raise InputError that names the file and the line of a syntax error."""
    return parse_table(read_text(path), path)


def parse_table(text: str, path: Path) -> dict[str, object]:
    """Return the table that `text`, the content of the file `path`, holds as TOML or JSON. Raises as `read_table`."""
    parse = _parse_json if path.suffix == ".json" or text.lstrip().startswith("{") else _parse_toml
    table = parse(text, path)
    if not isinstance(table, dict):
        raise InputError(
            f"holds {describe_value(table)}, not a table of keys", field=str(path), hint='start it with "{" or key = value'
        )
    return table


def read_rows(path: Path) -> list[tuple[str, dict[str, object]]]:
    """Return (file and line, table) of every run in a CSV file, or in `[[runs]]` of a TOML or JSON file."""
    rows = _read_csv_rows(path) if path.suffix.lower() not in (".toml", ".json") else _read_runs(path)
    if not rows:
        raise InputError("holds no run", field=str(path), hint="write a line of columns and a line for each run, or [[runs]]")
    return rows


def _read_runs(path: Path) -> list[tuple[str, dict[str, object]]]:
    runs = read_table(path).get("runs")
    if not isinstance(runs, list) or not all(isinstance(r, dict) for r in runs):
        raise InputError("holds no list of runs", field=str(path), hint='write [[runs]] tables, or {"runs": [{...}]}')
    return [(f"{path} run {number}", run) for number, run in enumerate(runs, 1)]


def _read_csv_rows(path: Path) -> list[tuple[str, dict[str, object]]]:
    import csv
    import io

    reader = csv.DictReader(io.StringIO(read_text(path)), skipinitialspace=True, strict=True)
    rows = []
    try:
        for cells in reader:
            where = f"{path} line {reader.line_num}"
            if None in cells:
                raise InputError("has more cells than columns", field=where, hint='"quote" cells with commas')
            rows.append((where, {k: _parse_cell(v) for k, v in cells.items() if v is not None and v.strip()}))
    except csv.Error as broken:
        where = f"{path} line {reader.line_num}"
        raise InputError(f"is not valid CSV: {broken}", field=where, hint="check the quotes") from None
    return [(where, row) for where, row in rows if row]


def _parse_cell(text: str) -> object:
    """Return the cell as a number if it is one (50e6, 50_000_000), as true or false, else as text."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def read_text(path: Path) -> str:
    """Return the text of a file of at most LARGEST_FILE bytes; raise InputError that says why it cannot be read."""
    try:
        return read_input_file(path, LARGEST_FILE).decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise InputError("no such file", field=str(path), hint=f"looked from {Path.cwd()}") from None
    except IsADirectoryError:
        raise InputError("is a folder, not a file", field=str(path), hint=_suggest_file_inside(path)) from None
    except InputFileError as refused:
        if refused.errno != errno.EFBIG:
            raise InputError(refused.why, field=str(path), hint="write it to a file first") from None
        what = f"is larger than {LARGEST_FILE // 2**20} MiB"
        raise InputError(what, field=str(path), hint="name a text file, not model weights") from None
    except UnicodeDecodeError:
        raise InputError("is not text in UTF-8", field=str(path), hint="save it as UTF-8") from None
    except (OSError, ValueError) as broken:
        why = (broken.strerror if isinstance(broken, OSError) else None) or str(broken)
        raise InputError(f"cannot be read: {shorten(why)}", field=str(path), hint="name a readable file") from None


def _suggest_file_inside(folder: Path) -> str:
    """Return a hint that names a config.json or job file in `folder`, which the user probably meant."""
    files = [name for name in ("config.json", "job.toml", "job.json", FILE_NAME) if (folder / name).is_file()]
    return f"write {folder / files[0]}" if files else "name a file"


def _parse_toml(text: str, path: Path) -> object:
    import tomllib

    if len(text) > TOML_LONGEST:
        raise InputError("is larger than 1 MiB", field=str(path), hint="write it as JSON, or as several files")
    for number, line in enumerate(text.splitlines(), 1):
        *keys, _ = line.split("=") if not line.lstrip().startswith("[") else (line, "")
        if any(key.count(".") > KEYS_DEEPEST for key in keys):
            what = f"unknown key of more than {KEYS_DEEPEST} parts"
            raise InputError(what, field=f"{path} line {number}", hint="use fewer levels of tables")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as broken:  # ValueError: bad syntax, or an integer of thousands of digits
        from costguard.settings.syntax_hints import describe_parse_error, suggest_toml_fix

        raise InputError(
            f"is not valid TOML: {describe_parse_error(broken)}", field=str(path), hint=suggest_toml_fix(text, str(broken))
        ) from None


def _parse_json(text: str, path: Path) -> object:
    try:
        return json.loads(text, object_pairs_hook=_reject_repeated_keys)
    except (ValueError, RecursionError) as broken:
        from costguard.settings.syntax_hints import describe_parse_error, suggest_json_fix

        raise InputError(
            f"is not valid JSON: {describe_parse_error(broken)}{_locate_repeated(text, str(broken))}",
            field=str(path),
            hint=suggest_json_fix(str(broken)),
        ) from None


def _reject_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs as a dict; raise ValueError for a repeated key, which is ambiguous and which TOML refuses too."""
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key '{shorten(twice, 40)}' appears twice")
    return table


def _locate_repeated(text: str, message: str) -> str:
    """Return where the key stands again that an error of `_reject_repeated_keys` names; "" for other errors."""
    open_tables: list[set[str]] = []
    for token in JSON_TOKENS.finditer(text) if "appears twice" in message else ():
        if token[0] == "{":
            open_tables.append(set())
        elif token[0] == "}" or not open_tables:
            del open_tables[-1:]
        elif token[2]:
            if token[1] in open_tables[-1] and f"'{shorten(token[1], 40)}'" in message:
                return f" (at line {text.count(chr(10), 0, token.start()) + 1})"
            open_tables[-1].add(token[1])
    return ""


def expand_path(text: str) -> Path:
    """Return the path with `~` expanded; raise InputError if it names the home folder of an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError("names the home folder of an unknown user", field=text, hint="write the full path") from None


PRICE_HISTORY_FILE = "price_history.sqlite"
"""In the platform's folder for user data: the prices that refreshes saw."""


def get_data_path(name: str) -> Path:
    """Return the path of the data file `name` in the platform's folder for user data."""
    import platformdirs

    return Path(platformdirs.user_data_dir("costguard", appauthor=False)) / name


def get_cache_path(name: str) -> Path:
    """Return the path of the file `name` in the platform's cache folder, for content that costguard can fetch again."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("costguard", appauthor=False)) / name
