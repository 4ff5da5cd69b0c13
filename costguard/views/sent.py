"""What became of a report that was sent by hand: `costguard.report_sent/1`, one record a channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costguard.guard.alerts.alert import DeliveryResult
from costguard.views.document import Document, TableView

SCHEMA = "costguard.report_sent/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDelivery:
    """One try. `to`: the channel as people may see it. `enclosed`: the names of the files that went with it."""

    to: str
    delivery: DeliveryResult
    enclosed: tuple[str, ...] = ()


def build_delivery_document(label: str, title: str, sent: Sequence[ReportDelivery]) -> Document:
    """All tries. `label`: of the period. `title`: of the message."""
    records = tuple(
        {
            "to": one.to,
            "sent": one.delivery.sent,
            "why": one.delivery.why or None,
            "enclosed": list(one.enclosed),
        }
        for one in sent
    )
    rows = tuple((one.to, _format_outcome(one.delivery), ", ".join(one.enclosed) or "-") for one in sent)
    return Document(
        data={"schema": SCHEMA, "period": label, "title": title, "sent": list(records)},
        records=tuple({**record, "enclosed": " ".join(one.enclosed)} for record, one in zip(records, sent, strict=True)),
        lead=(title,),
        tables=(TableView(title="", columns=("to", "sent", "enclosed"), rows=rows),),
    )


def _format_outcome(delivery: DeliveryResult) -> str:
    return "yes" if delivery.sent else f"no: {delivery.why}"
