"""What must be so of an answer before anything is made of it: it has the right shape, and tells of its source's own things.

Whoever wrote a plug-in may answer anything. One that answers for another provider would charge it, or end what it holds.
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
    """What to say of `broken` on one line, beside the name of its provider, which is therefore left out.

    The words of an unexpected one are left out, too: they may hold a secret.
    """
    if isinstance(broken, ProviderError):
        return "; ".join(filter(None, (broken.what, *(broken.hint or "").splitlines())))
    if isinstance(broken, CostguardError):
        return "; ".join(str(broken).splitlines())
    if isinstance(broken, BaseException):
        return f"unexpected {type(broken).__name__}"
    return NOT_A_LISTING


def may_speak_for(name: str, provider: object) -> bool:
    """Whether the plug-in `name` may speak for `provider`: its own name, or one that starts with it (sim-aws)."""
    return isinstance(provider, str) and (provider == name or provider.startswith(f"{name}-"))


def check_own_scopes(stated: Iterable[object], providers: Collection[str]) -> tuple[ScopeKey, ...]:
    """The scopes of `stated`; ProviderError where one is none, or lies with a provider that the source does not speak for."""
    scopes = list[ScopeKey]()
    for one in stated:
        if not isinstance(one, ScopeKey) or not all(isinstance(part, str) and part and is_storable(part) for part in one):
            raise ProviderError("it did not return scopes", provider=", ".join(providers))
        if one.provider not in providers:
            raise ProviderError(f"it lists a scope of another provider: {'/'.join(one)}", provider=", ".join(providers))
        scopes.append(one)
    return tuple(scopes)


def validate_listing(said: object, scope: ScopeKey) -> str:
    """Why `said` is no listing of `scope`; "" where it is one."""
    if not isinstance(said, Poll) or said.scope != scope:
        return describe_failure(said)
    found = said.inventory
    looked_up = all(isinstance(keys, frozenset) for keys in (said.gone, said.unanswered))
    if not isinstance(found, Complete | Partial | Failed) or not looked_up:
        return NOT_A_LISTING
    items = () if isinstance(found, Failed) else found.items
    words = said.notes if isinstance(found, Complete) else (found.why, *_to_tuple(said.notes))
    parts = ((items, Observation), (said.samples, Sample), (words, str))
    if not all(isinstance(many, tuple | list) and all(isinstance(one, kind) for one in many) for many, kind in parts):
        return NOT_A_LISTING
    others = sorted({key.provider for key in _list_keys(said, items) if key.provider != scope.provider})
    return f"it lists a resource of another provider: {others[0]}" if others else ""


def _to_tuple(notes: object) -> tuple[object, ...]:
    """`notes` to be looked at one by one; what is no list is one odd thing."""
    return tuple(notes) if isinstance(notes, tuple | list) else (notes,)


def _list_keys(poll: Poll, items: Iterable[Observation]) -> Iterator[ResourceKey]:
    yield from (item.key for item in items)
    yield from (sample.key for sample in poll.samples)
    yield from poll.gone
    yield from poll.unanswered
