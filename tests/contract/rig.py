"""What the contract suite needs to know of a cloud in order to try its adapter over real HTTP.

Every adapter has one subclass of `Rig` beside its tests (`tests/providers/<cloud>/rig.py`) and one line in RIGS of
`tests/contract/adapters.py`. The suite itself is the same for all.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from costguard.data import ShippedFacts
from costguard.metering.inventory import Poll
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import ProviderContext, Transport
from costguard.services.poll.configured_providers import BillExportReader
from costguard.values.gpu import GpuNames
from costguard.values.resource import ScopeKey
from tests.fakes.server import Answer, FakeCloud, Hands, serving


class NoCache:
    """A cache that keeps nothing, so that each test asks for itself."""

    def get(self, name: str, youngest: object) -> bytes | None:  # noqa: ARG002 - the port's signature
        return None

    def put(self, name: str, data: bytes) -> None:
        pass


NAMES = GpuNames(ShippedFacts().get_gpus())
BILLS = BillExportReader()
BUSY_S = 300
"""How long a poll may take where nothing is said of it: as long as a busy machine may need."""


class Rig(ABC):
    """One cloud: its fake, its plug-in, and where to hurt it. Made anew for every test."""

    provider: ClassVar[str]
    secret: ClassVar[str]
    """The canary that stands for its key; it must appear in no output whatever happens."""
    lists: ClassVar[str]
    """Regular expression of the line of the requests that list instances."""
    paged: ClassVar[bool] = True
    """Whether that listing has pages."""
    stops: ClassVar[str | None]
    """Of the request that stops one instance; None: the cloud cannot."""
    terminates: ClassVar[str]
    """Of the request that ends one; "": the cloud cannot."""
    starts: ClassVar[str | None] = None
    """Of the request that starts a stopped one; None: the cloud cannot."""
    one: ClassVar[str]
    """Of the request that looks up one instance."""
    cap: ClassVar[int | None] = 10_000
    """Machines of one scope beyond which the listing is cut; None: its own tests lower it and try it."""
    identity: ClassVar[tuple[str, str, str] | None] = None
    """Of the request that says whose the key is, what it says, and what a key of another account says; None: there is none."""
    more_secrets: ClassVar[tuple[str, ...]] = ()
    """Further canaries: a session token, a private key."""
    slow_s: ClassVar[float] = 3.0
    """How long the poll of one scope may take in the settings of `open`, for the suite's drip and black hole."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.fake = self.make_fake()

    @abstractmethod
    def make_fake(self) -> FakeCloud:
        """An empty fake with this rig's clock."""

    @abstractmethod
    def put(self, count: int) -> list[str]:
        """Let `count` plain running GPU machines be there, in the first scope, and say their ids in the ledger's form."""

    @abstractmethod
    def state_of(self, id: str) -> str:  # noqa: A002 - the ledger's word
        """The truth about one machine: "running", "stopped" or "ended" (gone counts as ended)."""

    @abstractmethod
    def let(self, id: str, state: str) -> None:  # noqa: A002 - the ledger's word
        """Make one machine "running", "stopped" or "ended" behind the adapter's back."""

    @abstractmethod
    def spoil(self, id: str, **fields: Any) -> None:  # noqa: A002, ANN401 - as the wire has them
        """Overwrite fields of one machine as they go over the wire (None becomes null; `...` leaves the field out).

        Every rig understands the neutral names `price`, `status`, `gpu`, `gpu_count`, `name`, `started`, `owner`, and puts the
        value where its wire has them; those that its wire lacks it ignores.
        """

    @abstractmethod
    def page(self, size: int) -> None:
        """Let the listing have `size` machines a page (where it is paged)."""

    @abstractmethod
    def environ(self) -> Mapping[str, str]:
        """The environment in which the plug-in finds its key."""

    @abstractmethod
    def table(self, base: str) -> Mapping[str, object]:
        """The settings `[providers.NAME]` that point at the fake."""

    @abstractmethod
    def plugin(self) -> Any:  # noqa: ANN401 - each plug-in is a class of its own
        """The plug-in: what its entry point loads."""

    def missing(self) -> str:
        """An id in the ledger's form that no machine has: that of one made for it, with its last letter or digit changed."""
        id_ = self.put(1)[0]
        last = next(i for i in range(len(id_) - 1, -1, -1) if id_[i].isalnum())
        other = ("1" if id_[last] != "1" else "2") if id_[last].isdigit() else ("a" if id_[last] != "a" else "b")
        return id_[:last] + other + id_[last + 1 :]

    def wrong_environ(self) -> Mapping[str, str]:
        """The environment with a key that the fake refuses. A rig whose keys lie in files writes them wrong here instead."""
        return {name: value.replace(self.secret, WRONG) for name, value in self.environ().items()}

    def two_scopes(self) -> tuple[Mapping[str, object], str] | None:
        """Further settings with which one account has two scopes, and the line of the requests that list the first.

        None: an account of this cloud is one scope.
        """
        return None

    def become_another(self, count: int, *, said: bool) -> None:
        """Let the key be of another account, with `count` other machines. `said`: the cloud says whose it is."""
        there: list[Any] = getattr(getattr(self.fake, "ec2", self.fake), "resources")  # noqa: B009 - each fake has its own
        before = list(there)
        self.put(count)
        there[:] = [one for one in there if all(one is not old for old in before)]
        if self.identity:
            line, own, other = self.identity

            def edit(right: Answer) -> Answer:
                body = right.body.replace(own.encode(), other.encode())
                return replace(right, body=body) if said else Answer.of({"error": "forbidden"}, 403)

            self.fake.fault(line, "edit", edit=edit)

    def shuffle(self) -> bool:
        """Let the next listings come in another order; False where the fake has no list to turn round."""
        resources = getattr(self.fake, "resources", None)
        if not isinstance(resources, list):
            return False
        resources.reverse()
        return True

    @contextmanager
    def opened(
        self,
        tmp_path: Path,
        *,
        transport: Transport | None = None,
        context: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
        **more: Any,  # noqa: ANN401 - further settings
    ) -> Iterator[InstanceSource]:
        """The first account of the plug-in over the fake, served on loopback; over TLS with `context`."""
        ours = transport or Transport()
        try:
            with serving(self.fake, context) as base:
                yield self.accounts(base, ours, tmp_path, environ, **more)[0]
        finally:
            if transport is None:
                ours.close()

    def accounts(
        self,
        base: str,
        transport: Transport,
        home: Path,
        environ: Mapping[str, str] | None = None,
        **more: Any,  # noqa: ANN401 - further settings
    ) -> Sequence[InstanceSource]:
        """Every account of the plug-in, with the fake at `base`."""
        environ = self.environ() if environ is None else environ
        around = ProviderContext(
            transport=transport, clock=self.clock, gpus=NAMES, bills=BILLS, cache=NoCache(), environ=environ, home=home
        )
        accounts: Sequence[InstanceSource] = self.plugin().open({"timeout_s": BUSY_S, **self.table(base), **more}, around)
        return accounts


WRONG = "wrong-canary-0123456789abcdef"
"""A key that no fake knows, of 16 characters and more; a canary as well."""


def poll_of(source: InstanceSource, scope: ScopeKey | None = None) -> Poll:
    """A poll of `scope`, or of the first one."""
    return source.poll(scope or source.list_scopes()[0])
