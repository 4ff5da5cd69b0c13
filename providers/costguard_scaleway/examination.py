"""The checks of `costguard doctor` for a Scaleway account, without acting and without cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from costguard.errors import CredentialsError, ForbiddenError, ProviderError, to_one_line
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import Deadline
from costguard.values.money import ExchangeRate
from costguard.values.provider import (
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_SKIPPED,
    CHECK_UNSURE,
    CLOCK_CHECK,
    CREDENTIALS_CHECK,
    PERMISSION_CHECK,
    REACHABLE_CHECK,
    UTILIZATION_CHECK,
    HealthCheck,
)
from costguard_scaleway.api import ScalewayApi

SKEW_S = 30.0
"""Seconds by which two clocks may differ before times cannot be compared."""
NEW_KEY = "make an API key at https://console.scaleway.com/iam/api-keys, then: export SCW_SECRET_KEY=..."
RIGHTS = (
    ("list Instances", "/instance/v1/zones/{}/servers", "InstancesReadOnly"),
    ("list local volumes", "/instance/v1/zones/{}/volumes", "InstancesReadOnly"),
    ("list block volumes", "/block/v1/zones/{}/volumes", "BlockStorageReadOnly"),
    ("list addresses", "/instance/v1/zones/{}/ips", "InstancesReadOnly"),
    ("prices", "/instance/v1/zones/{}/products/servers", "InstancesReadOnly"),
)
"""What is asked, where, and the IAM permission set that allows it (names from memory, 2026-12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedAccount:
    """What is examined. `zone`: the one that is asked."""

    api: ScalewayApi
    key: KeyedAccount
    zone: str
    now: Callable[[], datetime]
    timeout_s: int
    exchange: ExchangeRate | None


def examine_account(account: ExaminedAccount) -> tuple[HealthCheck, ...]:
    """Run the checks in order; those after a wrong key or a failed connection are skipped."""
    deadline = Deadline(account.timeout_s)
    source = f"{account.key.source}, ending in {account.key.key.get_hint()}"
    errors = {RIGHTS[0][0]: _find_error(account.api, RIGHTS[0][1].format(account.zone), deadline)}
    first = errors[RIGHTS[0][0]]
    if isinstance(first, CredentialsError):
        refused = f"{source}: {to_one_line(first.what)}"
        return (
            HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=refused, fix=NEW_KEY),
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="Scaleway answers"),
            *_skip_checks("the key is refused"),
        )
    if first is not None and not isinstance(first, ForbiddenError):
        fix = first.hint or f"try `curl https://api.scaleway.com/instance/v1/zones/{account.zone}/products/servers`"
        return (
            HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_UNSURE, told=f"{source}; not tried"),
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=to_one_line(first.what), fix=fix),
            *_skip_checks("Scaleway cannot be reached"),
        )
    for name, path, _ in RIGHTS[1:]:
        errors[name] = _find_error(account.api, path.format(account.zone), deadline)
    return (
        HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=source),
        HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="Scaleway answers"),
        *(_check_right(name, errors[name], needed) for name, _, needed in RIGHTS),
        HealthCheck(
            subject=f"{PERMISSION_CHECK}: stop, terminate, start",
            outcome=CHECK_UNSURE,
            told="they cannot be tested without acting; they need InstancesFullAccess",
        ),
        _check_exchange(account.exchange),
        _check_clock(account),
        _check_utilization(),
    )


def _find_error(api: ScalewayApi, path: str, deadline: Deadline) -> ProviderError | None:
    try:
        api.check_list(path, deadline)
    except ProviderError as broken:
        return broken
    return None


def _skip_checks(why: str) -> tuple[HealthCheck, ...]:
    subjects = (*(f"{PERMISSION_CHECK}: {name}" for name, _, _ in RIGHTS), CLOCK_CHECK, UTILIZATION_CHECK)
    return tuple(HealthCheck(subject=subject, outcome=CHECK_SKIPPED, told=why) for subject in subjects)


def _check_right(name: str, broken: ProviderError | None, needed: str) -> HealthCheck:
    subject = f"{PERMISSION_CHECK}: {name}"
    if broken is None:
        return HealthCheck(subject=subject, outcome=CHECK_GOOD, told="")
    fix = (
        f"give the key's IAM application the permission set {needed}"
        if isinstance(broken, ForbiddenError)
        else broken.hint or ""
    )
    return HealthCheck(subject=subject, outcome=CHECK_BAD, told=to_one_line(broken.what), fix=fix or NEW_KEY)


def _check_exchange(exchange: ExchangeRate | None) -> HealthCheck:
    subject = "exchange rate"
    if exchange is not None:
        return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=exchange.label)
    text = "Scaleway's prices are in euros: without a rate they are a range in dollars"
    fix = 'set [providers.scaleway] exchange_rate = "1 USD = 0.92 EUR on 2026-11-01 (ECB)", with the rate of today'
    return HealthCheck(subject=subject, outcome=CHECK_UNSURE, told=text, fix=fix)


def _check_clock(account: ExaminedAccount) -> HealthCheck:
    date = account.api.channel.date
    if date is None:
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_UNSURE, told="Scaleway's answers have no date")
    skew = (account.now() - date).total_seconds()
    text = f"this clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} Scaleway's"
    if abs(skew) > SKEW_S:
        fix = "set this machine's clock: timedatectl set-ntp true"
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_BAD, told=text, fix=fix)
    return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_GOOD, told=text)


def _check_utilization() -> HealthCheck:
    text = "Scaleway's API states no work of a GPU: only an agent on the machine can detect idleness"
    return HealthCheck(
        subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=text, fix="costguard agent enrol ID, for each machine"
    )
