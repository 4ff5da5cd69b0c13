"""Lambda Cloud: nothing from inside stops billing.

There is no stop, an operating system's shutdown bills on, and a terminate needs the key of the whole account, which does not
belong on a machine. Source: the provider notes (lambda.md, section 5).

Nothing on the machine says for sure that it is Lambda's, so a person states it: COSTGUARD_PLACE=lambda.
"""

from __future__ import annotations

from costguard_agent.host import Surroundings
from costguard_agent.shutdown import REFUSED, UNKNOWN, Outcome, Place, Way

NAME = "lambda"
VARIABLE = "COSTGUARD_PLACE"
WHY = "on Lambda nothing from inside stops billing: only a terminate with the account's key does, from outside"


def found(around: Surroundings) -> Place | None:
    """This machine, where a person stated it."""
    return Place(NAME, "", WHY) if around.env.get(VARIABLE) == NAME else None


def ways(place: Place, around: Surroundings) -> list[Way]:
    """None."""
    del place, around
    return []


def end(way: Way, around: Surroundings) -> Outcome:
    """Refused: a shutdown would only hide that it bills."""
    del way, around
    return Outcome(REFUSED, WHY)


def state(place: Place, around: Surroundings) -> str:
    """Nobody here can tell."""
    del place, around
    return UNKNOWN
