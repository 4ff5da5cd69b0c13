"""One client of `bench.ec2_replay`, as a process of its own: `python -m bench.poll_client MODE`.

`bare` is what a script would do: boto3, a paginated describe of pages of a thousand, and a look at state and owner. `poll` is
costguard: instances, disks and addresses listed, priced, metered, and written to a ledger. It prints what it counted.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MODES = ("bare", "bare+metrics", "list", "poll", "poll+metrics")


def main() -> None:
    """Do what the mode says, once."""
    mode = sys.argv[1] if sys.argv[1:] else ""
    if mode not in MODES:
        sys.exit(f"name one of {' '.join(MODES)}")
    if mode.startswith("bare"):
        bare(metrics=mode.endswith("metrics"))
    else:
        ours(metrics=mode.endswith("metrics"), listed=mode == "list")


def bare(*, metrics: bool) -> None:
    """boto3 alone."""
    import boto3

    ec2 = boto3.client("ec2")
    pages = ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 1000})
    found = [one for page in pages for reservation in page["Reservations"] for one in reservation["Instances"]]
    running = [one for one in found if one["State"]["Name"] == "running"]
    owned = [one for one in running if any(tag["Key"] == "owner" for tag in one.get("Tags", []))]
    if metrics:
        _batches(boto3.client("cloudwatch"), [one["InstanceId"] for one in running])
    print(len(found), len(running), len(owned))


def _batches(watch: Any, ids: list[str]) -> None:  # noqa: ANN401 - a client of boto3's
    """GetMetricData, 500 queries a call."""
    now = datetime.now(UTC)
    for at in range(0, len(ids), 500):
        queries = [
            {"Id": f"m{i}", "MetricStat": {"Metric": _cpu(one), "Period": 300, "Stat": "Average"}}
            for i, one in enumerate(ids[at : at + 500])
        ]
        watch.get_metric_data(MetricDataQueries=queries, StartTime=now - timedelta(hours=1), EndTime=now)


def _cpu(one: str) -> dict[str, Any]:
    return {"Namespace": "AWS/EC2", "MetricName": "CPUUtilization", "Dimensions": [{"Name": "InstanceId", "Value": one}]}


def ours(*, metrics: bool, listed: bool) -> None:
    """The product: adapter, metering, ledger; with `listed` the adapter alone."""
    from costguard_aws import provider

    from costguard.data import ShippedFacts
    from costguard.ledger.spans.writer import LedgerWriter
    from costguard.metering.inventory import Failed
    from costguard.providers.transport import ProviderContext, Transport
    from costguard.services.poll.configured_providers import BillExportReader
    from costguard.services.poll.poll import poll_sources
    from costguard.values.calendar import Period
    from costguard.values.gpu import GpuNames

    facts, transport, watch = ShippedFacts(), Transport(), Watch()
    with TemporaryDirectory() as folder:
        names, home = GpuNames(facts.get_gpus()), Path(folder)
        environ = dict(os.environ)
        around = ProviderContext(
            transport=transport, clock=watch, gpus=names, cache=watch, environ=environ, home=home, bills=BillExportReader()
        )
        (source,) = provider.open({"regions": ["us-east-1"]}, around)
        if listed:
            found = source.poll(source.list_scopes()[0]).inventory
            print(0 if isinstance(found, Failed) else len(found.items), type(found).__name__.lower())
            return
        url = f"sqlite:///{os.environ.get('POLL_LEDGER', f'{folder}/ledger.db')}"
        with LedgerWriter(url, rules=facts.get_billing_rules(), ceilings={}) as ledger:
            polled = poll_sources([source], ledger, watch)
        (one,) = polled.accrued
        if metrics:
            seen = source.poll(source.list_scopes()[0]).inventory
            assert not isinstance(seen, Failed)  # noqa: S101 - the bench's own server cannot fail
            now = watch.now()
            source.fetch_utilization(seen.items, Period(start=now - timedelta(hours=1), end=now))
        print(len(one.state.resources), one.outcome, one.why)
    transport.close()


class Watch:
    """The time, and a cache that keeps nothing."""

    def now(self) -> datetime:
        """This instant."""
        return datetime.now(UTC)

    def get(self, name: str, youngest: datetime) -> bytes | None:  # noqa: ARG002 - the port's signature
        """Nothing."""
        return None

    def put(self, name: str, data: bytes) -> None:
        """Keep nothing."""


if __name__ == "__main__":
    main()
