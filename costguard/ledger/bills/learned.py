"""The rates that settled bills state: by machine type, for one account, from the corrections that its bills made.

Example: in the last month 720 hours of an account's p4d.24xlarge were billed, each at 0.580 of the counted price, and no hour
was billed otherwise. From then on such a machine costs at least 0.580 of its price; from the next month on this is expected.
"""

from __future__ import annotations

from datetime import UTC
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Double, and_, bindparam, case, func, or_
from sqlalchemy import cast as cast_column
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from costguard.ledger.db.codecs import Query
from costguard.ledger.spans.correction_parts import Rows, join_parts
from costguard.ledger.tables.spans import AttributionRow, CorrectionPartRow, CorrectionRow, ResourceRow, SpanRow
from costguard.ledger.types import BIG_INTEGER
from costguard.metering.meter import COMPUTE, HOUR
from costguard.metering.price_ladder import LearnedRate, MachineType
from costguard.metering.span import SEEN
from costguard.values.calendar import find_month
from costguard.values.instant import DAY_US, HOUR_US, from_micros

SINCE: BindParameter[int] = bindparam("since", type_=BIG_INTEGER)
UNTIL: BindParameter[int] = bindparam("until", type_=BIG_INTEGER)
LOOKED_BACK_US = 31 * DAY_US
"""Of how long before the newest bill the lines count."""
LINES_MIN, RATIO_SPREAD_MAX, SHARE_MIN = 5, 0.02, 0.95
"""Lines, of two days, that make a rate; how far their ratios may differ; and the share of the time of all such machines that
they cover: a savings plan that covers one of two machines makes none. Assumptions, 2026-11."""


def load_learned_rates(ask: Query, provider: str, account: str) -> dict[MachineType, LearnedRate]:
    """Return what the bills of an account say of its types of machines, where all their lines say the same."""
    place, rates = {"provider": provider, "account": account}, dict[MachineType, LearnedRate]()
    if not ask(select(CorrectionPartRow.bill_line_id).where(_IS_BILLED).limit(1)):
        return rates
    newest: int | None = ask(_select_parts(func.max(CorrectionPartRow.end_us)).where(_IS_BILLED), place)[0][0]
    if newest is None:
        return rates
    ratios = ask(_select_ratios(), {**place, "since": newest - LOOKED_BACK_US, "until": newest})
    for instance_type, tier, gpu, milli, lines, least, most, first, last, billed_us, all_us in ratios:
        steady = lines >= LINES_MIN and last - first > DAY_US and most - least <= RATIO_SPREAD_MAX
        if steady and int(billed_us) >= SHARE_MIN * int(all_us):  # PostgreSQL sums to Decimal
            expected_from = find_month(from_micros(first), UTC).end
            rates[instance_type, tier, gpu, milli / 1000] = LearnedRate(round(1000 * least), round(1000 * most), expected_from)
    return rates


_IS_BILLED = col(CorrectionPartRow.bill_line_id).is_not(None)


def _select_parts(*columns: ColumnElement[Any]) -> Rows:
    """Select the certain time of the machines of an account: spans, and the parts of those that bills bound."""
    is_seen = func.coalesce(CorrectionRow.presence, SpanRow.presence) == SEEN
    is_sure = and_(col(SpanRow.charge) == COMPUTE, col(SpanRow.unit) == HOUR, col(SpanRow.price_known) == 1, is_seen)
    of_account = and_(col(ResourceRow.provider) == bindparam("provider"), col(ResourceRow.account) == bindparam("account"))
    parts = join_parts(select_columns(*columns)).join(ResourceRow, col(ResourceRow.id) == SpanRow.resource_id)
    return parts.join(AttributionRow, col(AttributionRow.id) == SpanRow.attribution_id).where(of_account, is_sure)


@cache
def _select_ratios() -> Rows:
    """Select by type of machine its lines, the extremes of their ratios and times, and the time of them and of all."""
    kind = [getattr(AttributionRow, name) for name in ("instance_type", "tier", "gpu", "gpu_count_milli")]
    start = func.coalesce(CorrectionPartRow.start_us, SpanRow.start_us)
    end = func.coalesce(CorrectionPartRow.end_us, SpanRow.end_us, UNTIL)
    hours = cast_column(end - start, Double) / HOUR_US
    counted = cast_column(SpanRow.price_high, Double) * SpanRow.quantity * hours
    ratio = case((and_(_IS_BILLED, end - start >= HOUR_US), CorrectionPartRow.expected / counted))
    extremes = (func.min(ratio), func.max(ratio), func.min(case((_IS_BILLED, start))), func.max(case((_IS_BILLED, end))))
    within = case((end > UNTIL, UNTIL), else_=end) - case((start < SINCE, SINCE), else_=start)
    times = (func.sum(case((_IS_BILLED, within), else_=0)), func.sum(within))
    lines = func.count(func.distinct(CorrectionPartRow.bill_line_id))
    parts = _select_parts(*kind, lines, *extremes, *times).where(start < UNTIL, end > SINCE, start < end)
    parts = parts.where(or_(col(SpanRow.end_us).is_(None), col(SpanRow.end_us) > SINCE))
    return parts.group_by(*kind).having(func.count(ratio) > 0)
