"""Lambda Cloud: nothing from inside stops billing.

There is no stop, an operating system's shutdown bills on, and a terminate needs the key of the whole account, which does not
belong on a machine. Source: the provider notes (lambda.md, section 5).

Nothing on the machine says for sure that it is Lambda's, so a person states it: COSTGUARD_PLACE=lambda.
"""

from __future__ import annotations

from costguard_agent.host import HostView
from costguard_agent.shutdown import REFUSED, UNKNOWN, MachineIdentity, ShutdownOutcome, ShutdownWay

NAME = "lambda"
VARIABLE = "COSTGUARD_PLACE"
WHY = "on Lambda nothing from inside stops billing: only a terminate with the account's key does, from outside"


def detect_machine(around: HostView) -> MachineIdentity | None:
    """This machine, where a person stated it."""
    return MachineIdentity(NAME, "", WHY) if around.env.get(VARIABLE) == NAME else None


def list_ways(place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
    """None."""
    del place, around
    return []


def send_shutdown(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    """Refused: a shutdown would only hide that it bills."""
    del way, around
    return ShutdownOutcome(REFUSED, WHY)


def read_state(place: MachineIdentity, around: HostView) -> str:
    """Nobody here can tell."""
    del place, around
    return UNKNOWN
