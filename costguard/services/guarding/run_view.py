"""What a guard run saw beside the ledger's tables, so that `costguard status` need not ask the clouds again.

A run stores it as one of its facts. Example: a watchdog polled 40 s ago and runs every minute. `costguard status` then reads
the ledger, takes prepaid balances and "overshoot max" from that run, and says that it is 40 s old. Where the run is older
than its interval, could not read an account or does not know one of the settings, the clouds are asked, and the reason is said.

The handling of resources decides what a plan would do with them, so the pages need it too: the usual one of each region is
stored, and the resources that differ from it. Where those are more than `HANDLED_MAX` nothing is stored.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from zlib import compress, decompress
from zlib import error as zlib_error

from costguard.guard.cap_forecast import CapForecast
from costguard.guard.context import GuardSnapshot
from costguard.guard.run_facts import GuardRun
from costguard.metering.inventory import FAILED
from costguard.metering.observation import Handling, Observation
from costguard.metering.spending import ScopeCoverage
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.poll.listing_validation import may_speak_for
from costguard.services.poll.poll_views import (
    decode_balance,
    decode_handling,
    decode_unreached,
    encode_balance,
    encode_handling,
    encode_unreached,
)
from costguard.values.money import Money, PrepaidBalance
from costguard.values.resource import RUNNING, ResourceKey, ScopeKey
from costguard.values.text_format import format_length, format_scope

VIEW_FACT = "view"
"""The name of the fact in a run's facts."""

HANDLED_MAX = 2000
"""Resources whose handling a run stores at most: some 200 KB of text in one row. An assumption, 2026-11."""


LISTING_AGE_MAX = 2
"""How many intervals before a run the last listing of a scope may be: a poll is spread by half an interval, and may be slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """What a run saw.

    `asks`: see `digest_providers`. `asked`: the scopes that its watchdog polls. `unreached`: failed scopes that the ledger does
    not know.

    `overshoots`: by how much each hard budget could be exceeded at worst, by name; a missing one is unknown. `shorts`: how the
    limits delay the stops of a hard budget, by name. `handling`: of the resources that were listed.
    """

    asks: str
    asked: frozenset[ScopeKey]
    unreached: tuple[ScopeCoverage, ...]
    balances: tuple[PrepaidBalance, ...]
    overshoots: Mapping[str, Money]
    handling: Mapping[ResourceKey, Handling]
    shorts: Mapping[str, str] = field(default_factory=dict)
    members: tuple[Observation, ...] = ()
    """Not stored: only a guard run needs them."""


def encode_run_view(
    latest: PollResults,
    snapshot: GuardSnapshot,
    foresights: Sequence[CapForecast],
    unreached: Iterable[ScopeCoverage],
    *,
    asks: str,
) -> str:
    """Return what a run saw as compressed JSON; "" if it is too much to store.

    `latest`: the listings that it used. `snapshot`, `foresights`: what it built from them. `asks`: `digest_providers` of the
    settings that its watchdog was started with. Compressed, because a week of runs is kept: 200 pods are 30 KB as text.
    """
    handling = [*_group_handling(snapshot, latest.handling)]
    if sum(len(others) for *_, others in handling) > HANDLED_MAX:
        return ""
    running = {one.observation.key for one in snapshot.live if one.observation.state == RUNNING and one.absent_at is None}
    certain = running <= latest.handling.keys()
    content = {
        "asks": asks,
        "asked": [list(scope) for scope in latest.sources],
        "unreached": [encode_unreached(one) for one in unreached],
        "balances": [encode_balance(one) for one in latest.balances],
        "overshoots": [[one.standing.budget.name, one.overshoot.nano, one.overshoot.currency] for one in foresights if certain],
        "shorts": {one.standing.budget.name: one.short for one in foresights if one.short},
        "usual": handling,
    }
    return b64encode(compress(json.dumps(content, separators=(",", ":")).encode())).decode()


def digest_providers(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Return a digest of the provider tables of settings: another one means that other accounts are meant."""
    return sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _group_handling(
    snapshot: GuardSnapshot, handling: Mapping[ResourceKey, Handling]
) -> Iterator[tuple[str, str, str, dict[str, object] | None, list[tuple[str, dict[str, object] | None]]]]:
    """Yield the usual handling of each region, and each resource with another one. None: it is not known."""
    regions = defaultdict[tuple[str, str, str], list[tuple[str, Handling | None]]](list)
    for one in snapshot.live:
        key = one.observation.key
        regions[key[:3]].append((key.id, handling.get(key)))
    for region, resources in regions.items():
        usual = Counter(one for _, one in resources).most_common(1)[0][0]
        others = [(id_, encode_handling(one) if one else None) for id_, one in resources if one != usual]
        yield *region, encode_handling(usual) if usual else None, others


class RunHandling(Mapping[ResourceKey, Handling]):
    """The handling of each resource that a run listed. `regions`: as `_group_handling` yields them, out of JSON."""

    def __init__(
        self, regions: Iterable[tuple[str, str, str, dict[str, Any] | None, list[tuple[str, dict[str, Any] | None]]]]
    ) -> None:
        self._usual, self._others = dict[tuple[str, str, str], Handling | None](), dict[ResourceKey, Handling | None]()
        for provider, account, region, usual, others in regions:
            self._usual[provider, account, region] = decode_handling(usual) if usual is not None else None
            for id_, other in others:
                key = ResourceKey(provider, account, region, id_)
                self._others[key] = decode_handling(other) if other is not None else None

    def __getitem__(self, key: ResourceKey) -> Handling:
        """Return the handling of `key`; of one listed since, that of its region."""
        handling = self._others[key] if key in self._others else self._usual.get(key[:3])
        if handling is None:
            raise KeyError(key)
        return handling

    def __iter__(self) -> Iterator[ResourceKey]:
        """Iterate over the resources that differ from their region."""
        return iter(self._others)

    def __len__(self) -> int:
        """Return how many differ from their region."""
        return len(self._others)


def decode_run_view(run: GuardRun | None) -> RunView | None:
    """Return what `run` saw; None if it stored nothing that can be read."""
    text = dict(run.facts).get(VIEW_FACT, "") if run else ""
    try:
        content: dict[str, Any] = json.loads(decompress(b64decode(text)) if text else "{}")
        return RunView(
            asks=content["asks"],
            asked=frozenset(ScopeKey(*scope) for scope in content["asked"]),
            unreached=tuple(decode_unreached(*row) for row in content["unreached"]),
            balances=tuple(decode_balance(*row) for row in content["balances"]),
            overshoots={name: Money(nano=nano, currency=currency) for name, nano, currency in content["overshoots"]},
            shorts=dict(content.get("shorts", {})),
            handling=RunHandling(content["usual"]),
        )
    except (ValueError, KeyError, TypeError, zlib_error):  # of another version
        return None


def explain_unfit_run(
    last: GuardRun | None, scopes: Iterable[ScopeCoverage], providers: Mapping[str, Mapping[str, object]], now: datetime
) -> str:
    """Explain why the last run does not tell what the clouds would say now; "" if it does.

    `scopes`: of the ledger. `providers`: the tables in the settings, by name.
    """
    if last is None:
        return "no guard run is recorded"
    age = now - last.at
    if age < timedelta(0):
        return "the last guard run is dated in the future"
    if age >= last.interval:
        return f"the last guard run was {format_length(age)} ago, and one is due every {format_length(last.interval)}"
    view = decode_run_view(last)
    if view is None:
        return "the last guard run did not record what it saw"
    known_scopes = {*view.asked, *(one.scope for one in view.unreached)}
    coverages = [one for one in (*scopes, *view.unreached) if one.scope in known_scopes]
    return _explain_other_accounts(view, known_scopes, providers) or _explain_unread_scope(last, coverages)


def _explain_other_accounts(view: RunView, scopes: Collection[ScopeKey], providers: Mapping[str, Mapping[str, object]]) -> str:
    """Explain which accounts of the settings the run's watchdog does not poll; "" if it polls all."""
    unasked = [name for name in providers if not any(may_speak_for(name, scope.provider) for scope in scopes)]
    if unasked:
        return f"the last guard run did not query {', '.join(sorted(unasked))}"
    if view.asks != digest_providers(providers):
        return "the providers in the settings are not those that the watchdog was started with"
    return ""


def _explain_unread_scope(last: GuardRun, scopes: Sequence[ScopeCoverage]) -> str:
    """Explain which scope of `scopes` the run does not know the present state of; "" if there is none."""
    failed = next((one for one in scopes if one.outcome == FAILED), None)
    if failed is not None:
        return f"the last guard run could not read {format_scope(failed.scope)}"
    old = next((one for one in scopes if last.at - one.at > LISTING_AGE_MAX * last.interval), None)
    return f"the last guard run had no listing of {format_scope(old.scope)} since {old.at:%H:%M} UTC" if old else ""


def list_unasked_providers(providers: Iterable[str], scopes: Collection[ScopeCoverage], now: datetime) -> list[ScopeCoverage]:
    """Return a failed scope without a name for each provider of the settings of which no scope is known.

    A ledger does not tell a provider that was never reached from one that has no scope; unknown means not seen.
    """
    return [
        ScopeCoverage(scope=ScopeKey(name, "", ""), outcome=FAILED, at=now, since=now, last_complete_at=None, why=NEVER_REACHED)
        for name in providers
        if not any(may_speak_for(name, one.scope.provider) for one in scopes)
    ]


NEVER_REACHED = "it was never reached: costguard status queries it, and costguard doctor shows what is missing"
