"""The statement: what `report` says of a period.

`sums` are its groups, `period` which period is asked for; `waste`, `saved`, `further` and `history` what is said beside them;
`whole` all of it together.
"""

from costguard.reporting.statement.groups import BY, DEFAULT_BY, Group, Sums, keys_stated, sums_of
from costguard.reporting.statement.period import month_stated
from costguard.reporting.statement.statement import Statement, providers_of

__all__ = [
    "BY",
    "DEFAULT_BY",
    "Group",
    "Statement",
    "Sums",
    "keys_stated",
    "month_stated",
    "providers_of",
    "sums_of",
]
