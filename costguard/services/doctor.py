"""doctor: every account examined at once; one that hangs or breaks is itself a finding, and hides no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from costguard.providers.ports import Examiner, IdentitySource, InstanceSource
from costguard.services.concurrency import run_all
from costguard.services.listing_validation import check_own_scopes, describe_failure
from costguard.values.health import CHECK_BAD, CHECK_UNSURE, IDENTITY_CHECK, REACHABLE_CHECK, HealthCheck
from costguard.values.resource import ScopeKey

EXAMINATION_LIMIT_S = 60.0
"""How long all examinations may take together: somebody waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountExamination:
    """One account and what was found. `account` "": it could not be learned. `identity`: what its provider calls it."""

    provider: str
    account: str
    checks: tuple[HealthCheck, ...]
    identity: str = ""
    scopes: tuple[ScopeKey, ...] = ()


def examine_accounts(
    sources: Sequence[tuple[str, InstanceSource]], *, limit_s: float = EXAMINATION_LIMIT_S
) -> tuple[AccountExamination, ...]:
    """Every one of `sources`, each with its provider's name, in their order."""
    names = [name for name, _ in sources]
    questions: Mapping[int, Callable[[], AccountExamination]] = {
        number: _build_question(name, source, alone=names.count(name) == 1) for number, (name, source) in enumerate(sources)
    }
    answers = run_all(questions, limit_s=limit_s)
    return tuple(_to_examination(sources[number][0], answer) for number, answer in answers.items())


def find_twin_accounts(examined: Sequence[AccountExamination]) -> tuple[str, ...]:
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


def _build_question(name: str, source: InstanceSource, *, alone: bool) -> Callable[[], AccountExamination]:
    return lambda: _examine_account(name, source, alone=alone)


def _examine_account(name: str, source: InstanceSource, *, alone: bool) -> AccountExamination:
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
            scopes = check_own_scopes(source.list_scopes(), source.providers)
        except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything
            checks = (
                *checks,
                HealthCheck(
                    subject=IDENTITY_CHECK, outcome=CHECK_BAD, told=f"its scopes cannot be listed: {describe_failure(broken)}"
                ),
            )
        try:
            identity = (source.fetch_identity() or "") if isinstance(source, IdentitySource) and not alone else ""
        except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything
            said = f"whether it is another account's twin cannot be told today: {describe_failure(broken)}"
            checks = (*checks, HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_UNSURE, told=said))
    return AccountExamination(
        provider=name, account=_name_account(source, scopes), checks=checks, identity=identity, scopes=scopes
    )


def _name_account(source: InstanceSource, scopes: tuple[ScopeKey, ...]) -> str:
    """What the ledger calls it: as the source says, else as its scopes do."""
    stated = getattr(source, "account", "")
    accounts = sorted({scope.account for scope in scopes})
    return stated if isinstance(stated, str) and stated else ", ".join(accounts)


def _to_examination(name: str, answer: AccountExamination | BaseException) -> AccountExamination:
    if isinstance(answer, AccountExamination):
        return answer
    why = str(answer) if isinstance(answer, TimeoutError) else describe_failure(answer)
    return AccountExamination(
        provider=name, account="", checks=(HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=why),)
    )
