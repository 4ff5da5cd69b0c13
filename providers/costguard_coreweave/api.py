"""CoreWeave's HTTP requests: the list of clusters, and the lists of each cluster's own API server.

The token of the organization is sent to the addresses that the list of clusters states, so those must be CoreWeave's: the host
of `base_url`, or one below coreweave.com.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from costguard.errors import InputError, InvalidAnswerError, ProviderError, RefusedError, shorten, to_one_line
from costguard.providers.kubernetes import KubernetesApi, ObjectList, ObjectMeta, make_odd_answer
from costguard.providers.transport import Deadline, HttpResponse, ProviderChannel, check_url, make_status_fault_reader

NAME = "coreweave"
CLUSTERS = "/v1beta1/cks/clusters"
NODE_POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
OWN_DOMAIN = ".coreweave.com"
OK = 200
MOST_CLUSTERS = 200


class Cluster(msgspec.Struct, frozen=True):
    """A cluster. `apiServerEndpoint`: absent while it is made; with or without https://."""

    id: str
    name: str = ""
    zone: str = ""
    status: object = None
    public: object = None
    apiServerEndpoint: object = None  # noqa: N815 - the wire's name


class ClusterList(msgspec.Struct, frozen=True):
    """The answer to the list of clusters. `nextPageToken`: whether that list has pages is not documented."""

    items: list[Cluster]
    nextPageToken: object = None  # noqa: N815 - the wire's name


class NodePoolSpec(msgspec.Struct, frozen=True):
    """`computeClass`: "default" (reserved and on demand) or "Spot". `autoscaling`: who decides `targetNodes`."""

    computeClass: object = None  # noqa: N815 - the wire's name
    instanceType: object = None  # noqa: N815 - the wire's name
    targetNodes: object = None  # noqa: N815 - the wire's name
    autoscaling: object = None


class NodePool(msgspec.Struct, frozen=True):
    """A node pool of a cluster."""

    metadata: ObjectMeta
    spec: NodePoolSpec | None = None


class CoreWeaveApi:
    """One organization's requests.

    `open_channel`: returns a channel with the organization's token to an address.
    """

    def __init__(self, base_url: str, open_channel: Callable[[str], ProviderChannel]) -> None:
        self.channel, self._open_channel = open_channel(base_url), open_channel
        self._own_host = urlsplit(base_url).hostname or ""
        self._clusters: dict[str, KubernetesApi] = {}
        self._lock = threading.Lock()

    def list_clusters(self, deadline: Deadline) -> tuple[Cluster, ...]:
        """Return the clusters of the organization, in order of id; raises ProviderError if they may not be all."""
        reply = self.channel.read(CLUSTERS, scope="clusters", deadline=deadline)
        clusters = self.channel.decode(reply, ClusterList, "the list of clusters")
        if clusters.nextPageToken or len(clusters.items) > MOST_CLUSTERS:
            raise make_odd_answer(self.channel, "the list of clusters has several pages, of which only the first can be read")
        return tuple(sorted(clusters.items, key=lambda one: one.id))

    def open_cluster(self, cluster: Cluster) -> KubernetesApi:
        """Return the API server of `cluster`; raises ProviderError if it has no address that the token may be sent to."""
        endpoint = cluster.apiServerEndpoint
        if not isinstance(endpoint, str) or not endpoint:
            status = f" ({to_one_line(shorten(str(cluster.status)))})" if cluster.status else ""
            raise make_odd_answer(self.channel, f"cluster {_shorten_name(cluster)} has no API server yet{status}")
        try:
            url = check_url(endpoint if "://" in endpoint else f"https://{endpoint}", "apiServerEndpoint")
        except InputError as wrong:
            raise make_odd_answer(self.channel, f"cluster {_shorten_name(cluster)}: its API server {wrong.what}") from None
        host = urlsplit(url).hostname or ""
        if host != self._own_host and not host.endswith(OWN_DOMAIN):
            what = f"cluster {_shorten_name(cluster)}: its API server {shorten(host)} is not CoreWeave's: no token was sent"
            raise RefusedError(what, provider=NAME, account=self.channel.account)
        with self._lock:
            if url not in self._clusters:
                self._clusters[url] = KubernetesApi(self._open_channel(url))
            return self._clusters[url]

    def list_node_pools(self, cluster: KubernetesApi, deadline: Deadline) -> ObjectList[NodePool]:
        """Return the node pools of a cluster."""
        return cluster.list_objects(NODE_POOLS, NodePool, "the list of node pools", deadline)


def _shorten_name(cluster: Cluster) -> str:
    return to_one_line(shorten(cluster.name or cluster.id, 60))


def make_fault_reader(parse: Callable[[HttpResponse], tuple[str, str]]) -> Callable[[HttpResponse], ProviderError | None]:
    """Return a function that gives the error of a reply: HTTP's, and of any good status other than 200."""
    usual = make_status_fault_reader(NAME, parse)

    def fault(reply: HttpResponse) -> ProviderError | None:
        error = usual(reply)
        if error is None and reply.status != OK:
            return InvalidAnswerError(f"answered with an unexpected status {reply.status}", provider=NAME, status=reply.status)
        return error

    return fault
