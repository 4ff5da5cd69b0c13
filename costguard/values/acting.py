"""How a provider received an act. That it was accepted proves nothing: a deed is done when the listing says so."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.values.checks import require_one_of

ACCEPTED, ALREADY, REFUSED, MISSING, UNCLEAR = "accepted", "already", "refused", "missing", "unclear"
ACTION_RESPONSES = {
    ACCEPTED: "the provider took the request",
    ALREADY: "it is in that state, or on its way there",
    REFUSED: "the provider said no, and nothing was done",
    MISSING: "the provider says that there is no such instance",
    UNCLEAR: "no answer that can be believed: it may have worked or not, so look before anything else",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResponse:
    """`said`: one of RECEPTIONS. `why`: the provider's reason in words, without secrets; "" where there is none to give."""

    said: str
    why: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.said, ACTION_RESPONSES, "reception")
