"""From `[providers.vast]` to accounts: which settings, which key, which address."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from costguard.providers.api_keys import KeyedAccount, check_account_table, open_keyed_accounts, read_timeout
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import ProviderContext, check_url
from costguard.values.checks import require
from costguard_vast import BASE_URL, MANIFEST
from costguard_vast.account import VastAccount
from costguard_vast.api import VastApi
from costguard_vast.keys import list_key_places
from costguard_vast.traffic import MB_PER

WHERE = "providers.vast"


def open_accounts(table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
    """A source for each account; every key is looked for, and nothing is asked."""
    stated = check_account_table(table, MANIFEST)
    base_url = parse_base_url(str(stated.get("base_url", BASE_URL)))
    unit, timeout_s = _parse_traffic_unit(str(stated.get("traffic_unit", "")).strip()), read_timeout(stated, MANIFEST)
    _check_account_ids(stated)

    def account(key: KeyedAccount) -> VastAccount:
        return VastAccount(
            api=VastApi(around.transport, base_url=base_url, key=key),
            around=around,
            key=key,
            timeout_s=timeout_s,
            traffic_unit=unit,
            unverified=stated.get("unverified") is True,
        )

    return open_keyed_accounts(stated, MANIFEST, list_key_places(around.home, around.environ), around, account, nameless="")


def parse_base_url(stated: str) -> str:
    """Where the API is, without its /api and version: both versions are asked."""
    base = check_url(stated, f"{WHERE}.base_url")
    return re.sub(r"/api(?:/v[01])?$", "", base)


def _parse_traffic_unit(stated: str) -> str:
    """What traffic is counted in, "" where nobody says."""
    hint = "leave it out if you are unsure"
    require(not stated or stated in MB_PER, f"{WHERE}.traffic_unit", f"must be {' or '.join(MB_PER)}", hint)
    return stated


def _check_account_ids(stated: Mapping[str, object]) -> None:
    """An account is called by its user id, which Vast says itself."""
    several = stated.get("accounts")
    for one in (stated, *(several if isinstance(several, list) else ())):
        name = str(one.get("account", "0")).strip()
        hint = "`costguard doctor` shows the user id of a key"
        require(name.isascii() and name.isdigit(), f"{WHERE}.account", "must be a user id, which is a whole number", hint)
