"""One CoreWeave organization: its queries.

A scope is a cluster, because one API server's list of nodes is complete for it. There is no stop, and which node leaves when
a pool is lowered is the pool's decision, so this account acts on nothing (decision 0171). CoreWeave states no price: a node's
price is that of an `[[agreement]]`, or is estimated from the list price of its GPUs.

This module also opens accounts from `[providers.coreweave]`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from costguard.errors import (
    CredentialsError,
    ForbiddenError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    UnreachableError,
    to_one_line,
)
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation
from costguard.providers.api_keys import (
    DEFAULT_ACCOUNT,
    KeyedAccount,
    KeyLocations,
    check_account_table,
    open_keyed_accounts,
    read_timeout,
)
from costguard.providers.context import ProviderContext
from costguard.providers.kubernetes import KubernetesApi, parse_status
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Deadline, ProviderChannel, Secret, TokenBucket, check_url
from costguard.values.provider import HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard_coreweave import MANIFEST
from costguard_coreweave.api import NAME, Cluster, CoreWeaveApi, NodePool, make_fault_reader
from costguard_coreweave.examination import examine_account
from costguard_coreweave.translation import ClusterContext, ListingResult, add_node, add_unreadable

MOST_FAULTS = 3
"""Faults of a listing that are stated in full."""


class CoreWeaveAccount:
    """The organization of one token.

    `name`: its name in the ledger.
    """

    providers: Sequence[str] = (NAME,)

    def __init__(self, *, name: str, api: CoreWeaveApi, key: KeyedAccount, around: ProviderContext, timeout_s: int) -> None:
        self.name, self._api, self._key, self._timeout_s = name, api, key, timeout_s
        self._clock, self._gpus = around.clock, around.gpus
        self._clusters: dict[str, Cluster] = {}
        self._pools: dict[str, Mapping[str, NodePool]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CoreWeaveAccount({self.name!r})"

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return one scope a cluster, named by the cluster's id; those of the last answer if they cannot be listed now.

        Raises ProviderError if they were never listed. A cluster's own API server may answer while CoreWeave's does not.
        """
        try:
            self._list_clusters(Deadline(self._timeout_s))
        except ProviderError:
            if not self._clusters:
                raise
        return tuple(ScopeKey(NAME, self.name, id_) for id_ in sorted(self._clusters))

    def _list_clusters(self, deadline: Deadline) -> Mapping[str, Cluster]:
        clusters = {one.id: one for one in self._api.list_clusters(deadline)}
        with self._lock:
            self._clusters = clusters
        return clusters

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll the nodes and node pools of one cluster: two lists, 500 objects a page."""
        asked_at, listing = self._clock.now(), ListingResult()
        try:
            inventory = self._read_inventory(scope, Deadline(self._timeout_s), listing)
        except ProviderError as broken:
            inventory = Failed(_format_reason(broken))
        notes = () if isinstance(inventory, Failed) else tuple(listing.notes)
        return Poll(scope=scope, asked_at=asked_at, at=max(asked_at, self._clock.now()), inventory=inventory, notes=notes)

    def _read_inventory(self, scope: ScopeKey, deadline: Deadline, listing: ListingResult) -> Inventory:
        cluster = self._find_cluster(scope.name, deadline)
        api = self._api.open_cluster(cluster)
        pools = self._read_pools(cluster, api, deadline, listing)  # first: nodes that break off late are then still a part
        nodes = api.list_nodes(deadline)
        context = ClusterContext(account=self.name, cluster=cluster, gpus=self._gpus, pools=pools)
        for node in nodes.items:
            add_node(listing, node, context)
        for odd in nodes.odd:
            add_unreadable(listing, odd, context)
        if nodes.why:
            listing.faults.insert(0, nodes.why)
        if not listing.faults:
            return Complete(tuple(listing.items))
        more = f"; and {len(listing.faults) - MOST_FAULTS} more" if len(listing.faults) > MOST_FAULTS else ""
        return Partial(tuple(listing.items), "; ".join(listing.faults[:MOST_FAULTS]) + more)

    def _find_cluster(self, id_: str, deadline: Deadline) -> Cluster:
        cluster = self._clusters.get(id_) or self._list_clusters(deadline).get(id_)
        if cluster is None:
            raise MissingError("the list of clusters no longer has this cluster", provider=NAME, account=self.name)
        return cluster

    def _read_pools(
        self, cluster: Cluster, api: KubernetesApi, deadline: Deadline, listing: ListingResult
    ) -> Mapping[str, NodePool]:
        """Return the node pools by name, which say what is Spot; those of the last poll if they cannot be read now.

        A token that may not read them gives none, with a note. Raises ProviderError if they were never read: a Spot node
        would be listed on demand, and its price with it.
        """
        try:
            pools = self._api.list_node_pools(api, deadline)
            if pools.why:
                raise InvalidAnswerError(pools.why, provider=NAME, account=self.name)
        except (ForbiddenError, MissingError) as refused:
            listing.notes.append(f"node pools cannot be read, so Spot nodes count as on demand: {to_one_line(refused.what)}")
            return {}
        except ProviderError as broken:
            if cluster.id not in self._pools:
                raise
            listing.notes.append(f"node pools are those of an earlier poll: {_format_reason(broken)}")
            return self._pools[cluster.id]
        listing.notes.extend(f"a node pool cannot be read: {odd.why}" for odd in pools.odd)
        by_name = {one.metadata.name: one for one in pools.items if isinstance(one.metadata.name, str)}
        with self._lock:
            self._pools[cluster.id] = by_name
        return by_name

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return one node by its uid, for which the clusters of its zone are listed; None if no cluster has it.

        Raises ProviderError if a cluster of that zone cannot be listed completely.
        """
        if key[:2] != (NAME, self.name):
            raise RefusedError("cannot look up a resource of another account", provider=NAME, account=self.name)
        for cluster in self._list_clusters(Deadline(self._timeout_s)).values():
            if cluster.zone != key.region:
                continue
            inventory = self._read_inventory(ScopeKey(NAME, self.name, cluster.id), Deadline(self._timeout_s), ListingResult())
            items = () if isinstance(inventory, Failed) else inventory.items
            if node := next((one for one in items if one.key == key), None):
                return node
            if not isinstance(inventory, Complete):
                raise InvalidAnswerError(f"whether it exists is unknown: {inventory.why}", provider=NAME, account=self.name)
        return None

    def examine(self) -> Sequence[HealthCheck]:
        """Check the account without acting."""
        return examine_account(self.name, self._api, self._key, self._clock, self._timeout_s)


def _format_reason(broken: ProviderError) -> str:
    """Return the error in one line, without the provider's name, which the scope has."""
    return to_one_line(broken.what if broken.hint is None else f"{broken.what} ({broken.hint})")


BASE_URL = "https://api.coreweave.com"
PER_S, BURST = 10.0, 20
"""Requests a second, an assumption: CoreWeave publishes no limit (2026-11), and a poll makes two a cluster."""
ADVICE = {
    CredentialsError: "make a token at https://console.coreweave.com/tokens and set COREWEAVE_API_TOKEN",
    ForbiddenError: "give the token's user the rights of config/iam/kubernetes-reader.yaml in this cluster",
    UnreachableError: "the API server of a private cluster answers only inside its VPC; see https://status.coreweave.com",
}


def open_accounts(table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
    """Return an account for each in `table`; without any, that of the default token."""
    settings = check_account_table(table, MANIFEST)
    base_url = check_url(str(settings.get("base_url", BASE_URL)), f"providers.{NAME}.base_url")
    timeout_s = read_timeout(settings, MANIFEST)

    def open_account(key: KeyedAccount) -> CoreWeaveAccount:
        name = key.account or DEFAULT_ACCOUNT
        api = CoreWeaveApi(base_url, lambda url: _open_channel(around, key, name, url))
        return CoreWeaveAccount(name=name, api=api, key=key, around=around, timeout_s=timeout_s)

    return open_keyed_accounts(settings, MANIFEST, KeyLocations(env="COREWEAVE_API_TOKEN", files=()), around, open_account)


def _open_channel(around: ProviderContext, key: KeyedAccount, name: str, url: str) -> ProviderChannel:
    return ProviderChannel(
        around.transport,
        provider=NAME,
        base_url=url,
        account=name,
        headers={"Authorization": Secret(f"Bearer {key.key.reveal()}"), "Accept": "application/json"},
        buckets={"": TokenBucket(PER_S, BURST)},
        fault=make_fault_reader(parse_status),
        advice=ADVICE,
    )
