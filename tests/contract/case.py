"""One try of one adapter: it opens the account, asks it, and keeps every word that comes back, to look for secrets in them."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from costguard.errors import CostguardError, ProviderError
from costguard.metering.inventory import Complete, Failed, Poll, remove_duplicates
from costguard.metering.observation import Observation
from costguard.providers.ports import Starter, Stopper, Terminator
from costguard.values.provider import ActionResponse
from costguard.values.resource import ResourceKey, ScopeKey
from tests.contract.rig import WRONG, Rig

LONGEST_WHY = 2000
QUICK_S = 2
"""The setting `timeout_s` of the tries in which the other side never ends."""


@dataclass
class Case:
    """A rig, and what was heard of its adapter."""

    rig: Rig
    home: Path
    stack: ExitStack
    heard: list[str] = field(default_factory=list)

    @cached_property
    def source(self) -> Any:  # noqa: ANN401 - an InstanceSource with any further ports
        """The adapter's account over the healthy fake."""
        return self.open()

    def open(self, **more: Any) -> Any:  # noqa: ANN401 - what `Rig.opened` takes and gives
        """A further one, with more settings, a transport, TLS or another environment."""
        return self.stack.enter_context(self.rig.opened(self.home, **more))

    def keep(self, value: Any) -> Any:  # noqa: ANN401 - anything that can be shown
        """`value`, after noting all that it can say."""
        self.heard += [repr(value), str(value)]
        return value

    def poll(self, source: Any = None, scope: ScopeKey | None = None) -> Poll:  # noqa: ANN401
        """A poll of the first scope: never an exception, and sound whatever was answered."""
        source = source or self.source
        scope = scope or source.list_scopes()[0]
        poll: Poll = self.keep(source.poll(scope))
        assert poll.scope == scope
        self._is_sound(poll)
        return poll

    def _is_sound(self, poll: Poll) -> None:
        assert poll.asked_at is None or poll.asked_at <= poll.at
        why = getattr(poll.inventory, "why", None)
        assert why is None or (why and len(why) < LONGEST_WHY), why
        for item in items(poll):
            assert item.key[:2] == poll.scope[:2], "an item of another account"
            assert all(price.rate is None or price.rate.nano_per_hour > 0 for price in item.prices), item.prices
        there = {item.key for item in items(poll)}
        assert all(sample.key in there for sample in poll.samples)

    def broken(self, call: Callable[[], object], kind: type[CostguardError] = ProviderError) -> CostguardError:
        """The error that `call` raises, which must be one of ours."""
        with pytest.raises(kind) as caught:
            self.keep(call())
        self.heard += [str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value))]
        return caught.value

    def machine(self) -> Observation:
        """One running machine, as the adapter sees it."""
        self.rig.put(1)
        (seen,) = instances(self.poll())
        return seen

    def stop(self, key: ResourceKey, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """How the adapter's stop was received; it never raises."""
        assert isinstance(self.source, Stopper)
        reception: ActionResponse = self.keep(self.source.stop(key, lose=lose))
        return reception

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """How its terminate was received."""
        assert isinstance(self.source, Terminator)
        reception: ActionResponse = self.keep(self.source.terminate(key))
        return reception

    def start(self, key: ResourceKey) -> ActionResponse:
        """How its start was received."""
        assert isinstance(self.source, Starter)
        reception: ActionResponse = self.keep(self.source.start_instance(key))
        return reception

    def act(self, verb: str, seen: Observation) -> ActionResponse:
        """Stop `seen`, whatever it loses, or terminate it."""
        return self.stop(seen.key, frozenset(seen.handling.stop_loses)) if verb == "stop" else self.terminate(seen.key)

    def line(self, verb: str) -> str:
        """The requests of an act; skips where the cloud has no such act."""
        line = self.rig.stops if verb == "stop" else self.rig.terminates
        if not line:
            pytest.skip(f"{self.rig.provider} cannot {verb}")
        return line

    def found_secrets(self, text: str) -> list[str]:
        """The canaries that `text` holds in any form."""
        canaries = (self.rig.secret, WRONG, *self.rig.more_secrets)
        return [form for canary in canaries for form in forms(canary) if form in text]


def forms(canary: str) -> list[str]:
    """How `canary` may be written: plain, for an address, in hex, in base64 at each of its three offsets."""
    raw = canary.encode()
    whole = [base64.b64encode(b"\0" * skip + raw).decode()[4 if skip else 0 : -4] for skip in range(3)]
    return [canary, quote(canary, safe=""), raw.hex(), *(form[:40] for form in whole if len(form) >= 8)]


def items(poll: Poll) -> tuple[Observation, ...]:
    """Whatever was listed."""
    return () if isinstance(poll.inventory, Failed) else poll.inventory.items


def instances(poll: Poll) -> tuple[Observation, ...]:
    """The instances of it that have not ended, each once."""
    inventory, _ = remove_duplicates(poll.inventory)
    there = () if isinstance(inventory, Failed) else inventory.items
    return tuple(item for item in there if item.kind == "instance" and item.state != "ended")


def ids(poll: Poll) -> set[str]:
    """Their ids."""
    return {item.key.id for item in instances(poll)}


def is_complete(poll: Poll) -> bool:
    """Whether the listing claims to be whole."""
    return isinstance(poll.inventory, Complete)


def said(poll: Poll) -> str:
    """Every word of the poll beside its items."""
    return " ".join((getattr(poll.inventory, "why", ""), *poll.notes))
