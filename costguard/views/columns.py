"""How each column of a table behaves on a terminal that is too narrow for it.

Columns of the same heading mean the same in all tables, so that this is written once, by heading. A table may say otherwise
(`TableView.fits`).

Example: at 80 columns `status` drops region, account and tier, in this order, and `--wide` shows them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CUT, MIDDLE, WORDS = "cut", "middle", "words"
"""Ways to shorten a cell: at its end, in its middle (an id: both ends tell), or on several lines between words."""


@dataclass(frozen=True, slots=True)
class ColumnFit:
    """How a column gives way.

    `rank`: 0 stays; of the others the highest is dropped first. `least`: the width to which it may be shortened, in cells of
    the terminal; 0: it is never shortened. `how`: CUT, MIDDLE or WORDS. `heading`: a shorter one; "": the same.
    """

    rank: int = 0
    least: int = 0
    how: str = CUT
    heading: str = ""


ELLIPSIS = "\u2026"
"""Stands for what is left out of a cell."""
ADDRESS = re.compile("https?://")
"""What is in a cell to be pasted, and is never cut."""
STAYS = ColumnFit()
NAME_LEAST = 18
"""Characters that are left of the name of a row: `train-l\u2026b-a 4f2c9a`."""
NAMING = ("resource", "machine", "name", "job", "agent", "template")
"""Headings of columns that name their row; in a table without one it is the first column with a heading but the rank."""
COMMON_FITS: Mapping[str, ColumnFit] = {
    "#": ColumnFit(rank=3),
    "account": ColumnFit(rank=8, least=8, how=MIDDLE),
    "region": ColumnFit(rank=9, least=9),
    "zone": ColumnFit(rank=9, least=9),
    "tier": ColumnFit(rank=7),
    "owner": ColumnFit(rank=5, least=5),
    "provider": ColumnFit(rank=2),
    "resource": ColumnFit(least=NAME_LEAST, how=MIDDLE),
    "machine": ColumnFit(least=NAME_LEAST, how=MIDDLE),
    "name": ColumnFit(least=12, how=MIDDLE),
    "id": ColumnFit(rank=4, least=10, how=MIDDLE),
    "GPU": ColumnFit(rank=1),
    "up": ColumnFit(rank=6),
    "held": ColumnFit(least=14, how=WORDS),
    "use": ColumnFit(rank=6),
    "used": ColumnFit(rank=6),
    "state": ColumnFit(),
    "instance": ColumnFit(rank=6, least=10),
    "split": ColumnFit(rank=8),
    "needs GiB": ColumnFit(rank=7),
    "source": ColumnFit(rank=9, least=16, how=WORDS),
    "confidence": ColumnFit(rank=6),
    "since": ColumnFit(rank=7),
    **dict.fromkeys(
        ("why", "what", "found", "how", "note", "notes", "plans", "evidence", "formula", "what it costs", "instead", "says"),
        ColumnFit(least=18, how=WORDS),
    ),
}
"""Fits by heading; a column of another heading stays, and is cut only where nothing else is left to give way."""


def add_short_ids(names: Sequence[str], ids: Sequence[str]) -> tuple[str, ...]:
    """Return `names`, each with its row's short id where two are alike."""
    alike = Counter(names)
    return tuple(f"{name} {id_}" if alike[name] > 1 else name for name, id_ in zip(names, ids, strict=True))


def find_naming_column(headings: Sequence[str]) -> int:
    """Return the place of the column that names each row, which never yields its place to others."""
    plain = [one.removesuffix(">") for one in headings]
    named_columns = [plain.index(one) for one in NAMING if one in plain]
    return next(iter(named_columns), next((n for n, one in enumerate(plain) if one not in ("#", "")), 0))


def find_fit(heading: str, fits: Mapping[str, ColumnFit]) -> ColumnFit:
    """Return the fit of the column `heading`, without its `>`: of `fits` or the common one."""
    plain = heading.removesuffix(">")
    return fits.get(plain) or COMMON_FITS.get(plain) or STAYS
