"""Validate answers of plug-ins: the right shape, and only resources of their own provider.

A plug-in may return anything. One that answers for another provider could cause false charges, or end its resources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from costguard.errors import CostguardError, ProviderError
from costguard.metering.inventory import Complete, Failed, Partial, Poll
from costguard.metering.observation import Observation
from costguard.values.resource import ResourceKey, ScopeKey, is_storable
from costguard.values.sample import Sample

NOT_A_LISTING = "it did not return a listing of this scope"


def describe_failure(broken: object) -> str:
    """Describe `broken` on one line, without the name of its provider, which is shown beside it.

    The text of an unexpected exception is dropped: it may hold a secret.
    """
    if isinstance(broken, ProviderError):
        return "; ".join(filter(None, (broken.what, *(broken.hint or "").splitlines())))
    if isinstance(broken, CostguardError):
        return "; ".join(str(broken).splitlines())
    if isinstance(broken, BaseException):
        return f"unexpected {type(broken).__name__}"
    return NOT_A_LISTING


def may_speak_for(name: str, provider: object) -> bool:
    """Return whether the plug-in `name` may report `provider`: its own name, or a name prefixed by it (sim-aws)."""
    return isinstance(provider, str) and (provider == name or provider.startswith(f"{name}-"))


def check_own_scopes(candidates: Iterable[object], providers: Collection[str]) -> tuple[ScopeKey, ...]:
    """Return the scopes of `candidates`; raise ProviderError for an invalid scope or one of another provider."""
    scopes = list[ScopeKey]()
    for one in candidates:
        if not isinstance(one, ScopeKey) or not all(isinstance(part, str) and part and is_storable(part) for part in one):
            raise ProviderError("it did not return scopes", provider=", ".join(providers))
        if one.provider not in providers:
            raise ProviderError(f"it lists a scope of another provider: {'/'.join(one)}", provider=", ".join(providers))
        scopes.append(one)
    return tuple(scopes)


def validate_listing(listing: object, scope: ScopeKey) -> str:
    """Explain why `listing` is not a valid listing of `scope`; "" if it is."""
    if not isinstance(listing, Poll) or listing.scope != scope:
        return describe_failure(listing)
    inventory = listing.inventory
    looked_up = all(isinstance(keys, frozenset) for keys in (listing.gone, listing.unanswered))
    if not isinstance(inventory, Complete | Partial | Failed) or not looked_up:
        return NOT_A_LISTING
    items = () if isinstance(inventory, Failed) else inventory.items
    words = listing.notes if isinstance(inventory, Complete) else (inventory.why, *_to_tuple(listing.notes))
    parts = ((items, Observation), (listing.samples, Sample), (words, str))
    if not all(isinstance(many, tuple | list) and all(isinstance(one, kind) for one in many) for many, kind in parts):
        return NOT_A_LISTING
    others = sorted({key[:2] for key in _list_keys(listing, items) if key[:2] != scope[:2]})
    for provider, account in others:
        if provider != scope.provider:
            return f"it lists a resource of another provider: {provider}"
        return f"it lists a resource of another account: {account}"
    return ""


def _to_tuple(notes: object) -> tuple[object, ...]:
    """Return `notes` as a tuple; a value that is no list becomes its only element."""
    return tuple(notes) if isinstance(notes, tuple | list) else (notes,)


def _list_keys(poll: Poll, items: Iterable[Observation]) -> Iterator[ResourceKey]:
    yield from (item.key for item in items)
    yield from (sample.key for sample in poll.samples)
    yield from poll.gone
    yield from poll.unanswered
