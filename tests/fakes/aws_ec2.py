"""EC2 as its Query API answers, over a list of simulated resources: instances, volumes, addresses, types, protections, acts.

Quirks kept: LaunchTime is of the last start; a terminated machine stays listed for an hour, without interfaces and disks; ids
and MaxResults exclude each other; one id that does not exist fails a whole request, a filter does not; a dry run that would
work is an error; stop protection keeps from terminating, too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from costguard_sim.view import find_last_run, find_state
from costguard_sim.world import SIM_ADDRESS, SIM_INSTANCE, SIM_VOLUME, Resource, Run, Tag

from tests.fakes import aws_ec2_xml as xml
from tests.fakes.aws_spot import zone_of
from tests.fakes.aws_wire import ec2_error, ec2_xml
from tests.fakes.server import Answer


@dataclass(slots=True)
class FakeEc2:
    """`page`: the most items a page. `more`: id -> elements in place of the usual ones; None: an empty one, `...`: none.

    `protected`: (id, attribute). `requests`: spot request -> type. `denied`: actions that the key may not do. `strict`:
    parameters that this EC2 does not know. `regions`: those that are enabled. `no_capacity`: stopped machines it cannot start.
    """

    resources: list[Resource] = field(default_factory=list)
    page: int = 1000
    more: dict[str, dict[str, Any]] = field(default_factory=dict)
    tags: dict[str, dict[str, Any]] = field(default_factory=dict)
    protected: set[tuple[str, str]] = field(default_factory=set)
    requests: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    strict: tuple[str, ...] = ()
    regions: tuple[str, ...] = ("eu-west-1", "us-east-1")
    deaf: bool = False
    no_capacity: set[str] = field(default_factory=set)

    def answer(self, form: Mapping[str, str], account: str, region: str, now_us: int) -> Answer:
        """The answer to one request of `account`."""
        action = form.get("Action", "")
        unknown = next((name for name in self.strict if name in form), None)
        if unknown:
            return ec2_error("UnknownParameter", f"The parameter {unknown} is not recognized")
        if action in self.denied:
            message = "You are not authorized to perform this operation. Encoded authorization failure message: x9"
            return ec2_error("UnauthorizedOperation", message, 403)
        if form.get("DryRun") == "true" and not action.startswith(("Stop", "Terminate", "Start")):
            return ec2_error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        asked = _Asked(self, form, account, region, now_us)
        lists: Mapping[str, Callable[[], Answer]] = {
            "DescribeRegions": asked.regions,
            "DescribeInstances": asked.instances,
            "DescribeVolumes": asked.volumes,
            "DescribeAddresses": asked.addresses,
            "DescribeInstanceTypes": asked.types,
            "DescribeInstanceAttribute": asked.attribute,
            "DescribeSpotInstanceRequests": asked.spot_requests,
            "StopInstances": asked.act,
            "TerminateInstances": asked.act,
            "StartInstances": asked.act,
        }
        found = lists.get(action)
        return found() if found else ec2_error("InvalidAction", f"The action {action} is not valid for this web service.")

    def found(self, id_: str) -> Resource | None:
        """The instance of this id."""
        return next((one for one in self.resources if one.kind == SIM_INSTANCE and xml.wire_id(one.id) == id_), None)

    def change(self, id_: str, **fields: Any) -> None:  # noqa: ANN401 - of Resource
        """Replace the instance of this id by one with other `fields`."""
        for i, one in enumerate(self.resources):
            if one.kind == SIM_INSTANCE and xml.wire_id(one.id) == id_:
                self.resources[i] = replace(one, **fields)

    def end_run(self, id_: str, at_us: int) -> None:
        """Let its run end now."""
        one = self.found(id_)
        if one is not None and one.runs and one.runs[-1].stop_us is None:
            self.change(id_, runs=(*one.runs[:-1], replace(one.runs[-1], stop_us=at_us)))


@dataclass(slots=True)
class _Asked:
    """One request."""

    ec2: FakeEc2
    form: Mapping[str, str]
    account: str
    region: str
    now_us: int

    def regions(self) -> Answer:
        names = "".join(
            f"<item><regionName>{name}</regionName><regionEndpoint>ec2.{name}.amazonaws.com</regionEndpoint>"
            "<optInStatus>opt-in-not-required</optInStatus></item>"
            for name in self.ec2.regions
        )
        return ec2_xml("DescribeRegions", f"<regionInfo>{names}</regionInfo>")

    def instances(self) -> Answer:
        ids = self._listed("InstanceId")
        if ids and "MaxResults" in self.form:
            return ec2_error(
                "InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults"
            )
        there = [one for one in self._here(SIM_INSTANCE) if find_state(one, self.now_us) is not None]
        wanted = ids or self._filter("instance-id")
        if ids and not set(ids) <= {xml.wire_id(one.id) for one in there}:
            return ec2_error("InvalidInstanceID.NotFound", f"The instance ID '{ids[0]}' does not exist")
        if wanted is not None:
            there = [one for one in there if xml.wire_id(one.id) in wanted]
        return self._paged("DescribeInstances", "reservationSet", there, self._reservation)

    def volumes(self) -> Answer:
        wanted = self._filter("volume-id")
        every = [one for one in self._volumes() if wanted is None or one[0] in wanted]
        return self._paged("DescribeVolumes", "volumeSet", every, lambda one: one[1])

    def addresses(self) -> Answer:
        wanted = self._filter("allocation-id")
        there = [
            one for one in self._here(SIM_ADDRESS) if self._exists(one) and (wanted is None or xml.wire_id(one.id) in wanted)
        ]
        inner = "".join(self._address(one) for one in there)
        return ec2_xml("DescribeAddresses", f"<addressesSet>{inner}</addressesSet>")

    def types(self) -> Answer:
        wanted = self._filter("instance-type") or list(xml.TYPES)
        found = [name for name in wanted if name in xml.TYPES]
        return self._paged("DescribeInstanceTypes", "instanceTypeSet", found, xml.type_item)

    def attribute(self) -> Answer:
        id_, name = self.form["InstanceId"], self.form["Attribute"]
        if self.ec2.found(id_) is None:
            return ec2_error("InvalidInstanceID.NotFound", f"The instance ID '{id_}' does not exist")
        value = str((id_, name) in self.ec2.protected).lower()
        return ec2_xml("DescribeInstanceAttribute", f"<instanceId>{id_}</instanceId><{name}><value>{value}</value></{name}>")

    def spot_requests(self) -> Answer:
        wanted = self._filter("spot-instance-request-id") or list(self.ec2.requests)
        items = "".join(
            f"<item><spotInstanceRequestId>{name}</spotInstanceRequestId><spotPrice>9.0</spotPrice>"
            f"<type>{self.ec2.requests[name]}</type><state>active</state></item>"
            for name in wanted
            if name in self.ec2.requests
        )
        return ec2_xml("DescribeSpotInstanceRequests", f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>")

    def act(self) -> Answer:
        """StopInstances, TerminateInstances and StartInstances, of one id."""
        action, ids = self.form["Action"], self._listed("InstanceId")
        if not ids or not all(re.fullmatch(r"i-[0-9a-f]{8}(?:[0-9a-f]{9})?", one) for one in ids):
            return ec2_error("InvalidInstanceID.Malformed", f'Invalid id: "{"".join(ids)}"')
        one = next((r for r in self._here(SIM_INSTANCE) if xml.wire_id(r.id) == ids[0]), None)
        before = self._word(one) if one else None
        if one is None or before is None:
            return ec2_error("InvalidInstanceID.NotFound", f"The instance ID '{ids[0]}' does not exist")
        if self.form.get("DryRun") == "true":
            return ec2_error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        refused = self._refused(action, ids[0], before)
        if refused:
            return refused
        now = self._done(action, ids[0], before)
        states = xml.state_item("currentState", now) + xml.state_item("previousState", before)
        inner = f"<item><instanceId>{ids[0]}</instanceId>{states}</item>"
        return ec2_xml(action, f"<instancesSet>{inner}</instancesSet>")

    def _refused(self, action: str, id_: str, before: str) -> Answer | None:
        if action == "StartInstances":
            return self._unstartable(id_, before)
        stop = action == "StopInstances"
        if (id_, "disableApiStop") in self.ec2.protected or (not stop and (id_, "disableApiTermination") in self.ec2.protected):
            return ec2_error("OperationNotPermitted", f"The instance '{id_}' may not be {'stopped' if stop else 'terminated'}.")
        request = self.ec2.more.get(id_, {}).get("spotInstanceRequestId")
        if stop and request and self.ec2.requests.get(request) == "one-time":
            told = f"You can't stop the Spot Instance '{id_}' because it is associated with a one-time Spot Instance request."
            return ec2_error("UnsupportedOperation", told)
        if stop and before in ("pending", "terminated"):
            return ec2_error("IncorrectInstanceState", f"The instance '{id_}' is not in a state from which it can be stopped.")
        return None

    def _unstartable(self, id_: str, before: str) -> Answer | None:
        if before not in ("stopped", "pending", "running"):
            return ec2_error("IncorrectInstanceState", f"The instance '{id_}' is not in a state from which it can be started.")
        if id_ in self.ec2.no_capacity:
            return ec2_error("InsufficientInstanceCapacity", "Insufficient capacity.", 500)
        return None

    def _done(self, action: str, id_: str, before: str) -> str:
        if action == "StartInstances":
            if before == "stopped" and not self.ec2.deaf:
                one = self.ec2.found(id_)
                self.ec2.change(id_, runs=(*(one.runs if one else ()), Run(start_us=self.now_us)))
            return "pending" if before == "stopped" else before
        if self.ec2.deaf:
            return "stopping" if action == "StopInstances" else "shutting-down"
        self.ec2.end_run(id_, self.now_us)
        if action == "StopInstances":
            return "stopped" if before == "stopped" else "stopping"
        if before != "terminated":
            self.ec2.change(id_, ended_us=self.now_us)
        return "terminated" if before == "terminated" else "shutting-down"

    def _here(self, kind: str) -> list[Resource]:
        there = (self.account, self.region)
        return [one for one in self.ec2.resources if one.kind == kind and (one.account, one.region) == there]

    def _exists(self, one: Resource) -> bool:
        return one.created_us <= self.now_us and (one.ended_us is None or self.now_us < one.ended_us)

    def _word(self, one: Resource) -> str | None:
        state = find_state(one, self.now_us)
        return None if state is None else xml.WORDS.get(state, state)

    def _reservation(self, one: Resource) -> str:
        """Each instance in a reservation of its own."""
        inner = f"<instancesSet><item>{self._instance(one)}</item></instancesSet>"
        return (
            f"<item><reservationId>r-{xml.wire_id(one.id)[2:]}</reservationId><ownerId>{self.account}</ownerId><groupSet/>"
            f"{inner}</item>"
        )

    def _instance(self, one: Resource) -> str:
        id_, word = xml.wire_id(one.id), self._word(one) or "terminated"
        run = find_last_run(one, self.now_us)
        shape = [shape for shape in one.shapes if shape.at_us <= self.now_us][-1]
        fields: dict[str, str | None] = {
            "instanceId": id_,
            "imageId": "ami-0123456789abcdef0",
            "instanceState": f"<code>{xml.CODES[word]}</code><name>{word}</name>",
            "privateDnsName": "",
            "reason": xml.reason_of(one, run, word),
            "keyName": "shared",
            "amiLaunchIndex": "0",
            "productCodes": "",
            "instanceType": shape.type,
            "launchTime": xml.stamp(run.start_us if run else one.created_us),
            "placement": f"<availabilityZone>{zone_of(one)}</availabilityZone><groupName/><tenancy>default</tenancy>",
            "monitoring": "<state>disabled</state>",
            "architecture": "x86_64",
            "rootDeviceType": "ebs",
            "rootDeviceName": "/dev/sda1",
            "blockDeviceMapping": "" if word == "terminated" else self._devices(one),
            "virtualizationType": "hvm",
            "tagSet": self._tag_set(one),
            "hypervisor": "nitro",
            "networkInterfaceSet": "" if word == "terminated" else xml.interface_of(one),
            "ebsOptimized": "true",
            "platformDetails": "Linux/UNIX",
            "usageOperation": "RunInstances",
            **({"instanceLifecycle": "spot", "spotInstanceRequestId": f"sir-{id_[-8:]}"} if one.tier == "spot" else {}),
        }
        return xml.elements(fields, self.ec2.more.get(id_, {}))

    def _devices(self, one: Resource) -> str:
        return "".join(
            f"<item><deviceName>/dev/sd{'abcdefgh'[n]}{'' if n else 1}</deviceName>"
            f"<ebs><volumeId>{xml.disk_id(one.id, n)}</volumeId>"
            f"<status>attached</status><attachTime>{xml.stamp(one.created_us)}</attachTime>"
            "<deleteOnTermination>true</deleteOnTermination></ebs></item>"
            for n, _ in enumerate(one.disks)
        )

    def _tag_set(self, one: Resource) -> str:
        tag = ([tag for tag in one.tags if tag.at_us <= self.now_us] or [Tag(at_us=0, owner="")])[-1]
        pairs: dict[str, Any] = {"Name": one.name, **({"owner": tag.owner} if tag.owner else {}), **dict(tag.labels)}
        pairs.update(self.ec2.tags.get(xml.wire_id(one.id), {}))
        return "".join(
            f"<item><key>{xml.text(key)}</key>{'' if value is None else f'<value>{xml.text(value)}</value>'}</item>"
            for key, value in pairs.items()
            if value is not ...
        )

    def _volumes(self) -> list[tuple[str, str]]:
        """Every volume that is there, with its XML: those on their own, and the disks of instances."""
        found = [
            (xml.wire_id(one.id), self._volume(xml.wire_id(one.id), one, 0, ""))
            for one in self._here(SIM_VOLUME)
            if self._exists(one)
        ]
        for one in self._here(SIM_INSTANCE):
            if self._exists(one):
                ids = [xml.disk_id(one.id, n) for n, _ in enumerate(one.disks)]
                found += [(id_, self._volume(id_, one, n, xml.wire_id(one.id))) for n, id_ in enumerate(ids)]
        return found

    def _volume(self, id_: str, one: Resource, number: int, attached: str) -> str:
        disk = one.disks[number]
        attachment = f"<item><volumeId>{id_}</volumeId><instanceId>{attached}</instanceId><device>/dev/sda1</device></item>"
        fields: dict[str, str | None] = {
            "volumeId": id_,
            "size": str(disk.gb),
            "availabilityZone": zone_of(one),
            "status": "in-use" if attached else "available",
            "createTime": xml.stamp(one.created_us),
            "attachmentSet": attachment if attached else "",
            "volumeType": disk.type,
            "tagSet": "" if attached else self._tag_set(one),
        }
        return f"<item>{xml.elements(fields, self.ec2.more.get(id_, {}))}</item>"

    def _address(self, one: Resource) -> str:
        fields: dict[str, str | None] = {
            "publicIp": "203.0.113.7",
            "allocationId": xml.wire_id(one.id),
            "domain": "vpc",
            "publicIpv4Pool": "amazon",
            "tagSet": self._tag_set(one),
        }
        return f"<item>{xml.elements(fields, self.ec2.more.get(xml.wire_id(one.id), {}))}</item>"

    def _paged(self, action: str, name: str, every: list[Any], made: Callable[[Any], str]) -> Answer:
        asked = self.form.get("MaxResults", "1000")
        if not asked.isdigit() or not 5 <= int(asked) <= (100 if action == "DescribeInstanceTypes" else 1000):
            return ec2_error("InvalidParameterValue", "Value for parameter maxResults is invalid.")
        size = min(self.ec2.page, int(asked))
        try:
            start = int(base64.b64decode(self.form.get("NextToken", "MA==")))
        except ValueError:
            return ec2_error("InvalidParameterValue", "Invalid value for nextToken")
        end = start + size
        token = f"<nextToken>{base64.b64encode(str(end).encode()).decode()}</nextToken>" if end < len(every) else ""
        inner = "".join(made(one) for one in every[start:end])
        return ec2_xml(action, f"<{name}>{inner}</{name}>{token}")

    def _listed(self, name: str) -> list[str]:
        return [value for key, value in self.form.items() if re.fullmatch(rf"{name}\.\d+", key)]

    def _filter(self, name: str) -> list[str] | None:
        number = next((k.split(".")[1] for k, v in self.form.items() if v == name and k.endswith(".Name")), None)
        return None if number is None else self._listed(rf"Filter\.{number}\.Value")
