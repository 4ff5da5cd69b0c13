"""The checks of `costguard doctor` for a RunPod account.

There is one request for each thing that costguard needs, and none that acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from costguard.errors import CredentialsError, ForbiddenError, ProviderError
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import Deadline, ProviderChannel
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
from costguard_runpod import MANIFEST, api
from costguard_runpod.pagination import PagedList, decode_pods, decode_volumes, read_all_pages
from costguard_runpod.translation import has_gpu_use
from costguard_runpod.wire import Pod

SKEW_S = 30
"""Seconds by which clocks may differ: times of the provider are compared with ours."""
PATIENCE_S = 30
NEW_KEY = f"create a key at {MANIFEST.key_at}, then export RUNPOD_API_KEY=..."
RIGHTS = f"at {MANIFEST.key_at} edit the key: restricted, api.runpod.io/v2: read (read and write to act)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedAccount:
    """An account to examine.

    `now`: its clock.
    """

    rest: ProviderChannel
    graphql: ProviderChannel
    key: KeyedAccount
    now: Callable[[], datetime]


def examine_account(one: ExaminedAccount) -> list[HealthCheck]:
    """Run every check in order."""
    pods = PagedList[Pod]()
    try:
        pods = read_all_pages(one.rest, "/v2/pods", decode_pods, Deadline(PATIENCE_S), includeClusterPods="true")
        broken = None
    except ProviderError as found:
        broken = found
    return list(_list_checks(one, pods, broken))


def _list_checks(one: ExaminedAccount, pods: PagedList[Pod], broken: ProviderError | None) -> Iterator[HealthCheck]:
    whose = f"the key {one.key.key.get_hint()} of {one.key.source}"
    if isinstance(broken, CredentialsError):
        yield HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=f"RunPod does not accept {whose}", fix=NEW_KEY)
        yield HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told=one.rest.base_url)
        yield from _skip_checks("RunPod does not know the key")
        return
    yield HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=whose)
    if broken is not None and not isinstance(broken, ForbiddenError):
        fix = broken.hint or "check https://uptime.runpod.io and [network] in the settings"
        yield HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=broken.what, fix=fix)
        yield from _skip_checks("RunPod cannot be reached")
        return
    yield HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told=one.rest.base_url)
    yield _check_identity(one)
    yield _make_permission_check("list pods", broken, pods.why)
    yield from _check_permissions(one)
    yield _check_clock(one)
    yield _check_utilization(pods.items)


def _skip_checks(why: str) -> Iterator[HealthCheck]:
    for subject in (IDENTITY_CHECK, PERMISSION_CHECK, CLOCK_CHECK, UTILIZATION_CHECK):
        yield HealthCheck(subject=subject, outcome=CHECK_SKIPPED, told=why)


def _check_identity(one: ExaminedAccount) -> HealthCheck:
    try:
        owner = api.fetch_key_owner(one.graphql)
    except ProviderError as broken:
        text = f"RunPod reports it only through GraphQL, which answered: {broken.what}"
        return HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_UNSURE, told=text)
    if owner is None or not owner.id:
        return HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_UNSURE, told="RunPod does not name the key's account")
    return HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_GOOD, told=f"RunPod's user {owner.id}")


def _check_permissions(one: ExaminedAccount) -> Iterator[HealthCheck]:
    """Check each right with a request; the acts cannot be tested."""
    hour = {"bucketSize": "hour", "lastN": "1"}
    questions: tuple[tuple[str, Callable[[], object]], ...] = (
        ("read the catalogue", lambda: api.fetch_catalogue(one.rest)),
        ("read the bill", lambda: api.fetch_bill(one.rest, "/v2/billing/pods", hour)),
    )
    yield _check_volumes(one)
    for what, ask in questions:
        yield _make_permission_check(what, _try_call(ask))
    yield _check_balance(one)
    for act in ("stop", "terminate"):
        text = "cannot be tested without acting"
        yield HealthCheck(subject=f"{PERMISSION_CHECK}: {act}", outcome=CHECK_UNSURE, told=text)


def _check_volumes(one: ExaminedAccount) -> HealthCheck:
    what = "list network volumes"
    try:
        return _make_permission_check(
            what, None, read_all_pages(one.rest, "/v2/network-volumes", decode_volumes, Deadline(PATIENCE_S)).why
        )
    except ProviderError as broken:
        return _make_permission_check(what, broken)


def _try_call(ask: Callable[[], object]) -> ProviderError | None:
    try:
        ask()
    except ProviderError as broken:
        return broken
    return None


def _make_permission_check(what: str, broken: ProviderError | None, lacks: str = "") -> HealthCheck:
    """Return the check of one right.

    `lacks`: why a list that was allowed is incomplete.
    """
    subject = f"{PERMISSION_CHECK}: {what}"
    if broken is None and lacks:
        return HealthCheck(
            subject=subject, outcome=CHECK_BAD, told=f"allowed, but incomplete: {lacks}", fix="try again: costguard doctor"
        )
    if broken is None:
        return HealthCheck(subject=subject, outcome=CHECK_GOOD, told="allowed")
    fix = RIGHTS if isinstance(broken, ForbiddenError) else broken.hint or "try again: costguard doctor"
    return HealthCheck(subject=subject, outcome=CHECK_BAD, told=broken.what, fix=fix)


def _check_balance(one: ExaminedAccount) -> HealthCheck:
    subject = f"{PERMISSION_CHECK}: read the balance"
    try:
        owner = api.fetch_key_owner(one.graphql)
    except ProviderError as broken:
        return HealthCheck(
            subject=subject, outcome=CHECK_UNSURE, told=f"{broken.what}: the balance stays unknown, the rest works"
        )
    if owner is None or owner.client_balance is None:
        return HealthCheck(subject=subject, outcome=CHECK_UNSURE, told="GraphQL returned no balance: it stays unknown")
    return HealthCheck(subject=subject, outcome=CHECK_GOOD, told="allowed, until RunPod retires GraphQL early in 2027")


def _check_clock(one: ExaminedAccount) -> HealthCheck:
    theirs = one.rest.date
    if theirs is None:
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_UNSURE, told="RunPod sent no date")
    skew = abs((one.now() - theirs).total_seconds())
    text = f"this clock and RunPod's differ by {skew:.0f} s"
    if skew > SKEW_S:
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_BAD, told=text, fix="timedatectl set-ntp true")
    return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_GOOD, told=text)


def _check_utilization(pods: list[Pod]) -> HealthCheck:
    running = [pod for pod in pods if pod.status == "RUNNING" and pod.gpu is not None]
    telling = sum(has_gpu_use(pod) for pod in running)
    if not running:
        text = "no GPU pod runs; RunPod gives one sample of each with the listing, where its agent reports"
        return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=text)
    text = f"{telling} of {len(running)} running GPU pods report it; the others are unknown, not idle"
    return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_GOOD if telling == len(running) else CHECK_UNSURE, told=text)
