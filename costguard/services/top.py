"""Data and commands of `costguard top`: the present state, a lease, an approval. It sends no act itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costguard.guard.policy import STOP
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.observations import load_samples_since
from costguard.services import ledger_answers, overrides
from costguard.settings import load_zone, read_settings, resolve_ledger_url
from costguard.values.resource import INSTANCE
from costguard.views.top import WINDOW, TopView, build_top_view

if TYPE_CHECKING:  # a type and no more
    from costguard.services.poll_now import PollNowResult

LEASE_LENGTH = "2h"


class TopSession:
    """A session of `costguard top`. `offline`: it never polls the providers."""

    def __init__(self, *, zone: str | None = None, offline: bool = False, config: str | None = None) -> None:
        self.config, self.offline = config, offline
        self.settings = read_settings(config)
        self.zone = self.settings.defaults.zone if zone is None else load_zone(zone, "--zone")
        self._looked: PollNowResult | None = None

    def poll(self) -> None:
        """Poll the providers into the ledger, as `costguard status` does."""
        if self.settings.providers and not self.offline:
            from costguard.services.poll_now import poll_providers_now

            self._looked = poll_providers_now(self.settings)

    def build_view(self) -> TopView:
        """Build the view from the ledger."""
        status, _ = ledger_answers.load_current_status(self.settings, self.zone, self._looked)
        keys = [one.live.observation.key for one in status.resources if one.live.observation.kind == INSTANCE]
        with LedgerReader(resolve_ledger_url(self.settings)) as reader, reader.snapshot() as ask:
            samples = load_samples_since(ask, status.at - WINDOW, keys)
        return build_top_view(status, samples, self._looked.told if self._looked else ())

    def keep(self, machine: str, why: str) -> str:
        """Make a lease of LEASE_LENGTH as `costguard keep` does, and return its message."""
        return "\n".join(overrides.keep_resource(machine, length=LEASE_LENGTH, why=why, config=self.config).document.lead)

    def approve(self, machine: str, why: str) -> str:
        """Approve the requested stop as `costguard approve ID stop` does, and return its message."""
        said = overrides.approve_action(machine, STOP, why=why, config=self.config).document
        return "\n".join((*said.lead, *said.notes))
