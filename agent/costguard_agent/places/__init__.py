"""The places that this agent knows: one file each, with the same four functions. What is not here is not ended from inside."""

from __future__ import annotations

from typing import Protocol

from costguard_agent.clouds import aws, gcp, lambda_, runpod, vast
from costguard_agent.host import HostView
from costguard_agent.shutdown import MachineIdentity, ShutdownOutcome, ShutdownWay


class CloudPlugin(Protocol):
    """What a file of this folder has. None of it raises."""

    NAME: str

    def detect_machine(self, around: HostView) -> MachineIdentity | None:
        """This machine, where it is one of this provider's."""

    def list_ways(self, place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
        """How it can be ended from inside; asks the provider, ends nothing."""

    def send_shutdown(self, way: ShutdownWay, around: HostView) -> ShutdownOutcome:
        """The request, sent once."""

    def read_state(self, place: MachineIdentity, around: HostView) -> str:
        """running, ended or unknown, as the provider has it."""


CLOUDS: dict[str, CloudPlugin] = {one.NAME: one for one in (runpod, vast, aws, gcp, lambda_)}
"""Rented containers first: they run on machines of anybody's."""
