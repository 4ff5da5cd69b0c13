"""The checks of `costguard doctor` for a Lambda account, without acting and without cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from costguard.errors import CredentialsError, ForbiddenError, ProviderError, to_one_line
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import Deadline
from costguard.system.clock import Clock
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
from costguard_lambda.api import LambdaApi

if TYPE_CHECKING:
    from costguard_lambda.account import LambdaAccount

SKEW_S = 30.0
"""Seconds by which two clocks may differ before times cannot be compared."""
NEW_KEY = "make a key at https://cloud.lambda.ai/api-keys, then: export LAMBDA_API_KEY=..."
INACTIVE = "global/account-inactive"
OTHER_KEY = "make a key of a member with that right at https://cloud.lambda.ai/api-keys"


def examine_account(
    account: LambdaAccount, api: LambdaApi, key: KeyedAccount, clock: Clock, timeout_s: float
) -> tuple[HealthCheck, ...]:
    """Run the checks in order; those after a wrong key or a failed connection are skipped."""
    deadline = Deadline(timeout_s)
    source = f"{key.source}, ending in {key.key.get_hint()}"
    first = _try_call(lambda: api.list_instances(deadline))
    if isinstance(first, CredentialsError):
        reached = HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="Lambda answers")
        return (_make_check(CREDENTIALS_CHECK, first, source, NEW_KEY), reached, *_skip_checks("the key is refused"))
    if first is not None and not isinstance(first, ForbiddenError):
        check = HealthCheck(
            subject=CREDENTIALS_CHECK, outcome=CHECK_UNSURE, told=f"{source}; not tried, because the request to Lambda failed"
        )
        fix = first.hint or "try `curl https://cloud.lambda.ai/api/v1/instances`; see [providers.lambda] base_url"
        return (check, _make_check(REACHABLE_CHECK, first, "", fix), *_skip_checks("Lambda cannot be reached"))
    return (
        HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=source),
        HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="Lambda answers"),
        _check_identity(account),
        *_check_permissions(api, first, deadline),
        _check_clock(api, clock),
        _check_utilization(),
    )


def _skip_checks(why: str) -> tuple[HealthCheck, ...]:
    subjects = (IDENTITY_CHECK, f"{PERMISSION_CHECK}: list instances", CLOCK_CHECK, UTILIZATION_CHECK)
    return tuple(HealthCheck(subject=subject, outcome=CHECK_SKIPPED, told=why) for subject in subjects)


def _try_call(call: Callable[[], object]) -> ProviderError | None:
    try:
        call()
    except ProviderError as broken:
        return broken
    return None


def _make_check(subject: str, broken: ProviderError | None, text: str, fix: str, outcome: str = CHECK_BAD) -> HealthCheck:
    if broken is None:
        return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=text)
    return HealthCheck(
        subject=subject, outcome=outcome, told=to_one_line(": ".join(filter(None, (text, broken.what)))), fix=fix
    )


def _check_identity(account: LambdaAccount) -> HealthCheck:
    try:
        identity = account.fetch_identity()
    except ProviderError as broken:
        return HealthCheck(
            subject=IDENTITY_CHECK, outcome=CHECK_UNSURE, told=f"the audit log cannot be read: {to_one_line(broken.what)}"
        )
    if identity is None:
        text = f"Lambda does not name the key's account; it is used as account '{account.name}'"
        return HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_UNSURE, told=text)
    return HealthCheck(
        subject=IDENTITY_CHECK, outcome=CHECK_GOOD, told=to_one_line(f"{identity}, called '{account.name}' here")
    )


def _check_permissions(api: LambdaApi, first: ProviderError | None, deadline: Deadline) -> tuple[HealthCheck, ...]:
    """Check each right by using it, except the act; Lambda's keys have all rights of their member."""
    disks, types = _try_call(lambda: api.list_filesystems(deadline)), _try_call(lambda: api.list_types(deadline))
    log = _try_call(lambda: api.list_events(deadline, start=None, token=""))
    undated = "without it an instance is billed from when it was first seen"
    text = "it cannot be tested without ending an instance; Lambda has no stop"
    return (
        _make_check(f"{PERMISSION_CHECK}: list instances", first, "", _explain_fix(first)),
        _make_check(f"{PERMISSION_CHECK}: list filesystems", disks, "", OTHER_KEY),
        _make_check(f"{PERMISSION_CHECK}: offers", types, "", OTHER_KEY),
        _make_check(f"{PERMISSION_CHECK}: audit log", log, "" if log is None else undated, OTHER_KEY, CHECK_UNSURE),
        HealthCheck(subject=f"{PERMISSION_CHECK}: terminate", outcome=CHECK_UNSURE, told=text),
    )


def _explain_fix(broken: ProviderError | None) -> str:
    """Return the fix: another key, unless the account is inactive because it was not paid for."""
    return (broken.hint or OTHER_KEY) if broken and broken.code == INACTIVE else OTHER_KEY


def _check_clock(api: LambdaApi, clock: Clock) -> HealthCheck:
    lambda_time = api.channel.date
    if lambda_time is None:
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_UNSURE, told="Lambda's answers have no date")
    skew = (clock.now() - lambda_time).total_seconds()
    text = f"this clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} Lambda's"
    if abs(skew) > SKEW_S:
        return HealthCheck(
            subject=CLOCK_CHECK, outcome=CHECK_BAD, told=text, fix="set this machine's clock: timedatectl set-ntp true"
        )
    return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_GOOD, told=text)


def _check_utilization() -> HealthCheck:
    text = "Lambda has no metrics: only an agent on the machine can detect idleness"
    return HealthCheck(
        subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=text, fix="costguard agent enrol ID, for each machine"
    )
