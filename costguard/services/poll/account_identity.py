"""Whose account a key is, as its provider says. The ledger compares it with what it remembers (`LedgerWriter.record_polls`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from costguard.metering.inventory import Poll
from costguard.providers.ports import IdentitySource, InstanceSource
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.listing_validation import check_own_scopes
from costguard.system.clock import read_monotonic
from costguard.values.resource import ScopeKey

IDENTITY_LIMIT_S = 10.0
"""How long a poll waits for the name of its account; then its listing is what counts."""
KNOWN_FOR_S, RETRY_AFTER_S = 3600.0, 600.0
"""How long an answer holds, and a failure or a refusal: a key is read when its account is opened. Assumptions, 2026-11."""


@dataclass(slots=True)
class IdentityCache:
    """What providers call the accounts of their keys, so that most polls need not ask."""

    _answers: dict[int, tuple[str, bool, float]] = field(default_factory=dict)

    def fetch_identity(self, source: IdentitySource) -> tuple[str, bool]:
        """Return what the provider calls the account of `source`, "" if it does not say, and whether it could be asked."""
        answer = self._answers.get(id(source))
        if answer is None or read_monotonic() >= answer[2]:
            identity = run_all({0: source.fetch_identity}, limit_s=IDENTITY_LIMIT_S)[0]  # a plug-in may raise anything
            name = identity if isinstance(identity, str) else ""
            until = read_monotonic() + (KNOWN_FOR_S if name else RETRY_AFTER_S)
            answer = self._answers[id(source)] = (name, not isinstance(identity, BaseException), until)
        return answer[:2]

    def get(self, source: object) -> str:
        """Return the last answer about `source`; "" if there is none."""
        return self._answers.get(id(source), ("",))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountIntroduction:
    """The scopes and identity of an account, before it is polled.

    `identity` "": not stated. `unsure`: the request for it failed.
    """

    scopes: tuple[ScopeKey, ...]
    identity: str = ""
    unsure: bool = False


def fetch_introduction(source: InstanceSource, identities: IdentityCache, *, alone: bool) -> AccountIntroduction:
    """Return its scopes and its identity, if that could be another one than before, or that of another source."""
    scopes = check_own_scopes(source.list_scopes(), source.providers)
    if not isinstance(source, IdentitySource) or (alone and not name_key(source, scopes)):
        return AccountIntroduction(scopes=scopes)
    identity, is_sure = identities.fetch_identity(source)
    return AccountIntroduction(scopes=scopes, identity=identity, unsure=not is_sure)


def name_key(source: InstanceSource, scopes: tuple[ScopeKey, ...]) -> str:
    """Return what the settings call the key of `source`, the name of its account where it states no `key_name`; "": none."""
    name = getattr(source, "key_name", None)
    return name if isinstance(name, str) else next((scope.account for scope in scopes), "")


def add_identity(poll: Poll, source: InstanceSource, introduction: AccountIntroduction | None) -> Poll:
    """Return `poll` with the name of its key and what that is; proven where the provider lists no other account under it."""
    key_name = name_key(source, introduction.scopes if introduction else ())
    identity = (key_name, introduction.identity) if introduction and introduction.identity and key_name else None
    return replace(poll, identity=identity, proven=poll.proven or not key_name)
