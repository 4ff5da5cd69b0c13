"""Alerts about what is unusual (`guard.anomalies`): what, how much more than usual, since when, and which machines.

    spending of alice is unusual: $29.90 an hour instead of $5.98
    cost: $29.9000 an hour
    usual: $5.98 an hour at this time of a working day
    machines: 8 new or costlier: sweep-1, sweep-2 ...

Each is told once, and holds for a day after it was last found, so that one that comes and goes in that time is one alert.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo

from costguard.guard.alerts.alert import UNUSUAL, WARNING, Alert, format_alert_rate, format_alert_sum
from costguard.guard.alerts.fleet import join_names
from costguard.guard.anomalies import ACCOUNT, DAY, DISK, GPU, NEW, OWNER, PRICE, REGION, TYPE, Anomaly
from costguard.values.money import Money, Rate
from costguard.values.text_format import format_near_time

NEXT = "nothing automatic: stop what nobody needs, or [anomalies] enabled = false"
NAMES: Mapping[str, tuple[str, str]] = {
    OWNER: ("spending of {}", "spending on machines and disks without an owner"),
    GPU: ("spending on {}", "spending on machines and disks without a GPU"),
    REGION: ("spending in region {}", "spending without a region"),
    ACCOUNT: ("spending of account {}", "spending without an account"),
}
NEW_NAMES = {ACCOUNT: "account {}", REGION: "region {}", TYPE: "GPU or machine type {}"}


def build_unusual_alert(anomaly: Anomaly, now: datetime, zone: tzinfo) -> Alert:
    """Build the alert of `anomaly` as it was found last."""
    subject, currency = anomaly.subject, anomaly.subject.currency
    present = _format_amount(anomaly.present, currency, anomaly.kind)
    usual = _format_amount(anomaly.usual, currency, anomaly.kind)
    name = _name_subject(anomaly)
    what = f"{name} for the first time: {present}" if anomaly.kind == NEW else f"{name}: {present} instead of {usual}"
    keys = list(dict.fromkeys(one.key for one in anomaly.lines))
    names = {one.key: one.name or one.key.id for one in anomaly.lines}
    owners = tuple(dict.fromkeys(one.attribution.owner for one in anomaly.lines if one.attribution.owner))
    more = Money(nano=max(0, anomaly.present - anomaly.usual), currency=currency)
    facts = (
        *((("per hour", _format_rate(anomaly.present, currency)),) if anomaly.kind != DAY else ()),
        ("more than usual", f"{format_alert_sum(more)} {'in 24 hours' if anomaly.kind == DAY else 'an hour'}"),
        ("since", format_near_time(anomaly.since, now, zone)),
        *((("machines", f"{len(keys)}, the newest first: {join_names([names[key] for key in keys])}"),) if keys else ()),
        *((("owners", join_names(owners)),) if owners and subject.dimension != OWNER else ()),
        ("next", NEXT),
    )
    return Alert(
        topic=f"{UNUSUAL}:{anomaly.kind}",
        subject=" ".join(part for part in subject[:2] if part),
        owner=subject.name if subject.dimension == OWNER else "",
        owners=owners,
        severity=WARNING,
        what=what,
        at=now,
        facts=facts,
        once=True,
    )


def _name_subject(anomaly: Anomaly) -> str:
    dimension, name, _ = anomaly.subject
    if anomaly.kind == NEW:
        return f"{NEW_NAMES[dimension].format(name)} costs money"
    if anomaly.kind == PRICE:
        return f"the price of {name} rose"
    if anomaly.kind == DISK:
        return f"the disk of {anomaly.lines[0].name or name} grew"
    called, unnamed = NAMES[dimension]
    return f"{called.format(name) if name else unnamed} is unusual"


def _format_amount(nano: int, currency: str, kind: str) -> str:
    return f"{format_alert_sum(Money(nano=nano, currency=currency))} {'in 24 hours' if kind == DAY else 'an hour'}"


def _format_rate(nano: int, currency: str) -> str:
    return format_alert_rate(Rate(nano_per_hour=nano, currency=currency))


def list_machine_subjects(anomaly: Anomaly) -> frozenset[str]:
    """Return the subjects that alerts about its machines alone have."""
    return frozenset(one.key.path for one in anomaly.lines)
