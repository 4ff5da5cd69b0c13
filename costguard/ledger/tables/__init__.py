"""The tables of the ledger, one class each; a module a topic, so that a command imports the classes of its topic only."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a type and no more: whoever reads one topic does not pay for the others
    from sqlalchemy import MetaData


def load_metadata() -> MetaData:
    """Return what all tables declare; every module of this folder is imported."""
    from costguard.ledger.types import METADATA

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for index in (index for table in METADATA.tables.values() for index in table.indexes):
        index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    return METADATA
