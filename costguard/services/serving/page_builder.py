"""What pages, status and metrics are made of: built from the ledger once a run, in threads of the web's process."""

from __future__ import annotations

from datetime import datetime

from costguard.errors import CostguardError
from costguard.services.serving.fleet_page import FleetPage, build_fleet_page
from costguard.settings import Settings, read_settings
from costguard.system.process import pause_gc


class PageBuilder:
    """Builds from the ledger. `config`: the settings file; `stated`: the settings until it is read."""

    def __init__(self, config: str | None, settings: Settings | None = None) -> None:
        self._config, self._stated = config, settings

    def build_status(self) -> bytes:
        """Return the status as `costguard status --offline --json` prints it, by the settings as they are now."""
        return build_status_text(self._read_settings())

    def build_metrics(self) -> bytes:
        """Return the text for Prometheus."""
        return build_metrics_text(self._read_settings())

    def build_fleet(self, now: datetime) -> FleetPage:
        """Return the fleet as of `now`."""
        return build_fleet_page(self._read_settings(), now)

    def _read_settings(self) -> Settings:
        """Return the settings as the file has them now; if it is invalid, as they were."""
        if self._config is not None or self._stated is None:
            try:
                self._stated = read_settings(self._config)
            except CostguardError:
                if self._stated is None:
                    raise
        return self._stated


def build_status_text(settings: Settings) -> bytes:
    """Return the status as `costguard status --offline --json` prints it."""
    from costguard.providers.plugins import load_renderer
    from costguard.services.report.ledger_answers import get_now
    from costguard.services.report.status_answer import load_current_view
    from costguard.views.status import build_status_document

    with pause_gc():
        view = load_current_view(settings, settings.defaults.timezone, get_now())
        document = build_status_document(view.status, (), view.head, settings.display.find_exchange(view.status.at))
        return load_renderer("json")(document).encode()


def build_metrics_text(settings: Settings) -> bytes:
    """Return the text for Prometheus."""
    from costguard.services.report.metrics import load_metrics, render_metrics

    with pause_gc():
        return render_metrics(load_metrics(settings))
