"""Vast's HTTP API: its endpoints, rate limits and errors.

Vast answers 404 for an unknown key, 200 with `success: false` for a refusal, and plain text if it is called too often. So the
body is evaluated first, and the status only if the body states nothing. Sources: the project's provider notes (vast.md,
2026-11-21).

Pages are read to their stated end: `next_token: null` or, without any token, a count that is reached; otherwise the reason is
returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from costguard.errors import (
    CredentialsError,
    ForbiddenError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    ThrottledError,
    shorten,
    to_one_line,
)
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import (
    Deadline,
    HttpResponse,
    ProviderChannel,
    Secret,
    TokenBucket,
    Transport,
    make_status_fault_reader,
)
from costguard_vast.wire import (
    ActAnswer,
    ChargePage,
    HostOffer,
    InstanceAnswer,
    InstancePage,
    OfferList,
    PriceIncreaseList,
    User,
    VolumeList,
)

PAGE, CHARGES_PAGE = 25, 500
"""The most that one page may hold."""
SEARCH_ROWS = 1000
"""Offers asked for at once; gpuhunt asks for 3000."""

GAPS_S = {"list": 1.0, "one": 2.0, "stop": 1.0, "destroy": 3.0, "volumes": 5.5, "charges": 1.0, "user": 1.0, "increases": 1.0}
"""Seconds between two calls of one endpoint, as published (vast.md, section 2; user and increases are assumed). Vast counts
each endpoint by itself, so an act never waits behind a listing."""
SEARCHES_A_MINUTE = 10
GROUPS = "instance_read, user_read, billing_read and misc, and instance_write to act"

PROVIDER = "vast"
KEY_AT = "make a key at https://cloud.vast.ai/manage-keys/"
STATE_IT = 'write account = "USER ID" under [providers.vast]'
NOT_THERE = (404, 405, 410)
"""Without a word of the key: nothing is at that address."""
AUTH, QUOTA = "auth_error", "search_quota_exceeded"
GONE = frozenset(("no_such_instance", "not_found", "no_such_volume"))
"""Codes that say there is no such thing. Any other 404 or 410 says nothing about the thing."""


class VastApi:
    """One account's requests.

    Each returns decoded data, or raises a ProviderError.
    """

    def __init__(self, transport: Transport, *, base_url: str, key: KeyedAccount) -> None:
        self.channel = ProviderChannel(
            transport,
            provider=PROVIDER,
            base_url=base_url,
            account=key.account,
            headers={"Authorization": Secret(f"Bearer {key.key.reveal()}"), "Accept": "application/json"},
            buckets=make_buckets(),
            fault=read_fault,
            advice={
                CredentialsError: f"the key comes from {key.source}; {KEY_AT}",
                ForbiddenError: f"give the key the groups {GROUPS}",
            },
        )

    def fetch_user(self, deadline: Deadline) -> User:
        """Return the key's owner and the remaining credit."""
        reply = self.channel.read("/api/v0/users/current/", bucket="user", scope="user", deadline=deadline)
        return self.channel.decode(reply, User, "the account")

    def fetch_page(self, token: str | None, deadline: Deadline, rows: int = PAGE) -> InstancePage:
        """Return one page of instances; `token` None: the first."""
        params = {"limit": str(rows), "order_by": '[{"col":"id","dir":"asc"}]'}
        if token is not None:
            params["after_token"] = token
        reply = self.channel.read("/api/v1/instances/", params, bucket="list", scope="contracts", deadline=deadline)
        return self.channel.decode(_require_whole(reply), InstancePage, "the list of instances")

    def fetch_instance(self, id_: str, deadline: Deadline) -> msgspec.Raw | None:
        """Return one instance; None if it does not exist or is not of this account."""
        try:
            reply = self.channel.read(f"/api/v0/instances/{id_}/", bucket="one", scope="one", deadline=deadline)
        except MissingError:
            return None
        raw = self.channel.decode(reply, InstanceAnswer, f"instance {id_}").instances
        return None if bytes(raw).strip() == b"null" else raw

    def fetch_volumes(self, deadline: Deadline) -> Sequence[msgspec.Raw]:
        """Return every volume; the list has no pages."""
        reply = self.channel.read("/api/v0/volumes/", bucket="volumes", scope="volumes", deadline=deadline)
        return self.channel.decode(_require_whole(reply), VolumeList, "the list of volumes").volumes

    def fetch_increases(self, deadline: Deadline) -> PriceIncreaseList:
        """Return the price increases that hosts propose."""
        path = "/api/v0/instances/pending-price-increases/"
        reply = self.channel.read(path, bucket="increases", scope="increases", deadline=deadline)
        return self.channel.decode(reply, PriceIncreaseList, "the list of price increases")

    def search(
        self, names: Sequence[str], deadline: Deadline, *, verified: bool = True, rows: int = SEARCH_ROWS
    ) -> list[HostOffer]:
        """Return the available offers with GPUs that Vast calls `names`, the cheapest first."""
        query: dict[str, object] = {
            "rentable": {"eq": True},
            "rented": {"eq": False},
            "external": {"eq": False},
            "gpu_name": {"in": list(names)},
            "order": [["dph_total", "asc"]],
            "type": "on-demand",
            "limit": rows,
            "allocated_storage": 10.0,
        }
        if verified:
            query["verified"] = {"eq": True}
        reply = self.channel.read(
            "/api/v0/bundles/", method="POST", body=query, bucket="search", scope="search", deadline=deadline
        )
        return [_decode_offer(raw) for raw in self.channel.decode(reply, OfferList, "the list of offers").offers]

    def fetch_charges(
        self, first_s: int, last_s: int, token: str | None, deadline: Deadline, rows: int = CHARGES_PAGE
    ) -> ChargePage:
        """Return one page of the charges from second `first_s` to `last_s` (UTC)."""
        params = {"select_filters": json.dumps({"day": {"gte": first_s, "lte": last_s}}), "limit": str(rows)}
        if token is not None:
            params["after_token"] = token
        reply = self.channel.read("/api/v0/charges/", params, bucket="charges", scope="charges", deadline=deadline)
        return self.channel.decode(reply, ChargePage, "the list of charges")

    def stop(self, id_: str) -> ActAnswer:
        """Send one request to stop."""
        reply = self.channel.act("PUT", f"/api/v0/instances/{id_}/", body={"state": "stopped"}, bucket="stop")
        return self.channel.decode(reply, ActAnswer, "the answer to the stop")

    def start(self, id_: str) -> ActAnswer:
        """Send one request to start."""
        reply = self.channel.act("PUT", f"/api/v0/instances/{id_}/", body={"state": "running"}, bucket="stop")
        return self.channel.decode(reply, ActAnswer, "the answer to the start")

    def destroy(self, id_: str) -> ActAnswer:
        """Send one request to destroy the contract."""
        reply = self.channel.act("DELETE", f"/api/v0/instances/{id_}/", bucket="destroy")
        return self.channel.decode(reply, ActAnswer, "the answer to the deletion")


def _require_whole(reply: HttpResponse) -> HttpResponse:
    """Return `reply`; raises InvalidAnswerError if its status means an incomplete list: accepted (202), partial (206)."""
    if reply.status == 200:  # noqa: PLR2004 - HTTP's own
        return reply
    raise InvalidAnswerError(
        f"answered {reply.status}, which does not guarantee a complete list", provider=PROVIDER, status=reply.status
    )


def make_buckets() -> dict[str, TokenBucket]:
    """Return one bucket per endpoint, at the published rate."""
    paced = {name: TokenBucket(1 / gap) for name, gap in GAPS_S.items()}
    return {**paced, "search": TokenBucket(SEARCHES_A_MINUTE / 60, SEARCHES_A_MINUTE)}


def _decode_offer(raw: msgspec.Raw) -> HostOffer:
    """Decode one offer; an unreadable one becomes an empty offer, which is left out and counted."""
    try:
        return msgspec.json.decode(raw, type=HostOffer)
    except msgspec.DecodeError:
        return HostOffer()


class _ErrorWords(msgspec.Struct):
    """The text fields of an error.

    `success` may be missing, and each field may have any type.
    """

    success: object = None
    error: object = ""
    msg: object = ""
    message: object = ""
    detail: object = ""


def parse_error(reply: HttpResponse) -> tuple[bool, str, str]:
    """Return whether the body is a JSON refusal, its code, and its text; plain text is text alone, an HTML page none.

    Some errors omit `success`: a code means a refusal unless `success` is stated.
    """
    if len(reply.body) > LONGEST_ERROR and reply.status < 300:  # noqa: PLR2004 - HTTP's own line
        return False, "", ""
    try:
        error = msgspec.json.decode(reply.body, type=_ErrorWords)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        text = reply.body[:200].decode("utf-8", "replace").strip()
        return False, "", "" if text.startswith("<") else text
    code = error.error if isinstance(error.error, str) else ""
    words = next((word for word in (error.msg, error.message, error.detail) if isinstance(word, str) and word), "")
    return error.success is False or (error.success is None and bool(code.strip())), code.strip(), words.strip()


LONGEST_ERROR = 4096
"""Bytes: a good answer that is longer is not read twice."""


def read_fault(reply: HttpResponse) -> ProviderError | None:
    """Return the error of a reply; None if it succeeded."""
    no, code, words = parse_error(reply)
    status = reply.status
    if 200 <= status < 300 and not no:  # noqa: PLR2004 - HTTP's own line
        return None
    about = shorten(": ".join(filter(None, (code, words))) or "no reason given", 200)
    if code == AUTH:
        return _make_key_error(status, words, about)
    if status == 429 and code != QUOTA:  # noqa: PLR2004 - HTTP's own
        return _make_throttle_error(reply, about, code, words)
    if code in _SAID or status in (200, 404, 410):
        return _make_refusal(status, code, words, about)
    return make_status_fault_reader(PROVIDER, lambda _: (code, words))(reply)


def _make_refusal(status: int, code: str, words: str, about: str) -> ProviderError:
    """Return the error for refusals that the HTTP status misrepresents: a 404 or 410 that is no missing item, a 200."""
    unsaid = InvalidAnswerError if not code and not words else RefusedError
    kind, what = _SAID.get(code, (unsaid, f"answered {status}, and yet no"))
    return kind(f"{what} ({about})", provider=PROVIDER, status=status, code=code)


_SAID: Mapping[str, tuple[type[ProviderError], str]] = {
    QUOTA: (RefusedError, "has no searches left until midnight in UTC"),
    **dict.fromkeys(GONE, (MissingError, "has no such thing")),
}


def _make_key_error(status: int, words: str, about: str) -> ProviderError:
    """Return the error for a key: a missing one is 403 "requires login", an unknown one 404, another 403 a missing right."""
    if status == 403 and "login" not in words.lower():  # noqa: PLR2004 - HTTP's own
        return ForbiddenError(
            f"does not allow this key to do that ({about})", provider=PROVIDER, status=status, code="auth_error"
        )
    return CredentialsError(f"does not accept the key ({about})", provider=PROVIDER, status=status, code="auth_error")


def _make_throttle_error(reply: HttpResponse, about: str, code: str, words: str) -> ProviderError:
    """Return the error for too many calls, with the wait of Retry-After or, usually, the gap that Vast's text states."""
    usual = make_status_fault_reader(PROVIDER)(reply)
    retry_after_s = usual.retry_after_s if isinstance(usual, ThrottledError) else None
    if retry_after_s is None and (gap := re.search(r"threshold=(\d{1,3}(?:\.\d{1,3})?)", words)):
        retry_after_s = float(gap[1])
    return ThrottledError(f"rate limit exceeded ({about})", provider=PROVIDER, code=code, retry_after_s=retry_after_s)


MOST_PAGES, MOST_ITEMS = 1000, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowList:
    """The rows read.

    `why`: what is missing, "" if they are complete.
    """

    items: Sequence[msgspec.Raw]
    why: str = ""


def read_rows(ask: Callable[[str | None], InstancePage | ChargePage]) -> RowList:
    """Return every row of the pages of `ask(token)`; raises a ProviderError if the first page fails."""
    rows: list[msgspec.Raw] = []
    token: str | None = None
    tokens: set[str] = set()
    for number in range(1, MOST_PAGES + 1):
        try:
            page = ask(token)
        except ProviderError as broken:
            if token is None:
                raise
            return RowList(items=rows, why=f"page {number} was lost: {format_reason(broken)}")
        rows += page.instances if isinstance(page, InstancePage) else page.results
        if page.next_token is None or _is_last_page(page, len(rows)):
            break
        if not isinstance(page.next_token, str) or not page.next_token:
            return RowList(items=rows, why=f"page {number} does not say whether another follows")
        if page.next_token in tokens:
            return RowList(items=rows, why=f"page {number} points to a page that was already read")
        token = page.next_token
        tokens.add(token)
        if len(rows) >= MOST_ITEMS:
            return RowList(items=rows[:MOST_ITEMS], why=f"there are more than {MOST_ITEMS}; the rest was not read")
    else:
        return RowList(items=rows, why=f"there are more than {MOST_PAGES} pages; the rest was not read")
    return RowList(items=rows[:MOST_ITEMS], why=_explain_lacking(page, len(rows)))


def _is_last_page(page: InstancePage | ChargePage, count: int) -> bool:
    """Return whether a page without a `next_token` field is the last, by the count of all instances."""
    return page.next_token is UNSET and isinstance(page, InstancePage) and page.total_instances == count


def _explain_lacking(page: InstancePage | ChargePage, count: int) -> str:
    """Return why a list that ended is incomplete: the last page states a larger count than was read."""
    total = page.total_instances if isinstance(page, InstancePage) else None
    if count > MOST_ITEMS:
        return f"there are more than {MOST_ITEMS}; the rest was not kept"
    return f"Vast counts {total} instances and lists {count}" if total is not None and total > count else ""


def format_reason(broken: ProviderError) -> str:
    """Return an error in one line."""
    return to_one_line("; ".join(str(broken).splitlines()))
