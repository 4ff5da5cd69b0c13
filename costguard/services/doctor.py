"""doctor: every account examined at once; one that hangs or breaks is itself a finding, and hides no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from costguard.providers.ports import Examiner, IdentitySource, InstanceSource
from costguard.services.concurrency import together
from costguard.services.listing_validation import own_scopes, told
from costguard.values.health import CHECK_BAD, CHECK_UNSURE, IDENTITY_CHECK, REACHABLE_CHECK, HealthCheck
from costguard.values.resource import ScopeKey

LIMIT_S = 60.0
"""How long all examinations may take together: somebody waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One account and what was found. `account` "": it could not be learned. `identity`: what its provider calls it."""

    provider: str
    account: str
    checks: tuple[HealthCheck, ...]
    identity: str = ""
    scopes: tuple[ScopeKey, ...] = ()


def doctor(sources: Sequence[tuple[str, InstanceSource]], *, limit_s: float = LIMIT_S) -> tuple[Examined, ...]:
    """Every one of `sources`, each with its provider's name, in their order."""
    names = [name for name, _ in sources]
    questions: Mapping[int, Callable[[], Examined]] = {
        number: _question(name, source, alone=names.count(name) == 1) for number, (name, source) in enumerate(sources)
    }
    answers = together(questions, limit_s=limit_s)
    return tuple(_finding(sources[number][0], answer) for number, answer in answers.items())


def twins(examined: Sequence[Examined]) -> tuple[str, ...]:
    """A sentence for each account that is there twice: by what its provider calls it, or by a scope that both list."""
    found = list[str]()
    for number, one in enumerate(examined):
        for other in examined[:number]:
            same = bool(one.identity) and (one.provider, one.identity) == (other.provider, other.identity)
            shared = sorted(set(one.scopes) & set(other.scopes))
            if same or shared:
                what = one.identity if same else "/".join(shared[0])
                names = f"'{other.account or '?'}' and '{one.account or '?'}' of {one.provider}"
                found.append(f"the accounts {names} are one: both are {what}")
    return tuple(found)


def _question(name: str, source: InstanceSource, *, alone: bool) -> Callable[[], Examined]:
    return lambda: _examined(name, source, alone=alone)


def _examined(name: str, source: InstanceSource, *, alone: bool) -> Examined:
    if isinstance(source, Examiner):
        checks = tuple(source.examine()) or (
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_UNSURE, told="it examined nothing"),
        )
    else:
        checks = (HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_UNSURE, told="this provider cannot be examined"),)
    scopes: tuple[ScopeKey, ...] = ()
    identity = ""
    if not any(check.outcome == CHECK_BAD for check in checks):
        try:
            scopes = own_scopes(source.list_scopes(), source.providers)
        except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything
            checks = (
                *checks,
                HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_BAD, told=f"its scopes cannot be listed: {told(broken)}"),
            )
        try:
            identity = (source.fetch_identity() or "") if isinstance(source, IdentitySource) and not alone else ""
        except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything
            said = f"whether it is another account's twin cannot be told today: {told(broken)}"
            checks = (*checks, HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_UNSURE, told=said))
    return Examined(provider=name, account=_account(source, scopes), checks=checks, identity=identity, scopes=scopes)


def _account(source: InstanceSource, scopes: tuple[ScopeKey, ...]) -> str:
    """What the ledger calls it: as the source says, else as its scopes do."""
    stated = getattr(source, "account", "")
    accounts = sorted({scope.account for scope in scopes})
    return stated if isinstance(stated, str) and stated else ", ".join(accounts)


def _finding(name: str, answer: Examined | BaseException) -> Examined:
    if isinstance(answer, Examined):
        return answer
    why = str(answer) if isinstance(answer, TimeoutError) else told(answer)
    return Examined(provider=name, account="", checks=(HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=why),))
