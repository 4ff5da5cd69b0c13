"""From `[providers.lambda]` to accounts that can be asked: settings, keys, and one rate limiter for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from costguard.errors import CredentialsError, ForbiddenError, ThrottledError, UnreachableError
from costguard.providers.api_keys import DEFAULT_ACCOUNT, KeyedAccount, check_account_table, open_keyed_accounts, read_timeout
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import ProviderChannel, ProviderContext, Secret, TokenBucket, check_url
from costguard_lambda import MANIFEST
from costguard_lambda.account import LambdaAccount
from costguard_lambda.api import LambdaApi, make_fault_reader
from costguard_lambda.keys import list_key_places

WHERE = "providers.lambda"
VERSION = "/api/v1"
BASE_URL = f"https://cloud.lambda.ai{VERSION}"
"""The old host, cloud.lambdalabs.com, is marked as deprecated (OpenAPI 1.10.0, 2026-08)."""
ADVICE = {
    CredentialsError: "make a key at https://cloud.lambda.ai/api-keys and set LAMBDA_API_KEY",
    ForbiddenError: "look at the account at https://cloud.lambda.ai: what runs in an unpaid one may go on billing",
    ThrottledError: "Lambda allows about one request a second for all keys and tools of an account together",
    UnreachableError: "see https://status.lambda.ai",
}


def open_accounts(
    table: Mapping[str, object], around: ProviderContext, *, per_s: float, pause_s: float
) -> Sequence[InstanceSource]:
    """An account for each that `table` states; without any, the one of the default key."""
    stated = check_account_table(table, MANIFEST)
    base_url, timeout_s = parse_base_url(str(stated.get("base_url", BASE_URL))), read_timeout(stated, MANIFEST)

    def account(key: KeyedAccount) -> LambdaAccount:
        name = key.account or DEFAULT_ACCOUNT
        api = LambdaApi(_open_channel(around, key, name, base_url, per_s=per_s, pause_s=pause_s))
        return LambdaAccount(name=name, api=api, key=key, around=around, timeout_s=timeout_s)

    return open_keyed_accounts(stated, MANIFEST, list_key_places(around.home), around, account)


def parse_base_url(stated: str) -> str:
    """Where the API is. Lambda's spec names the host alone as its server, and begins every path with the version."""
    base = check_url(stated, f"{WHERE}.base_url")
    return base if urlsplit(base).path else f"{base}{VERSION}"


def _open_channel(
    around: ProviderContext, key: KeyedAccount, name: str, base_url: str, *, per_s: float, pause_s: float
) -> ProviderChannel:
    """With one bucket for everything: a burst of one, for which an act goes before every waiting read."""
    return ProviderChannel(
        around.transport,
        provider=MANIFEST.name,
        base_url=base_url,
        account=name,
        headers={"Authorization": Secret(f"Bearer {key.key.reveal()}"), "Accept": "application/json"},
        buckets={"": TokenBucket(per_s)},
        fault=make_fault_reader(pause_s),
        advice=ADVICE,
    )
