"""The guard: against Cloud Custodian, judging a large fleet, and staying: `python -m bench.guard [PART ...]`.

Parts: custodian judge resident cycle. Clients are processes, in turn; times are user CPU, but where wall time is said. Nothing
asserts them: what is checked is that both sides found the same machines, and that the survey judged the fleet as it was made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from bench.guard_custodian import custodian
from bench.guard_cycle import cycle
from bench.guard_judge import judge
from bench.guard_resident import resident
from bench.measured import Measured, table

PARTS: dict[str, Callable[[], Iterable[Measured]]] = {
    "custodian": custodian,
    "judge": judge,
    "resident": resident,
    "cycle": cycle,
}


def main() -> int:
    """0 where every target is met."""
    asked = sys.argv[1:] or list(PARTS)
    if unknown := [word for word in asked if word not in PARTS]:
        sys.exit(f"there is no part {unknown[0]}: name any of {' '.join(PARTS)}")
    return int(sum(table(PARTS[name]()) for name in asked) > 0)


if __name__ == "__main__":
    sys.exit(main())
