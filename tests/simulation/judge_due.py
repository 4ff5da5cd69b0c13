"""What was wanted and not done: a due, unheld stop is requested in three guard runs, or somebody is told. Knows no costguard.

Each acting run wrote down what was due (`due`), and the ledger's escalations whose stop counts as done although no intent is
open (`counted`): a lost stop, if no request came in that life and the machine truly runs on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta

from tests.simulation.reading import Entry, Record, instant, micros

RUNS_MAX = 3
STEPS_BEFORE = timedelta(minutes=30)
WORDS = "held|late|overdue|not done|not stopped|waits|refused|failed|suspended|accept|asked because|not confirmed"
NOT_DONE = re.compile(rf"\b({WORDS})\b", re.IGNORECASE)
EARLIER = re.compile("held by the limit|no stop while it is blocked|asked because|or unknown at once")
"""What an announcement says beforehand, so that nobody waits for the act."""
COUNTED = """
SELECT c.external_id, c.life FROM climb AS c WHERE c.done LIKE '%1%' AND NOT EXISTS (
SELECT 1 FROM intent AS i WHERE i.external_id = c.external_id AND i.life = c.life
AND i.state IN ('planned', 'grace', 'ready', 'executing', 'verifying', 'unconfirmed'))
"""
"""Of policies whose second step is the stop, as those of all worlds."""


def violations(record: Record) -> Iterator[str]:
    """Yield a sentence for each machine, the first time."""
    runs, waiting, seen = list(record.of("wanted")), dict[str, list[Entry]](), set[str]()
    rows = record.rows("SELECT at_us, payload FROM outbox ORDER BY at_us") if runs else []
    written = [(at, json.dumps(notice)) for at, payload in rows for notice in json.loads(payload)["notices"]]
    for number, run in enumerate(runs):
        lost = {name for name, life in run["counted"] if _is_lost(record, run, name, life)}
        wanted = {name for name, _ in run["due"]} | lost
        waiting = {name: [*waiting.get(name, ()), run] for name in wanted - seen}
        end = runs[number + 1]["at"] if number + 1 < len(runs) else micros(record.end)
        for name, ones in waiting.items():
            sent = any(one.name == name and ones[0]["at"] <= micros(one.at) < end for one in record.asked)
            if len(ones) == RUNS_MAX and not sent and not _is_told(name, ones[0]["clock_at"], run["clock_at"], written):
                seen.add(name)
                what = "its stop counts as done" if name in lost else "nothing lasting holds it"
                yield f"{instant(run['at']):%H:%M:%S} {name} was due in {RUNS_MAX} runs, neither sent nor told, and {what}"


def _is_lost(record: Record, run: Entry, name: str, life: str) -> bool:
    """Whether it runs on in this life, nobody wishes that, and no request to it ever came."""
    at, began = run["at"], life.partition("/")[0]
    known = [one["turns"] for one in record.of("turns") if one["name"] == name and one["at"] <= at]
    _, state, started = next((turn for turn in reversed(known[-1] if known else []) if turn[0] <= at), (0, "", None))
    asked_about = any(one["few"] for one in record.of("machine") if one["name"] == name)  # what is measured there allows no act
    if asked_about or name in record.untouchable or state != "running" or began not in {"-", str(started)}:
        return False
    wished = any(one.name in {"", name} and one.at <= instant(run["clock_at"]) < one.until for one in record.wished)
    mine = (one for one in record.asked if one.name == name and micros(one.at) <= at)
    return not wished and not any(one.started_at is None or micros(one.started_at) == started for one in mine)


def _is_told(name: str, since_us: int, until_us: int, written: list[tuple[int, str]]) -> bool:
    """Whether a message since then says that it is not done, or an earlier one that something holds it."""
    early = since_us - STEPS_BEFORE // timedelta(microseconds=1)
    mine = re.compile(rf'\b{name}\b|"held:|"rail:breaker"')  # a page of one cause may name only the first machines
    about = [(at, text) for at, text in written if early <= at <= until_us and mine.search(text)]
    before = [text for at, text in about if at < since_us]
    held = any('"rail:breaker"' in text for text in before) or bool(before and EARLIER.search(before[-1]))
    return held or any(at >= since_us and NOT_DONE.search(text) for at, text in about)
