"""The content of `costguard top`: one row per machine with its recent GPU utilisation, and totals above the rows.

Example of the last hour in twelve parts, oldest first, two of them not measured: `▁▁▃█████··▇█`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.errors import shorten, to_one_line
from costguard.reporting.status import FleetStatus, ResourceBurn
from costguard.values.resource import INSTANCE, ResourceKey
from costguard.values.sample import GPU_UTIL, Sample
from costguard.values.text_format import (
    RATE_PLACES,
    format_bounds,
    format_interval,
    format_length,
    format_local_time,
    get_currency_sign,
)
from costguard.views.budget_status import describe_budget
from costguard.views.runways import list_runway_lines
from costguard.views.status import list_status_warnings

WINDOW, SPARK_PARTS = timedelta(hours=1), 12
"""How far a row looks back, and in how many parts."""

SPARK_BLOCKS, NOT_MEASURED = "▁▂▃▄▅▆▇█", "·"
FULL = 100.0
LONGEST_NAME = 40
RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """A machine.

    `duty`: GPU utilisation in percent in each part of the last hour; None if not measured. `burn`: nano-units per hour.
    `words`: the text that a filter searches.
    """

    key: ResourceKey
    called: str
    what: str
    owner: str
    rate: str
    burn: int
    spent: str
    work: str
    since: str
    kept: str
    duty: tuple[float | None, ...]
    words: str

    @property
    def whole(self) -> str:
        """Return the full identifier of the machine: `aws/123/us-east-1/i-0a1`."""
        return "/".join(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """All machines at the time `at`.

    `head`: lines with totals. `warnings`: reasons why the totals are uncertain.
    """

    at: datetime
    head: tuple[str, ...]
    warnings: tuple[str, ...]
    rows: tuple[TopRow, ...]


SORT_ORDERS: Mapping[str, Callable[[TopRow], tuple[object, ...]]] = {
    "burn": lambda row: (-row.burn, row.key),
    "name": lambda row: (row.called.casefold(), row.key),
    "owner": lambda row: (row.owner.casefold(), -row.burn, row.key),
    "work": lambda row: (row.work, -row.burn, row.key),
    "duty": lambda row: (next((value for value in reversed(row.duty) if value is not None), FULL + 1), -row.burn, row.key),
}
"""What rows can be sorted by: burn falls, all others rise. Who is not measured stands last by duty."""


def build_top_view(status: FleetStatus, samples: Mapping[ResourceKey, Sequence[Sample]], told: Sequence[str] = ()) -> TopView:
    """Return `status` as rows, with `samples` of the last WINDOW and the further warnings `told`."""
    machines = (one for one in status.resources if one.live.observation.kind == INSTANCE)
    return TopView(
        at=status.at,
        head=tuple(_list_head_lines(status)),
        warnings=tuple(dict.fromkeys((*list_status_warnings(status), *told))),
        rows=tuple(_build_top_row(one, status, samples.get(one.live.observation.key, ())) for one in machines),
    )


def filter_top_rows(view: TopView, order: str, words: str) -> list[TopRow]:
    """Return the rows that contain every one of `words`, ignoring case, sorted by `order`."""
    wanted = words.casefold().split()
    return sorted((row for row in view.rows if all(word in row.words for word in wanted)), key=SORT_ORDERS[order])


def format_sparkline(duty: Iterable[float | None]) -> str:
    """Return the percentages as block characters; a dot if not measured."""
    return "".join(
        NOT_MEASURED
        if value is None
        else SPARK_BLOCKS[min(len(SPARK_BLOCKS) - 1, max(0, int(value / FULL * len(SPARK_BLOCKS))))]
        for value in duty
    )


def compute_duty(samples: Iterable[Sample], at: datetime) -> tuple[float | None, ...]:
    """Return the mean GPU utilisation of each part of the WINDOW that ends at `at`."""
    parts: list[list[float]] = [[] for _ in range(SPARK_PARTS)]
    for one in samples:
        age = at - one.at
        if one.signal == GPU_UTIL and timedelta() <= age < WINDOW:
            parts[SPARK_PARTS - 1 - int(age / (WINDOW / SPARK_PARTS))].append(one.value)
    return tuple(sum(part) / len(part) if part else None for part in parts)


def _list_head_lines(status: FleetStatus) -> Iterator[str]:
    usd = status.usd
    seen = sum(scope.seen for scope in status.scopes)
    yield (
        f"${usd.burn.stated.format(RATE_PLACES)}/h   {seen} of {len(status.scopes)} accounts read   "
        f"{format_local_time(status.at)}"
    )
    forecast = f"${format_interval(usd.forecast)} by its end at the current burn"
    yield f"{status.label} ({status.zone}): ${format_interval(usd.to_date)} so far, {forecast}"
    for other in status.others:
        code = get_currency_sign(other.currency)
        yield f"Apart from that: {code}{other.burn.stated.format(RATE_PLACES)}/h, {code}{format_interval(other.to_date)} so far"
    yield from list_runway_lines(status.runways or (), status.at)
    yield from (describe_budget(one, status.at) for one in status.budgets)


def _build_top_row(one: ResourceBurn, status: FleetStatus, samples: Sequence[Sample]) -> TopRow:
    seen = one.live.observation
    running = one.state == RUNNING
    what = f"{seen.gpu_count:g}x{seen.gpu}" if seen.gpu else seen.instance_type or "-"
    called, owner = (_shorten_text(text) for text in (seen.name or seen.key.id, one.owner or "-"))
    work = one.work.state if running else one.state
    spent = one.live.spent
    return TopRow(
        key=seen.key,
        called=called,
        what=_shorten_text(what),
        owner=owner,
        rate=_format_rate(one),
        burn=sum(burn.bounds.expected.nano for burn in one.burns),
        spent=f"{get_currency_sign(spent.low.currency)}{spent.expected.format()}",
        work=work,
        since=format_length(status.at - one.work.since) if running and one.work.since else "-",
        kept=_format_protection(one, status),
        duty=compute_duty(samples, status.at),
        words=" ".join((*seen.key, seen.name, what, one.owner, seen.tier, work)).casefold(),
    )


def _format_rate(one: ResourceBurn) -> str:
    """Return `$2.4900`, `~$2.4900` for an estimate, or `unknown` with bounds; several currencies are joined."""
    parts = []
    for burn in one.burns or (one.get_burn(),):
        code = get_currency_sign(burn.currency)
        bounds = f"{code}{format_bounds(burn.bounds.low, burn.bounds.high, RATE_PLACES)}"
        mark = "~" if burn.guessed else ""
        parts.append(f"unknown ({bounds})" if burn.unknown else f"{mark}{code}{burn.stated.format(RATE_PLACES)}")
    return " + ".join(parts)


def _format_protection(one: ResourceBurn, status: FleetStatus) -> str:
    if one.beside.protected:
        return "protected"
    lease = one.beside.lease
    return f"kept for {format_length(lease.until - status.at)}" if lease and lease.until else "kept" if lease else ""


def _shorten_text(text: str) -> str:
    return shorten(to_one_line(text), LONGEST_NAME)
