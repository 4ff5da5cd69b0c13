"""The places that this agent knows: one file each, with the same four functions. What is not here is not ended from inside."""

from __future__ import annotations

from typing import Protocol

from costguard_agent.clouds import aws, gcp, lambda_, runpod, vast
from costguard_agent.host import Surroundings
from costguard_agent.shutdown import Outcome, Place, Way


class Provider(Protocol):
    """What a file of this folder has. None of it raises."""

    NAME: str

    def found(self, around: Surroundings) -> Place | None:
        """This machine, where it is one of this provider's."""

    def ways(self, place: Place, around: Surroundings) -> list[Way]:
        """How it can be ended from inside; asks the provider, ends nothing."""

    def end(self, way: Way, around: Surroundings) -> Outcome:
        """The request, sent once."""

    def state(self, place: Place, around: Surroundings) -> str:
        """running, ended or unknown, as the provider has it."""


PROVIDERS: dict[str, Provider] = {one.NAME: one for one in (runpod, vast, aws, gcp, lambda_)}
"""Rented containers first: they run on machines of anybody's."""
