"""What the product itself says of a ledger after a power cut, all its files beside it: it opens, holds, and goes on."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path

from costguard.cli import run_cli
from costguard.errors import CostguardError
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from tests.disks import judge
from tests.disks.judge import Course, Files
from tests.ledger import acts
from tests.ledger.acts import HOUR, WIDE
from tests.ledger.fleet import CEILINGS, RULES, START, machine, poll

LATER = START + timedelta(days=60)
REFUSED = "refused"
COMMANDS = (["db", "check"], ["audit", "verify"], ["status", "--json"], ["db", "upgrade"])


def faults(found: Course, files: Files, done: int, folder: Path) -> Iterator[tuple[str, str]]:
    """What is wrong: a kind, and a sentence. Each command must succeed, each promise hold before and after more is written."""
    place = folder / "wholly"
    shutil.rmtree(place, ignore_errors=True)
    ledger = place / "ledger.db"
    home = Path(found.ledger).parent
    place.mkdir()
    for name, data in files.items():
        if Path(name).parent == home:
            (place / Path(name).name).write_bytes(data)
    url = f"sqlite:///{ledger}"
    os.environ |= {"COSTGUARD_LEDGER__URL": url} | {f"XDG_{name}_HOME": str(place) for name in ("CONFIG", "DATA", "CACHE")}
    os.chdir(place)
    try:
        with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book, GuardStore(url, rails=WIDE) as guard:
            book.record_polls([poll(60 * 24 * 60, machine("i-0"))])
            guard.add_override(acts.wish("after", at=LATER, until=LATER + HOUR))
    except (CostguardError, sqlite3.Error) as error:
        yield REFUSED, f"it cannot be written any more: {error}"
        return
    for words in COMMANDS:
        code, said = _ran(words)
        if code:
            yield REFUSED, f"costguard {' '.join(words)} ended with {code}: {said}"
    with judge.opened(ledger) as connection:
        yield from ((judge.DAMAGED, said) for said in judge.damage(connection))
        yield from ((judge.LOST, said) for said in judge.broken(connection, found.kept(done)))
        if connection.execute("SELECT count(*) FROM wish WHERE id = 'after'").fetchone() != (1,):
            yield judge.LOST, "what was written after the cut"


def _ran(words: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_cli(words)
    return code, (err.getvalue() or out.getvalue())[:300]
