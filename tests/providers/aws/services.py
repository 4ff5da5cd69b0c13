"""AWS's services of prices, spot history, metrics and bills on loopback, and a real session that asks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from costguard_aws.credentials import CredentialSource
from costguard_aws.session import AwsSession

from costguard.providers.transport import ProviderContext, Transport
from tests.contract.rig import BILLS, NAMES
from tests.fakes.aws_ce import FakeCostExplorer
from tests.fakes.aws_cloudwatch import FakeCloudWatch
from tests.fakes.aws_pricing import FakePricing
from tests.fakes.aws_s3 import FakeS3
from tests.fakes.aws_spot import FakeSpot
from tests.fakes.aws_wire import cbor_operation, target_of
from tests.fakes.server import Answer, Asked, FakeCloud, Hands, serving

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLEEXAMPLE00", "AWS_SECRET_ACCESS_KEY": "canary-aws-secret-0123456789abcdef"}
ACCOUNT = "111122223333"


class Kept:
    """A cache that lives as long as the test; its entries bear the clock's time."""

    def __init__(self, clock: Hands) -> None:
        self.clock = clock
        self.entries: dict[str, tuple[datetime, bytes]] = {}

    def get(self, name: str, youngest: datetime) -> bytes | None:
        found = self.entries.get(name)
        return found[1] if found and found[0] >= youngest else None

    def put(self, name: str, data: bytes) -> None:
        self.entries[name] = (self.clock.now(), data)


class Services(FakeCloud):
    """Every service that these tests ask, at one address. `operations`: what was asked, in order, as region and operation."""

    def __init__(self) -> None:
        super().__init__(Hands())
        self.pricing, self.spot, self.cloudwatch = FakePricing(), FakeSpot(), FakeCloudWatch()
        self.ce, self.s3 = FakeCostExplorer(), FakeS3()
        self.cache = Kept(self.clock)
        self.operations: list[tuple[str, str]] = []

    def answer(self, asked: Asked) -> Answer:
        region = asked.headers.get("authorization", "").partition("Credential=")[2].split("/")[2]
        action = asked.body.decode("latin-1").partition("Action=")[2].partition("&")[0]
        self.operations.append((region, target_of(asked)[1] or cbor_operation(asked) or action or asked.method))
        now = self.clock.now()
        found = (
            self.pricing.answer(asked)
            or self.ce.answer(asked, now)
            or self.cloudwatch.answer(asked, now)
            or self.spot.answer(asked, region, now)
            or self.s3.answer(asked)
        )
        return found or Answer(status=404)

    def asked_for(self, operation: str) -> int:
        """How often an operation was asked for."""
        return sum(name == operation for _, name in self.operations)

    def later(self, **by: float) -> None:
        """Move the clock on."""
        self.clock.at += timedelta(**by)

    @contextmanager
    def session(self, home: Path) -> Iterator[AwsSession]:
        """A session whose every service is this one."""
        transport = Transport()
        with serving(self) as base:
            around = ProviderContext(
                transport=transport, clock=self.clock, gpus=NAMES, bills=BILLS, cache=self.cache, environ=KEYS, home=home
            )
            made = AwsSession(CredentialSource(), around, endpoint=base, region="us-east-1")
            made.account = ACCOUNT
            yield made
        transport.close()


@dataclass(frozen=True, slots=True)
class OnePage:
    """A paginator of a list that has one page: what `ask` answers."""

    ask: Callable[..., Any]

    def paginate(self, PaginationConfig: Mapping[str, object], **asked: Any) -> list[Any]:  # noqa: ANN401, ARG002, N803 - as boto3's
        """The page."""
        return [self.ask(**asked)]
