"""What `costguard doctor` learns of an account of Lambda, without acting and without spending."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from costguard.errors import CredentialsError, ForbiddenError, ProviderError, one_line
from costguard.providers.api_keys import Keyed
from costguard.providers.transport import Deadline
from costguard.system.clock import Clock
from costguard.values.health import (
    BAD,
    CLOCK,
    CREDENTIALS,
    GOOD,
    IDENTITY,
    PERMISSION,
    REACHABLE,
    SKIPPED,
    UNSURE,
    UTILIZATION,
    Check,
)
from costguard_lambda.api import LambdaApi

if TYPE_CHECKING:
    from costguard_lambda.account import LambdaAccount

SKEW_S = 30.0
"""Seconds by which two clocks may differ before times cannot be compared."""
NEW_KEY = "make a key at https://cloud.lambda.ai/api-keys, then: export LAMBDA_API_KEY=..."
INACTIVE = "global/account-inactive"
OTHER_KEY = "make a key of a member with that right at https://cloud.lambda.ai/api-keys"


def examined(account: LambdaAccount, api: LambdaApi, key: Keyed, clock: Clock, timeout_s: float) -> tuple[Check, ...]:
    """In the order of looking; what comes after a wrong key or no connection is skipped."""
    deadline = Deadline(timeout_s)
    source = f"{key.source}, ending in {key.key.hint()}"
    first = _tried(lambda: api.instances(deadline))
    if isinstance(first, CredentialsError):
        reached = Check(subject=REACHABLE, outcome=GOOD, told="Lambda answers")
        return (_check(CREDENTIALS, first, source, NEW_KEY), reached, *_skipped("the key is refused"))
    if first is not None and not isinstance(first, ForbiddenError):
        held = Check(subject=CREDENTIALS, outcome=UNSURE, told=f"{source}; not tried, since Lambda could not be asked")
        fix = first.hint or "try `curl https://cloud.lambda.ai/api/v1/instances`; see [providers.lambda] base_url"
        return (held, _check(REACHABLE, first, "", fix), *_skipped("Lambda cannot be asked"))
    return (
        Check(subject=CREDENTIALS, outcome=GOOD, told=source),
        Check(subject=REACHABLE, outcome=GOOD, told="Lambda answers"),
        _identity(account),
        *_permissions(api, first, deadline),
        _clock(api, clock),
        _utilization(),
    )


def _skipped(why: str) -> tuple[Check, ...]:
    subjects = (IDENTITY, f"{PERMISSION}: list instances", CLOCK, UTILIZATION)
    return tuple(Check(subject=subject, outcome=SKIPPED, told=why) for subject in subjects)


def _tried(call: Callable[[], object]) -> ProviderError | None:
    try:
        call()
    except ProviderError as broken:
        return broken
    return None


def _check(subject: str, broken: ProviderError | None, told: str, fix: str, outcome: str = BAD) -> Check:
    if broken is None:
        return Check(subject=subject, outcome=GOOD, told=told)
    return Check(subject=subject, outcome=outcome, told=one_line(": ".join(filter(None, (told, broken.what)))), fix=fix)


def _identity(account: LambdaAccount) -> Check:
    try:
        found = account.identity()
    except ProviderError as broken:
        return Check(subject=IDENTITY, outcome=UNSURE, told=f"the audit log cannot be read: {one_line(broken.what)}")
    if found is None:
        told = f"Lambda does not say whose key this is; it counts as the account '{account.name}'"
        return Check(subject=IDENTITY, outcome=UNSURE, told=told)
    return Check(subject=IDENTITY, outcome=GOOD, told=one_line(f"{found}, called '{account.name}' here"))


def _permissions(api: LambdaApi, first: ProviderError | None, deadline: Deadline) -> tuple[Check, ...]:
    """Keys of Lambda know no finer rights than their member has; each is proven by using it, but for the act."""
    disks, types = _tried(lambda: api.filesystems(deadline)), _tried(lambda: api.types(deadline))
    log = _tried(lambda: api.events(deadline, start=None, token=""))
    undated = "without it an instance counts from when it was first seen"
    told = "there is no way to try it without ending an instance; Lambda has no stop at all"
    return (
        _check(f"{PERMISSION}: list instances", first, "", _mends(first)),
        _check(f"{PERMISSION}: list filesystems", disks, "", OTHER_KEY),
        _check(f"{PERMISSION}: offers", types, "", OTHER_KEY),
        _check(f"{PERMISSION}: audit log", log, "" if log is None else undated, OTHER_KEY, UNSURE),
        Check(subject=f"{PERMISSION}: terminate", outcome=UNSURE, told=told),
    )


def _mends(broken: ProviderError | None) -> str:
    """No other key helps an account that was not paid for."""
    return (broken.hint or OTHER_KEY) if broken and broken.code == INACTIVE else OTHER_KEY


def _clock(api: LambdaApi, clock: Clock) -> Check:
    said = api.channel.date
    if said is None:
        return Check(subject=CLOCK, outcome=UNSURE, told="Lambda's answers bear no date")
    skew = (clock.now() - said).total_seconds()
    told = f"this clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} Lambda's"
    if abs(skew) > SKEW_S:
        return Check(subject=CLOCK, outcome=BAD, told=told, fix="set this machine's clock: timedatectl set-ntp true")
    return Check(subject=CLOCK, outcome=GOOD, told=told)


def _utilization() -> Check:
    told = "Lambda measures nothing: idle instances can be told only by an agent on them"
    return Check(subject=UTILIZATION, outcome=UNSURE, told=told, fix="costguard agent enrol ID, for each machine")
