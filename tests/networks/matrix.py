"""The matrix played, several tries at once as most of each is waiting, and its table."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.networks.cells import ACT_PHASES, PHASES, RIGS, Came, Cell, played, unhurried
from tests.networks.tls import Authorities, _right

AT_ONCE = 12


@contextmanager
def folder() -> Iterator[Path]:
    """One that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="costguard-networks-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def play(cells: Iterable[Cell]) -> list[Came]:
    """What came of each, in their order."""
    cells = list(cells)
    with folder() as home, unhurried(), warnings.catch_warnings(), ThreadPoolExecutor(AT_ONCE) as crew:
        warnings.simplefilter("ignore")
        authorities = Authorities.made(home)
        context = _right(authorities)

        def one(number: int, cell: Cell) -> Came:
            place = home / str(number)
            place.mkdir()
            return played(cell, place, (context, authorities.file))

        return list(crew.map(one, range(len(cells)), cells))


def replay_line(cell: Cell) -> str:
    """What plays this one again."""
    return f"python -m tests.networks --replay '{json.dumps(asdict(cell), separators=(',', ':'))}'"


def table(came: Iterable[Came]) -> str:
    """Fault by provider and phase: tries in which it struck, and those that were wrong."""
    tries: dict[tuple[str, str, str], Counter[str]] = {}
    for one in came:
        key = (one.cell.kind + (" in TLS" if one.cell.tls else ""), one.cell.provider, one.cell.phase)
        count = tries.setdefault(key, Counter())
        count["tries"] += bool(one.struck)
        count["wrong"] += bool(one.wrong)
        count["unknowable"] += one.unknowable
    kinds = list(dict.fromkeys(kind for kind, _, _ in tries))
    lines = [f"{'fault':18}{'provider':10}" + "".join(f"{phase:>14}" for phase in PHASES)]
    for kind in kinds:
        for provider in RIGS:
            found = [tries.get((kind, provider, phase)) for phase in PHASES]
            if any(found):
                lines.append(f"{kind:18}{provider:10}" + "".join(f"{_shown(one):>14}" for one in found))
    return "\n".join(lines)


def _shown(count: Counter[str] | None) -> str:
    if count is None:
        return "-"
    also = f" ({count['unknowable']}?)" if count["unknowable"] else ""
    return f"{count['wrong']}/{count['tries']}{also}"


def summary(came: list[Came]) -> dict[str, Any]:
    """Counts over all of it."""
    struck = [one for one in came if one.struck]
    said = Counter(one.said.partition(":")[0] or "nothing" for one in struck)
    return {
        "tries": len(came),
        "struck": len(struck),
        "acts": sum(one.cell.phase in ACT_PHASES for one in struck),
        "wrong": sum(bool(one.wrong) for one in came),
        "bound_95": f"{3 / len(struck):.4f}" if struck else "none",
        "unknowable over plain http": sum(one.unknowable for one in came),
        "cut requests refused by the fakes": sum(one.cut_short for one in came),
        "longest_s": f"{max((one.took_s for one in came), default=0):.1f}",
        **{f"said {word}": count for word, count in sorted(said.items())},
    }


def complain(came: Iterable[Came]) -> None:
    """Every wrong one with its line."""
    for one in came:
        if one.wrong:
            sys.stdout.write(f"WRONG {'; '.join(one.wrong)}\n  it said: {one.said}\n  {replay_line(one.cell)}\n")
