"""Who would bring an instance back, read from its tags: whoever stops one of theirs gets a new one, and a bill for both.

In this order, the outermost first: a node of EKS or Batch stands in an auto-scaling group too, and the group is the wrong
one to ask. Source: aws.md section 7 of the project's provider notes, 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GROUP_TAG = "aws:autoscaling:groupName"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """`name`: what it is called to people ("auto-scaling group train"). `ask`: what to do in place of stopping its instance.

    `group`: the auto-scaling group, where that and nothing above it is in charge: it can be asked to end one member.
    """

    name: str
    ask: str
    group: str = ""


_BY_TAG = (
    ("aws:eks:cluster-name", "EKS cluster", "scale the workload or change the node pool of EKS Auto Mode"),
    ("karpenter.sh/nodeclaim", "Karpenter node claim", "kubectl delete nodeclaim, or change the NodePool"),
    ("karpenter.sh/nodepool", "Karpenter node pool", "kubectl delete its nodeclaim, or change the NodePool"),
    ("eks:nodegroup-name", "EKS node group", "aws eks update-nodegroup-config --scaling-config"),
    ("eks:cluster-name", "EKS cluster", "scale its node group (aws eks update-nodegroup-config)"),
    ("AWSBatchServiceTag", "Batch compute environment", "lower maxvCpus, or disable the compute environment"),
    ("parallelcluster:cluster-name", "ParallelCluster", "let Slurm power the node down, or stop the compute fleet"),
    ("aws:elasticmapreduce:job-flow-id", "EMR cluster", "resize or terminate the cluster"),
    ("AmazonECSManaged", "ECS capacity provider", "scale the capacity provider's auto-scaling group"),
)
_BY_PREFIX = (
    ("aws:batch:", "Batch compute environment", "lower maxvCpus, or disable the compute environment"),
    ("kubernetes.io/cluster/", "Kubernetes cluster", "scale its node group: the cluster replaces a node that is gone"),
)
_BY_TAG_LAST = (
    (GROUP_TAG, "auto-scaling group", "lower the group's desired capacity"),
    ("aws:ec2:fleet-id", "EC2 Fleet", "lower its target capacity, or delete the fleet"),
    ("aws:ec2spot:fleet-request-id", "Spot Fleet", "lower its target capacity, or cancel the request"),
)


def find_controller(tags: Mapping[str, str], *, managed: bool = False, principal: str = "") -> Controller | None:
    """Who is in charge of the instance with these tags; None: its owner. `managed`: EC2 says that a service runs it."""
    if managed:
        who = f"AWS service {principal}" if principal else "an AWS service"
        return Controller(name=who, ask="change it in that service: EC2 refuses to stop it directly")
    for key, name, ask in _BY_TAG:
        if key in tags:
            return Controller(name=f"{name} {tags[key]}".rstrip(), ask=ask)
    for prefix, name, ask in _BY_PREFIX:
        found = next((key for key in tags if key.startswith(prefix)), None)
        if found is not None:
            of = found.removeprefix(prefix) if prefix.endswith("/") else tags[found]
            return Controller(name=f"{name} {of}".rstrip(), ask=ask)
    for key, name, ask in _BY_TAG_LAST:
        if key in tags:
            group = tags[key] if key == GROUP_TAG else ""
            return Controller(name=f"{name} {tags[key]}".rstrip(), ask=ask, group=group)
    return None
