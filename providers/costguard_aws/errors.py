"""Classify AWS's error answers: by AWS's own code, and by the HTTP status only if there is no code.

EC2 throttles with 503 and CloudWatch with 400, a wrong key is 401 in one service and 403 in another, a dry run that would have
succeeded is 412.

Also the interface between requests and credentials, so that prices, metrics and bills do not depend on credentials.
`session.AwsSession` implements it with botocore over costguard's transport; a test may use any botocore client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PaginationError,
    PartialCredentialsError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from costguard.errors import (
    ConflictError,
    CredentialsError,
    ForbiddenError,
    InputError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    ThrottledError,
    UnreachableError,
    shorten,
    to_one_line,
)
from costguard.providers.transport import HttpResponse, Secret, make_status_fault_reader

AWS = "aws"
LONGEST_TOLD = 160

DRY_RUN = "DryRunOperation"
"""The code of a dry run that would have worked."""


def make_fault_reader(secrets: Callable[[], tuple[Secret, ...]]) -> Callable[[HttpResponse], ProviderError | None]:
    """Return a function that gives the error of a reply, None if it succeeded; `secrets` are removed from AWS's text."""
    otherwise = make_status_fault_reader(AWS)

    def fault(reply: HttpResponse) -> ProviderError | None:
        if 200 <= reply.status < 300:  # noqa: PLR2004 - HTTP's own
            return _detect_odd_page(reply)
        code, text = parse_error_code(reply), _parse_error_text(reply)
        kind = _classify_error(code, reply.status)
        if not code or kind is None:
            return otherwise(reply)
        for secret in secrets():
            text = text.replace(secret.reveal(), "[secret]")
        what = f"{code}: {text}" if text else code
        return kind(what, provider=AWS, status=reply.status, code=code, hint=_HINTS.get(code))

    return fault


def _detect_odd_page(reply: HttpResponse) -> ProviderError | None:
    """Return an error for a web page with a success status, or XML that defines entities; None for other replies.

    Such a page comes from a proxy, and botocore would read an empty answer from it.
    """
    if reply.body[:64].lstrip()[:5].lower() in (b"<!doc", b"<html"):
        return InvalidAnswerError("answered with a web page", provider=AWS, status=reply.status)
    if b"<!DOCTYPE" in reply.body or b"<!ENTITY" in reply.body:
        return InvalidAnswerError("answered with XML that defines entities", provider=AWS, status=reply.status)
    return None


_CODE_XML = re.compile(rb"<Code>\s*([\w.:-]{1,100})\s*</Code>")
_CODE_JSON = re.compile(rb'"__type"\s*:\s*"(?:[\w.]+#)?(\w{1,100})"')
_CODE_CBOR = re.compile(rb"__type[\x60-\x7b].?(?:[\w.]+#)?(\w{1,100}?)(?=[^\w]|$)")
_TOLD_XML = re.compile(rb"<Message>([^<]{1,2000})</Message>")
_TOLD_JSON = re.compile(rb'"[Mm]essage"\s*:\s*"([^"\\]{1,2000})')
_LOOKED_AT = 8192


def parse_error_code(reply: HttpResponse) -> str:
    """Return AWS's error code from any of its four protocols; "" if there is none."""
    header = reply.headers.get("x-amzn-query-error", "") or reply.headers.get("x-amzn-errortype", "")
    if header:
        return header.split(";")[0].split(":")[0].rsplit("#", 1)[-1][:100]
    head = reply.body[:_LOOKED_AT]
    match = _CODE_XML.search(head) or _CODE_JSON.search(head) or _CODE_CBOR.search(head)
    return match[1].decode("ascii", "replace") if match else ""


def _parse_error_text(reply: HttpResponse) -> str:
    """Return AWS's error message, without the encoded part that only AWS's tools can read."""
    head = reply.body[:_LOOKED_AT]
    match = _TOLD_XML.search(head) or _TOLD_JSON.search(head)
    text = match[1].decode("utf-8", "replace") if match else ""
    return shorten(to_one_line(text.split("Encoded authorization")[0].strip()), LONGEST_TOLD)


def _classify_error(code: str, status: int) -> type[ProviderError] | None:
    """Return the error class of `code`; None: use the HTTP status."""
    stem = code.removesuffix("Exception")
    if stem.startswith("Throttl"):
        return ThrottledError
    error_type = next((kind for kind, codes in _KINDS.items() if code in codes or stem in codes), None)
    if error_type is not None or status == 429:  # noqa: PLR2004 - HTTP's own
        return error_type
    if status >= 500:  # noqa: PLR2004 - HTTP's own
        return UnreachableError
    return MissingError if code.endswith(".NotFound") else RefusedError


_THROTTLED = frozenset(
    (
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "LimitExceededException",
        "SlowDown",
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
    )
)
_CREDENTIALS = frozenset(
    (
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClient",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "InvalidAccessKeyId",
        "MissingAuthenticationToken",
        "IncompleteSignature",
        "InvalidSignature",
        "InvalidToken",
    )
)
_FORBIDDEN = frozenset(("UnauthorizedOperation", "AccessDenied", "OptInRequired", "SubscriptionRequired", "Blocked"))
_BROKEN = frozenset(("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable"))
_NO_CAPACITY = frozenset(
    (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
    )
)
"""Clear refusals with status 500: nothing was started (EC2 API reference, "Error codes"; not tried against EC2)."""
_KINDS: Mapping[type[ProviderError], frozenset[str]] = {
    RefusedError: _NO_CAPACITY,
    ThrottledError: _THROTTLED,
    CredentialsError: _CREDENTIALS,
    ForbiddenError: _FORBIDDEN,
    UnreachableError: _BROKEN,
    MissingError: frozenset(("ResourceNotFound", "NoSuchKey", "NoSuchBucket")),
    ConflictError: frozenset(("IncorrectInstanceState", "IncorrectState")),
}
_HINTS = {
    "RequestExpired": "the clock of this machine is wrong: set it (timedatectl set-ntp true)",
    "ExpiredToken": "log in again: aws sso login, or renew the keys",
    "InvalidClientTokenId": "the access key is unknown: aws configure, or check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key, or the clock of this machine is wrong",
    "AuthFailure": "aws sts get-caller-identity shows whether the key works; a region that was just opted in takes a while",
    "OptInRequired": "enable the region in the account, or leave it out of regions",
}


@contextmanager
def translate_botocore_errors(account: str = "") -> Iterator[None]:
    """Raise botocore's errors in this block as ProviderErrors. botocore's messages never contain keys."""
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError) as none:
        what = f"no usable credentials ({type(none).__name__})"
        raise CredentialsError(what, provider=AWS, account=account, hint=NO_KEY) from None
    except HTTPClientError as broken:
        raise UnreachableError(f"no answer ({type(broken).__name__})", provider=AWS, account=account) from None
    except ClientError as refused:
        code = str(refused.response.get("Error", {}).get("Code", ""))
        kind = _classify_error(code, 400) or RefusedError
        raise kind(f"refused: {shorten(code)}", provider=AWS, account=account, code=code) from None
    except (ResponseParserError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as odd:
        what = f"returned unreadable data ({type(odd).__name__})"
        raise InvalidAnswerError(what, provider=AWS, account=account) from None
    except BotoCoreError as odd:
        raise RefusedError(f"the SDK refused: {type(odd).__name__}", provider=AWS, account=account) from None


NO_KEY = "aws configure, aws sso login, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or profiles = [...] in [providers.aws]"


def format_error(broken: ProviderError | InputError) -> str:
    """Return an error and its hint in one line."""
    return to_one_line(broken.what if broken.hint is None else f"{broken.what} ({broken.hint})")


class AwsClients(Protocol):
    """Clients with one account's credentials for any service and region."""

    account: str
    """The twelve digits that STS calls the account; "" before it was asked."""

    def client(self, service: str, region: str) -> Any:  # noqa: ANN401 - botocore makes its classes as it goes
        """Return botocore's client of `service` in `region`."""


def call_operation(aws: AwsClients, service: str, region: str, operation: str, **arguments: Any) -> Mapping[str, Any]:  # noqa: ANN401 - AWS's words
    """Call one operation and return one page of its answer; raises only ProviderErrors, whose `code` is AWS's.

    Example: `call_operation(aws, "pricing", "us-east-1", "get_products", ServiceCode=...)`.
    """
    client = aws.client(service, region)
    with translate_botocore_errors(aws.account):
        answer: Mapping[str, Any] = getattr(client, operation)(**arguments)
    return answer


def read_pages(
    aws: AwsClients,
    service: str,
    region: str,
    operation: str,
    *,
    size: int | None = None,
    most: int = 200,
    **params: Any,  # noqa: ANN401 - AWS's words
) -> Iterator[Mapping[str, Any]]:
    """Yield each page of a list, by boto3's paginator; raises ProviderErrors, one of them if the list has no end.

    `size`: of items a page, None for AWS's own. `most`: of pages.
    """
    paginator = aws.client(service, region).get_paginator(operation)
    pages = iter(paginator.paginate(**params, PaginationConfig={"PageSize": size} if size else {}))
    for _ in range(most):
        with translate_botocore_errors(aws.account):
            try:
                page = next(pages, None)
            except PaginationError:
                what = f"{operation} does not end: it gave the same page token twice"
                raise InvalidAnswerError(what, provider=AWS, account=aws.account) from None
        if page is None:
            return
        yield page
    raise InvalidAnswerError(f"{operation} does not end: more than {most} pages", provider=AWS, account=aws.account)
