"""Requests to RunPod: two channels, the meaning of statuses, and the requests that are not paged lists.

Rate limit headers of REST v2 state how long to wait when a window of the quota is used up. Example: `RateLimit:
"minute";r=0;t=12, "hour";r=0;t=1812, "day";r=49500;t=45012` with `Retry-After: 12`: wait 1812 s, because the hour is used up as
well. They come with every answer, also with 200 (the specification of 2026-08-20).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from costguard.errors import (
    CredentialsError,
    ForbiddenError,
    InputError,
    InvalidAnswerError,
    ProviderError,
    RefusedError,
    ThrottledError,
    shorten,
)
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import (
    Deadline,
    HttpResponse,
    ProviderChannel,
    ProviderContext,
    Secret,
    TokenBucket,
    check_url,
    make_status_fault_reader,
)
from costguard.providers.transport.channel import RETRY_AFTER_MOST_S, parse_retry_after
from costguard.values.resource import ResourceKey
from costguard_runpod.pagination import UNREADABLE, make_odd_answer, parse_leniently
from costguard_runpod.wire import BillPage, CatalogueGpu, GpuCatalogue, GraphAnswer, KeyOwner, Pod, ProblemDetail

T = TypeVar("T")

BASE_URL, GRAPHQL_URL = "https://api.runpod.io", "https://api.runpod.io/graphql"
PER_MINUTE = 60
"""The example of the specification of 2026-08-20, with 3,000 an hour and 50,000 a day; the real quota is the account's own."""
FILLED, AT_ONCE, KEPT = 0.8, 1 / 5, 1 / 12
"""Of the minute's quota: what comes back, what may go at once, and what of that is kept for acts. 48 + 12 requests stay within
the first minute's, and 12 + 2,880 within the hour's. The day's lasts for 17 h without a pause, as many as 12,000 stops take."""
GONE = 410
HINDERS = frozenset(("status", "actions", "locked", "cluster"))
"""Fields of a pod that may forbid an act."""
LOOK_S = 8.0
"""Seconds for the look before an act, which has 20 s more: together less than the 30 s after which an intent expires."""
ADVICE: Mapping[type[ProviderError], str] = {
    CredentialsError: "create a key at https://console.runpod.io/user/settings, and put it there",
    ForbiddenError: "it is restricted: grant it read rights (write rights to act) in RunPod's settings",
}
QUERY = "query { myself { id clientBalance currentSpendPerHr spendLimit } }"


def parse_base_url(url: object) -> str:
    """Return the address of REST v2 without its /v2; an address of the retired v1 is refused by name."""
    base = check_url(str(url or BASE_URL), "providers.runpod.base_url")
    if urlsplit(base).hostname == "rest.runpod.io" or base.endswith("/v1"):
        what = "is RunPod's REST v1, which was retired on 2026-11-15"
        raise InputError(what, field="providers.runpod.base_url", hint=f'write base_url = "{BASE_URL}"')
    return base.removesuffix("/v2")


def open_rest_channel(around: ProviderContext, key: KeyedAccount, account: str, base: str, per_minute: int) -> ProviderChannel:
    """Return the account's channel to REST v2."""
    bucket = TokenBucket(per_minute * FILLED / 60, per_minute * AT_ONCE, reserve=per_minute * KEPT)
    return _open_channel(around, key, account, base, bucket)


def open_graphql_channel(
    around: ProviderContext, key: KeyedAccount, account: str, url: str, per_minute: int
) -> ProviderChannel:
    """Return the account's channel to GraphQL, for the balance; the key is never in the address.

    GraphQL states no quota of its own.
    """
    bucket = TokenBucket(per_minute * FILLED / 60, per_minute * AT_ONCE)
    return _open_channel(around, key, account, check_url(url, "providers.runpod.graphql_url"), bucket)


def _open_channel(around: ProviderContext, key: KeyedAccount, account: str, base: str, bucket: TokenBucket) -> ProviderChannel:
    def fault(reply: HttpResponse) -> ProviderError | None:
        pause = compute_pause(reply)
        if pause:
            bucket.close_for(min(pause, RETRY_AFTER_MOST_S))
        return read_fault(reply)

    where = f"{key.source} holds {key.key.get_hint()}"
    return ProviderChannel(
        around.transport,
        provider="runpod",
        base_url=base,
        account=account,
        headers={"Authorization": Secret(f"Bearer {key.key.reveal()}"), "Accept": "application/json"},
        buckets={"": bucket},
        fault=fault,
        advice={kind: f"{where}: {advice}" for kind, advice in ADVICE.items()},
    )


def read_fault(reply: HttpResponse) -> ProviderError | None:
    """Return the error of a status. 410 is a retired API, never a missing pod; the same goes for a web page with 404."""
    if reply.status == GONE:
        what = "this API was retired (410)"
        return RefusedError(
            what, provider="runpod", status=GONE, hint=f'write base_url = "{BASE_URL}" under [providers.runpod]'
        )
    error = _BY_STATUS(reply)
    if error is not None and reply.status == 404 and reply.body[:64].lstrip()[:1] == b"<":  # noqa: PLR2004
        return InvalidAnswerError("answered 404 with a web page", provider="runpod", status=404)
    return None if error is None else apply_rate_limit(reply, error)


def _parse_problem(reply: HttpResponse) -> tuple[str, str]:
    """Return RunPod's error message; there are no codes."""
    try:
        problem = msgspec.json.decode(reply.body, type=ProblemDetail)
    except UNREADABLE:
        return "", ""
    return "", "; ".join([problem.detail or problem.title or "", *(problem.errors or [])[:3]])


_BY_STATUS = make_status_fault_reader("runpod", _parse_problem)


def build_pod_path(key: ResourceKey) -> str:
    """Return `/v2/pods/ID`.

    An id that would change the path is refused before anything is sent.
    """
    if key.id.strip(". ") == "":
        raise RefusedError(f"'{shorten(key.id)}' is not an id of a pod: no request was sent", provider="runpod")
    return f"/v2/pods/{quote(key.id, safe='')}"


def fetch_pod(channel: ProviderChannel, key: ResourceKey, *, first: bool = False) -> Pod:
    """Return the current pod; raises MissingError if there is none, InvalidAnswerError if another one was returned.

    `first`: the request precedes an act, so it goes before every listing, once, and within `LOOK_S`; the fields that may hinder
    the act must then be readable.
    """
    path = build_pod_path(key)
    if first:
        reply = channel.ask(channel.build_request("GET", path), deadline=Deadline(LOOK_S), act=True)
        return parse_pod(channel, reply, key, needed=HINDERS)
    return parse_pod(channel, channel.read(path, scope="pod"), key)


def parse_pod(channel: ProviderChannel, reply: HttpResponse, key: ResourceKey, *, needed: frozenset[str] = frozenset()) -> Pod:
    """Return the pod of an answer.

    `needed`: fields that must be readable if they are present.
    """
    pod, left_out = parse_leniently(reply.body, Pod)
    if pod is None:
        raise make_odd_answer(channel, "a question about one pod", reply.body, ValueError("it is not a pod"))
    if pod.id != key.id:
        raise InvalidAnswerError("answered with another pod", provider="runpod", account=channel.account, status=reply.status)
    if unread := needed.intersection(left_out):
        what = f"states {', '.join(sorted(unread))} of the pod in a form that cannot be read"
        raise InvalidAnswerError(what, provider="runpod", account=channel.account, status=reply.status)
    return pod


def fetch_catalogue(channel: ProviderChannel, deadline: Deadline | None = None, cloud: str = "") -> list[CatalogueGpu]:
    """Return every GPU of the catalogue; with `cloud`, also whether one is available there now."""
    params = {"include": "AVAILABILITY", "product": "POD", "count": "1", "cloud": cloud} if cloud else {}
    return _fetch(channel, "/v2/catalog/gpus", params, GpuCatalogue, deadline).gpus


def fetch_bill(channel: ProviderChannel, path: str, params: Mapping[str, str]) -> BillPage:
    """Return the bill records of one window."""
    return _fetch(channel, path, params, BillPage, None)


def _fetch(channel: ProviderChannel, path: str, params: Mapping[str, str], kind: type[T], deadline: Deadline | None) -> T:
    return channel.decode(channel.read(path, params, scope=path, deadline=deadline), kind, f"the answer to GET {path}")


def fetch_key_owner(channel: ProviderChannel) -> KeyOwner | None:
    """Return the key's owner and money.

    Errors come with HTTP 200, possibly with a part of the data.
    """
    answer = channel.decode(channel.read("", method="POST", body={"query": QUERY}), GraphAnswer, "GraphQL's answer")
    owner = answer.data.myself if answer.data else None
    if owner is not None or not answer.errors:
        return owner
    first = answer.errors[0]
    code = (first.extensions.code if first.extensions else None) or ""
    kind = {"UNAUTHENTICATED": CredentialsError, "FORBIDDEN": ForbiddenError}.get(code, RefusedError)
    raise kind(f"GraphQL says: {shorten(first.message or 'an error without words')}", provider="runpod", code=code)


MEMBER = re.compile(r'"[^"]{0,40}"((?:\s*;\s*[a-z]{1,8}=\d{1,9})+)', re.ASCII)
PARAMETER = re.compile(r"([a-z]{1,8})=(\d{1,9})", re.ASCII)
LONGEST_HEADER = 2000


def compute_pause(reply: HttpResponse) -> float:
    """Return the seconds until every used-up window is renewed; 0 if there is none."""
    waits = [0.0]
    for member in MEMBER.finditer(reply.headers.get("ratelimit", "")[:LONGEST_HEADER]):
        params = dict(PARAMETER.findall(member[1]))
        if params.get("r") == "0":
            waits.append(float(params.get("t", 0)))
    return max(waits)


def apply_rate_limit(reply: HttpResponse, error: ProviderError) -> ProviderError:
    """Return `error`; for a throttled request with the longest wait of Retry-After and every used-up window."""
    if isinstance(error, ThrottledError):
        pause, retry_after_s = compute_pause(reply), parse_retry_after(reply)
        error.retry_after_s = max(pause, retry_after_s or 0.0) if pause or retry_after_s is not None else None
    return error
