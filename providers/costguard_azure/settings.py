"""The settings of `[providers.azure]`, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from costguard.errors import InputError
from costguard.providers.transport import check_url

TIMEOUT_S, LONGEST_S = 60, 600
PLACES = {
    "endpoint": "https://management.azure.com",
    "login_endpoint": "https://login.microsoftonline.com",
    "prices_endpoint": "https://prices.azure.com",
}
"""The public cloud's addresses: azure-identity 1.27.0 and azure-mgmt-compute 39.0.0; learn.microsoft.com; 2026-11."""
FIELD = "providers.azure.subscriptions"
_SUBSCRIPTION = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """`subscriptions`: ids in lower case. `timeout_s`: for one poll.

    `endpoint`: the Resource Manager; `login`: Entra ID; `prices`: the Retail Prices API.
    """

    subscriptions: tuple[str, ...]
    endpoint: str
    login: str
    prices: str
    discover: bool = False
    timeout_s: float = TIMEOUT_S


def parse_settings(table: Mapping[str, object], environ: Mapping[str, str]) -> AzureSettings:
    """Parse the table; without subscriptions, `AZURE_SUBSCRIPTION_ID` names the only one. InputError names the invalid key."""
    listed, discover = table.get("subscriptions") or (), bool(table.get("discover"))
    ids = [str(one) for one in listed] if isinstance(listed, list | tuple) else []
    if not ids and not discover and environ.get("AZURE_SUBSCRIPTION_ID"):
        ids = [environ["AZURE_SUBSCRIPTION_ID"]]
    subscriptions = tuple(_check_subscription(one) for one in ids)
    if not subscriptions and not discover:
        hint = 'write subscriptions = ["..."] with ids of `az account list`, or discover = true for all that are visible'
        raise InputError("names no subscription", field=FIELD, hint=hint)
    if len(set(subscriptions)) < len(subscriptions):
        twice = next(one for one in subscriptions if subscriptions.count(one) > 1)
        raise InputError(f"names {twice} twice", field=FIELD, hint="its charges would be counted twice")
    timeout = table.get("timeout_s", TIMEOUT_S)
    if not isinstance(timeout, int) or not 1 <= timeout <= LONGEST_S:
        raise InputError(
            f"must be from 1 to {LONGEST_S} seconds", field="providers.azure.timeout_s", hint="write timeout_s = 60"
        )
    bases = {key: _parse_base(table, key) for key in PLACES}
    return AzureSettings(
        subscriptions=subscriptions,
        endpoint=bases["endpoint"],
        login=bases["login_endpoint"],
        prices=bases["prices_endpoint"],
        discover=discover,
        timeout_s=timeout,
    )


def _parse_base(table: Mapping[str, object], key: str) -> str:
    address = table.get(key)
    return check_url(str(address), f"providers.azure.{key}") if address else PLACES[key]


def _check_subscription(text: str) -> str:
    """Return a subscription's id in lower case; a name is refused, since it may change and be that of another one later."""
    subscription = text.strip().lower()
    if not _SUBSCRIPTION.fullmatch(subscription):
        hint = "write its id: az account list --query '[].{name:name, id:id}' -o table"
        raise InputError(f"is not a subscription's id: {text[:80]!r}", field=FIELD, hint=hint)
    return subscription
