"""Finds the line of a settings or job file that states a value: the errors of a file name it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from costguard.errors import InputError

FilePath = tuple[str | int, ...]
"""Keys, and numbers of tables from 1, that lead to a value: `("budget", 2, "cap")`."""

HEADER_PATTERN = re.compile(r"\s*\[(\[?)([^\[\]]+)\]\]?\s*(?:#.*)?")
KEY_PATTERN = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
PART_PATTERN = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def add_lines(errors: Iterable[InputError], text: str) -> None:
    """Add to each error the line of `text` where its value stands: "is missing (at line 12)"."""
    for error in errors:
        line = find_line(text, error.path)
        if line is not None:
            error.what = f"{error.what} (at line {line})"
            error.args = (str(error),)


def find_line(text: str, path: FilePath) -> int | None:
    """Return the line, from 1, of the value at `path`, else of the nearest table around it; None if there is none."""
    if text.lstrip().startswith("{"):
        return _find_inside(text, 0, path)
    best, position, header, numbers = (0, 0), 0, FilePath(), dict[tuple[str, ...], int]()
    for line in text.split("\n"):
        if found := HEADER_PATTERN.fullmatch(line):
            header = _locate_header(tuple(_split_key(found[2])), numbers, repeated=bool(found[1]))
            best = max(best, (_count_common(header, path), position), key=lambda one: one[0])
        elif found := KEY_PATTERN.match(line):
            stated = (*header, *_split_key(found[1]))
            best = max(best, (_count_common(stated, path), position), key=lambda one: one[0])
        position += len(line) + 1
    depth, start = best
    return _find_inside(text, start, path[depth:]) if depth else None


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


def _count_common(stated: FilePath, path: FilePath) -> int:
    """Return the length of the shorter path if it begins the longer one, else 0."""
    length = min(len(stated), len(path))
    return length if stated[:length] == path[:length] else 0


def _find_inside(text: str, start: int, rest: FilePath) -> int:
    """Return the line of the value at `rest` in what begins at `start`: an inline table, a list of them, or JSON."""
    for part in rest:
        if isinstance(part, int):
            tables = [found.start() for _, found in zip(range(part), re.finditer(r"\{", text[start:]), strict=False)]
            if len(tables) < part:
                break
            start += tables[-1]
        elif found := re.search(rf"""(?<![\w-])["']?{re.escape(part)}["']?\s*[=:]""", text[start:]):
            start += found.start()
        else:
            break
    return text.count("\n", 0, start) + 1
