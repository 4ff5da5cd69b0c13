"""The shape of a model that somebody states in numbers: the job file's `[architecture]` table.

    [architecture]
    layers = 32
    hidden = 4096
    heads = 32
    ffn = 11008
    vocab = 32000

is Llama-2-7B: 6,738,415,616 parameters. What is left out takes the usual value of its `kind`; what was taken for
granted and moves the count stands in `Architecture.notes`. `params` replaces the count where the shape is not fully known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.errors import UnknownNameError
from costguard.sizing.architecture import Architecture
from costguard.sizing.kinds import BUILDERS
from costguard.sizing.stated import ARCHITECTURE_KEYS, KIND_DEFAULTS, ArchitectureTable, _name_field
from costguard.values.checks import describe_value, find_nearest_names, require, require_one_of, require_whole_number


def build_architecture_from_table(table: Mapping[str, object]) -> Architecture:
    """The shape that `table` states; InputError names the key that is missing, unknown, wrong or contradicted."""
    require(isinstance(table, Mapping), "architecture", "must be a table", "write it as an [architecture] section")
    _check_known_keys(table)
    kind = require_one_of(table.get("kind", "decoder"), BUILDERS, _name_field("kind"))
    stated = ArchitectureTable(table, KIND_DEFAULTS[kind])
    architecture = BUILDERS[kind](stated, _read_name(table))
    params = table.get("params")
    return replace(
        architecture,
        stated_params=None if params is None else require_whole_number(params, _name_field("params")),
        notes=() if params is not None else stated.notes,
    )


def _check_known_keys(table: Mapping[str, object]) -> None:
    for key in table:
        if key not in ARCHITECTURE_KEYS:
            raise UnknownNameError(
                "key",
                str(key),
                field=_name_field(str(key)),
                nearest=find_nearest_names(str(key), ARCHITECTURE_KEYS),
                hint=f"known keys: {', '.join(ARCHITECTURE_KEYS)}",
            )


def _read_name(table: Mapping[str, object]) -> str:
    name = table.get("name", "custom")
    require(
        isinstance(name, str) and bool(name),
        _name_field("name"),
        f"must be text, not {describe_value(name)}",
        'write name = "mine"',
    )
    return str(name)
