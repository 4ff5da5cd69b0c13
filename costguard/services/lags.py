"""How late the measures of each provider come, as its manifest says: the same for every command, whoever is asked now.

`watch`, `plan`, `status`, `top` and `simulate` all take it from here. It opens no account and asks nobody, so it holds offline
too, and for machines that the ledger knows of a provider which the settings name no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from costguard.providers import plugins


def read_measurement_lags() -> Mapping[str, timedelta]:
    """Provider -> how old its newest measure is at best; 0 where the listing itself brings the measures."""
    return {name: one.manifest.measures_late for name, one in plugins.load_providers().found.items()}
