"""The checks of `costguard doctor` for a Vast account: key, reachability, identity, rights, clock, metrics.

Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec

from costguard.errors import CredentialsError, ForbiddenError, InputError, ProviderError
from costguard.values import provider
from costguard.values.provider import CHECK_BAD, CHECK_GOOD, CHECK_SKIPPED, CHECK_UNSURE, HealthCheck
from costguard_vast.api import GROUPS, KEY_AT, NOT_THERE, STATE_IT, format_reason
from costguard_vast.translation import SCOPE
from costguard_vast.wire import Instance, InstancePage, parse_percent

T = TypeVar("T")

if TYPE_CHECKING:
    from costguard_vast.account import VastAccount

SKEW_S = 30.0
"""Seconds by which two clocks may differ."""
RIGHTS = ("list", "offers", "volumes", "balance", "bill")


def examine_account(account: VastAccount) -> Sequence[HealthCheck]:
    """Run every check in order.

    If Vast cannot be reached, the rest is skipped.
    """
    source = f"from {account.key.source}, ending in {account.key.key.get_hint()}"
    try:
        user = account.fetch_user(account.make_deadline())
    except CredentialsError as broken:
        fix = f"put a valid key into {account.key.source}; {KEY_AT}"
        return (
            HealthCheck(
                subject=provider.CREDENTIALS_CHECK, outcome=CHECK_BAD, told=f"{source}: {format_reason(broken)}", fix=fix
            ),
            *_skip_checks(account),
        )
    except ForbiddenError as broken:
        return _check_known_key(account, source, "", format_reason(broken), "give the key the group user_read")
    except ProviderError as broken:
        if broken.status in NOT_THERE:
            return _check_known_key(account, source, "", format_reason(broken))
        unknown = HealthCheck(subject=provider.CREDENTIALS_CHECK, outcome=CHECK_UNSURE, told=f"{source}, not tried")
        fix = f"see whether {account.api.channel.base_url} can be reached from here"
        return (
            unknown,
            HealthCheck(subject=provider.REACHABLE_CHECK, outcome=CHECK_BAD, told=format_reason(broken), fix=fix),
            *_skip_checks(account, 1),
        )
    return _check_known_key(account, source, f"{user.id}", "" if user.credit is not None else "Vast does not state the credit")


def _check_known_key(account: VastAccount, source: str, id_: str, no_balance: str, fix: str = "") -> Sequence[HealthCheck]:
    """Run the checks for an accepted key.

    `no_balance`: why the balance cannot be read, or ""; `fix`: how to fix that.
    """
    page, listed = _try_call(
        "list instances", lambda: account.api.fetch_page(None, account.make_deadline(), 25), "instance_read"
    )
    outcome = CHECK_GOOD if not no_balance else CHECK_BAD if fix else CHECK_UNSURE
    balance = HealthCheck(subject="permission: balance", outcome=outcome, told=no_balance or "users/current answers", fix=fix)
    return (
        HealthCheck(subject=provider.CREDENTIALS_CHECK, outcome=CHECK_GOOD if id_ or page else CHECK_UNSURE, told=source),
        HealthCheck(subject=provider.REACHABLE_CHECK, outcome=CHECK_GOOD, told=account.api.channel.base_url),
        _check_identity(account, id_),
        listed,
        _try_call("list offers", lambda: account.api.search(("RTX 4090",), account.make_deadline(), rows=1), "misc")[1],
        _try_call("list volumes", lambda: account.api.fetch_volumes(account.make_deadline()), "instance_read")[1],
        balance,
        _try_call("read the bill", lambda: _today(account), "billing_read")[1],
        *_check_acts(),
        _check_clock(account),
        _check_measures(page),
    )


def _skip_checks(account: VastAccount, start: int = 0) -> Iterator[HealthCheck]:
    """Yield the checks that were skipped because of an earlier one."""
    subjects = (
        provider.REACHABLE_CHECK,
        provider.IDENTITY_CHECK,
        *(f"permission: {right}" for right in RIGHTS),
        provider.UTILIZATION_CHECK,
    )
    yield from (HealthCheck(subject=subject, outcome=CHECK_SKIPPED, told="not looked at") for subject in subjects[start:])
    yield _check_clock(account)


def _check_identity(account: VastAccount, id_: str) -> HealthCheck:
    try:
        name = account.fetch_account_id(account.make_deadline())
    except (ProviderError, InputError) as broken:
        fix = f'write account = "{id_}", or give another key' if id_ else getattr(broken, "hint", None) or STATE_IT
        return HealthCheck(
            subject=provider.IDENTITY_CHECK, outcome=CHECK_BAD, told="; ".join(str(broken).splitlines()), fix=fix
        )
    if not id_:
        return HealthCheck(
            subject=provider.IDENTITY_CHECK,
            outcome=CHECK_UNSURE,
            told=f"user {name}, from the settings: Vast does not return it",
        )
    return HealthCheck(subject=provider.IDENTITY_CHECK, outcome=CHECK_GOOD, told=f"user {name}, scope {SCOPE}")


def _try_call(what: str, ask: Callable[[], T], group: str) -> tuple[T | None, HealthCheck]:
    """Return the result of `ask`, and its check.

    `group`: the group of rights that it needs.
    """
    subject = f"permission: {what}"
    try:
        return ask(), HealthCheck(subject=subject, outcome=CHECK_GOOD, told="it answers")
    except ForbiddenError as broken:
        return None, HealthCheck(
            subject=subject, outcome=CHECK_BAD, told=format_reason(broken), fix=f"give the key the group {group}"
        )
    except ProviderError as broken:
        return None, HealthCheck(
            subject=subject, outcome=CHECK_BAD, told=format_reason(broken), fix="ask again later; then make a new key"
        )


def _today(account: VastAccount) -> object:
    now = account.clock.now()
    first = int(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp())
    return account.api.fetch_charges(first, first + 86_399, None, account.make_deadline(), 1)


def _check_acts() -> Iterator[HealthCheck]:
    for act in ("stop", "terminate"):
        text = f"cannot be tested without acting; the key needs the group instance_write (all it needs: {GROUPS})"
        yield HealthCheck(subject=f"permission: {act}", outcome=CHECK_UNSURE, told=text)


def _check_clock(account: VastAccount) -> HealthCheck:
    theirs, local_time = account.api.channel.date, account.clock.now()
    if theirs is None:
        return HealthCheck(subject=provider.CLOCK_CHECK, outcome=CHECK_UNSURE, told="Vast's response has no time")
    skew = (local_time - theirs) / timedelta(seconds=1)
    if abs(skew) > SKEW_S:
        fix = "set this machine's clock: timedatectl set-ntp true"
        return HealthCheck(
            subject=provider.CLOCK_CHECK, outcome=CHECK_BAD, told=f"this clock is {skew:+.0f} s off Vast's", fix=fix
        )
    return HealthCheck(subject=provider.CLOCK_CHECK, outcome=CHECK_GOOD, told=f"within {abs(skew):.0f} s of Vast's")


def _check_measures(page: InstancePage | None) -> HealthCheck:
    """Check which metrics the first page contains."""
    if page is None:
        return HealthCheck(subject=provider.UTILIZATION_CHECK, outcome=CHECK_SKIPPED, told="the list cannot be read")
    running = [one for raw in page.instances if (one := _decode_instance(raw)) is not None and one.actual_status == "running"]
    measured_count = sum(parse_percent(one.gpu_util) is not None for one in running)
    limits = "one gpu_util, gpu_temp, cpu_util and memory an instance, from its last heartbeat; no power, no network"
    if not running:
        return HealthCheck(
            subject=provider.UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=f"no running instance; Vast reports {limits}"
        )
    outcome = CHECK_GOOD if measured_count == len(running) else CHECK_UNSURE
    return HealthCheck(
        subject=provider.UTILIZATION_CHECK,
        outcome=outcome,
        told=f"{measured_count} of {len(running)} running instances report: {limits}",
    )


def _decode_instance(raw: msgspec.Raw) -> Instance | None:
    try:
        return msgspec.json.decode(raw, type=Instance)
    except (msgspec.DecodeError, RecursionError):
        return None
