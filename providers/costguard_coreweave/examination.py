"""The checks of `costguard doctor` for a CoreWeave organization, without acting and without cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from costguard.errors import CredentialsError, ForbiddenError, ProviderError, shorten, to_one_line
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import Deadline
from costguard.system.clock import Clock
from costguard.values.provider import (
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_SKIPPED,
    CHECK_UNSURE,
    CLOCK_CHECK,
    CREDENTIALS_CHECK,
    IDENTITY_CHECK,
    PERMISSION_CHECK,
    REACHABLE_CHECK,
    UTILIZATION_CHECK,
    HealthCheck,
)
from costguard_coreweave.api import Cluster, CoreWeaveApi

SKEW_S = 30.0
"""Seconds by which two clocks may differ before times cannot be compared."""
MOST_CLUSTERS = 5
"""Clusters that are examined, so that an examination ends soon."""
NEW_KEY = "make a token at https://console.coreweave.com/tokens, then: export COREWEAVE_API_TOKEN=..."
RIGHTS = "kubectl apply -f config/iam/kubernetes-reader.yaml in this cluster, with the token's user in it"
LIST_CLUSTERS = f"{PERMISSION_CHECK}: list clusters"


def examine_account(name: str, api: CoreWeaveApi, key: KeyedAccount, clock: Clock, timeout_s: float) -> tuple[HealthCheck, ...]:
    """Run the checks in order; those after a wrong token or a failed connection are skipped."""
    deadline = Deadline(timeout_s)
    source = f"{key.source}, ending in {key.key.get_hint()}"
    clusters: tuple[Cluster, ...] = ()
    try:
        clusters = api.list_clusters(deadline)
    except CredentialsError as refused:
        reached = HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="CoreWeave answers")
        return (_make_check(CREDENTIALS_CHECK, refused, source, NEW_KEY), reached, *_skip_checks("the token is refused"))
    except ForbiddenError as refused:
        return (
            HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=source),
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="CoreWeave answers"),
            _make_check(LIST_CLUSTERS, refused, "", NEW_KEY),
            _check_clock(api, clock),
        )
    except ProviderError as broken:
        unsure = f"{source}; not tried, because the request to CoreWeave failed"
        fix = broken.hint or "try `curl https://api.coreweave.com`; see [providers.coreweave] base_url"
        return (
            HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_UNSURE, told=unsure),
            _make_check(REACHABLE_CHECK, broken, "", fix),
            *_skip_checks("CoreWeave cannot be reached"),
        )
    return (
        HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=source),
        HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="CoreWeave answers"),
        _make_unsure(IDENTITY_CHECK, f"CoreWeave does not name the token's organization; it is used as account '{name}'"),
        HealthCheck(subject=LIST_CLUSTERS, outcome=CHECK_GOOD, told=f"{len(clusters)} clusters"),
        *(check for cluster in clusters[:MOST_CLUSTERS] for check in _examine_cluster(api, cluster, deadline)),
        _check_clock(api, clock),
        _make_unsure(UTILIZATION_CHECK, "costguard reads no metrics of CoreWeave: only an agent on the node detects idleness"),
    )


def _skip_checks(why: str) -> tuple[HealthCheck, ...]:
    subjects = (IDENTITY_CHECK, LIST_CLUSTERS, CLOCK_CHECK)
    return tuple(HealthCheck(subject=subject, outcome=CHECK_SKIPPED, told=why) for subject in subjects)


def _make_unsure(subject: str, text: str) -> HealthCheck:
    return HealthCheck(subject=subject, outcome=CHECK_UNSURE, told=text)


def _make_check(subject: str, broken: ProviderError | None, text: str, fix: str, outcome: str = CHECK_BAD) -> HealthCheck:
    if broken is None:
        return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=text)
    return HealthCheck(
        subject=subject, outcome=outcome, told=to_one_line(": ".join(filter(None, (text, broken.what)))), fix=fix
    )


def _examine_cluster(api: CoreWeaveApi, cluster: Cluster, deadline: Deadline) -> Iterator[HealthCheck]:
    """Check each right by using it."""
    name = to_one_line(shorten(cluster.name or cluster.id, 60))
    nodes = _try_call(lambda: api.open_cluster(cluster).list_nodes(deadline))
    yield _make_check(f"{PERMISSION_CHECK}: list nodes of {name}", nodes, "", (nodes and nodes.hint) or RIGHTS)
    if nodes is None:
        pools = _try_call(lambda: api.list_node_pools(api.open_cluster(cluster), deadline))
        text = "" if pools is None else "without it Spot nodes count as on demand"
        yield _make_check(f"{PERMISSION_CHECK}: list node pools of {name}", pools, text, RIGHTS, CHECK_UNSURE)


def _try_call(call: Callable[[], object]) -> ProviderError | None:
    try:
        call()
    except ProviderError as broken:
        return broken
    return None


def _check_clock(api: CoreWeaveApi, clock: Clock) -> HealthCheck:
    there_now = api.channel.date
    if there_now is None:
        return _make_unsure(CLOCK_CHECK, "CoreWeave's answers have no date")
    skew = (clock.now() - there_now).total_seconds()
    text = f"this clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} CoreWeave's"
    if abs(skew) > SKEW_S:
        fix = "set this machine's clock: timedatectl set-ntp true"
        return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_BAD, told=text, fix=fix)
    return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_GOOD, told=text)
