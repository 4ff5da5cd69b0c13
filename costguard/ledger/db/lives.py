"""Keys, lives and other values of the guard as columns of a ledger and back: what is read equals what was written.

A life is its key's four columns and a text of its two times in microseconds, "-" where one is not known: "1795219200000000/-".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from costguard.ledger.db.asking import Execute, Query
from costguard.ledger.db.codecs import SqlRow
from costguard.values.incarnation import Incarnation
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import ResourceKey, make_storable

if TYPE_CHECKING:  # a type and no more: it is known to the type checker's library only
    from _typeshed import DataclassInstance

KEY_COLUMNS = "provider, account, region, external_id"
_UNKNOWN = "-"
_INSTANT_KEY = "us"
"""The one name of a JSON object that stands for an instant."""


def encode_life_columns(life: Incarnation) -> SqlRow:
    """KEY and life."""
    return (*life.key, encode_life(life))


def encode_life(life: Incarnation) -> str:
    """The times of `life`."""
    return "/".join(_UNKNOWN if at is None else str(to_micros(at)) for at in (life.started_at, life.created_at))


def decode_life(columns: Sequence[Any]) -> Incarnation:
    """What `life_columns` wrote."""
    *key, text = columns
    started, created = (None if us == _UNKNOWN else from_micros(int(us)) for us in text.split("/"))
    return Incarnation(ResourceKey(*key), started, created)


def encode_optional_instant(at: datetime | None) -> int | None:
    """`at` as a column that may be missing."""
    return None if at is None else to_micros(at)


def encode_list(values: Sequence[object]) -> str:
    """A list of texts and numbers, or of pairs of them, as JSON."""
    return json.dumps(values, separators=(",", ":"))


def decode_list(text: str) -> tuple[Any, ...]:
    """What `list_text` wrote."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in json.loads(text))


def encode_fields(value: DataclassInstance, without: Sequence[str] = ()) -> str:
    """A value of plain fields, instants, and tuples of them or of such values, as JSON; `without` those fields."""
    return json.dumps(_encode_value(value, without), separators=(",", ":"))


def decode_fields(text: str) -> dict[str, Any]:
    """The fields that `value_text` wrote; a value within is a dict of its fields."""
    found: dict[str, Any] = _decode_value(json.loads(text))
    return found


def _encode_value(value: object, without: Sequence[str] = ()) -> object:
    if isinstance(value, datetime):
        return {_INSTANT_KEY: to_micros(value)}
    if isinstance(value, tuple):
        return [_encode_value(one) for one in value]
    if isinstance(value, str):
        return make_storable(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _encode_value(getattr(value, field.name)) for field in fields(value) if field.name not in without}
    return value


def _decode_value(value: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, list):
        return tuple(_decode_value(one) for one in value)
    if isinstance(value, dict):
        return (
            from_micros(value[_INSTANT_KEY])
            if value.keys() == {_INSTANT_KEY}
            else {name: _decode_value(one) for name, one in value.items()}
        )
    return value


class TableShape(NamedTuple):
    """A table whose rows are written over: the columns of its key, and the others."""

    table: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]


def replace_rows(ask: Query, tell: Execute, shape: TableShape, rows: Mapping[SqlRow, SqlRow]) -> None:
    """Make the table hold just `rows` (key -> the others), touching only those that changed."""
    width = len(shape.keys)
    sql = f"SELECT {', '.join((*shape.keys, *shape.columns))} FROM {shape.table}"  # noqa: S608 - our own names
    there = {row[:width]: row[width:] for row in ask(sql, ())}
    gone = [key for key in there if key not in rows]
    if gone:
        where = " AND ".join(f"{key} = ?" for key in shape.keys)
        tell(f"DELETE FROM {shape.table} WHERE {where}", gone)  # noqa: S608 - our own names
    upsert_rows(tell, shape, {key: row for key, row in rows.items() if there.get(key) != row})


def upsert_rows(tell: Execute, shape: TableShape, rows: Mapping[SqlRow, SqlRow]) -> None:
    """Write `rows` over what is there."""
    names = (*shape.keys, *shape.columns)
    over = ", ".join(f"{name} = excluded.{name}" for name in shape.columns)
    sql = (
        f"INSERT INTO {shape.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "  # noqa: S608 - our own names
        f"ON CONFLICT ({', '.join(shape.keys)}) DO UPDATE SET {over}"
    )
    if rows:
        tell(sql, [(*key, *row) for key, row in rows.items()])
