"""`--format beancount`: charges as double-entry bookkeeping in plain text, for users of Beancount.

    2026-11-02 * "AWS" "compute: 2 resources"
      low: 59.760000000 USD
      high: 59.760000000 USD
      Expenses:Cloud:AWS:123456789012:Compute:Ada    59.760000000 USD
      Liabilities:Cloud:AWS:123456789012            -59.760000000 USD

There is one transaction per UTC day, account, kind of charge, owner and currency, with the amount that the ledger expects,
exact to the nano-unit. A transaction flagged "!" is not known exactly; its lower and upper bound are listed in it. Payments
that settle the liabilities are booked by the user.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from costguard.errors import shorten, to_one_line
from costguard.metering.charge_item import ChargeItems
from costguard.values.money import Money
from costguard.values.provider import get_seller
from costguard.values.resource import ResourceKey
from costguard.views.document import Document

NEEDS = "items"

NAME = re.compile(r"[A-Z0-9][A-Za-z0-9-]*")
"""What a part of an account's name may be: Beancount takes letters of other scripts too, and its tools do not all."""
NOT_ACCOUNT_CHARACTERS = re.compile(r"[^A-Za-z0-9]+")
LONGEST_NAME, LONGEST_TEXT = 40, 80
NOBODY = "Nobody"
"""Who bears what has no owner: no owner's account is called so, not that of the user "nobody" either."""
HEAD = """;; Costs of cloud GPUs as costguard's ledger expects them; a transaction flagged ! is not known exactly.
option "title" "Cloud costs"
"""

_PostingKey = tuple[date, str, str, str, str, str, str]
"""Day, provider, what it is called, account, charge, owner and currency."""


@dataclass(slots=True)
class _PostingSum:
    low: int = 0
    expected: int = 0
    high: int = 0
    estimated: bool = False
    unpriced: bool = False
    resources: int = 0
    last: ResourceKey | None = None


def render(document: Document) -> Iterator[str]:
    """Yield the file: options, commodities and accounts, then the transactions day by day."""
    sums = _sum_postings(document.items) if document.items is not None else {}
    yield HEAD
    days = [place[0] for place in sums]
    if not days:
        return
    first = min(days)
    currencies = sorted({place[-1] for place in sums})
    yield "".join(f'option "operating_currency" "{currency}"\n' for currency in currencies) + "\n"
    yield "".join(f"{first} commodity {currency}\n" for currency in currencies) + "\n"
    accounts = sorted({name for place in sums for name in (_format_expense_account(place), _format_liability_account(place))})
    yield "".join(f"{first} open {name}\n" for name in accounts)
    for place in sorted(sums):
        yield _format_transaction(place, sums[place])


def _sum_postings(items: ChargeItems) -> dict[_PostingKey, _PostingSum]:
    sums, sellers = dict[_PostingKey, _PostingSum](), items.sellers
    for item in items:
        of, money = item.attribution, item.money
        sold_by = get_seller(sellers, of.provider).name
        place = (item.start.date(), of.provider, sold_by, of.account, item.charge, of.owner, money.low.currency)
        posting_sum = sums.setdefault(place, _PostingSum())
        posting_sum.low += money.low.nano
        posting_sum.expected += money.expected.nano
        posting_sum.high += money.high.nano
        posting_sum.estimated |= not item.price.known
        posting_sum.unpriced |= item.unpriced
        posting_sum.resources += posting_sum.last != item.key  # items come resource by resource
        posting_sum.last = item.key
    return sums


def _format_transaction(place: _PostingKey, posting_sum: _PostingSum) -> str:
    on, _, seller, _, charge, owner, currency = place
    low, expected, high, owed = (
        f"{Money(nano=nano, currency=currency).format(9)} {currency}"
        for nano in (posting_sum.low, posting_sum.expected, posting_sum.high, -posting_sum.expected)
    )
    flag = "*" if posting_sum.low == posting_sum.high else "!"
    count = f"{posting_sum.resources} resource{'s' if posting_sum.resources != 1 else ''}"
    doubt = ", unpriced" if posting_sum.unpriced else ", at an estimated price" if posting_sum.estimated else ""
    narration = f"{charge}: {count}{f' of {owner}' if owner.strip() else ''}{doubt}"
    expense, liability = _format_expense_account(place), _format_liability_account(place)
    width = max(len(expense), len(liability)) + 2
    return (
        f"\n{on} {flag} {_quote_text(seller)} {_quote_text(narration)}\n"
        f"  low: {low}\n  high: {high}\n"
        f"  {expense:<{width}}{expected}\n  {liability:<{width}}{owed}\n"
    )


def _format_expense_account(place: _PostingKey) -> str:
    _, _, seller, account, charge, owner, _ = place
    whose = _format_account_part(owner) if owner.strip() else NOBODY
    return ":".join(
        ("Expenses:Cloud", _format_seller(seller), _format_account_part(account), _format_account_part(charge), whose)
    )


def _format_liability_account(place: _PostingKey) -> str:
    return ":".join(("Liabilities:Cloud", _format_seller(place[2]), _format_account_part(place[3])))


def _format_seller(seller: str) -> str:
    """Return the account part for a seller: Vast-ai for Vast.ai; dots and spaces become hyphens."""
    return _format_account_part(re.sub(r"[. ]", "-", seller))


def _format_account_part(text: str) -> str:
    """Return `text` as a part of an account name.

    If more than the first letter must change, six characters of a hash are appended to keep names distinct.
    """
    plain = text[:1].upper() + text[1:]
    if NAME.fullmatch(plain) and len(plain) <= LONGEST_NAME and plain != NOBODY:
        return plain
    part = NOT_ACCOUNT_CHARACTERS.sub("-", text).strip("-")[:LONGEST_NAME].strip("-")
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{part[:1].upper()}{part[1:]}-{mark}" if part else f"X-{mark}"


def _quote_text(text: str) -> str:
    """Return `text` as a quoted string on one line, with quotes and escapes in it escaped."""
    plain = shorten(to_one_line(text), LONGEST_TEXT)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
