"""What a watchdog that polled an account leaves in the ledger for the one that plans, where several share the accounts.

The ledger has what was listed and measured. It lacks what only acts ask for: how a machine can be stopped and what that would
lose, prepaid balances, the members of controllers, and the scopes of accounts that could not be asked. A watchdog by itself
remembers these from its last listings; here each poll writes those of its account into one row, which the next poll replaces.

What did not arrive is missing, and never made up: a machine without it has no handling, so that no act is offered on it; its
samples are those in the ledger, and where they are missing it counts as one that may work (decision 0019).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from costguard.ledger.db.codecs import decode_observation, encode_observation
from costguard.metering.inventory import FAILED
from costguard.metering.observation import UNKNOWN_HANDLING, Handling, Observation
from costguard.metering.spending import ScopeCoverage
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard.values.resource import ResourceKey, ScopeKey

if TYPE_CHECKING:  # a type and no more: what the ledger stores of duties is for watchdogs that share
    from costguard.ledger.duties import PollView

UNPOLLED_AFTER = 2
"""Intervals after which people are told that no watchdog has polled an account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """What the last poll of an account saw beside the ledger. See `PollResults`.

    `identity`: what the provider calls the account; "" if it was not asked, because no other of its settings can be the same.
    """

    scopes: tuple[ScopeKey, ...] = ()
    handling: Mapping[ResourceKey, Handling]
    members: tuple[Observation, ...] = ()
    balance: PrepaidBalance | None = None
    unreached: tuple[ScopeCoverage, ...] = ()
    identity: str = ""


class TwinAccounts(NamedTuple):
    """Two accounts of the settings that are one. `same`: what both list, or are called by their provider."""

    first: str
    second: str
    same: str


def find_twin_views(views: Mapping[str, AccountView]) -> list[TwinAccounts]:
    """Return each account of `views` that one before it already covers (decision 0017). Their order is that of the settings."""
    owners, twins = dict[object, str](), list[TwinAccounts]()
    for name, view in views.items():
        claims: list[tuple[object, str]] = [(scope, "/".join(scope)) for scope in view.scopes]
        if view.identity:
            claims += [((scope.provider, view.identity), view.identity) for scope in view.scopes[:1]]
        twin = next((TwinAccounts(owners[claim], name, reason) for claim, reason in claims if claim in owners), None)
        if twin is not None:
            twins.append(twin)
            continue
        owners |= {claim: name for claim, _ in claims}
    return twins


def encode_account_view(view: AccountView) -> str:
    """Return `view` as JSON. 100 machines are some 10 KB."""
    content = {
        "scopes": [list(scope) for scope in view.scopes],
        "handling": [[*key, encode_handling(one)] for key, one in view.handling.items()],
        "members": [[*one.key, encode_observation(one), encode_handling(one.handling)] for one in view.members],
        "balance": encode_balance(view.balance) if view.balance else None,
        "unreached": [encode_unreached(one) for one in view.unreached],
        **({"identity": view.identity} if view.identity else {}),
    }
    return json.dumps(content, separators=(",", ":"))


def decode_account_view(view: PollView) -> AccountView | None:
    """Return what `view` says; None if another version wrote it, so that nothing is known."""
    try:
        content: dict[str, Any] = json.loads(view.body)
        return AccountView(
            scopes=tuple(ScopeKey(*scope) for scope in content["scopes"]),
            handling={ResourceKey(*key): decode_handling(one) for *key, one in content["handling"]},
            members=tuple(_decode_member(row) for row in content["members"]),
            balance=decode_balance(*content["balance"]) if content["balance"] else None,
            unreached=tuple(decode_unreached(*row) for row in content["unreached"]),
            identity=content.get("identity", ""),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def list_unpolled(
    accounts: Iterable[str], views: Mapping[str, PollView], *, every: timedelta, since: datetime, now: datetime
) -> list[ScopeCoverage]:
    """Return a failed scope without a name for each of `accounts` that no watchdog has polled, if that is due by now.

    `since`: from when on they could have been polled.
    """
    if now - since < UNPOLLED_AFTER * every:
        return []
    return [
        ScopeCoverage(
            scope=ScopeKey(name.rpartition("/")[2].partition(" ")[0], name.rpartition("/")[2], ""),
            outcome=FAILED,
            at=now,
            since=since,
            last_complete_at=None,
            why="no watchdog has polled it yet",
        )
        for name in accounts
        if name not in views
    ]


def encode_handling(one: Handling) -> dict[str, object]:
    """Return the fields of `one` that differ from their defaults."""
    values = {name: value for name, value in asdict(one).items() if value != getattr(UNKNOWN_HANDLING, name)}
    return values | ({"ends_at": to_micros(one.ends_at)} if one.ends_at else {})


def decode_handling(values: dict[str, Any]) -> Handling:
    """Return the handling whose fields `encode_handling` returned."""
    for name in ("protected", "stop_loses", "terminate_loses"):
        if name in values:
            values[name] = tuple(values[name])
    if values.get("ends_at") is not None:
        values["ends_at"] = from_micros(values["ends_at"])
    return Handling(**values)


def _decode_member(row: list[Any]) -> Observation:
    *key, text, handling = row
    return replace(decode_observation(ResourceKey(*key), text)[0], handling=decode_handling(handling))


def encode_unreached(one: ScopeCoverage) -> list[object]:
    """Return a failed scope as JSON."""
    return [*one.scope, to_micros(one.at), to_micros(one.since), one.why]


def decode_unreached(*row: Any) -> ScopeCoverage:  # noqa: ANN401 - the fields of JSON
    """Return the failed scope in a list of `encode_unreached`."""
    *scope, at, since, why = row
    return ScopeCoverage(
        scope=ScopeKey(*scope),
        outcome=FAILED,
        at=from_micros(at),
        since=from_micros(since),
        last_complete_at=None,
        why=why,
    )


def encode_balance(one: PrepaidBalance) -> list[object]:
    """Return a balance as JSON."""
    amount = (one.amount.nano, one.amount.currency) if one.amount else None
    rates = [(rate.nano_per_hour, rate.currency) if rate else None for rate in (one.burn, one.burn_limit)]
    return [one.provider, one.account, to_micros(one.at), amount, *rates, one.why]


def decode_balance(  # noqa: PLR0917 - the fields in order
    provider: str,
    account: str,
    at: int,
    amount: tuple[int, str] | None,
    burn: tuple[int, str] | None,
    limit: tuple[int, str] | None,
    why: str,
) -> PrepaidBalance:
    """Return the balance in a list of `encode_balance`."""
    return PrepaidBalance(
        provider=provider,
        account=account,
        at=from_micros(at),
        amount=Money(nano=amount[0], currency=amount[1]) if amount else None,
        burn=Rate(nano_per_hour=burn[0], currency=burn[1]) if burn else None,
        burn_limit=Rate(nano_per_hour=limit[0], currency=limit[1]) if limit else None,
        why=why,
    )
