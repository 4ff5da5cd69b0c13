"""What anybody would write with boto3 to find idle GPUs: `python -m bench.bare_boto3`, a yardstick of `bench.guard_custodian`.

It lists what costguard lists and asks CloudWatch for as many series a call, so that it takes the same calls; it prices nothing.
"""

# ruff: noqa: D103 - a script of fifteen lines, as one reads it elsewhere
from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import boto3


def main() -> None:
    boto3.client("sts").get_caller_identity()
    ec2, cloudwatch = boto3.client("ec2"), boto3.client("cloudwatch")
    pages = ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 1000})
    machines = [one for page in pages for group in page["Reservations"] for one in group["Instances"]]
    list(ec2.get_paginator("describe_volumes").paginate(PaginationConfig={"PageSize": 1000}))
    ec2.describe_addresses()
    running = [one["InstanceId"] for one in machines if one["State"]["Name"] == "running"]
    ec2.describe_instance_types(
        Filters=[{"Name": "instance-type", "Values": sorted({one["InstanceType"] for one in machines})}]
    )
    now, idle = datetime.now(UTC), list[str]()
    for start in range(0, len(running), 500):
        asked = [{"Id": f"m{n}", "MetricStat": gpu_metric(id_)} for n, id_ in enumerate(running[start : start + 500])]
        window = {"StartTime": now - timedelta(minutes=45), "EndTime": now}
        answer = cloudwatch.get_metric_data(MetricDataQueries=asked, **window)
        for one in answer["MetricDataResults"]:
            if one["Values"] and max(one["Values"]) < 5:
                idle.append(running[start + int(one["Id"][1:])])
    print(json.dumps(idle))


def gpu_metric(instance: str) -> dict[str, object]:
    named = {"InstanceId": instance, "index": "0", "name": "NVIDIA A10G"}
    dimensions = [{"Name": name, "Value": value} for name, value in named.items()]
    metric = {"Namespace": "CWAgent", "MetricName": "nvidia_smi_utilization_gpu", "Dimensions": dimensions}
    return {"Metric": metric, "Period": 300, "Stat": "Average"}


if __name__ == "__main__":
    main()
