"""The small seam between what is asked of AWS and how it is sent: prices, metrics and bills know nothing of credentials.

`session.Session` keeps the promise with botocore over costguard's transport; a test may keep it with any botocore client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from costguard_aws.errors import translate_botocore_errors


class AwsClients(Protocol):
    """One account's credentials, able to ask any service in any region."""

    account: str
    """The twelve digits that STS calls the account; "" before it was asked."""

    def client(self, service: str, region: str) -> Any:  # noqa: ANN401 - botocore makes its classes as it goes
        """Botocore's client of `service` in `region`."""


def call_operation(aws: AwsClients, service: str, region: str, operation: str, **arguments: Any) -> Mapping[str, Any]:  # noqa: ANN401 - AWS's words
    """The answer of one operation, one page of it: `ask(aws, "pricing", "us-east-1", "get_products", ServiceCode=...)`.

    A ProviderError, whose `code` is AWS's word, and nothing else.
    """
    client = aws.client(service, region)
    with translate_botocore_errors(aws.account):
        answer: Mapping[str, Any] = getattr(client, operation)(**arguments)
    return answer
