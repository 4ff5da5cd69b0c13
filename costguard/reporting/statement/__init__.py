"""The statement of a period, as printed by `report`.

`groups` sums the costs by group, and `period` parses the requested period; `waste`, `savings`, `sections` and `history` hold
the further sections; `statement` combines them.
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
