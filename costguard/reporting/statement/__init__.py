"""The statement: what `report` says of a period.

`sums` are its groups, `period` which period is asked for; `waste`, `saved`, `further` and `history` what is said beside them;
`whole` all of it together.
"""

from costguard.reporting.statement.groups import (
    DEFAULT_GROUP_KEYS,
    GROUP_KEYS,
    CostGroup,
    CurrencySums,
    parse_group_keys,
    sum_by_currency,
)
from costguard.reporting.statement.period import parse_month
from costguard.reporting.statement.statement import Statement, list_providers

__all__ = [
    "DEFAULT_GROUP_KEYS",
    "GROUP_KEYS",
    "CostGroup",
    "CurrencySums",
    "Statement",
    "list_providers",
    "parse_group_keys",
    "parse_month",
    "sum_by_currency",
]
