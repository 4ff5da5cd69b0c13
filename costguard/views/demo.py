"""Documents of the demo: a simulated weekend, and a comparison with the simulated clouds' own bill.

The weekend shows a timeline, one notice as people receive it, the savings and the costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from fractions import Fraction

from costguard.bills.simulated_bill import CloudBillCheck, SimulatedBillCheck
from costguard.reporting.statement.statement import Statement
from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, MoneyInterval, divide_half_even
from costguard.values.text_format import format_amount, format_exact, format_instant, format_interval_exact
from costguard.views.columns import WORDS, ColumnFit
from costguard.views.document import Document, TableView
from costguard.views.report import build_report_document

BY_WORLD, TOLD_TO_PEOPLE, DONE_BY_COSTGUARD = "world", "told", "done"
"""Whose doing a moment is: what happened by itself or by a person, what people were told, what costguard did."""
LONGEST_COLUMN = 72
"""Characters of a column."""
_MARKS = {BY_WORLD: "  ", TOLD_TO_PEOPLE: "! ", DONE_BY_COSTGUARD: "* "}
_UTC_TIME = re.compile(r"(\d{4}-\d\d-\d\d )?(\d\d:\d\d) UTC")

WEEKEND_FITS: Mapping[str, ColumnFit] = {
    "what": ColumnFit(least=34, how=WORDS),
    "why": ColumnFit(rank=6, least=20, how=WORDS),
    "so far": ColumnFit(rank=5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekendEvent:
    """An event of the weekend.

    `kind`: BY_WORLD, TOLD_TO_PEOPLE or DONE_BY_COSTGUARD. `who`: the machine. `cost`: the cost as shown to people.
    """

    at: datetime
    kind: str
    who: str
    what: str
    why: str = ""
    cost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekendSaving:
    """The savings of one machine from its confirmed stop (`at`) to the end of the weekend.

    `avoided`: the compute cost until then. `disks`: the cost of its disks in that time, according to the ledger.
    """

    who: str
    act: str
    at: datetime
    avoided: Money
    disks: Money

    @property
    def net(self) -> Money:
        """Return the amount saved."""
        return self.avoided - self.disks


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekendMachine:
    """A machine: its cost according to the ledger, and its true cost to the nano-unit."""

    who: str
    money: MoneyInterval
    truth: Money
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Weekend:
    """The whole weekend.

    `letter`: title and text of a notice as it arrived. `repeats`: number of messages that repeated an open alert. `faults`:
    deviations from the expected story or ledger; empty if all is correct.
    """

    period: Period
    zone: tzinfo
    every_s: int
    polls: int
    moments: tuple[WeekendEvent, ...]
    letter: tuple[str, str]
    repeats: int
    savings: tuple[WeekendSaving, ...]
    machines: tuple[WeekendMachine, ...]
    statement: Statement
    faults: tuple[str, ...] = ()

    @property
    def saved(self) -> Money:
        """Return the total amount saved, net of disks."""
        return sum((one.net for one in self.savings), Money(nano=0))


def build_weekend_document(weekend: Weekend) -> Document:
    """Return the document with the timeline and the results."""
    right = sum(one.right for one in weekend.machines)
    title, body = weekend.letter
    report = build_report_document(weekend.statement)
    start, end, count = (
        _format_local_time(weekend.period.start, weekend),
        _format_local_time(weekend.period.end, weekend),
        len(weekend.machines),
    )
    often = f"{count} machines of {count} clouds, polled every {weekend.every_s // 60} minutes, {weekend.polls} times"
    lead = (
        f"A simulated weekend, {start} to {end} ({weekend.zone}): {often}.",
        "Only the clouds and the clock are simulated. Lines marked ! are messages to people, * are acts of costguard.",
    )
    notes = [
        "The message sent at the first of these warnings:",
        *(f"    {line}" for line in (title, *body.splitlines())),
        f"Repeated messages, not shown: {weekend.repeats}.",
        f"Saved by Monday, net of disks: ${format_amount(weekend.saved)}.",
        f"{right} of {len(weekend.machines)} machines: the ledger's interval contains the true cost.",
        *(f"WRONG: {fault}" for fault in weekend.faults),
    ]
    return Document(
        data=_build_weekend_data(weekend),
        records=tuple(_build_event_record(one) for one in weekend.moments),
        lead=lead,
        tables=(_build_timeline_table(weekend), _build_savings_table(weekend), *_list_statement_tables(report)),
        notes=tuple(notes),
    )


def _list_statement_tables(report: Document) -> Iterator[TableView]:
    for table in report.tables[:1]:
        yield TableView(title="The report of the weekend, from its ledger", columns=table.columns, rows=table.rows)


def _build_timeline_table(weekend: Weekend) -> TableView:
    rows = tuple(
        (
            _format_local_time(one.at, weekend),
            one.who,
            _MARKS[one.kind] + _shorten_event_text(one.what, one, weekend),
            _shorten_event_text(one.why, one, weekend),
            one.cost,
        )
        for one in weekend.moments
    )
    return TableView(title="", columns=("when", "machine", "what", "why", "so far>"), rows=rows, fits=WEEKEND_FITS)


def _build_savings_table(weekend: Weekend) -> TableView:
    rows = [
        (
            s.who,
            s.act,
            _format_local_time(s.at, weekend),
            format_amount(s.avoided),
            format_amount(s.disks),
            format_amount(s.net),
        )
        for s in weekend.savings
    ]
    total = ("all", "", "", _format_total(s.avoided for s in weekend.savings), _format_total(s.disks for s in weekend.savings))
    return TableView(
        title="Saved until Monday",
        columns=("machine", "act", "proven", "avoided $>", "its disks $>", "saved $>"),
        rows=(*rows, (*total, format_amount(weekend.saved))),
    )


def _format_total(amounts: Iterator[Money]) -> str:
    return format_amount(sum(amounts, Money(nano=0)))


def _shorten_event_text(text: str, event: WeekendEvent, weekend: Weekend) -> str:
    """Return the first clause of `text` for a narrow column, without the machine's hardware, in local times."""
    first = re.sub(rf"{re.escape(event.who)} \([^)]*\)", event.who, text.partition(";")[0].partition(" (confidence")[0])

    def format_time(match: re.Match[str]) -> str:
        at = datetime.fromisoformat(f"{match[1] or f'{event.at:%Y-%m-%d} '}{match[2]}").replace(tzinfo=UTC)
        return f"{at.astimezone(weekend.zone):%a %H:%M}"

    short_text = _UTC_TIME.sub(format_time, first)
    return short_text if len(short_text) <= LONGEST_COLUMN else f"{short_text[: LONGEST_COLUMN - 1]}…"


def _format_local_time(at: datetime, weekend: Weekend) -> str:
    return f"{at.astimezone(weekend.zone):%a %d %b %H:%M}"


def _build_event_record(one: WeekendEvent) -> dict[str, object]:
    return {
        "at": format_instant(one.at),
        "kind": one.kind,
        "machine": one.who,
        "what": one.what,
        "why": one.why,
        "cost": one.cost or None,
    }


def _build_weekend_data(weekend: Weekend) -> dict[str, object]:
    title, body = weekend.letter
    return {
        "start": format_instant(weekend.period.start),
        "end": format_instant(weekend.period.end),
        "zone": str(weekend.zone),
        "polls": weekend.polls,
        "moments": [_build_event_record(one) for one in weekend.moments],
        "notice": {"title": title, "text": body},
        "repeats": weekend.repeats,
        "savings": [
            {
                "machine": one.who,
                "act": one.act,
                "proven_at": format_instant(one.at),
                "avoided_usd": format_exact(one.avoided),
                "disks_usd": format_exact(one.disks),
                "saved_usd": format_exact(one.net),
            }
            for one in weekend.savings
        ],
        "saved_usd": format_exact(weekend.saved),
        "machines": [
            {
                "machine": one.who,
                "usd": format_interval_exact(one.money),
                "truth_usd": format_exact(one.truth),
                "right": one.right,
            }
            for one in weekend.machines
        ],
        "report": build_report_document(weekend.statement).data,
        "wrong": list(weekend.faults),
    }


PLACES = 9


def build_simulated_bill_document(played: SimulatedBillCheck, *, folder: str | None = None) -> Document:
    """Return the comparison by cloud.

    `folder`: the URL of the ledger if it was kept, else None.
    """
    resources = sum(len(cloud.resources) for cloud in played.clouds)
    line_count = sum(cloud.stated for cloud in played.clouds)
    right = resources - len(played.wrong)
    days = played.period.length.days
    faults = ", ".join(f"{count:,} {name}" for name, count in sorted(played.faults.items()))
    met = ", ".join(f"{count:,} {name}" for name, count in played.met.items())
    since = f"{played.period.start:%Y-%m-%d}"
    watched = f"observed by {played.listings:,} listings of {played.scopes} scopes"
    lead = (
        f"{days} days of {len(played.clouds)} simulated clouds from {since} (seed {played.seed}), {watched}.",
        f"Events: {met}. Faulty listings: {faults}.",
        "The bill is computed by the simulated clouds, independently of costguard, in exact fractions of a dollar.",
    )
    notes = [
        f"{right} of {resources} resources are right. {line_count} are known exactly and equal their bill to the nano-dollar;"
        " of the others the bill is inside the interval."
        if right == resources
        else f"WRONG: of {resources - right} of {resources} resources the bill is outside the interval.",
    ]
    if played.width_median is not None:
        notes.append(f"The median interval is {_format_share(played.width_median)} of its bill wide.")
    if folder:
        notes.append(f"The ledger was kept. Report from it: COSTGUARD_LEDGER__URL={folder} costguard report")
    return Document(
        data=_build_simulated_bill_data(played, folder),
        records=tuple(_build_cloud_record(cloud) for cloud in played.clouds),
        lead=lead,
        tables=(_build_cloud_table(played),),
        notes=(*notes, "next: costguard init --guard, after you export the key of your cloud (docs/START.md)"),
    )


def _build_cloud_table(played: SimulatedBillCheck) -> TableView:
    return TableView(
        title="",
        columns=("cloud", "resources>", "low $>", "expected $>", "high $>", "the bill $>", "exact>", "right>"),
        rows=tuple(
            (
                cloud.provider,
                str(len(cloud.resources)),
                cloud.money.low.format(PLACES),
                cloud.money.expected.format(PLACES),
                cloud.money.high.format(PLACES),
                _format_dollars(cloud.billed),
                str(cloud.stated),
                f"{len(cloud.resources) - len(cloud.wrong)} of {len(cloud.resources)}",
            )
            for cloud in played.clouds
        ),
    )


def _build_simulated_bill_data(played: SimulatedBillCheck, folder: str | None) -> dict[str, object]:
    return {
        "seed": played.seed,
        "start": played.period.start.isoformat().replace("+00:00", "Z"),
        "end": played.period.end.isoformat().replace("+00:00", "Z"),
        "listings": played.listings,
        "faults": dict(sorted(played.faults.items())),
        "met": dict(played.met),
        "width_median": None if played.width_median is None else round(float(played.width_median), 6),
        "ledger": folder,
        "clouds": [
            {
                "provider": cloud.provider,
                "resources": len(cloud.resources),
                "usd": format_interval_exact(cloud.money),
                "bill_usd": _format_dollars(cloud.billed),
                "exact": cloud.stated,
                "wrong": [one.key.id for one in cloud.wrong],
            }
            for cloud in played.clouds
        ],
    }


def _build_cloud_record(cloud: CloudBillCheck) -> dict[str, object]:
    money = format_interval_exact(cloud.money)
    return {
        "provider": cloud.provider,
        "resources": len(cloud.resources),
        **{f"usd_{end}": amount for end, amount in money.items()},
        "bill_usd": _format_dollars(cloud.billed),
        "exact": cloud.stated,
        "wrong": len(cloud.wrong),
    }


def _format_share(share: Fraction) -> str:
    """Return a share as a percentage with two significant digits: 0.33 %."""
    return f"{float(share * 100):.2g} %"


def _format_dollars(amount: Fraction) -> str:
    nano = divide_half_even(amount.numerator * NANO, amount.denominator)
    return Money(nano=nano).format(PLACES)
