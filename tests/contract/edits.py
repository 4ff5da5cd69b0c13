"""Changes to a right answer, in JSON or XML, that know nothing of which cloud gave it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from tests.fakes.server import Answer

Edit = Callable[[Answer], Answer]
Path = tuple[str | int, ...]


def parsed(answer: Answer) -> Any:  # noqa: ANN401 - whatever the body holds
    """The body as JSON; None where it is no JSON."""
    try:
        return json.loads(answer.body)
    except ValueError:
        return None


def with_body(answer: Answer, value: object) -> Answer:
    """`answer` with `value` as its JSON."""
    return replace(answer, body=json.dumps(value).encode())


class Kept:
    """No change: it keeps the answers that pass."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def __call__(self, right: Answer) -> Answer:
        self.answers.append(right)
        return right


def replaying(pages: int) -> Edit:
    """From the page after `pages` on, the last of them again and again: its token leads in a circle."""
    given: list[Answer] = []

    def edit(right: Answer) -> Answer:
        if len(given) < pages:
            given.append(right)
        return given[-1]

    return edit


def renamed(right: Answer) -> Answer:
    """Every key of the outermost object, or the outermost element, under a name that nobody expects."""
    value = parsed(right)
    if isinstance(value, dict):
        return with_body(right, {f"x_{key}": inner for key, inner in value.items()})
    if value is not None:
        return with_body(right, {"x_listing": value})
    root = _xml(right)
    inner = "".join(f"<x{child.tag.rpartition('}')[2]}/>" for child in root)
    return replace(right, body=f"<xResponse>{inner}</xResponse>".encode())


def machine_list(value: Any) -> tuple[Path, list[Any]] | None:  # noqa: ANN401
    """The path of the first list of objects, looking at the outer levels first, and the list."""
    level: list[tuple[Path, Any]] = [((), value)]
    while level:
        for path, one in level:
            if isinstance(one, list) and one and all(isinstance(inner, dict) for inner in one):
                return path, one
        level = [((*path, key), inner) for path, one in level for key, inner in _inner(one)]
    return None


def _inner(value: Any) -> Iterator[tuple[str | int, Any]]:  # noqa: ANN401
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def paths(value: Any, at: Path = ()) -> Iterator[Path]:  # noqa: ANN401
    """The path of everything inside `value`."""
    for key, inner in _inner(value):
        yield (*at, key)
        yield from paths(inner, (*at, key))


def put(value: Any, path: Path, new: object) -> Any:  # noqa: ANN401
    """A copy of `value` with `new` at `path`; `...` leaves it out."""
    copy = deepcopy(value)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return copy


def changes(right: Answer) -> list[tuple[str, Edit]]:
    """Every way to null, or leave out, one field of the first machine of a listing, each with its name."""
    value = parsed(right)
    if value is None:
        return _xml_changes(right)
    found = machine_list(value)
    assert found, "a listing without a list"
    at, machines = found
    made: list[tuple[str, Edit]] = []
    for path in paths(machines[0], (*at, 0)):
        for new, word in ((None, "null"), (..., "left out")):
            made.append((f"{path} {word}", _putting(path, new)))
    return made


def _putting(path: Path, new: object) -> Edit:
    def edit(right: Answer) -> Answer:
        try:
            return with_body(right, put(parsed(right), path, new))
        except (KeyError, IndexError, TypeError):
            return right

    return edit


def _xml(right: Answer) -> ET.Element:
    return ET.fromstring(right.body)  # noqa: S314 - our own fake's


def _xml_changes(right: Answer) -> list[tuple[str, Edit]]:
    count = sum(1 for _ in _xml(right).iter())
    return [
        (f"element {n} {'empty' if empty else 'left out'}", _cutting(n, empty))
        for n in range(1, count)
        for empty in (True, False)
    ]


def _cutting(index: int, empty: bool) -> Edit:  # noqa: FBT001
    def edit(right: Answer) -> Answer:
        root = _xml(right)
        found = [(parent, child) for parent in root.iter() for child in parent]
        order = {id(child): parent for parent, child in found}
        every = list(root.iter())
        if index >= len(every):
            return right
        child = every[index]
        if empty:
            child.clear()
        else:
            order[id(child)].remove(child)
        namespace = root.tag.partition("}")[0].removeprefix("{") if root.tag.startswith("{") else ""
        if namespace:
            ET.register_namespace("", namespace)
        return replace(right, body=b'<?xml version="1.0" encoding="UTF-8"?>' + ET.tostring(root))

    return edit


def with_id(old: str, new: str) -> Edit:
    """`new` wherever the answer has the id `old`."""

    def edit(right: Answer) -> Answer:
        value = parsed(right)
        if value is None:
            return replace(right, body=right.body.replace(escape(old).encode(), escape(new).encode("utf-8", "replace")))
        for path in list(paths(value)):
            inner = value
            for key in path:
                inner = inner[key]
            if not isinstance(inner, dict | list) and str(inner) == old:
                value = put(value, path, new)
        return with_body(right, value)

    return edit


def shuffled(right: Answer) -> Answer:
    """Every list the other way round, and every object's keys."""

    def turned(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(one) for one in reversed(value)] if isinstance(value, list) else value

    value = parsed(right)
    return right if value is None else with_body(right, turned(value))
