"""The checks of `costguard doctor` for Azure: credentials, and reachability and rights of each subscription, without acting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from costguard.errors import CostguardError, CredentialsError, ProviderError, to_one_line
from costguard.providers.transport import Deadline
from costguard.values.calendar import Period
from costguard.values.provider import (
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_SKIPPED,
    CHECK_UNSURE,
    CLOCK_CHECK,
    CREDENTIALS_CHECK,
    IDENTITY_CHECK,
    PERMISSION_CHECK,
    REACHABLE_CHECK,
    UTILIZATION_CHECK,
    HealthCheck,
)
from costguard_azure.api import COMPUTE_VERSION, READER
from costguard_azure.credentials import FIX
from costguard_azure.monitoring import fetch_metrics
from costguard_azure.wire import Machine, Permission

if TYPE_CHECKING:
    from costguard_azure.account import AzureAccount

ASKED_S = 20.0
SKEW = timedelta(seconds=30)
MOST_SUBSCRIPTIONS = 10
"""Subscriptions that are looked at one by one."""
COMPUTE = "Microsoft.Compute"
RIGHTS = (
    ("list", f"{COMPUTE}/virtualMachines/read", True),
    ("scale sets", f"{COMPUTE}/virtualMachineScaleSets/virtualMachines/read", True),
    ("volumes", f"{COMPUTE}/disks/read", True),
    ("addresses", "Microsoft.Network/publicIPAddresses/read", True),
    ("utilization", "Microsoft.Insights/metrics/read", True),
    ("stop", f"{COMPUTE}/virtualMachines/deallocate/action", False),
    ("terminate", f"{COMPUTE}/virtualMachines/delete", False),
    ("start", f"{COMPUTE}/virtualMachines/start/action", False),
)
"""What for, the action of Azure's roles, and whether watching needs it (shared/providers/azure.md, section 1)."""
ACTOR = "assign the role of config/iam/azure-actor.json on the subscription or a resource group"


def examine_account(account: AzureAccount) -> list[HealthCheck]:
    """Run every check in order; a subscription that fails is named, and the others are still checked. It raises nothing."""
    checks = [_check_credentials(account)]
    if checks[-1].outcome == CHECK_BAD:
        return [*checks, HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_SKIPPED, told="there is no token")]
    try:
        subscriptions = [scope.account for scope in account.list_scopes()]
    except CostguardError as broken:
        return [*checks, HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=to_one_line(str(broken)), fix=FIX)]
    if not subscriptions:
        fix = "assign the role Reader on a subscription, or set subscriptions in [providers.azure]"
        text = "the credentials see no subscription"
        return [*checks, HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_BAD, told=text, fix=fix)]
    reached = [_check_reach(account, one) for one in subscriptions[:MOST_SUBSCRIPTIONS]]
    checks += reached
    rest = len(subscriptions) - MOST_SUBSCRIPTIONS
    shown = ", ".join(subscriptions[:MOST_SUBSCRIPTIONS]) + (f" and {rest} more" if rest > 0 else "")
    text = f"{account.tokens.login.client or account.tokens.login.source}, for {shown}"
    checks.append(HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_GOOD, told=to_one_line(text)))
    for subscription, check in zip(subscriptions, reached, strict=False):
        checks += _check_rights(account, subscription) if check.outcome == CHECK_GOOD else ()
    return [
        *checks,
        _check_clock(account, subscriptions[0]),
        _check_utilization(account, subscriptions[0]),
    ]


def _check_credentials(account: AzureAccount) -> HealthCheck:
    tokens = account.tokens
    try:
        tokens.build_header(Deadline(ASKED_S))
    except ProviderError as broken:
        text, fix = to_one_line(broken.what), broken.hint or FIX
        return HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=text, fix=fix)
    text = f"{tokens.login.source}, ending in {tokens.read_hint()}"
    return HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=text)


def _check_reach(account: AzureAccount, subscription: str) -> HealthCheck:
    try:
        path = f"/subscriptions/{subscription}/providers/{COMPUTE}/virtualMachines"
        account.api.list_items(subscription, path, Machine, Deadline(ASKED_S), {"api-version": COMPUTE_VERSION})
    except ProviderError as broken:
        kind = CREDENTIALS_CHECK if isinstance(broken, CredentialsError) else REACHABLE_CHECK
        return HealthCheck(
            subject=f"{kind}: {subscription}",
            outcome=CHECK_BAD,
            told=to_one_line(broken.what),
            fix=broken.hint or READER,
        )
    text = f"{account.settings.endpoint} answers"
    return HealthCheck(subject=f"{REACHABLE_CHECK}: {subscription}", outcome=CHECK_GOOD, told=text)


def _check_rights(account: AzureAccount, subscription: str) -> Iterator[HealthCheck]:
    """Check the caller's actions, which Azure lists for the subscription; those of single groups are not among them."""
    try:
        granted = account.api.list_permissions(subscription, Deadline(ASKED_S)).items
    except ProviderError as broken:
        subject = f"{PERMISSION_CHECK}: {subscription}"
        yield HealthCheck(subject=subject, outcome=CHECK_UNSURE, told=to_one_line(broken.what), fix=READER)
        return
    for name, action, needed in RIGHTS:
        subject = f"{PERMISSION_CHECK}: {name} ({subscription})"
        if may_act(granted, action):
            yield HealthCheck(subject=subject, outcome=CHECK_GOOD, told=f"may {action}")
            continue
        text = (
            f"may not {action}" if needed else f"costguard can watch, not {name} (may not {action} on the whole subscription)"
        )
        fix = READER if needed else ACTOR
        yield HealthCheck(subject=subject, outcome=CHECK_BAD if needed else CHECK_UNSURE, told=text, fix=fix)


def may_act(granted: Sequence[Permission], action: str) -> bool:
    """Return whether one of the roles allows `action`: its actions name it, by `*` too, and its exceptions do not."""
    return any(_names_action(one.actions or (), action) and not _names_action(one.not_actions or (), action) for one in granted)


def _names_action(patterns: Sequence[str], action: str) -> bool:
    return any(
        re.fullmatch(re.escape(pattern[:MOST_LETTERS]).replace(r"\*", ".*"), action, re.IGNORECASE) for pattern in patterns
    )


MOST_LETTERS = 200


def _check_clock(account: AzureAccount, subscription: str) -> HealthCheck:
    azure_time = account.api.open_channel(subscription).date
    if azure_time is None:
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_UNSURE, told="Azure's answers have no date")
    skew = account.clock.now() - azure_time
    text = f"{abs(skew.total_seconds()):.0f} s {'ahead of' if skew > timedelta(0) else 'behind'} Azure's"
    if abs(skew) > SKEW:
        fix = "set the clock: timedatectl set-ntp true"
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_BAD, told=text, fix=fix)
    return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_GOOD, told=text)


def _check_utilization(account: AzureAccount, subscription: str) -> HealthCheck:
    """Ask Azure Monitor which metrics it has; the GPU is never among them."""
    now = account.clock.now()
    try:
        fetch_metrics(
            account.api, subscription, "westeurope", Period(start=now - timedelta(minutes=5), end=now), Deadline(ASKED_S)
        )
    except ProviderError as broken:
        text = to_one_line(f"Azure Monitor: {broken.what}")
        return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=text, fix=broken.hint or READER)
    agent = "costguard agent enrol ID, for each machine with a GPU"
    text = "processors, network and disk by Azure Monitor; GPUs by costguard's agent only"
    return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=text, fix=agent)
