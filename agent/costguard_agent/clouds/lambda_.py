"""Lambda Cloud: billing cannot be stopped from inside the machine.

There is no stop, a machine whose operating system is shut down is still billed, and a terminate needs the key of the whole
account, which does not belong on a machine. Source: the provider notes (lambda.md, section 5).

Nothing on the machine identifies it reliably as Lambda's, so a person states it: COSTGUARD_PLACE=lambda.
"""

from __future__ import annotations

from costguard_agent.host import HostView
from costguard_agent.shutdown import REFUSED, UNKNOWN, MachineIdentity, ShutdownOutcome, ShutdownWay

NAME = "lambda"
VARIABLE = "COSTGUARD_PLACE"
WHY = "on Lambda nothing from inside stops billing: only a terminate with the account's key does, from outside"


def detect_machine(around: HostView) -> MachineIdentity | None:
    """Return this machine if a person stated that it is Lambda's, else None."""
    return MachineIdentity(NAME, "", WHY) if around.env.get(VARIABLE) == NAME else None


def list_ways(place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
    """Return an empty list: there is no way."""
    del place, around
    return []


def send_shutdown(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    """Refuse: a machine that is shut down is still billed, but no longer visible as running."""
    del way, around
    return ShutdownOutcome(REFUSED, WHY)


def read_state(place: MachineIdentity, around: HostView) -> str:
    """Return unknown: the state cannot be read from inside."""
    del place, around
    return UNKNOWN
