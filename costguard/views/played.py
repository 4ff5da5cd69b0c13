"""A play as a document: costguard's figures beside the simulated clouds' own bill."""

from __future__ import annotations

from fractions import Fraction

from costguard.bills.simulated_bill import CloudBillCheck, SimulatedBillCheck
from costguard.values.money import NANO, Money, divide_half_even
from costguard.values.text_format import format_interval_exact
from costguard.views.document import Document, TableView

PLACES = 9


def build_simulated_bill_document(played: SimulatedBillCheck, *, kept: str | None = None) -> Document:
    """The comparison, cloud by cloud. `kept`: the URL of the ledger it was written to, if that was kept."""
    resources = sum(len(cloud.resources) for cloud in played.clouds)
    stated = sum(cloud.stated for cloud in played.clouds)
    right = resources - len(played.wrong)
    days = played.period.length.days
    faults = ", ".join(f"{count:,} {name}" for name, count in sorted(played.faults.items()))
    met = ", ".join(f"{count:,} {name}" for name, count in played.met.items())
    since = f"{played.period.start:%Y-%m-%d}"
    watched = f"watched through {played.listings:,} listings of {played.scopes} scopes"
    lead = (
        f"{days} days of {len(played.clouds)} simulated clouds from {since} (seed {played.seed}), {watched}.",
        f"What happened: {met}. What went wrong with listings: {faults}.",
        "The bill is the clouds' own, computed apart from costguard in exact fractions of a dollar.",
    )
    notes = [
        f"{right} of {resources} resources are right. {stated} are known exactly and equal their bill to the nano-dollar;"
        " of the others the bill lies inside the interval."
        if right == resources
        else f"WRONG: of {resources - right} of {resources} resources the bill lies outside the interval.",
    ]
    if kept:
        notes.append(f"The ledger was kept. Ask it: COSTGUARD_LEDGER__URL={kept} costguard report")
    return Document(
        data=_build_simulated_bill_data(played, kept),
        records=tuple(_build_cloud_record(cloud) for cloud in played.clouds),
        lead=lead,
        tables=(_build_cloud_table(played),),
        notes=tuple(notes),
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


def _build_simulated_bill_data(played: SimulatedBillCheck, kept: str | None) -> dict[str, object]:
    return {
        "seed": played.seed,
        "start": played.period.start.isoformat().replace("+00:00", "Z"),
        "end": played.period.end.isoformat().replace("+00:00", "Z"),
        "listings": played.listings,
        "faults": dict(sorted(played.faults.items())),
        "met": dict(played.met),
        "ledger": kept,
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


def _format_dollars(amount: Fraction) -> str:
    nano = divide_half_even(amount.numerator * NANO, amount.denominator)
    return Money(nano=nano).format(PLACES)
