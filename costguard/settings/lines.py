"""Finds the line of a settings or job file that states a value: the errors of a file name it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costguard.errors import InputError
from costguard.settings.files import YAML_ENDINGS

FilePath = tuple[str | int, ...]
"""Keys, and numbers of tables from 1, that lead to a value: `("budget", 2, "cap")`."""

HEADER_PATTERN = re.compile(r"\s*\[(\[?)([^\[\]]+)\]\]?\s*(?:#.*)?")
KEY_PATTERN = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
PART_PATTERN = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


@dataclass(frozen=True, slots=True)
class StatedFile:
    """A job file as it was read."""

    path: Path
    text: str
    table: Mapping[str, object]


def place_in_files(
    error: InputError, files: Sequence[StatedFile], over: Mapping[str, object], *, missing: bool = False
) -> None:
    """Let an error of a value that one of `files` states name the file and the line.

    `over`: what counts in place of the files. `missing`: its key stands nowhere, so that the file is named alone.
    """
    field = error.field or ""
    path = (field,) if any(field in file.table for file in files) else tuple(field.split("."))  # a key may hold a dot
    file = max(files, key=lambda one: _count_stated(one.table, path), default=None)
    depth = 0 if file is None else _count_stated(file.table, path)
    if file is not None and not error.path and (depth > _count_stated(over, path) or missing):
        error.path, error.field = path, f"{file.path}: {error.field}"
        find = _find_yaml_line if file.path.suffix.lower() in YAML_ENDINGS else find_line
        _add_line(error, find(file.text, path) if depth else None)


def _count_stated(table: object, path: FilePath) -> int:
    """Return how many keys of `path` lead into `table`."""
    if not isinstance(table, Mapping) or not path or path[0] not in table:
        return 0
    return 1 + _count_stated(table[path[0]], path[1:])


def add_lines(errors: Iterable[InputError], text: str) -> None:
    """Add to each error the line of `text` where its value stands: "is missing (at line 12)"."""
    for error in errors:
        _add_line(error, find_line(text, error.path))


def _add_line(error: InputError, line: int | None) -> None:
    error.what = error.what if line is None else f"{error.what} (at line {line})"
    error.args = (str(error),)


def find_line(text: str, path: FilePath) -> int | None:
    """Return the line, from 1, of the value at `path`, else of the nearest table around it; None if there is none."""
    if text.lstrip().startswith("{"):
        return _find_inside(text, 0, path)
    best, position, header, numbers = (0, 0), 0, FilePath(), dict[tuple[str, ...], int]()
    for line in text.split("\n"):
        if match := HEADER_PATTERN.fullmatch(line):
            header = _locate_header(tuple(_split_key(match[2])), numbers, repeated=bool(match[1]))
            best = max(best, (_count_common(header, path), position), key=lambda one: one[0])
        elif match := KEY_PATTERN.match(line):
            line_path = (*header, *_split_key(match[1]))
            best = max(best, (_count_common(line_path, path), position), key=lambda one: one[0])
        position += len(line) + 1
    depth, start = best
    return _find_inside(text, start, path[depth:]) if depth else None


def _find_yaml_line(text: str, path: FilePath) -> int | None:
    """Return the line, from 1, of the key at `path` of YAML, else of the nearest one around it."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = yaml.compose_all(text, Loader=loader)
    node, line = next((document for document in documents if isinstance(document, yaml.MappingNode)), None), None
    for part in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        key, node = next(((key, value) for key, value in pairs if key.value == part), (None, None))
        line = line if key is None else key.start_mark.line + 1
    return line


def _split_key(text: str) -> list[str]:
    return [part.strip("\"'") for part in PART_PATTERN.findall(text)]


def _locate_header(names: tuple[str, ...], numbers: dict[tuple[str, ...], int], *, repeated: bool) -> FilePath:
    """Return the path of a `[table]` or `[[table]]`, counting the repeated ones in `numbers`."""
    if repeated:
        numbers[names] = numbers.get(names, 0) + 1
    path: list[str | int] = []
    for depth, name in enumerate(names, 1):
        path += [name, numbers[names[:depth]]] if names[:depth] in numbers else [name]
    return tuple(path)


def _count_common(other_path: FilePath, path: FilePath) -> int:
    """Return the length of the shorter path if it begins the longer one, else 0."""
    length = min(len(other_path), len(path))
    return length if other_path[:length] == path[:length] else 0


def _find_inside(text: str, start: int, rest: FilePath) -> int:
    """Return the line of the value at `rest` in what begins at `start`: an inline table, a list of them, or JSON."""
    for part in rest:
        if isinstance(part, int):
            tables = [match.start() for _, match in zip(range(part), re.finditer(r"\{", text[start:]), strict=False)]
            if len(tables) < part:
                break
            start += tables[-1]
        elif (place := _find_key(text, start, part)) is not None:
            start = place
        else:
            break
    return text.count("\n", 0, start) + 1


def _find_key(text: str, start: int, key: str) -> int | None:
    """Return where `key` stands in the first table from `start` on, and not in one within it; None: nowhere."""
    for match in re.finditer(rf"""(?<![\w-])["']?{re.escape(key)}["']?\s*[=:]""", text[start:]):
        preceding = text[start : start + match.start()]
        if preceding.count("{") - preceding.count("}") == 1:
            return start + match.start()
    return None


EXCERPT_BEFORE, EXCERPT_AFTER = 60, 40
"""Characters that an excerpt shows before and from its place on."""


def mark_position(text: str, at: int) -> tuple[str, str]:
    """Return the part of `text` around the character `at` (from 0), and a line with a caret below it."""
    start = max(0, at - EXCERPT_BEFORE)
    part = "".join(c if c.isprintable() else " " for c in text[start : at + EXCERPT_AFTER])
    return f"  {part.rstrip()}", f"  {' ' * (at - start)}^"
